"""A project's own files come first, then those that the package ships; a name in both is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core import shipped
from regft_core.errors import ConfigError
from regft_core.settings.files import METHODS, PRESETS, read
from regft_core.settings.preset import lay_out
from regft_core.settings.read_project import load_project
from tests.errors import raises_code
from tests.settings.conftest import TASK, Noise

ROOT = Path(__file__).resolve().parents[2]
CALM = "description: shipped\nregularisers: {noise: {scale: 1e-3}}\ntraining: {}\n"


@pytest.fixture
def package() -> Path:
    """The folder of what is shipped, with one task, two methods and a preset."""
    for file, text in {
        "tasks/news.yaml": TASK,
        "methods/calm.yaml": CALM,
        "methods/vanilla.yaml": "training: {epochs: 9}\n",
        "presets/table.yaml": "model: {name: minilm}\n",
    }.items():
        path = shipped.FOLDER / "pipelines" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return shipped.FOLDER


def write(root: Path, folder: str, name: str, text: str) -> Path:
    path = root / folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_project_lists_what_is_shipped(package: Path, build: Any) -> None:
    params = "\n".join(
        (
            "model: {name: minilm}",
            "grid: {tasks: [news], sizes: [100], seeds: [0]}",
            "methods: [calm]",
            "training: {epochs: 2}",
            "subsample: {}",
            "report: {reference: calm}",
        )
    )
    root = build({"params.yaml": params, "pipelines/methods/vanilla.yaml": None})
    project = load_project(root, {"noise": Noise})  # type: ignore[dict-item]
    assert project.methods["calm"].config.description == "shipped"
    # Messages say where the file is, wherever that is.
    assert project.documents["pipelines/methods/calm.yaml"].file == (package / METHODS / "calm.yaml").as_posix()


def test_a_name_in_both_is_an_error_unless_the_project_says_override(package: Path, tmp_path: Path) -> None:
    own = write(tmp_path, METHODS, "calm", "description: own\n")
    with raises_code(ConfigError, "name-taken", "pipelines/methods/calm.yaml", str(package), "override: true"):
        read(tmp_path, METHODS, "calm")
    own.write_text("override: true\ndescription: own\n")
    found = read(tmp_path, METHODS, "calm")
    assert found is not None
    assert found.data == {"description": "own"}  # the choice is no value of the method
    assert found.place(("description",)).line == 2
    own.write_text(CALM)  # the same file is no clash, as where a project was copied
    assert read(tmp_path, METHODS, "calm") is not None


def test_a_shipped_preset_runs_in_the_project(package: Path, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("store: {path: own}\n")
    folder = lay_out(tmp_path, "table")
    assert folder == tmp_path / "presets" / "table"
    text = (folder / "params.yaml").read_text()
    assert str(package / PRESETS / "table.yaml") in text.splitlines()[0]
    assert "../../own" in text
