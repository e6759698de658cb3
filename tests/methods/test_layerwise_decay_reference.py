"""Layer-wise learning-rate decay: factors worked out by hand."""

from __future__ import annotations

import pytest

from regft_core.methods.layerwise_decay import LayerwiseDecayConfig, factors
from tests.methods.harness import Bench

DEPTHS = {"embeddings": 0, "first": 1, "second": 2, "head": 3}
SIZES = {"embeddings": 10, "first": 20, "second": 10, "head": 5}


def test_worked_factors() -> None:
    options = LayerwiseDecayConfig(decay=0.5)
    assert factors(DEPTHS, 2, SIZES, options) == {"embeddings": 0.125, "first": 0.25, "second": 0.5, "head": 1.0}
    released = options.model_copy(update={"variant": "released"})
    assert factors(DEPTHS, 2, SIZES, released) == {"embeddings": 0.0625, "first": 0.125, "second": 0.25, "head": 1.0}


def test_the_flat_control_has_the_same_mean() -> None:
    flat = factors(DEPTHS, 2, SIZES, LayerwiseDecayConfig(decay=0.5, shape="flat"))
    mean = (10 * 0.125 + 20 * 0.25 + 10 * 0.5) / 40
    assert flat == pytest.approx({"embeddings": mean, "first": mean, "second": mean, "head": 1.0})


def test_every_parameter_gets_the_rate_of_its_depth() -> None:
    loop = Bench([("layerwise_decay", {"decay": 0.5})]).loop()
    rates = {name: group["base_lr"] for group in loop.groups for name in group["names"]}
    expected = {
        "bert.embeddings.word_embeddings.weight": 0.125e-3,
        "bert.encoder.layer.0.output.LayerNorm.bias": 0.25e-3,
        "bert.encoder.layer.1.output.dense.weight": 0.5e-3,
        "bert.pooler.dense.weight": 1e-3,
        "classifier.bias": 1e-3,
    }
    assert {name: rates[name] for name in expected} == pytest.approx(expected)


def test_weight_decay_still_spares_biases_and_norms() -> None:
    loop = Bench([("layerwise_decay", {"decay": 0.5})]).loop()
    decays = {name: group["weight_decay"] for group in loop.groups for name in group["names"]}
    assert decays["bert.encoder.layer.1.output.dense.bias"] == 0
    assert decays["bert.encoder.layer.1.output.dense.weight"] == 0.01
