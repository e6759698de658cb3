"""Confidence histograms and projected views, with a method whose views are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from regft_core.evaluate.analyses.confidence import histogram
from regft_core.evaluate.analyses.views import tsne
from regft_core.hooks.declare import Setting
from regft_core.methods.tdt import Tdt, TdtConfig
from regft_core.schema.training import TrainingConfig
from tests.evaluate.tiny_run import TinyModel, evaluated, finished


def test_a_histogram_by_hand() -> None:
    rows = histogram(np.array([0.0, 0.24, 0.25, 0.5, 1.0]), 4).rows
    assert [row[0] for row in rows] == [0.125, 0.375, 0.625, 0.875]
    assert [row[1] for row in rows] == [2, 1, 1, 1]
    assert [row[2] for row in rows] == pytest.approx([0.4, 0.2, 0.2, 0.2])


# --------------------------------------------------------------------------------------------------- views


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
    assert not result.tables["dev"]["views"].listed


def test_t_sne_keeps_clusters_apart_and_follows_the_seed() -> None:
    rng = np.random.default_rng(0)
    clusters = np.concatenate([rng.normal(size=(30, 5)) + 20 * place for place in (0, 1)])
    points = tsne(clusters, 0)
    first, second = points[:30], points[30:]
    apart = np.linalg.norm(first.mean(0) - second.mean(0))
    assert apart > 2 * max(np.linalg.norm(own - own.mean(0), axis=1).mean() for own in (first, second))
    assert np.array_equal(points, tsne(clusters, 0))


# ------------------------------------------------------------------------------------------ what TDT says

SETTING = Setting(kind="classification", num_labels=2, seed=0, training=TrainingConfig())
KEPT = {"unit.weight": torch.zeros(1, 4), "unit.bias": torch.zeros(1)}


def test_tdts_views_are_those_of_its_equations() -> None:
    embedding = torch.arange(24.0).reshape(2, 3, 4)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])

    def views(kept: dict[str, torch.Tensor], added: list[bool], **options: Any) -> Any:
        return Tdt(TdtConfig(**options), SETTING).input_views(kept, embedding, mask, torch.tensor([added] * 2))

    none, sure = [False] * 3, KEPT | {"unit.bias": torch.tensor([50.0])}
    confidence: Any = Tdt(TdtConfig(), SETTING).token_confidence(KEPT, embedding)
    assert torch.equal(confidence, torch.full((2, 3), 0.5))
    torch.testing.assert_close(views(sure, none)["positive"], embedding)
    torch.testing.assert_close(views(sure, none)["negative"], torch.zeros_like(embedding))
    half, mean = views(KEPT, none), embedding[0, :2].mean(0)  # of real tokens
    torch.testing.assert_close(half["positive"][0, 1], 0.5 * embedding[0, 1] + 0.5 * mean)
    torch.testing.assert_close(half["negative"], 0.5 * embedding)
    torch.testing.assert_close(views(KEPT, none, perturbation="zero")["positive"], 0.5 * embedding)
    kept = views(KEPT, [True, False, False])
    torch.testing.assert_close(kept["negative"][:, 0], embedding[:, 0])
