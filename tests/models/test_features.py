"""Kept vectors of a frozen encoder: what is read gives the logits of a pass, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.data.batches import Batch, collate, padding_of
from regft_core.data.encode import encode
from regft_core.evaluate.logits import predict
from regft_core.models.features import Features, answers
from regft_core.models.heads import last_linear
from regft_core.models.sites import classify
from tests.methods.harness import examples, source_of, tokenizer_of


class Memory(dict[str, Tensor]):
    """Vectors in memory, and how often some were asked for that are there."""

    hits = 0

    def get(self, key: str) -> Tensor | None:  # type: ignore[override]
        self.hits += key in self
        return self[key].clone() if key in self else None

    def __setitem__(self, key: str, vectors: Tensor) -> None:
        super().__setitem__(key, vectors.clone())


def batch_of(architecture: str, rows: list[int], *, pair: bool = False, per_example: int = 1) -> Batch:
    tokenizer = tokenizer_of(source_of(architecture))
    encoded = encode(examples(12, pair=pair), tokenizer, 32, rows_per_example=per_example)
    padding = padding_of(tokenizer)
    return collate(encoded, rows, padding)


def linear_of(model: Any) -> str:
    return last_linear(model, model.regft_new_parameters, model.config.num_labels)


CASES = [
    ("bert", "mean", 2),
    ("mpnet", "mean", 1),
    ("deberta-v2", "cls", 1),
    ("bert", "head", 1),
    ("roberta", "head", 1),
]


@pytest.mark.parametrize(("architecture", "pooling", "per_example"), CASES)
def test_logits_of_kept_vectors_are_those_of_a_pass(
    load: Any, architecture: str, pooling: str, per_example: int
) -> None:
    model = load(architecture, pooling=pooling, rows_per_example=per_example).model.eval()
    batch = batch_of(architecture, [3, 0, 7, 5, 11], pair=per_example == 2, per_example=per_example)
    memory, calls = Memory(), []
    model.base_model.register_forward_pre_hook(lambda *_: calls.append(1))
    features = Features(memory, {"encoder": "e"})
    with torch.no_grad():
        expected, _ = classify(model, batch.model_inputs(), padded=batch.padded)
        first = answers(model, linear_of(model), features)(batch)
        with torch.inference_mode():  # predictions are made so
            second = answers(model, linear_of(model), features)(batch)
    assert (len(calls), len(memory), memory.hits) == (2, 1, 1)
    for received, logits in (first, second):
        assert torch.equal(logits, expected)
        assert torch.equal(received, first[0])


def test_heads_with_more_behind_the_linear_run_with_their_encoder(load: Any) -> None:
    """EuroBERT averages the logits of its tokens: nothing is kept, and a row's vector is the mean over its tokens."""
    model = load("eurobert").model.eval()
    batch, memory = batch_of("eurobert", [0, 1, 2]), Memory()
    with torch.no_grad():
        expected, _ = classify(model, batch.model_inputs(), padded=batch.padded)
        for _ in range(2):
            received, logits = answers(model, linear_of(model), Features(memory, {}))(batch)
            assert torch.equal(logits, expected)
            assert torch.allclose(model.get_submodule(linear_of(model))(received), expected, atol=1e-6)
    assert not memory


def test_the_key_has_the_tokens_the_width_the_drawn_parameters_and_the_precision(load: Any) -> None:
    model = load("roberta").model.eval()
    batch = batch_of("roberta", [3, 0, 7])
    kept = Features(Memory(), {"encoder": "e"})
    drawn = {"dense": torch.ones(2)}
    key = kept.of(model, "x", "fp32", drawn).key(batch)
    assert key == kept.of(model, "x", "fp32", {"dense": torch.ones(2)}).key(replace(batch, labels=batch.labels + 1))
    others = [
        kept.of(model, "x", "fp32", drawn).key(batch_of("roberta", [0, 3, 7])),
        kept.of(model, "x", "fp32", drawn).key(batch_of("roberta", [3, 0])),
        kept.of(model, "x", "fp32", drawn).key(replace(batch, padded=not batch.padded)),
        kept.of(model, "x", "fp32", {"dense": torch.zeros(2)}).key(batch),
        kept.of(model, "x", "bf16", drawn).key(batch),
        kept.of(model, "y", "fp32", drawn).key(batch),
        Features(Memory(), {"encoder": "f"}).of(model, "x", "fp32", drawn).key(batch),
    ]
    assert len({key, *others}) == 8


def test_a_whole_set_is_predicted_from_its_batches(load: Any) -> None:
    model, tokenizer = load("bert", pooling="mean").model.eval(), tokenizer_of(source_of("bert"))
    encoded, memory = encode(examples(12), tokenizer, 32), Memory()
    padding = padding_of(tokenizer)
    options: dict[str, Any] = {"batch_tokens": 64, "padding": padding}
    plain = predict(model, encoded, **options)
    for _ in range(2):
        assert (predict(model, encoded, **options, features=Features(memory, {})) == plain).all()
    assert len(memory) == memory.hits > 1
    with torch.no_grad():
        model.classifier.weight.mul_(2.0)  # another head on the same vectors
    assert (
        predict(model, encoded, **options, features=Features(memory, {})) == predict(model, encoded, **options)
    ).all()
