"""Worker processes that never outlive the process that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
WATCH_SECONDS = 1.0


def die_with_parent(parent: int | None = None) -> None:
    """Arrange that this process is killed when its parent ends, however the parent ends.

    ``parent`` is the parent's process id as the parent knows it; it closes the gap in which the parent dies before this
    call. Linux does it by itself (bound to the parent's *thread* that started us); elsewhere a thread looks.
    """
    expected = os.getppid() if parent is None else parent
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(expected,), daemon=True, name="parent watch").start()
    if os.getppid() != expected:
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class Terminated(SystemExit):
    """SIGTERM or SIGHUP arrived while workers were running; exits with 128 + the signal's number."""


@contextmanager
def termination_raises() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into ``Terminated`` inside the block, unless one is ignored (``nohup``)."""

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # handlers belong to the main thread; the workers still die with their parent
        return
    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, terminate) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
