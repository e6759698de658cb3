"""BitFit against the paper's numbers of parameters and the invariants of its card."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.errors import ModelError
from regft_core.methods.bitfit import WITHOUT, WITHOUT_SUBSET, BitFit, bias_terms, shares
from tests.errors import raises_code
from tests.methods.harness import TRAINING, Bench, entries
from tests.tiny import ARCHITECTURES

SUBSET = {"terms": "query_and_intermediate"}
RANDOM = {"chosen": "random"}
#: Biases of one tiny BERT layer: query, key, value, the map behind them and its norm, the feed-forward pair, its norm.
LAYER = 5 * 32 + 64 + 32 + 32
#: The norm of the embeddings, the pooler, and the head with its weight.
EMBEDDINGS, POOLER, HEAD = 32, 32, 2 * 32 + 2
WITH_BIASES = [name for name in ARCHITECTURES if name not in WITHOUT]
DECAYED = TRAINING.model_copy(update={"weight_decay": 10.0, "learning_rate": 0.01})


def trainable(options: dict[str, Any], **bench: Any) -> int:
    return sum(p.numel() for _, p in Bench([("bitfit", options)], **bench).trainee.named_trainable())


def bitfit(bench: Bench) -> BitFit:
    found = bench.stack.regularisers[0]
    assert isinstance(found, BitFit)
    return found


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


# ----------------------------------------------------------------------------- what is trained


def test_number_of_trained_entries() -> None:
    assert trainable({}) == 2 * LAYER + EMBEDDINGS + POOLER + HEAD
    assert trainable(SUBSET) == 2 * (32 + 64) + POOLER + HEAD


@pytest.mark.parametrize(
    ("size", "biases", "subset", "percent"),
    # The paper: 0.08 % of BERT large; 0.04 % of BERT base, about half of the biases, for b_q and b_m2.
    [("base", 102_912, 46_848, (0.09, 0.04)), ("large", 272_384, 123_904, (0.08, 0.04))],
)
def test_shares_of_bert_are_those_of_the_paper(
    size: str, biases: int, subset: int, percent: tuple[float, float]
) -> None:
    from transformers import BertConfig, BertModel

    large = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    with torch.device("meta"):
        model = BertModel(BertConfig(**(large if size == "large" else {})))
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    found = [sum(sizes[n] for n in bias_terms(sizes, terms)) for terms in ("all", "query_and_intermediate")]
    assert found == [biases, subset]
    whole = sum(sizes.values())
    assert tuple(round(100 * one / whole, 2) for one in found) == percent


@pytest.mark.parametrize("architecture", WITH_BIASES)
def test_everything_but_biases_and_the_head_is_bit_identical(architecture: str) -> None:
    bench = Bench([("bitfit", {})], architecture=architecture, training=DECAYED)
    before, head = bench.trainee.plain_weights(), set(bench.trainee.sites.head)
    moved = changed(before, bench.train())
    assert head <= moved
    assert all(name.endswith("bias") for name in moved - head)
    assert any("norm" in name.lower() for name in moved - head)
    assert len(moved - head) > 5


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


@pytest.mark.parametrize(("options", "refused"), [({}, WITHOUT), (SUBSET, WITHOUT_SUBSET), (RANDOM, WITHOUT)])
def test_encoders_without_such_biases_are_refused(options: dict[str, Any], refused: tuple[str, ...]) -> None:
    (entry,) = entries([("bitfit", options)])
    assert entry.declares.says.refused_architectures == refused
    for architecture in refused:
        with raises_code(ModelError, "encoder-does-not-fit", "outside its head"):
            Bench([("bitfit", options)], architecture=architecture)


def test_layers_that_are_drawn_anew_are_trained_whole() -> None:
    bench = Bench([("bitfit", {}), ("re_init", {"layers": 1})])
    names = {name for name, _ in bench.trainee.named_trainable()}
    assert "bert.encoder.layer.1.output.dense.weight" in names
    assert "bert.encoder.layer.0.output.dense.weight" not in names


# ------------------------------------------------------------------------------- the control


@pytest.mark.parametrize(("sizes", "total"), [([3, 3, 3], 4), ([1, 1, 1, 97], 50), ([5, 7], 12), ([10, 1], 0)])
def test_shares_add_up_and_exceed_no_size(sizes: list[int], total: int) -> None:
    found = shares(sizes, total)
    assert sum(found) == total
    assert all(0 <= one <= size for one, size in zip(found, sizes, strict=True))
    assert all(abs(one - total * size / sum(sizes)) < 1 for one, size in zip(found, sizes, strict=True))


@pytest.mark.parametrize("options", [{}, SUBSET])
@pytest.mark.parametrize("architecture", ["bert", "xlnet", "deberta", "bart", "albert"])
def test_the_control_trains_as_many_entries_and_no_bias(architecture: str, options: dict[str, Any]) -> None:
    biases = Bench([("bitfit", options)], architecture=architecture).trainee
    new = biases.new
    count = sum(p.numel() for name, p in biases.named_trainable() if name not in new)
    bench = Bench([("bitfit", {**options, **RANDOM})], architecture=architecture, training=DECAYED)
    masks = bitfit(bench).masks
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


def test_the_control_decays_nothing_that_biases_would_not() -> None:
    loop = Bench([("bitfit", RANDOM)], training=DECAYED).loop()
    decayed = {name for group in loop.groups if group["weight_decay"] for name in group["names"]}
    assert decayed == {"classifier.weight"}
    assert decayed == {
        name
        for group in Bench([("bitfit", {})], training=DECAYED).loop().groups
        if group["weight_decay"]
        for name in group["names"]
    }


def test_the_clip_norm_is_that_of_the_chosen_entries() -> None:
    bench = Bench([("bitfit", RANDOM)])
    step = bench.step()
    bench.stack.backward(step)
    bench.stack.before_clip(step)
    for name, mask in bitfit(bench).masks.items():
        gradient = bench.trainee.raw(name).grad
        assert gradient is not None
        assert not gradient[~mask].any()
