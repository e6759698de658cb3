"""Intervals of paired differences: what goes in, corrections, error rates under simulated truth, resampled metrics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regft_core.metrics import find, names
from regft_core.statistics.bootstrap import (
    example_weights,
    resampled_metric,
    seed_interval,
    seed_weights,
)
from tests.statistics.single import one_arm, paired_difference


def test_mean_difference_is_that_of_the_metric_over_common_seeds():
    labels = np.array([1, 1, 0, 0])
    a = {0: [1, 1, 0, 0], 1: [1, 1, 0, 1], 2: [1, 1, 1, 1]}
    b = {1: [0, 1, 0, 1], 2: [1, 0, 1, 1], 3: [1, 1, 0, 0]}
    got = paired_difference(a, b, labels, "accuracy", samples=200, expected_seeds=[0, 1, 2, 3, 4])
    assert got.seeds == (1, 2)
    assert got.excluded == (0, 3, 4)
    assert got.values == pytest.approx((0.25, 0.25))
    assert got.mean == pytest.approx(0.25)
    assert got.low <= 0.25 <= got.high


def test_many_examples_give_the_t_interval_over_seeds():
    # Each seed is right on a fixed share of a very large set, so examples contribute nearly nothing.
    shares, n = [0.60, 0.64, 0.66, 0.70, 0.75], 20_000
    arm = {s: (np.arange(n) < share * n).astype(int) for s, share in enumerate(shares)}
    got = one_arm(arm, np.ones(n, int), "accuracy", samples=2000)
    low, high = seed_interval(shares)
    assert (got.low, got.high) == pytest.approx((low, high), abs=0.015)
    assert got.standard_error_seeds == pytest.approx(np.std(shares, ddof=1) / math.sqrt(5))


def test_equal_seeds_give_the_binomial_interval_over_examples():
    correct = (np.arange(400) < 300).astype(int)
    got = one_arm(dict.fromkeys(range(6), correct), np.ones(400, int), "accuracy", samples=4000)
    half = 1.96 * math.sqrt(0.75 * 0.25 / 400)
    assert (got.low, got.high) == pytest.approx((0.75 - half, 0.75 + half), abs=0.005)
    assert got.standard_error_examples == pytest.approx(half / 1.96, rel=0.05)
    assert got.seed_deviation == 0


def test_one_seed_and_no_seed():
    labels = np.ones(50, int)
    one = one_arm({3: (np.arange(50) < 40).astype(int)}, labels, "accuracy", samples=500)
    assert (one.n, one.mean) == (1, 0.8)
    assert one.low < 0.8 < one.high
    assert math.isnan(one.seed_deviation)
    none = paired_difference({0: labels}, {1: labels}, labels, "accuracy", samples=500)
    assert (none.n, none.excluded) == (0, (0, 1))
    assert math.isnan(none.mean)
    assert (none.seeds, none.confidence) == ((), 0.95)


def simulate(rng, seeds, n, *, seed_noise, example_noise, pair_noise, shift=0.0):
    """Two arms whose runs are right where difficulty + arm x example + seed + pair noise is positive."""
    difficulty = rng.normal(size=n) + 0.8

    def arm(shift):
        taste = example_noise * rng.normal(size=n)
        noise = seed_noise * rng.normal(size=(seeds, 1)) + pair_noise * rng.normal(size=(seeds, n))
        return {s: row.astype(int) for s, row in enumerate(difficulty + taste + noise + shift > 0)}

    return arm(shift), arm(0.0)


@pytest.mark.parametrize(
    "noise",
    [
        {"seed_noise": 0.4, "example_noise": 0.0, "pair_noise": 0.01},
        {"seed_noise": 0.0, "example_noise": 0.0, "pair_noise": 1.0},
        {"seed_noise": 0.15, "example_noise": 0.4, "pair_noise": 0.6},
    ],
    ids=["seeds", "pairs", "all"],
)
def test_null_keeps_its_error_rate_with_six_seeds(noise):
    rng = np.random.default_rng(7)
    labels, trials = np.ones(150, int), 300
    rejected = 0
    for _ in range(trials):
        a, b = simulate(rng, 6, 150, **noise)
        got = paired_difference(a, b, labels, "accuracy", samples=400)
        rejected += not got.low <= 0 <= got.high
    # 5 % of 300 is 15; above 28 has a chance below 1e-3. Below 2 the interval would be needlessly wide.
    assert 2 <= rejected <= 28


def test_interval_covers_a_true_difference_and_finds_a_large_one():
    noise = {"seed_noise": 0.15, "example_noise": 0.3, "pair_noise": 0.5, "shift": 0.5}
    rng = np.random.default_rng(3)
    # The effect of single seeds is averaged out.
    a, b = simulate(rng, 400, 4000, **noise)
    truth = float(np.mean([a[s].mean() - b[s].mean() for s in a]))
    covered = found = 0
    for _ in range(200):
        a, b = simulate(rng, 6, 200, **noise)
        got = paired_difference(a, b, np.ones(200, int), "accuracy", samples=400)
        covered += got.low <= truth <= got.high
        found += got.low > 0
    assert covered >= 180
    assert found >= 100


@pytest.mark.parametrize("shared", [0.2, 0.6])
def test_example_part_is_what_examples_contribute_to_all_seeds_alike(shared):
    """Two seeds of equal accuracy 1/2 whose correctness correlates by ``shared``, worked out by hand.

    The seed part is 0. The mean over seeds has variance (1 + r) / 2 per example, of which noise of
    single pairs makes (1 - r) / 2; the seed part would hold that already, so r is left: the
    deviation of the replicates is sqrt(r / 4 / n).
    """
    n = 2000
    same, other = round(n * (1 + shared) / 4), round(n * (1 - shared) / 4)
    cells = np.repeat([[1, 1], [0, 0], [1, 0], [0, 1]], [same, same, other, other], axis=0)
    got = one_arm({0: cells[:, 0], 1: cells[:, 1]}, np.ones(len(cells), int), "accuracy", samples=20_000)
    assert got.values == (0.5, 0.5)
    assert float(np.std(got.replicates)) == pytest.approx(math.sqrt(shared / 4 / n), rel=0.03)


def test_seed_interval_by_hand():
    low, high = seed_interval([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx((2 - 4.302653 / math.sqrt(3), 2 + 4.302653 / math.sqrt(3)))
    assert all(map(math.isnan, seed_interval([1.0])))


@pytest.mark.parametrize("kind", ["classification", "regression"])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(2, 4), n=st.integers(3, 30))
def test_metrics_of_resamples(kind, seed, k, n):
    """Few rows: draws of one label alone, or of one row; values have ties where ``k`` is even."""
    rng, is_value = np.random.default_rng(seed), kind == "regression"
    labels, predictions = rng.integers(k, size=n), rng.integers(k, size=(3, n))
    if is_value:
        labels, predictions = (100 + 2 * (of + (k % 2) * rng.normal(size=of.shape)) for of in (labels, predictions))
    draws = np.vstack([rng.integers(n, size=(4, n)), np.zeros((1, n), dtype=int)])
    weights = np.stack([np.bincount(d, minlength=n) for d in draws]).astype(float)
    for name in names(kind):
        found = find(name).resampled(labels, predictions, weights, 1)
        wanted = [[find(name).score(labels[draw], row[draw], 1) for row in predictions] for draw in draws]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 if is_value else 1e-12, err_msg=name)


def test_a_constant_row_has_no_correlation():
    labels, rows = np.arange(5.0), np.stack([np.full(5, 2.0), np.arange(5.0), 2 + 1e-9 * np.arange(5.0)])
    for name in ("pearson", "spearman"):
        assert find(name).resampled(labels, rows, np.ones((1, 5)), None) == pytest.approx(np.array([[0.0, 1.0, 0.0]]))


def test_weights_count_draws_and_depend_on_the_seed_only():
    first = example_weights(37, 300, 5)
    assert first.shape == (300, 37)
    assert set(first.sum(axis=1).tolist()) == {37}
    assert np.array_equal(first, example_weights(37, 300, 5))
    assert not np.array_equal(first, example_weights(37, 300, 6))
    assert first.var() == pytest.approx(36 / 37, rel=0.1)  # multinomial
    assert seed_weights(4, 50, 0).sum(axis=1) == pytest.approx(1.0)


def test_chunks_do_not_change_results(monkeypatch):
    rng = np.random.default_rng(1)
    labels, rows = rng.normal(size=40), rng.normal(size=(2, 40))
    _, whole = resampled_metric("spearman", labels, rows, samples=100, seed=0)
    monkeypatch.setattr("regft_core.statistics.bootstrap._CHUNK", 40 * 7)
    _, parts = resampled_metric("spearman", labels, rows, samples=100, seed=0)
    assert parts == pytest.approx(whole)
