"""The fast metrics of resamples against scikit-learn and scipy on the resampled rows themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regft_core.metrics import find, names
from regft_core.statistics.bootstrap import example_weights, resampled_metric, seed_weights, weighted_metric


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
        found = weighted_metric(name, 1)(labels, predictions, weights)
        wanted = [[find(name).score(labels[draw], row[draw], 1) for row in predictions] for draw in draws]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 if is_value else 1e-12, err_msg=name)


def test_a_constant_row_has_no_correlation():
    labels, rows = np.arange(5.0), np.stack([np.full(5, 2.0), np.arange(5.0), 2 + 1e-9 * np.arange(5.0)])
    for name in ("pearson", "spearman"):
        assert weighted_metric(name)(labels, rows, np.ones((1, 5))) == pytest.approx(np.array([[0.0, 1.0, 0.0]]))


def test_observed_is_the_metric_itself_and_rows_share_resamples():
    rng = np.random.default_rng(0)
    labels, row = rng.integers(3, size=50), rng.integers(3, size=50)
    observed, values = resampled_metric("accuracy", labels, np.stack([row, row]), samples=200, seed=3)
    assert observed == pytest.approx(np.mean(labels == row))
    assert np.array_equal(values[:, 0], values[:, 1])
    assert values.std() > 0


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
