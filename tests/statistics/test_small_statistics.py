"""Small statistics: power, budgets, deviations, ranks, learning curves."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from regft_core.statistics.arms import Arms, RankSet, rank_sets
from regft_core.statistics.bootstrap import Estimate, two_level
from regft_core.statistics.confidence import fit_temperature
from regft_core.statistics.forecast import detectable_gain, expected_gains, expected_max_curve, shares
from tests.statistics.single import right_on

small = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=9)


@settings(max_examples=40, deadline=None)
@given(small)
def test_expected_max_is_the_mean_over_subsets(values):
    means = [np.mean([max(c) for c in itertools.combinations(values, k)]) for k in range(1, len(values) + 1)]
    assert expected_max_curve(values) == pytest.approx(means)


def test_the_temperature_that_the_labels_were_drawn_at_is_found() -> None:
    """Two logits that are three times too large: the likelihood of a logistic model, whose maximum is known."""
    rng = np.random.default_rng(0)
    margins = rng.normal(0, 2, 20_000)
    gold = (rng.random(20_000) < 1 / (1 + np.exp(-margins))).astype(int)
    logits = np.stack([np.zeros(20_000), 3 * margins], axis=1)

    def log_probabilities(temperature: float) -> np.ndarray:
        scaled = logits / temperature
        return scaled - np.logaddexp(scaled[:, :1], scaled[:, 1:])

    assert fit_temperature(log_probabilities, gold) == pytest.approx(3.0, rel=0.05)


def test_detectable_difference_reaches_its_power_in_simulation():
    n, deviation = 6, 2.0
    difference = detectable_gain(n, deviation, 0.0)
    rng = np.random.default_rng(0)
    draws = rng.normal(difference, deviation, size=(20_000, n))
    assert np.mean(stats.ttest_1samp(draws, 0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.015)


def test_the_smallest_gain_holds_the_development_set() -> None:
    floor = (1.959964 + 0.841621) * 0.4
    assert detectable_gain(5, 0.0, 0.4) == pytest.approx(floor)
    assert detectable_gain(7, 1.3, 0.4) == pytest.approx(math.hypot(detectable_gain(7, 1.3, 0.0), floor))
    assert detectable_gain(1, 1.3, 0.0) == math.inf


# ----------------------------------------------------------------------------------------------- ranks


def arms_of(rng: np.random.Generator, shifts: list[float], seeds: int = 5, n: int = 100) -> Arms:
    """Arms that are right where difficulty + seed and pair noise + shift is positive."""
    difficulty = rng.normal(size=n) + 0.8
    found = {}
    for i, shift in enumerate(shifts):
        noise = 0.15 * rng.normal(size=(seeds, 1)) + 0.6 * rng.normal(size=(seeds, n))
        found[f"a{i}"] = {s: row.astype(int) for s, row in enumerate(difficulty + noise + shift > 0)}
    return Arms(found, np.ones(n, int), "accuracy", samples=300)


def test_arms_that_share_fewer_than_two_seeds_are_not_told_apart() -> None:
    labels = np.ones(50, int)
    arms = Arms({"a": {0: labels}, "b": {0: 1 - labels}, "c": {1: labels}}, labels, "accuracy", samples=100)
    assert set(rank_sets(arms, ["a", "b", "c"], confidence=0.95).values()) == {RankSet(1, 3)}


@pytest.mark.parametrize(
    ("upwards", "order"), [(True, ["most", "middle", "least"]), (False, ["least", "middle", "most"])]
)
def test_arms_that_are_far_apart_have_one_rank_each(upwards: bool, order: list[str]) -> None:
    counts = {name: range(least, least + 5) for name, least in (("middle", 240), ("most", 360), ("least", 120))}
    found = rank_sets(right_on(counts, 400, samples=300), order, confidence=0.95, higher_is_better=upwards)
    assert found == {name: RankSet(rank, rank) for rank, name in enumerate(order, 1)}


def test_equal_arms_may_have_any_rank_and_more_tasks_leave_more_of_them() -> None:
    equal = arms_of(np.random.default_rng(5), [0.0, 0.0, 0.0])
    assert set(rank_sets(equal, ["a0", "a1", "a2"], confidence=0.95).values()) == {RankSet(1, 3)}
    # Told apart on one task, but not at the level that each of a thousand tasks gets.
    near = arms_of(np.random.default_rng(6), [0.0, 0.8], n=300)
    assert rank_sets(near, ["a0", "a1"], confidence=0.95)["a1"] == RankSet(1, 1)
    assert rank_sets(near, ["a0", "a1"], confidence=0.95, sets=1000)["a1"] == RankSet(1, 2)


def test_all_looks_together_spend_no_more_than_the_error_of_one() -> None:
    spent = [sum(1 / shares(k) for k in range(1, last + 1)) for last in (1, 2, 3, 10, 1000)]
    assert spent[:3] == pytest.approx([1 / 2, 2 / 3, 3 / 4])
    assert all(share < 1 for share in spent)


# ---------------------------------------------------------------------- the power law through scores at several sizes


SIZES = [50, 100, 200, 400]


def estimate(value: float, noise: float = 0.0, seed: int = 0) -> Estimate:
    """A mean of four seeds whose resampled scores deviate by ``noise``."""
    values = value + noise * np.random.default_rng(seed).standard_normal((500, 1))
    return two_level([0, 1, 2, 3], [], np.full(4, value), np.repeat(values, 4, axis=1), 0.95, 0)


def curve(rows: float, c: float = 0.9, b: float = 2.0, a: float = 0.6) -> float:
    return c - b * rows**-a


@pytest.mark.parametrize("sign", [1, -1])
def test_an_exact_power_law_is_continued(sign: int) -> None:
    """Also that of an error, whose gains go downwards."""
    (found,) = expected_gains(SIZES, [estimate(sign * curve(n)) for n in SIZES], [2], upwards=sign > 0)
    true = sign * (curve(800) - curve(400))
    assert (found.mean, found.low, found.high) == pytest.approx((true, true, true), rel=1e-6)


def test_scores_that_fall_with_rows_are_no_loss_ahead() -> None:
    """A fit with b < 0 would promise ever lower scores."""
    (found,) = expected_gains(SIZES, [estimate(0.9 - n / 1000) for n in SIZES], [2])
    assert found.mean == 0


def test_the_gain_is_within_what_the_metric_leaves() -> None:
    steep = [estimate(0.1 + 0.001 * n) for n in SIZES]
    (found,) = expected_gains(SIZES, steep, [16], room=0.5)
    assert found.high <= 0.5


def test_nothing_is_forecast_of_rows_that_cannot_be_resampled() -> None:
    assert expected_gains(SIZES, [estimate(curve(n), math.nan) for n in SIZES], [2]) == ()


def test_intervals_cover_what_the_next_size_brings() -> None:
    """Of 200 curves measured with noise, at least 90% have the true gain inside their 95% interval."""
    rng = np.random.default_rng(5)
    covered = 0
    for world in range(200):
        a, b = rng.uniform(0.3, 1.0), rng.uniform(0.5, 3.0)
        scores = [
            estimate(curve(n, b=b, a=a) + 0.01 * rng.standard_normal(), 0.01, 10 * world + i)
            for i, n in enumerate(SIZES)
        ]
        (found,) = expected_gains(SIZES, scores, [2])
        covered += found.low <= curve(800, b=b, a=a) - curve(400, b=b, a=a) <= found.high
    assert covered / 200 >= 0.90
