"""``regft: 0.1.0`` in ``params.yaml``: who reads a file of another version is told so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from regft_core import __version__
from regft_core.errors import ConfigError
from regft_core.settings.read_project import load_project
from tests.errors import raises_code

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_later_version_is_the_only_error(files: dict[str, str], build: Any, registry: dict[str, Any]) -> None:
    params = f"regft: 99.0.0\n{files['params.yaml']}a_section_of_99: 1\n"
    with raises_code(ConfigError, "newer-version", "params.yaml:1", f"regft: {__version__}") as caught:
        load_project(build({"params.yaml": params}), registry)
    assert len(caught.value.problems) == 1


def test_an_earlier_version_is_a_warning(files: dict[str, str], build: Any, registry: dict[str, Any]) -> None:
    for written, said in (("0.0.9", True), (__version__, False)):
        params = f"regft: {written}\n{files['params.yaml']}"
        warnings = load_project(build({"params.yaml": params}), registry).warnings
        assert any(text.startswith("params.yaml:1: written for regft 0.0.9") for text in warnings) == said


def test_the_repository_and_new_projects_are_written_for_this_version() -> None:
    for file in (REPOSITORY / "params.yaml", REPOSITORY / "regft_core" / "shipped" / "project" / "params.yaml.txt"):
        assert yaml.safe_load(file.read_text())["regft"] == __version__
