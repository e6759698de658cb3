"""From logits to one run's part of result.json and its prediction rows."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from regft_core import metrics
from regft_core.data.examples import Example
from regft_core.errors import RunFailed
from regft_core.evaluate.evaluated import EvaluatedRun, evaluate_run, evaluated_set, label_indices
from regft_core.kinds import find
from tests.errors import raises_code
from tests.statistics.single import compute

MNLI = ["entailment", "neutral", "contradiction"]
HANS = ("entailment", "non-entailment")
TO_HANS = {"entailment": "entailment", "neutral": "non-entailment", "contradiction": "non-entailment"}
TASK = {
    "kind": "classification",
    "labels": MNLI,
    "metrics": ["accuracy", "f1_macro", "f1"],
    "positive_label": "entailment",
    "sets": {},
}
NO_YES = TASK | {"labels": ["no", "yes"], "metrics": ["accuracy"], "positive_label": None}


def judge(name, logits, gold, task, **declared):
    """One set, as ``task.json`` declares it, with the logits of a run."""
    rows = [Example(f"r{i}", "", None, label) for i, label in enumerate(gold)]
    return {name: evaluated_set(name, rows, logits, task | {"sets": {name: declared}})}


def confident(predictions, k):
    return np.eye(k, dtype=np.float32)[np.asarray(predictions)] * 4


def scored(sets, task, **how):
    record, rows = evaluate_run(sets, task, **how)
    return SimpleNamespace(**record, rows=rows)


def test_dev_and_a_merged_ood_set():
    dev = [0, 1, 2, 0, 1, 2, 0, 0]
    hans, predicted = [0, 0, 1, 1, 1], [0, 1, 1, 2, 0]
    sets = judge("dev", confident(dev, 3), dev, TASK)
    sets |= judge("hans", confident(predicted, 3), hans, TASK, label_map=TO_HANS, labels=HANS)
    result = scored(sets, TASK)
    assert result.sets["dev"]["metrics"] == {"accuracy": 1.0, "f1_macro": 1.0, "f1": 1.0}
    assert result.sets["dev"]["majority"]["accuracy"] == 0.5
    assert result.sets["hans"]["n"] == 5
    assert result.sets["hans"]["metrics"]["accuracy"] == pytest.approx(0.6)
    assert result.sets["hans"]["metrics"]["f1"] == pytest.approx(0.5)  # the positive label is mapped as well
    assert result.sets["hans"]["positive_label_index"] == 0
    assert result.collapsed is None  # what happens out of distribution is no collapse
    row = result.rows["hans"][3]
    assert (row["idx"], row["label"], row["prediction"], len(row["scores"])) == ("r3", 1, 1, 2)
    assert sum(row["scores"]) == pytest.approx(1.0)
    assert json.loads(json.dumps([result.sets, result.rows])) == [result.sets, result.rows]


def test_f1_counts_the_positive_label_where_the_other_set_has_it():
    """The set lists its labels the other way round and under other names: index 0 there is index 1 here."""
    task = NO_YES | {"metrics": ["f1", "accuracy_f1"]}
    named = {"label_map": {"no": "false", "yes": "true"}, "labels": ["true", "false"]}
    other = judge("other", confident([1, 1, 0, 1, 0, 0], 2), [0, 0, 0, 1, 1, 1], task, **named)
    result = scored(other, task).sets["other"]
    assert result["positive_label_index"] == 0
    # In the set's labels the predictions are 0 0 1 0 1 1: for "true" (0) two hits, one wrong claim, one miss.
    assert result["metrics"]["f1"] == pytest.approx(2 / 3)
    unequal = judge("other", confident([1, 1, 1, 0, 0, 1], 2), [0, 0, 0, 0, 1, 1], task, **named)
    result = scored(unequal, task).sets["other"]
    assert result["metrics"]["f1"] == pytest.approx(2 * 3 / (4 + 4))  # of "false" it would be 1/2
    assert result["majority"]["f1"] == pytest.approx(2 * 4 / (4 + 6))
    # Where what counts is rare, the constant answer that a method has to beat is that one: of "false" it would be 0.
    rare = judge("other", confident([1, 1, 1, 0, 0, 1], 2), [1, 1, 1, 1, 0, 0], task, **named)
    result = scored(rare, task).sets["other"]
    assert result["majority"]["f1"] == pytest.approx(2 * 2 / (2 + 6))
    assert result["majority"]["accuracy_f1"] == pytest.approx((1 / 3 + 1 / 2) / 2)


def test_metrics_can_be_recomputed_from_the_rows():
    rng = np.random.default_rng(1)
    task = NO_YES | {"kind": "regression", "labels": None, "metrics": ["pearson", "spearman", "mse"]}
    gold = rng.uniform(0, 5, 60)
    logits = (gold + rng.normal(size=60))[:, None].astype(np.float32)
    result = scored(judge("dev", logits, gold.tolist(), task), task)
    rows = json.loads(json.dumps(result.rows["dev"]))
    again = compute(
        task["metrics"],
        kind="regression",
        labels=[row["label"] for row in rows],
        predictions=[row["prediction"] for row in rows],
    )
    assert again == result.sets["dev"]["metrics"]
    assert rows[0]["scores"] == [rows[0]["prediction"]]
    assert result.sets["dev"]["majority"]["mse"] == pytest.approx(gold.var())


def test_a_collapsed_run_and_swapped_labels_are_said():
    gold = [0, 1] * 60
    answered = judge("dev", confident([1] * 120, 2), gold, NO_YES)
    constant = scored(answered, NO_YES)
    assert (constant.collapsed, constant.sets["dev"]["warning"]) == ("constant", None)
    opposite = judge("dev", confident(1 - np.array(gold), 2), gold, NO_YES)
    swapped = scored(opposite, NO_YES)
    assert "'no' -> 'yes'" in swapped.sets["dev"]["warning"]
    # What is declared is expected: a set that is built as reversed, an answer that is constant on purpose.
    turned = NO_YES | {"sets": {"dev": {"reversed": True}}}
    assert scored(opposite, turned).sets["dev"]["warning"] is None
    assert scored(answered, NO_YES, reads_text=False).collapsed is None


@pytest.mark.parametrize(("rows", "collapsed"), [(20, None), (120, "majority")])
def test_a_fold_of_few_rows_is_no_collapse_by_bad_luck(rows: int, collapsed: str | None) -> None:
    gold = [0, 1] * (rows // 2)
    predicted = [label if i % 4 < 2 else 1 - label for i, label in enumerate(gold)]
    found = scored(judge("dev", confident(predicted, 2), gold, NO_YES), NO_YES)
    assert (found.sets["dev"]["metrics"]["accuracy"], found.collapsed) == (0.5, collapsed)


def test_a_metric_that_is_no_number_fails_the_run(monkeypatch):
    monkeypatch.setitem(metrics.SHIPPED, "accuracy", replace(metrics.find("accuracy"), of_one_run=lambda *_: math.nan))
    with raises_code(RunFailed, "not-finite", "accuracy"):
        scored(judge("dev", confident([0, 1], 2), [0, 1], NO_YES), NO_YES)


def test_mnli_to_hans_takes_the_argmax_before_merging():
    to_set, kind = label_indices(MNLI, HANS, TO_HANS), find("classification")
    assert to_set.tolist() == [0, 1, 1]
    logits = np.log(np.array([[0.40, 0.35, 0.25], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]]))
    # Row 0: entailment is the argmax although the others sum to 0.6.
    assert kind.predictions(logits, to_set).tolist() == [0, 1, 1]
    np.testing.assert_allclose(kind.scores(logits, to_set, 2), [[0.4, 0.6], [0.2, 0.8], [0.1, 0.9]])


@pytest.mark.parametrize("kind", ["classification", "multi_label", "ordinal", "regression"])
def test_an_evaluation_scores_a_set_as_the_run_was_scored(kind):
    rng, labels, names = np.random.default_rng(0), None if kind == "regression" else MNLI, metrics.names(kind)
    gold = rng.integers(8 if kind == "multi_label" else 3, size=40).tolist()
    task = {"kind": kind, "labels": labels, "metrics": names, "primary": names[0], "sets": {}}
    sets = judge("dev", rng.normal(size=(40, 3 if labels else 1)).astype(np.float32), gold, task)
    found = evaluate_run(sets, task)[0]["sets"]["dev"]["metrics"]
    assert {m: EvaluatedRun(task | {"primary": m}, 0, None, sets, None).score(sets["dev"]) for m in found} == found
