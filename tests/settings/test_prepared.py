"""What prepared datasets say of a grid, before a stage stops at it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regft_core.grid.data import skew_warnings
from regft_core.runs.project import open_project
from tests.small_project import build, stage


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A project of the sizes [16] and the seeds [0, 1] whose task had 40 training rows; none are drawn."""
    root = build(tmp_path)
    dataset = root / "work" / "datasets" / "reviews"
    dataset.mkdir(parents=True)
    (dataset / "task.json").write_text(json.dumps({"counts": {"train": 40, "dev": 10}}))
    return root


def rows_of(root: Path, **counts: int) -> list[str]:
    """What is said of a task whose drawn rows have these labels."""
    folder = root / "work" / "subsamples" / "reviews" / "16"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps({"seeds": {"0": {"label_counts": counts}}}))
    return skew_warnings(open_project(root))


def test_a_rare_class_is_said_where_accuracy_ranks_methods(prepared: Path) -> None:
    assert skew_warnings(open_project(prepared)) == []  # nothing is drawn yet
    assert rows_of(prepared, bad=4, good=16) == []  # a fifth
    (said,) = rows_of(prepared, bad=3, good=17)
    assert said.startswith("task 'reviews': few training rows are 'bad' 15%, and accuracy hardly counts them; set ")
    assert "primary: f1_macro" in said
    assert "class_weights: balanced" in said
    assert said in stage(prepared, "check").stderr
    # Of many classes a fair share is below a fifth.
    assert rows_of(prepared, **dict.fromkeys("abcdefgh", 2)) == []
    assert "'a' 3%" in rows_of(prepared, a=1, **dict.fromkeys("bcdefgh", 5))[0]
