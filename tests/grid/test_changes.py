"""Edits after the plan and while a stage runs: nothing of them is written. ``tests/adversary`` edits more."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import PlanOutdated
from regft_core.grid import compute as module
from regft_core.grid.compute import compute
from regft_core.grid.keys import read_plan, stale_cells
from regft_core.runs.run import STAGES
from regft_core.runs.work import is_current
from tests.grid.conftest import plan, quiet
from tests.runs.code_copy import python, run, with_code
from tests.runs.conftest import TASK, change, edit


def test_code_edited_after_the_plan_is_refused_before_anything_is_trained(project: Path) -> None:
    with_code(project)
    python(project, "-m stages.subsample")
    schedule = project / "regft_core/training/optim.py"
    edit(schedule, "1.0 - progress", "1.1 - progress")
    for stage in ("search", "finetune"):
        done = run(project, f"-m stages.{stage}")
        assert done.returncode == PlanOutdated.exit_code
        assert f"work/plan/{stage}.json is not the plan of this configuration" in done.stderr
        assert "Run `dvc repro` again" in done.stderr
    assert not list((project / ".regft").glob("runs/*/*"))
    edit(schedule, "1.1 - progress", "1.0 - progress")
    assert run(project, "-m stages.search").returncode == 0


CASES = {
    "a learning rate": lambda root: change(root, training={"learning_rate": 2e-3}),
    "a seed": lambda root: change(root, grid={"seeds": [0]}),
    "a row": lambda root: edit(root / "work/subsamples" / TASK / "24/seed-1.jsonl", "the", "teh"),
}


@pytest.mark.parametrize(
    ("case", "stage", "moment"),
    [
        ("a seed", "finetune", "before"),
        ("a row", "finetune", "during"),
        ("a learning rate", "evaluate", "during"),
    ],
)
def test_what_changes_after_the_plan_is_not_written(
    project: Path, case: str, stage: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(project, methods=["hype_n"], report={"reference": "hype_n"})
    plan(project)
    if stage == "evaluate":
        compute(project, "finetune", say=quiet)
        change(project, store={"path": "another"})
        plan(project)
    if moment == "before":
        CASES[case](project)
        with pytest.raises(PlanOutdated, match=f"work/plan/{stage}.json is not the plan"):
            compute(project, stage, say=quiet)
        assert not (project / "work" / stage).exists()
        return
    original, cell = module.run_job, f"hype_n/{TASK}/24"

    def meanwhile(job: Any, *, device: str) -> str:
        line = original(job, device=device)
        if job.seed == 1:
            CASES[case](project)
        return line

    monkeypatch.setattr(module, "run_job", meanwhile)
    failures = compute(project, stage, say=quiet)
    if case in ("an option", "a learning rate"):  # the next plan's affair
        assert not failures
        assert is_current(project / "work" / stage / cell, read_plan(project, stage)[cell])
        plan(project)
        assert cell in stale_cells(project)
        return
    assert list(failures) == [cell]
    assert "run `dvc repro` again" in failures[cell]
    assert not (project / "work" / stage / "hype_n" / TASK).exists()


def test_the_plan_has_no_path_and_no_time(project: Path, tmp_path: Path) -> None:
    here = plan(project)
    copy = Path(shutil.copytree(project, tmp_path / "elsewhere"))
    assert plan(copy) == here
    for stage in STAGES:
        assert str(tmp_path) not in (copy / "work/plan" / f"{stage}.json").read_text()
