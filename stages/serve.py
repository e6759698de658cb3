"""Answers of an exported model over HTTP."""

from __future__ import annotations

import argparse
import ipaddress
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn

from regft_core.errors import DataError
from regft_core.serve.http import LOCAL, Limits, application

from .common import SERVING, argument, command, served, whole_number

#: Connections at a time; further ones get 503.
CONNECTIONS = 512


limits = Limits()


@command(
    argument("model", "directory that `regft export` wrote"),
    argument("--host", "address to listen on", default="127.0.0.1"),
    argument("--port", "port to listen on; 0 for any that is free", default=8000, type=int),
    argument("--rows", "most rows of one request", default=limits.rows, type=whole_number),
    argument("--bytes", "largest body of one request", default=limits.bytes, type=whole_number),
    argument("--seconds", "longest time for one request", default=int(limits.seconds), type=whole_number),
    *SERVING,
)
def serve(root: Path, arguments: argparse.Namespace) -> None:
    r"""Answer texts over HTTP with an exported model.

    Serves until it is interrupted. Requests that arrive together share batches;
    the answers are those of `regft predict`. It listens on this machine only;
    another --host has neither password nor encryption, and a warning says so.

    examples
      regft serve exports/lp_ft-film_polarity-200-seed-0

    next: curl localhost:8000/predict -H 'Content-Type: application/json' \
            -d '{"rows": [{"text": "a fine film"}]}'
    """
    opened = _listen(arguments.host, arguments.port)
    with opened:
        model = served(arguments)
        limits = Limits(arguments.seconds, arguments.bytes, arguments.rows)
        local = _is_local(arguments.host)
        app = application(model, limits, LOCAL if local else ("*",))
        quiet: dict[str, Any] = {"log_level": "warning", "server_header": False, "use_colors": False}
        config = uvicorn.Config(app, limit_concurrency=CONNECTIONS, timeout_graceful_shutdown=5, **quiet)
        if not local:
            warning = (
                "whoever reaches this address may ask: no password, no encryption; put a proxy with both before it"
            )
            print(f"warning: --host {arguments.host}: {warning}", file=sys.stderr)
        host, port = opened.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"serving {arguments.model} at http://{shown}:{port} (POST /predict, GET /health)", flush=True)
        with suppress(KeyboardInterrupt):  # the ordinary end
            uvicorn.Server(config).run(sockets=[opened])


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises DataError for an address in use, or one that this machine has not."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((str(address[0]), port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            "cannot-listen", f"--host {host} --port {port}: cannot listen there ({reason})\n    -> another --port"
        ) from error


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
