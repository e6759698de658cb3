"""Finished masks give the bits that the encoder's own give, whatever the family."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.models.masks import prepared
from regft_core.models.sites import classify
from tests.methods.harness import Bench
from tests.tiny import ARCHITECTURES


def batches(bench: Bench) -> list[Any]:
    """A batch with padding and one without."""
    padded = bench.stream.collate(range(4))
    alike = bench.stream.collate([0, 0])
    assert padded.padded is True
    assert alike.padded is False
    return [padded, alike]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logits_are_the_same_bits(architecture: str, attention: str) -> None:
    bench = Bench(architecture=architecture, pair=True, attention=attention)
    bench.model.eval()
    for batch in batches(bench):
        logits, hidden = classify(bench.model, batch.model_inputs(), need_hidden=True)
        again, states = classify(bench.model, batch.model_inputs(), need_hidden=True, padded=batch.padded)
        assert torch.equal(logits, again)
        assert hidden is not None
        assert states is not None
        assert torch.equal(hidden, states)


def test_an_unknown_mask_and_a_family_that_builds_its_own_get_the_mask_itself() -> None:
    for architecture, padded in (("bert", None), ("xlnet", True), ("deberta", False)):
        bench = Bench(architecture=architecture)
        mask = bench.stream.collate(range(4)).attention_mask
        assert prepared(bench.model.base_model, mask, padded) is mask
