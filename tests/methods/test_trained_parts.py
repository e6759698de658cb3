"""Which tensors are trained, and how fast: BitFit, the top layers, layer-wise decay; and what they start from."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from regft_core.methods.bitfit import WITHOUT, WITHOUT_SUBSET, bias_terms, shares
from regft_core.methods.layerwise_decay import LayerwiseDecayConfig, factors
from regft_core.methods.noisy_tune import deviations
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


def test_the_bottom_end_is_a_control() -> None:
    bench = Bench([("top_k_layers", {"layers": 1, "end": "bottom"})])
    inside = {name.split(".")[3] for name, _ in bench.trainee.named_trainable() if ".layer." in name}
    assert inside == {"0"}


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


def weights(options: dict[str, object] | None = None, **bench: object) -> dict[str, torch.Tensor]:
    stack = [] if options is None else [("re_init", options)]
    return Bench(stack, **bench).trainee.plain_weights()  # type: ignore[arg-type]


@pytest.mark.parametrize("architecture", ["bert", "xlnet", "deberta", "bart", "modernbert"])
def test_everything_below_is_bit_identical(architecture: str) -> None:
    # ModernBERT's masked LM holds the head that its encoder alone lacks.
    model = {"architecture": architecture, "masked_lm": architecture == "modernbert"}
    plain, drawn = weights(**model), weights({"layers": 1}, **model)
    moved = changed(plain, drawn)
    top = Bench(architecture=architecture).trainee.sites.layers[-1].name + "."
    pretrained_above = {n for n in moved if "pooler" in n or n.startswith("head.")}
    # XLNet's raw matrices too; a tiny model's biases and norms have the values that are drawn for them.
    assert {name for name, value in plain.items() if name.startswith(top) and value.dim() > 1} <= moved
    assert all(name.startswith(top) for name in moved - pretrained_above)
    assert bool(pretrained_above) == (architecture in ("bert", "modernbert"))


def test_drawn_tensors_have_the_deviation_of_the_configuration() -> None:
    drawn = weights({"layers": 2})
    matrices = [v.flatten() for n, v in drawn.items() if n.startswith("bert.encoder.layer.") and v.dim() == 2]
    assert float(torch.cat(matrices).std()) == pytest.approx(0.1, rel=0.01)  # the tiny model's initializer_range
    vectors = {n: v for n, v in drawn.items() if n.startswith("bert.encoder.layer.") and v.dim() == 1}
    assert all(float(v.abs().max()) == 0 for n, v in vectors.items() if n.endswith("bias"))
    assert all(bool((v == 1).all()) for n, v in vectors.items() if n.endswith("weight"))
    assert len(vectors) == 2 * (6 + 2 + 2)


def test_drawn_norms_only_scale_to_one() -> None:
    trainee = Bench([("re_init", {"layers": 1})], architecture="gemma3_text").trainee
    norm = trainee.sites.layers[-1].module.input_layernorm
    assert float(norm(torch.randn(3, 32)).detach().square().mean()) == pytest.approx(1.0, abs=1e-3)


def test_the_pooler_goes_with_the_layers_or_alone_or_not_at_all() -> None:
    plain = weights()
    names = ("bert.pooler.dense.weight", "bert.encoder.layer.1.output.dense.weight")
    for options, expected in (
        ({"layers": 1}, [True, True]),
        ({"layers": 1, "pooler": False}, [False, True]),
        ({"layers": 0}, [True, False]),
    ):
        drawn = weights(options)
        assert [not torch.equal(plain[name], drawn[name]) for name in names] == expected
    assert float(weights({"layers": 0})["bert.pooler.dense.bias"].abs().max()) == 0


def test_a_pooler_that_the_checkpoint_lacks_is_drawn_as_in_every_arm() -> None:
    plain, drawn = weights(masked_lm=True), weights({"layers": 1}, masked_lm=True)
    assert torch.equal(plain["bert.pooler.dense.weight"], drawn["bert.pooler.dense.weight"])


def moved(options: dict[str, object], **bench: object) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """(change of every tensor before training, tensors without noise)."""
    plain = Bench(**bench).trainee.plain_weights()  # type: ignore[arg-type]
    noisy = Bench([("noisy_tune", options)], **bench).trainee.plain_weights()  # type: ignore[arg-type]
    names = [name for name, value in plain.items() if value.is_floating_point()]
    return {name: noisy[name].double() - plain[name].double() for name in names}, plain


def test_worked_numbers_of_the_deviation() -> None:
    # Entries 1, 2, 3, 4: the squares of the distances to 2.5 sum to 5, so std is sqrt(5 / 3).
    tensors = {"four": torch.tensor([1.0, 2.0, 3.0, 4.0]), "one": torch.tensor([7.0]), "flat": torch.ones(4)}
    assert deviations(tensors, "tensor") == pytest.approx({"four": math.sqrt(5 / 3), "flat": 0.0})
    # One size for all: 4 entries of variance 5 / 3 and 4 of variance 0.
    assert deviations(tensors, "global") == pytest.approx({"four": math.sqrt(5 / 6), "flat": math.sqrt(5 / 6)})


def test_tied_tensors_are_perturbed_once() -> None:
    """BART's encoder and decoder look words up in one table, which its state lists under three names."""
    change, plain = moved({"intensity": 0.15}, architecture="bart")
    names = [name for name in plain if name.endswith(("shared.weight", "embed_tokens.weight"))]
    assert len(names) == 3
    one, *others = (change[name] for name in names)
    assert all(torch.equal(one, other) for other in others)
    # Uniform noise of one draw; the sum of two would be larger by the root of 2.
    std = float(plain[names[0]].double().std())
    assert float(one.std()) == pytest.approx(0.15 / math.sqrt(12) * std, rel=0.05)


def test_the_noise_has_the_stated_share_of_the_deviation_and_no_more_than_half_the_intensity() -> None:
    change, plain = moved({"intensity": 0.15})
    for name, difference in change.items():
        bound = 0.075 * float(plain[name].double().std()) if plain[name].numel() > 1 else 0.0
        assert float(difference.abs().max()) <= bound * (1 + 1e-4) + 1e-8, name
    relative = torch.cat(
        [
            (value / plain[name].double().std()).flatten()
            for name, value in change.items()
            if plain[name].dim() > 1 and float(value.abs().max()) > 0
        ]
    )
    assert float(relative.std()) == pytest.approx(0.15 / math.sqrt(12), rel=0.02)  # 0.0433
    assert float(relative.mean()) == pytest.approx(0.0, abs=3 * 0.0433 / math.sqrt(relative.numel()))


def test_the_paper_spares_the_new_head_and_the_release_does_not() -> None:
    paper, plain = moved({"variant": "paper"})
    released, _ = moved({"variant": "released"})
    assert float(paper["classifier.weight"].abs().max()) == 0
    assert float(released["classifier.weight"].abs().max()) > 0
    # The head's biases are 0: they have no deviation.
    assert float(released["classifier.bias"].abs().max()) == 0
    inside = [name for name in plain if name.startswith("bert.") and name in paper]
    assert all(torch.equal(paper[name], released[name]) for name in inside)


def test_noise_is_scaled_to_layers_that_were_drawn_anew() -> None:
    drawn = Bench([("re_init", {"layers": 1})]).trainee.plain_weights()
    both = Bench([("re_init", {"layers": 1}), ("noisy_tune", {})]).trainee.plain_weights()
    name = "bert.encoder.layer.1.output.dense.weight"
    difference = (both[name] - drawn[name]).abs().max()
    assert 0 < float(difference) <= 0.075 * float(drawn[name].std()) * (1 + 1e-4)
