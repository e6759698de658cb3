"""The code in a key: which edits change it, and that what is loaded is what is hashed."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import regft_core
from regft_core import catalogue
from regft_core.errors import ConfigError, InputChanged
from regft_core.runs import code
from regft_core.runs.code import Scope, code_of, load
from tests.errors import raises_code

RUN = '''"""Words."""
from toy import base


def run(x: int) -> int:
    """Words."""
    from toy import late

    return late.VALUE * base.FACTOR
'''
FILES = {
    "toy/__init__.py": "",
    "toy/run.py": RUN,
    "toy/run.json": "1",
    "toy/run_words/a.txt": "one",
    "toy/run_words/tools/make.py": "VALUE = 5\n",
    "toy/run_words/tools/five.txt": "five",
    "toy/run_words/later/.keep": "",
    "toy/all.txt": "for everyone",
    "toy/base.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from toy import typed\nFACTOR = 10\n",
    "toy/late.py": "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    VALUE = 0\nelse:\n    from .deep.er import VALUE\n",
    "toy/deep/__init__.py": "",
    "toy/deep/er.py": "VALUE = 2\n",
    "toy/deep/er.txt": "two",
    "toy/typed.py": "VALUE = 3\n",
    "toy/unused.py": "VALUE = 3\n",
    "toy/unused.json": "3",
    "toy/hidden/part.py": "VALUE = 4\n",
    "toy/hidden/part.txt": "four",
}
SCOPE = Scope(("toy.run",), ("toy.hidden",))
DOES = "toy/run.py"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of a project, in a process that began after it was written."""
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(code, "_met", {})
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    code._codes.clear()
    code._home.cache_clear()
    code._file.cache_clear()
    time.sleep(0.03)
    monkeypatch.setattr(regft_core, "LOADED_AT_NS", time.time_ns())
    yield tmp_path
    for name in [one for one in sys.modules if one.partition(".")[0] == "toy"]:
        del sys.modules[name]
    code._home.cache_clear()
    code._file.cache_clear()


def write(root: Path, name: str, old: str, new: str) -> None:
    path = root / name
    text = path.read_text() if path.exists() else ""
    assert old in text
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.replace(old, new) if old else text + new)


#: (file, old text, new text, whether results are stale then).
EDITS: list[tuple[str, str, str, bool]] = [
    (DOES, "", "# a comment\n", False),
    (DOES, '"""Words."""', '"""Other words."""', False),
    (DOES, "x: int) -> int", "x: str) -> str", False),
    (DOES, "    return", "\n\n    return", False),
    (DOES, "    return", "    pass\n    return", False),
    (DOES, "run(x", "run(y", True),
    (DOES, "late.VALUE * base.FACTOR", "late.VALUE + base.FACTOR", True),
    (DOES, "base.FACTOR", "base.FACTOR if x else 1", True),
    (DOES, "", "assert run\n", True),
    ("toy/base.py", "10", "10.0", True),
    ("toy/deep/er.py", "2", "3", True),
    ("toy/deep/__init__.py", "", "VALUE = 2\n", True),
    ("toy/typed.py", "3", "4", False),
    ("toy/late.py", "import VALUE", "import VALUE as HALF; VALUE = 2 * HALF", True),  # beside what is for type checkers
    ("toy/base.py", "from toy import typed", "from toy import typed, unused", False),
    ("toy/unused.py", "3", "4", False),
    ("toy/another.py", "", "VALUE = 1\n", False),
    # Data files of the modules in use, and those of a folder that no module's name begins.
    ("toy/run.json", "1", "2", True),
    ("toy/run_words/a.txt", "one", "two", True),
    ("toy/run_words/b.txt", "", "two", True),
    ("toy/run_words/later/c.txt", "", "two", True),  # the first of its folder
    ("toy/run_words/tools/five.txt", "five", "six", False),  # of another package
    ("toy/run_words/.DS_Store", "", "hidden", False),
    ("toy/run_words/.ipynb_checkpoints/a.txt", "", "hidden", False),
    ("toy/all.txt", "everyone", "all", True),
    ("toy/deep/er.txt", "two", "three", True),
    ("toy/unused.json", "3", "4", False),
    ("toy/another.json", "", "4", True),  # of no module
    ("toy/run.md", "", "words", False),
    # What does not count does not hand on what it imports either.
    ("toy/run.py", "base\n", "base, hidden\n", True),
    ("toy/hidden/part.py", "4", "5", False),
    ("toy/hidden/part.txt", "four", "five", False),
]


@pytest.mark.parametrize(("file", "old", "new", "stale"), EDITS, ids=[f"{e[0]}, {e[2].strip()}" for e in EDITS])
def test_which_edits_make_results_stale(
    toy: Path, monkeypatch: pytest.MonkeyPatch, file: str, old: str, new: str, stale: bool
) -> None:
    monkeypatch.setattr(code, "settled", lambda _: True)  # what is kept in memory is asked
    before = code_of(SCOPE)
    write(toy, file, old, new)
    code._file.cache_clear()  # as a process that begins then
    assert (code_of(SCOPE).sha256 != before.sha256) == stale


def test_in_a_project_a_module_has_the_files_that_are_named_after_it(toy: Path) -> None:
    for name in ("params.yaml", "toytool.txt", "toytool_words/a.txt", "rows.csv", "work/x.json"):
        write(toy, name, "", "1")
    write(toy, "toytool.py", "", "VALUE = 1\n")
    named = [Path(name).name for name in code_of(Scope(("toytool",))).files if "/" in name]
    assert sorted(named) == ["a.txt", "toytool.txt"]


def test_what_is_not_valid_or_not_there_is_named_with_its_place(toy: Path) -> None:
    write(toy, "toy/late.py", "from", "form")
    with raises_code(ConfigError, "bad-python", "late.py:5"):
        code_of(SCOPE)
    with raises_code(ConfigError, "module-missing", "toy/nothing.py"):
        code_of(Scope(("toy.nothing",)))


def test_packages_count_with_their_versions(toy: Path) -> None:
    write(
        toy,
        "toy/late.py",
        "",
        "import json, no_such_package, sklearn.svm, transformers\nfrom regft_core.lazy import np\n",
    )
    versions = code_of(SCOPE).packages
    assert versions.keys() == {"no-such-package", "scikit-learn", "transformers", "tokenizers", "numpy"}
    assert versions["no-such-package"] is None
    assert versions["tokenizers"] is not None


def later(toy: Path, file: str, old: str, new: str) -> None:
    time.sleep(0.03)
    write(toy, file, old, new)


@pytest.mark.parametrize(
    ("file", "old", "new", "refused"),
    [
        ("toy/late.py", "VALUE", "VALUE as OTHER", True),
        ("toy/late.py", "from", "form", True),
        ("toy/late.py", "", "# words", False),
        ("toy/unused.py", "3", "4", False),
        ("toy/run.json", "1", "2", True),
        ("toy/run_words/b.txt", "", "2", True),
    ],
)
def test_what_was_edited_after_it_was_loaded_is_refused(
    toy: Path, file: str, old: str, new: str, refused: bool
) -> None:
    load(SCOPE)
    before = code_of(SCOPE).sha256
    later(toy, file, old, new)
    if refused:
        with pytest.raises((InputChanged, ConfigError)):
            load(SCOPE)
    else:
        load(SCOPE)  # the next run in this process
        assert code_of(SCOPE).sha256 == before


def test_a_plugin_that_was_edited_after_it_was_loaded_is_refused(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = str(toy / "toy/unused.py")
    state = os.stat(plugin)
    monkeypatch.setitem(catalogue.LOADED, plugin, (state.st_mtime_ns, state.st_size))
    load(Scope((plugin,)))
    monkeypatch.setitem(catalogue.LOADED, plugin, (0, 0))
    with raises_code(InputChanged, "code-edited", "unused.py"):
        load(Scope((plugin,)))


@pytest.mark.parametrize(("file", "old", "new"), [("toy/base.py", "10", "11"), ("toy/run.json", "1", "2")])
def test_an_edit_after_an_early_import_is_refused(toy: Path, file: str, old: str, new: str) -> None:
    """The file says 11, but the process has loaded 10: its hash would be that of 11."""
    importlib.import_module("toy.base")
    later(toy, file, old, new)
    with raises_code(InputChanged, "code-edited", "changed after this process had begun"):
        load(SCOPE)


def test_an_early_import_alone_is_fine_and_a_time_in_the_future_says_nothing(toy: Path) -> None:
    """Network storage may be ahead of this machine's clock."""
    os.utime(toy / "toy/base.py", (4e9, 4e9))
    importlib.import_module("toy.run")
    load(SCOPE)
