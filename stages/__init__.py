"""Thin entry points, a function for each command and each DVC stage; all logic is in ``regft_core``."""

from __future__ import annotations

import os
import sys

# First of all, so that a system that cannot run any stage gets a sentence instead of a traceback.
if os.name != "posix":
    sys.exit(
        "regft: regft runs on POSIX systems only (Linux, macOS): its run store needs file locks that the system "
        "releases when a process dies, and files that change their name in one step\n    -> on Windows, run it inside "
        "WSL [not-posix]"
    )
