"""Ratios of deviations: the F interval holds its confidence, and its power is what is declared."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regft_core.statistics.power import detectable_difference, detectable_gain
from regft_core.statistics.reproduction import detectable_log_ratio, log_ratio


def test_the_interval_of_a_ratio_by_hand() -> None:
    value, low, high = log_ratio(2.0, 1.0, 2, 2)
    # F(1, 1) at 97.5% is tan(0.975 pi / 2) squared.
    half = math.log(math.tan(0.975 * math.pi / 2))
    assert (value, low, high) == pytest.approx((math.log(2), math.log(2) - half, math.log(2) + half), rel=1e-6)
    assert log_ratio(1.0, 2.0, 5, 9)[0] == -log_ratio(2.0, 1.0, 9, 5)[0]
    assert math.isnan(log_ratio(2.0, 1.0, 1, 5)[1])
    with pytest.raises(ValueError, match="must be positive"):
        log_ratio(0.0, 1.0, 5, 5)


def test_the_interval_covers_and_finds_what_it_says() -> None:
    rng = np.random.default_rng(0)
    smallest = detectable_log_ratio(5, 4)
    first = rng.normal(size=(4000, 5)).std(axis=1, ddof=1) * math.exp(smallest)
    second = rng.normal(size=(4000, 4)).std(axis=1, ddof=1)
    found = [log_ratio(a, b, 5, 4) for a, b in zip(first, second, strict=True)]
    assert np.mean([low <= smallest <= high for _, low, high in found]) == pytest.approx(0.95, abs=0.015)
    assert np.mean([low > 0 for _, low, _ in found]) == pytest.approx(0.8, abs=0.025)
    assert detectable_log_ratio(1, 5) == math.inf


def test_the_smallest_gain_holds_the_development_set() -> None:
    assert detectable_gain(5, 1.3, 0.0) == detectable_difference(5, 1.3)
    floor = (1.959964 + 0.841621) * 0.4
    assert detectable_gain(5, 0.0, 0.4) == pytest.approx(floor)
    assert detectable_gain(7, 1.3, 0.4) == pytest.approx(math.hypot(detectable_difference(7, 1.3), floor))
    with pytest.raises(ValueError, match="negative"):
        detectable_gain(5, 1.0, -0.1)
