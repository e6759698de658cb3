"""Where the run store may lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core.settings.read_project import load_project
from regft_core.settings.store_path import project_root, store_path
from tests.settings.conftest import PARAMS


def test_places_of_its_own_are_fine_and_a_link_into_another_is_not(
    build: Any, registry: dict[str, Any], failures: Any, tmp_path: Path
) -> None:
    for path in (".regft", "runs/store", "datax", str(tmp_path / "shared"), "../shared", "~/regft-runs"):
        load_project(build({"params.yaml": PARAMS + f"store: {{path: {path}}}\n"}), registry)
    root = build({})
    (root / "work").mkdir()
    (root / "link").symlink_to(root / "work", target_is_directory=True)
    (problem,) = failures({"params.yaml": PARAMS + "store: {path: link}\n"})
    assert problem.code == "store-in-folder-of-others"


def test_a_copy_below_dvc_tmp_uses_the_store_of_the_project(
    build: Any, registry: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DVC_ROOT", raising=False)
    project = build({})
    params = load_project(project, registry).params
    copy = project / ".dvc" / "tmp" / "exps" / "tmp1234"
    copy.mkdir(parents=True)
    monkeypatch.setenv("DVC_ROOT", str(project))
    assert store_path(copy, params) == store_path(project, params) == project / ".regft"
    # A project that a stage of another one runs is on its own.
    assert store_path(tmp_path / "other", params) == tmp_path / "other" / ".regft"
    (project / "params.yaml").unlink()
    assert project_root(copy) == copy  # DVC_ROOT is no project of regft
