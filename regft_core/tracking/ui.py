"""MLflow's page on this machine, over the project's database, and the columns that it shows of the current grid."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from regft_core.errors import RegftError
from regft_core.grid.executors import Terminated, termination_raises
from regft_core.metrics import higher_is_better
from regft_core.tracking.entries import VERDICTS, Entry

#: The page shows everything to whoever reaches it and asks for no password.
HOST = "127.0.0.1"
VIEW = "regft"
#: One line per method, task and size of the current grid, and the report; the page nests seeds only without a filter.
CURRENT = "tags.current = 'true' and tags.`regft.kind` != 'run' and tags.`regft.kind` != 'phase'"
RUN_NAME = "attributes.`Run Name`"

NOTE = """\
One run for each method, task and training size: the mean over its seeds in points, as in the report. Below it one run
per seed, and below that one per phase. Delete the filter to see these and earlier configurations; select the runs
before and after an edit of `params.yaml` and press *Compare*: the parameters that differ are the edit.
"""


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do; else a port whose last connections are fading looks taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def require_port(port: int) -> None:
    if not is_free(port):
        raise RegftError("port-taken", f"port {port} of {HOST} is taken\n    -> run again with another --port")


def serve(root: Path, port: int, experiment: str) -> None:
    """Serve the database until interrupted, and print the address of its runs; RegftError where the server ends."""
    log = root / "mlartifacts" / "server.log"
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", database_uri(root)),
        *("--default-artifact-root", (root.resolve() / "mlartifacts").as_uri()),
    ]
    # Two processes and 0.5 GB instead of fifteen and 2 GB; nothing is sent elsewhere.
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with termination_raises(), open(log, "wb") as stream:
        server = subprocess.Popen(
            command, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
        )
        try:
            while server.poll() is None and is_free(port):
                time.sleep(0.2)
            if server.poll() is None:
                print(f"MLflow: {runs_page(f'http://{HOST}:{port}', experiment)}")
                print("Stop it with Ctrl-C; what it shows is in mlflow.db and stays.", flush=True)
                server.wait()
            raise RegftError("server-failed", f"the MLflow server ended\n    -> read {log}, then run `regft ui` again")
        except (KeyboardInterrupt, Terminated):
            print("\nstopped")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def database_uri(root: Path) -> str:
    """The address of the database. Always given explicitly: MLflow else picks up an old ./mlruns."""
    return f"sqlite:///{root.resolve() / 'mlflow.db'}"


def experiment_tags(cells: Sequence[Entry]) -> dict[str, str]:
    return {
        # "model training" rather than the generative-AI pages, which newer releases open first
        "mlflow.experimentKind": "custom_model_development",
        "mlflow.note.content": NOTE,
        f"mlflow.sharedViewState.{VIEW}": json.dumps(view_state(cells), sort_keys=True),
    }


def view_state(cells: Sequence[Entry]) -> dict[str, Any]:
    """Columns and order of the page: the main score, its interval and verdict, scores out of distribution, cost."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.scores))
    primaries = {cell.tags["primary"] for cell in cells if cell.tags.get("primary")}
    others = [n for n in names if n.count(".") == 1 and n.split(".")[1] in primaries and not n.startswith("dev.")]
    verdicts = [f"tags.`{name}`" for name in VERDICTS if any(cell.tags.get(name) for cell in cells)]
    columns = [
        *(f"metrics.`{name}`" for name in ("score", "score_low", "score_high") if name in names),
        *verdicts[:1],
        *(f"metrics.`{name}`" for name in [*others[:4], "cost"] if name in names),
        *verdicts[1:],
        "metrics.`seeds`",
        "tags.`status`",
    ]
    return {
        "searchFilter": CURRENT,
        "orderByKey": "metrics.`score`",
        "orderByAsc": bool(primaries) and not any(map(higher_is_better, primaries)),
        "selectedColumns": columns,
        "columnOrder": [RUN_NAME, *columns],
        # As wide as their names: score, interval, verdict and three sets out of distribution fit into 1,440 pixels.
        "columnWidths": {
            RUN_NAME: 200,
            **{name: 132 if name in verdicts else max(78, 6 * len(name) - 36) for name in columns},
        },
        "runsHiddenMode": "FIRST_20_RUNS",
    }


def runs_page(base: str, experiment_id: str) -> str:
    """Address of the experiment's runs with these columns; ``base`` is like ``http://127.0.0.1:5000``."""
    return f"{base}/#/experiments/{quote(experiment_id)}/runs?workflowType=machine_learning&viewStateShareKey={VIEW}"
