"""Worker processes for runs: fresh interpreters, each bound to one device."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from regft_core.grid.failures import describe_failure, torch_threads
from regft_core.grid.processes import (
    collect_rarely,
    describe_exit,
    die_with_parent,
    give_back_freed_memory,
    kill_group,
    lead_own_group,
    leave_at_once,
    termination_raises,
)
from regft_core.grid.queue import JobQueue
from regft_core.models.devices import free_memory, take_device

#: How long an idle worker may take to leave before it is killed.
FAREWELL_SECONDS = 10.0


def _worker(channel: Connection, function: Callable[..., Any], device: str, threads: int | None, parent: int) -> None:
    lead_own_group()
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and kills
    collect_rarely()
    take_device(device)  # libraries that ask for "cuda" get this one
    with torch_threads(threads):
        while True:
            try:
                index, job = channel.recv()
            except EOFError:
                leave_at_once()
            try:
                answer: tuple[Any, ...] = (index, True, function(job, device=device))
            except Exception as error:
                answer = (index, False, *describe_failure(error))
            try:
                channel.send(answer)
            except Exception as error:
                if isinstance(error, OSError):
                    return  # the parent is gone
                channel.send((index, False, f"its result cannot be sent to the parent process: {error}", ""))
            del job, answer
            free_memory(device)
            give_back_freed_memory()


class _Slot:
    """A place for one worker process at a time, on one device."""

    def __init__(self, function: Callable[..., Any], device: str, threads: int | None) -> None:
        self._arguments = (function, device, threads)
        self.on_cpu = device == "cpu"
        self.index: int | None = None
        #: Whether no other job may run in this process.
        self.spent = False
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.channel, theirs = context.Pipe()
        parent = multiprocessing.current_process().pid
        self.process = context.Process(target=_worker, args=(theirs, *self._arguments, parent), name="regft worker")
        try:
            self.process.start()
        finally:
            theirs.close()

    def restart(self) -> None:
        self.kill()
        self._start()
        self.spent = False

    def give(self, index: int, job: Any) -> None:
        self.index = index
        with suppress(BrokenPipeError, ConnectionResetError):  # it died: seen by whoever waits for the answer
            self.channel.send((index, job))

    def dismiss(self) -> None:
        self.channel.close()
        self.process.join(FAREWELL_SECONDS)
        self.kill()

    def kill(self) -> None:
        if self.process.pid is not None and self.process.is_alive():
            kill_group(self.process.pid)
            self.process.join()
        self.channel.close()


def run_processes(queue: JobQueue, function: Callable[..., Any], devices: Sequence[str], threads: int | None) -> None:
    """Run all jobs of the queue in one worker process for each entry of ``devices``; processes stay between jobs."""
    slots: list[_Slot] = []

    def occupy(slot: _Slot) -> None:
        slot.index = queue.take()
        if slot.index is not None:
            if slot.spent or not slot.process.is_alive():  # it died after its last answer: no job's fault
                slot.restart()
            slot.give(slot.index, queue.jobs[slot.index])

    with termination_raises():
        try:
            for device in devices:
                if queue.startable:  # no process for jobs that have to wait for others
                    slots.append(_Slot(function, device, threads))
                    occupy(slots[-1])
            while busy := [slot for slot in slots if slot.index is not None]:
                ready = wait([slot.channel for slot in busy] + [slot.process.sentinel for slot in busy])
                for slot in busy:
                    if slot.channel not in ready and slot.process.sentinel not in ready:
                        continue
                    try:
                        index, good, *answer = slot.channel.recv() if slot.channel.poll() else _dead()
                    except (EOFError, OSError):
                        slot.process.join(FAREWELL_SECONDS)
                        queue.failed(slot.index or 0, f"its process {describe_exit(slot.process.exitcode)}")
                    else:
                        (queue.succeeded if good else queue.failed)(index, *answer)
                        # After an error of its GPU a process cannot use it any more: every later job would fail.
                        slot.spent = not good and not slot.on_cpu
                    slot.index = None
                for slot in [slot for slot in slots if slot.index is None]:
                    occupy(slot)
                while queue.startable and len(slots) < len(devices):  # jobs that waited may start now
                    slots.append(_Slot(function, devices[len(slots)], threads))
                    occupy(slots[-1])
            for slot in slots:
                slot.dismiss()
        finally:
            for slot in slots:
                slot.kill()


def _dead() -> NoReturn:
    raise EOFError
