"""Masked language modelling on the phase's text, and what passes from it to fine-tuning."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.methods.masked_lm import MaskedLm
from tests.methods.chain import Outcome, phase, run_phase, runner
from tests.methods.harness import NO_STEPS, STILL, TRAINING, Bench, examples, resumed, same

# ----------------------------------------------------------------------------------------------------------- masked lm


def bench(options: dict[str, Any] | None = None, **more: Any) -> tuple[Bench, MaskedLm]:
    """A bench of an earlier phase on a checkpoint with a masked-LM head, and its regulariser."""
    made = Bench([("masked_lm", options or {})], **{"phase": "earlier", "masked_lm": True, **more})
    regulariser = made.stack.regularisers[0]
    assert isinstance(regulariser, MaskedLm)
    return made, regulariser


def seen(made: Bench, regulariser: MaskedLm, index: int = 0) -> tuple[Any, Any, torch.Tensor]:
    """(step, the batch that the encoder reads, the loss) of one step."""
    step, read = made.step(index), []
    original = step.forward

    def spy(name: str = "main", *, batch: Any = None, **more: Any) -> Any:
        read.append((name, batch))
        return original(name, batch=batch, **more)

    step.forward = spy  # type: ignore[method-assign]
    loss = regulariser.backward(step)
    assert [name for name, _ in read] == ["masked"]
    return step, read[0][1], loss


# ---------------------------------------------------------------------------------- the masks


@pytest.mark.parametrize("architecture", ["bert", "xlnet", "deberta-v2"])
@pytest.mark.parametrize("selection", ["count", "bernoulli"])
def test_only_what_the_tokenizer_did_not_add_is_masked(architecture: str, selection: str) -> None:
    made, regulariser = bench({"mask_rate": 0.5, "selection": selection}, architecture=architecture, pair=True)
    step, masked, _ = seen(made, regulariser)
    places = masked.input_ids == made.tokenizer.mask_token_id
    assert places.any()
    assert not places[step.batch.special_mask == 1].any()
    assert not places[step.batch.attention_mask == 0].any()
    assert torch.equal(masked.input_ids[~places], step.batch.input_ids[~places])
    if selection == "count":
        allowed = ((step.batch.special_mask == 0) & (step.batch.attention_mask == 1)).sum(1)
        assert torch.equal(places.sum(1), (allowed * 0.5).round().clamp_min(1).long())


def test_keywords_are_not_masked() -> None:
    made, regulariser = bench({"mask_rate": 0.6}, pair=True, keyword_segment="text_pair")
    step, masked, _ = seen(made, regulariser)
    places = masked.input_ids == made.tokenizer.mask_token_id
    assert places.any()
    assert (step.batch.segment[places] == 0).all()


def test_bert_replacement_has_its_shares() -> None:
    """80 % [MASK], 10 % another token, 10 % the token itself; the loss is over all of them."""
    made, regulariser = bench({"mask_rate": 0.9, "replacement": "bert"}, rows=12)
    step = made.step()
    clean = torch.full((300, 100), 50)
    step.batch = step.batch.__class__(**{**vars(step.batch), "input_ids": clean})
    rows, columns = torch.ones_like(clean, dtype=torch.bool).nonzero(as_tuple=True)
    tokens = regulariser._replacements(step, (rows, columns))
    assert isinstance(tokens, torch.Tensor)
    mask, vocabulary = made.tokenizer.mask_token_id, len(made.tokenizer)
    count = clean.numel()
    # A random token is [MASK], or the token itself, once in a vocabulary.
    for found, share in (
        (tokens == mask, 0.8 + 0.1 / vocabulary),
        (tokens == 50, 0.1 + 0.1 / vocabulary),
        ((tokens != mask) & (tokens != 50), 0.1 * (1 - 2 / vocabulary)),
    ):
        assert float(found.double().mean()) == pytest.approx(share, abs=5 * (share / count) ** 0.5)
    others = tokens[(tokens != mask) & (tokens != 50)]
    assert others.unique().numel() == vocabulary - 2


# ----------------------------------------------------------------------------------- the loss


@pytest.mark.parametrize("replacement", ["mask", "bert"])
def test_the_loss_is_the_mean_cross_entropy_of_the_chosen_positions(replacement: str) -> None:
    """Against transformers' own masked-LM class, whose labels are -100 elsewhere; gradients as well."""
    from transformers import AutoModelForMaskedLM

    made, regulariser = bench({"mask_rate": 0.4, "replacement": replacement}, dropout=STILL)
    chosen: list[tuple[torch.Tensor, torch.Tensor]] = []
    original = regulariser._replacements

    def keep(step: Any, positions: Any) -> Any:
        chosen.append(positions)
        return original(step, positions)

    regulariser._replacements = keep  # type: ignore[method-assign]
    step, masked, loss = seen(made, regulariser)
    labels = torch.full_like(step.batch.input_ids, -100)
    labels[chosen[0]] = step.batch.input_ids[chosen[0]]
    reference = AutoModelForMaskedLM.from_pretrained(made.source.path).eval()
    expected = reference(**{**masked.model_inputs(), "labels": labels}).loss
    assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-5)
    expected.backward()
    own = dict(made.model.named_parameters())
    for name in ("bert.encoder.layer.0.intermediate.dense.weight", "bert.embeddings.word_embeddings.weight"):
        assert torch.allclose(own[name].grad, reference.get_parameter(name).grad, atol=1e-6), name


def test_a_batch_without_masks_has_a_loss_and_gradients_of_zero() -> None:
    made, regulariser = bench({"mask_rate": 1e-9, "selection": "bernoulli"})
    loss = regulariser.backward(made.step())
    assert float(loss) == 0
    found = [p.grad for _, p in made.trainee.named_trainable() if p.grad is not None]
    assert found
    assert not any(gradient.any() for gradient in found)


# ------------------------------------------------------------------------------ what is trained


@pytest.mark.parametrize("options", [{}, {"replacement": "bert"}])
def test_the_classifier_stays_as_it_was_drawn(options: dict[str, Any]) -> None:
    """No optimiser is handed its head, so none can decay it: it has no part in the loss."""
    decayed = TRAINING.model_copy(update={"weight_decay": 0.5, "learning_rate": 0.01})
    made, _ = bench(options, training=decayed)
    before = made.trainee.trained_weights()
    loop = made.loop()
    loop.train()
    after = made.trainee.trained_weights()
    heads = set(made.trainee.sites.head)
    assert heads
    assert not heads & {name for group in loop.groups for name in group["names"]}
    assert all(torch.equal(before[name], after[name]) for name in heads)
    weight = "bert.encoder.layer.0.intermediate.dense.weight"
    assert not torch.equal(before[weight], after[weight])


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet", "deberta-v2"])
def test_a_head_alone_is_trained_over_a_frozen_encoder(architecture: str) -> None:
    head = phase([("masked_lm", {"trains": "head"})], name="before", epochs=20, learning_rate=1e-2, weight_decay=0.5)
    ran = runner(architecture).run([head], steps=6)["before"]
    assert ran.members[0].skipped is None
    untouched = Bench(architecture=architecture)
    weights = ran.handed.weights
    assert set(weights) == set(untouched.trainee.trained_weights())
    for name, value in untouched.trainee.trained_weights().items():
        assert torch.equal(weights[name], value), name
    state = ran.handed.of("masked_lm")
    start = dict(bench({"trains": "head"}, architecture=architecture, masked_lm=False)[1].head.named_parameters())
    shapes = {tuple(value.shape) for value in state.values()}
    assert tuple(untouched.trainee.sites.word_embedding.weight.shape) not in shapes  # the tie is not handed over
    moved = [name for name, value in state.items() if not torch.equal(start[name.removeprefix("head/")], value)]
    assert len(moved) == len(state) > 0


def test_post_training_lowers_the_loss_and_hands_over_encoder_and_head() -> None:
    protocol = TRAINING.model_copy(update={"epochs": 30, "learning_rate": 3e-3})
    made, regulariser = bench({"mask_rate": 0.3}, training=protocol)
    done = made.loop().train()
    losses = [row[2] for row in done.curve]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    own = {f"masked_lm.head/{n}" for n, _ in regulariser.head.named_parameters() if "decoder.weight" not in n}
    assert set(made.stack.hand(made.trainee)) == own
    embedding = made.trainee.sites.word_embedding.weight
    assert any(p is embedding for p in regulariser.head.parameters())  # still tied


def test_without_a_head_in_the_checkpoint_the_result_is_marked() -> None:
    assert bench()[0].stack.marks() == []
    marks = bench(masked_lm=False)[0].stack.marks()
    assert len(marks) == 1
    assert "checkpoint has none" in marks[0]


# -------------------------------------------------------------------------------- everything else


@pytest.mark.parametrize("options", [{}, {"replacement": "bert", "selection": "bernoulli"}, {"trains": "head"}])
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(options: dict[str, Any]) -> None:
    """With a head that was drawn."""
    whole = bench(options, masked_lm=False)[0]
    expected = whole.train()
    state = whole.stack.hand(whole.trainee)
    continued: list[Bench] = []

    def make() -> Bench:
        continued.append(bench(options, masked_lm=False)[0])
        return continued[-1]

    weights, logged = resumed(make, at=3)
    assert same(weights, expected)
    assert same(continued[-1].stack.hand(continued[-1].trainee), state)
    assert logged == whole.stack.diagnostics().values


# ------------------------------------------------------------------------------------------------------- post training


STEPS = TRAINING.model_copy(update={"epochs": 2})


def language_model(steps: bool = True) -> Outcome:
    options = {"mask_rate": 0.15, "replacement": "bert"}
    training = STEPS if steps else NO_STEPS
    return run_phase([("masked_lm", options)], name="language_model", training=training, masked_lm=True)


def test_fine_tuning_starts_from_the_encoder_of_the_first_phase_with_the_head_of_plain_fine_tuning() -> None:
    first = language_model()
    plain = run_phase(training=NO_STEPS, masked_lm=True)
    second = run_phase(training=NO_STEPS, masked_lm=True, start=first.weights, start_head=False)
    head = set(plain.trained.trainee.sites.head)
    for name, value in second.weights.items():
        assert torch.equal(value, plain.weights[name] if name in head else first.weights[name]), name
    moved = [name for name in second.weights if not torch.equal(second.weights[name], plain.weights[name])]
    assert "bert.encoder.layer.0.output.dense.weight" in moved


def test_the_head_of_an_intermediate_task_is_dropped() -> None:
    first = run_phase(name="intermediate", labels=3, rows=examples(24, pair=True, labels=3), training=STEPS)
    plain = run_phase(training=NO_STEPS)
    second = run_phase(training=NO_STEPS, start=first.weights, start_head=False)
    assert first.weights["classifier.weight"].shape[0] == 3
    assert torch.equal(second.weights["classifier.weight"], plain.weights["classifier.weight"])
    encoder = [name for name in second.weights if name.startswith("bert.")]
    assert all(torch.equal(second.weights[name], first.weights[name]) for name in encoder)
    assert not torch.equal(second.weights[encoder[0]], plain.weights[encoder[0]])
