"""SIGKILL, which no handler can soften, at named places of training and of the store, in a forked child."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

from regft_core.runs import pruning, store, training_run, working_run

#: Forked children share the imported torch: starting Python anew for each kill would take minutes.
FORK = multiprocessing.get_context("fork")
#: Place -> owner and name of a function, and whether the kill comes before or after its call.
PLACES: dict[str, tuple[Any, str, str]] = {
    "checkpoint.tensors": (working_run, "write_tensors", "after"),
    "checkpoint.manifest": (working_run.WorkingRun, "_publish_checkpoint", "before"),
    "checkpoint.renamed": (working_run.WorkingRun, "_publish_checkpoint", "after"),
    "commit.tensors": (working_run.WorkingRun, "_write_contents", "after"),
    "commit.manifest": (working_run.WorkingRun, "_publish", "before"),
    "commit.renamed": (working_run.WorkingRun, "_publish", "after"),
    "aside.renamed": (store, "_set_aside", "after"),
    "prune.marked": (pruning, "_delete_tensors", "before"),
}


def kill_at(place: str) -> None:
    """Let this process die at a place: ``commit.renamed``, ``step:3`` (the third passing)."""
    name, _, count = place.partition(":")
    left = int(count or 1)

    def passed(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if name == "step":
        train = training_run.train
        training_run.train = lambda *given, **options: train(*given, **options, on_step=passed)  # type: ignore[assignment]
        return
    owner, attribute, when = PLACES[name]
    original = getattr(owner, attribute)

    def wrapped(*given: Any, **options: Any) -> Any:
        if when == "before":
            passed()
        found = original(*given, **options)
        if when == "after":
            passed()
        return found

    setattr(owner, attribute, wrapped)


def in_child(function: Callable[..., Any], *arguments: Any, at: str = "") -> int:
    """Run a function in a child that dies ``at`` a place; returns its exit code (negative: a signal)."""

    def body() -> None:
        if at:
            kill_at(at)
        function(*arguments)

    process = FORK.Process(target=body)
    process.start()
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode
