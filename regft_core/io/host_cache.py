"""The folder of what a host can have again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where a host keeps what can be had again: ``$REGFT_CACHE``, else ``regft`` below the user's cache folder."""
    given = os.environ.get("REGFT_CACHE")
    if given:
        return Path(given).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "regft"
