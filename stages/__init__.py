"""Thin entry points, one per DVC stage; all logic is in ``regft_core``."""

from __future__ import annotations

import sys

from regft_core.errors import RegftError

try:
    # First of all, so that a system that cannot run any stage gets a sentence instead of a traceback.
    import regft_core.runs.store.locks  # noqa: F401
except RegftError as error:
    sys.exit(f"regft: {error}")
