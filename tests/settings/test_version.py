"""``regft: 0.1.0`` in ``params.yaml``: who reads a file of another version is told what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core import __version__
from regft_core.errors import ConfigError
from regft_core.settings import version
from regft_core.settings.read_project import load_project as load
from tests.errors import raises_code

REPOSITORY = Path(__file__).resolve().parents[2]


def written_for(files: dict[str, str], text: str) -> dict[str, str]:
    return {"params.yaml": f"regft: {text}\n" + files["params.yaml"]}


def test_a_later_version_is_the_only_error(files: dict[str, str], build: Any, registry: dict[str, Any]) -> None:
    changes = written_for(files, "99.0.0")
    changes["params.yaml"] += "a_section_of_99: 1\n"
    with raises_code(ConfigError, "newer-version", "params.yaml:1", "99.0.0", f"regft: {__version__}") as caught:
        load(build(changes), registry)
    assert len(caught.value.problems) == 1


def test_an_earlier_version_is_told_what_changed_since(
    files: dict[str, str], build: Any, registry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"0.0.5": "rename a to b", "0.0.10": "rename b to c", "99.0.0": "not yet"}
    monkeypatch.setattr(version, "MIGRATIONS", told)
    (warning,) = (w for w in load(build(written_for(files, "0.0.9")), registry).warnings if "written for" in w)
    assert warning.startswith("params.yaml:1: written for regft 0.0.9, ")
    assert warning.endswith(f"; 0.0.10: rename b to c; then write regft: {__version__}")


def test_the_same_version_or_none_says_nothing(files: dict[str, str], build: Any, registry: dict[str, Any]) -> None:
    for changes in (written_for(files, __version__), {}):
        assert not [w for w in load(build(changes), registry).warnings if "written for" in w]


@pytest.mark.parametrize("text", ["0.1", "v0.1.0", "latest", "null", "[0, 1]", "0.1.0-rc1"])
def test_what_is_no_version_is_refused(files: dict[str, str], failures: Any, text: str) -> None:
    (problem,) = failures(written_for(files, text))
    assert problem.key == "regft"


def test_the_repository_and_new_projects_are_written_for_this_version() -> None:
    own, new = REPOSITORY / "params.yaml", REPOSITORY / "regft_core" / "shipped" / "project" / "params.yaml.txt"
    assert {file: yaml.safe_load(file.read_text())["regft"] for file in (own, new)} == {
        own: __version__,
        new: __version__,
    }
