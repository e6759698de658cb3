"""The executor ``ray``, with the real Ray where it is installed: ``pip install -e '.[ray]'``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regft_core.grid.executors import JobsFailed, run_all
from tests.errors import raises_code
from tests.execution import contract_jobs
from tests.skips import needs
from tests.small_project import REPOSITORY

ray = needs("ray", "ray")

# On a machine that is busy otherwise Ray takes its own processes for dead.
os.environ.setdefault("RAY_health_check_timeout_ms", "60000")
os.environ.setdefault("RAY_health_check_failure_threshold", "60")
os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")
ONE_CPU = {"device": "cpu", "cpus": 1.0, "gpus": 0.0, "retries": 3}


@pytest.fixture(scope="module")
def local() -> Iterator[Any]:
    """A cluster of one node with three places; the executor uses the connection that is there."""
    path = {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    ray.init(
        address="local",
        num_cpus=3,
        num_gpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": path},
    )
    yield ray
    ray.shutdown()


def run(jobs: list[Any], function: Any, **options: Any) -> list[Any]:
    settings = {**ONE_CPU, **options.pop("settings", {})}
    return run_all(jobs, function, executor="ray", per_device=3, settings=settings, **options)


def test_workers_inherit_the_settings_of_the_driver(local: Any) -> None:
    assert run([0], contract_jobs.settings_of_process)[0] == {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def test_a_run_on_a_gpu_has_a_process_of_its_own(local: Any) -> None:
    """One that goes on would keep the memory, and the GPU, of its first run (Ray counts GPUs that are not there)."""
    on_cpu = run([0, 1, 2, 3, 4, 5], contract_jobs.process)
    assert len(set(on_cpu)) <= 3
    on_gpu = run([0, 1, 2, 3, 4, 5], contract_jobs.process, settings={"gpus": 0.5})
    assert len(set(on_gpu)) == 6


def test_faults_of_the_machine_are_tried_again_and_those_of_the_run_are_not(local: Any, tmp_path: Path) -> None:
    note = tmp_path / "attempts"
    jobs = [f"storage {tmp_path / 's'}", "raise", f"diverged {note}", f"killed {tmp_path / 'k'}", "fine"]
    with pytest.raises(JobsFailed) as caught:
        run(jobs, contract_jobs.sometimes)
    assert caught.value.results == ["storage", None, None, "killed", "fine"]
    messages = {failure.index: failure.message for failure in caught.value.failures}
    assert messages == {1: "ValueError: broken on purpose", 2: "the loss is not a number [not-finite]"}
    assert note.read_text() == "x"
    with raises_code(JobsFailed, "jobs-failed", "the disk is away [cannot-read] (attempts: 1)"):
        run([f"storage {tmp_path / 'again'}"], contract_jobs.sometimes, settings={"retries": 0})
