"""Predictions that look wrong as a whole: permuted labels, a reversed scale, answers that ignore the input."""

from __future__ import annotations

import numpy as np
import pytest

from regft_core.kinds import find
from regft_core.kinds._judging import CORRELATION_THRESHOLD, warn_if_permuted, warn_if_reversed

MNLI = ["entailment", "neutral", "contradiction"]
HANS = ["entailment", "non-entailment"]


def simulated(n, k, accuracy, seed=0):
    rng = np.random.default_rng(seed)
    gold = rng.integers(k, size=n)
    wrong = (gold + rng.integers(1, k, size=n)) % k
    return gold, np.where(rng.random(n) < accuracy, gold, wrong)


def test_a_permuted_model_is_caught_and_the_permutation_named():
    gold, predicted = simulated(300, 3, 0.84)
    assert warn_if_permuted(gold, predicted, MNLI) is None
    rotated = np.array([1, 2, 0])[predicted]
    warning = warn_if_permuted(gold, rotated, MNLI)
    assert "below chance" in warning
    assert "'neutral' -> 'entailment', 'contradiction' -> 'neutral', 'entailment' -> 'contradiction'" in ", ".join(
        [warning.split("as ")[1].split(" would")[0].split(", ")[i] for i in (1, 2, 0)]
    )
    assert f"{np.mean(gold == predicted):.3f}" in warning


def test_two_swapped_labels_of_three_are_caught_though_accuracy_is_about_chance():
    gold, predicted = simulated(200, 3, 0.85)
    swapped = np.array([2, 1, 0])[predicted]
    warning = warn_if_permuted(gold, swapped, MNLI)
    assert "'entailment' -> 'contradiction'" in warning
    assert "neutral" not in warning


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [2, 3, 40])
def test_random_and_constant_predictions_are_at_chance(k, seed):
    names = [str(i) for i in range(k)]
    rng = np.random.default_rng(seed)
    gold = rng.choice(k, p=np.arange(1, k + 1) / (k * (k + 1) / 2), size=600)
    assert warn_if_permuted(gold, rng.integers(k, size=600), names) is None
    assert warn_if_permuted(gold, np.zeros(600, dtype=int), names) is None
    assert warn_if_permuted(gold, np.full(600, k - 1), names) is None


def test_the_hans_failure_of_real_models_is_at_chance_not_below():
    gold = np.repeat([0, 1], 500)  # nearly everything called entailment, as lexical overlap suggests
    predicted = np.r_[np.zeros(495), np.ones(5), np.zeros(480), np.ones(20)].astype(int)
    assert warn_if_permuted(gold, predicted, HANS) is None
    assert "below chance" in warn_if_permuted(gold, 1 - gold, HANS)


def test_reversed_regression_scale():
    values = np.linspace(0, 5, 50)
    assert "negative" in warn_if_reversed(values, 5 - values)
    assert warn_if_reversed(values, values) is None
    assert warn_if_reversed(values, np.full(50, 2.0)) is None


@pytest.mark.parametrize(
    ("labels", "predictions", "expected"),
    [
        ([0, 1, 1, 1], [1, 1, 1, 1], "constant"),  # 0.75, the majority class
        ([0, 1, 1, 1], [0, 0, 0, 0], "constant"),
        ([0, 1, 1, 1], [1, 0, 1, 1], "majority"),  # 0.5 < 0.75
        ([0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0], "majority"),  # exactly the majority rate
        ([0, 1, 1, 1], [0, 1, 1, 1], None),
        ([1, 1, 1], [1, 1, 1], None),  # one gold label: right is not collapsed
        ([1, 1, 1], [0, 0, 0], "constant"),
        ([1, 1, 1], [0, 1, 1], None),
    ],
)
def test_classification(labels, predictions, expected):
    assert find("classification").collapsed(np.array(labels), np.array(predictions)) == expected


def test_regression():
    collapsed = find("regression").collapsed
    rng = np.random.default_rng(0)
    labels = rng.normal(size=400)
    noise = rng.normal(size=400)
    noise -= labels * (noise @ (labels - labels.mean())) / (labels @ (labels - labels.mean()))
    assert abs(np.corrcoef(labels, noise)[0, 1]) < CORRELATION_THRESHOLD
    assert collapsed(labels, np.full(400, 2.5)) == "constant"
    assert collapsed(labels, 2.5 + 1e-8 * labels) == "constant"  # float32 rounding, not signal
    assert collapsed(labels, noise) == "constant"
    assert collapsed(labels, noise - labels) == "majority"  # worse than a constant
    assert collapsed(labels, noise / 2 + labels) is None
    assert collapsed(labels, 1e-3 * labels) is None  # small but informative
    assert collapsed(labels + 5, 1e-3 * labels) == "majority"  # ranked right, but no better than the mean
