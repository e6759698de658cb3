"""Changes one input at one moment of a run, in a fork of a process that has all of regft loaded (``test_adversary``).

Started in a project with its own copy of the code. Reads requests (JSON) from stdin, a line each, and answers each
with a line: how an attacked run ended, or what a run of a project gives.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

HOME = Path.cwd()
METHODS = ("single", "two_phases", "soup", "tuned")
TASK, SIZE = "cue_sentence", "16"


# ------------------------------------------------------------------------------------------------- what is changed


def rewrite(path: Path, content: bytes) -> None:
    """Put another file in the place of one, with the times that the old one had."""
    status = path.stat()
    path.with_name("new").write_bytes(content)
    os.utime(path.with_name("new"), ns=(status.st_atime_ns, status.st_mtime_ns))
    path.with_name("new").rename(path)


def replace_text(path: Path, *pairs: tuple[str, str]) -> None:
    text = path.read_text()
    for old, new in pairs:
        assert old in text, (path, old)
        text = text.replace(old, new)
    rewrite(path, text.encode())


def change_weights(root: Path) -> None:
    from safetensors.torch import load, save

    path = root / "models" / "tiny" / "model.safetensors"
    tensors = {name: tensor * 1.5 for name, tensor in load(path.read_bytes()).items()}
    rewrite(path, save(tensors, {"format": "pt"}))


def change_vocabulary(root: Path) -> None:
    path = root / "models" / "tiny" / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    plain = [word for word in vocabulary if not word.startswith("[")]
    content["model"]["vocab"] = vocabulary | dict(zip(plain, [vocabulary[word] for word in reversed(plain)]))
    rewrite(path, json.dumps(content).encode())


def change_options(root: Path) -> None:
    for name in METHODS:
        replace_text(root / "pipelines" / "methods" / f"{name}.yaml", ("smoothing: 0.3", "smoothing: 0.4"))


def swap_labels(path: Path) -> None:
    replace_text(path, ('"label": 0', '"label": x'), ('"label": 1', '"label": 0'), ('"label": x', '"label": 1'))


LISTED, DATA = HOME / "regft_core" / "methods", HOME / "regft_core" / "data"
#: Kind of input -> what changes it, given the folder of the case's project.
CHANGES: dict[str, Callable[[Path], None]] = {
    "encoder weights": change_weights,
    "encoder settings": lambda root: replace_text(root / "models" / "tiny" / "config.json", ('"gelu"', '"relu"')),
    "tokenizer": change_vocabulary,
    "training rows": lambda root: swap_labels(root / "work" / "subsamples" / TASK / SIZE / "seed-0.jsonl"),
    "dev rows": lambda root: swap_labels(root / "work" / "datasets" / TASK / "dev.jsonl"),
    "configuration": change_options,
    "row code": lambda _: replace_text(DATA / "subsample.py", ('"subsample", task', '"drawn", task')),
    "token code": lambda _: replace_text(DATA / "encode.py", ("input_ids=[list(row)", "input_ids=[list(row)[::-1]")),
    "code": lambda _: replace_text(LISTED / "listed.py", ("SHARE = 1.0", "SHARE = 2.0")),
    "data file": lambda _: replace_text(LISTED / "listed.json", ("1.0", "3.0")),
}
#: Inputs that lie in the project of a case; the others are of the installation, which this process has loaded.
IN_THE_PROJECT = ("encoder weights", "encoder settings", "tokenizer", "training rows", "dev rows", "configuration")
#: Kinds that edit prepared rows, which would be made again if anyone looked.
PREPARED = ("training rows", "dev rows")
PLACES = {
    **dict.fromkeys(IN_THE_PROJECT, lambda root: [root / "models", root / "work", root / "pipelines"]),
    "row code": lambda _: [DATA],
    "token code": lambda _: [DATA],
    "code": lambda _: [LISTED],
    "data file": lambda _: [LISTED],
}


class Input:
    """One input that can be changed and put back, in the project at ``root``."""

    def __init__(self, kind: str, root: Path) -> None:
        self.kind, self.root = kind, root
        files = [file for place in PLACES[kind](root) for file in place.rglob("*") if file.is_file()]
        self.before = {file: file.read_bytes() for file in files if "__pycache__" not in file.parts}
        self.changed = False

    def change(self) -> None:
        if not self.changed:
            self.changed = True
            CHANGES[self.kind](self.root)

    def put_back(self) -> None:
        """Every file as it was; files are written only where they differ."""
        self.changed = False
        for file, content in self.before.items():
            if file.read_bytes() != content:
                rewrite(file, content)


# ------------------------------------------------------------------------------------------------- when it is changed


@contextmanager
def wrapped(owner: Any, name: str, before: Callable[[], None], after: Callable[[], None]) -> Iterator[None]:
    """Within the block, call ``before`` and ``after`` around every call of a function."""
    original = getattr(owner, name)
    function = original.__func__ if hasattr(original, "__func__") else original

    def around(*arguments: Any, **options: Any) -> Any:
        before()
        try:
            return function(*arguments, **options)
        finally:
            after()

    setattr(owner, name, classmethod(around) if hasattr(original, "__func__") else around)
    try:
        yield
    finally:
        setattr(owner, name, original)


def nothing() -> None:
    pass


@contextmanager
def at(moment: str, given: Input) -> Iterator[None]:
    """Within the block, the input changes at ``moment``."""
    from transformers import PreTrainedModel

    from regft_core.evaluate import predict
    from regft_core.grid import data
    from regft_core.runs.run_folder import OpenRun

    if moment in ("before planning", "before the start"):
        yield
        return
    owner, name, before, after = {
        "while rows are made": (data, "write_subsamples", given.change, nothing),
        "while the encoder loads": (PreTrainedModel, "from_pretrained", given.change, given.put_back),
        "in training": (OpenRun, "save_checkpoint", nothing, given.change),
        "between phases": (OpenRun, "commit", nothing, given.change),
        "during one phase only": (OpenRun, "commit", given.put_back, given.change),
        "in evaluation": (predict, "predict", given.change, nothing),
        "before the commit": (OpenRun, "commit", given.change, nothing),
    }[moment]
    with wrapped(owner, name, before, after):
        yield


# ------------------------------------------------------------------------------------------------- a case


def job(root: Path, method: str) -> Any:
    from regft_core.runs.job import Job

    return Job(str(root), method, TASK, SIZE, 0)


def planned(root: Path, method: str) -> list[str]:
    """The keys of everything that a job asks for, rows among them, as planning knows them: no torch."""
    from regft_core.disk.canonical import sha256_json
    from regft_core.grid.data import subsample_inputs
    from regft_core.runs.context import Context
    from regft_core.runs.evaluate import evaluation_key
    from regft_core.runs.project import open_project

    project = open_project(root)
    found = {sha256_json(subsample_inputs(project, TASK))}
    for asked in jobs(project, root, method):
        context = Context(asked, project=project)
        keys = {phase.name: context.keys.of(phase.name) for phase in context.method.phases}
        found |= {*keys.values(), evaluation_key(context, keys["finetune"])}
    return sorted(found)


def jobs(project: Any, root: Path, method: str) -> list[Any]:
    """The job, with every value that may have been chosen for it, and its trials."""
    from regft_core.runs.trials import trials_of_run

    trials = trials_of_run(project, method, TASK, SIZE, 0)
    return [*trials, *(replace(trial, trial=None) for trial in trials)] or [job(root, method)]


def make_rows(root: Path, kind: str) -> None:
    from regft_core.grid.data import prepare
    from regft_core.runs.project import open_project

    if kind not in PREPARED:
        prepare(open_project(root))


def attack(kind: str, moment: str, method: str, root: Path) -> dict[str, Any]:
    """Make rows and run a job while its input changes; what is there then is left in ``root``."""
    from regft_core.errors import RegftError
    from regft_core.runs.run import run

    given = Input(kind, root)
    before = planned(root, method)
    if moment == "while rows are made" and kind not in PREPARED:
        shutil.rmtree(root / "work" / "subsamples")
    if moment == "before planning":
        given.change()
    try:
        with at(moment, given):
            make_rows(root, kind)
            planned(root, method)
            if moment == "before the start":
                given.change()
            records = list(run(job(root, method)).values())
    except RegftError as error:
        return {"end": "refused", "error": type(error).__name__, "says": str(error)}
    given.put_back()
    make_rows(root, kind)
    assert planned(root, method) == before
    given.change()
    if kind in IN_THE_PROJECT:
        make_rows(root, kind)
    return {
        "end": "ended",
        "statuses": [record["status"] for record in records],
        "in_key": planned(root, method) != before,
    }


def set_world(root: Path, kind: str, world: str) -> None:
    """The project's inputs before or after the change; what was made of them stays."""
    if kind not in IN_THE_PROJECT:
        return
    for name in ("models", "pipelines", *(["work"] if kind in PREPARED else [])):
        shutil.rmtree(root / name, ignore_errors=True)
        shutil.copytree(HOME / "cases" / "original" / name, root / name)
    if world == "after":
        CHANGES[kind](root)


def again(kind: str, world: str, method: str, root: Path) -> dict[str, Any]:
    """Run a job in a world with whatever ``root`` has: rows, runs, tokens."""
    from regft_core.runs.run import run

    set_world(root, kind, world)
    make_rows(root, kind)
    records = run(job(root, method))
    assert {record["status"] for record in records.values()} == {"ok"}, records
    return {"asked": planned(root, method), "stored": contents(root, method)}


def behind(kind: str, world: str, method: str, root: Path, first: str) -> dict[str, Any]:
    """What a world makes of a first phase of whatever world, which is in the store; nothing where it refuses to."""
    from regft_core.errors import InputChanged
    from regft_core.runs.context import Context
    from regft_core.runs.evaluate import evaluate
    from regft_core.runs.train import finetune, search

    set_world(root, kind, world)
    make_rows(root, kind)
    searched = search(Context(job(root, method))) | {"phases": {"first": first}}
    context = Context(job(root, method))
    context.keys.take({"first": first})
    with suppress(InputChanged):  # weights that are the encoder's own are stored once, in the encoder
        evaluate(context, finetune(context, searched))
    return {"stored": contents(root, method)}


def contents(root: Path, method: str) -> dict[str, Any]:
    """Key -> phase and a hash of all bits of every run in the store, without times."""
    from regft_core.runs.context import Context

    store, found = Context(job(root, method)).store, {}
    for key in list(store.keys()):
        run = store.get(key)
        assert run is not None
        bits = {
            "result": {name: value for name, value in run.result.items() if name not in ("seconds", "cost")},
            "tensors": {name: run.tensors_sha256(name) for name in run.tensor_names},
            "files": {name: hashlib.sha256(run.read_bytes(name)).hexdigest() for name in run.files},
        }
        digest = hashlib.sha256(json.dumps(bits, sort_keys=True).encode()).hexdigest()
        found[key] = {"phase": run.identity["phase"], "bits": digest}
    return found


# ------------------------------------------------------------------------------------------------- the server


def forked(function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a function returns in a process of its own, which has loaded what this one has."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            answer = function()
        except BaseException:
            answer = {"end": "crashed", "trace": traceback.format_exc()}
        with os.fdopen(write, "w") as file:
            json.dump(answer, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        answer = json.load(file)
    os.waitpid(process, 0)
    return dict(answer)


def prepare() -> None:
    """Load everything and run every method once; the project of a case is a copy of ``cases/original``."""
    from regft_core.runs.run import run

    original = HOME / "cases" / "original"
    for name in ("models", "pipelines", "data"):
        shutil.copytree(HOME / name, original / name)
    shutil.copy(HOME / "params.yaml", original / "params.yaml")
    make_rows(original, "")
    warm = Path(shutil.copytree(original, HOME / "cases" / "warm"))
    for method in METHODS:
        for record in run(job(warm, method)).values():
            assert record["status"] == "ok", record


def answer(do: str, **request: str) -> dict[str, Any]:
    root = Path(request.pop("root"))
    functions = {"attack": attack, "again": again, "behind": behind}
    if do == "original":
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(HOME / "cases" / "original", root)
        return {}
    if do == "contents":
        return forked(lambda: contents(root, **request))
    # In a copy whose installation was changed from the beginning, nothing else changes it.
    installed = [Input(kind, root) for kind in CHANGES if kind not in IN_THE_PROJECT and not sys.argv[1:]]
    try:
        return forked(lambda: functions[do](root=root, **request))
    finally:
        for one in installed:
            one.put_back()


def main() -> None:
    if sys.argv[1:]:  # a copy of the project whose installation is changed from the beginning
        CHANGES[sys.argv[1]](HOME)
        time.sleep(0.1)  # code that was edited a moment ago may be another than the one that is loaded
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what regft prints is no answer
        prepare()
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(answer(**json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
