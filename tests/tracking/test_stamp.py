"""A sync without news needs no MLflow; whoever else has written the database is noticed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from regft_core.tracking import database as store
from regft_core.tracking import stamp
from regft_core.tracking.database import database_uri
from regft_core.tracking.sync import sync
from tests.tracking.tree import HYPE, VANILLA, Tree

SYNC = """
import sys
from pathlib import Path
from regft_core.settings.grid import Cell
from regft_core.tracking.sync import sync
found = sync(Path(sys.argv[1]), [Cell("vanilla", "rte", 300)], [0, 1])
print(found.created, found.updated, found.unchanged, "mlflow" in sys.modules)
"""


@pytest.fixture
def grid(tree: Tree) -> Tree:
    tree.cell(VANILLA, [0, 1], failed=(1,))
    tree.subsample("rte", 300, [0, 1])
    return tree


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The databases that MLflow has opened, in this process."""
    found: list[Path] = []
    real = store._opened
    monkeypatch.setattr(store, "_opened", lambda database: found.append(database) or real(database))
    return found


def in_another_process(root: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SYNC, str(root)], cwd=Path(__file__).parents[2], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


def test_a_sync_without_news_imports_no_mlflow(grid: Tree) -> None:
    grid.report("first")
    assert in_another_process(grid.root) == ["4", "0", "0", "True"]
    assert in_another_process(grid.root) == ["0", "0", "4", "False"]
    client = MlflowClient(tracking_uri=database_uri(grid.root / "mlflow.db"))
    client.search_runs([client.get_experiment_by_name("regft").experiment_id])  # who only reads changes nothing
    assert in_another_process(grid.root) == ["0", "0", "4", "False"]


def test_another_version_of_mlflow_opens_the_database(
    grid: Tree, opened: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(grid.root, [VANILLA], [0, 1])
    assert sync(grid.root, [VANILLA], [0, 1]).unchanged == 3
    assert len(opened) == 1
    monkeypatch.setattr(stamp, "installed", lambda names: dict.fromkeys(names, "1.0"))
    assert sync(grid.root, [VANILLA], [0, 1]).unchanged == 3
    assert len(opened) == 2


def test_a_database_from_a_backup_is_compared_run_by_run(grid: Tree, opened: list[Path]) -> None:
    grid.cell(HYPE, [0, 1])
    sync(grid.root, [VANILLA], [0, 1])
    backup = shutil.copy2(grid.root / "mlflow.db", grid.root.parent / "backup.db")
    assert sync(grid.root, [VANILLA, HYPE], [0, 1]).created == 3
    shutil.copy2(backup, grid.root / "mlflow.db")
    assert sync(grid.root, [VANILLA, HYPE], [0, 1]).created == 3
    assert len(opened) == 3


@pytest.mark.parametrize("content", ["", "{", "[]", '{"content": "another"}'])
def test_a_stamp_that_cannot_be_read_is_none(grid: Tree, opened: list[Path], content: str) -> None:
    sync(grid.root, [VANILLA], [0, 1])
    (grid.root / "mlflow.db.synced").write_text(content)
    assert sync(grid.root, [VANILLA], [0, 1]).unchanged == 3
    assert len(opened) == 2


def test_an_interrupted_sync_leaves_no_stamp_that_holds(
    grid: Tree, opened: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(grid.root, [VANILLA], [0, 1])
    grid.cell(HYPE, [0, 1])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store.Mirror, "describe", killed)
        with pytest.raises(KeyboardInterrupt):
            sync(grid.root, [VANILLA, HYPE], [0, 1])
    assert sync(grid.root, [VANILLA, HYPE], [0, 1]).unchanged == 6
    assert len(opened) == 3
