"""The files of an own method: its class, its YAML and its test. ``regft new method``."""

from __future__ import annotations

import keyword
from pathlib import Path

import yaml

from regft_core import shipped
from regft_core.catalogue import METHODS as REGULARISERS
from regft_core.catalogue import use_project
from regft_core.disk.files import write_text
from regft_core.errors import ConfigError, Problem
from regft_core.settings.yaml_paths import METHODS, find, method_file

YAML = """\
description: what it does, in one line
regularisers: {NAME: {}}
training: {}
"""
TEST = """\
\"\"\"The contract of NAME. Add what it must compute, against numbers worked out by hand.\"\"\"

from pathlib import Path

from regft_core.contract.check_method import check_method


def test_it_keeps_the_contract():
    promises = list(check_method(Path(__file__).parents[1], "NAME"))
    assert [promise for promise in promises if promise.kept is False] == []
"""


def new_method(root: Path, name: str) -> list[Path]:
    """Write the files of a method ``name`` and return their paths, relative to ``root``.

    Raises ConfigError: the name is none of a Python file, or is taken; nothing is written then.
    """
    use_project(root)
    files = {
        Path("methods") / f"{name}.py": (shipped.FOLDER / "project" / "method.txt").read_text(encoding="utf-8"),
        Path(method_file(name)): YAML,
        Path("tests") / f"test_{name}.py": TEST,
    }
    is_word = keyword.iskeyword(name) or yaml.safe_load(name) != name  # of Python, or of YAML: null, true
    if is_word or not name.isidentifier() or name.startswith("_") or name != name.lower():
        problem = (
            "name-not-possible",
            f"'{name}' names no method",
            "use lower case, digits and _, as in label_smoothing",
        )
    elif name in REGULARISERS.names() or find(root, METHODS, name) is not None:
        problem = "name-taken", f"there is a method '{name}' already", "choose another name"
    elif there := [str(path) for path in files if (root / path).exists()]:
        problem = "name-taken", f"{there[0]} is there already", "choose another name, or remove it"
    else:
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            written = text.replace("NAME", name).replace("CLASS", name.title().replace("_", ""))
            write_text(root / path, written)
        return list(files)
    code, message, hint = problem
    raise ConfigError([Problem(code, f"methods/{name}.py", 0, "", message, hint)])
