"""Count the files of regft whose functions a command runs, its functions, and its moves from file to file.

    cd PROJECT && python BENCHMARKS/files_run.py finetune     # any command of regft, with its options

Only this process is counted: set ``execution.executor: serial``.
"""

from __future__ import annotations

import runpy
import sys
from types import FrameType
from typing import Any

functions: set[tuple[str, str]] = set()
moves, last = 0, ""


def count(frame: FrameType, event: str, _: Any) -> None:
    """Take note of a call."""
    global moves, last
    file, name = frame.f_code.co_filename, frame.f_code.co_name
    if event == "call" and name != "<module>" and ("/regft_core/" in file or "/stages/" in file):
        functions.add((file, name))
        moves, last = moves + (file != last), file


def main() -> None:
    sys.setprofile(count)
    try:
        runpy.run_module("regft_core", run_name="__main__")
    except SystemExit as end:
        print(f"exit code {end.code or 0}")
    finally:
        sys.setprofile(None)
    print(f"{len({file for file, _ in functions})} files, {len(functions)} functions, {moves} moves")


if __name__ == "__main__":
    main()
