"""24: one model answers alike to 1e-6 in Python, on the command line, over HTTP, in transformers, MLflow and ONNX."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from transformers import AutoTokenizer, pipeline

import regft
from regft_core.kinds import find
from regft_core.models.onnx import FILE, PACKAGES, logits_of
from regft_core.serve.model import load_served
from tests.extras import needs
from tests.promises.kit import done, run_cells
from tests.serve.test_http import ask, served
from tests.small_project import PAIRS, SCORES, TASK, build, review, write_csv

GRADES = ["poor", "fair", "fine"]
#: Task -> its YAML, and the method that is trained. A mean over tokens has no class in transformers.
TASKS: dict[str, tuple[dict[str, Any], str]] = {
    "reviews": (TASK | {"ood": {}}, "vanilla"),
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
NEW = pd.DataFrame({"one": [review(n, n) for n in range(1, 6)], "other": [review(n + 1) for n in range(1, 6)]})


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Task -> the exported model."""
    splits = {"splits": {"train": "rows.csv", "dev": {"folds": 2}}}
    tasks = {name: task | splits for name, (task, _) in TASKS.items()}
    root = tmp_path_factory.mktemp("alike") / "project"
    grid = {"tasks": list(TASKS), "seeds": [0]}
    build(root, tasks=tasks, methods=["vanilla", "pooled"], grid=grid)
    method = {"description": "a head on the mean", "model": {"pooling": "mean", "pairs": "separately"}}
    (root / "pipelines" / "methods" / "pooled.yaml").write_text(yaml.dump(method))
    columns = ("review", "one", "other", "verdict", "tags", "grade", "stars")
    tags, names = ("bad", "good", "bad;good"), ("bad", "good")
    rows = [
        (f"{review(n)} {n}", review(n), f"{review(n + n % 3, 9)} {n}", names[n % 2], tags[n % 3], GRADES[n % 3], n % 6)
        for n in range(40)
    ]
    write_csv(root / "data" / "rows.csv", [columns, *rows])
    run_cells(root, *((method, name) for name, (_, method) in TASKS.items()))
    for name, (_, method) in TASKS.items():
        done(root, "export", "--method", method, "--task", name, "--size", "16", "--seed", "0")
    return {name: root / "exports" / f"{method}-{name}-16-seed-0" for name, (_, method) in TASKS.items()}


Answer = Callable[[Path, list[Any]], Any]


def frame(model: regft.LoadedModel, texts: list[Any]) -> pd.DataFrame:
    """The texts under the names of the training file."""
    described = load_served(model.path, "cpu").served
    return pd.DataFrame(texts, columns=[name for name in (described.text, described.text_pair) if name])


def numbers(rows: list[dict[str, Any]]) -> list[list[float]]:
    """The probabilities of rows as ``regft predict`` writes them, or the value."""
    shares = [[float(value) for name, value in row.items() if name.startswith("probability")] for row in rows]
    return [one or [float(row["prediction"])] for one, row in zip(shares, rows, strict=True)]


def command(folder: Path, texts: list[Any]) -> Any:
    new, out = folder.parent / f"{folder.name}-new.csv", folder.parent / f"{folder.name}.csv"
    frame(regft.load_model(folder), texts).to_csv(new, index=False)
    done(folder.parent, "predict", "--model", str(folder), "--data", str(new), "--out", str(out))
    with out.open(newline="") as file:
        return numbers(list(csv.DictReader(file)))


def http(folder: Path, texts: list[Any]) -> Any:
    rows = frame(regft.load_model(folder), texts).to_dict("records")
    with served(load_served(folder, "cpu")) as port:
        return numbers(ask(port, "/predict", {"rows": rows}).body["answers"])


def pyfunc(folder: Path, texts: list[Any]) -> Any:
    answers = mlflow.pyfunc.load_model(str(folder)).predict(frame(regft.load_model(folder), texts))
    return numbers(answers.to_dict("records"))


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


@pytest.mark.parametrize("task", TASKS)
def test_a_model_answers_alike_wherever_it_is_loaded(exports: dict[str, Path], task: str) -> None:
    folder = exports[task]
    model, stock = regft.load_model(folder), TASKS[task][1] == "vanilla"
    texts = [*NEW.itertuples(index=False, name=None)] if "pairs" in task else NEW["one"].tolist()
    value = model.classes_.tolist() == ["value"]
    expected = model.predict(texts).reshape(-1, 1) if value else model.predict_proba(texts)
    assert len(np.unique(np.round(expected, 5), axis=0)) > 1
    for name, answer in {**DOORS, **({"mlflow.transformers": by_mlflow} if stock else {})}.items():
        # Files have six digits: of a value the first six.
        off = {"rtol": 5e-6, "atol": 0.0} if value else {"rtol": 0.0, "atol": 1e-6}
        np.testing.assert_allclose(answer(folder, texts), expected, err_msg=name, **off)


def test_a_cross_encoder_of_sentence_transformers_answers_alike(exports: dict[str, Path]) -> None:
    needs("sentence_transformers", "setfit")
    from sentence_transformers import CrossEncoder

    pairs = [*NEW.itertuples(index=False, name=None)]
    softmax = torch.nn.Softmax(-1)
    answers = CrossEncoder(str(exports["pairs"]), device="cpu").predict(pairs, activation_fn=softmax)
    assert answers == pytest.approx(regft.load_model(exports["pairs"]).predict_proba(pairs), abs=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_onnx_answers_alike(exports: dict[str, Path], tmp_path: Path, task: str) -> None:
    """``model.onnx`` beside configuration and tokenizer, inputs and output as Optimum names them."""
    for package in PACKAGES:
        needs(package, "onnx")
    root, method = exports[task].parents[1], TASKS[task][1]
    done(root, "export", "--method", method, "--task", task, "--size", "16", "--seed", "0", "--onnx")
    model, tokenizer = load_served(exports[task], "cpu"), AutoTokenizer.from_pretrained(exports[task])
    pairs = "pairs" in task
    given = [NEW["one"].tolist(), *([NEW["other"].tolist()] if pairs else [])]
    if task == "pairs-apart":  # rows 2i and 2i + 1 are the texts of a pair
        given = [[text for pair in zip(*given) for text in pair]]
    inputs = tokenizer(*given, padding=True, truncation=True, return_tensors="pt")
    logits = logits_of(exports[task] / FILE, inputs).numpy()
    labels = np.arange(logits.shape[1])
    expected = model.scores(regft.LoadedModel(exports[task])._examples(NEW if pairs else NEW["one"].tolist()))
    assert find(model.served.kind).scores(logits, labels, len(labels)) == pytest.approx(expected, rel=1e-6, abs=1e-6)
