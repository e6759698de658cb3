"""Closed-form values of the small statistics."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from regft_core.statistics.learning_curve import expected_max, expected_max_curve
from regft_core.statistics.over_tasks import failure_rate, interquartile_mean
from regft_core.statistics.power import detectable_difference

small = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=9)


# ------------------------------------------------------------------------------- aggregates


def test_interquartile_mean_by_hand():
    assert interquartile_mean({"a": [1, 2, 3, 4, 5, 6, 7, 100]}, samples=100).value == pytest.approx(4.5)
    # three runs: each covers a third; the outer ones count from 1/4 to 1/3
    assert interquartile_mean({"a": [0, 3, 12]}, samples=100).value == pytest.approx(2 * (3 / 3 + 12 / 12))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=5).map(lambda v: v * 4))
def test_interquartile_mean_equals_the_trimmed_mean_for_multiples_of_four(values):
    got = interquartile_mean({"a": values[::2], "b": values[1::2]}, samples=100)
    assert got.value == pytest.approx(stats.trim_mean(values, 0.25), abs=1e-9)
    assert min(values) - 1e-9 <= got.low <= got.high <= max(values) + 1e-9


def test_interquartile_mean_ignores_one_degenerate_seed_and_is_stratified():
    scores = {"a": [0.8] * 10, "b": [0.6] * 9 + [0.0]}
    got = interquartile_mean(scores, samples=500)
    assert got.value == pytest.approx(0.7)
    assert (got.low, got.high) == pytest.approx((0.7, 0.7), abs=0.05)
    with pytest.raises(ValueError, match="no scores for b"):
        interquartile_mean({"a": [1.0], "b": []})


# --------------------------------------------------------------------- rates, power


def test_failure_rate_is_wilsons():
    got = failure_rate(1, 10)
    assert (got.rate, got.low, got.high) == pytest.approx((0.1, 0.0178762, 0.4041500), abs=1e-6)
    assert failure_rate(0, 10).low == 0.0
    assert failure_rate(0, 10).high == pytest.approx(0.2775328, abs=1e-6)
    assert failure_rate(10, 10).high == 1.0
    assert math.isnan(failure_rate(0, 0).rate)
    with pytest.raises(ValueError, match="11 failed runs of 10"):
        failure_rate(11, 10)


def test_detectable_difference_reaches_its_power_in_simulation():
    n, deviation = 6, 2.0
    difference = detectable_difference(n, deviation)
    rng = np.random.default_rng(0)
    draws = rng.normal(difference, deviation, size=(20_000, n))
    assert np.mean(stats.ttest_1samp(draws, 0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.015)


def test_detectable_difference_shrinks_with_seeds():
    sizes = [detectable_difference(n, 1.0) for n in (2, 3, 5, 10, 100)]
    assert sizes == sorted(sizes, reverse=True)
    assert detectable_difference(100, 1.0) == pytest.approx(2.83 / 10, rel=0.01)  # nearly normal
    assert detectable_difference(1, 1.0) == math.inf
    assert detectable_difference(5, 0.0) == 0.0


# ------------------------------------------------------------------ distributions and budgets


@settings(max_examples=40, deadline=None)
@given(small, st.data())
def test_expected_max_is_the_mean_over_subsets(values, data):
    k = data.draw(st.integers(1, len(values)))
    assert expected_max(values, k) == pytest.approx(np.mean([max(c) for c in itertools.combinations(values, k)]))


def test_expected_max_curve_runs_from_mean_to_maximum():
    curve = expected_max_curve([0.1, 0.5, 0.9])
    assert curve == pytest.approx([0.5, (0.5 + 0.9 + 0.9) / 3, 0.9])
    with pytest.raises(ValueError, match="run more trials"):
        expected_max([0.1, 0.2], 3)
