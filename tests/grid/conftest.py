"""The small project of the phases' tests, with its plan."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regft_core.grid.cell_keys import forget_failures, read_plan, write_plan
from regft_core.grid.compute import compute
from regft_core.grid.data import prepare
from regft_core.runs.context import STAGES
from regft_core.settings.read_project import open_project
from tests.runs.conftest import change, make_project, project, runs, stored, template, trained

__all__ = ["make_project", "project", "template", "trained"]


def quiet(line: str) -> None:
    pass


def plan(root: Path) -> dict[str, dict[str, Any]]:
    """What the stage subsample does; returns what it wrote of the cells, by stage."""
    opened = open_project(root)
    prepare(opened)
    write_plan(opened)
    forget_failures(root)
    return {stage: read_plan(root, stage) for stage in STAGES}


def reproduce(root: Path, say: Callable[[str], None] = quiet) -> dict[str, str]:
    """The stages subsample, search, finetune and evaluate; returns the cells that failed."""
    plan(root)
    failures: dict[str, str] = {}
    for stage in STAGES:
        failures |= compute(root, stage, say=say)
    return failures


def tree(root: Path) -> dict[str, bytes]:
    """Content of every output of the stages that train and evaluate."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for stage in STAGES
        for path in sorted((root / "work" / stage).rglob("*"))
        if path.is_file()
    }


def bits(root: Path) -> dict[str, dict[str, str]]:
    """Key -> hashes of the tensors of every run in the store."""
    found = {key: stored(root, key) for key in runs(root)}
    return {key: {name: run.tensors_sha256(name) for name in run.tensor_names} for key, run in found.items()}


@pytest.fixture(scope="session")
def reproduced(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with everything computed; tests get copies."""
    root = Path(shutil.copytree(template, tmp_path_factory.mktemp("reproduced") / "project"))
    assert reproduce(root) == {}
    return root


@pytest.fixture
def done(reproduced: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reproduced, tmp_path / "project"))


@pytest.fixture
def tuned(project: Path) -> Callable[..., Path]:
    """The project with tuned ``methods``."""

    def make(*methods: str, **tuning: Any) -> Path:
        rates = {"split": 0.75, "values": {"training.learning_rate": [1e-6, 3e-3]}}
        change(project, methods=list(methods), report={"reference": methods[0]}, tuning={**rates, **tuning})
        return project

    return make
