"""24: an export answers as the trained model did, and loads without regft. 25: files, pipes, HTTP and picking."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.promises.kit import change_task, done, python, regft, run_cells
from tests.small_project import PAIRS, REPOSITORY, SCORES, TASK, build, review, write_csv

TASKS: dict[str, Any] = {"reviews": TASK, "pairs": PAIRS, "scores": SCORES}
WITHOUT_REGFT = """
import json, sys
from transformers import pipeline
serve = pipeline("text-classification", model=sys.argv[1], top_k=None)
texts = json.load(open(sys.argv[2]))
print(json.dumps([{row["label"]: row["score"] for row in answer} for answer in serve(texts)]))
assert "regft_core" not in sys.modules
"""
CELL = ("--size", "16", "--seed", "0")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = build(
        tmp_path_factory.mktemp("exports") / "project",
        tasks=TASKS,
        methods=["vanilla"],
        grid={"tasks": list(TASKS), "seeds": [0]},
    )
    hidden = {"format": "glue", "files": {"Reviews.tsv": "hidden.csv"}, "labels": {"bad": "0", "good": "1"}}
    change_task(root, "reviews", submission=hidden)
    write_csv(root / "data" / "hidden.csv", [("review",), *((review(n),) for n in range(5)), ("",)])
    run_cells(root, *(("vanilla", task) for task in TASKS))
    for task in TASKS:
        done(root, "export", "--method", "vanilla", "--task", task, *CELL)
    return root


@pytest.fixture(scope="module")
def model(trained: Path) -> Path:
    return trained / "exports" / "vanilla-reviews-16-seed-0"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def evaluated(root: Path, task: str) -> list[dict[str, Any]]:
    """What the run answered on dev."""
    path = root / f"work/evaluate/vanilla/{task}/16/predictions/seed-0/dev.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("task", "file"), [("reviews", "dev"), ("pairs", "pairs-dev"), ("scores", "scores-dev")])
def test_an_export_answers_as_the_run_did(trained: Path, tmp_path: Path, task: str, file: str) -> None:
    folder, out = f"exports/vanilla-{task}-16-seed-0", tmp_path / "out.csv"
    done(trained, "predict", "--model", folder, "--data", f"data/{file}.csv", "--out", str(out), "--device", "cpu")
    expected = evaluated(trained, task)
    assert len(rows(out)) == len(expected) == 32
    for answer, run in zip(rows(out), expected, strict=True):
        if task == "scores":
            # A file has six digits.
            assert float(answer["prediction"]) == pytest.approx(run["prediction"], rel=5e-6)
        else:
            shares = [float(answer["probability_bad"]), float(answer["probability_good"])]
            assert shares == pytest.approx(run["scores"], abs=2e-6)


def test_transformers_alone_gives_the_same_answers(trained: Path, model: Path, tmp_path: Path) -> None:
    texts = [row["review"] for row in rows(trained / "data" / "dev.csv")]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    arguments = ("-c", WITHOUT_REGFT, str(model), str(tmp_path / "texts.json"))
    process = warm.run(tmp_path, *arguments, environment=dict(os.environ))
    assert process.returncode == 0, process.stderr
    answers = json.loads(process.stdout.splitlines()[-1])
    for answer, run in zip(answers, evaluated(trained, "reviews"), strict=True):
        assert [answer["bad"], answer["good"]] == pytest.approx(run["scores"], abs=1e-5)


def test_a_submission_has_every_row_of_the_test_split(trained: Path) -> None:
    done(trained, "submission", "--method", "vanilla", "--task", "reviews", *CELL)
    lines = (trained / "submissions/vanilla-reviews-16-seed-0/Reviews.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["index", *map(str, range(6))]
    assert {line.split("\t")[1] for line in lines[1:]} <= {"0", "1"}


def test_a_refit_trains_on_all_rows_and_predicts(trained: Path, tmp_path: Path) -> None:
    done(trained, "export", "--method", "vanilla", "--task", "reviews", "--refit")
    (folder,) = (trained / "exports").glob("vanilla-reviews-16-refit-*")
    done(trained, "predict", "--model", str(folder), "--data", "data/dev.csv", "--out", str(tmp_path / "out.csv"))
    assert len(rows(tmp_path / "out.csv")) == 32


def test_a_pipe_answers_line_by_line_as_a_file_does(trained: Path, model: Path, tmp_path: Path) -> None:
    texts = [review(0), review(3, 20), " ", "eine Übung, mit Komma"]
    write_csv(tmp_path / "new.csv", [("id", "review"), *enumerate(texts)])
    done(
        trained, "predict", "--model", str(model), "--data", str(tmp_path / "new.csv"), "--out", str(tmp_path / "o.csv")
    )
    lines = "".join(json.dumps({"review": text}) + "\n" for text in texts)
    arguments = ("-m", "regft_core", "predict", "--model", str(model), "--data", "-")
    process = warm.run(REPOSITORY, *arguments, environment=dict(os.environ), given=lines)
    assert process.returncode == 0, process.stderr
    piped = [json.loads(line) for line in process.stdout.splitlines()]
    for answer, row in zip(piped, rows(tmp_path / "o.csv"), strict=True):
        assert (answer["prediction"] or "") == row["prediction"]
    assert piped[2]["prediction"] is None
    again = regft(
        trained, "predict", "--model", str(model), "--data", str(tmp_path / "new.csv"), "--out", str(tmp_path / "o.csv")
    )
    assert again.returncode == 3, "an output that exists is not replaced"


@pytest.fixture
def port(model: Path) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    command = [
        str(warm.folder() / "python"),
        "-m",
        "regft_core",
        "serve",
        str(model),
        "--port",
        str(number),
        "--rows",
        "3",
    ]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{number}/health", timeout=5).read()
                break
            except (OSError, urllib.error.URLError):
                time.sleep(0.3)
        yield number
    finally:
        process.terminate()
        process.wait(30)


def asked(port: int, body: bytes) -> tuple[int, Any]:
    """Status and JSON of an answer."""
    address, headers = f"http://127.0.0.1:{port}/predict", {"Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_http_answers_and_has_limits(port: int) -> None:
    status, answer = asked(port, json.dumps({"rows": [{"review": "good film"}]}).encode())
    assert status == 200
    assert answer["answers"][0]["prediction"] in ("bad", "good")
    assert asked(port, b"{")[0] == 400
    assert asked(port, b"[" * 10_000)[0] == 400
    assert asked(port, json.dumps({"rows": [{"review": "a"}] * 4}).encode())[0] == 413
    assert asked(port, json.dumps({"rows": [{"other": "a"}]}).encode())[0] == 422
    assert asked(port, json.dumps({"rows": [{"review": "good film"}]}).encode())[0] == 200
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.2", port), timeout=2):
        pass


def test_rows_worth_labelling_are_picked(trained: Path, model: Path, tmp_path: Path) -> None:
    texts = [f"{review(n)} {n}" for n in range(20)]
    write_csv(tmp_path / "new.csv", [("review",), *((text,) for text in texts)])
    arguments = ("--data", str(tmp_path / "new.csv"), "--rows", "5", "--out", str(tmp_path / "picked.csv"))
    done(trained, "pick", "--model", str(model), *arguments)
    picked = [row["review"] for row in rows(tmp_path / "picked.csv")]
    assert len(set(picked)) == 5
    assert set(picked) <= set(texts)


def test_python_of_the_card_runs(model: Path) -> None:
    card = (model / "README.md").read_text(encoding="utf-8")
    code = card.partition("```python\n")[2].partition("```")[0]
    process = python(model, code.replace("path/to/this/directory", str(model)))
    assert process.returncode == 0, process.stderr
