"""Copies of a project that workers on other machines make for themselves (``execution/bundle.py``).

A copy has the project's files under their own names, and in one folder of its own what a project has elsewhere:
its encoder, which may be an alias, any directory or from the hub, and the rows of other tasks.
"""

from __future__ import annotations

from pathlib import Path

#: The folder that only copies have.
SHIPPED = ".shipped"
ENCODER = f"{SHIPPED}/encoder"
ROWS = f"{SHIPPED}/rows"


def is_copy(root: Path) -> bool:
    """Whether ``root`` is a copy: where encoder and run store lie was checked in the project that it was made from."""
    return (root / SHIPPED).is_dir()


def shipped_encoder(root: Path) -> Path | None:
    """The folder with the encoder's files in a copy; None in a project itself."""
    folder = root / ENCODER
    return folder if folder.is_dir() else None
