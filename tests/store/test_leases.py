"""A holder that does not answer loses its lock; of two that trained one key, one commits and the other discards."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regft_core.errors import StoreError
from regft_core.runs.store import locks
from regft_core.runs.store.locks import KeyLock
from regft_core.runs.store.run_store import RunStore
from regft_core.runs.store.stored_run import run_key
from tests.errors import raises_code

ROOT = Path(__file__).resolve().parents[2]
IDENTITY = {"number": 1}
KEY = run_key(IDENTITY)
#: Opens the run, says so, and commits when told to on its standard input.
HOLDER = """
import sys
from regft_core.runs.store.run_store import RunStore
from regft_core.runs.store.stored_run import run_key
import logging; logging.basicConfig(level=logging.WARNING)
with RunStore(sys.argv[1]).open(run_key({"number": 1}), {"number": 1}) as run:
    print("open", flush=True)
    sys.stdin.readline()
    found = run.commit({"by": "holder"})
    print(found.result["by"], flush=True)
"""


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LEASE_SECONDS", 0.5)


@pytest.fixture
def frozen(tmp_path: Path) -> subprocess.Popen[str]:
    """A process that has the run open and is stopped, as on a machine that hangs."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    process.send_signal(signal.SIGSTOP)
    return process


def wake(process: subprocess.Popen[str]) -> tuple[str, str]:
    process.send_signal(signal.SIGCONT)
    return process.communicate("commit\n", timeout=60)


def test_the_one_that_wakes_up_late_discards(frozen: subprocess.Popen[str], tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.open(KEY, IDENTITY, timeout=30) as run:
        assert run.finished is None
        run.commit({"by": "other"})
    out, error = wake(frozen)
    assert out == "other\n", error
    assert "was completed by another process while it was trained here too" in error
    found = store.get(KEY)
    assert found is not None
    assert found.result == {"by": "other"}
    assert store.verify() == []
    assert not list(store.partials())


def test_the_one_that_wakes_up_in_time_commits(
    frozen: subprocess.Popen[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = RunStore(tmp_path)
    with store.open(KEY, IDENTITY, timeout=30) as run:
        assert wake(frozen)[0] == "holder\n"
        with caplog.at_level(logging.WARNING):
            assert run.commit({"by": "other"}).result == {"by": "holder"}
    assert "that result counts, this one is discarded" in caplog.text
    assert store.verify() == []


def test_one_that_lost_its_lock_writes_no_more_checkpoints(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.open(KEY, IDENTITY) as run:
        path = store.directory(KEY).with_name(f"{KEY}.lock")
        path.rename(path.with_name("elsewhere"))  # as one that takes over does
        with raises_code(StoreError, "run-taken-over"):
            run.save_checkpoint({}, {})


def test_one_that_lost_its_lock_may_wait_for_the_run_again(tmp_path: Path) -> None:
    """The attempt that an executor makes in the same process is no deadlock: it waits for the one that took over."""
    store = RunStore(tmp_path)
    run = store.open(KEY, IDENTITY)
    path = store.directory(KEY).with_name(f"{KEY}.lock")
    path.rename(path.with_name("elsewhere"))  # as one that takes over does
    run.close()
    ready = "import sys\nfrom regft_core.runs.store.locks import KeyLock\nfrom pathlib import Path\n"
    ready += "KeyLock(Path(sys.argv[1])).acquire()\nprint('has it', flush=True)\nsys.stdin.readline()\n"
    command = [sys.executable, "-c", ready, str(path)]
    other = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "has it\n"
    with raises_code(StoreError, "store-locked"):
        store.open(KEY, IDENTITY, timeout=0.3)
    other.communicate("go\n", timeout=30)
    with store.open(KEY, IDENTITY, timeout=30) as run:
        assert run.finished is None
        with raises_code(StoreError, "run-open-already"):
            store.open(KEY, IDENTITY)


def test_a_holder_that_renews_keeps_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "RENEW_SECONDS", 0.1)
    lock = KeyLock(tmp_path / "a.lock")
    lock.acquire()
    before = lock.path.stat().st_mtime_ns
    lock.renew()
    time.sleep(0.01)
    lock.renew()
    assert lock.path.stat().st_mtime_ns > before
    assert not lock.lost
    child = (
        "import sys\nfrom pathlib import Path\nfrom regft_core.runs.store import locks\nlocks.LEASE_SECONDS = 1.0\n"
        "locks.KeyLock(Path(sys.argv[1])).acquire(timeout=3)\n"
    )
    command = [sys.executable, "-c", child, str(lock.path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    waiting = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    while waiting.poll() is None:
        lock.renew()
        time.sleep(0.1)
    assert waiting.stderr is not None
    assert "still locked by" in waiting.stderr.read()
    assert not lock.lost
    lock.release()


def test_a_lock_of_an_earlier_version_is_waited_for(tmp_path: Path) -> None:
    lock = KeyLock(tmp_path / "a.lock")
    lock.acquire()
    lock.path.write_text('{"host": "h", "pid": 1, "since": "then"}')
    with raises_code(StoreError, "store-locked"):
        KeyLockOfAnother(lock.path).acquire(timeout=1.5)
    lock.release()


class KeyLockOfAnother(KeyLock):
    """Asks as another thread would: this one would be refused at once."""

    def acquire(self, timeout: float | None = None) -> None:
        import threading

        failed: list[StoreError] = []

        def ask() -> None:
            try:
                super(KeyLockOfAnother, self).acquire(timeout)
            except StoreError as error:
                failed.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
