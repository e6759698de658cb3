"""Masked language modelling on the phase's text, and what passes from it to fine-tuning."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from regft_core.schema.methods import DataConfig
from tests.methods.chain import phase, run_phase, runner
from tests.methods.harness import NO_STEPS, STILL, TRAINING, Bench, calls_of, examples, gradients, only, watched

bench = only("masked_lm", phase="earlier", masked_lm=True)


def masked_step(run: Bench) -> tuple[Any, Any, torch.Tensor, torch.Tensor]:
    """(the batch, what the encoder reads of it, where it is masked, the loss) of one step."""
    step = run.step()
    passes = watched(step)
    loss = run.method.backward(step)
    ((name, _, masked, _),) = passes
    assert name == "masked"
    return step.batch, masked, masked.input_ids == run.tokenizer.mask_token_id, loss


@pytest.mark.parametrize("architecture", ["bert", "xlnet", "deberta-v2"])
@pytest.mark.parametrize("selection", ["count", "bernoulli"])
def test_only_what_the_tokenizer_did_not_add_is_masked(architecture: str, selection: str) -> None:
    run = bench({"mask_rate": 0.5, "selection": selection}, architecture=architecture, pair=True)
    batch, masked, places, _ = masked_step(run)
    allowed = (batch.segment >= 0) & (batch.attention_mask == 1)
    assert places.any()
    assert not places[~allowed].any()
    assert torch.equal(masked.input_ids[~places], batch.input_ids[~places])
    if selection == "count":
        assert torch.equal(places.sum(1), (allowed.sum(1) * 0.5).round().clamp_min(1).long())


def test_keywords_are_not_masked() -> None:
    batch, _, places, _ = masked_step(bench({"mask_rate": 0.6}, pair=True, keyword_segment="text_pair"))
    assert places.any()
    assert (batch.segment[places] == 0).all()


def test_bert_replacement_has_its_shares() -> None:
    """80 % [MASK], 10 % another token, 10 % the token itself; the loss is over all of them."""
    run = bench({"mask_rate": 0.9, "replacement": "bert"})
    step, clean = run.step(), torch.full((300, 100), 50)
    step.batch = dataclasses.replace(step.batch, input_ids=clean)
    tokens = run.method._replacements(step, torch.ones_like(clean).nonzero(as_tuple=True))
    mask, vocabulary = run.tokenizer.mask_token_id, len(run.tokenizer)
    others = (tokens != mask) & (tokens != 50)
    # A random token is [MASK], or the token itself, once in a vocabulary.
    for found, share in (
        (tokens == mask, 0.8 + 0.1 / vocabulary),
        (tokens == 50, 0.1 + 0.1 / vocabulary),
        (others, 0.1 * (1 - 2 / vocabulary)),
    ):
        assert float(found.double().mean()) == pytest.approx(share, abs=5 * (share / clean.numel()) ** 0.5)
    assert tokens[others].unique().numel() == vocabulary - 2


def test_no_random_token_ends_a_text_of_bart() -> None:
    run = bench({"replacement": "bert"}, architecture="bart")
    clean = torch.full((300, 100), 50)
    step = run.step()
    step.batch = dataclasses.replace(step.batch, input_ids=clean)
    tokens = run.method._replacements(step, torch.ones_like(clean).nonzero(as_tuple=True))
    assert run.tokenizer.sep_token_id not in tokens


@pytest.mark.parametrize("replacement", ["mask", "bert"])
def test_the_loss_is_the_mean_cross_entropy_of_the_chosen_positions(replacement: str) -> None:
    """Against transformers' own masked-LM class, whose labels are -100 elsewhere; gradients as well."""
    from transformers import AutoModelForMaskedLM

    run = bench({"mask_rate": 0.4, "replacement": replacement}, dropout=STILL)
    chosen = calls_of(run.method, "_replacements", lambda step, positions: positions)
    batch, masked, _, loss = masked_step(run)
    labels = torch.full_like(batch.input_ids, -100)
    labels[chosen[0]] = batch.input_ids[chosen[0]]
    reference = AutoModelForMaskedLM.from_pretrained(run.source.path).eval()
    expected = reference(**{**masked.model_inputs(), "labels": labels}).loss
    assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-5)
    expected.backward()
    for name in ("bert.encoder.layer.0.intermediate.dense.weight", "bert.embeddings.word_embeddings.weight"):
        assert torch.allclose(gradients(run)[name], reference.get_parameter(name).grad, atol=1e-6), name


def test_a_batch_without_masks_has_a_loss_and_gradients_of_zero() -> None:
    run = bench({"mask_rate": 1e-9, "selection": "bernoulli"})
    assert float(run.method.backward(run.step())) == 0
    assert gradients(run)
    assert not any(gradient.any() for gradient in gradients(run).values())


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_a_head_alone_is_trained_over_a_frozen_encoder(architecture: str) -> None:
    head = phase([("masked_lm", {"trains": "head"})], name="before", epochs=20, learning_rate=1e-2, weight_decay=0.5)
    ran = runner(architecture).run([head], steps=6)["before"]
    assert ran.members[0].skipped is None
    untouched = Bench(architecture=architecture)
    weights, state = ran.handed.weights, ran.handed.of("masked_lm")
    assert all(torch.equal(weights[name], value) for name, value in untouched.trainee.trained_weights().items())
    fresh = bench({"trains": "head"}, architecture=architecture, masked_lm=False)
    start = dict(fresh.method.head.named_parameters())
    embedding = untouched.trainee.sites.word_embedding.weight
    assert embedding.shape not in {value.shape for value in state.values()}  # the tie is not handed over
    assert state
    assert not any(torch.equal(start[name.removeprefix("head/")], value) for name, value in state.items())


def test_a_model_that_answers_at_a_mask_keeps_the_head_that_was_trained_with_it() -> None:
    first = dataclasses.replace(phase([("masked_lm", {})], name="before"), data=DataConfig(labels=False))
    prompted = phase([("verbaliser", {})], start="before", epochs=0)
    ran = runner(masked_lm=True, pooling="mask").run([first, prompted], steps=6)
    head = ran["before"].members[0].stack.regularisers[0].head
    for name, value in head.named_parameters():
        assert torch.equal(ran["finetune"].tensors["weights"][f"cls.{name}"], value), name


def test_the_head_of_an_intermediate_task_is_dropped() -> None:
    """The encoder goes on from the first phase, the head is that of plain fine-tuning."""
    first = run_phase(name="intermediate", labels=3, rows=examples(24, pair=True, labels=3), training=TRAINING)
    plain = run_phase(training=NO_STEPS)
    second = run_phase(training=NO_STEPS, start=first.weights, start_head=False)
    head = set(plain.trained.trainee.sites.head)
    assert first.weights["classifier.weight"].shape[0] == 3
    for name, value in second.weights.items():
        assert torch.equal(value, plain.weights[name] if name in head else first.weights[name]), name
    assert any(not torch.equal(value, plain.weights[name]) for name, value in second.weights.items())
