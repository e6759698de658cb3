"""SIGKILL, which no handler can soften, at named places of the store, in a forked child."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

from regft_core.disk import files, tensors
from regft_core.runs import run_folder, store

#: Forked children share the imported torch: starting Python anew for each kill would take minutes.
FORK = multiprocessing.get_context("fork")
#: Place -> owner and name of a function, and whether the kill comes before or after its call.
PLACES: dict[str, tuple[Any, str, str]] = {
    "checkpoint.written": (tensors, "_save", "after"),
    "checkpoint.renamed": (run_folder, "write_checked", "after"),
    "commit.tensors": (run_folder, "manifest_entries", "before"),
    "commit.manifest": (files, "replace_directory", "before"),
    "commit.renamed": (files, "replace_directory", "after"),
    "aside.renamed": (store, "fsync", "after"),
}


def kill_at(place: str) -> None:
    """Let this process die at a place: ``commit.renamed``, ``checkpoint.written:3`` (the third passing)."""
    name, _, count = place.partition(":")
    left = int(count or 1)

    def passed(*arguments: Any) -> None:
        nonlocal left
        # Tensors of a checkpoint have metadata, those of a commit have none.
        left -= name != "checkpoint.written" or arguments[-1] is not None
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    owner, attribute, when = PLACES[name]
    original = getattr(owner, attribute)

    def wrapped(*given: Any, **options: Any) -> Any:
        if when == "before":
            passed(*given)
        found = original(*given, **options)
        if when == "after":
            passed(*given)
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
