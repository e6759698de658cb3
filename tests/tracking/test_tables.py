"""What SQLite reads of the mirror is what MLflow's client reads, and a sync without news needs no MLflow."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from mlflow import MlflowClient

from regft_core.errors import StoreError
from regft_core.tracking import bulk, tables
from regft_core.tracking.store import OPENED_BY, Mirror, database_uri, mlflow_version
from regft_core.tracking.sync import sync
from tests.errors import raises_code
from tests.tracking.tree import HYPE, VANILLA, Tree

SYNC = """
import sys
from pathlib import Path
from regft_core.config.grid import Cell
from regft_core.tracking.sync import sync
found = sync(Path(sys.argv[1]), [Cell("vanilla", "rte", 300)], [0, 1])
print(found.created, found.updated, found.unchanged, "mlflow" in sys.modules)
"""


@pytest.fixture
def grid(tree: Tree) -> Tree:
    tree.cell(VANILLA, [0, 1], failed=(1,))
    tree.subsample("rte", 300, [0, 1])
    return tree


def in_another_process(root: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SYNC, str(root)], cwd=Path(__file__).parents[2], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


def experiment_tags(root: Path) -> dict[str, str]:
    client = MlflowClient(tracking_uri=database_uri(root / "mlflow.db"))
    return dict(client.get_experiment_by_name("regft").tags)


def test_a_sync_without_news_imports_no_mlflow(grid: Tree) -> None:
    assert in_another_process(grid.root) == ["3", "0", "0", "True"]
    assert in_another_process(grid.root) == ["0", "0", "3", "False"]


def test_a_database_that_another_version_has_opened_last_is_opened_by_this_one(grid: Tree) -> None:
    sync(grid.root, [VANILLA], [0, 1])
    assert experiment_tags(grid.root)[OPENED_BY] == mlflow_version()
    with sqlite3.connect(grid.root / "mlflow.db") as connection:
        connection.execute("UPDATE experiment_tags SET value = '1.0' WHERE key = ?", (OPENED_BY,))
    assert in_another_process(grid.root) == ["0", "0", "3", "True"]
    assert experiment_tags(grid.root)[OPENED_BY] == mlflow_version()


def test_runs_are_read_as_the_client_reads_them(grid: Tree) -> None:
    grid.cell(HYPE, [0, 1])
    sync(grid.root, [VANILLA, HYPE], [0, 1])
    sync(grid.root, [VANILLA], [0, 1])  # the other cell is retired
    client = MlflowClient(tracking_uri=database_uri(grid.root / "mlflow.db"))
    one = client.search_runs([client.get_experiment_by_name("regft").experiment_id])[0].info.run_id
    client.log_metric(one, "broken", math.nan)
    with ExitStack() as opened:
        mirror = Mirror(grid.root / "mlflow.db", grid.root / "mlartifacts", "regft", opened)
        by_tables, by_client = mirror.runs(), mirror._all_by_client()
    assert len(by_tables) == 6
    assert {run.active for run in by_tables} == {True, False}
    assert sum(math.isnan(run.metrics.pop("broken", 0.0)) for run in (*by_tables, *by_client)) == 2
    assert {run.run_id: run for run in by_tables} == {run.run_id: run for run in by_client}


def test_unknown_tables_are_left_to_the_client(grid: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tables.COLUMNS, "tags", ["key", "value", "run_uuid", "colour"])
    monkeypatch.setattr(bulk.Bulk, "create", lambda *_: pytest.fail("rows were inserted into unknown tables"))
    assert sync(grid.root, [VANILLA], [0, 1]).created == 3
    assert sync(grid.root, [VANILLA], [0, 1]).unchanged == 3


def test_runs_are_written_together_and_none_by_half(grid: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that is not finished leaves nothing of its runs; the next sync writes them."""
    grid.cell(HYPE, [0, 1])
    written = []
    real = tables.Tables.insert
    monkeypatch.setattr(tables.Tables, "insert", lambda self, rows: written.append(rows) or real(self, rows))
    sync(grid.root, [VANILLA, HYPE], [0, 1])
    assert [len(rows["runs"]) for rows in written] == [6]
    (grid.root / "mlflow.db").unlink()
    monkeypatch.setattr(bulk, "_TOGETHER", 2)
    rows_of_a_half_run = {"runs": [{"run_uuid": "a", "experiment_id": 1}], "tags": [{"run_uuid": "a"}]}
    monkeypatch.setattr(tables.Tables, "insert", lambda self, rows: real(self, rows_of_a_half_run))
    with raises_code(StoreError, "tracker-refused"):
        sync(grid.root, [VANILLA, HYPE], [0, 1])
    monkeypatch.setattr(tables.Tables, "insert", real)
    assert sync(grid.root, [VANILLA, HYPE], [0, 1]).created == 6
