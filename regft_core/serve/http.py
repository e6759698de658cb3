"""An exported model behind HTTP: ``POST /predict`` and ``GET /health`` (``regft serve``).

Starlette and uvicorn, which MLflow brings along: nothing more is installed. MLflow's own scoring server answers every
request alone and wants the model packed a second time; FastAPI would add schemas that two routes do not need.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from regft_core import __version__
from regft_core.data.examples import Example, WrongText
from regft_core.data.file_format import Row
from regft_core.data.table import parse_json
from regft_core.names import suggestion
from regft_core.serve.answers import Counted, answers, encodable
from regft_core.serve.batching import Batcher, Full
from regft_core.serve.model import ServedModel
from regft_core.serve.reading import Columns, example_of

#: Names under which a server on this machine is asked. Others come from a page that a browser has open (DNS rebinding).
LOCAL = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Limits:
    """Limits of one request.

    Attributes:
        seconds: from its first byte to its answer.
        bytes: of its body.
        rows: of its list.
    """

    seconds: float = 30.0
    bytes: int = 1_000_000
    rows: int = 256


class Refused(Exception):
    """Refusal of a request: an HTTP status, a code and a sentence without a path of this machine."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code

    def response(self) -> JSONResponse:
        """The answer to a refused request; 503 says when to try again."""
        headers = {"Retry-After": "1"} if self.status == 503 else None
        return JSONResponse({"error": {"code": self.code, "message": encodable(str(self))}}, self.status, headers)


@dataclass
class Service:
    """State behind the two routes."""

    model: ServedModel
    columns: Columns
    limits: Limits
    batcher: Batcher[Example | None, dict[str, Any]] = field(init=False)
    rows: int = 0

    def __post_init__(self) -> None:
        self.batcher = Batcher(lambda requests: together(self.model, requests))

    @property
    def names(self) -> list[str]:
        """The columns that a row has to have."""
        return [name for name in (self.columns.text, self.columns.text_pair) if name is not None]

    async def health(self, request: Request) -> JSONResponse:
        """That it answers, and what to ask it."""
        folder = self.model.directory.resolve().name
        said: dict[str, Any] = {"status": "ok", "regft": __version__, "model": folder, "kind": self.model.served.kind}
        said |= {"columns": self.names, "labels": list(self.model.labels), "precision": self.model.precision}
        said |= {"max_rows": self.limits.rows, "max_bytes": self.limits.bytes, "max_seconds": self.limits.seconds}
        return JSONResponse({**said, "waiting": self.batcher.waiting, "answered": self.rows})

    async def predict(self, request: Request) -> JSONResponse:
        """Answers to ``{"rows": [{column: text}, ...]}``, each as ``regft predict`` writes it into a .jsonl file."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                return JSONResponse(await self._answered(request))
        except Refused as refused:
            return refused.response()
        except TimeoutError:
            message = f"no answer within {self.limits.seconds:g} s; send fewer rows, or ask again later"
            return Refused(504, "too-slow", message).response()
        except Full:
            return Refused(503, "busy", "too many rows wait already; ask again later").response()
        except ClientDisconnect:
            return Refused(400, "disconnected", "the request ended before its body").response()
        except Exception:  # what it says may name folders of this machine: it goes to the log alone
            traceback.print_exc(file=sys.stderr)
            return Refused(500, "failed", "the model gave no answer; the server's log says why").response()

    async def _answered(self, request: Request) -> dict[str, Any]:
        rows = _rows(await _body(request, self.limits.bytes), self.limits.rows)
        body = await self.batcher.answer([self._example(row, number) for number, row in enumerate(rows, start=1)])
        self.rows += len(rows)
        return body

    def _example(self, row: Mapping[str, Any], number: int) -> Example | None:
        for name in self.names:
            if name not in row:
                hint = suggestion(name, [str(one)[:60] for one in list(row)[:20]], "its keys")
                raise Refused(422, "column-missing", f"row {number} has no '{name}'; {hint}")
        try:
            return example_of(Row(f"row {number}", row), self.columns)
        except WrongText as error:
            raise Refused(422, "not-text", f"row {number}: {error}") from error


def together(model: ServedModel, requests: Sequence[Sequence[Example | None]]) -> list[dict[str, Any]]:
    """The bodies that answer some requests, whose texts share batches.

    In fp32 a probability moves by about 1e-6 at most with the texts that share its batch (``evaluate/predict.py``).
    """
    every = [example for examples in requests for example in examples if example is not None]
    scores = iter(model.scores(every).tolist() if every else [])
    bodies = []
    for examples in requests:
        counted = Counted()
        row_scores = [next(scores) for example in examples if example is not None]
        rows = list(answers(model, examples, counted, scores=row_scores))
        # What shortens or withholds an answer stands beside it.
        bodies.append({"answers": rows, "truncated": counted.cut, "without_text": counted.empty})
    return bodies


async def _body(request: Request, most: int) -> bytes:
    """The body. Raises Refused for one of another type, or of more bytes, which are not read to their end."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        # A page in a browser may send other types anywhere without asking first.
        raise Refused(415, "not-json", "send Content-Type: application/json")
    parts, size = list[bytes](), 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise Refused(413, "too-large", f"the body has more than {most} bytes; send fewer rows at a time")
        parts.append(part)
    return b"".join(parts)


def _rows(body: bytes, most: int) -> Sequence[Mapping[str, Any]]:
    """The rows of a body. Raises Refused for another shape, or too many."""
    shape = 'send {"rows": [{"COLUMN": "text"}, ...]}; GET /health names the columns'
    try:
        content = parse_json(body)
    except ValueError as error:
        raise Refused(400, "not-json", f"the body is not JSON ({error}); {shape}") from error
    rows = content.get("rows") if isinstance(content, dict) else None
    if not isinstance(content, dict) or set(content) != {"rows"} or not isinstance(rows, list):
        raise Refused(422, "wrong-shape", shape)
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise Refused(422, "wrong-shape", f"{'no rows' if not rows else 'a row is not an object'}; {shape}")
    if len(rows) > most:
        raise Refused(413, "too-large", f"{len(rows)} rows; send at most {most} at a time")
    return rows


def application(model: ServedModel, columns: Columns, limits: Limits, hosts: Sequence[str]) -> Starlette:
    """The two routes over ``model``.

    Args:
        hosts: names that a request may ask for, without port; ``*`` for any.
    """
    service = Service(model, columns, limits)

    @asynccontextmanager
    async def working(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(service.batcher.run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    routes = [
        Route("/health", service.health, methods=["GET"]),
        Route("/predict", service.predict, methods=["POST"]),
    ]
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    return Starlette(routes=routes, middleware=[trusted], lifespan=working)
