"""Shared by all tests: one CPU thread, also in the processes that they start, no network, no waiting for the disk."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")  # threads that load a tiny model take longer than it does

import pytest

pytest_plugins = ["tests.skips", "tests.browser", "pytester"]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _no_sync() -> None:
    """No test survives a power cut, and killed processes lose nothing that they wrote."""
    os.fsync = lambda descriptor: None


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables and nothing in them."""
    from mlflow import MlflowClient

    database = tmp_path_factory.mktemp("template") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{database}").search_experiments(max_results=1)
    return database
