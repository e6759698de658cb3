"""Prompt tuning against the encoder fed with embeddings, and against the PEFT library."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.errors import ModelError
from regft_core.hooks import ownership
from regft_core.hooks.base import Setting
from regft_core.methods.prompt_tuning import PromptTuning, PromptTuningConfig
from regft_core.serve.export import refuse_kept
from regft_core.training.stack import Stack
from tests.errors import raises_code
from tests.methods.harness import TRAINING, Bench, entries
from tests.methods.peft_oracle import bert_large, peft, trainable, wrapped
from tests.methods.test_prefix_tuning_reference import inputs_of, logits
from tests.tiny import ARCHITECTURES

REFUSED = PromptTuning.declare(PromptTuningConfig()).says.refused_architectures
FAMILIES = [name for name in ARCHITECTURES if name not in REFUSED]
#: Families whose head reads the first hidden state itself.
FIRST = ["bert", "roberta", "electra", "deberta", "deberta-v2", "distilbert", "albert", "mpnet", "modernbert", "gte"]


def bench(options: dict[str, Any] | None = None, **more: Any) -> tuple[Bench, PromptTuning]:
    run = Bench([("prompt_tuning", options or {})], **more)
    regulariser = run.stack.regularisers[0]
    assert isinstance(regulariser, PromptTuning)
    return run, regulariser


@pytest.mark.parametrize(("labels", "count"), [(2, 22_530), (1, 21_505)])
def test_the_counts_of_bert_large(labels: int, count: int) -> None:
    """20 vectors of width 1024 and a head of 1025 per label."""
    trainee = bert_large(labels)
    PromptTuning(PromptTuningConfig(), Setting("classification", labels, 0, TRAINING)).prepare(trainee, {})
    assert trainable(trainee) == count == 20 * 1024 + 1025 * labels


def fed(run: Bench, table: torch.Tensor) -> dict[str, torch.Tensor]:
    """Model inputs in which the vectors stand before the words' embeddings."""
    inputs, count = inputs_of(run), len(table)
    words = run.model.get_input_embeddings()(inputs.pop("input_ids"))
    rows = len(words)
    found = {"inputs_embeds": torch.cat([table.expand(rows, -1, -1), words], dim=1)}
    for name, value in (("attention_mask", 1), ("token_type_ids", 0)):
        if name in inputs:
            added = torch.full((rows, count), value, dtype=inputs[name].dtype)
            found[name] = torch.cat([added, inputs[name]], dim=1)
    return found


@pytest.mark.parametrize("architecture", FIRST)
def test_the_head_reads_a_virtual_token(architecture: str) -> None:
    run, regulariser = bench(architecture=architecture)
    with torch.no_grad():
        expected = Bench(architecture=architecture).model(**fed(run, regulariser.table)).logits
    assert torch.allclose(logits(run), expected, atol=1e-6)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_or_the_first_token_of_the_text(architecture: str) -> None:
    run, regulariser = bench({"reads": "text"}, architecture=architecture)
    plain: Any = Bench(architecture=architecture).model
    with torch.no_grad():
        hidden = plain.base_model(**fed(run, regulariser.table)).last_hidden_state[:, 20:]
        if architecture in ("bert", "gte"):
            expected = plain.classifier(plain.base_model.pooler(hidden))
        elif architecture == "albert":
            expected = plain.classifier(torch.tanh(plain.albert.pooler(hidden[:, 0])))
        elif architecture in ("roberta", "electra", "mpnet"):
            expected = plain.classifier(hidden)
        elif architecture == "distilbert":
            expected = plain.classifier(torch.relu(plain.pre_classifier(hidden[:, 0])))
        elif architecture.startswith("deberta"):
            expected = plain.classifier(plain.pooler(hidden))
        elif architecture == "modernbert":
            expected = plain.classifier(plain.head(hidden[:, :1]))[:, 0]
        else:
            mask = inputs_of(run)["attention_mask"].unsqueeze(-1)
            expected = plain.classifier(plain.activation(plain.dense(hidden)))
            expected = (expected * mask).sum(1) / mask.sum(1)
    assert torch.allclose(logits(run), expected, atol=1e-5)


def test_the_encoder_reads_more_positions_than_the_text_has() -> None:
    seen: dict[str, int] = {}
    for reads in ("first", "text"):
        run, _ = bench({"reads": reads, "tokens": 7})
        run.trainee.hooks.on_layer_input(lambda t, site: seen.update(layer=t.shape[1]) or t, always=True)
        run.model.bert.register_forward_hook(lambda *a: seen.update(output=a[2].last_hidden_state.shape[1]))
        length = inputs_of(run)["input_ids"].shape[1]
        logits(run)
        assert seen == {"layer": length + 7, "output": length + (7 if reads == "first" else 0)}


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooled_heads_pool_over_the_text_in_both(pooling: str) -> None:
    first, one = bench(pooling=pooling)
    text, other = bench({"reads": "text"}, pooling=pooling)
    assert torch.equal(logits(first), logits(text))
    assert one.marks() == []
    (said,) = other.marks()
    assert "'reads: text' changes nothing" in said
    assert bench({"reads": "text"})[1].marks() == []
    plain: Any = Bench(pooling=pooling).model
    with torch.no_grad():
        hidden = plain.base_model(**fed(first, one.table)).last_hidden_state[:, 20:]
        mask = inputs_of(first)["attention_mask"].unsqueeze(-1)
        pooled = hidden[:, 0] if pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
        assert torch.allclose(logits(first), plain.classifier(pooled), atol=1e-6)


def test_forward_sites_know_of_the_longer_input() -> None:
    run, _ = bench({"tokens": 7})
    shapes: list[Any] = []

    def look(tensor: torch.Tensor, site: Any) -> torch.Tensor:
        current = run.trainee.current
        assert current is not None
        assert current.segment is not None
        shapes.append((tensor.shape[:2], current.attention_mask.shape, current.segment.shape))
        assert current.attention_mask[:, :7].all()
        assert (current.segment[:, :7] == -1).all()
        return tensor

    run.trainee.hooks.on_layer_input(look)
    run.step().forward()
    assert all(tensor == mask == segment for tensor, mask, segment in shapes)


def test_gradients_are_in_the_vectors_and_the_head_only() -> None:
    run, regulariser = bench(training=TRAINING.model_copy(update={"weight_decay": 0.5}))
    before, table = run.trainee.plain_weights(), regulariser.table.detach().clone()
    run.loop().train()
    after = run.trainee.plain_weights()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    assert (regulariser.table != table).all()


def test_the_two_starts() -> None:
    run, normal = bench({"tokens": 100})
    assert float(normal.table.detach().std()) == pytest.approx(1.0, rel=0.05)
    words = run.trainee.sites.word_embedding.weight
    _, drawn = bench({"start": "vocabulary"})
    for vector in drawn.table:
        assert (words == vector).all(1).any()
    assert len(drawn.table.unique(dim=0)) > 10


def test_what_is_kept_rebuilds_the_model_and_an_ordinary_export_is_refused() -> None:
    for reads in ("first", "text"):
        listed = [("prompt_tuning", {"reads": reads})]
        run, _ = bench({"reads": reads})
        run.loop().train()
        expected, kept = logits(run), run.stack.keep(run.trainee)
        run.stack.export(run.trainee)
        fresh = Bench()
        fresh.model.load_state_dict(run.trainee.plain_weights(), strict=True)
        Stack(entries(listed), run.setting).rebuild(fresh.trainee, kept)
        assert torch.equal(logits(fresh), expected)
        with raises_code(ModelError, "no-plain-export", "prompt_tuning"):
            refuse_kept(entries(listed), "prompt_tuning")
    refuse_kept(entries([("lora", {})]), "lora")


def test_methods_that_read_hidden_states_by_position_are_refused_beside_moved_ones() -> None:
    other: tuple[str, dict[str, Any]] = ("mask_tuning", {})
    problems = ownership.ownership_problems(entries([("prompt_tuning", {}), other]))
    assert any("by the positions of the batch, which 'prompt_tuning' moves" in problem for problem in problems)
    problems = ownership.ownership_problems(entries([("prompt_tuning", {"reads": "text"}), other]))
    assert not any("moves" in problem for problem in problems)


def test_inputs_for_which_there_is_no_room_are_refused() -> None:
    run, _ = bench({"tokens": 150})
    with raises_code(ModelError, "input-too-long", "150 virtual", "encoder's 160"):
        logits(run)
    run, _ = bench({"tokens": 150}, architecture="roberta")
    with raises_code(ModelError, "input-too-long", "150 virtual", "encoder's 158"):
        logits(run)
    for architecture in REFUSED:
        with pytest.raises(ModelError, match="cannot have vectors before the words"):
            bench(architecture=architecture)


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_peft_gives_the_same_logits(architecture: str) -> None:
    config = peft().PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=20)
    run, regulariser = bench(architecture=architecture)
    model = wrapped(Bench(architecture=architecture).model, config)
    with torch.no_grad():
        model.prompt_encoder["default"].embedding.weight.copy_(regulariser.table)
    assert torch.allclose(logits(run), logits(run, model), atol=1e-6)
    assert trainable(run.trainee) == model.get_nb_trainable_parameters()[0]
