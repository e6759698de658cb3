"""Probability of improvement: known values, bounds, refusals. Coverage: ``test_coverage.py``."""

from __future__ import annotations

import math

import pytest

from regft_core.statistics.over_tasks import _variance, probability_of_improvement


def test_probability_of_improvement_by_hand() -> None:
    got = probability_of_improvement({"x": [1, 2], "y": [3.0, 3.0]}, {"x": [0, 2], "y": [3.0, 3.0]})
    # x: 1>0, 1<2, 2>0, 2=2 -> 2.5/4; y: ties
    assert got.value == pytest.approx((2.5 / 4 + 0.5) / 2)
    assert 0 <= got.low < got.value < got.high <= 1
    with pytest.raises(ValueError, match="differ"):
        probability_of_improvement({"x": [1]}, {"y": [1]})
    with pytest.raises(ValueError, match="no scores for x"):
        probability_of_improvement({"x": [1]}, {"x": []})
    with pytest.raises(ValueError, match="any task"):
        probability_of_improvement({}, {})


def test_arms_that_never_overlap_still_have_an_interval() -> None:
    """The percentile bootstrap says [1, 1] after three runs of each."""
    up = probability_of_improvement({"x": [5, 6, 7]}, {"x": [1, 2, 3]})
    down = probability_of_improvement({"x": [1, 2, 3]}, {"x": [5, 6, 7]})
    assert (up.value, up.high) == (1.0, 1.0)
    assert 0.3 < up.low < 0.6
    assert (down.value, down.low, down.high) == pytest.approx((0.0, 0.0, 1 - up.low))
    more = probability_of_improvement({"x": [5, 6, 7] * 7}, {"x": [1, 2, 3] * 7})
    assert more.low > 0.8


def test_one_seed_has_no_interval() -> None:
    got = probability_of_improvement({"x": [2.0], "y": [1, 2]}, {"x": [1.0], "y": [1, 2]})
    assert got.value == 0.75
    assert math.isnan(got.low)
    assert math.isnan(got.high)


def test_at_one_half_the_variance_is_that_of_the_mann_whitney_test() -> None:
    for n, m in ((5, 5), (20, 20)):
        assert _variance(0.5, n, m) == pytest.approx((n + m + 1) / (12 * n * m))
