"""Which tensors are trained, and how fast: BitFit, the top layers, layer-wise decay."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.methods.bitfit import WITHOUT, WITHOUT_SUBSET, bias_terms, shares
from regft_core.methods.layerwise_decay import LayerwiseDecayConfig, factors
from tests.methods.harness import TRAINING, Bench, changed
from tests.tiny import ARCHITECTURES

#: Of a tiny BERT: a layer and its biases (query, key, value, the map behind them, the feed-forward pair, two norms),
#: the pooler and its bias, the norm of the embeddings, the head.
LAYER, BIASES = 4 * (32 * 32 + 32) + (32 * 64 + 64) + (64 * 32 + 32) + 2 * 64, 5 * 32 + 64 + 32 + 32
POOLER, POOLER_BIAS, EMBEDDINGS, HEAD = 32 * 32 + 32, 32, 32, 2 * 32 + 2


@pytest.mark.parametrize(
    ("name", "options", "count"),
    [
        ("bitfit", {}, 2 * BIASES + EMBEDDINGS + POOLER_BIAS + HEAD),
        ("bitfit", {"terms": "query_and_intermediate"}, 2 * (32 + 64) + POOLER_BIAS + HEAD),
        ("bitfit", {"terms": "norms"}, 2 * 2 * 64 + 2 * EMBEDDINGS + HEAD),
        ("top_k_layers", {"layers": 0}, POOLER + HEAD),
        ("top_k_layers", {"layers": 1}, LAYER + POOLER + HEAD),
        ("top_k_layers", {"layers": 2}, 2 * LAYER + POOLER + HEAD),
        ("top_k_layers", {"layers": 0, "pooler": False}, HEAD),
    ],
)
def test_number_of_trained_entries(name: str, options: dict[str, Any], count: int) -> None:
    assert sum(p.numel() for _, p in Bench([(name, options)]).trainee.named_trainable()) == count


# -------------------------------------------------------------------------------------------------------------- bitfit


SUBSET = {"terms": "query_and_intermediate"}
RANDOM = {"chosen": "random"}
WITH_BIASES = [name for name in ARCHITECTURES if name not in WITHOUT]
DECAYED = TRAINING.model_copy(update={"weight_decay": 10.0, "learning_rate": 0.01})


@pytest.mark.parametrize(
    ("large", "biases", "subset", "percent"),
    # The paper: 0.08 % of BERT large; 0.04 % of BERT base, about half of the biases, for b_q and b_m2.
    [(False, 102_912, 46_848, (0.09, 0.04)), (True, 272_384, 123_904, (0.08, 0.04))],
)
def test_shares_of_bert_are_those_of_the_paper(
    large: bool, biases: int, subset: int, percent: tuple[float, float]
) -> None:
    from transformers import BertConfig, BertModel

    shape = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    with torch.device("meta"):
        model = BertModel(BertConfig(**(shape if large else {})))
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    counts = [sum(sizes[n] for n in bias_terms(sizes, terms)) for terms in ("all", "query_and_intermediate")]
    assert counts == [biases, subset]
    assert tuple(round(100 * count / sum(sizes.values()), 2) for count in counts) == percent


@pytest.mark.parametrize("architecture", WITH_BIASES)
def test_biases_and_the_head_are_trained_and_nothing_else(architecture: str) -> None:
    trainee = Bench([("bitfit", {})], architecture=architecture).trainee
    names, head = {name for name, _ in trainee.named_trainable()}, set(trainee.sites.head)
    assert head <= names
    assert all(name.endswith("bias") for name in names - head)
    assert any("norm" in name.lower() for name in names - head)
    assert len(names - head) > 5


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name not in WITHOUT_SUBSET])
def test_the_subset_is_one_query_and_one_feed_forward_bias_per_block(architecture: str) -> None:
    bench = Bench([("bitfit", SUBSET)], architecture=architecture)
    head = bench.trainee.sites.head
    names = [n for n, _ in bench.trainee.named_trainable() if n not in head and "pooler" not in n]
    inside = [site.name for site in bench.trainee.sites.layers]
    assert all(name.startswith(tuple(inside)) for name in names)
    sizes = sorted(bench.trainee.raw(name).numel() for name in names)
    blocks = len(set(inside))
    cross = sum("encoder_attn" in name for name in names)  # BART's decoder has a second attention
    assert sizes == [32] * (blocks + cross) + [64] * blocks


def test_layers_that_are_drawn_anew_are_trained_whole() -> None:
    bench = Bench([("bitfit", {}), ("re_init", {"layers": 1})])
    names = {name for name, _ in bench.trainee.named_trainable()}
    assert "bert.encoder.layer.1.output.dense.weight" in names
    assert "bert.encoder.layer.0.output.dense.weight" not in names


@pytest.mark.parametrize(("sizes", "total"), [([3, 3, 3], 4), ([1, 1, 1, 97], 50), ([5, 7], 12), ([10, 1], 0)])
def test_shares_add_up_and_exceed_no_size(sizes: list[int], total: int) -> None:
    found = shares(sizes, total)
    assert sum(found) == total
    assert all(0 <= one <= size for one, size in zip(found, sizes, strict=True))
    assert all(abs(one - total * size / sum(sizes)) < 1 for one, size in zip(found, sizes, strict=True))


@pytest.mark.parametrize("options", [{}, SUBSET])
@pytest.mark.parametrize("architecture", ["bert", "xlnet", "bart"])
def test_the_control_trains_as_many_entries_and_no_bias(architecture: str, options: dict[str, Any]) -> None:
    biases = Bench([("bitfit", options)], architecture=architecture).trainee
    new = biases.new
    count = sum(p.numel() for name, p in biases.named_trainable() if name not in new)
    bench = Bench([("bitfit", {**options, **RANDOM})], architecture=architecture, training=DECAYED)
    masks = bench.method.masks
    assert sum(int(mask.sum()) for mask in masks.values()) == count
    before, head = bench.trainee.plain_weights(), set(bench.trainee.sites.head)
    after = bench.train()
    moved = changed(before, after)
    assert head <= moved
    assert moved - head <= set(masks)
    for name in moved - head:
        assert not (before[name] != after[name])[~masks[name]].any()
    share = sum(int((before[n] != after[n]).sum()) for n in masks) / count
    assert share > 0.7  # a dead unit leaves some entries without a gradient


# -------------------------------------------------------------------------------------------------------- top k layers


def test_the_bottom_end_is_a_control() -> None:
    bench = Bench([("top_k_layers", {"layers": 1, "end": "bottom"})])
    inside = {name.split(".")[3] for name, _ in bench.trainee.named_trainable() if ".layer." in name}
    assert inside == {"0"}


# ----------------------------------------------------------------------------------------------------- layerwise decay


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
