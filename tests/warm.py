"""Python processes whose slow imports are done: forks of one process that has torch, transformers and MLflow.

A new Python takes four seconds of a core to import them, and the tests of the pipeline start hundreds. No module of
regft is loaded before the fork, so a process runs the code of its own folder. Tests of what happens at the start of a
process, and of killed ones, start a Python of their own.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from functools import cache
from pathlib import Path

SLOW = (
    *("torch", "torch._dynamo", "transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto"),
    *("transformers.models.bert.modeling_bert", "safetensors.torch", "pandas", "scipy.stats", "matplotlib.figure"),
    *("matplotlib.backends.backend_svg", "mlflow", "mlflow.store.tracking.sqlalchemy_store", "pydantic", "ruamel.yaml"),
    *("rich.progress", "jinja2", "dvc.cli", "dvc.repo.reproduce", "dvc.stage.run"),
)
#: The executable `python` that DVC and ``run`` find: it hands its arguments, environment and streams to the server.
CLIENT = """#!{python} -SE
import json, os, socket, sys
if sys.argv[1:2] not in (["-m"], ["-c"]) or "multiprocessing" in sys.argv[2]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [b"."], [0, 1, 2])
server.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode() + b"\\n")
code = int(server.makefile().read() or 1)
os._exit(code) if code >= 0 else os.kill(os.getpid(), -code)
"""


def run(
    root: Path, *arguments: str, environment: dict[str, str], given: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Return what ``python ARGUMENTS`` (``-m module ...`` or ``-c program ...``) does in a folder with an input."""
    command = [str(folder() / "python"), *arguments]
    return subprocess.run(command, cwd=root, env=environment, input=given, capture_output=True, text=True, timeout=900)


@cache
def folder() -> Path:
    """Start the server of this test process; return the folder of its ``python``, for the PATH."""
    home = Path(tempfile.mkdtemp(prefix="regft-warm-"))
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": ""}
    command, pipe = [sys.executable, __file__, str(home)], subprocess.PIPE
    server = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
    while not (home / "python").is_file():
        assert server.poll() is None, server.communicate()
        time.sleep(0.05)

    def end(process: int = os.getpid()) -> None:
        if os.getpid() == process:
            server.kill()
            shutil.rmtree(home, ignore_errors=True)

    atexit.register(end)
    return home


def serve(home: Path) -> list[str]:
    """Answer until standard input is closed; in the fork of a request return its arguments."""
    for name in SLOW:
        importlib.import_module(name)
    gc.freeze()
    os.fsync = lambda descriptor: None  # as in conftest.py
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(home / "socket"))
    listener.listen(64)
    (home / "client").write_text(CLIENT.format(python=sys.executable, address=str(home / "socket")))
    (home / "client").chmod(0o755)
    (home / "client").rename(home / "python")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if 0 in select.select([listener, 0], [], [])[0]:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _, streams, _, _ = socket.recv_fds(connection, 1, 3)
            arguments, directory, environment = json.loads(connection.makefile().readline())
            if (worker := os.fork()) == 0:
                connection.close()
                _take_over(streams, directory, environment)
                return list(arguments)
            threading.Thread(target=_kill_with_client, args=(worker, connection), daemon=True).start()
            _, status = os.waitpid(worker, 0)
            connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
            os._exit(0)
        connection.close()


def _kill_with_client(worker: int, connection: socket.socket) -> None:
    """End a fork whose client has ended, of which nobody reads the answer any more."""
    connection.recv(1)
    os.kill(worker, signal.SIGKILL)


def _take_over(streams: list[int], directory: str, environment: dict[str, str]) -> None:
    """Make this process what the client is: its streams, folder and environment."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    sys.executable = str(Path(sys.argv[1], "python"))
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[:1] = [directory, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    time.tzset()


def execute(how: str, what: str, *rest: str) -> int:
    """Run a module (``-m``) or a program (``-c``) as the main one; return the exit code."""
    sys.argv = [how, *rest]
    try:
        if how == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(what, "<string>", "exec"), main.__dict__)  # noqa: S102
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    code = execute(*serve(Path(sys.argv[1])))
    # An interpreter that ends in full touches every object that the processes share.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
