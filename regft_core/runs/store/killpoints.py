"""Named places where a test can kill the process, to prove that a run survives it.

``REGFT_KILL_AT="commit.manifest"`` or ``"checkpoint.renamed:3"`` (third passing) sends SIGKILL,
which no handler can soften, to the process itself. Without the variable nothing happens.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

VARIABLE = "REGFT_KILL_AT"

_passed: Counter[str] = Counter()


def killpoint(name: str) -> None:
    """Die here if ``REGFT_KILL_AT`` says so; raises ``ValueError`` for a malformed count."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    point, _, count = wanted.partition(":")
    if point != name:
        return
    if count and not (count.isdecimal() and int(count) >= 1):
        raise ValueError(f"{VARIABLE}={wanted!r}: after the colon comes which passing kills, 1 or more")
    _passed[name] += 1
    if _passed[name] >= int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
