"""Edits after the plan and while a stage runs: nothing of them is written. ``tests/adversary`` edits more."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import PlanOutdated
from regft_core.grid import pool
from regft_core.grid.compute import compute
from regft_core.runs.run import STAGES
from tests.grid.conftest import plan, quiet
from tests.runs.conftest import TASK, change, edit


def test_a_configuration_edited_after_the_plan_is_refused(project: Path) -> None:
    plan(project)
    change(project, grid={"seeds": [0]})
    with pytest.raises(PlanOutdated, match=r"work/plan/finetune.json is not the plan"):
        compute(project, "finetune", say=quiet)
    assert not (project / "work" / "finetune").exists()


def test_rows_that_change_while_a_stage_runs_are_not_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(project, methods=["hype_n"], report={"reference": "hype_n"})
    plan(project)
    original, cell = pool.run_job, f"hype_n/{TASK}/24"

    def meanwhile(job: Any, *, device: str) -> str:
        line = original(job, device=device)
        if job.seed == 1:
            edit(project / "work/subsamples" / TASK / "24/seed-1.jsonl", "the", "teh")
        return line

    monkeypatch.setattr(pool, "run_job", meanwhile)
    failures = compute(project, "finetune", say=quiet)
    assert list(failures) == [cell]
    assert "run `dvc repro` again" in failures[cell]
    assert not (project / "work" / "finetune" / "hype_n" / TASK).exists()


def test_the_plan_has_no_path_and_no_time(project: Path, tmp_path: Path) -> None:
    here = plan(project)
    copy = Path(shutil.copytree(project, tmp_path / "elsewhere"))
    assert plan(copy) == here
    for stage in STAGES:
        assert str(tmp_path) not in (copy / "work/plan" / f"{stage}.json").read_text()
