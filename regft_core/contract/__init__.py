"""The contract of one regulariser, tried with the project's encoder in a folder of its own: ``regft test-method``.

Every method trains on texts and on pairs, twice alike; at strength 0 it is plain fine-tuning bit for bit; its controls
are other runs; its export answers as what was trained; and it keeps ``laws``, in the phase that it acts in.
"""

from __future__ import annotations

import inspect
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from regft_core.catalogue import OWN, use_project
from regft_core.errors import ConfigError, Problem, RegftError, text_of
from regft_core.grid.compute import compute_only
from regft_core.grid.data import prepare
from regft_core.grid.keys import write_plan
from regft_core.hooks.base import Regulariser
from regft_core.hooks.registry import discover
from regft_core.names import suggestion
from regft_core.runs.context import Context
from regft_core.runs.job import Job
from regft_core.runs.project import open_project
from regft_core.runs.run import run
from regft_core.schema import DropoutConfig
from regft_core.schema.method import declared_cost
from regft_core.serve.export import export
from regft_core.settings.document import load_yaml
from regft_core.settings.files import METHODS, find, method_file, task_file
from regft_core.settings.preset import link

SIZE = 16
#: Task of the trial -> the shipped one that it is a few rows of.
TASKS = {"contract_text": "cue_sentence", "contract_pair": "cue_pair"}
ROWS = {"train": 32, "dev": 16, "no_cue": 16, "reversed": 16}
OFF = "contract_off"


@dataclass(frozen=True)
class Promise:
    """One promise of the contract, and what was found.

    Attributes:
        kept: None where the method does not say what the promise is about.
    """

    says: str
    kept: bool | None
    found: str = ""


def check_method(root: Path, name: str) -> Iterator[Promise]:
    """Try the contract of the regulariser ``name`` as the project at ``root`` sees it; each promise as it is tried.

    Raises ConfigError: there is none of that name, or its file is broken.
    """
    use_project(root)
    registry = discover()
    if name not in registry:
        hint = suggestion(name, sorted(registry), "there are")
        problem = Problem("unknown-regulariser", f"methods/{name}.py", 0, "", f"no file defines '{name}'", hint)
        raise ConfigError([problem])
    cls = registry[name]
    yield Promise("its class declares what its hooks do", True)
    with tempfile.TemporaryDirectory(prefix="regft-contract-") as scratch:
        one, two = (_project(root, Path(scratch) / part, name, cls.off) for part in ("one", "two"))
        try:
            methods = open_project(one).methods
            if not any(name in dict(phase.regularisers) for phase in methods[name].phases):
                yield Promise("its method uses it", False, f"{method_file(name)} lists it under no regularisers")
                return
            controls = [listed for listed in methods if listed.startswith(f"{name}_")]
            trained = {task: _train(one, name, task) for task in TASKS}
        except RegftError as error:
            yield Promise("it trains on texts and on pairs", False, text_of(error))
            return
        wrong = [f"{task}: {said}" for task, (_, said) in trained.items() if said]
        yield Promise("it trains on texts and on pairs", not wrong, "; ".join(wrong))
        if wrong:
            return
        text = next(iter(TASKS))
        weights = trained[text][0]
        again, _ = _train(two, name, text)
        yield Promise("trained twice it has the same weights", again == weights)
        plain, _ = _train(one, "vanilla", text)
        if cls.off is None:
            yield Promise("at strength 0 it is plain fine-tuning", None, "the class has no `off`")
        else:
            off, said = _train(two, OFF, text)
            plain_again, _ = _train(two, "vanilla", text)
            found = said or ("" if off == plain_again else f"weights with {dict(cls.off)} differ from vanilla's")
            yield Promise("at strength 0 it is plain fine-tuning, bit for bit", not found, found)
        yield Promise("it changes the weights", weights != plain, "" if weights != plain else "they are vanilla's")
        for control in controls:
            other, said = _train(one, control, text)
            found = said or ("" if other != weights else "its weights are the method's")
            yield Promise(f"its control {control} trains, and is another run", not found, found)
        if not controls:
            yield Promise("a control shows what its ingredient does", None, "the class has no `controls`")
        yield from _laws(one, name, text, cls)
        try:
            with _quiet():
                compute_only(one, "finetune", [f"{name}/{text}"])
                export(_job(one, name, text))
            yield Promise("exported it answers as it was trained", True)
        except RegftError as error:
            yield Promise("exported it answers as it was trained", False, text_of(error))


def _laws(root: Path, name: str, task: str, cls: type[Regulariser]) -> Iterator[Promise]:
    """Try the laws in the last phase that has the regulariser, after those before it, for four steps."""
    from regft_core.contract import laws
    from regft_core.runs.phase import phase_inputs
    from regft_core.runs.training_run import prepare as prepare_phase

    job = _job(root, name, task)
    with _quiet():
        record = run(job, until="finetune")["finetune"]
        context = Context(replace(job, keys=record["phases"]))
    listed = [phase.name for phase in context.method.phases if name in dict(phase.regularisers)]
    phase = context.phase(listed[-1])
    inputs = phase_inputs(context, phase, 0 if phase.repeat is not None else None)

    def maker(**training: Any) -> laws.Make:
        shortened = replace(inputs, phase=replace(phase, training=phase.training.model_copy(update=training)))
        return lambda **options: prepare_phase(shortened, **options).loop  # type: ignore[return-value]

    def in_steps(law: Callable[[], str]) -> Callable[[], str] | None:
        return law if phase.training.epochs else None

    entries = list(inputs.entries)
    invariant = cls.declare(dict(entries)[cls]).description.padding_invariant
    make, still = maker(max_steps=4), maker(dropout=DropoutConfig(hidden=0.0, attention=0.0))
    tried: list[tuple[str, Callable[[], str] | None]] = [
        ("it draws from generators of its own", lambda: laws.own_draws(make, Path(inspect.getfile(cls)).parent)),
        ("killed and resumed it ends alike", in_steps(lambda: laws.resume(make, 2))),
        (
            "it runs the passes that it declares",
            in_steps(lambda: laws.passes(make, declared_cost(entries))),
        ),
        ("padding does not change its loss", in_steps(lambda: laws.padding(still)) if invariant else None),
        ("its passes leave the weights as they were", in_steps(lambda: laws.restored(maker()))),
        ("what it hands on and keeps can be stored", lambda: laws.storable(make)),
    ]
    for promise, law in tried:
        if law is None:
            yield Promise(
                promise, None, "the class says otherwise" if phase.training.epochs else "its phase takes no steps"
            )
            continue
        try:
            wrong = law()
        except Exception as error:  # the method's own code runs here
            wrong = text_of(error) if isinstance(error, RegftError) else f"raises {type(error).__name__}: {error}"
        yield Promise(promise, not wrong, wrong)


def _project(root: Path, folder: Path, name: str, off: Mapping[str, Any] | None) -> Path:
    """A project with the method, the method at strength 0, and plain fine-tuning; with own code of ``root``."""
    for own in OWN:
        link(folder / own, (root / own).resolve())
    for task, shipped in TASKS.items():
        path = find(root, "pipelines/tasks", shipped)
        assert path is not None
        declared = load_yaml(path, root).data
        source = {**declared["source"], "options": {**declared["source"]["options"], "rows": ROWS}}
        _write(folder / task_file(task), {**declared, "source": source, "ood": {}})
    path = find(root, METHODS, name)
    if path is None:
        _write(folder / method_file(name), {"regularisers": {name: {}}, "training": {}})
    elif path.is_relative_to(root):  # else it is shipped, and found
        _write(folder / method_file(name), load_yaml(path, root).data)
    if off is not None:
        _write(folder / method_file(OFF), {"regularisers": {name: dict(off)}, "training": {}})
    params = load_yaml(root / "params.yaml", root).data if (root / "params.yaml").is_file() else {}
    model = {**params.get("model", {"name": "minilm"}), "max_length": 128}
    if (root / str(model["name"])).is_dir():
        model["name"] = str((root / str(model["name"])).resolve())
    controls = [f"{name}_{end}" for end in discover()[name].controls]
    settings = {
        "model": model,
        "grid": {"tasks": list(TASKS), "sizes": [SIZE], "seeds": [0]},
        "methods": ["vanilla", name, *([OFF] if off is not None else []), *controls],
        "subsample": {},
        "training": {"max_steps": 2, "epochs": 1, "batch_size": 8, "learning_rate": 1.0e-3},
        "execution": {"executor": "serial", "device": "cpu"},
        "report": {"reference": "vanilla"},
    }
    _write(folder / "params.yaml", settings)
    return folder


def _write(path: Path, data: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True), encoding="utf-8")


def _job(root: Path, method: str, task: str) -> Job:
    return Job(str(root), method, task, str(SIZE), 0)


@contextmanager
def _quiet() -> Iterator[None]:
    """Within the block nothing is printed: what is said of generated rows helps nobody."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


def _train(root: Path, method: str, task: str) -> tuple[str, str]:
    """The hash of the trained weights, and what went wrong, if anything did."""
    if not (root / "work" / "plan").is_dir():
        with _quiet():
            prepare(open_project(root))
            write_plan(open_project(root))
    job = _job(root, method, task)
    record = run(job, until="finetune")["finetune"]
    if record["status"] != "ok":
        return "", str(record["error"])
    stored = Context(job).store.get(record["key"])
    assert stored is not None
    return stored.tensors_sha256("weights"), ""
