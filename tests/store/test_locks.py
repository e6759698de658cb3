"""Without file locks (other systems than POSIX) there is one sentence and no traceback."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

WITHOUT = "import runpy, sys; sys.modules['fcntl'] = None; "
SENTENCE = "regft runs on POSIX systems only (Linux, macOS)"


@pytest.mark.parametrize(
    "module", ["stages.plan", "stages.store", "stages.finetune", "stages.report", "regft_core.tracking"]
)
def test_commands_say_it(python: Callable[..., subprocess.CompletedProcess[str]], module: str) -> None:
    arguments = "sys.argv[1:] = ['sync']; " if module == "regft_core.tracking" else ""
    done = python(f"{WITHOUT}{arguments}runpy.run_module({module!r}, run_name='__main__')")
    assert done.returncode == 1
    assert done.stderr.startswith(f"regft: {SENTENCE}")
    assert "inside WSL" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_program_gets_an_error_of_regft(python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    program = (
        "from regft_core.errors import RegftError\n"
        "try:\n    import regft_core.runs.store.run_store\n"
        "except RegftError as error:\n    print(error)"
    )
    done = python(f"{WITHOUT}\n{program}")
    assert done.stdout.startswith(SENTENCE), done.stderr
