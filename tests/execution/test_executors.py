from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import ConfigError, OutOfMemory, RunFailed, StoreError
from regft_core.grid.executors import JobsFailed, is_machine_fault, run_all
from regft_core.grid.executors.processes import staying
from regft_core.models.devices import visible_devices
from regft_core.schema.params import ExecutionConfig
from tests.errors import raises_code
from tests.execution import contract_jobs
from tests.promises.kit import change
from tests.small_project import REPOSITORY, build


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh interpreters find the jobs."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


#: With one worker it keeps the contract; with more it is refused as soon as two jobs train (test_executor_contract.py).
THREADS = """
from concurrent.futures import ThreadPoolExecutor
from regft_core.grid.executors import attempt, torch_threads

def run(queue):
    devices = queue.devices
    with torch_threads(queue.threads), ThreadPoolExecutor(len(devices) * queue.per_device) as pool:
        while indices := list(iter(queue.take, None)):
            waiting = [
                pool.submit(attempt, queue.function, queue.jobs[i], devices[i % len(devices)]) for i in indices
            ]
            for index, future in reversed(list(zip(indices, waiting))):
                queue.report(index, future.result())
"""


def test_workers_are_bound_to_devices_and_lead_their_own_groups() -> None:
    found = run_all([1] * 6, contract_jobs.square, executor="processes", devices=["one", "two"])
    assert {device for _, device in found} <= {"one", "two"}
    processes = run_all([0] * 4, contract_jobs.leader, executor="processes", per_device=2)
    assert all(leads for _, leads in processes)
    assert os.getpid() not in {pid for pid, _ in processes}
    assert not any(alive(pid) for pid, _ in processes)


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_after_an_error_a_device_gets_a_fresh_process(device: str) -> None:
    """An error of a GPU stays with the process; every later job would fail in turn."""
    with pytest.raises(JobsFailed) as caught:
        run_all(["pid", "raise", "pid", "pid"], contract_jobs.pid_or_raise, executor="processes", devices=(device,))
    before, _, after, last = caught.value.results
    assert (before == after) == (device == "cpu")
    assert after == last


def test_workers_that_stay_read_edited_settings(tmp_path: Path) -> None:
    root = build(tmp_path / "project")
    with staying():
        [first] = run_all([str(root)], contract_jobs.epochs, executor="processes", devices=["cpu"])
        change(root, training={"epochs": first[1] + 1})
        [second] = run_all([str(root)], contract_jobs.epochs, executor="processes", devices=["cpu"])
    assert second == [first[0], first[1] + 1]


def test_faults_of_the_machine_are_told_from_defects_and_results() -> None:
    import torch

    fault = [
        OSError("gone"),
        MemoryError(),
        StoreError("cannot-read", "away"),
        OutOfMemory("out-of-memory", "full"),
        torch.OutOfMemoryError("full"),
    ]
    assert [is_machine_fault(error) for error in fault] == [True] * 5
    assert is_machine_fault(torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered"))
    other: list[Exception] = [
        RunFailed("not-finite", "the loss is not a number"),
        ValueError("a slip"),
        RuntimeError("a shape"),
    ]
    assert [is_machine_fault(error) for error in other] == [False] * 3


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_jobs_wait_for_others_short_chains_start_first_then_the_longest(executor: Any) -> None:
    order: list[int] = []
    run_all(
        [1, 2, 3, 4, 5, 6],
        contract_jobs.square,
        executor=executor,
        after=[[3], [0, 4], [], [], [], []],
        costs=[1.0, 1.0, 2.5, 1.0, 9.0, 4.0],
        on_result=lambda index, result: order.append(index),
    )
    # Job 3 with 0 and 1 behind it is a chain of 3, job 4 with 1 of 10. Up to a quarter of that is short.
    assert order == [2, 4, 5, 3, 0, 1]


def test_a_hangup_that_is_ignored_as_by_nohup_ends_nothing() -> None:
    def hang_up(job: int, *, device: str) -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run_all([1], hang_up) == [None]
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with pytest.raises(SystemExit, match=str(128 + signal.SIGHUP)):
            run_all([1], hang_up)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_devices_are_never_substituted(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    assert visible_devices("cpu") == ["cpu"]
    monkeypatch.setattr("regft_core.models.devices._accelerator_driver", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert visible_devices("auto") == ["cpu"]
    with raises_code(ConfigError, "device-missing", "execution.device: cuda"):
        visible_devices("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert visible_devices("auto") == visible_devices("cuda") == ["cuda:0", "cuda:1"]
    assert visible_devices("cuda:1") == ["cuda:1"]
    with raises_code(ConfigError, "device-missing", "cuda:7", "torch sees cuda:0, cuda:1"):
        visible_devices("cuda:7")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with raises_code(ConfigError, "device-missing", "mps is"):
        visible_devices("mps")


@pytest.mark.parametrize(("executor", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch, executor: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with raises_code(ConfigError, "package-missing", "execution.executor", f"'{package}'", f"[{executor}]"):
        run_all([1], contract_jobs.square, executor=executor)


def test_options_of_another_executor_are_refused() -> None:
    with pytest.raises(ValueError, match="has options of executor 'ray', but the executor is 'processes'"):
        ExecutionConfig.model_validate({"executor": "processes", "ray": {"retries": 1}})
    chosen = ExecutionConfig.model_validate({"executor": "ray", "ray": {"retries": 1}, "device": "cpu"})
    assert (chosen.settings()["retries"], chosen.settings()["device"]) == (1, "cpu")
    assert ExecutionConfig(executor="slurm").settings()["minutes"] == 240
    assert ExecutionConfig().settings() == {}
