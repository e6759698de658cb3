"""Decisions that are fitted to a metric: from out-of-fold answers to training rows, stored, and the same everywhere."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from regft_core import metrics
from regft_core.api import Project
from regft_core.kinds import find
from regft_core.kinds._decision import Decision
from regft_core.runs.context import Job
from regft_core.serve.export import export
from regft_core.serve.model import load_served
from regft_core.serve.predict import predict_file
from regft_core.training import linear_solution
from regft_core.training.linear_solution import classify_linearly, fit_decision
from regft_core.training.logistic import Rows
from tests.small_project import TASK, build, predictions, read_csv, write_csv


def rare(rows: int, seed: int = 0) -> tuple[Any, Any]:
    """Logits [n, 2] that hardly ever claim the rare class, and its labels: one row in ten."""
    draw = np.random.default_rng(seed)
    gold = (np.arange(rows) % 10 == 0).astype(np.int64)
    margin = draw.normal(-2.5 + 1.5 * gold, 0.6)
    return np.stack([-margin / 2, margin / 2], axis=1), gold


def score(decision: Decision | None, logits: Any, gold: Any, metric: str = "f1_macro") -> float:
    decided = logits if decision is None else decision.logits(logits)
    return metrics.find(metric).score(gold, find("classification").predictions(decided, np.arange(2)), 1)


@pytest.mark.parametrize("metric", ["f1", "f1_macro", "matthews"])
def test_offsets_raise_the_metric_on_rows_that_did_not_choose_them(metric: str) -> None:
    decision = fit_decision(find("classification"), *rare(400), metric, 1)
    other = rare(2000, seed=1)
    assert score(decision, *other, metric) > score(None, *other, metric) + 0.2


def test_a_long_tail_does_not_choose_its_offsets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, share, gains = find("classification"), np.arange(1, 16) ** -1.5, [0.0, 0.0]
    shipped = linear_solution.ROWS_FOR_ONE
    for draw in map(np.random.default_rng, range(4)):
        gold = draw.choice(15, 2000, p=share / share.sum())
        features = draw.normal(size=(2000, 50)) + draw.normal(size=(15, 50))[gold] * 0.6
        fit = classify_linearly(Rows(features[:60], gold[:60], classes=15))
        for place, rows in enumerate((shipped, 0)):
            monkeypatch.setattr(linear_solution, "ROWS_FOR_ONE", rows)
            decision = fit_decision(kind, fit.left_out, gold[:60], "f1_macro", None)
            decided = kind.predictions(decision.logits(features @ fit.weight.T + fit.bias)[60:], np.arange(15))
            gains[place] += metrics.find("f1_macro").score(gold[60:], decided, None) / 4
    assert gains[0] > gains[1] + 0.01


def test_rows_that_every_fit_saw_do_not_choose() -> None:
    logits, gold = rare(400)
    unseen = np.full((40, 2), np.nan)
    chosen = fit_decision(find("classification"), logits, gold, "f1_macro", 1)
    # Labels in the shares of the others: only the directions know how many rows a class has.
    more = np.vstack([logits, unseen]), np.r_[gold, gold[:40]]
    assert fit_decision(find("classification"), *more, "f1_macro", 1) == chosen


def test_of_several_labels_one_number_serves_all_and_no_row_is_empty() -> None:
    draw = np.random.default_rng(0)
    present = draw.random((300, 3)) < 0.3
    present[~present.any(axis=1), 0] = True
    logits = draw.normal(-2.0 + 1.5 * present, 0.5)
    gold = (present @ (1 << np.arange(3))).astype(np.uint64)
    kind, every = find("multi_label"), np.arange(3)
    decision = fit_decision(kind, logits, gold, "f1_micro", None)
    decided = kind.predictions(decision.logits(logits), every)
    f1 = metrics.find("f1_micro").score
    assert decision.at_least_one
    assert (decided != 0).all()
    assert f1(gold, decided, None) > f1(gold, kind.predictions(logits, every), None) + 0.2
    gold[0] = 0
    assert not fit_decision(kind, logits, gold, "f1_micro", None).at_least_one


@pytest.mark.parametrize("kind", ["classification", "multi_label"])
def test_probabilities_decide_as_logits_do(kind: str) -> None:
    logits = np.random.default_rng(0).normal(-1, 2, (200, 3))
    decision, names = Decision((0.5, -1.0, 2.0), at_least_one=kind == "multi_label"), ("a", "b", "c")
    decided = find(kind).predictions(decision.logits(logits), np.arange(3))
    for temperature in (1.0, 2.5):
        scores = find(kind).scores(logits / temperature, np.arange(3), 3)
        deciding = (decision.at(temperature).scores(row, one_label=kind == "classification") for row in scores)
        assert [find(kind).answer(row, names) for row in deciding] == [find(kind).shown(one, names) for one in decided]


def test_the_row_of_a_class_that_has_no_other_is_in_every_fit() -> None:
    draw = np.random.default_rng(0)
    labels = np.r_[np.arange(60) % 2, 2]
    features = draw.normal(0, 1, (61, 4)) + 3 * np.eye(4)[labels]
    alone = classify_linearly(Rows(features[:60], labels[:60], 3))
    solution = classify_linearly(Rows(features, labels, 3))
    assert solution.strength <= alone.strength * 10  # chosen, not 1 / n
    assert np.isnan(solution.left_out).any(axis=1).tolist() == [False] * 60 + [True]
    assert (features[60] @ solution.weight.T + solution.bias).argmax() == 2


WORDS = ("film", "story", "actor", "the", "was", "it")


def review(number: int, draw: random.Random) -> tuple[str, str]:
    """One row in eight is good; what says so is in most of these rows, and in some of the others."""
    label = "good" if number % 8 == 0 else "bad"
    says = draw.random() < (0.8 if label == "good" else 0.1)
    return " ".join([*draw.choices(WORDS, k=5), *(["splendid"] if says else [])]), label


def made(folder: Path, method: str, metric: str, judged: str = "bad") -> Path:
    """A project whose rows are rarely good; the first development row has the label ``judged``."""
    task = TASK | {"metrics": [metric, "accuracy"][: 1 + (metric != "accuracy")], "primary": metric, "ood": {}}
    grid, report = {"sizes": [160], "seeds": [1]}, {"reference": method}
    build(folder, tasks={"reviews": task}, methods=[method], grid=grid, report=report)
    draw = random.Random(0)
    train, dev = ([review(n, draw) for n in range(160)] for _ in range(2))
    for name, rows in (("train", train), ("dev", [*dev[:-8], *((text, judged) for text, _ in dev[-8:])])):
        write_csv(folder / "data" / f"{name}.csv", [("review", "verdict"), *rows])
    Project.open(folder).run(method, "reviews")
    return folder


def offsets(folder: Path) -> list[list[float]]:
    return [load_file(file)["offsets"].tolist() for file in (folder / ".regft").rglob("decision.safetensors")]


@pytest.mark.parametrize("method", ["tfidf_logistic", "combination"])
def test_every_answer_is_decided_as_its_rows_were_evaluated(tmp_path: Path, method: str) -> None:
    root = made(tmp_path / "one", method, "f1_macro")
    (chosen,) = offsets(root)
    assert chosen[1] > chosen[0]
    folder = export(Job(str(root), method, "reviews", "160", 1), tmp_path / "exported")
    predict_file(load_served(folder, "cpu"), root / "data" / "dev.csv", tmp_path / "out.csv")
    evaluated = predictions(root, method, "reviews", size="160")
    predicted = [("bad", "good").index(row["prediction"]) for row in read_csv(tmp_path / "out.csv")]
    assert predicted == [row["prediction"] for row in evaluated]
    # The decision is another than that of the most probable label, and the probabilities are as they were.
    largest = [int(np.argmax(row["scores"])) for row in evaluated]
    assert sum(predicted) > sum(largest)
    assert json.loads((folder / "regft.json").read_text())["offsets"] == chosen


def test_rows_that_judge_choose_no_offset_and_accuracy_needs_none(tmp_path: Path) -> None:
    one, other = (made(tmp_path / judged, "tfidf_logistic", "f1_macro", judged) for judged in ("bad", "good"))
    assert len(offsets(one)) == 1
    assert offsets(one) == offsets(other)
    assert offsets(made(tmp_path / "accuracy", "tfidf_logistic", "accuracy")) == []
