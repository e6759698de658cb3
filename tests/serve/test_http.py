"""``regft serve``: answers over HTTP, limits, errors without a path of this machine."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from regft_core.errors import RunFailed
from regft_core.serve.answers import columns_of_requests
from regft_core.serve.http import LOCAL, Limits, application
from regft_core.serve.model import ServedModel, load_served
from regft_core.serve.predict import predict_file
from tests.small_project import review, write_csv

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
    app = application(model, columns_of_requests(model, None, None), limits or Limits(), LOCAL)
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
def model(exported: dict[tuple[str, str], Path]) -> ServedModel:
    found = load_served(exported["vanilla", "reviews"], "cpu")
    return found


@pytest.fixture(scope="module")
def port(model: ServedModel) -> Iterator[int]:
    with served(model, Limits(bytes=20_000, rows=50)) as found:
        yield found


def test_concurrent_requests_get_the_answers_of_predict(port: int, model: ServedModel, tmp_path: Path) -> None:
    """To 2e-6: the sixth digit may differ with the texts that share a batch."""
    texts = [review(n, n % 40) if n % 9 else " " for n in range(60)]
    predict_file(model, write_csv(tmp_path / "new.csv", [("review",), *((t,) for t in texts)]), tmp_path / "out.jsonl")
    expected = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
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
        ([], 422, "wrong-shape"),
        ({"rows": []}, 422, "wrong-shape"),
        ({"rows": ["good film"]}, 422, "wrong-shape"),
        ({"rows": [{"review": "a"}], "model": "/etc"}, 422, "wrong-shape"),
        ({"rows": [{"reviews": "a"}]}, 422, "column-missing"),
        ({"rows": [{"review": 3}]}, 422, "not-text"),
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
