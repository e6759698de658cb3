from __future__ import annotations

import os
import pickle
import py_compile
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from regft_core.errors import CodeChanged

Python = Callable[..., "subprocess.CompletedProcess[str]"]

FILES = {
    "toy/__init__.py": "",
    "toy/run.py": "from toy import base\ndef run():\n    from toy import late\n    return late.VALUE * base.FACTOR\n",
    "toy/base.py": "FACTOR = 10\n",
    "toy/late.py": "VALUE = 2\n",
    "toy/other.py": "VALUE = 3\n",
}
HEAD = """
import os, pathlib, sys, time
root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root))
from regft_core.errors import CodeChanged
from regft_core.runs.identity.guard import LoadedCode
from regft_core.runs.identity.fingerprint import Scope

def load():
    return LoadedCode(Scope(("toy.run",), {"toy.other": "unused"}), root, ["toy"])

def refused(call):
    try:
        call()
    except CodeChanged as error:
        return str(error)
    raise SystemExit("nothing was refused")

def write(name, content):
    (root / "toy" / name).write_text(content)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


@pytest.fixture
def works(python: Python, project: Path) -> Callable[..., str]:
    """Run a program that uses the guard on the toy project, and return what it prints."""

    def run(program: str, **environment: str) -> str:
        settings = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": "", **environment}
        done = python(HEAD + program, str(project), **settings)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_everything_reached_is_loaded_at_once(works: Callable[..., str]) -> None:
    works("""
code = load()
assert {"toy.run", "toy.base", "toy.late"} <= set(sys.modules) and "toy.other" not in sys.modules
assert code.sha256 == code.code["sha256"] and set(code.code["modules"]) == {"toy.run", "toy.base", "toy.late"}
write("late.py", "VALUE = 5\\n")
from toy.run import run
assert run() == 20  # the lazy import reads no edited file
message = refused(code.check)
assert "toy.late" in message and "toy.base" not in message
assert "nothing was stored" in message and "dvc repro" in message
""")


def test_edits_that_mean_nothing_are_no_reason_to_stop(works: Callable[..., str]) -> None:
    works("""
code = load()
write("late.py", '"Words."\\nVALUE: int = 2  # more words\\n')
write("other.py", "VALUE = 7\\n")
code.check()
assert load().sha256 == code.sha256  # the next seed in the same process: it runs what it loaded before
write("late.py", "VALUE = 4\\n")
assert "toy/late.py was edited after this process had loaded it" in refused(load)
""")


@pytest.mark.parametrize(
    "edit",
    ['write("late.py", "VALUE = = 2")', '(root / "toy/late.py").unlink()', 'os.rename(root / "toy", root / "t")'],
)
def test_a_file_that_is_gone_or_broken_is_a_change(works: Callable[..., str], edit: str) -> None:
    works(f"code = load()\n{edit}\nprint(refused(code.check))")


def test_another_version_of_a_package_is_a_change(works: Callable[..., str], project: Path) -> None:
    (project / "toy/late.py").write_text("import numpy\nVALUE = 2\n")
    works("""
code = load()
from regft_core.runs.identity import distributions
distributions._version = lambda name, state: "0"
assert "while it was running: numpy" in refused(code.check)
""")


def test_an_edit_after_an_early_import_is_refused(works: Callable[..., str]) -> None:
    """The file says 11, but the process has loaded 10: its fingerprint would be that of 11."""
    works("""
import toy.base
time.sleep(0.05)
write("base.py", "FACTOR = 11\\n")
assert "toy/base.py was edited after this process had loaded it" in refused(load)
""")


def test_what_was_compared_is_not_compared_again_until_a_file_or_a_module_is_another(
    works: Callable[..., str],
) -> None:
    works("""
import importlib
from regft_core.runs.identity import guard
time.sleep(0.2)
looks = []
real = guard._verify_origin
guard._verify_origin = lambda *given: looks.append(given) or real(*given)
first, number = load(), len(looks)
assert number == 4
assert load().code == first.code and len(looks) == number
del sys.modules["toy.late"]
assert load().code == first.code and len(looks) == 2 * number  # loaded again
write("late.py", "VALUE = 2  # words\\n")
assert load().code == first.code and len(looks) == 3 * number
time.sleep(0.2)
write("late.py", "VALUE = 5\\n")
assert "toy/late.py was edited after this process had loaded it" in refused(load)
""")


def test_an_early_import_alone_is_fine(works: Callable[..., str]) -> None:
    works("import toy.run, toy.late\nload().check()")


def test_a_time_in_the_future_says_nothing(works: Callable[..., str], project: Path) -> None:
    """Network storage may be ahead of this machine's clock."""
    os.utime(project / "toy/base.py", (4e9, 4e9))
    works("import toy.base\nload().check()")


def test_an_edit_while_loading_is_refused(works: Callable[..., str], project: Path) -> None:
    for content in ("VALUE = 4\n", "VALUE = 2  # words\n"):
        (project / "toy/late.py").write_text("VALUE = 2\n")
        edit = f"import pathlib\npathlib.Path(__file__).with_name('late.py').write_text({content!r})\nFACTOR = 10\n"
        (project / "toy/base.py").write_text(edit)
        works('assert "toy.late" in refused(load)')


def test_two_checkouts_are_refused(works: Callable[..., str], project: Path) -> None:
    other = project / "elsewhere" / "toy"
    other.mkdir(parents=True)
    for name in ("__init__.py", "base.py"):
        (other / name).write_text(FILES[f"toy/{name}"])
    works("""
sys.path.insert(0, str(root / "elsewhere"))
import toy.base
sys.path.pop(0)
toy.__path__ = [str(root / "toy")]
message = refused(load)
assert "two copies" in message and str(root / "elsewhere") in message and str(root / "toy") in message
""")


def byte_code(path: Path) -> Path:
    return path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"


def same_second(path: Path, content: str) -> None:
    """Write ``content`` as an edit within the second of the last one would: same size, same time."""
    before = path.stat()
    assert len(content) == before.st_size
    path.write_text(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("early", ["", "import toy.base\n"])
def test_outdated_byte_code_is_found_and_removed(works: Callable[..., str], project: Path, early: str) -> None:
    path = project / "toy/base.py"
    works("load()")
    cached = byte_code(path)
    assert cached.is_file()
    same_second(path, "FACTOR = 12\n")
    time.sleep(0.05)
    assert "10" in works("import toy.base\nprint(toy.base.FACTOR)")  # Python itself runs the old code
    works(f"""
{early}
message = refused(load)
assert "outdated byte code" in message and "toy.base" in message
""")
    assert not cached.exists()
    assert "12" in works("load().check()\nimport toy.base\nprint(toy.base.FACTOR)")


@pytest.mark.parametrize("mode", ["UNCHECKED_HASH", "CHECKED_HASH"])
def test_byte_code_that_names_a_hash(works: Callable[..., str], project: Path, mode: str) -> None:
    path = project / "toy/base.py"
    py_compile.compile(
        str(path), str(byte_code(path)), doraise=True, invalidation_mode=py_compile.PycInvalidationMode[mode]
    )
    works("load().check()")
    path.write_text("FACTOR = 13 + 1\n")
    if mode == "CHECKED_HASH":  # Python looks at the hash and compiles the source
        program = "load().check()\nimport toy.base\nprint(toy.base.FACTOR)"
        assert "14" in works(program, PYTHONDONTWRITEBYTECODE="1")  # the .pyc stays as it is
        assert "14" in works(program)
    else:
        works('assert "outdated byte code" in refused(load)')


def test_damaged_byte_code_is_removed(works: Callable[..., str], project: Path) -> None:
    works("load()")
    cached = byte_code(project / "toy/base.py")
    works(f"""
import toy.base
cached = pathlib.Path({str(cached)!r})
cached.write_bytes(cached.read_bytes()[:16] + b"no code")
assert "is removed now" in refused(load)
""")
    works("load().check()")


def test_without_byte_code_there_is_nothing_to_compare(works: Callable[..., str]) -> None:
    works("load().check()", PYTHONDONTWRITEBYTECODE="1")


def test_a_module_for_an_optional_package_stays_unloaded(works: Callable[..., str], project: Path) -> None:
    (project / "toy/late.py").write_text("import no_such_package\n")
    works("""
code = load()
code.check()
assert "toy.late" not in sys.modules and code.code["packages"] == {"no-such-package": None}
""")


def test_an_import_of_ones_own_that_fails_is_not_hidden(works: Callable[..., str], project: Path) -> None:
    (project / "toy/late.py").write_text("import toy.nothing\n")
    works("""
try:
    load()
except ModuleNotFoundError as error:
    assert error.name == "toy.nothing"
else:
    raise SystemExit("it went through")
""")


def test_the_error_reaches_the_parent_process_with_its_own_exit_code() -> None:
    error = pickle.loads(pickle.dumps(CodeChanged("code-edited", "words")))  # noqa: S301
    assert (error.exit_code, str(error)) == (9, "words [code-edited]")


def test_a_real_run_is_loaded_whole_and_checked_cheaply(python: Python) -> None:
    program = """
import sys, time
from regft_core.hooks.registry import discover
from regft_core.runs.identity.fingerprint import STAGES, stage_scope, training_scope
from regft_core.runs.identity.guard import LoadedCode
every = sorted({one.__module__ for one in discover().values()})
codes = [LoadedCode(training_scope(every)), *(LoadedCode(stage_scope(name)) for name in STAGES)]
start = time.process_time()
for code in codes:
    code.check()
    missing = [name for name in code.code["modules"] if "." in name and "/" not in name and ":" not in name]
    assert not set(missing) - set(sys.modules), set(missing) - set(sys.modules)
assert "torch" in sys.modules
assert time.process_time() - start < 1, time.process_time() - start
"""
    done = python(program)
    assert done.returncode == 0, done.stdout + done.stderr
