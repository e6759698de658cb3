"""Opens MLflow's web page over the mirror, on this machine only."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

from regft_core.errors import RegftError
from regft_core.tracking.database import database_uri, locked, open_mirror, quiet_environment
from regft_core.tracking.view import runs_page

#: The page shows everything to whoever reaches it and asks for no password.
HOST = "127.0.0.1"
START_SECONDS = 120.0


def port_is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        # As servers do; else a port whose last connections are fading looks taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def require_port(port: int) -> None:
    """Raise RegftError, naming the next free port, when the port is taken."""
    if port_is_free(port):
        return
    free = next((other for other in range(port + 1, min(port + 200, 65_536)) if port_is_free(other)), None)
    advice = f"run again with --port {free}" if free else "choose another with --port"
    raise RegftError(
        "port-taken", f"port {port} of {HOST} is taken, perhaps by an earlier `ui` that still runs; {advice}"
    )


def server_command(database: Path, artifacts: Path, port: int) -> list[str]:
    """The MLflow server: one worker, this machine only."""
    return [
        *(sys.executable, "-m", "mlflow", "server"),
        *("--backend-store-uri", database_uri(database)),
        *("--default-artifact-root", artifacts.resolve().as_uri()),
        *("--host", HOST, "--port", str(port), "--workers", "1"),
    ]


def server_environment() -> dict[str, str]:
    """Two processes and 0.5 GB instead of fifteen and 2 GB; nothing is sent elsewhere."""
    quiet_environment()
    return os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def start_server(database: Path, artifacts: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    """Start the server in a process group of its own and wait until it answers.

    Raises:
        RegftError: it ended, or did not answer in time; the end of its log is in the message.
    """
    with open(log, "wb") as output:
        server = subprocess.Popen(
            server_command(database, artifacts, port),
            cwd=database.resolve().parent,
            env=server_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    try:
        while not _answers(port):
            if server.poll() is not None or time.monotonic() > deadline:
                what = f"ended with code {server.returncode}" if server.poll() is not None else "does not answer"
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
                raise RegftError(
                    "server-failed",
                    f"the MLflow server {what}; the end of {log}:\n{tail}\n"
                    "    -> read the log, then run `regft ui` again",
                )
            time.sleep(0.2)
    except BaseException:
        stop_server(server)
        raise
    return server


def stop_server(server: subprocess.Popen[bytes]) -> None:
    """End the server and its workers."""
    for what, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, what)
        with suppress(subprocess.TimeoutExpired):
            server.wait(patience)
            return


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def serve(root: Path, port: int, experiment: str = "regft") -> None:
    """Serve the mirror until interrupted. Sync first; this only shows.

    Raises:
        RegftError: the port is taken or the server does not start.
        StoreError: the mirror cannot be opened.
    """
    require_port(port)
    database, artifacts = root / "mlflow.db", root / "mlartifacts"
    with locked(database), open_mirror(database, artifacts, experiment) as mirror:
        experiment_id = mirror.experiment_id
    log = artifacts / "server.log"
    server = start_server(database, artifacts, port, log)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        print(f"MLflow: {runs_page(f'http://{HOST}:{port}', experiment_id)}")
        print("Stop it with Ctrl-C; what it shows is in mlflow.db and stays.", flush=True)
        code = server.wait()
        raise RegftError(
            "server-failed",
            f"the MLflow server ended with code {code}; its log is {log}\n"
            "    -> read the log, then run `regft ui` again",
        )
    except KeyboardInterrupt:
        print("\nstopped")
    finally:
        signal.signal(signal.SIGTERM, previous)
        stop_server(server)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
