"""Changes one input at one moment of a run, in a fork of a process that has all of regft loaded (``test_adversary``).

Started in a project with its own copy of the code. Reads cases (JSON) from stdin, a line each, and answers each with a
line: how the run ended, and what is wrong with what is in the store.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
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


def change_package(_: Path) -> None:
    kit = HOME / "kit"
    replace_text(kit / "adversary_kit.py", ("FACTOR = 1.0", "FACTOR = 4.0"))
    replace_text(kit / "adversary_kit-1.0.dist-info" / "METADATA", ("Version: 1.0", "Version: 2.0"))
    (kit / "adversary_kit-1.0.dist-info").rename(kit / "adversary_kit-2.0.dist-info")


def change_options(root: Path) -> None:
    for name in METHODS:
        replace_text(root / "pipelines" / "methods" / f"{name}.yaml", ("smoothing: 0.3", "smoothing: 0.4"))


def swap_labels(path: Path) -> None:
    replace_text(path, ('"label": 0', '"label": x'), ('"label": 1', '"label": 0'), ('"label": x', '"label": 1'))


LISTED = HOME / "regft_core" / "methods"
#: Kind of input -> what changes it, given the folder of the case's project.
CHANGES: dict[str, Callable[[Path], None]] = {
    "encoder weights": change_weights,
    "encoder settings": lambda root: replace_text(root / "models" / "tiny" / "config.json", ('"gelu"', '"relu"')),
    "tokenizer": change_vocabulary,
    "training rows": lambda root: swap_labels(root / "work" / "subsamples" / TASK / SIZE / "seed-0.jsonl"),
    "dev rows": lambda root: swap_labels(root / "work" / "datasets" / TASK / "dev.jsonl"),
    "configuration": change_options,
    "code": lambda _: replace_text(LISTED / "listed.py", ("SHARE = 1.0", "SHARE = 2.0")),
    "data file": lambda _: replace_text(LISTED / "listed.json", ("1.0", "3.0")),
    "package": change_package,
}
#: Inputs that lie in the project of a case; the others are of the installation, which this process has loaded.
IN_THE_PROJECT = ("encoder weights", "encoder settings", "tokenizer", "training rows", "dev rows", "configuration")
PLACES = {
    **dict.fromkeys(IN_THE_PROJECT, lambda root: [root / "models", root / "work", root / "pipelines"]),
    "code": lambda _: [LISTED],
    "data file": lambda _: [LISTED],
    "package": lambda _: [HOME / "kit"],
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
        with suppress(FileNotFoundError):
            (HOME / "kit" / "adversary_kit-2.0.dist-info").rename(HOME / "kit" / "adversary_kit-1.0.dist-info")
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
    from regft_core.runs.store.working_run import WorkingRun

    if moment in ("before planning", "before the start"):
        yield
        return
    owner, name, before, after = {
        "while the encoder loads": (PreTrainedModel, "from_pretrained", given.change, given.put_back),
        "in training": (WorkingRun, "save_checkpoint", nothing, given.change),
        "between phases": (WorkingRun, "commit", nothing, given.change),
        "during one phase only": (WorkingRun, "commit", given.put_back, given.change),
        "in evaluation": (predict, "predict", given.change, nothing),
        "before the commit": (WorkingRun, "commit", given.change, nothing),
    }[moment]
    with wrapped(owner, name, before, after):
        yield


# ------------------------------------------------------------------------------------------------- a case


def job(root: Path, method: str) -> Any:
    from regft_core.runs.job import Job

    return Job(str(root), method, TASK, SIZE, 0)


def planned(root: Path, method: str) -> list[str]:
    """The keys of everything that a job asks for, as planning knows them: no torch."""
    from regft_core.runs.project import open_project
    from regft_core.runs.recompute import expected

    project = open_project(root)
    return sorted(expected(project, jobs(project, root, method)))


def jobs(project: Any, root: Path, method: str) -> list[Any]:
    """The job, with every value that may have been chosen for it, and its trials."""
    from regft_core.runs.trials import trials_of_run

    trials = trials_of_run(project, method, TASK, SIZE, 0)
    return [*trials, *(replace(trial, trial=None) for trial in trials)] or [job(root, method)]


def attack(case: dict[str, str], root: Path) -> dict[str, Any]:
    """Run a job while its input changes."""
    from regft_core.errors import RegftError
    from regft_core.runs.one_run import run

    given = Input(case["kind"], root)
    before = planned(root, case["method"])
    if case["moment"] == "before planning":
        given.change()
    try:
        planned(root, case["method"])
        if case["moment"] == "before the start":
            given.change()
        with at(case["moment"], given):
            records = list(run(job(root, case["method"])).values())
    except RegftError as error:
        return {"end": "refused", "error": type(error).__name__, "says": str(error)}
    given.put_back()
    assert planned(root, case["method"]) == before
    given.change()
    return {
        "end": "ended",
        "statuses": [record["status"] for record in records],
        "in_key": planned(root, case["method"]) != before,
    }


def judge(case: dict[str, str], root: Path) -> dict[str, Any]:
    """What is in the store that is not what a run gives on the input in its key: as it was before, or is after."""
    from regft_core.runs.context import Context

    store = Context(job(root, case["method"])).store
    left = {key: run for key in list(store.keys()) if (run := store.get(key)) is not None}
    found: dict[str, Any] = {"stored": len(left), "wrong": []}
    original = HOME / "cases" / "original"
    worlds = ("before", "after") if case["kind"] in IN_THE_PROJECT else ("before",)
    for world in worlds:
        for name in ("models", "work", "pipelines"):
            shutil.rmtree(root / name)
            shutil.copytree(original / name, root / name)
        given = Input(case["kind"], root)
        if world == "after":
            given.change()
        found["wrong"] += compared(case, root, left)
    found["unknown"] = [run.identity["phase"] for run in left.values()]
    return found


def compared(case: dict[str, str], root: Path, left: dict[str, Any]) -> list[str]:
    """Compute again what this world makes of the runs, and take these out of ``left``; returns what differs."""
    from regft_core.runs.project import open_project
    from regft_core.runs.recompute import differences, expected

    project = open_project(root)
    asked = jobs(project, root, case["method"])
    # Whatever a first phase was made of, the phase after it is right if it started from that one.
    firsts = [run.key for run in list(left.values()) if run.identity["phase"] == "first"]
    _firsts.update(firsts)
    asked += [replace(one, keys={"first": key}) for one in asked for key in sorted(_firsts)]
    known = expected(project, asked)
    wrong = []
    for key in sorted(known.keys() & left.keys()):
        wrong += [f"{known[key].name}: {what}" for what in differences(project, known[key], left.pop(key), "cpu")]
    return wrong + [what for trial in asked if trial.trial is not None for what in score_differences(trial, left)]


#: Keys of first phases that were seen in the store.
_firsts: set[str] = set()


def score_differences(trial: Any, left: dict[str, Any]) -> list[str]:
    """Judge a trial again whose score is in the store."""
    from regft_core.runs.trial_scores import look_up_trial, try_values

    stored = {key: run for key, run in left.items() if run.identity["phase"] == "trial score"}
    if look_up_trial(trial) is None:
        return []
    wrong = []
    for key, run in stored.items():
        aside = run.path.with_name("aside")
        run.path.rename(aside)
        if look_up_trial(trial) is not None:  # the score of another trial
            aside.rename(run.path)
            continue
        again = try_values(trial)
        if again["score"] != run.result["score"]:
            wrong.append(f"score of trial {trial.trial}: {run.result['score']}, now {again['score']}")
        shutil.rmtree(aside)
        left.pop(key)
    return wrong


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
    from regft_core.runs.one_run import run

    original = HOME / "cases" / "original"
    for name in ("models", "work", "pipelines", "data"):
        shutil.copytree(HOME / name, original / name)
    shutil.copy(HOME / "params.yaml", original / "params.yaml")
    warm = Path(shutil.copytree(original, HOME / "cases" / "warm"))
    for method in METHODS:
        for record in run(job(warm, method)).values():
            assert record["status"] == "ok", record


def answer(case: dict[str, str]) -> dict[str, Any]:
    root = Path(shutil.copytree(HOME / "cases" / "original", HOME / "cases" / "case"))
    installed = Input("code", root), Input("package", root)
    try:
        found = forked(lambda: attack(case, root))
        for one in installed:
            one.put_back()
        return found | forked(lambda: judge(case, root))
    finally:
        shutil.rmtree(root)


def main() -> None:
    prepare()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
