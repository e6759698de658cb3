"""Metrics against scikit-learn and scipy, and what happens at the edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from regft_core.metrics import find, names
from tests.statistics.single import compute

CLASSIFICATION_METRICS, REGRESSION_METRICS = names("classification"), names("regression")

classes = st.integers(2, 5).flatmap(
    lambda k: st.lists(st.tuples(st.integers(0, k - 1), st.integers(0, k - 1)), min_size=1, max_size=40)
)
values = st.lists(
    st.tuples(st.floats(-5, 5, allow_nan=False, width=32), st.floats(-5, 5, allow_nan=False, width=32)),
    min_size=3,
    max_size=40,
)


@settings(max_examples=40, deadline=None)
@given(classes)
def test_classification_agrees_with_scikit_learn(pairs):
    labels, predictions = np.array(pairs).T
    got = compute(
        CLASSIFICATION_METRICS,
        kind="classification",
        labels=labels,
        predictions=predictions,
        positive_label_index=0,
    )
    f1 = sk.f1_score(labels == 0, predictions == 0, zero_division=0.0)
    assert got["f1"] == pytest.approx(f1)
    assert got["accuracy"] == pytest.approx(sk.accuracy_score(labels, predictions))
    assert got["accuracy_f1"] == pytest.approx((sk.accuracy_score(labels, predictions) + f1) / 2)
    if len({*labels, *predictions}) > 1:  # scikit-learn warns about a single label
        assert got["matthews"] == pytest.approx(sk.matthews_corrcoef(labels, predictions))
    assert got["f1_macro"] == pytest.approx(sk.f1_score(labels, predictions, average="macro", zero_division=0.0))


@settings(max_examples=40, deadline=None)
@given(values)
def test_regression_agrees_with_scipy(pairs):
    labels, predictions = np.array(pairs, dtype=np.float64).T
    got = compute(REGRESSION_METRICS, kind="regression", labels=labels, predictions=predictions)
    if np.ptp(labels) > 1e-3 and np.ptp(predictions) > 1e-3:
        assert got["pearson"] == pytest.approx(stats.pearsonr(labels, predictions).statistic, abs=1e-9)
        assert got["spearman"] == pytest.approx(stats.spearmanr(labels, predictions).statistic, abs=1e-9)
        assert got["pearson_spearman"] == pytest.approx((got["pearson"] + got["spearman"]) / 2)
        assert got["r2"] == pytest.approx(sk.r2_score(labels, predictions))
    assert got["mse"] == pytest.approx(sk.mean_squared_error(labels, predictions))


@pytest.mark.parametrize("metric", ["matthews", "kappa_quadratic"])
def test_a_resample_of_one_label_gives_zero_also_where_its_weights_are_no_whole_numbers(metric, recwarn):
    gold, counts = np.array([2, 2, 2, 3]), np.random.default_rng(0).integers(1, 5, (500, 4)) * [1, 1, 1, 0]
    weights = counts * (4 / counts.sum(axis=1))[:, None]
    for predicted in (gold, np.full(4, 2)):
        assert not find(metric).resampled(gold, predicted[None], weights, None).any()
    assert not recwarn


def test_a_constant_side_gives_zero_and_no_warning(recwarn):
    got = compute(
        ["matthews", "f1"], kind="classification", labels=[0, 1, 0], predictions=[0, 0, 0], positive_label_index=1
    )
    assert set(got.values()) == {0.0}
    assert not list(recwarn)
