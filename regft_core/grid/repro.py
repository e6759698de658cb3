"""`dvc repro` in a project's folder."""

from __future__ import annotations

import contextlib
import logging
import os
import runpy
import shlex
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regft_core import output
from regft_core.grid.executors import Terminated
from regft_core.runs.code import package_root

#: How the commands begin that DVC need not start a Python for.
COMMAND = ["python", "-m", "regft_core"]


def repro(folder: Path, more: dict[str, str] | None = None) -> int:
    """`dvc repro` in a folder with ``more`` variables, its stages in this process; the exit code of a failed one."""
    from dvc.cli import main as dvc  # in this process: another Python would take as long as all that DVC then does

    logging.getLogger("dvc").propagate = False  # DVC prints its lines itself; the root's handler would repeat them
    with variables(environment() | (more or {})), output.unguarded(), contextlib.chdir(folder), _stages_here() as codes:
        done = int(dvc(["repro"]))
        return codes[-1] if done and codes else done


@contextlib.contextmanager
def variables(changed: dict[str, str]) -> Iterator[None]:
    """Change environment variables within the block alone: a caller's own process, say a notebook, keeps its own."""
    before = dict(os.environ)
    os.environ |= changed
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


@contextlib.contextmanager
def _stages_here() -> Iterator[list[int]]:
    """Run DVC's commands `python -m regft_core NAME` here, which imports all once; yield codes that DVC makes 255."""
    from dvc.stage import run as dvc_run
    from dvc.stage.exceptions import StageCmdFailedError

    start, codes = getattr(dvc_run, "_run", None), list[int]()
    if start is None:  # private to DVC: another version may do without, and start a Python for each stage
        yield codes
        return

    def run(executable: str | None, command: str, **options: Any) -> None:
        words = shlex.split(command)
        if words[:3] != COMMAND or not os.path.samefile(options["cwd"], os.curdir):
            start(executable, command, **options)
        elif code := _run_here(words[3:]):
            codes.append(code)
            raise StageCmdFailedError(command, code)

    dvc_run._run = run
    try:
        yield codes
    finally:
        dvc_run._run = start


def _run_here(arguments: list[str]) -> int:
    """Run ``python -m regft_core ARGUMENTS`` in this process; return its exit code. Raises Terminated."""
    before = sys.argv, sys.stdout, sys.stderr
    sys.argv = [COMMAND[-1], *arguments]
    try:
        runpy.run_module(COMMAND[-1], run_name="__main__", alter_sys=True)
    except Terminated:
        raise
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.argv, sys.stdout, sys.stderr = before
    return 0


def environment() -> dict[str, str]:
    """That of this process, with this Python first for the commands of stages, and this code in a checkout."""
    variables = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}
    code = package_root()
    if (code / "pyproject.toml").is_file():
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(code), os.environ.get("PYTHONPATH")]))
    return variables
