"""The page is served on this machine only, and gone when it is stopped."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from regft_core.errors import RegftError
from regft_core.tracking import ui as command
from regft_core.tracking.entries import read_grid
from regft_core.tracking.ui import runs_page, view_state
from tests.errors import raises_code
from tests.tracking.tree import HYPE, Tree


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which something listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_is_refused(taken: int) -> None:
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
