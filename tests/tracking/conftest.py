"""An empty database to start from: making MLflow's tables takes seconds, copying them none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.tracking.tree import Tree


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables and nothing in them."""
    database = tmp_path_factory.mktemp("template") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{database}").search_experiments(max_results=1)
    return database


@pytest.fixture
def tree(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """An empty project with a database; the working directory is elsewhere and must stay empty."""
    root, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    shutil.copyfile(empty_database, root / "mlflow.db")
    return Tree(root)
