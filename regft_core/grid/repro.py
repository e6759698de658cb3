"""`dvc repro` in a project's folder."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path

from regft_core import output
from regft_core.runs.code import package_root


def repro(folder: Path, more: dict[str, str] | None = None) -> int:
    """`dvc repro` in a folder; its exit code."""
    from dvc.cli import main as dvc  # in this process: another Python would take as long as all that DVC then does

    os.environ |= environment() | (more or {})
    logging.getLogger("dvc").propagate = False  # DVC prints its lines itself; the root's handler would repeat them
    with output.unguarded(), contextlib.chdir(folder):
        return int(dvc(["repro"]))


def environment() -> dict[str, str]:
    """That of this process, with this Python first for the commands of stages, and this code in a checkout.

    In a checkout the code is beside its ``pyproject.toml``; an installed package is found by itself.
    """
    variables = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}
    code = package_root()
    if (code / "pyproject.toml").is_file():
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(code), os.environ.get("PYTHONPATH")]))
    return variables
