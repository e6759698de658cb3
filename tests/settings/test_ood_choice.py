"""``ood`` of ``params.yaml``: which of the declared out-of-distribution sets judge, and how the others are marked."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.errors import ConfigError
from regft_core.hooks.registry import discover
from regft_core.settings.project import LeftOut, Project
from regft_core.settings.read_project import load_project
from tests.errors import raises_code

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "pipelines", tmp_path / "pipelines")
    return tmp_path


def load(root: Path, **changes: Any) -> Project:
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params |= {"methods": ["vanilla"], "grid": {"tasks": ["rte", "sst2"], "sizes": [64], "seeds": [0]}}
    params["report"] = {"reference": "vanilla", **changes.pop("report", {})}
    (root / "params.yaml").write_text(yaml.dump(params | changes))
    return load_project(root, discover())


def test_none_leaves_all_out_and_reads_none_of_their_files(root: Path) -> None:
    (root / "pipelines" / "tasks" / "hans.yaml").unlink()
    project = load(root, ood="none")
    assert list(project.tasks) == ["rte", "sst2"]
    assert project.tasks["rte"].ood == {}
    assert project.left_out["rte"] == dict.fromkeys(("hans", "scitail", "advglue_rte"), LeftOut("ood is none"))


def test_a_list_names_those_that_judge(root: Path) -> None:
    project = load(root, ood=["hans", "imdb_cad"])
    assert list(project.tasks["rte"].ood) == ["hans"]
    assert list(project.tasks["sst2"].ood) == ["imdb_cad"]
    assert project.left_out["rte"] == dict.fromkeys(("scitail", "advglue_rte"), LeftOut("not listed in ood"))


def test_a_name_that_no_task_declares_is_an_error(root: Path) -> None:
    with raises_code(ConfigError, "unknown-set", "params.yaml:", "'hanns'", "did you mean 'hans'"):
        load(root, ood=["hanns"])
    with raises_code(ConfigError, "invalid-value", "'all' or 'none'"):
        load(root, ood="nothing")
