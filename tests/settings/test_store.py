"""Where the run store may lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import ConfigError
from regft_core.schema.params import Params
from regft_core.settings.read_project import load_project
from regft_core.settings.store_path import project_root, store_path

PARAMS = "params.yaml"


def with_store(path: str) -> Params:
    return Params.model_validate(
        {
            "model": {"name": "minilm"},
            "grid": {"tasks": ["a"], "sizes": [2], "seeds": [0]},
            "methods": ["vanilla"],
            "subsample": {},
            "training": {},
            "report": {},
            "store": {"path": path},
        }
    )


@pytest.fixture(autouse=True)
def _outside_of_dvc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DVC_ROOT", raising=False)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("./data/../data/runs", "store-in-folder-of-others"),
        ("work/runs", "store-in-folder-of-others"),
        (".git/x", "store-in-folder-of-others"),
        ("link", "store-in-folder-of-others"),
        (".", "store-around-project"),
        ("..", "store-around-project"),
        ("params.yaml/x", "not-a-directory"),
        ("~nobody_here/x", "bad-path"),
    ],
)
def test_a_store_in_a_place_of_others_is_refused(
    build: Any, registry: dict[str, Any], files: dict[str, str], path: str, code: str
) -> None:
    root = build({PARAMS: files[PARAMS] + f"store: {{path: {path}}}\n"})
    (root / "work").mkdir()
    (root / "link").symlink_to(root / "work", target_is_directory=True)
    with pytest.raises(ConfigError) as caught:
        load_project(root, registry)
    (problem,) = caught.value.problems
    assert (problem.code, problem.line) == (code, 16)


def test_places_of_its_own_are_fine(
    build: Any, registry: dict[str, Any], files: dict[str, str], tmp_path: Path
) -> None:
    for path in (".regft", "runs/store", "datax", "workx", str(tmp_path / "shared"), "../shared", "~/regft-runs"):
        root = build({PARAMS: files[PARAMS] + f"store: {{path: {path}}}\n"})
        load_project(root, registry)


def test_a_copy_below_dvc_tmp_uses_the_store_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    copy = project / ".dvc" / "tmp" / "exps" / "tmp1234"
    copy.mkdir(parents=True)
    monkeypatch.setenv("DVC_ROOT", str(project))
    assert project_root(copy) == copy  # DVC_ROOT is no project of regft
    (project / "params.yaml").write_text("")
    assert store_path(copy, with_store(".regft")) == project / ".regft"
    assert store_path(project, with_store(".regft")) == project / ".regft"
    assert store_path(copy, with_store("/shared")) == Path("/shared")
    # A project that a stage of another one runs is on its own.
    assert store_path(tmp_path / "other", with_store(".regft")) == tmp_path / "other" / ".regft"
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "absent"))
    assert store_path(copy, with_store(".regft")) == copy / ".regft"
