"""``regft predict --data -``: lines of standard input answered as they come."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import DataError
from regft_core.serve.model import ServedModel, load_served
from regft_core.serve.predict import predict_file, predict_stream
from tests import warm
from tests.errors import raises_code
from tests.small_project import REPOSITORY, read_jsonl, review, write_csv

TEXTS = [review(0), review(1, 20), " ", "eine Übung, mit Komma", *(review(n, n % 7) for n in range(30))]


@pytest.fixture(scope="module")
def model(exported: dict[tuple[str, str], Path]) -> ServedModel:
    return load_served(exported["vanilla", "reviews"], "cpu")


def streamed(model: Any, content: bytes, form: str = "jsonl", **options: Any) -> list[dict[str, Any]]:
    out = io.StringIO()
    predict_stream(model, io.BytesIO(content), out, form, **options)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def content_of(form: str, folder: Path) -> bytes:
    if form == "text":
        return "\n".join(TEXTS).encode()
    return b"\xef\xbb\xbf" + write_csv(folder / "rows.csv", [("id", "review"), *enumerate(TEXTS)]).read_bytes()


@pytest.mark.parametrize("form", ["csv", "text"])
def test_lines_of_every_format_are_answered_as_in_a_file(model: ServedModel, tmp_path: Path, form: str) -> None:
    """The sixth digit may differ: which rows share a batch depends on time."""
    data = write_csv(tmp_path / "new.csv", [("id", "review"), *enumerate(TEXTS)])
    predict_file(model, data, tmp_path / "out.jsonl")
    expected = read_jsonl(tmp_path / "out.jsonl")
    found = streamed(model, content_of(form, tmp_path), form)
    assert len(found) == len(expected) == 34
    for one, other in zip(found, expected, strict=True):
        assert (one["row"], one["prediction"]) == (other["row"], other["prediction"])
        assert one["probability_good"] == pytest.approx(other["probability_good"], abs=2e-6)
    assert found[2]["prediction"] is None


def test_columns_are_kept_and_pairs_need_names(model: ServedModel, exported: dict[tuple[str, str], Path]) -> None:
    found = streamed(model, b'{"id": 7, "review": "good film"}\n', keep=["id"])
    assert list(found[0]) == ["row", "id", "prediction", "probability_bad", "probability_good"]
    assert found[0]["id"] == 7
    pairs = load_served(exported["vanilla", "pairs"], "cpu")
    assert streamed(pairs, b'{"one": "a", "other": "b"}\n')[0]["prediction"] in ("bad", "good")
    with raises_code(DataError, "two-texts", "--format jsonl"):
        streamed(pairs, b"a\n", "text")


@pytest.mark.parametrize(
    ("form", "content", "code"),
    [
        ("jsonl", b'{"review": "good"}\nnot json\n', "not-json"),
        ("csv", b"review\ngood\nbad,film\n", "field-count"),
        ("text", b"good\n\xff\xfe\n", "not-utf8"),
    ],
)
def test_a_wrong_line_ends_it_and_those_before_are_answered(
    model: ServedModel, form: str, content: bytes, code: str
) -> None:
    out = io.StringIO()
    with raises_code(DataError, code, "standard input"):
        predict_stream(model, io.BytesIO(content), out, form)
    assert len(out.getvalue().splitlines()) == (0 if form == "text" else 1)  # text is decoded block by block


@pytest.mark.parametrize(("form", "code"), [("jsonl", "empty-file"), ("csv", "empty-file"), ("text", "no-rows")])
def test_nothing_to_answer_is_an_error(model: ServedModel, form: str, code: str) -> None:
    with raises_code(DataError, code):
        streamed(model, b"", form)


def test_a_line_is_answered_before_the_next_one_comes(exported: dict[tuple[str, str], Path], tmp_path: Path) -> None:
    python, model = str(warm.folder() / "python"), str(exported["vanilla", "reviews"])
    command = [python, "-m", "regft_core", "predict", "--model", model, "--data", "-"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        for number in (1, 2):
            process.stdin.write(json.dumps({"review": review(number)}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["row"] == number
        process.stdin.close()
        assert process.wait() == 0
