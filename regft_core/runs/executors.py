"""How the runs of a cell are spread over processes and devices: only ``run(job) -> result``.

Results do not depend on the executor, on the number of workers, or on the order in which jobs
end: every job sees the same number of threads, and nothing is passed between jobs.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, Literal, NoReturn, TypeVar

from regft_core.errors import ConfigError, Problem, RegftError, RunFailed
from regft_core.runs.processes import describe_exit, die_with_parent, kill_group, lead_own_group

J = TypeVar("J")
R = TypeVar("R")

#: How long an idle worker may take to leave before it is killed.
FAREWELL_SECONDS = 10.0


@dataclass(frozen=True)
class JobFailure:
    """Why one job has no result; ``trace`` is its traceback, or empty if its process died."""

    index: int
    job: str
    message: str
    trace: str = ""


class JobsFailed(RunFailed):
    """Some jobs ended with an error; the others were finished first.

    ``failures`` says which and why, ``results`` has the others' results (None at the failed).
    """

    def __init__(self, failures: Sequence[JobFailure], results: Sequence[Any]) -> None:
        self.failures = sorted(failures, key=lambda failure: failure.index)
        self.results = list(results)
        lines = [f"{len(self.failures)} of {len(self.results)} runs ended with an error; the others are finished"]
        for failure in self.failures:
            lines.append(f"  {failure.job}: {failure.message}")
            lines += [f"    | {line}" for line in failure.trace.rstrip().splitlines()]
        lines.append("  -> what finished is kept: repeat the stage and only the failed runs are trained")
        super().__init__("\n".join(lines))


class _Terminated(SystemExit):
    """SIGTERM or SIGHUP arrived while workers were running; exits with 128 + the signal's number."""


def visible_devices(device: str) -> list[str]:
    """Return the devices that ``execution.device`` means on this machine, at least one.

    ``auto``: all CUDA devices, or the CPU; ``cuda``: all CUDA devices; ``cuda:1``, ``mps`` and
    ``cpu``: that one. Raises ``ConfigError`` when it is not there (never falls back).
    """
    if device == "cpu":
        return ["cpu"]
    import torch

    def absent(found: str) -> ConfigError:
        hint = f"{found}; choose one that is there, or auto"
        return ConfigError(
            [Problem("params.yaml", 0, "execution.device", f"{device} is not available on this machine", hint)]
        )

    if device == "mps":
        if not torch.backends.mps.is_available():
            raise absent("torch sees no MPS device")
        return ["mps"]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    every = [f"cuda:{i}" for i in range(count)]
    if device == "auto":
        return every or ["cpu"]
    if device == "cuda" and every:
        return every
    if device in every:
        return [device]
    raise absent(f"torch sees {', '.join(every) if every else 'no CUDA device'}")


def run_all(
    jobs: Sequence[J],
    function: Callable[..., R],
    *,
    executor: Literal["serial", "processes"] = "serial",
    workers_per_device: int = 1,
    devices: Sequence[str] = ("cpu",),
    threads: int | None = None,
    on_result: Callable[[int, R], None] | None = None,
) -> list[R]:
    """Return ``[function(job, device=...) for job in jobs]``, in the order of ``jobs``.

    Args:
        jobs: passed to ``function`` one by one; with ``processes`` they, ``function`` (a
            module-level one) and the results travel between processes.
        executor: ``serial`` runs all here on ``devices[0]``; ``processes`` starts fresh
            interpreters (spawn), ``workers_per_device`` for each device, each bound to one.
        threads: torch threads of every job, whichever the executor, because sums on the CPU
            may depend on it. None leaves torch alone.
        on_result: called here with (index, result) as each job ends.

    Raises:
        JobsFailed: a ``RunFailed``, when jobs raised or their process died; all other jobs are
            finished first. ``KeyboardInterrupt``, SIGTERM and SIGHUP kill all workers at once.
    """
    if executor not in ("serial", "processes"):
        raise ValueError(f"executor {executor!r}: choose serial or processes")
    if not devices or workers_per_device < 1:
        raise ValueError("at least one device and one worker per device are needed")
    results: list[Any] = [None] * len(jobs)
    failures: list[JobFailure] = []

    def succeeded(index: int, result: R) -> None:
        results[index] = result
        if on_result is not None:
            on_result(index, result)

    if executor == "serial":
        _run_serial(jobs, function, devices[0], threads, succeeded, failures)
    elif jobs:
        slots = [device for _ in range(workers_per_device) for device in devices][: len(jobs)]
        _run_processes(jobs, function, slots, threads, succeeded, failures)
    if failures:
        raise JobsFailed(failures, results)
    return results


# ----------------------------------------------------------------------------- one job


def _label(index: int, job: object) -> str:
    name = getattr(job, "name", None)
    return name if isinstance(name, str) else f"job {index}"


def _failure(error: Exception) -> tuple[str, str]:
    # Our own errors say what to do; anything else is a defect and needs its traceback.
    if isinstance(error, RegftError):
        return str(error), ""
    return f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))


@contextmanager
def _torch_threads(threads: int | None) -> Iterator[None]:
    if threads is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_serial(
    jobs: Sequence[Any],
    function: Callable[..., Any],
    device: str,
    threads: int | None,
    succeeded: Callable[[int, Any], None],
    failures: list[JobFailure],
) -> None:
    with _torch_threads(threads):
        for index, job in enumerate(jobs):
            try:
                result = function(job, device=device)
            except Exception as error:
                failures.append(JobFailure(index, _label(index, job), *_failure(error)))
            else:
                succeeded(index, result)


# ----------------------------------------------------------------------------- processes


def _worker(channel: Connection, function: Callable[..., Any], device: str, threads: int | None, parent: int) -> None:
    lead_own_group()
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and kills
    if device.startswith("cuda:"):
        import torch

        torch.cuda.set_device(device)  # libraries that ask for "cuda" get this one
    with _torch_threads(threads):
        while True:
            try:
                index, job = channel.recv()
            except EOFError:
                return
            try:
                answer: tuple[Any, ...] = (index, True, function(job, device=device))
            except Exception as error:
                answer = (index, False, *_failure(error))
            try:
                channel.send(answer)
            except Exception as error:
                if isinstance(error, OSError):
                    return  # the parent is gone
                channel.send((index, False, f"its result cannot be sent to the parent process: {error}", ""))


class _Slot:
    """A place for one worker process at a time, on one device."""

    def __init__(self, function: Callable[..., Any], device: str, threads: int | None) -> None:
        self._arguments = (function, device, threads)
        self.index: int | None = None
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


@contextmanager
def _termination_raises() -> Iterator[None]:
    # Without this, SIGTERM would end the parent before it could kill its workers' groups.
    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        raise _Terminated(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # handlers belong to the main thread; the workers still die with their parent
        return
    before = {number: signal.signal(number, terminate) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_processes(
    jobs: Sequence[Any],
    function: Callable[..., Any],
    devices: Sequence[str],
    threads: int | None,
    succeeded: Callable[[int, Any], None],
    failures: list[JobFailure],
) -> None:
    waiting = list(reversed(range(len(jobs))))
    slots: list[_Slot] = []

    def next_job(slot: _Slot) -> None:
        slot.index = None
        if waiting:
            index = waiting.pop()
            slot.give(index, jobs[index])

    with _termination_raises():
        try:
            for device in devices:
                slots.append(_Slot(function, device, threads))
                next_job(slots[-1])
            while busy := [slot for slot in slots if slot.index is not None]:
                ready = wait([slot.channel for slot in busy] + [slot.process.sentinel for slot in busy])
                for slot in busy:
                    if slot.channel not in ready and slot.process.sentinel not in ready:
                        continue
                    try:
                        index, good, *answer = slot.channel.recv() if slot.channel.poll() else _dead()
                    except (EOFError, OSError):
                        slot.process.join(FAREWELL_SECONDS)
                        index = slot.index or 0
                        message = f"its process {describe_exit(slot.process.exitcode)}"
                        failures.append(JobFailure(index, _label(index, jobs[index]), message))
                        slot.index = None
                        if waiting:
                            slot.restart()
                    else:
                        if good:
                            succeeded(index, answer[0])
                        else:
                            failures.append(JobFailure(index, _label(index, jobs[index]), *answer))
                    next_job(slot)
            for slot in slots:
                slot.dismiss()
        finally:
            for slot in slots:
                slot.kill()


def _dead() -> NoReturn:
    raise EOFError
