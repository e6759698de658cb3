"""What is in the key of a run, and what is not; which runs an edit of the code touches: those that compute with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.disk.canonical import sha256_json
from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluation_identity
from tests.runs.conftest import TASK, change, edit, job, key, write_method
from tests.small_project import REPOSITORY

BY_LENGTH = "from regft_core.training.samplers import by_length\n\nbatches = by_length\n"


@pytest.mark.parametrize(
    ("folder", "setting", "text"),
    [
        ("schedules", {"training": {"schedule": "own"}}, "def factor(progress):\n    return 1.0\n"),
        ("samplers", {"training": {"sampler": "own"}}, BY_LENGTH),
        ("poolings", {"model": {"pooling": "own"}}, "def pool(hidden, mask, summary):\n    return hidden.amax(1)\n"),
    ],
)
def test_a_file_of_ones_own_is_in_the_keys_of_what_it_computes(
    project: Path, folder: str, setting: dict[str, Any], text: str
) -> None:
    (project / folder).mkdir()
    file = project / folder / "own.py"
    file.write_text(text)
    shipped = key(project)
    change(project, **setting)
    first = key(project)
    assert first != shipped
    file.write_text(text + "# a comment\n")
    assert key(project) == first
    file.write_text(text + "USED = 1\n")
    assert key(project) != first


@pytest.mark.parametrize("changes", [{"learning_rate": 2e-3}, {"epochs": 3}, {"warmup_ratio": 0.2}])
def test_a_setting_of_steps_is_in_no_key_of_a_phase_without_steps(project: Path, changes: dict[str, Any]) -> None:
    """The probe is not fitted again for another learning rate; what goes on from it is trained again."""
    change(project, methods=["vanilla", "linear_probe", "lp_ft"])
    places = [("linear_probe", "finetune"), ("lp_ft", "head"), ("lp_ft", "finetune")]
    first = [key(project, *place) for place in places]
    change(project, training=changes)
    found = [one == other for one, other in zip(first, (key(project, *place) for place in places), strict=True)]
    assert found == [True, True, False]


def test_packages_that_compute_are_in_the_key_with_their_versions(project: Path) -> None:
    """Left out of the key, results of two versions would pass for one."""
    context = Context(job(project, "weight_mixup"))
    for phase in (context.last.identity(), context.phase("search").identity(0)):
        used = {package: version(package) for package in ("torch", "transformers", "tokenizers", "numpy")}
        assert phase["packages"].items() >= used.items()
        assert not {"rich", "pydantic", "mlflow", "dvc"} & set(phase["packages"])


def test_what_changes_the_key_of_an_evaluation(project: Path) -> None:
    def found(method: str = "vanilla", run: str = "a" * 64) -> str:
        context = Context(job(project, method))
        context.take({"finetune": run})
        return sha256_json(evaluation_identity(context))

    first = found()
    assert found("hype_n") == first  # the run's key has the rest
    assert found(run="b" * 64) != first
    for changes in ({"model": {"max_length": 16}}, {"model": {"pooling": "mean"}}):
        before = (project / "params.yaml").read_text()
        change(project, **changes)
        assert found() != first
        (project / "params.yaml").write_text(before)
    for file, old, new in (
        ("ood/reversed.jsonl", "the", "teh"),
        ("dev.jsonl", '"label": 1', '"label": 0'),
        ("task.json", '"primary": "accuracy"', '"primary": "f1"'),
    ):
        path = project / "work/datasets" / TASK / file
        before = path.read_text()
        edit(path, old, new)
        assert found() != first, file
        path.write_text(before)
    assert found() == first


# -------------------------------------------------------------------------------------------------- edits of the code


METHODS = {"vanilla", "hype_n", "pats", "adamax", "weight_mixup", "posttrained", "soup"}
MEMBERS = {"weight_mixup", "soup"}

NEW_METHOD = """
from regft_core.schema import StrictModel
from regft_core.hooks.base import Regulariser

class Unlisted(Regulariser):
    name = "unlisted"
    Config = StrictModel
"""
#: Computes the key of every run, and the code of other stages, as the code is and after each edit. Each time in a new
#: process, forked from one that has loaded the third parties.
DRIVER = """
import json, os, sys
from pathlib import Path
import numpy, pydantic, yaml  # noqa
def say():
    from regft_core.runs.context import Context
    from regft_core.runs.context import Job
    from regft_core.settings.read_project import open_project
    from regft_core.runs.code import code_of
    from regft_core.runs.keys import scope_of
    project = open_project(Path.cwd())
    runs = {}
    for name, method in project.methods.items():
        context = Context(Job(".", name, "cue_sentence", "24", 0), project=project)
        runs[name] = [context.key(phase.name) for phase in method.phases]
    metrics, kinds, source = project.tasks["cue_sentence"].metrics, ["classification"], context.last.source
    stages = {name: code_of(scope_of(name, kinds=kinds)).sha256 for name in ("dataset", "subsample")}
    stages["evaluate"] = code_of(scope_of("evaluate", kinds=kinds, metrics=metrics, source=source)).sha256
    stages["report"] = code_of(scope_of("report", metrics=metrics)).sha256
    assert "torch" not in sys.modules
    return {"runs": runs, "stages": stages}

def fresh():
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            answer = say()
        except BaseException as error:
            answer = {"error": repr(error)}
        with os.fdopen(write, "w") as file:
            json.dump(answer, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        answer = json.load(file)
    os.wait()
    return answer

answers = [fresh()]
for edits in json.load(sys.stdin):
    before = {}
    for name, old, new in edits:
        path = Path("regft_core", name)
        text = path.read_text() if path.exists() else ""
        before.setdefault(path, text if path.exists() else None)
        assert old in text, (name, old)
        path.write_text(text.replace(old, new, 1) if old else text + new)
    answers.append(fresh())
    for path, text in before.items():
        path.unlink() if text is None else path.write_text(text)
print(json.dumps(answers))
"""

#: Edits that touch no run: comments, docstrings, annotations of functions, layout, what schedules and draws; new files;
#: plug-ins that nobody here uses. (File below regft_core, old text, new text.)
HARMLESS: list[tuple[str, str, str]] = [
    ("training/loop.py", "", "\n# a comment\n"),
    ("training/loop.py", '"""The only training loop.', '"""The one loop.'),
    ("training/step.py", "if TYPE_CHECKING:", "if TYPE_CHECKING:\n    import regft_core.methods.pats"),
    ("grid/executors/serial.py", "", "\nUNUSED = 1\n"),
    ("output.py", "LOG_SECONDS = 60.0", "LOG_SECONDS = 30.0"),
    ("__init__.py", '__version__ = "', '__version__ = "9'),
    ("methods/unlisted.py", "", NEW_METHOD),
    ("training/optimisers/unlisted.py", "", "SCALE = 1\n"),
    ("kinds/regression.py", "", "\nUSED = 1\n"),
]
REPORTING: list[tuple[str, str, str]] = [
    ("report/figures/__init__.py", "", "\nprint('loaded')\n"),
    ("schema/params.py", "0.95, gt=0.5", "0.9, gt=0.5"),
]
#: (file, old text, new text, methods whose runs it touches, other stages that it touches).
TABLE: list[tuple[str, str, str, set[str], set[str]]] = [
    # What computes: those that can compute with its file.
    ("methods/pats.py", "GROUP = 1 << 25", "GROUP = 1 << 24", {"pats"}, set()),
    ("training/optimisers/adamax.py", "", "\nprint('loaded')\n", {"pats", "adamax"}, set()),
    ("training/two_level.py", "", "\nprint('loaded')\n", {"weight_mixup"}, set()),
    ("models/masking.py", "", "\nUSED = 1\n", {"posttrained"}, set()),
    ("models/families/__init__.py", 'projections=("embeddings.embed_proj",)', "projections=()", METHODS, {"evaluate"}),
    ("hooks/declare.py", "edit_order: int = 0", "edit_order: int = 1", METHODS, {"report"}),
    ("runs/training_run.py", "matmul.allow_tf32 = tf32", "matmul.allow_tf32 = True", METHODS, set()),
    ("data/encode.py", "LIMIT_TOKENS = 2", "LIMIT_TOKENS = 3", METHODS, {"evaluate"}),
    ("schema/training.py", '"adamw", description', '"adamax", description', METHODS - {"pats", "adamax"}, set()),
    # What merges, judges, draws and reads.
    ("training/merges/__init__.py", ".double()", ".float()", MEMBERS, set()),
    ("metrics/_weighted.py", "predicted == gold", "predicted != gold", {"soup"}, {"evaluate", "report"}),
    ("evaluate/evaluated.py", "", "\nUSED = 1\n", {"soup"}, {"evaluate", "report"}),
    ("data/subsample.py", "least = 1", "least = 2", set(), {"subsample"}),
    ("kinds/classification.py", "log_softmax", "softmax", METHODS, {"dataset", "subsample", "evaluate"}),
    ("kinds/_reading.py", "BINS = 10", "BINS = 5", set(), {"dataset", "subsample", "report"}),
    ("kinds/_judging.py", "BELOW_CHANCE_P = 1e-3", "BELOW_CHANCE_P = 1e-4", {"soup"}, {"evaluate"}),
    ("rng.py", "sha256", "sha512", METHODS, {"dataset", "subsample", "evaluate", "report"}),
]


CASES: list[tuple[list[tuple[str, str, str]], set[str], set[str]]] = [
    (HARMLESS, set(), set()),
    (REPORTING, set(), {"report"}),
    *(([(file, old, new)], runs, stages) for file, old, new, runs, stages in TABLE),
]


@pytest.fixture(scope="module")
def copied(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with its own copy of the code and a method for every kind of use."""
    root = Path(shutil.copytree(template, tmp_path_factory.mktemp("edits") / "project"))
    for name in ("regft_core", "stages"):
        # The links to what is shipped lead to the project's own files then.
        shutil.copytree(REPOSITORY / name, root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pats", "adamax"):
        content = yaml.safe_load((root / "pipelines/methods" / f"{name}.yaml").read_text())
        write_method(root, name, **{**content, "control_for": [], "differs_in": []})
    text = {"data": {"size": "full", "labels": False}, "regularisers": {"masked_lm": {}}}
    write_method(root, "posttrained", phases={"text": text, "finetune": {}})
    repeat = {"times": 2, "merge": "greedy", "vary": ["order"]}
    write_method(root, "soup", phases={"finetune": {"data": {"split": 0.8}, "repeat": repeat}})
    return root


@pytest.fixture(scope="module")
def found(copied: Path) -> list[dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    given = json.dumps([edits for edits, _, _ in CASES])
    command = [sys.executable, "-c", DRIVER]
    done = subprocess.run(
        command, cwd=copied, env=environment, input=given, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return list(json.loads(done.stdout))


def touched(before: dict[str, Any], after: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Methods with another key, and other stages with other code."""
    runs = {name for name, keys in before["runs"].items() if after["runs"][name] != keys}
    return runs, {name for name, code in before["stages"].items() if after["stages"][name] != code}


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{i}-{case[0][0][0]}" for i, case in enumerate(CASES)])
def test_an_edit_touches_exactly_the_runs_that_compute_with_it(found: list[dict[str, Any]], number: int) -> None:
    _, runs, stages = CASES[number]
    assert set(found[0]["runs"]) == METHODS
    after = found[number + 1]
    assert "error" not in after, after["error"]
    assert touched(found[0], after) == (runs, stages)
