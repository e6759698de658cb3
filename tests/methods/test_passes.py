"""The counter of a fit's passes, which holds declared against measured, sees what it must see."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.hooks.base import Cost, Declares, Regulariser, Says
from regft_core.models.sites import classify
from regft_core.schema.method import declared_fit
from regft_core.training.fitting import FitData
from regft_core.training.trainee import Trainee
from tests.methods.harness import Bench, Listed, entries
from tests.methods.passes import counted_fits


class Reader(Regulariser):
    """Two passes over every row, one of them back, past the step that counts its own."""

    name = "reader"

    def fit(self, trainee: Trainee, data: FitData) -> None:
        for batch in data.sequential(5):  # the last one is smaller
            with torch.no_grad():
                classify(trainee.model, batch.model_inputs())
            logits, _ = classify(trainee.model, batch.model_inputs())
            weights = [p for p in trainee.model.parameters() if p.requires_grad]
            torch.autograd.grad(logits.sum(), weights, allow_unused=True)


class Declaring(Reader):
    """The same, declared."""

    name = "declaring"

    @classmethod
    def declare(cls, options: Any) -> Declares:
        return Declares(says=Says(fit_cost=Cost(2, 1)))


def counted(regularisers: list[Listed], **form: Any) -> tuple[float, float]:
    with counted_fits() as found:
        Bench(regularisers, **form)
    (only,) = found
    return only.per_row


@pytest.mark.parametrize("form", [{}, {"pooling": "mean"}, {"pooling": "mean", "separately": True}])
def test_passes_that_nobody_declared_are_seen(form: dict[str, Any]) -> None:
    """Texts of a pair that are rows of their own are one example still."""
    assert counted([(Reader, {})], **form) == (2, 1)
    assert counted([("linear_head", {})], **form) == (1, 0)
    assert counted([("label_smoothing", {})], **form) == (0, 0)


@pytest.mark.parametrize("architecture", ["xlnet", "bart", "deberta-v2", "distilbert"])
def test_every_family_is_counted(architecture: str) -> None:
    assert counted([(Reader, {})], architecture=architecture) == (2, 1)


def test_fits_of_one_phase_add_up() -> None:
    """Each goes over the rows by itself, unlike steps, which they share."""
    both: list[Listed] = [(Declaring, {}), ("linear_head", {})]
    assert declared_fit(entries(both)) == Cost(3, 1)
    # The head was frozen down to its last linear before either of them ran, so nothing goes back to the encoder.
    assert counted(both) == (3, 0)
    assert declared_fit(entries([("hype", {})])) == Cost(0, 0)
