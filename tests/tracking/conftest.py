"""A project that starts from an empty database: making MLflow's tables takes seconds, copying them none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.tracking.tree import Tree


@pytest.fixture
def tree(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """An empty project with a database; the working directory is elsewhere and must stay empty."""
    root, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    shutil.copyfile(empty_database, root / "mlflow.db")
    return Tree(root)
