"""The executor ``ray``, with the real Ray where it is installed: ``pip install -e '.[ray]'``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regft_core.grid.executors import JobsFailed, run_all
from regft_core.runs.store import RunStore
from tests.errors import raises_code
from tests.execution import cluster_jobs
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
    assert run([0], cluster_jobs.settings_of_process)[0] == {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def test_a_run_on_a_gpu_has_a_process_of_its_own(local: Any) -> None:
    """One that goes on would keep the memory, and the GPU, of its first run (Ray counts GPUs that are not there)."""
    on_cpu = run([0, 1, 2, 3, 4, 5], cluster_jobs.process)
    assert len(set(on_cpu)) <= 3
    on_gpu = run([0, 1, 2, 3, 4, 5], cluster_jobs.process, settings={"gpus": 0.5})
    assert len(set(on_gpu)) == 6


def test_faults_of_the_machine_are_tried_again_and_those_of_the_run_are_not(local: Any, tmp_path: Path) -> None:
    note = tmp_path / "attempts"
    jobs = [f"storage {tmp_path / 's'}", "raise", f"diverged {note}", f"killed {tmp_path / 'k'}", "fine"]
    with pytest.raises(JobsFailed) as caught:
        run(jobs, cluster_jobs.sometimes)
    assert caught.value.results == ["storage", None, None, "killed", "fine"]
    messages = {failure.index: failure.message for failure in caught.value.failures}
    assert messages == {1: "ValueError: broken on purpose", 2: "the loss is not a number [not-finite]"}
    assert note.read_text() == "x"
    with raises_code(JobsFailed, "jobs-failed", "the disk is away [cannot-read] (attempts: 1)"):
        run([f"storage {tmp_path / 'again'}"], cluster_jobs.sometimes, settings={"retries": 0})


def trained(store: Path) -> list[int]:
    return [int(line.split()[0]) for line in (store / "trained.log").read_text().splitlines()]


@pytest.mark.parametrize("count", [60, pytest.param(600, marks=pytest.mark.slow)])
def test_many_jobs_are_each_committed_once(local: Any, tmp_path: Path, count: int) -> None:
    run([(str(tmp_path), number, 0.0) for number in range(count)], cluster_jobs.commit)
    assert sorted(trained(tmp_path)) == list(range(count))
    assert len(list(RunStore(tmp_path).keys())) == count


#: Cluster of a head and three nodes in one process, a driver in another, nodes killed with all their processes.
CLUSTER = """
import json, os, random, signal, subprocess, sys, time
from ray.cluster_utils import Cluster

def descendants(pid):
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True).stdout.splitlines()[1:]
    pairs = [tuple(map(int, line.split())) for line in listed]
    found = [pid]
    for one in found:
        found += [child for child, parent in pairs if parent == one]
    return found

store, driver = sys.argv[1], sys.argv[2]
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
cluster.wait_for_nodes()
command = [sys.executable, "-c", driver, store, cluster.address]
first = subprocess.Popen(command)
log = os.path.join(store, "trained.log")

def until(count):
    while not os.path.exists(log) or len(open(log).readlines()) < count:
        if first.poll() is not None:
            sys.exit("the driver ended by itself")
        time.sleep(0.1)

until(5)
lost = nodes.pop()
for pid in reversed(descendants(lost.all_processes["raylet"][0].process.pid)):
    os.kill(pid, signal.SIGKILL)
until(15)
first.send_signal(signal.SIGKILL)
first.wait()
second = subprocess.run(command, timeout=240)
cluster.shutdown()
sys.exit(second.returncode)
"""
DRIVER = """
import sys
from regft_core.grid.executors import run_all
from tests.skips import needs
from tests.execution import cluster_jobs
store, address = sys.argv[1:]
jobs = [(store, number, 0.5) for number in range(40)]
settings = {"device": "cpu", "cpus": 1.0, "gpus": 0.0, "retries": 5, "address": address}
run_all(jobs, cluster_jobs.commit, executor="ray", settings=settings)
"""


@pytest.mark.slow
def test_a_lost_node_and_a_driver_that_is_killed_and_restarted(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    store = tmp_path / "store"
    store.mkdir()
    command = [sys.executable, "-c", CLUSTER, str(store), DRIVER]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    runs = RunStore(store)
    assert sorted(run.result["number"] for key in list(runs.keys()) if (run := runs.get(key))) == list(range(40))
    assert not list(runs.path.rglob("*.partial"))
    time.sleep(0.1)
