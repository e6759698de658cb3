"""Closed-form values of the small statistics."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from regft_core.statistics.arms import Arms
from regft_core.statistics.learning_curve import expected_max, expected_max_curve
from regft_core.statistics.over_tasks import failure_rate
from regft_core.statistics.power import detectable_gain
from regft_core.statistics.reproduction import detectable_log_ratio, log_ratio
from regft_core.statistics.temperature import fit_temperature
from tests.statistics.single import one_arm, paired_difference

small = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=9)


def test_failure_rate_is_wilsons():
    got = failure_rate(1, 10)
    assert (got.rate, got.low, got.high) == pytest.approx((0.1, 0.0178762, 0.4041500), abs=1e-6)
    assert failure_rate(0, 10).low == 0.0
    assert failure_rate(0, 10).high == pytest.approx(0.2775328, abs=1e-6)
    assert failure_rate(10, 10).high == 1.0


def test_detectable_difference_reaches_its_power_in_simulation():
    n, deviation = 6, 2.0
    difference = detectable_gain(n, deviation, 0.0)
    rng = np.random.default_rng(0)
    draws = rng.normal(difference, deviation, size=(20_000, n))
    assert np.mean(stats.ttest_1samp(draws, 0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.015)


# ------------------------------------------------------------------ distributions and budgets


@settings(max_examples=40, deadline=None)
@given(small, st.data())
def test_expected_max_is_the_mean_over_subsets(values, data):
    k = data.draw(st.integers(1, len(values)))
    assert expected_max(values, k) == pytest.approx(np.mean([max(c) for c in itertools.combinations(values, k)]))


def test_expected_max_curve_runs_from_mean_to_maximum():
    curve = expected_max_curve([0.1, 0.5, 0.9])
    assert curve == pytest.approx([0.5, (0.5 + 0.9 + 0.9) / 3, 0.9])


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


def test_the_interval_of_a_ratio_by_hand() -> None:
    value, low, high = log_ratio(2.0, 1.0, 2, 2)
    # F(1, 1) at 97.5% is tan(0.975 pi / 2) squared.
    half = math.log(math.tan(0.975 * math.pi / 2))
    assert (value, low, high) == pytest.approx((math.log(2), math.log(2) - half, math.log(2) + half), rel=1e-6)
    assert log_ratio(1.0, 2.0, 5, 9)[0] == -log_ratio(2.0, 1.0, 9, 5)[0]
    assert math.isnan(log_ratio(2.0, 1.0, 1, 5)[1])


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
    floor = (1.959964 + 0.841621) * 0.4
    assert detectable_gain(5, 0.0, 0.4) == pytest.approx(floor)
    assert detectable_gain(7, 1.3, 0.4) == pytest.approx(math.hypot(detectable_gain(7, 1.3, 0.0), floor))
    assert detectable_gain(1, 1.3, 0.0) == math.inf


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews"])
def test_equal_to_the_single_calls(metric: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=80)
    seeds = {"a": (0, 1, 2, 5), "b": (5, 2, 1), "c": ()}
    arms = {name: {s: np.where(rng.random(80) < 0.8, labels, 1 - labels) for s in own} for name, own in seeds.items()}
    settings = {
        "samples": 300,
        "confidence": 0.9,
        "rng_seed": 3,
        "positive_label_index": 1,
        "expected_seeds": [1, 2, 7],
    }
    together = Arms(arms, labels, metric, **settings)
    for name in arms:
        assert_same(together.one(name), one_arm(arms[name], labels, metric, **settings))
        for other in arms:
            apart = paired_difference(arms[name], arms[other], labels, metric, **settings)
            assert_same(together.difference(name, other), apart)


def assert_same(a: object, b: object) -> None:
    for key, value in vars(b).items():
        assert vars(a)[key] == pytest.approx(value, nan_ok=True), key
