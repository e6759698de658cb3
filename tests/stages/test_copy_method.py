"""A shipped method as a file of the project: in its own place, or under another name."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from regft_core import shipped
from regft_core.errors import ConfigError
from regft_core.grid.method_table import copy_method
from regft_core.runs.project import open_project
from tests.errors import raises_code
from tests.small_project import build


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = build(tmp_path / "project", methods=["vanilla", "hype_n"])
    for path in (root / "pipelines" / "methods").iterdir():
        path.unlink()
    return root


def edit(path: Path) -> None:
    path.write_text(path.read_text().replace("1.0e-5", "2.0e-5"))


def test_a_copy_takes_the_place_of_the_shipped_one(project: Path) -> None:
    before = open_project(project).methods["hype_n"]
    file = project / copy_method(project, "hype_n")
    assert yaml.safe_load(file.read_text())["override"] is True
    assert open_project(project).methods["hype_n"] == before
    edit(file)
    assert dict(open_project(project).methods["hype_n"].finetune.regularisers)["hype"].scale == 2e-5
    assert "1.0e-5" in (shipped.FOLDER / "pipelines/methods/hype_n.yaml").read_text()


def test_a_copy_with_a_name_of_its_own_stands_beside_it(project: Path) -> None:
    edit(project / copy_method(project, "hype_n", "mine"))
    params = project / "params.yaml"
    params.write_text(yaml.dump(yaml.safe_load(params.read_text()) | {"methods": ["vanilla", "hype_n", "mine"]}))
    found = {name: dict(one.finetune.regularisers) for name, one in open_project(project).methods.items()}
    assert (found["hype_n"]["hype"].scale, found["mine"]["hype"].scale) == (1e-5, 2e-5)


def test_every_shipped_method_can_be_copied(project: Path) -> None:
    for path in sorted((shipped.FOLDER / "pipelines/methods").glob("*.yaml")):
        copy_method(project, path.stem)
    open_project(project)


@pytest.mark.parametrize(
    ("name", "new", "code", "shown"),
    [
        ("hype", None, "unknown-method", "hype_u"),
        ("../tasks/sst2", None, "unknown-method", "../tasks/sst2"),
        ("hype_n", "My Method", "bad-name", "My Method"),
        ("hype_n", "vanilla", "name-taken", "vanilla"),
        ("hype_n", "present", "in-the-way", "pipelines/methods/present.yaml"),
    ],
)
def test_what_cannot_be_copied_says_why(project: Path, name: str, new: str | None, code: str, shown: str) -> None:
    (project / "pipelines/methods/present.yaml").write_text("regularisers: {}\n")
    before = sorted((project / "pipelines/methods").iterdir())
    with raises_code(ConfigError, code, shown):
        copy_method(project, name, new)
    assert sorted((project / "pipelines/methods").iterdir()) == before
