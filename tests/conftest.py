"""Shared by all tests: one CPU thread, also in the processes that they start, no network, no waiting for the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")  # threads that load a tiny model take longer than it does

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
pytest_plugins = ["tests.skips", "pytester"]


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


@pytest.fixture(scope="module")  # Playwright runs an event loop in this thread, beside which tests of asyncio fail
def browser() -> Iterator[Any]:
    """A headless browser; tests of pages are skipped where none is installed."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install '.[test]')"
    )
    program = os.environ.get("REGFT_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on the PATH, and REGFT_BROWSER is not set")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()
