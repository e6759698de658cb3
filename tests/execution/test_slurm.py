"""The executor ``slurm`` through submitit's local executor, where it is installed: ``pip install -e '.[slurm]'``."""

from __future__ import annotations

from pathlib import Path

import pytest

from regft_core.grid.executors import JobsFailed, run_all
from tests.execution import contract_jobs
from tests.skips import needs
from tests.small_project import REPOSITORY

submitit = needs("submitit", "slurm")

LOCAL = {"cluster": "local", "device": "cpu", "minutes": 5, "memory_gb": 1}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


def test_a_job_that_dies_names_its_log(tmp_path: Path) -> None:
    with pytest.raises(JobsFailed, match=r"its job \S+ ended as .*; its log is .*\.regft-slurm"):
        run_all([f"killed {tmp_path / 'note'}"], contract_jobs.sometimes, executor="slurm", settings=LOCAL)
    assert (tmp_path / ".regft-slurm").is_dir()


def test_a_preempted_job_is_queued_again_as_it_was() -> None:
    from regft_core.grid.executors.slurm import Task

    task = Task(contract_jobs.square, 7, "cpu", None)
    again = task.checkpoint()
    assert again.function is task
    assert again.function() == (True, (49, "cpu"))
