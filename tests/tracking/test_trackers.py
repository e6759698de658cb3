"""Trackers are files, those of examples/ too; MLflow's page is served on this machine only, and ends when stopped."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from regft_core.catalogue import TRACKERS
from regft_core.errors import ConfigError, RegftError, StoreError
from regft_core.settings.read_project import open_project
from regft_core.tracking import ui as command
from regft_core.tracking.entries import read_grid
from regft_core.tracking.ui import runs_page, view_state
from tests.errors import raises_code
from tests.promises.kit import change
from tests.small_project import also, build
from tests.tracking.tree import HYPE, Tree, sync

EXAMPLES = Path(__file__).parents[2] / "examples" / "trackers"


class Logged:
    """Values that a writer of TensorBoard, or a run of W&B, is given."""

    made: ClassVar[list[Logged]] = []

    def __init__(self, folder: str = "", **options: Any) -> None:
        self.folder, self.options, self.points = folder, options, list[tuple[str, float, int]]()
        self.summary = dict[str, float]()
        if folder:
            Path(folder).mkdir(parents=True)
        Logged.made.append(self)

    def add_scalar(self, name: str, value: float, step: int = 0, walltime: float = 0.0) -> None:
        self.points.append((name, value, step))

    def log(self, values: dict[str, float], step: int) -> None:
        self.points += [(name, value, step) for name, value in values.items()]

    def __enter__(self) -> Logged:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_tracker_of_the_project_gets_every_run(tree: Tree, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    board, service = ModuleType("torch.utils.tensorboard"), ModuleType("wandb")
    monkeypatch.setattr(board, "SummaryWriter", Logged, raising=False)
    monkeypatch.setattr(service, "init", Logged, raising=False)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    monkeypatch.setitem(sys.modules, "wandb", service)
    monkeypatch.setattr(Logged, "made", [])
    tree.cell(HYPE, [0, 1])
    with also(TRACKERS, EXAMPLES):
        said = sync(tree.root, [HYPE], [0, 1], trackers=[name])
        assert "2 runs" in said
        assert len(Logged.made) == 2
        for run in Logged.made:
            assert any(point.startswith("curves/loss") for point, _, _ in run.points)
            assert [step for _, _, step in run.points] == sorted(step for _, _, step in run.points) or name != "wandb"
        if name == "tensorboard":
            assert "0 runs logged, 2 as before" in sync(tree.root, [HYPE], [0, 1], trackers=[name])
            assert len(Logged.made) == 2
        else:
            ids = [run.options["id"] for run in Logged.made]
            sync(tree.root, [HYPE], [0, 1], trackers=[name])
            assert [run.options["id"] for run in Logged.made] == ids * 2
            assert Logged.made[0].options["config"]["method"] == HYPE.method


def test_a_tracker_that_is_none_or_fails_is_said(tree: Tree, tmp_path: Path) -> None:
    root = build(tmp_path / "own")
    (root / "trackers").mkdir()
    for name, code, shown in (("mlflwo", "invalid-value", "mlflow"), ("own", "bad-tracker", "own.py")):
        (root / "trackers" / "own.py").write_text("def logg(): pass\n")
        change(root, trackers=[name])
        with raises_code(ConfigError, code, shown):
            open_project(root)
    (root / "trackers" / "own.py").write_text("def log(root, read):\n    raise OSError('no way')\n")
    open_project(root)
    with raises_code(RegftError, "tracker-failed", "'own'", "no way"):
        sync(tree.root, [HYPE], [0, 1], trackers=["own"])
    error = (
        "from regft_core.errors import StoreError\n\ndef log(root, read):\n    raise StoreError('full', 'no room')\n"
    )
    (root / "trackers" / "own.py").write_text(error)
    (root / "trackers" / "later.py").write_text("def log(root, read):\n    (root / 'later').touch()\n")
    open_project(root)
    with raises_code(StoreError, "full", "no room"):
        sync(tree.root, [HYPE], [0, 1], trackers=["own", "later"])
    assert (tree.root / "later").is_file()
    shutil.rmtree(root / "trackers")
    TRACKERS.own = None


# ------------------------------------------------------------------------------------------------------ MLflow's page


def test_a_taken_port_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        with raises_code(RegftError, "port-taken", taken, "--port"):
            command.require_port(taken)


def test_the_shared_view_sorts_by_score_and_shows_its_interval(tree: Tree) -> None:
    tree.cell(HYPE, [0])
    (score,) = tree.scores(HYPE)
    interval = {"mean": score / 100, "low": 0.6, "high": 0.7, "n": 1}
    bounds = {"dev": {"accuracy": interval}, "verdict_reference": "better"}
    tree.report("first", {"rte-300": {"hype_n": bounds}})
    state = view_state(read_grid(tree.root, [HYPE], [0], tree.root / ".regft"))
    scores = [f"metrics.`{name}`" for name in ("score", "score_low", "score_high")]
    others = ["metrics.`hans.accuracy`", "metrics.`cost`", "metrics.`seeds`"]
    assert state["selectedColumns"] == [*scores, "tags.`verdict_reference`", *others, "tags.`status`"]
    assert (state["orderByKey"], state["orderByAsc"]) == (scores[0], False)
    json.dumps(state, allow_nan=False)
    assert runs_page("http://127.0.0.1:5000", "1").startswith(
        "http://127.0.0.1:5000/#/experiments/1/runs?workflowType="
    )


SERVE = """
import sys
from pathlib import Path
from regft_core.tracking.trackers.mlflow import opened
from regft_core.tracking.ui import serve
with opened(Path(sys.argv[1])) as tracker:
    experiment = tracker.experiment
serve(Path(sys.argv[1]), int(sys.argv[2]), experiment)
"""


@contextmanager
def served(root: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The port of the page, and the process behind it; both are gone afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(root), str(port)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert f"http://127.0.0.1:{port}/#/experiments/1/runs" in process.stdout.readline()
        yield port, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def test_the_page_answers_and_ends_with_the_command(tree: Tree) -> None:
    with served(tree.root) as (port, process):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as reply:
            assert b"<title>MLflow</title>" in reply.read()
        with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.2", port), timeout=2):
            pass
    assert process.returncode == 0
    deadline = time.monotonic() + 10
    while not command.is_free(port) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert command.is_free(port)
    assert {path.name for path in tree.root.iterdir()} <= {
        *("mlflow.db", "mlflow.db.lock", "mlflow.db-wal", "mlflow.db-shm", "mlartifacts")
    }
