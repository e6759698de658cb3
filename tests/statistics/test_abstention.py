"""A confidence threshold with a guaranteed accuracy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from regft_core.statistics.abstention import best_guarantee, effective, lower_bound, threshold_for


@pytest.mark.parametrize(("right", "n"), [(59, 59), (45, 50), (1, 10)])
def test_the_bound_is_where_the_observation_becomes_that_unlikely(right: int, n: int) -> None:
    bound = lower_bound(right, n, 0.05)
    assert binom.sf(right - 1, n, bound) == pytest.approx(0.05)


def test_a_perfect_model_answers_everything_and_a_useless_one_nothing() -> None:
    confidences = np.linspace(0.5, 1, 400)
    found = threshold_for(confidences, np.ones(400), 0.95)
    assert found is not None
    assert (found.coverage, found.threshold) == (1.0, 0.5)
    assert threshold_for(confidences, np.arange(400) % 2, 0.95) is None


def test_rows_of_equal_confidence_are_answered_together() -> None:
    confidences = np.repeat([1.0, 0.6], 200)
    right = np.concatenate([np.ones(200), np.zeros(200)])
    found = threshold_for(confidences, right, 0.95)
    assert found is not None
    assert (found.threshold, found.coverage) == (1.0, 0.5)


def test_the_guarantee_holds_as_often_as_it_says() -> None:
    """Over 400 draws of 200 rows the true accuracy above the threshold is below the promise in at most 5%."""
    rng = np.random.default_rng(3)
    broken = 0
    for _ in range(400):
        confidences = rng.uniform(0.5, 1, 200)
        found = threshold_for(confidences, rng.random(200) < confidences, 0.9, confidence=0.95)
        if found is not None:
            broken += (found.threshold + 1) / 2 < 0.9  # answers of confidence c are right with probability c
    assert broken / 400 <= 0.05


def test_what_can_be_guaranteed_is_what_passes() -> None:
    rng = np.random.default_rng(4)
    confidences = rng.uniform(0.5, 1, 150)
    right = rng.random(150) < confidences
    most = best_guarantee(confidences, right)
    assert threshold_for(confidences, right, most - 1e-9) is not None
    assert threshold_for(confidences, right, min(0.9999, most + 0.01)) is None


def test_rows_of_one_group_count_as_one_answer() -> None:
    """100 groups of 5 rows, all rows of a group right or wrong together: without the groups the promise is broken."""
    rng = np.random.default_rng(5)
    broken = {"rows": 0, "groups": 0}
    groups = np.repeat(np.arange(100), 5)
    for _ in range(300):
        confidences = np.repeat(rng.uniform(0.5, 1, 100), 5) + rng.uniform(0, 1e-9, 500)
        right = np.repeat(rng.random(100), 5) < confidences
        for name, given in (("rows", None), ("groups", groups)):
            found = threshold_for(confidences, right, 0.85, confidence=0.95, groups=given)
            broken[name] += found is not None and (found.threshold + 1) / 2 < 0.85
    assert broken["groups"] / 300 <= 0.05 < broken["rows"] / 300


def test_groups_of_one_row_change_nothing_and_one_group_is_one_answer() -> None:
    rng = np.random.default_rng(6)
    confidences = rng.uniform(0.5, 1, 200)
    right = rng.random(200) < confidences
    assert threshold_for(confidences, right, 0.8, groups=np.arange(200)) == threshold_for(confidences, right, 0.8)
    assert effective([7, 7, 7]) == 1.0
    assert effective([1, 1, 2]) == pytest.approx(9 / 5)
    assert threshold_for(confidences, np.ones(200), 0.9, groups=np.zeros(200)) is None


def test_out_of_fold_answers_guarantee_the_model_of_all_rows_and_its_own_answers_do_not() -> None:
    """Ridge classifiers on 120 rows of 20 features; the true accuracy above the threshold comes from 2,000 more."""
    rng = np.random.default_rng(8)

    def fitted(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.linalg.solve(x.T @ x + 0.1 * np.eye(x.shape[1]), x.T @ (2.0 * y - 1))

    broken, found = {"folds": 0, "itself": 0}, {"folds": 0, "itself": 0}
    for _ in range(200):
        centre = rng.normal(0, 0.25, 20)
        y, more_y = rng.integers(0, 2, 120), rng.integers(0, 2, 2000)
        x, more_x = ((2 * of[:, None] - 1) * centre + rng.normal(size=(len(of), 20)) for of in (y, more_y))
        fold, final = rng.permutation(120) % 5, fitted(x, y)
        margins = {"itself": x @ final, "folds": np.zeros(120)}
        for k in range(5):
            margins["folds"][fold == k] = x[fold == k] @ fitted(x[fold != k], y[fold != k])
        for name, own in margins.items():
            threshold = threshold_for(np.abs(own), (own > 0) == y, 0.85)
            if threshold is not None:
                answered = np.abs(more_x @ final) >= threshold.threshold
                found[name] += 1
                broken[name] += ((more_x @ final > 0) == more_y)[answered].mean() < 0.85
    assert found["folds"] > 100
    assert broken["folds"] / 200 <= 0.05 < broken["itself"] / 200
