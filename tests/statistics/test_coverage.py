"""Simulated nulls keep their error rate and intervals cover at 5 to 20 seeds.

Rates are bounded from one side: an interval may be wider than its confidence, not narrower. The slack
is three standard errors of the simulation.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from regft_core.statistics.arms import Arms, rank_sets
from regft_core.statistics.power import shares
from regft_core.statistics.reproduction import welch_interval
from regft_core.statistics.verdict import judge


def least(runs: int, confidence: float = 0.95) -> float:
    """The share of covering intervals below which the simulation speaks against ``confidence``."""
    return confidence - 3 * math.sqrt(confidence * (1 - confidence) / runs)


# ------------------------------------------------------------------------ arms of many seeds


def predictions(rng: np.random.Generator, skills: list[float], n: int, examples: int) -> list[np.ndarray]:
    """[n, examples] per arm, 1 is right; the chance varies with the seed and, for all arms alike, with the example."""
    difficulty = rng.normal(0, 0.15, examples)
    chances = [np.clip(skill + rng.normal(0, 0.04, (n, 1)) + difficulty, 0, 1) for skill in skills]
    return [(rng.random((n, examples)) < chance).astype(int) for chance in chances]


def arms_of(rows: list[np.ndarray], rng_seed: int) -> Arms:
    named = {str(number): dict(enumerate(own)) for number, own in enumerate(rows)}
    return Arms(named, np.ones(rows[0].shape[1], dtype=int), "accuracy", samples=200, rng_seed=rng_seed)


def simulated(rng: np.random.Generator, skills: list[float], n: int) -> Arms:
    return arms_of(predictions(rng, skills, n, 120), int(rng.integers(2**31)))


@pytest.mark.parametrize("n", [5, 20])
def test_rank_sets_hold_the_true_ranks(n: int) -> None:
    """Four arms, two of them equal: the true ranks are 1, 2 or 3, 2 or 3, 4."""
    rng = np.random.default_rng(n)
    runs, held, narrow = 150, 0, 0
    for _ in range(runs):
        found = rank_sets(simulated(rng, [0.78, 0.7, 0.7, 0.62], n), ["0", "1", "2", "3"], confidence=0.95)
        held += found["1"].best <= 2 and found["1"].worst >= 3
        held += found["0"].best == 1 and found["3"].worst == 4
        narrow += found["0"].worst < 4
    assert held / (2 * runs) >= least(2 * runs)
    if n == 20:
        assert narrow > runs / 2  # it does not cover by saying nothing


@pytest.mark.parametrize("n", [5, 20])
def test_equal_arms_are_rarely_ranked(n: int) -> None:
    rng = np.random.default_rng(n)
    runs = 200
    wrong = 0
    for _ in range(runs):
        found = rank_sets(simulated(rng, [0.7] * 5, n), list("01234"), confidence=0.95)["0"]
        wrong += (found.best, found.worst) != (1, 5)
    assert wrong / runs <= 1 - least(runs)


# ------------------------------------------------------------------------- optional stopping


def stopped(rng: np.random.Generator, looks: list[int], sequential: bool, skill: float = 0.7) -> bool:
    """Whether somebody who adds seeds until an interval excludes zero finds a difference."""
    every, resamples = predictions(rng, [skill, 0.7], looks[-1], 60), int(rng.integers(2**31))
    for number, n in enumerate(looks, start=1):
        arms = arms_of([rows[:n] for rows in every], resamples)
        if sequential:
            sample = arms.sample("0", "1")
            (found,) = judge([sample], "reference", confidence=0.95, point=0.01, shares=shares(number))
            low, high = found.low, found.high
        else:
            estimate = arms.difference("0", "1")
            low, high = estimate.low, estimate.high
        if low > 0 or high < 0:
            return True
    return False


@pytest.mark.parametrize("sequential", [True, False])
def test_optional_stopping_keeps_the_error_rate_with_looks_alone(sequential: bool) -> None:
    """The plain interval does not keep it under the same stopping."""
    runs, rng = 200, np.random.default_rng(7)
    errors = sum(stopped(rng, [3, 4, 5, 6, 8, 10, 15, 20], sequential) for _ in range(runs)) / runs
    assert (errors <= 1 - least(runs)) == sequential


def test_a_true_difference_is_still_found() -> None:
    rng = np.random.default_rng(3)
    assert sum(stopped(rng, [5, 10, 20], True, skill=0.85) for _ in range(20)) >= 18


# ------------------------------------------------------------------------- a paper beside ours


@pytest.mark.parametrize("n", [5, 10, 20])
def test_welch_intervals_cover_with_unequal_spreads(n: int) -> None:
    """Three published seeds with deviation 2 beside ``n`` of ours with 1, over an average of two tasks."""
    rng = np.random.default_rng(n)
    runs, covered = 1_000, 0
    for _ in range(runs):
        ours, theirs = rng.normal(0, 1, (2, n)), rng.normal(0, 2, (2, 3))
        parts = [(float(s.var(ddof=1)) / len(s) / 4, len(s)) for group in (ours, theirs) for s in group]
        low, high = welch_interval(float(ours.mean() - theirs.mean()), parts)
        covered += low <= 0 <= high
    assert covered / runs >= least(runs)


def test_welch_interval_equals_scipys() -> None:
    from scipy.stats import ttest_ind

    x, y = [1.0, 2.0, 4.0], [3.0, 3.5, 7.0, 9.0]
    parts = [(float(np.var(s, ddof=1)) / len(s), len(s)) for s in (x, y)]
    expected = ttest_ind(x, y, equal_var=False).confidence_interval()
    found = welch_interval(float(np.mean(x) - np.mean(y)), parts)
    assert found == pytest.approx((expected.low, expected.high))
    assert all(map(math.isnan, welch_interval(1.0, [])))
    assert all(map(math.isnan, welch_interval(1.0, [(1.0, 1)])))
