"""Analyses with answers worked out by hand: calibration, sensitivity of weights, confidence of tokens, views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from regft_core.data.batches import Padding, collate
from regft_core.evaluate.analyses import calibration, confidence, sensitivity, views
from regft_core.hooks.declare import Setting
from regft_core.methods.tdt import Tdt, TdtConfig
from regft_core.report.evaluations import mean_rows
from regft_core.schema.training import TrainingConfig
from tests.evaluate.tiny_run import TinyModel, evaluated, finished, judged, run_of
from tests.methods.harness import examples

#: Probabilities of two labels. The confidences are 0.6, 0.6, 0.8 and 0.9; the second answer is wrong.
FOUR = [(0.4, 0.6), (0.4, 0.6), (0.2, 0.8), (0.9, 0.1)]
GOLD = [1, 0, 1, 0]


def test_errors_and_the_diagram_of_four_rows_by_hand() -> None:
    found = evaluated("calibration", None, judged(FOUR, GOLD), bins=2)
    errors, table = found.scalars["dev"], found.tables["dev"]["reliability"]
    # Equal width: all in (0.5, 1]: |2.9 / 4 - 3 / 4|. Equal mass: {0.6, 0.6} and {0.8, 0.9}.
    assert errors["ece_width"] == pytest.approx(abs(2.9 - 3) / 4)
    assert errors["ece_mass"] == pytest.approx((abs(1.2 - 1) + abs(1.7 - 2)) / 4)
    assert errors["brier"] == pytest.approx((2 * 0.4**2 + 2 * 0.6**2 + 2 * 0.2**2 + 2 * 0.1**2) / 4)
    assert errors["nll"] == pytest.approx(-np.log([0.6, 0.4, 0.8, 0.9]).mean())
    assert table.columns == ("probability", "examples", "confidence", "accuracy")
    assert table.rows[0] == ("0 to 0.5", 0, None, None)  # an empty bin is one, too
    assert table.rows[1] == ("0.5 to 1", 4, pytest.approx(0.725), 0.75)
    assert (table.keys, table.weight) == (1, "examples")


def test_bins_of_equal_width_hold_their_upper_end_and_ties_share_a_bin_of_equal_mass() -> None:
    assert calibration.equal_width(np.array([0.0, 0.25, 0.2500001, 0.5, 1.0]), 4).tolist() == [0, 0, 1, 1, 3]
    ties = np.array([0.9, 0.5, 0.5, 0.5, 0.5, 0.6])
    which = calibration.equal_mass(ties, 3)
    assert len(set(which[1:5])) == 1
    order = np.random.default_rng(0).permutation(6)
    assert calibration.equal_mass(ties[order], 3).tolist() == which[order].tolist()
    spread = calibration.equal_mass(np.linspace(0.5, 1, 100), 10)
    assert np.bincount(spread).tolist() == [10] * 10


# --------------------------------------------------------------------------------------------------------- sensitivity


def test_counts_of_the_histogram_are_those_of_the_entries() -> None:
    rows = sensitivity.histogram(np.array([1e-7, 1.5e-7, 2e-5, 0.011]), (1e-8, 0.02), 1).rows
    assert dict(row[:2] for row in rows) == dict(zip(np.arange(-7.5, -1), (0, 2, 0, 1, 0, 0, 1)))
    values = np.exp(np.random.default_rng(0).normal(-12, 3, 5000))
    tables = [sensitivity.histogram(of, (1e-12, 1e3), 4) for of in (values, values[values > 1e-5], np.zeros(0))]
    assert [sum(row[1] for row in table.rows) for table in tables] == [5000, (values > 1e-5).sum(), 0]  # type: ignore[misc]
    assert sum(row[2] for row in mean_rows(tables)) == pytest.approx(1), "a bin that a seed left empty counts"


def test_concentration_of_equal_entries_is_the_diagonal_and_of_a_single_one_a_step() -> None:
    equal = sensitivity.concentration(np.ones(1000))
    assert [row[1] for row in equal.rows] == pytest.approx([row[0] for row in equal.rows])
    single = sensitivity.concentration(np.array([5.0] + [0.0] * 999))
    assert [row[1] for row in single.rows] == [0.0] + [1.0] * (len(single.rows) - 1)
    assert sensitivity.gini(np.ones(1000)) == pytest.approx(0, abs=1e-12)
    assert sensitivity.gini(np.array([5.0] + [0.0] * 999)) == pytest.approx(0.999)
    assert sensitivity.gini(np.array([3.0, 1.0])) == pytest.approx(0.25)
    assert sensitivity.gini(np.zeros(4)) == 0.0


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_sensitivity_is_weight_times_gradient_of_the_loss_on_training_rows(kind: str) -> None:
    """One batch of all rows, by hand: no moving average, no draw."""
    trained = TinyModel(kind=kind)
    trained.learned = rows = examples(11, kind=kind)
    values = sensitivity.measured(run_of("sensitivity", trained, batches=1, batch_size=11, decay=0.0))
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
        return sensitivity.measured(run_of("sensitivity", trained, seed=seed, **options))

    one, both = (values(batches=count, batch_size=8, decay=0.0) for count in (1, 2))
    # The first batch of both is the same, so the second one alone is what is left of the average.
    average = values(batches=2, batch_size=8, decay=0.75)
    np.testing.assert_allclose(average, 0.25 * both + 0.75 * 0.25 * one, rtol=1e-4, atol=1e-12)
    assert not np.allclose(values(1, batches=1, batch_size=8, decay=0.0), one, rtol=1e-3, atol=1e-12)
    run = run_of("sensitivity", trained, batches=5, batch_size=8)
    batches = [[row.idx for row in rows] for rows in sensitivity.drawn(trained.learned, run)]
    assert [len(set(rows)) for rows in batches] == [8] * 5
    assert not set(batches[0]) & set(batches[1])  # one order before the next


# ---------------------------------------------------------------------------------------------------- tokens and views


def test_a_histogram_by_hand() -> None:
    rows = confidence.histogram(np.array([0.0, 0.24, 0.25, 0.5, 1.0]), 4).rows
    assert [row[0] for row in rows] == [0.125, 0.375, 0.625, 0.875]
    assert [row[1] for row in rows] == [2, 1, 1, 1]
    assert [row[2] for row in rows] == pytest.approx([0.4, 0.2, 0.2, 0.2])


def test_a_view_that_is_the_input_lies_on_it_and_one_that_is_nothing_is_one_point() -> None:
    trained = TinyModel()
    trained.views = lambda embedding, mask, segment: {"positive": embedding.clone(), "negative": 0 * embedding}
    judged = finished(trained)
    result = evaluated("views", trained, judged, rows=12)
    points = {(row[0], row[1]): row[3:] for row in result.tables["dev"]["views"].rows}
    assert {view for _, view in points} == {"original", "positive", "negative"}
    assert len(points) == 3 * 12
    spread = np.ptp([row for (_, view), row in points.items() if view == "original"], axis=0)
    assert (spread > 1e-3).all()
    assert result.scalars["dev"]["cosine_positive"] == pytest.approx(1, abs=1e-6)
    assert result.scalars["dev"]["cosine_negative"] < 0.999


def test_t_sne_keeps_clusters_apart_and_follows_the_seed() -> None:
    rng = np.random.default_rng(0)
    clusters = np.concatenate([rng.normal(size=(30, 5)) + 20 * place for place in (0, 1)])
    points = views.tsne(clusters, 0)
    first, second = points[:30], points[30:]
    apart = np.linalg.norm(first.mean(0) - second.mean(0))
    assert apart > 2 * max(np.linalg.norm(own - own.mean(0), axis=1).mean() for own in (first, second))
    assert np.array_equal(points, views.tsne(clusters, 0))


SETTING = Setting(kind="classification", num_labels=2, seed=0, training=TrainingConfig())
KEPT = {"unit.weight": torch.zeros(1, 4), "unit.bias": torch.zeros(1)}


def test_tdts_views_are_those_of_its_equations() -> None:
    embedding = torch.arange(24.0).reshape(2, 3, 4)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])

    def views_of(kept: dict[str, torch.Tensor], added: list[bool], **options: Any) -> Any:
        return Tdt(TdtConfig(**options), SETTING).input_views(kept, embedding, mask, torch.tensor([added] * 2))

    none, sure = [False] * 3, KEPT | {"unit.bias": torch.tensor([50.0])}
    sure_of: Any = Tdt(TdtConfig(), SETTING).token_confidence(KEPT, embedding)
    assert torch.equal(sure_of, torch.full((2, 3), 0.5))
    torch.testing.assert_close(views_of(sure, none)["positive"], embedding)
    torch.testing.assert_close(views_of(sure, none)["negative"], torch.zeros_like(embedding))
    half, mean = views_of(KEPT, none), embedding[0, :2].mean(0)  # of real tokens
    torch.testing.assert_close(half["positive"][0, 1], 0.5 * embedding[0, 1] + 0.5 * mean)
    torch.testing.assert_close(half["negative"], 0.5 * embedding)
    torch.testing.assert_close(views_of(KEPT, none, perturbation="zero")["positive"], 0.5 * embedding)
    kept = views_of(KEPT, [True, False, False])
    torch.testing.assert_close(kept["negative"][:, 0], embedding[:, 0])
