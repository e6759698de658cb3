"""What prepared datasets say of a grid, before a stage stops at it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from regft_core.plan.prepared import undrawn
from regft_core.run.project import open_project
from stages.config import main
from tests.small_project import build


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A project of the sizes [16] and the seeds [0, 1] whose task had 40 training rows; none are drawn."""
    root = build(tmp_path)
    dataset = root / "work" / "datasets" / "reviews"
    dataset.mkdir(parents=True)
    (dataset / "task.json").write_text(json.dumps({"counts": {"train": 40, "dev": 10}}))
    return root


def test_a_size_above_the_prepared_rows_is_said(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(prepared)]) == 0
    assert "grid.sizes" not in capsys.readouterr().err
    params = prepared / "params.yaml"
    config = yaml.safe_load(params.read_text())
    config["grid"]["sizes"] = [16, 41, 600]
    params.write_text(yaml.safe_dump(config))
    assert main(["--root", str(prepared)]) == 0
    said = capsys.readouterr().err
    assert "grid.sizes: 41, 600 is more than the 40 training rows of 'reviews'" in said
    assert "at most 40, or 'full'" in said


def test_the_plan_says_whose_rows_are_not_drawn(prepared: Path) -> None:
    project = open_project(prepared)
    said = undrawn(project)
    assert said.startswith("rows not drawn yet: reviews-16 (seeds 0, 1); their runs count as to train")
    assert "`dvc repro plan`" in said
    folder = prepared / "work" / "subsamples" / "reviews" / "16"
    folder.mkdir(parents=True)
    (folder / "seed-0.jsonl").touch()
    assert "reviews-16 (seeds 1)" in undrawn(project)
    (folder / "seed-1.jsonl").touch()
    assert undrawn(project) == ""
    (prepared / "work" / "datasets" / "reviews" / "task.json").unlink()
    (folder / "seed-1.jsonl").unlink()
    assert undrawn(project) == ""  # nothing was prepared: all is to be run
