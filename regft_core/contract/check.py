"""The contract of one regulariser, tried with a tiny encoder in a folder of its own: ``regft test-method``."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regft_core.catalogue import METHODS, OPTIMISERS, use_project
from regft_core.contract import Promise, raised, require, tried
from regft_core.contract.trial import Trial, job_of, quiet, ready, trial_of
from regft_core.errors import RegftError, text_of
from regft_core.grid.compute import compute_only
from regft_core.hooks.base import Regulariser, implements
from regft_core.hooks.compose import precision_problems
from regft_core.hooks.phase_entries import Entry, in_the_way_of_export
from regft_core.hooks.registry import discover
from regft_core.runs.context import Context
from regft_core.runs.project import open_project
from regft_core.runs.run import run
from regft_core.schema import DropoutConfig
from regft_core.schema.method import declared_cost, declared_fit
from regft_core.serve.export import export


def check_method(root: Path, name: str) -> Iterator[Promise]:
    """Try the contract of the regulariser ``name`` as the project at ``root`` sees it; each promise as it is tried.

    Raises ConfigError: there is none of that name, or its file is broken.
    """
    use_project(root)
    require(METHODS, name)
    cls = discover()[name]
    yield Promise("its class declares what its hooks do", True)
    with tempfile.TemporaryDirectory(prefix="regft-contract-") as scratch:
        trains = "it trains on every kind of task that it fits"
        try:
            trial = trial_of(root, Path(scratch), name)
            if not trial.listed:
                found = f"pipelines/methods/{trial.method}.yaml lists it under no regularisers"
                yield Promise("its method uses it", False, found)
                return
        except RegftError as error:
            yield Promise(trains, False, text_of(error))
            return
        trained = {task: _train(trial, trial.method, task) for task in trial.tasks}
        wrong = [f"{task}: {said}" for task, (_, said) in trained.items() if said]
        yield Promise(f"{trains}: {', '.join(trial.tasks)}", not wrong, "; ".join(wrong))
        if wrong:
            return
        task = trial.tasks[0]
        tensors = trained[task][0]
        for control in trial.controls:
            others, said = _train(trial, control, task)
            found = said or ("" if others != tensors else "its weights are the method's")
            yield Promise(f"its control {control} trains, and is another run", not found, found)
        if not trial.controls:
            yield Promise("a control shows what its ingredient does", None, "the class has no `controls`")
        yield from _laws(trial, task, name, cls)
        yield _exported(trial, task)


def _laws(trial: Trial, task: str, name: str, cls: type[Regulariser]) -> Iterator[Promise]:
    """Try the laws in the last phase that has the regulariser, after those before it, for four steps."""
    from regft_core.contract import laws, strength
    from regft_core.runs.phase import phase_inputs
    from regft_core.runs.training_run import prepare as prepare_phase

    job = job_of(trial, trial.method, task)
    with quiet():
        run(job, until="finetune")
        context = Context(job)
    listed = [phase.name for phase in context.method.phases if name in dict(phase.regularisers)]
    phase = context.phase(listed[-1])
    inputs = phase_inputs(context, phase, 0 if phase.repeat is not None else None)
    entries = [Entry(*entry) for entry in inputs.entries]
    own = next(entry for entry in entries if entry.cls is cls)
    steps = {"max_steps": 4} if phase.training.epochs else {}

    def maker(stack: Sequence[tuple[type[Regulariser], Any]] = entries, **training: Any) -> laws.Make:
        shortened = replace(phase, training=phase.training.model_copy(update={**steps, **training}))
        of_stack = replace(inputs, phase=shortened, entries=stack, features=None)
        return lambda **options: prepare_phase(of_stack, **options).loop  # type: ignore[return-value]

    off, near, shared = strength.off(own), strength.nearly_off(own), context.project.sections[task][0].optimizer
    still: dict[str, Any] = {"dropout": DropoutConfig(hidden=0.0, attention=0.0)}
    smooth = {**still, "epsilon": 1.0, "clip_norm": None, "weight_decay": 0.0, "learning_rate": 0.05}

    def rule(entry: Entry | None) -> dict[str, Any]:
        """The optimiser of plain fine-tuning beside it: that which it declares, if it is one of everybody's."""
        declared = entry.declares.optimizer if entry is not None else None
        return {"optimizer": declared if declared in OPTIMISERS.names() else shared}

    def alone(entry: Entry | None, **training: Any) -> laws.Make:
        assert entry is not None
        return maker([entry], optimizer=entry.declares.optimizer or shared, **training)

    declares, takes_steps = own.declares, "" if phase.training.epochs else "its phase takes no steps"
    exempt = declares.description.exempt
    laws_tried: list[tuple[str, Callable[[], str], str]] = [
        ("trained twice it leaves the same bits", lambda: laws.repeats(maker()), ""),
        ("it changes what a phase leaves", lambda: strength.changes(maker(), maker((), **rule(own))), ""),
        (
            "at strength 0 it is plain fine-tuning, bit for bit",
            lambda: strength.zero(alone(off), maker((), **rule(off))),
            "" if off else "the class has no `off`",
        ),
        (
            "with hardly any strength it is hardly another than plain fine-tuning",
            lambda: strength.limit(alone(near, **smooth), maker((), **smooth, **rule(near))),
            takes_steps or exempt.get("limit") or ("" if near else "no number in `off` leads there"),
        ),
        ("it draws from generators of its own", lambda: laws.own_draws(maker(), Path(inspect.getfile(cls)).parent), ""),
        (
            "in evaluation it draws nothing",
            lambda: laws.inert(maker()),
            "it answers in place of the model" if implements(cls, "predict") else "",
        ),
        ("killed and resumed it ends alike", lambda: laws.resume(maker(), 2), takes_steps),
        ("it runs the passes that it declares", lambda: laws.passes(maker(), declared_cost(entries)), takes_steps),
        ("its fit runs the passes that it declares", lambda: laws.fit_passes(maker(), declared_fit(entries)), ""),
        (
            "its passes are random where it says so",
            lambda: laws.random_passes(maker(**still), any(entry.declares.random_passes for entry in entries)),
            takes_steps or ("dropout tells its passes apart" if declares.dropout.either else ""),
        ),
        (
            "padding does not change its loss",
            lambda: laws.padding(maker(**still)),
            takes_steps or exempt.get("padding", ""),
        ),
        ("its passes leave the weights as they were", lambda: laws.restored(maker()), takes_steps),
        ("what it hands on and keeps can be stored", lambda: laws.storable(maker()), ""),
    ]
    for precision in ("bf16", "fp16"):
        lossy: dict[str, Any] = {"precision": precision, "allow_precision_loss": True}
        refused = precision_problems(entries, phase.training.model_copy(update=lossy))[0]
        law = laws.trains(maker(**lossy))
        laws_tried.append((f"it trains in {precision}", law, takes_steps or "; ".join(refused)))
    for says, law, unsaid in laws_tried:
        with quiet():
            promise = tried(says, law, unsaid)
        yield promise


def _exported(trial: Trial, task: str) -> Promise:
    promise = "exported it answers as it was trained"
    method = open_project(trial.root).methods[trial.method]
    if kept := in_the_way_of_export(discover(), method.finetune.regularisers):
        return Promise(promise, None, f"'{kept}' keeps tensors that an ordinary model cannot hold")

    def law() -> str:
        compute_only(trial.root, "finetune", [f"{trial.method}/{task}"])
        export(job_of(trial, trial.method, task))
        return ""

    with quiet():
        return tried(promise, law)


def _train(trial: Trial, method: str, task: str) -> tuple[dict[str, str], str]:
    """The hash of every file of tensors that the run left, and what went wrong, if anything did."""
    job = job_of(trial, method, task)
    try:
        with quiet():
            ready(trial)
            record = run(job, until="finetune")["finetune"]
    except Exception as error:  # the user's own code runs here
        return {}, raised(error)
    if record["status"] != "ok":
        return {}, str(record["error"])
    stored = Context(job).store.get(record["key"])
    assert stored is not None
    return {name: stored.tensors_sha256(name) for name in stored.tensor_names}, ""
