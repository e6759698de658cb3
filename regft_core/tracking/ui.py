"""MLflow's page on this machine, over the project's database."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from regft_core.errors import RegftError

#: The page shows everything to whoever reaches it and asks for no password.
HOST = "127.0.0.1"


def require_port(port: int) -> None:
    """Raise RegftError, naming the next free port, when the port is taken."""
    if is_free(port):
        return
    free = next((other for other in range(port + 1, min(port + 200, 65_536)) if is_free(other)), port)
    raise RegftError(
        "port-taken",
        f"port {port} of {HOST} is taken, perhaps by an earlier `ui` that still runs; run again with --port {free}",
    )


def is_free(port: int) -> bool:
    """Whether nothing listens on a port of this machine."""
    with socket.socket() as probe:
        # As servers do; else a port whose last connections are fading looks taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def serve(root: Path, port: int) -> None:
    """Serve the database until interrupted. Raises RegftError where the server does not start or ends by itself."""
    from regft_core.tracking.trackers.mlflow import database_uri, opened
    from regft_core.tracking.view import runs_page

    with opened(root) as tracker:
        page = runs_page(f"http://{HOST}:{port}", tracker.experiment)
    log = root / "mlartifacts" / "server.log"
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", database_uri(root)),
        *("--default-artifact-root", (root.resolve() / "mlartifacts").as_uri()),
    ]
    # Two processes and 0.5 GB instead of fifteen and 2 GB; nothing is sent elsewhere.
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    with open(log, "wb") as stream:
        server = subprocess.Popen(
            command, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
        )
    try:
        while server.poll() is None and is_free(port):
            time.sleep(0.2)
        if server.poll() is None:
            print(f"MLflow: {page}")
            print("Stop it with Ctrl-C; what it shows is in mlflow.db and stays.", flush=True)
            server.wait()
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
        hint = "read the log, then run `regft ui` again"
        raise RegftError("server-failed", f"the MLflow server ended; the end of {log}:\n{tail}\n    -> {hint}")
    except KeyboardInterrupt:
        print("\nstopped")
    finally:
        signal.signal(signal.SIGTERM, previous)
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(server.pid, number)
            with suppress(subprocess.TimeoutExpired):
                server.wait(5)
                break
