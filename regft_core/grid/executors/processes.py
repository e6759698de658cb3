"""Runs beside each other: fresh interpreters (spawn), ``per_device`` for each device, each bound to one."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from typing import Any

from regft_core.grid.executors import JobQueue, attempt, die_with_parent
from regft_core.models.devices import free_memory, take_device
from regft_core.runs.context import opened


def run(queue: JobQueue) -> None:
    """Share the jobs out; they, ``function`` (a module-level one) and the results travel between processes."""
    devices = [device for _ in range(queue.per_device) for device in queue.devices][: len(queue.jobs)]
    pools = [_worker(device, queue.threads) for device in devices]
    try:
        while True:
            for worker in pools:
                if worker.future is None and (index := queue.take()) is not None:
                    worker.start(index, queue.function, queue.jobs[index])
            busy = [worker.future for worker in pools if worker.future is not None]
            if not busy:
                break
            done, _ = wait(busy, return_when=FIRST_COMPLETED)
            for worker in pools:
                if worker.future in done:
                    worker.report(queue)
        if _waiting is not None:
            _waiting.extend(pools)
            pools = []
    finally:
        for worker in pools:
            worker.kill()


#: Workers without a job, while they stay; None where each call ends its own.
_waiting: list[_Worker] | None = None


@contextmanager
def staying() -> Iterator[None]:
    """Keep workers, with what they imported and the vectors that they remember, from one call to the next."""
    global _waiting
    _waiting = []
    try:
        yield
    finally:
        for worker in _waiting:
            worker.kill()
        _waiting = None


def _worker(device: str, threads: int | None) -> _Worker:
    for place, worker in enumerate(_waiting or ()):
        if _waiting and (worker.device, worker.threads) == (device, threads):
            worker.stayed = True
            return _waiting.pop(place)
    return _Worker(device, threads)


class _Worker:
    """A pool of one process, which stays between jobs: where it dies, it takes no other job with it."""

    def __init__(self, device: str, threads: int | None) -> None:
        self.device, self.threads = device, threads
        self.future: Future[tuple[Any, ...]] | None = None
        self.stayed = False
        self._index = 0
        self._pool: ProcessPoolExecutor | None = None

    def start(self, index: int, function: Callable[..., Any], job: Any) -> None:
        while self.future is None:
            if self._pool is None:
                settings = self.device, self.threads, os.getpid()
                self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_begin, initargs=settings)
            try:
                with _without_main():  # the process starts here
                    self.future = self._pool.submit(_work, function, job, self.device, self.stayed)
            except BrokenProcessPool:  # it died after its last answer: no job's fault
                self.kill()
        self._index, self.stayed = index, False

    def report(self, queue: JobQueue) -> None:
        assert self.future is not None
        future, self.future = self.future, None
        try:
            answer = future.result()
        except BrokenProcessPool:
            answer = False, "its process died: it was killed (maybe for want of memory), or crashed"
            self.kill()
        except Exception as error:
            answer = False, f"its result cannot be sent to the parent process: {error}"
        queue.report(self._index, answer)
        if not answer[0] and self.device != "cpu":
            self.kill()  # after an error of its GPU a process cannot use it any more: every later job would fail

    def kill(self) -> None:
        if self._pool is None:
            return
        for process in list((self._pool._processes or {}).values()):
            if process.pid is not None and process.is_alive():
                for kill in (os.killpg, os.kill):  # the second one: killed before it could lead its group
                    with suppress(ProcessLookupError, PermissionError):
                        kill(process.pid, signal.SIGKILL)
        self._pool.shutdown(cancel_futures=True)
        self._pool = None


@contextmanager
def _without_main() -> Iterator[None]:
    """Start processes (spawn) in the block that do not run the caller's script, which may have no main guard."""
    main = sys.modules["__main__"]
    before = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    try:
        vars(main).pop("__file__", None)
        main.__spec__ = None
        yield
    finally:
        vars(main).update(before)


def _begin(device: str, threads: int | None, parent: int) -> None:
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # one signal reaches this process and what it starts
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and kills
    gc.set_threshold(100_000)  # with Python's 700, imports spend a seventh of their time on cycles
    take_device(device)  # libraries that ask for "cuda" get this one
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def _work(function: Callable[..., Any], job: Any, device: str, stayed: bool) -> tuple[Any, ...]:
    if stayed:  # the call before may have read settings that were edited since
        opened.cache_clear()
    try:
        return attempt(function, job, device)
    finally:
        free_memory(device)
        # Over runs of different shapes freed pieces add up: 2.1 GB instead of 0.6 after eight short runs.
        with suppress(OSError, AttributeError):  # the C library is not glibc
            ctypes.CDLL(None).malloc_trim(0)
