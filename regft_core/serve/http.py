"""An exported model behind HTTP: ``POST /predict`` and ``GET /health`` (``regft serve``), by Starlette and uvicorn."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
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
from regft_core.serve.answers import Counted, answers, encodable, example_of
from regft_core.serve.model import ServedModel

#: Names under which a server on this machine is asked. Others come from a page that a browser has open (DNS rebinding).
LOCAL = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Limits:
    """Limits of one request: time to its answer, size of its body, rows of its list."""

    seconds: float = 30.0
    bytes: int = 1_000_000
    rows: int = 256


class Refused(Exception):
    """Refusal of a request: an HTTP status, a code and a sentence without a path of this machine."""


def _refusal(status: int, code: str, message: str) -> JSONResponse:
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"error": {"code": code, "message": encodable(message)}}, status, headers)


#: Rows of the requests that wait, and where their answers go.
_Waiting = tuple[Sequence[Any], Future[Any]]


@dataclass
class Batcher:
    """Answers to requests, computed by one thread: ``work`` gives those to the rows of some requests."""

    work: Callable[[Sequence[Sequence[Any]]], Sequence[Any]]
    most_rows: int = 256
    most_waiting: int = 2_000
    waiting: int = 0
    _queue: deque[_Waiting] = field(default_factory=deque)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "model"))

    async def answer(self, rows: Sequence[Any]) -> Any:
        """The answer to one request. Raises Refused where too many rows wait, and what ``work`` raises for it."""
        if self.waiting and self.waiting + len(rows) > self.most_waiting:
            raise Refused(503, "busy", "too many rows wait already; ask again later")
        future = Future[Any]()
        self._queue.append((rows, future))
        self._thread.submit(self._answer_waiting)
        self.waiting += len(rows)
        try:
            return await asyncio.wrap_future(future)
        finally:
            self.waiting -= len(rows)

    def _answer_waiting(self) -> None:
        """Answer all that waits, up to ``most_rows``; a later call finds the rest, or nothing."""
        requests, count = list[_Waiting](), 0
        while self._queue and count < self.most_rows:
            rows, future = self._queue.popleft()
            if future.set_running_or_notify_cancel():
                requests.append((rows, future))
                count += len(rows)
        if requests:
            self._answer(requests)

    def _answer(self, requests: Sequence[_Waiting]) -> None:
        try:
            answers = self.work([rows for rows, _ in requests])
        except Exception as error:
            if len(requests) == 1:
                requests[0][1].set_exception(error)
                return
            for one in requests:  # what one request did wrong is its own failure only
                self._answer([one])
            return
        for (_, future), answer in zip(requests, answers, strict=True):
            future.set_result(answer)


@dataclass
class Service:
    """State behind the two routes."""

    model: ServedModel
    limits: Limits
    batcher: Batcher
    rows: int = 0

    async def health(self, request: Request) -> JSONResponse:
        """That it answers, and what to ask it."""
        model, folder = self.model, self.model.directory.resolve().name
        health: dict[str, Any] = {"status": "ok", "regft": __version__, "model": folder, "kind": model.served.kind}
        health |= {"columns": model.columns, "labels": list(model.labels), "precision": model.precision}
        health |= {f"max_{name}": value for name, value in vars(self.limits).items()}
        return JSONResponse({**health, "waiting": self.batcher.waiting, "answered": self.rows})

    async def predict(self, request: Request) -> JSONResponse:
        """Answers to ``{"rows": [{column: text}, ...]}``, each as ``regft predict`` writes it into a .jsonl file."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                rows = _rows(await _body(request, self.limits.bytes), self.limits.rows)
                examples = [self._example(row, number) for number, row in enumerate(rows, start=1)]
                body = await self.batcher.answer(examples)
            self.rows += len(rows)
            return JSONResponse(body)
        except Refused as refused:
            return _refusal(*refused.args)
        except TimeoutError:
            seconds = f"{self.limits.seconds:g} s"
            return _refusal(504, "too-slow", f"no answer within {seconds}; send fewer rows, or ask again later")
        except ClientDisconnect:
            return _refusal(400, "disconnected", "the request ended before its body")
        except Exception:  # what it says may name folders of this machine: it goes to the log alone
            traceback.print_exc(file=sys.stderr)
            return _refusal(500, "failed", "the model gave no answer; the server's log says why")

    def _example(self, row: Mapping[str, Any], number: int) -> Example | None:
        for name in self.model.columns:
            if name not in row:
                hint = suggestion(name, [str(one)[:60] for one in list(row)[:20]], "its keys")
                raise Refused(422, "column-missing", f"row {number} has no '{name}'; {hint}")
        try:
            return example_of(Row(f"row {number}", row), self.model.columns)
        except WrongText as error:
            raise Refused(422, "not-text", f"row {number}: {error}") from error


def together(model: ServedModel, requests: Sequence[Sequence[Example | None]]) -> list[dict[str, Any]]:
    """The bodies that answer some requests, whose texts share batches: a probability moves by about 1e-6 in fp32."""
    every = [example for examples in requests for example in examples if example is not None]
    scores = iter(model.scores(every).tolist() if every else [])
    bodies = []
    for examples in requests:
        counted = Counted()
        rows = list(answers(model, examples, counted, scores=scores))
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
    rows = content["rows"] if isinstance(content, dict) and set(content) == {"rows"} else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise Refused(422, "wrong-shape", shape)
    if len(rows) > most:
        raise Refused(413, "too-large", f"{len(rows)} rows; send at most {most} at a time")
    return rows


def application(model: ServedModel, limits: Limits, hosts: Sequence[str]) -> Starlette:
    """The two routes over ``model``; ``hosts``: names that a request may ask for, without port; ``*`` for any."""
    service = Service(model, limits, Batcher(partial(together, model)))

    routes = [Route("/health", service.health), Route("/predict", service.predict, methods=["POST"])]
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    return Starlette(routes=routes, middleware=[trusted])
