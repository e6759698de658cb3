"""What the docstring of ``grid/executors`` promises, tried with every file of that folder and real trainings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from regft_core.catalogue import EXECUTORS
from regft_core.grid.executors import JobsFailed, run_all
from regft_core.runs.store import RunStore
from tests.execution import contract_jobs
from tests.execution.contract_jobs import STEPS, Job, Trained
from tests.execution.test_executors import THREADS, alive, eventually
from tests.skips import needs
from tests.small_project import REPOSITORY, also

#: An executor that needs a package or settings: (package, settings). Others are tried as they are.
NEEDS: dict[str, tuple[str, dict[str, Any]]] = {
    "ray": ("ray", {"device": "cpu", "cpus": 1.0, "gpus": 0.0, "retries": 3}),
    "slurm": ("submitit", {"cluster": "local", "device": "cpu", "minutes": 5, "memory_gb": 1}),
}


@pytest.fixture(params=EXECUTORS.names())
def executor(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an executor that can run here, in a folder of its own."""
    name: str = request.param
    if name in NEEDS:
        needs(NEEDS[name][0], name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # what torch has in a new process, unless it is told otherwise
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "180")  # on a machine that is busy otherwise
    return name


def settings(executor: str) -> dict[str, Any]:
    return NEEDS[executor][1] if executor in NEEDS else {}


def run(jobs: list[Job], executor: str, **options: Any) -> list[Trained]:
    given = {"settings": settings(executor), "per_device": 2, "threads": 1, **options}
    return run_all(jobs, contract_jobs.run, executor=executor, **given)


def driver(jobs: list[Job], executor: str, **options: Any) -> subprocess.Popen[str]:
    """The jobs from a process of its own, which may be killed."""
    arguments = [json.dumps(options | {"settings": settings(executor)}), json.dumps([astuple(job) for job in jobs])]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.execution.contract_jobs", executor, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell starts background jobs with SIGINT ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Seed -> hash of the weights, one training after the other without any disturbance."""
    store = str(tmp_path_factory.mktemp("serial"))
    found = run([Job(store, seed) for seed in range(3)], "serial")
    assert len({one.weights for one in found}) == 3
    return {one.seed: one.weights for one in found}


def test_bits_order_and_failures_are_those_of_serial(executor: str, weights: dict[int, str], tmp_path: Path) -> None:
    store, ended = str(tmp_path / "store"), list[int]()
    jobs = [
        Job(store, 0),
        Job(store, 8, "defect"),
        Job(store, 1),
        Job(store, 9, "refused"),
        Job(store, 7),
        Job(store, 2),
    ]
    after = [[5], [], [0], [], [1, 5], []]
    with pytest.raises(JobsFailed) as caught:
        run(jobs, executor, after=after, on_result=lambda index, _: ended.append(index))
    results: list[Trained | None] = caught.value.results
    # Job 4 waits for one that fails: it runs all the same.
    assert [None if one is None else one.seed for one in results] == [0, None, 1, None, 7, 2]
    assert {one.seed: one.weights for one in results if one is not None and one.seed in weights} == weights
    assert {(one.device, one.threads) for one in results if one is not None} == {("cpu", 1)}
    assert ended[0] == 5
    assert [index for index in ended if index != 4] == [5, 0, 2]
    found = {failure.index: failure for failure in caught.value.failures}
    assert {index: failure.message for index, failure in found.items()} == {
        1: "ValueError: broken on purpose",
        3: "no such column [column-missing]",
    }
    assert "in run" in found[1].trace  # a defect shows its traceback
    assert found[3].trace == ""  # an error of ours explains itself


@pytest.mark.parametrize("executor", [name for name in EXECUTORS.names() if name != "serial"], indirect=True)
def test_a_worker_that_dies_costs_no_other_job_and_its_own_continues(
    executor: str, weights: dict[int, str], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    jobs = [Job(str(store), 0), Job(str(store), 1, "dies"), Job(str(store), 2)]
    process = driver(jobs, executor, threads=1)
    said, _ = process.communicate(timeout=300)
    assert process.returncode in (0, 5), said
    assert len(list(RunStore(store).keys())) == (3 if process.returncode == 0 else 2), said
    assert {one.seed: one.weights for one in run(jobs, "serial")} == weights
    # From its checkpoint: no step but the one in which it died was done twice.
    steps = [int(line) for line in (store / "steps-1").read_text().split()]
    assert sorted(set(steps)) == list(range(min(steps), min(steps) + STEPS))
    assert len(steps) <= STEPS + 1


@pytest.mark.parametrize(
    ("executor", "number"),
    [
        *((name, number) for name in EXECUTORS.names() for number in (signal.SIGINT, signal.SIGTERM)),
        ("processes", signal.SIGKILL),  # of which no driver can tell its workers
    ],
    indirect=["executor"],
)
def test_an_interrupted_driver_leaves_no_job_behind(executor: str, tmp_path: Path, number: signal.Signals) -> None:
    process = driver([Job(str(tmp_path / "pid"), seed, "stays") for seed in range(2)], executor, per_device=2)
    workers: list[int] = []
    seen: list[float] = []

    def started() -> bool:
        workers[:] = [int(text) for note in tmp_path.glob("pid-*") if (text := note.read_text())]
        seen.extend([time.monotonic()] if workers and not seen else [])
        # A driver may do all jobs by itself, and an executor one job after the other.
        return len(workers) == 2 or workers == [process.pid] or (bool(seen) and time.monotonic() > seen[0] + 30)

    try:
        assert eventually(started, 120)
        process.send_signal(number)
        said, _ = process.communicate(timeout=120)
        assert process.returncode != 0, said
        assert eventually(lambda: not any(alive(pid) for pid in workers))
    finally:
        for pid in [process.pid, *workers]:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("other", ["", "loads"])
def test_two_trainings_at_once_in_one_process_are_refused(
    weights: dict[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """By a pool of threads, which the docstring alone would allow: they would shift each other's random draws."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "in_threads.py").write_text(THREADS)
    store = str(tmp_path / "store")
    contract_jobs.TRAINING.clear()
    contract_jobs.REFUSED.clear()
    jobs = [Job(store, 0, "meets another"), Job(store, 1, other)]
    with also(EXECUTORS, tmp_path / "own"), pytest.raises(JobsFailed) as caught:
        run_all(jobs, contract_jobs.beside, executor="in_threads", per_device=2, threads=1)
    (failure,) = caught.value.failures
    assert failure.index == 1
    assert "two runs at once in one process" in failure.message
    assert "executor: processes" in failure.message
    assert failure.trace == ""
    assert caught.value.results[0].weights == weights[0]
    assert [found.result for found in map(RunStore(store).get, RunStore(store).keys()) if found] == [{"steps": STEPS}]
    assert run([Job(store, 1)], "serial")[0].weights == weights[1]
