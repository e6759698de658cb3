"""24: an export answers as the trained model did, to 1e-6: in Python, on the command line, over HTTP, in transformers
(without regft), MLflow and ONNX. 25: files, pipes, HTTP and picking."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoTokenizer, pipeline

import regft
from regft_core.kinds import find
from regft_core.models.onnx import FILE, PACKAGES, logits_of
from regft_core.serve.model import load_served
from tests import warm
from tests.promises.kit import done, run_cells, write_method
from tests.serve.test_http import ask, served
from tests.skips import needs
from tests.small_project import PAIRS, SCORES, TASK, build, predictions, python, read_csv, review, stage, write_csv

GRADES = ["poor", "fair", "fine"]
HIDDEN = {"format": "glue", "files": {"Reviews.tsv": "hidden.csv"}, "labels": {"bad": "0", "good": "1"}}
#: Task -> its YAML, and the method that is trained. A mean over tokens has no class in transformers.
TASKS: dict[str, tuple[dict[str, Any], str]] = {
    "reviews": (TASK | {"ood": {}, "submission": HIDDEN, "columns": TASK["columns"] | {"group": "other"}}, "vanilla"),
    "pairs": (PAIRS, "vanilla"),
    "pairs-apart": (PAIRS, "pooled"),
    "tags": (
        TASK | {"kind": "multi_label", "columns": {"text": "review", "label": "tags", "label_delimiter": ";"}}
        | {"metrics": ["f1_micro"], "primary": "f1_micro", "ood": {}},
        "vanilla",
    ),
    "grades": (
        TASK | {"kind": "ordinal", "labels": GRADES, "columns": {"text": "review", "label": "grade"}, "ood": {}}
        | {"metrics": ["kappa_quadratic"], "primary": "kappa_quadratic"},
        "vanilla",
    ),
    "scores": (SCORES, "vanilla"),
}  # fmt: skip
CELL = ("--size", "16", "--seed", "0")
COLUMNS = ("review", "one", "other", "verdict", "tags", "grade", "stars")


def rows(numbers: range) -> list[tuple[Any, ...]]:
    """Rows of a table that has the columns of every task."""
    tags, names = ("bad", "good", "bad;good"), ("bad", "good")
    return [
        (f"{review(n)} {n}", review(n), f"{review(n + n % 3, 9)} {n}", names[n % 2], tags[n % 3], GRADES[n % 3], n % 6)
        for n in numbers
    ]


NEW = pd.DataFrame(rows(range(40, 48)), columns=COLUMNS)


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Task -> the exported model; ``NEW`` is the validation set of every task."""
    splits = {"splits": {"train": "rows.csv", "dev": "new.csv"}}
    tasks = {name: task | splits for name, (task, _) in TASKS.items()}
    root = tmp_path_factory.mktemp("exports") / "project"
    build(root, tasks=tasks, methods=["vanilla", "pooled"], grid={"tasks": list(tasks), "seeds": [0]})
    write_method(root, "pooled", model={"pooling": "mean", "pairs": "separately"})
    write_csv(root / "data" / "rows.csv", [COLUMNS, *rows(range(40))])
    NEW.to_csv(root / "data" / "new.csv", index=False)
    write_csv(root / "data" / "hidden.csv", [("review",), *((review(n),) for n in range(5)), ("",)])
    run_cells(root, *((method, name) for name, (_, method) in TASKS.items()))
    for name, (_, method) in TASKS.items():
        done(root, "export", "--method", method, "--task", name, *CELL)
    return {name: root / "exports" / f"{method}-{name}-16-seed-0" for name, (_, method) in TASKS.items()}


@pytest.fixture(scope="module")
def model(exports: dict[str, Path]) -> Path:
    return exports["reviews"]


@pytest.fixture(scope="module")
def root(model: Path) -> Path:
    return model.parents[1]


Answer = Callable[[Path, list[Any]], Any]


def frame(folder: Path, texts: list[Any]) -> pd.DataFrame:
    """The texts under the names of the training file."""
    described = load_served(folder, "cpu").served
    return pd.DataFrame(texts, columns=[name for name in (described.text, described.text_pair) if name])


def numbers(answers: list[dict[str, Any]]) -> list[list[float]]:
    """The probabilities of rows as ``regft predict`` writes them, or the value."""
    shares = [[float(value) for name, value in row.items() if name.startswith("probability")] for row in answers]
    return [one or [float(row["prediction"])] for one, row in zip(shares, answers, strict=True)]


def command(folder: Path, texts: list[Any]) -> Any:
    new, out = folder.parent / f"{folder.name}-new.csv", folder.parent / f"{folder.name}.csv"
    frame(folder, texts).to_csv(new, index=False)
    done(folder.parent, "predict", "--model", str(folder), "--data", str(new), "--out", str(out))
    return numbers(read_csv(out))


def http(folder: Path, texts: list[Any]) -> Any:
    with served(load_served(folder, "cpu")) as port:
        return numbers(ask(port, "/predict", {"rows": frame(folder, texts).to_dict("records")}).body["answers"])


def pyfunc(folder: Path, texts: list[Any]) -> Any:
    return numbers(mlflow.pyfunc.load_model(str(folder)).predict(frame(folder, texts)).to_dict("records"))


def piped(answering: Any, folder: Path, texts: list[Any]) -> Any:
    given = [text if isinstance(text, str) else {"text": text[0], "text_pair": text[1]} for text in texts]
    answers = [answering(one, top_k=None, truncation=True) for one in given]
    by_label = [{row["label"]: row["score"] for row in answer} for answer in answers]
    names = [*answering.model.config.id2label.values()]
    return [[row[name] for name in names] for row in by_label]


def transformers(folder: Path, texts: list[Any]) -> Any:
    own = (folder / "modeling_regft.py").is_file()
    return piped(pipeline("text-classification", model=str(folder), trust_remote_code=own), folder, texts)


def by_mlflow(folder: Path, texts: list[Any]) -> Any:
    return piped(mlflow.transformers.load_model(str(folder)), folder, texts)


DOORS: dict[str, Answer] = {"command": command, "http": http, "pyfunc": pyfunc, "transformers": transformers}


def evaluated(root: Path, task: str) -> list[list[float]]:
    """What the run answered on the validation set."""
    answers = predictions(root, TASKS[task][1], task, seed=0)
    return [[row["prediction"]] if task == "scores" else row["scores"] for row in answers]


@pytest.mark.parametrize("task", TASKS)
def test_a_model_answers_as_its_run_did_wherever_it_is_loaded(exports: dict[str, Path], task: str) -> None:
    folder = exports[task]
    loaded, stock = regft.load_model(folder), TASKS[task][1] == "vanilla"
    texts = [*NEW[["one", "other"]].itertuples(index=False, name=None)] if "pairs" in task else NEW["review"].tolist()
    value = task == "scores"
    expected = loaded.predict(texts).reshape(-1, 1) if value else loaded.predict_proba(texts)
    assert len(np.unique(np.round(expected, 5), axis=0)) > 1
    # Answers have six digits: of a value the first six.
    off = {"rtol": 5e-6, "atol": 0.0} if value else {"rtol": 0.0, "atol": 1e-6}
    np.testing.assert_allclose(expected, evaluated(folder.parents[1], task), **off)
    for name, answer in {**DOORS, **({"mlflow.transformers": by_mlflow} if stock else {})}.items():
        np.testing.assert_allclose(answer(folder, texts), expected, err_msg=name, **off)


WITHOUT_REGFT = """
import json, sys
from transformers import pipeline
serve = pipeline("text-classification", model=sys.argv[1], top_k=None)
print(json.dumps([{row["label"]: row["score"] for row in answer} for answer in serve(sys.argv[2:])]))
assert "regft_core" not in sys.modules
"""


def test_transformers_alone_gives_the_same_answers(root: Path, model: Path, tmp_path: Path) -> None:
    process = python(tmp_path, "-c", WITHOUT_REGFT, str(model), *NEW["review"])
    assert process.returncode == 0, process.stderr
    answers = [[answer["bad"], answer["good"]] for answer in json.loads(process.stdout.splitlines()[-1])]
    np.testing.assert_allclose(answers, evaluated(root, "reviews"), rtol=0.0, atol=1e-5)


def test_a_cross_encoder_of_sentence_transformers_answers_alike(exports: dict[str, Path]) -> None:
    needs("sentence_transformers", "setfit")
    from sentence_transformers import CrossEncoder

    pairs = [*NEW[["one", "other"]].itertuples(index=False, name=None)]
    softmax = torch.nn.Softmax(-1)
    answers = CrossEncoder(str(exports["pairs"]), device="cpu").predict(pairs, activation_fn=softmax)
    assert answers == pytest.approx(regft.load_model(exports["pairs"]).predict_proba(pairs), abs=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_onnx_answers_alike(exports: dict[str, Path], root: Path, task: str) -> None:
    """``model.onnx`` beside configuration and tokenizer, inputs and output as Optimum names them."""
    for package in PACKAGES:
        needs(package, "onnx")
    done(root, "export", "--method", TASKS[task][1], "--task", task, *CELL, "--onnx")
    exported, tokenizer = load_served(exports[task], "cpu"), AutoTokenizer.from_pretrained(exports[task])
    given = [NEW[name].tolist() for name in (("one", "other") if "pairs" in task else ("review",))]
    if task == "pairs-apart":  # rows 2i and 2i + 1 are the texts of a pair
        given = [[text for pair in zip(*given) for text in pair]]
    inputs = tokenizer(*given, padding=True, truncation=True, return_tensors="pt")
    logits = logits_of(exports[task] / FILE, inputs).numpy()
    labels = np.arange(logits.shape[1])
    found = find(exported.served.kind).scores(logits, labels, len(labels))
    assert found == pytest.approx(np.array(evaluated(root, task)), rel=1e-6, abs=1e-6)


# ------------------------------------------------------------------------------------------- commands


def test_a_submission_has_every_row_of_the_test_split(root: Path) -> None:
    done(root, "submission", "--method", "vanilla", "--task", "reviews", *CELL)
    found = (root / "submissions/vanilla-reviews-16-seed-0/Reviews.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in found] == ["index", *map(str, range(6))]
    assert {line.split("\t")[1] for line in found[1:]} <= {"0", "1"}


def test_a_refit_trains_on_all_rows_and_predicts(root: Path, tmp_path: Path) -> None:
    done(root, "export", "--method", "vanilla", "--task", "reviews", "--refit")
    (folder,) = (root / "exports").glob("vanilla-reviews-16-refit-*")
    done(root, "predict", "--model", str(folder), "--data", "data/new.csv", "--out", str(tmp_path / "out.csv"))
    assert len(read_csv(tmp_path / "out.csv")) == len(NEW)


def test_a_pipe_answers_line_by_line_as_a_file_does(root: Path, model: Path, tmp_path: Path) -> None:
    texts = [review(0), review(3, 20), " ", "eine Übung, mit Komma"]
    write_csv(tmp_path / "new.csv", [("id", "review"), *enumerate(texts)])
    to_file = ("predict", "--model", str(model), "--data", str(tmp_path / "new.csv"), "--out", str(tmp_path / "o.csv"))
    done(root, *to_file)
    given = "".join(json.dumps({"review": text}) + "\n" for text in texts)
    arguments = ("-m", "regft_core", "predict", "--model", str(model), "--data", "-")
    process = python(tmp_path, *arguments, given=given)
    assert process.returncode == 0, process.stderr
    answers = [json.loads(line)["prediction"] for line in process.stdout.splitlines()]
    assert [answer or "" for answer in answers] == [row["prediction"] for row in read_csv(tmp_path / "o.csv")]
    assert answers[2] is None
    assert stage(root, *to_file).returncode == 3, "an output that exists is not replaced"


def test_http_answers_and_has_limits(model: Path) -> None:
    """What else is refused, and with which code: ``tests/serve``."""
    command = [str(warm.folder() / "python"), "-m", "regft_core", "serve", str(model), "--port", "0", "--rows", "3"]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True) as process:
        try:
            (port,) = map(int, re.findall(r"http://127.0.0.1:(\d+)", process.stdout.readline()))
            found = ask(port, "/predict", {"rows": [{"review": "good film"}]})
            assert (found.status, found.body["answers"][0]["prediction"] in ("bad", "good")) == (200, True)
            assert ask(port, "/predict", {"rows": [{"review": "a"}] * 4}).status == 413
            with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.2", port), timeout=2):
                pass
        finally:
            process.terminate()


def test_rows_worth_labelling_are_picked(root: Path, model: Path, tmp_path: Path) -> None:
    texts = [f"{review(n)} {n}" for n in range(20)]
    write_csv(tmp_path / "new.csv", [("review",), *((text,) for text in texts)])
    arguments = ("--data", str(tmp_path / "new.csv"), "--rows", "5", "--out", str(tmp_path / "picked.csv"))
    done(root, "pick", "--model", str(model), *arguments)
    picked = [row["review"] for row in read_csv(tmp_path / "picked.csv")]
    assert len(set(picked)) == 5
    assert set(picked) <= set(texts)


def test_python_of_the_card_runs(model: Path) -> None:
    card = (model / "README.md").read_text(encoding="utf-8")
    code = card.partition("```python\n")[2].partition("```")[0]
    process = python(model, "-c", code.replace("path/to/this/directory", str(model)))
    assert process.returncode == 0, process.stderr
