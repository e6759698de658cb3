"""Which runs an edit of the code touches: exactly those that compute with it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.runs.code_copy import answers, with_code
from tests.runs.conftest import write_method

METHODS = {"vanilla", "hype_n", "pats", "adamax", "weight_mixup", "posttrained", "soup"}
MEMBERS = {"weight_mixup", "soup"}

NEW_FAMILY = """
from regft_core.models.architectures import Architecture

FAMILY = Architecture("unlisted", stacks=(), head=(), hidden_dropout=(), attention_dropout=())
"""

NEW_METHOD = """
from regft_core.schema import StrictModel
from regft_core.hooks.base import Regulariser

class Unlisted(Regulariser):
    name = "unlisted"
    Config = StrictModel
"""

NEW_KIND = """
from regft_core.kinds.classification import Classification

KIND = Classification
"""

NEW_METRIC = """
KINDS = ("classification",)
LOWER_IS_BETTER = NEEDS_POSITIVE_LABEL = False
RANGE = (0.0, 1.0)


def score(gold, predicted, positive):
    return 0.0
"""

#: Edits that touch no run: comments, docstrings, annotations of functions, layout, what schedules and draws; new files;
#: plug-ins that nobody here uses. (File below regft_core, old text, new text.)
HARMLESS: list[tuple[str, str, str]] = [
    ("training/loop.py", "", "\n# a comment\n"),
    ("training/loop.py", '"""The only training loop.', '"""The one loop.'),
    ("training/graphs.py", "if TYPE_CHECKING:", "if TYPE_CHECKING:\n    import regft_core.methods.pats"),
    ("grid/executors/serial.py", "", "\nUNUSED = 1\n"),
    ("progress.py", "LOG_SECONDS = 60.0", "LOG_SECONDS = 30.0"),
    ("__init__.py", '__version__ = "', '__version__ = "9'),
    ("methods/unlisted.py", "", NEW_METHOD),
    ("training/optimisers/unlisted.py", "", "SCALE = 1\n"),
    ("metrics/unlisted.py", "", NEW_METRIC),
    ("kinds/unlisted.py", "", NEW_KIND),
    ("models/families/unlisted.py", "", NEW_FAMILY),
    ("grid/executors/unlisted.py", "", "SCALE = 1\n"),
    ("metrics/f1_macro.py", "", "\nUSED = 1\n"),
    ("kinds/regression.py", "", "\nUSED = 1\n"),
]
REPORTING: list[tuple[str, str, str]] = [
    ("report/figures/svg.py", "", "\nprint('loaded')\n"),
    ("schema/params.py", "0.95, gt=0.5", "0.9, gt=0.5"),
]
#: (file, old text, new text, methods whose runs it touches, other stages that it touches).
TABLE: list[tuple[str, str, str, set[str], set[str]]] = [
    # What computes: those that can compute with its file.
    ("methods/pats.py", "GROUP = 1 << 25", "GROUP = 1 << 24", {"pats"}, set()),
    ("training/optimisers/adamax.py", "", "\nprint('loaded')\n", {"pats", "adamax"}, set()),
    ("training/two_level.py", "", "\nprint('loaded')\n", {"weight_mixup"}, set()),
    ("models/masked_lm.py", "", "\nprint('loaded')\n", {"posttrained"}, set()),
    ("models/families/__init__.py", 'projections=("embeddings.embed_proj",)', "projections=()", METHODS, {"evaluate"}),
    ("hooks/declare.py", "edit_order: int = 0", "edit_order: int = 1", METHODS, {"evaluate", "report"}),
    ("runs/training_run.py", "matmul.allow_tf32 = tf32", "matmul.allow_tf32 = True", METHODS, set()),
    ("data/encode.py", "FORMAT = 1", "FORMAT = 2", METHODS, {"evaluate"}),
    ("schema/training.py", '"adamw", description', '"adamax", description', METHODS - {"pats", "adamax"}, set()),
    # What merges, judges, draws and reads.
    ("training/merges/__init__.py", ".double()", ".float()", MEMBERS, set()),
    ("metrics/accuracy.py", "predicted == gold", "predicted != gold", {"soup"}, {"evaluate", "report"}),
    ("evaluate/score.py", "", "\nUSED = 1\n", {"soup"}, {"evaluate"}),
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
    root = with_code(Path(shutil.copytree(template, tmp_path_factory.mktemp("edits") / "project")))
    for name in ("pats", "adamax"):
        import yaml

        content = yaml.safe_load((root / "pipelines/methods" / f"{name}.yaml").read_text())
        write_method(root, name, **{**content, "control_for": [], "differs_in": []})
    text = {"data": {"size": "full", "labels": False}, "regularisers": {"masked_lm": {}}}
    write_method(root, "posttrained", phases={"text": text, "finetune": {}})
    repeat = {"times": 2, "merge": "greedy", "vary": ["order"]}
    write_method(root, "soup", phases={"finetune": {"data": {"split": 0.8}, "repeat": repeat}})
    return root


@pytest.fixture(scope="module")
def found(copied: Path) -> list[dict[str, Any]]:
    return answers(copied, *([(f"regft_core/{file}", old, new) for file, old, new in edits] for edits, _, _ in CASES))


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
