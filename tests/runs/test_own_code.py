"""Code of a project, beside its params.yaml: found like the package's, part of keys by content, sent to workers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import regft_core
from regft_core import catalogue
from regft_core.catalogue import OWN
from regft_core.errors import CodeChanged
from regft_core.grid.data import prepare
from regft_core.runs.code import LoadedCode
from regft_core.runs.context import Context
from regft_core.runs.job import Job
from regft_core.runs.project import open_project
from tests.errors import raises_code
from tests.small_project import build

#: The method of the wheel's check, with a data file beside it.
CODE = (
    (Path(__file__).parents[1] / "wheel" / "own_method.py")
    .read_text()
    .replace(
        "class ShakyConfig",
        'SCALE = json.loads(Path(__file__).with_name("shaky.json").read_text())\n\n\nclass ShakyConfig',
    )
    .replace("options.sigma)", "options.sigma * SCALE)")
    .replace("from typing", "import json\nfrom pathlib import Path\nfrom typing", 1)
)


@pytest.fixture(autouse=True)
def _no_project_after() -> Iterator[None]:
    yield
    for one in OWN.values():
        one.own = None


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = build(tmp_path / "project", methods=["vanilla", "shaky", "shaky_double"])
    (root / "methods").mkdir()
    (root / "methods" / "shaky.py").write_text(CODE)
    (root / "methods" / "shaky.json").write_text("1.0")
    own = {"description": "own", "regularisers": {"shaky": {}}, "training": {}}
    (root / "pipelines" / "methods" / "shaky.yaml").write_text(yaml.dump(own))
    time.sleep(0.05)  # a process that begins now takes in no data file that was written after it began
    monkeypatch.setattr(regft_core, "LOADED_AT_NS", time.time_ns())
    prepare(open_project(root))
    return root


def key(root: Path, method: str = "shaky") -> str:
    return Context(Job(str(root), method, "reviews", "16", 0)).keys.of("finetune")


def test_the_key_holds_content_and_no_place(project: Path, tmp_path: Path) -> None:
    before, vanilla = key(project), key(project, "vanilla")
    copy = Path(shutil.copytree(project, tmp_path / "elsewhere"))
    assert key(copy) == before
    path = project / "methods" / "shaky.py"
    path.write_text(CODE.replace('"""Gradients times a number."""', '"""Other words."""'))
    assert key(project) == before
    path.write_text(CODE.replace("1 + self", "2 + self"))
    edited = key(project)
    assert edited != before
    path.write_text(CODE)
    (project / "methods" / "shaky.json").write_text("3.0")  # a data file beside it counts, too
    assert key(project) not in (before, edited)
    assert key(project, "vanilla") == vanilla


def test_a_file_that_was_edited_after_it_was_loaded_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(Job(str(project), "shaky", "reviews", "16", 0))
    scope = context.keys.training_scope(context.method.finetune)
    LoadedCode(scope)
    path = str((project / "methods" / "shaky.py").resolve())
    monkeypatch.setitem(catalogue.LOADED, path, (0, 0))
    with raises_code(CodeChanged, "code-edited", "shaky.py"):
        LoadedCode(scope)
