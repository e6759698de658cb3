"""Prefix-tuning against the encoder's own cache of keys and values, and against the PEFT library."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.errors import ModelError
from regft_core.hooks.base import Setting
from regft_core.methods.prefix_tuning import PrefixTuning, PrefixTuningConfig
from regft_core.models.prefixes import FAMILIES
from regft_core.training.stack import Stack
from tests.errors import raises_code
from tests.methods.harness import TRAINING, Bench, entries
from tests.methods.peft_oracle import bert_large, peft, trainable, wrapped

CACHED = ["bert", "roberta", "electra"]


def bench(options: dict[str, Any] | None = None, **more: Any) -> tuple[Bench, PrefixTuning]:
    run = Bench([("prefix_tuning", options or {})], **more)
    regulariser = run.stack.regularisers[0]
    assert isinstance(regulariser, PrefixTuning)
    return run, regulariser


def inputs_of(run: Bench) -> dict[str, torch.Tensor]:
    inputs = run.stream.batch(0).model_inputs()
    if not run.trainee.sites.token_types:
        inputs.pop("token_type_ids", None)
    return inputs


def logits(run: Bench, model: Any = None, **more: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = (model or run.model).eval()(**inputs_of(run), **more).logits
    return found


@pytest.mark.parametrize(("labels", "count"), [(2, 985_090), (1, 984_065)])
def test_the_counts_of_bert_large(labels: int, count: int) -> None:
    """20 keys and values of width 1024 in 24 layers, and a head of 1025 per label."""
    trainee = bert_large(labels)
    PrefixTuning(PrefixTuningConfig(), Setting("classification", labels, 0, TRAINING)).prepare(trainee, {})
    assert trainable(trainee) == count == 20 * 24 * 2 * 1024 + 1025 * labels


@pytest.mark.parametrize("architecture", CACHED)
@pytest.mark.parametrize("positions", ["kept", "shifted"])
def test_it_is_a_cache_of_keys_and_values(architecture: str, positions: str) -> None:
    from transformers import DynamicCache

    run, regulariser = bench({"tokens": 5, "positions": positions}, architecture=architecture)
    found = logits(run)
    plain, inputs = Bench(architecture=architecture).model, inputs_of(run)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    rows, layers = ids.shape[0], 2
    table = regulariser.table.detach().view(5, layers, 2, 2, 16)  # P, layer, key or value, heads, width
    cache = DynamicCache()
    for layer in range(layers):
        key, value = (table[:, layer, i].permute(1, 0, 2).expand(rows, 2, 5, 16) for i in (0, 1))
        cache.update(key, value, layer)
    if architecture == "roberta":
        places = torch.cumsum(mask, 1) * mask + 1
        places = places + (5 * mask if positions == "shifted" else 0)
    else:
        places = torch.arange(ids.shape[1]).expand_as(ids) + (5 if positions == "shifted" else 0)
    extended = torch.cat([torch.ones(rows, 5, dtype=mask.dtype), mask], dim=1)
    with torch.no_grad():
        hidden = plain.base_model(
            **{**inputs, "attention_mask": extended}, position_ids=places, past_key_values=cache
        ).last_hidden_state
        expected = plain.classifier(plain.bert.pooler(hidden) if architecture == "bert" else hidden)
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_without_its_prefixes_the_base_model_is_left(architecture: str) -> None:
    run, regulariser = bench(architecture=architecture)
    base = logits(Bench(architecture=architecture))
    assert not torch.allclose(logits(run), base, atol=1e-3)
    regulariser.prefixes.masked = True
    assert torch.allclose(logits(run), base, atol=1e-6)
    run.stack.export(run.trainee)
    assert torch.equal(logits(run), base)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_padding_and_batch_do_not_matter(architecture: str) -> None:
    run, _ = bench(architecture=architecture)
    together = logits(run)
    inputs = inputs_of(run)
    for row in range(len(together)):
        length = int(inputs["attention_mask"][row].sum())
        alone = {name: value[row : row + 1, :length] for name, value in inputs.items()}
        with torch.no_grad():
            assert torch.allclose(run.model(**alone).logits[0], together[row], atol=1e-5)


def test_gradients_are_in_table_and_head_only() -> None:
    run, regulariser = bench(training=TRAINING.model_copy(update={"weight_decay": 0.5}))
    before, table = run.trainee.plain_weights(), regulariser.table.detach().clone()
    assert {name for name, _ in run.trainee.named_trainable()} == {
        *("classifier.weight", "classifier.bias", "attached.prefix_tuning.table")
    }
    run.loop().train()
    after = run.trainee.plain_weights()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    assert (regulariser.table != table).all()


def test_every_layer_has_a_table_of_its_own_even_where_layers_are_shared() -> None:
    for architecture, layers in (("bert", 2), ("albert", 2), ("eurobert", 2)):
        run, regulariser = bench(architecture=architecture)
        assert logits(run).requires_grad is False
        run.model.train()
        run.model(**inputs_of(run)).logits.sum().backward()
        assert regulariser.table.grad is not None
        parts = regulariser.table.grad.view(20, 2 * layers, -1)
        assert parts.abs().amax((0, 2)).gt(0).all(), architecture


def test_the_table_starts_from_a_normal_law() -> None:
    _, regulariser = bench({"tokens": 200})
    assert float(regulariser.table.detach().std()) == pytest.approx(1.0, rel=0.02)
    _, half = bench({"tokens": 200, "initial_std": 0.5})
    assert torch.allclose(half.table, regulariser.table * 0.5)


@pytest.mark.parametrize("architecture", [*CACHED, "albert", "modernbert"])
def test_what_is_kept_rebuilds_the_model(architecture: str) -> None:
    run, _ = bench(architecture=architecture)
    run.loop().train()
    expected, kept = logits(run), run.stack.keep(run.trainee)
    run.stack.export(run.trainee)
    fresh = Bench(architecture=architecture)
    fresh.model.load_state_dict(run.trainee.plain_weights(), strict=True)
    assert not torch.allclose(logits(fresh), expected, atol=1e-4)
    Stack(entries([("prefix_tuning", {})]), run.setting).rebuild(fresh.trainee, kept)
    assert torch.equal(logits(fresh), expected)


def test_two_models_in_one_process_do_not_see_each_others_prefixes() -> None:
    first, one = bench()
    expected = logits(first)
    _second, other = bench(seed=7)
    assert not torch.equal(one.table, other.table)
    assert torch.equal(logits(first), expected)
    assert torch.equal(logits(Bench()), logits(Bench()))


def test_inputs_that_do_not_fit_behind_a_shift_are_refused() -> None:
    run, _ = bench({"tokens": 150, "positions": "shifted"})
    with raises_code(ModelError, "input-too-long", "and 150", "encoder's 160", "to 10"):
        logits(run)


def test_peft_gives_the_same_logits() -> None:
    config = peft().PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=20)
    run, regulariser = bench({"positions": "shifted"})
    model = wrapped(Bench().model, config)
    encoder = model.prompt_encoder["default"].embedding.weight
    assert encoder.shape == regulariser.table.shape
    with torch.no_grad():
        encoder.copy_(regulariser.table)
    assert torch.allclose(logits(run), logits(run, model), atol=1e-6)
    assert trainable(run.trainee) == model.get_nb_trainable_parameters()[0]
