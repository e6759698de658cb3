"""States and embedding outputs of a finished model, for every family."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.evaluate.hidden import embedding_output, layer_states, pooled
from regft_core.models.sites import classify
from tests.evaluate.tiny_run import TinyModel
from tests.methods.harness import examples
from tests.tiny import ARCHITECTURES


def batch_of(trained: TinyModel, count: int = 4) -> Any:
    return next(trained.batches(trained.encode(examples(count, pair=trained.per_example == 2))))


def hooks_of(model: Any) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_family_shows_its_layers_and_is_left_as_it_was(architecture: str) -> None:
    trained = TinyModel(architecture)
    batch, before = batch_of(trained), hooks_of(trained.model)
    with torch.no_grad():
        logits, last = classify(trained.model, batch.model_inputs(), need_hidden=True)
    states = layer_states(trained.model, batch)
    rows, width = batch.input_ids.shape
    assert len(states) == (5 if architecture == "bart" else 3)
    assert all(one.shape[:2] == (rows, width) for one in states)
    torch.testing.assert_close(states[-1], last)
    assert embedding_output(trained.model, batch).shape[:2] == (rows, width)
    assert hooks_of(trained.model) == before
    with torch.no_grad():
        assert torch.equal(classify(trained.model, batch.model_inputs())[0], logits)
    assert all(parameter.grad is None for parameter in trained.model.parameters())


def test_states_are_those_of_transformers() -> None:
    trained = TinyModel()
    batch = batch_of(trained)
    with torch.no_grad():
        expected = trained.model.bert(**batch.model_inputs(), output_hidden_states=True).hidden_states
    for own, theirs in zip(layer_states(trained.model, batch), expected, strict=True):
        torch.testing.assert_close(own, theirs)
    torch.testing.assert_close(embedding_output(trained.model, batch), expected[0])


def test_pairs_in_two_rows_are_pooled_as_their_head_reads_them() -> None:
    trained = TinyModel(separately=True)
    batch = batch_of(trained)
    vectors = pooled(trained.model, layer_states(trained.model, batch)[-1], batch, "mean")
    assert vectors.shape == (len(batch.labels), 4 * 32)
    logits = trained.model.classifier(vectors)
    torch.testing.assert_close(logits, classify(trained.model, batch.model_inputs())[0])
