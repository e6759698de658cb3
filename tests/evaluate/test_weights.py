"""Sensitivity of weights, on arrays with known answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from regft_core.data.batches import Padding, collate
from regft_core.evaluate.analyses.sensitivity import concentration, drawn, gini, histogram, measured
from tests.evaluate.tiny_run import TinyModel, run_of
from tests.methods.harness import examples


def test_counts_of_the_histogram_are_those_of_the_entries() -> None:
    rows = histogram(np.array([1e-7, 1.5e-7, 2e-5, 0.011]), 1).rows
    assert [(row[0], row[1]) for row in rows] == [(-6.5, 2), (-5.5, 0), (-4.5, 1), (-3.5, 0), (-2.5, 0), (-1.5, 1)]
    assert [row[2] for row in rows] == pytest.approx([0.5, 0, 0.25, 0, 0, 0.25])
    values = np.exp(np.random.default_rng(0).normal(-12, 3, 5000))
    assert sum(row[1] for row in histogram(values, 4).rows) == 5000  # type: ignore[misc]
    assert histogram(np.zeros(0), 4).rows == ()


def test_concentration_of_equal_entries_is_the_diagonal_and_of_a_single_one_a_step() -> None:
    equal = concentration(np.ones(1000))
    assert [row[1] for row in equal.rows] == pytest.approx([row[0] for row in equal.rows])
    single = concentration(np.array([5.0] + [0.0] * 999))
    assert [row[1] for row in single.rows] == [0.0] + [1.0] * (len(single.rows) - 1)
    assert gini(np.ones(1000)) == pytest.approx(0, abs=1e-12)
    assert gini(np.array([5.0] + [0.0] * 999)) == pytest.approx(0.999)
    assert gini(np.array([3.0, 1.0])) == pytest.approx(0.25)
    assert gini(np.zeros(4)) == 0.0


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_sensitivity_is_weight_times_gradient_of_the_loss_on_training_rows(kind: str) -> None:
    """One batch of all rows, by hand: no moving average, no draw."""
    trained = TinyModel(kind=kind)
    trained.learned = rows = examples(11, kind=kind)
    values = measured(run_of("sensitivity", trained, batches=1, batch_size=11, decay=0.0))
    encoded = trained.encode(rows)
    batch = collate(encoded, range(11), Padding(0), kind)
    logits = trained.model(**batch.model_inputs()).logits
    if kind == "classification":
        loss = torch.nn.functional.cross_entropy(logits, batch.labels)
    else:
        loss = torch.nn.functional.mse_loss(logits[:, 0], batch.labels)
    names = [
        name for name, _ in trained.model.named_parameters() if ".encoder.layer." in name and "LayerNorm" not in name
    ]
    parameters = [trained.model.get_parameter(name) for name in names]
    slopes = torch.autograd.grad(loss, parameters)
    expected = torch.cat([(p * s).abs().ravel() for p, s in zip(parameters, slopes, strict=True)])
    np.testing.assert_allclose(values, expected.detach().numpy(), rtol=2e-3, atol=1e-9)
    assert values.max() > 1e-6


def test_it_is_a_moving_average_over_batches_drawn_with_the_seed() -> None:
    trained = TinyModel()
    trained.learned = examples(20)

    def values(seed: int = 0, **options: Any) -> Any:
        return measured(run_of("sensitivity", trained, seed=seed, **options))

    one, both = (values(batches=count, batch_size=8, decay=0.0) for count in (1, 2))
    # The first batch of both is the same, so the second one alone is what is left of the average.
    average = values(batches=2, batch_size=8, decay=0.75)
    np.testing.assert_allclose(average, 0.25 * both + 0.75 * 0.25 * one, rtol=1e-4, atol=1e-12)
    assert not np.allclose(values(1, batches=1, batch_size=8, decay=0.0), one, rtol=1e-3, atol=1e-12)
    run = run_of("sensitivity", trained, batches=5, batch_size=8)
    batches = [[row.idx for row in rows] for rows in drawn(trained.learned, run)]
    assert [len(set(rows)) for rows in batches] == [8] * 5
    assert not set(batches[0]) & set(batches[1])  # one order before the next
