"""The contract of one regulariser, tried with a tiny encoder in a folder of its own: ``regft test-method``."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from regft_core.catalogue import METHODS, OPTIMISERS, use_project
from regft_core.contract import Promise, laws, raised, require, tried
from regft_core.contract.trial import Trial, quiet, trial_of
from regft_core.errors import RegftError, text_of
from regft_core.grid.compute import compute_only
from regft_core.hooks.base import Regulariser, implements
from regft_core.hooks.compose import in_the_way_of_export, precision_problems
from regft_core.hooks.registry import Entry, discover
from regft_core.runs.context import Context
from regft_core.runs.run import run
from regft_core.schema import DropoutConfig
from regft_core.schema.method import declared_cost, declared_fit
from regft_core.schema.training import TrainingConfig
from regft_core.serve.export import export
from regft_core.settings.read_project import open_project

NEAR = 1e-9


def check_method(root: Path, name: str) -> Iterator[Promise]:
    """Try the contract of the regulariser ``name``, promise by promise. Raises ConfigError where there is none."""
    use_project(root)
    require(METHODS, name)
    cls = discover()[name]
    yield Promise("its class declares what its hooks do", True)
    with tempfile.TemporaryDirectory(prefix="regft-contract-") as scratch:
        trains = "it trains on every kind of task that it fits"
        try:
            trial = trial_of(root, Path(scratch), name)
        except RegftError as error:
            yield Promise(trains, False, text_of(error))
            return
        trained = {task: _train(trial, task) for task in trial.tasks}
        wrong = [f"{task}: {said}" for task, (_, said) in trained.items() if said]
        yield Promise(f"{trains}: {', '.join(trial.tasks)}", not wrong, "; ".join(wrong))
        if wrong:
            return
        task = trial.tasks[0]
        for control in trial.controls:
            tensors, said = _train(trial, task, control)
            found = said or ("" if tensors != trained[task][0] else "its weights are the method's")
            yield Promise(f"its control {control} trains, and is another run", not found, found)
        if not trial.controls:
            yield Promise("a control shows what its ingredient does", None, "the class has no `controls`")
        yield from _laws(trial, task, cls)
        yield _exported(trial, task)


def _train(trial: Trial, task: str, method: str = "") -> tuple[dict[str, str], str]:
    """The hash of every file of tensors that the run left, and what went wrong, if anything did."""
    job = trial.job(task, method)
    try:
        with quiet():
            record = run(job, until="finetune")["finetune"]
    except Exception as error:  # the user's own code runs here
        return {}, raised(error)
    if record["status"] != "ok":
        return {}, str(record["error"])
    stored = Context(job).store.get(record["key"])
    assert stored is not None
    return {name: stored.tensors_sha256(name) for name in stored.tensor_names}, ""


def _laws(trial: Trial, task: str, cls: type[Regulariser]) -> Iterator[Promise]:
    """Try the laws in the last phase that has the regulariser, after those before it, for four steps."""
    from regft_core.runs.phase import phase_inputs
    from regft_core.runs.training_run import prepare as prepare_phase

    with quiet():
        context = Context(trial.job(task))
    of_run = [one for one in context.phases if cls.name in dict(one.declared.regularisers)][-1]
    inputs = phase_inputs(of_run, 0 if of_run.declared.repeat is not None else None)
    entries, training = [Entry(*entry) for entry in inputs.entries], inputs.setting.training
    steps = {"max_steps": 4} if training.epochs else {}

    def build(stack: Sequence[Entry], **changes: Any) -> laws.Make:
        shortened = replace(inputs.setting, training=training.model_copy(update={**steps, **changes}))
        of_stack = replace(inputs, setting=shortened, entries=stack, features=None)
        return lambda **options: prepare_phase(of_stack, **options).loop  # type: ignore[return-value]

    own, shared = next(entry for entry in entries if entry.cls is cls), context.project.sections[task][0].optimizer
    for promise, (law, untried) in promises(own, entries, training, shared, build).items():
        with quiet():
            kept = tried(promise, law, untried)
        yield kept


def _exported(trial: Trial, task: str) -> Promise:
    method = open_project(trial.root).methods[trial.method]
    kept = in_the_way_of_export(discover(), method.finetune.regularisers)

    def law() -> str:
        compute_only(trial.root, "finetune", [f"{trial.method}/{task}"])
        export(trial.job(task))
        return ""

    unsaid = f"'{kept}' keeps tensors that an ordinary model cannot hold" if kept else ""
    with quiet():
        return tried("exported it answers as it was trained", law, unsaid)


def promises(
    own: Entry, stack: Sequence[Entry], training: TrainingConfig, optimizer: str, build: Callable[..., laws.Make]
) -> dict[str, tuple[Callable[[], str], str]]:
    """Promise -> what tries it, and why there is nothing to try; empty where there is.

    ``stack`` are all regularisers of the phase of ``own``, ``optimizer`` the shared one. ``build`` takes a stack and
    changes of the protocol, and returns ``make`` of the laws.
    """
    cls, declares, off, near = own.cls, own.declares, _off(own), _near(own)
    still: dict[str, Any] = {"dropout": DropoutConfig(hidden=0.0, attention=0.0)}
    smooth = {**still, "epsilon": 1.0, "clip_norm": None, "weight_decay": 0.0, "learning_rate": 0.05}
    random = any(entry.declares.random_passes for entry in stack)
    exempt, no_steps = declares.description.exempt, "" if training.epochs else "its phase takes no steps"
    without_off = "" if off else "the class has no `off`"
    limits = no_steps or exempt.get("limit") or ("" if near else "no number in `off` leads there")
    answers = "it answers in place of the model" if implements(cls, "predict") else ""
    unpadded = no_steps or exempt.get("padding", "")
    dropout = no_steps or ("dropout tells its passes apart" if declares.dropout.either else "")
    make = partial(build, stack)

    def alone(entry: Entry | None, **changes: Any) -> laws.Make:
        assert entry is not None
        return build([entry], optimizer=entry.declares.optimizer or optimizer, **changes)

    def plain(beside: Entry | None, **changes: Any) -> laws.Make:
        """Plain fine-tuning with the optimiser that ``beside`` declares, if it is one of everybody's."""
        declared = beside.declares.optimizer if beside is not None else None
        return build((), optimizer=declared if declared in OPTIMISERS.names() else optimizer, **changes)

    listed: dict[str, tuple[Callable[[], str], str]] = {
        "trained twice it leaves the same bits": (lambda: laws.repeats(make()), ""),
        "it changes what a phase leaves": (lambda: laws.changes(make(), plain(own)), ""),
        "at strength 0 it is plain fine-tuning, bit for bit": (lambda: laws.zero(alone(off), plain(off)), without_off),
        "with hardly any strength it is hardly another than plain fine-tuning": (
            lambda: laws.limit(alone(near, **smooth), plain(near, **smooth)),
            limits,
        ),
        "it draws from generators of its own": (lambda: laws.own_draws(make(), Path(inspect.getfile(cls)).parent), ""),
        "in evaluation it draws nothing": (lambda: laws.inert(make()), answers),
        "killed and resumed it ends alike": (lambda: laws.resume(make(), 2), no_steps),
        "it runs the passes that it declares": (lambda: laws.passes(make(), declared_cost(stack)), no_steps),
        "its fit runs the passes that it declares": (lambda: laws.fit_passes(make(), declared_fit(stack)), ""),
        "its passes are random where it says so": (lambda: laws.random_passes(make(**still), random), dropout),
        "padding does not change its loss": (lambda: laws.padding(make(**still)), unpadded),
        "its passes leave the weights as they were": (lambda: laws.restored(make()), no_steps),
        "what it hands on and keeps can be stored": (lambda: laws.storable(make()), ""),
    }
    for precision in ("bf16", "fp16"):
        # In fp16 the first steps overflow and are skipped, each at half the scale of the one before.
        lossy = {"precision": precision, "allow_precision_loss": True, "max_steps": 20}
        refused = precision_problems(stack, training.model_copy(update=lossy))[0]
        listed[f"it trains in {precision}"] = partial(laws.trains, make(**lossy)), no_steps or "; ".join(refused)
    return listed


def _off(own: Entry) -> Entry | None:
    cls, options = own
    if cls.off is None:
        return None
    return Entry(cls, cls.Config.model_validate({**options.model_dump(exclude_unset=True), **cls.off}))


def _near(own: Entry) -> Entry | None:
    """The regulariser with the numbers of ``off``, moved a little toward its own; None where no such strength acts."""
    (cls, options), zero = own, _off(own)
    if zero is None:
        return None
    pairs = {name: (getattr(zero.options, name), getattr(options, name)) for name in cls.off or {}}
    moved = {
        name: value + NEAR * (strength - value)
        for name, (value, strength) in pairs.items()
        if isinstance(value, float) and isinstance(strength, float) and strength != value
    }
    try:
        nearly = Entry(cls, cls.Config.model_validate({**zero.options.model_dump(exclude_unset=True), **moved}))
    except ValidationError:
        return None
    return nearly if moved and nearly.declares.active else None
