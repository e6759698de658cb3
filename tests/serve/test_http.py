"""HTTP: answers, limits, batches of what came meanwhile; how numbers are written."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from regft_core.errors import RunFailed
from regft_core.serve.answers import Writer, rounded
from regft_core.serve.http import LOCAL, Batcher, Limits, Refused, application
from regft_core.serve.model import ServedModel, load_served
from regft_core.serve.predict import predict_file
from tests.small_project import read_jsonl, review, write_csv
from tests.stages.conftest import Exported

JSON = {"Content-Type": "application/json"}


@dataclass
class Answer:
    status: int
    body: Any


def ask(port: int, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    content = body if isinstance(body, bytes | None) else json.dumps(body)
    connection.request("GET" if body is None else "POST", path, content, JSON if headers is None else headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return Answer(response.status, json.loads(text) if text.startswith("{") else text)


@contextmanager
def served(model: Any, limits: Limits | None = None) -> Iterator[int]:
    """The port of a server in this process."""
    app = application(model, limits or Limits(), LOCAL)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", 0)) as opened:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield opened.getsockname()[1]
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def model(exported: Exported) -> ServedModel:
    return load_served(exported["vanilla", "reviews"], "cpu")


@pytest.fixture(scope="module")
def port(model: ServedModel) -> Iterator[int]:
    with served(model, Limits(bytes=20_000, rows=50)) as found:
        yield found


def test_concurrent_requests_get_the_answers_of_predict(port: int, model: ServedModel, tmp_path: Path) -> None:
    """To 2e-6: the sixth digit may differ with the texts that share a batch."""
    texts = [review(n, n % 40) if n % 9 else " " for n in range(60)]
    predict_file(model, write_csv(tmp_path / "new.csv", [("review",), *((t,) for t in texts)]), tmp_path / "out.jsonl")
    expected = read_jsonl(tmp_path / "out.jsonl")
    with ThreadPoolExecutor(12) as pool:
        bodies = [{"rows": [{"review": text} for text in texts[n : n + 3]]} for n in range(0, 60, 3)]
        found = list(pool.map(lambda body: ask(port, "/predict", body), bodies))
    assert {one.status for one in found} == {200}
    rows = [{**row, "row": 3 * n + row["row"]} for n, one in enumerate(found) for row in one.body["answers"]]
    assert sum(one.body["without_text"] for one in found) == 7
    assert sum(one.body["truncated"] for one in found) > 0
    for one, other in zip(rows, expected, strict=True):
        assert (one["row"], one.get("prediction")) == (other["row"], other["prediction"])
        if other["prediction"] is not None:
            assert one["probability_good"] == pytest.approx(other["probability_good"], abs=2e-6)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "not-json"),
        (b"[" * 10_000, 400, "not-json"),
        (b'{"rows": [{"review": "a", "review": "b"}]}', 400, "not-json"),
        ([], 422, "wrong-shape"),
        ({"rows": []}, 422, "wrong-shape"),
        ({"rows": ["good film"]}, 422, "wrong-shape"),
        ({"rows": [{"review": "a"}], "model": "/etc"}, 422, "wrong-shape"),
        ({"rows": [{"reviews": "a"}]}, 422, "column-missing"),
        ({"rows": [{"review": 3}]}, 422, "not-text"),
        ({"rows": [{"review": {"en": "a"}}]}, 422, "not-text"),
        ({"rows": [{"review": "a"}, {"review": "half \ud800"}]}, 422, "not-text"),
        ({"rows": [{"review\udfff": "a"}]}, 422, "column-missing"),
        ({"rows": [{"review": "a"}] * 51}, 413, "too-large"),
        ({"rows": [{"review": "a" * 30_000}]}, 413, "too-large"),
    ],
)
def test_wrong_requests_are_refused_with_a_code(port: int, body: Any, status: int, code: str) -> None:
    found = ask(port, "/predict", body)
    assert (found.status, found.body["error"]["code"]) == (status, code)
    assert str(Path.cwd()) not in found.body["error"]["message"]


@pytest.mark.parametrize("text", [b'["a"]', b'""', b"NaN", b'"a", "\\ud83d": "b"'])
def test_odd_rows_are_answered_as_those_of_a_file(port: int, text: bytes) -> None:
    assert ask(port, "/predict", b'{"rows": [{"review": ' + text + b"}]}").status == 200


def test_other_types_hosts_and_paths_are_refused(port: int) -> None:
    body = {"rows": [{"review": "a"}]}
    assert ask(port, "/predict", body, {"Content-Type": "text/plain"}).status == 415
    assert ask(port, "/predict", body, {**JSON, "Host": "evil.example"}).status == 400
    assert ask(port, "/../../etc/passwd").status == 404
    assert ask(port, "/predict").status == 405


class Slow:
    """A model that takes its time, or fails with a path in its error."""

    def __init__(self, model: ServedModel, seconds: float = 0, fails: bool = False) -> None:
        self._model, self._seconds, self._fails = model, seconds, fails

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def scores(self, examples: Any) -> Any:
        time.sleep(self._seconds)
        if self._fails:
            raise RunFailed("not-finite", f"{self._model.directory}/secret: NaN")
        return self._model.scores(examples)


def test_a_request_beyond_its_time_ends(model: ServedModel) -> None:
    with served(Slow(model, seconds=1.0), Limits(seconds=0.2)) as port:
        found = ask(port, "/predict", {"rows": [{"review": "a"}]})
    assert (found.status, found.body["error"]["code"]) == (504, "too-slow")


def test_a_body_that_never_ends_is_cut_off(model: ServedModel) -> None:
    with served(model, Limits(seconds=0.3)) as port, socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        slow.sendall(b"Content-Length: 100\r\n\r\n{")
        slow.settimeout(10)
        assert b"504" in slow.recv(1000)


def test_errors_of_the_model_show_no_path(model: ServedModel, capfd: Any) -> None:
    with served(Slow(model, fails=True)) as port:
        found = ask(port, "/predict", {"rows": [{"review": "a"}]})
    assert found.status == 500
    assert "/" not in found.body["error"]["message"]
    assert "secret: NaN" in capfd.readouterr().err


# --------------------------------------------------------------------------------------------- batches


class Work:
    """Doubles numbers; the first call waits until it is let go."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.go = threading.Event()

    def __call__(self, requests: Sequence[Sequence[int]]) -> list[list[int]]:
        self.calls.append(len(requests))
        self.go.wait(10)
        if any(-1 in rows for rows in requests):
            raise ValueError("wrong")
        return [[2 * row for row in rows] for rows in requests]


async def begun(batcher: Batcher, work: Work, *requests: list[int]) -> list[asyncio.Task[list[int]]]:
    """Requests that wait while the first one is being answered."""
    first = asyncio.create_task(batcher.answer([0]))
    while not work.calls:
        await asyncio.sleep(0.001)
    others = [asyncio.create_task(batcher.answer(rows)) for rows in requests]
    await asyncio.sleep(0)
    return [first, *others]


def test_what_came_meanwhile_is_one_batch() -> None:
    async def tried() -> None:
        work = Work()
        batcher = Batcher(work)
        tasks = await begun(batcher, work, *([n, n + 1] for n in range(20)))
        assert batcher.waiting == 41
        work.go.set()
        assert await asyncio.gather(*tasks) == [[0], *([2 * n, 2 * n + 2] for n in range(20))]
        assert work.calls == [1, 20]
        assert batcher.waiting == 0

    asyncio.run(tried())


def test_a_wrong_request_fails_alone() -> None:
    async def tried() -> None:
        work = Work()
        batcher = Batcher(work)
        tasks = await begun(batcher, work, [1], [-1], [2])
        work.go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [found[0], found[1], found[3]] == [[0], [2], [4]]
        assert isinstance(found[2], ValueError)

    asyncio.run(tried())


def test_too_many_rows_are_refused_and_cancelled_ones_are_not_computed() -> None:
    async def tried() -> None:
        work = Work()
        batcher = Batcher(work, most_rows=2, most_waiting=4)
        tasks = await begun(batcher, work, [1, 2], [3])
        with pytest.raises(Refused) as caught:
            await batcher.answer([4])
        assert "busy" in map(str, (*caught.value.args, *vars(caught.value).values()))
        tasks[1].cancel()
        await asyncio.sleep(0)
        work.go.set()
        assert await tasks[2] == [6]
        assert work.calls == [1, 1]
        assert batcher.waiting == 0

    asyncio.run(tried())


# --------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("value", "written"), [(404_878.123, 404_878.0), (3.14159265, 3.14159), (1.23456789e-6, 1.23457e-6), (-0.0, 0.0)]
)
def test_values_keep_their_digits_whatever_their_unit(value: float, written: float) -> None:
    assert rounded(value) == written
    table, lines = io.StringIO(), io.StringIO()
    Writer(".csv", table, ["prediction"]).row({"prediction": rounded(value)})
    Writer(".jsonl", lines, ["prediction"]).row({"prediction": rounded(value)})
    assert float(table.getvalue().splitlines()[1]) == written
    assert json.loads(lines.getvalue())["prediction"] == written


def test_a_kept_number_that_is_none_is_an_empty_cell() -> None:
    """Lines of JSON had ``NaN``, which no JSON has."""
    table, lines = io.StringIO(), io.StringIO()
    for form, file in ((".csv", table), (".jsonl", lines)):
        Writer(form, file, ["price", "price"]).row({"price": float("nan")})
    assert table.getvalue() == "price,price\n,\n"
    assert lines.getvalue() == '{"price": null}\n'
