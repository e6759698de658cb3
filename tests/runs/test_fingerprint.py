from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regft_core.errors import ConfigError
from regft_core.runs.fingerprint import (
    ENTRIES,
    IRRELEVANT,
    LOOKUPS,
    METHOD_ENTRIES,
    CodeGraph,
    fingerprint,
    package_root,
    write_fingerprints,
)
from regft_core.runs.syntax import code_sha256, imported_names

LOSS = '''
"""The loss."""
from __future__ import annotations

SCALE = 0.5  # of the penalty


def loss(x: float, y: float = 1.0) -> float:
    """Return the loss."""
    return SCALE * (x - y) ** 2
'''


def sha(source: str) -> str:
    return code_sha256(ast.parse(dedent(source)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""The loss."""', '"""Something else entirely."""'),
        ('"""The loss."""', ""),
        ('    """Return the loss."""\n', ""),
        ('"""Return the loss."""', '"""Return the squared loss, in nats."""'),
        ("# of the penalty", ""),
        ("SCALE = 0.5", "\n\n\nSCALE  =  0.50"),
        ("(x - y) ** 2", "(\n        (x - y) ** 2\n    )"),
        ("return SCALE", '"a string in the place of a comment"\n    return SCALE'),
        ("SCALE = 0.5", '__version__ = "9"\nSCALE = 0.5'),
    ],
)
def test_edits_that_change_nothing(old: str, new: str) -> None:
    assert old in LOSS
    assert sha(LOSS.replace(old, new)) == sha(LOSS)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.5", "0.25"),
        ("0.5", '"0.5"'),
        ("y: float = 1.0", "y: float = 1"),
        ("y: float = 1.0", "y: int = 1.0"),  # annotations are what pydantic models are made of
        ("x - y", "y - x"),
        ("x - y", "x + y"),
        ("** 2", "** -2"),
        ("def loss", "@cache\ndef loss"),
        ("def loss(x", "def loss(*, x"),
        ("return SCALE", "print('x')\n    return SCALE"),
        ("return SCALE", "__version__ = other = 1\n    return SCALE"),
    ],
)
def test_edits_that_change_something(old: str, new: str) -> None:
    assert old in LOSS
    assert sha(LOSS.replace(old, new)) != sha(LOSS)


def test_true_one_and_float_one_differ() -> None:
    assert len({sha(f"x = {value}") for value in ("1", "1.0", "True", "'1'", "b'1'", "1j", "None", "...")}) == 8


@given(st.lists(st.sampled_from(["a = 1", "b = 'x'", "def f():\n    return 1", "f()", "x: int = 2"]), max_size=5))
def test_order_and_number_of_statements_count(lines: list[str]) -> None:
    assert sha("\n".join([*lines, "z = 1"])) != sha("\n".join(["z = 1", *lines])) or not lines
    assert sha("\n".join([*lines, "z = 1", "z = 1"])) != sha("\n".join([*lines, "z = 1"]))
    assert sha("\n\n# comment\n".join(lines)) == sha("\n".join(lines))


def names(source: str, module: str = "p.q.m", is_package: bool = False) -> set[str]:
    return imported_names(ast.parse(dedent(source)), module, is_package)


def test_every_form_of_import_is_seen() -> None:
    assert names("import a.b, c as d") == {"a.b", "c"}
    assert names("from a.b import c, d as e") == {"a.b", "a.b.c", "a.b.d"}
    assert names("from . import x") == {"p.q", "p.q.x"}
    assert names("from .y import x") == {"p.q.y", "p.q.y.x"}
    assert names("from ..y import x") == {"p.y", "p.y.x"}
    assert names("from . import x", "p.q", is_package=True) == {"p.q", "p.q.x"}
    assert names("def f():\n    async def g():\n        import a") == {"a"}
    assert names("try:\n    import a\nexcept ImportError:\n    import b") == {"a", "b"}
    assert names("importlib.import_module('a.b')\n__import__('c')\nimport_module(name)") == {"a.b", "c"}
    assert names("if TYPE_CHECKING:\n    import a\nelse:\n    import b") == {"b"}
    assert names("if typing.TYPE_CHECKING:\n    import a\nimport c") == {"c"}


# ----------------------------------------------------------------------------- a small project

FILES = {
    "regft_core/__init__.py": '__version__ = "1"',
    "regft_core/errors.py": "class E(Exception): ...",
    "regft_core/phases.py": "def run():\n    from regft_core.training import loop\n    from regft_core import tracking",
    "regft_core/training/__init__.py": "",
    "regft_core/training/loop.py": "from ..methods import base\nfrom regft_core.methods.registry import find",
    "regft_core/methods/__init__.py": "",
    "regft_core/methods/base.py": "from regft_core.errors import E",
    "regft_core/methods/registry.py": "from regft_core.methods import hype, pats\nfrom regft_core.errors import E",
    "regft_core/methods/hype.py": "from regft_core.methods import base, noise\nSCALE = 1e-5",
    "regft_core/methods/pats.py": "from regft_core.methods import base",
    "regft_core/methods/noise.py": "import torch",
    "regft_core/tracking.py": "import mlflow",
    "regft_core/reporting/__init__.py": "",
    "regft_core/reporting/html.py": "",
    "regft_core/reporting/templates/report.html.j2": "<p>",
    "regft_core/reporting/README.md": "words",
    "regft_core/data/__init__.py": "",
    "regft_core/data/prepare.py": "",
    "stages/dataset.py": "from regft_core.data.prepare import prepare",
    "stages/subsample.py": "from regft_core.data import prepare",
    "stages/finetune.py": "from regft_core.phases import run",
    "stages/search.py": "from regft_core.phases import run",
    "stages/evaluate.py": "from regft_core import phases",
    "stages/report.py": "from regft_core.reporting import html\nfrom regft_core.tracking import mirror",
}
METHODS = {"hype_n": ["regft_core.methods.hype"], "pats": ["regft_core.methods.pats"], "vanilla": []}
EVERY = {"dataset", "subsample", "evaluate", "report", "method-hype_n", "method-pats", "method-vanilla"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


def changed_by(project: Path, name: str, content: str) -> set[str]:
    before = write_fingerprints(project, METHODS, code_root=project)
    assert set(before) == EVERY
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text(content)
    after = write_fingerprints(project, METHODS, code_root=project)
    return {key for key in EVERY if before[key] != after[key]}


ALL_METHODS = {"method-hype_n", "method-pats", "method-vanilla"}


@pytest.mark.parametrize(
    ("name", "content", "stale"),
    [
        ("regft_core/methods/hype.py", FILES["regft_core/methods/hype.py"].replace("1e-5", "1e-4"), {"method-hype_n"}),
        ("regft_core/methods/hype.py", '"""Doc."""\n' + FILES["regft_core/methods/hype.py"] + "  # comment\n", set()),
        ("regft_core/methods/noise.py", "x = 1", {"method-hype_n"}),  # what a regulariser imports
        ("regft_core/methods/pats.py", "x = 1", {"method-pats"}),
        ("regft_core/methods/new.py", "x = 1", set()),
        ("regft_core/methods/base.py", "x = 1", ALL_METHODS | {"evaluate"}),
        (
            "regft_core/methods/registry.py",
            FILES["regft_core/methods/registry.py"] + "\nx = 1",
            ALL_METHODS | {"evaluate"},
        ),
        ("regft_core/training/loop.py", FILES["regft_core/training/loop.py"] + "\nx = 1", ALL_METHODS | {"evaluate"}),
        ("regft_core/training/__init__.py", "x = 1", ALL_METHODS | {"evaluate"}),
        ("regft_core/errors.py", "x = 1", ALL_METHODS | {"evaluate"}),
        ("regft_core/__init__.py", "x = 1", EVERY),
        ("regft_core/__init__.py", '__version__ = "2"', set()),
        ("regft_core/tracking.py", "x = 1", set()),
        ("regft_core/reporting/html.py", "x = 1", {"report"}),
        ("regft_core/reporting/templates/report.html.j2", "<p><b>", {"report"}),
        ("regft_core/reporting/README.md", "other words", set()),
        ("regft_core/data/prepare.py", "x = 1", {"dataset", "subsample"}),
        ("stages/subsample.py", "from regft_core.data import prepare\nx = 1", {"subsample"}),
        ("stages/dataset.py", "import regft_core.errors", {"dataset"}),
    ],
)
def test_an_edit_makes_exactly_its_users_stale(project: Path, name: str, content: str, stale: set[str]) -> None:
    assert changed_by(project, name, content) == stale


def test_written_files_say_which_modules_they_cover_and_stay_untouched(project: Path) -> None:
    written = write_fingerprints(project, METHODS, code_root=project)
    path = project / "work" / "code" / "method-hype_n.json"
    value = json.loads(path.read_text())
    assert value["sha256"] == written["method-hype_n"]
    assert value["name"] == "method-hype_n"
    assert set(value["modules"]) == {
        "regft_core",
        "regft_core.phases",
        "regft_core.errors",
        "regft_core.methods",
        "regft_core.methods.base",
        "regft_core.methods.hype",
        "regft_core.methods.noise",
        "regft_core.methods.registry",
        "regft_core.training",
        "regft_core.training.loop",
        "stages.finetune",
        "stages.search",
    }
    os.utime(path, (1, 1))
    assert write_fingerprints(project, METHODS, code_root=project) == written
    assert path.stat().st_mtime == 1


def test_the_fingerprint_does_not_depend_on_where_the_code_lies(project: Path, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("elsewhere") / "copy"
    before = write_fingerprints(project, METHODS, code_root=project)
    project.rename(other)
    assert write_fingerprints(other, METHODS, code_root=other) == before


def test_a_missing_entry_and_a_broken_file_are_named(project: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"regft_core/methods/mixout\.py: module regft_core\.methods\.mixout does not"
    ):
        write_fingerprints(project, {"m": ["regft_core.methods.mixout"]}, code_root=project, allow_missing=True)
    (project / "stages/search.py").unlink()
    with pytest.raises(ConfigError, match=r"stages/search\.py: module stages\.search does not exist"):
        write_fingerprints(project, METHODS, code_root=project)
    assert set(write_fingerprints(project, METHODS, code_root=project, allow_missing=True)) == EVERY
    (project / "regft_core/methods/pats.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(ConfigError, match=r"regft_core/methods/pats\.py:2: is not valid Python"):
        write_fingerprints(project, METHODS, code_root=project, allow_missing=True)


def test_this_project_is_covered_without_importing_torch(python: Callable[..., Any]) -> None:
    found = fingerprint(["regft_core.runs.store"], package_root())["modules"]
    assert {"regft_core", "regft_core.io", "regft_core.errors", "regft_core.runs", "regft_core.runs.tensors"} <= set(
        found
    )
    assert not {name for name in found if name in IRRELEVANT}
    program = "import sys, regft_core.runs.fingerprint, regft_core.runs.store; sys.exit('torch' in sys.modules)"
    assert python(program).returncode == 0


@pytest.mark.parametrize("module", [*IRRELEVANT, *LOOKUPS, *METHOD_ENTRIES, *sum(ENTRIES.values(), ())])
def test_every_module_named_here_exists(module: str) -> None:
    """A renamed module must be renamed here too, or it would silently count, or no longer count."""
    assert CodeGraph(package_root()).exists(module)
