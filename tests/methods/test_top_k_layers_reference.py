"""Top-K fine-tuning against the invariants of its card."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.methods.harness import Bench, same


def trainable(options: dict[str, Any], **bench: Any) -> int:
    return sum(p.numel() for _, p in Bench([("top_k_layers", options)], **bench).trainee.named_trainable())


#: One tiny BERT layer: 4 attention matrices and biases, the feed-forward pair, two norms.
LAYER = 4 * (32 * 32 + 32) + (32 * 64 + 64) + (64 * 32 + 32) + 2 * 64
POOLER = 32 * 32 + 32
HEAD = 2 * 32 + 2


def test_number_of_trained_entries() -> None:
    assert trainable({"layers": 0}) == POOLER + HEAD
    assert trainable({"layers": 1}) == LAYER + POOLER + HEAD
    assert trainable({"layers": 2}) == 2 * LAYER + POOLER + HEAD
    assert trainable({"layers": 0, "pooler": False}) == HEAD


def test_a_layer_of_bert_large_has_the_size_on_the_card() -> None:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    with torch.device("meta"):
        layer = BertLayer(BertConfig(hidden_size=1024, num_attention_heads=16, intermediate_size=4096))
    assert sum(p.numel() for p in layer.parameters()) == 12_596_224


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet", "deberta", "bart", "modernbert"])
def test_the_frozen_part_is_bit_identical(architecture: str) -> None:
    bench = Bench([("top_k_layers", {"layers": 1})], architecture=architecture)
    top = bench.trainee.sites.layers[-1].name + "."
    before = bench.trainee.plain_weights()
    after = bench.train()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert any(name.startswith(top) for name in changed)
    base = bench.model.base_model_prefix + "."
    inside = {name for name in changed if name.startswith(base) and "pooler" not in name and "final_norm" not in name}
    assert all(name.startswith(top) for name in inside)
    assert set(bench.trainee.sites.head) <= changed


@pytest.mark.parametrize("layers", [2, "all"])
def test_all_layers_with_embeddings_are_plain_fine_tuning(layers: int | str) -> None:
    options = {"layers": layers, "embeddings": True}
    assert same(Bench([("top_k_layers", options)]).train(), Bench().train())


def test_the_bottom_end_is_a_control() -> None:
    bench = Bench([("top_k_layers", {"layers": 1, "end": "bottom"})])
    inside = {name.split(".")[3] for name, _ in bench.trainee.named_trainable() if ".layer." in name}
    assert inside == {"0"}
