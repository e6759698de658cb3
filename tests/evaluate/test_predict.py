"""Prediction order, independence of the batch, evaluation mode, and failures, on a small random encoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regft_core.data.batches import Padding
from regft_core.data.encode import Encoded
from regft_core.errors import OutOfMemory, RunFailed
from regft_core.evaluate.logits import predict
from tests.errors import raises_code
from tests.evaluate.tiny_run import TinyModel
from tests.methods.harness import examples


@pytest.fixture
def model():
    return TinyModel(labels=("a", "b", "c")).model


@pytest.fixture
def encoded():
    """Twelve texts of different lengths."""
    return TinyModel().encode(examples(12))


def alone(model, encoded):
    model.eval()
    with torch.inference_mode():
        return np.concatenate([model(input_ids=torch.tensor([row])).logits.numpy() for row in encoded.input_ids])


@pytest.mark.parametrize("tokens", [1, 40, 60, None])
def test_logits_are_in_order_whatever_the_batch(model, encoded, tokens):
    got = predict(model, encoded, batch_tokens=tokens, padding=Padding(0))
    assert (got.shape, got.dtype) == ((12, 3), np.float32)
    np.testing.assert_allclose(got, alone(model, encoded), atol=2e-6)


def test_dropout_is_off_and_every_training_flag_comes_back(model, encoded):
    model.train()
    model.bert.embeddings.dropout.eval()  # a submodule that differs from the root
    flags = [module.training for module in model.modules()]
    first = predict(model, encoded, padding=Padding(0))
    assert np.array_equal(first, predict(model, encoded, padding=Padding(0)))
    assert [module.training for module in model.modules()] == flags
    assert all(parameter.grad is None for parameter in model.parameters())


def test_flags_come_back_after_a_failure_and_the_example_is_named(model, encoded):
    model.train()
    token = encoded.input_ids[3][-2]  # the last word of a text
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[token] = float("nan")
    hit = [token in row for row in encoded.input_ids]
    assert sum(hit) < 12
    with raises_code(RunFailed, "not-finite", f"{sum(hit)} of 12", f"idx {hit.index(True)}"):
        predict(model, encoded, padding=Padding(0))
    assert model.training


def test_batches_by_tokens_halve_until_they_fit(model, encoded, monkeypatch):
    """Memory that runs out is a fake here: a CPU has no such error."""
    expected = predict(model, encoded, batch_tokens=1, padding=Padding(0))
    original, sizes, most = type(model).forward, [], 4 * max(encoded.lengths)

    def limited(self, *args, **kwargs):
        tokens = kwargs["input_ids"].numel()
        sizes.append(tokens)
        if tokens > most:
            raise torch.OutOfMemoryError("a fake")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(type(model), "forward", limited)
    got = predict(model, encoded, batch_tokens=500, padding=Padding(0))
    np.testing.assert_allclose(got, expected, atol=2e-6)
    assert sizes[0] == 3 * most
    assert all(size <= most for size in sizes[2:])
    long = Encoded([[1] * (most + 1)], None, [0], ["r"], [[0] * (most + 1)])
    with raises_code(OutOfMemory, "out-of-memory", f"one example of {most + 1}"):
        predict(model, long, batch_tokens=500, padding=Padding(0))


def test_the_budget_of_tokens_counts_all_rows_of_an_example(monkeypatch):
    """Two texts that are encoded separately are two rows: a budget for one of them would be twice the memory."""
    trained = TinyModel(separately=True)
    encoded = trained.encode(examples(12, pair=True))
    assert encoded.rows_per_example == 2
    expected, sizes = trained.predict(encoded), []
    original = type(trained.model).forward

    def counted(self, *args, **kwargs):
        sizes.append(kwargs["input_ids"].numel())
        return original(self, *args, **kwargs)

    monkeypatch.setattr(type(trained.model), "forward", counted)
    got = predict(trained.model, encoded, batch_tokens=100, padding=Padding(1))
    np.testing.assert_allclose(got, expected, atol=2e-6)
    assert len(sizes) > 1
    assert max(sizes) <= 100
