"""Label maps by name (MNLI to HANS and others), and noticing permuted labels."""

from __future__ import annotations

import numpy as np
import pytest

from regft_core.errors import DataError
from regft_core.evaluation.ood import label_indices, map_logits, warn_if_permuted, warn_if_reversed
from tests.errors import raises_code

MNLI = ["entailment", "neutral", "contradiction"]
HANS = ["entailment", "non-entailment"]
TO_HANS = {"entailment": "entailment", "neutral": "non-entailment", "contradiction": "non-entailment"}


def test_mnli_to_hans_takes_the_argmax_before_merging():
    to_set = label_indices(MNLI, HANS, TO_HANS, "hans")
    assert to_set.tolist() == [0, 1, 1]
    logits = np.log(np.array([[0.40, 0.35, 0.25], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]]))
    predictions, scores = map_logits(logits, to_set, 2)
    assert predictions.tolist() == [0, 1, 1]  # row 0: entailment is the argmax although the others sum to 0.6
    np.testing.assert_allclose(scores, [[0.4, 0.6], [0.2, 0.8], [0.1, 0.9]])


def test_maps_go_by_name_whatever_the_order():
    assert label_indices(MNLI, MNLI[::-1], None).tolist() == [2, 1, 0]
    # SciTail lists its labels the other way round; no own label is left out
    assert label_indices(MNLI, ["neutral", "entails"], {"entailment": "entails", "neutral": "neutral"} | {
        "contradiction": "neutral"
    }).tolist() == [1, 0, 0]  # fmt: skip


def test_an_incomplete_map_is_refused_with_everything_that_is_wrong():
    with pytest.raises(DataError) as caught:
        label_indices(MNLI, HANS, {"entailment": "entailement", "neutrl": "non-entailment"}, "hans")
    message = str(caught.value)
    for part in (
        "own label 'neutral' is not in label_map (nearest: 'neutrl')",
        "own label 'contradiction' is not in label_map",
        "label_map names 'neutrl', which is not a label of the task (nearest: 'neutral')",
        "'entailment' maps to 'entailement', which is not a label of the set (nearest: 'entailment')",
        "ood.hans",
    ):
        assert part in message
    with raises_code(DataError, "labels-differ", "not a label of the set"):
        label_indices(MNLI, HANS, None, "hans")


def test_huge_logits_do_not_overflow():
    _, scores = map_logits(np.array([[1e4, -1e4, 0.0]], dtype=np.float32), np.array([0, 1, 1]), 2)
    np.testing.assert_allclose(scores, [[1.0, 0.0]])


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
