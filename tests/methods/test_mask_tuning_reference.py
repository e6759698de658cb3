"""Mask-tuning against the invariants of its paper."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.errors import ModelError
from regft_core.hooks.declare import Handed
from regft_core.methods.mask_tuning import MaskTuning, MaskTuningConfig
from regft_core.models.masked_lm import choose_positions
from regft_core.schema.method import Phase
from tests.errors import raises_code
from tests.methods.chain import Ran, phase, runner
from tests.methods.harness import STILL, TRAINING, Bench, resumed, same
from tests.tiny import MASKED_LM_ARCHITECTURES

SHORT = TRAINING.model_copy(update={"max_steps": 2})
FAMILIES = ("xlnet", "deberta-v2", "eurobert")  # many tests below are on bert
HEAD = phase([("masked_lm", {"trains": "head"})], name="head_phase", epochs=2, learning_rate=1e-2)
FILLER = phase([("masked_lm", {})], name="filler_phase", epochs=2, learning_rate=1e-2)
TRAINED = {"head": "head_phase"}
FILLED = {"filler": "filler_phase", "alpha": 0.0}


def bench(options: dict[str, Any] | None = None, **more: Any) -> tuple[Bench, MaskTuning]:
    """A bench on a checkpoint with a masked-LM head, and its Mask-tuning."""
    made = Bench([("mask_tuning", options or {})], **{"architecture": "roberta", "masked_lm": True, **more})
    regulariser = made.stack.regularisers[0]
    assert isinstance(regulariser, MaskTuning)
    return made, regulariser


def gradients(made: Bench) -> dict[str, torch.Tensor]:
    named = made.trainee.named_trainable()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in named}


def after(given: Phase, architecture: str = "bert", **more: Any) -> tuple[Ran, dict[str, Handed]]:
    """Run the phase on a checkpoint without a masked-LM head; returns it and what the next one is handed."""
    ran = runner(architecture, **more).run([given], steps=6)[given.name]
    return ran, {given.name: ran.handed}


# ---------------------------------------------------------------------------------- the masks


def test_share_of_masked_tokens_over_ten_thousand_sequences() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, 40, (10_000, 1), generator=generator)
    columns = torch.arange(42)
    maskable = (columns >= 1) & (columns <= lengths)  # [CLS], tokens, [SEP], padding
    chosen = choose_positions(maskable, 0.05, "count", generator)
    expected = (lengths.squeeze(1) * 0.05).round().clamp_min(1)
    assert torch.equal(chosen.sum(1), expected.long())
    assert not chosen[~maskable].any()
    # Every maskable place of equally long sequences is chosen equally often.
    same_length = chosen[lengths.squeeze(1) == 10][:, 1:11].float().mean(0)
    assert same_length == pytest.approx([0.1] * 10, abs=0.08)
    bernoulli = choose_positions(maskable, 0.05, "bernoulli", generator)
    assert float(bernoulli.sum() / maskable.sum()) == pytest.approx(0.05, rel=0.03)
    assert not bernoulli[~maskable].any()


@pytest.mark.parametrize("architecture", FAMILIES)
def test_filled_input_differs_inside_the_masks_only(architecture: str) -> None:
    made, regulariser = bench(architecture=architecture, pair=True)
    seen: list[tuple[str, Any]] = []
    step = made.step()
    original = step.forward

    def spy(name: str = "main", *, batch: Any = None, **more: Any) -> Any:
        seen.append((name, batch))
        return original(name, batch=batch, **more)

    step.forward = spy  # type: ignore[method-assign]
    regulariser.backward(step)
    assert [name for name, _ in seen] == ["masked", "filled"]
    masked, filled, clean = seen[0][1].input_ids, seen[1][1].input_ids, step.batch.input_ids
    positions = masked == made.tokenizer.mask_token_id
    assert (positions.sum(1) == 1).all()  # a row of the harness has fewer than 30 maskable tokens
    assert not positions[step.batch.special_mask == 1].any()
    assert torch.equal(masked[~positions], clean[~positions])
    assert torch.equal(filled[~positions], clean[~positions])
    assert torch.equal(step.batch.input_ids, clean)


def test_keywords_are_not_masked() -> None:
    made, regulariser = bench({"mask_rate": 0.6}, pair=True, keyword_segment="text_pair")
    step = made.step()
    positions = regulariser.positions(step, 0.6)
    assert (step.batch.segment[positions] == 0).all()
    assert positions[0].numel() > 0


# ---------------------------------------------------------------------------------- the oracles


def test_alpha_one_trains_the_masked_lm_alone() -> None:
    made, regulariser = bench({"alpha": 1.0}, dropout=STILL)
    regulariser.backward(made.step())
    found = gradients(made)
    assert not any(found[name].any() for name in made.trainee.sites.head)
    reference, other = bench({"alpha": 1.0}, dropout=STILL)
    step = reference.step()
    positions = other.positions(step, 0.05)
    ids = step.batch.input_ids.clone()
    ids[positions] = reference.tokenizer.mask_token_id
    inputs = {**step.batch.model_inputs(), "input_ids": ids}
    inputs.pop("token_type_ids", None)
    hidden = reference.model.roberta(**inputs)[0]
    labels = torch.full_like(ids, -100)
    labels[positions] = step.batch.input_ids[positions]
    logits = other.head(hidden)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100).backward()
    expected = gradients(reference)
    assert float(expected["roberta.encoder.layer.0.intermediate.dense.weight"].abs().max()) > 0
    for name in expected:
        assert torch.allclose(found[name], expected[name], atol=1e-6, rtol=1e-4), name


@pytest.mark.parametrize("alpha", [0.3, 0.6])
def test_gradients_add_up(alpha: float) -> None:
    parts = []
    for weight in (1.0, 0.0, alpha):
        made, regulariser = bench({"alpha": weight})
        regulariser.backward(made.step())
        parts.append(gradients(made))
    masked, task, joint = parts
    for name, value in joint.items():
        expected = alpha * masked[name] + (1 - alpha) * task[name]
        assert (value - expected).norm() <= 1e-5 * expected.norm() + 1e-8, name


@pytest.mark.parametrize(("alpha", "decay", "still"), [(0.0, 0.5, "masked-LM head"), (1.0, 0.0, "classifier")])
def test_what_has_no_part_in_the_loss_stays_as_it_was(alpha: float, decay: float, still: str) -> None:
    """The masked-LM head also under weight decay; the classifier has a gradient of 0, so decay alone would move it."""
    made, regulariser = bench({"alpha": alpha}, training=TRAINING.model_copy(update={"weight_decay": decay}))
    encoder = {name for name, _ in made.trainee.named_raw()} - set(made.trainee.sites.head)
    own = {id(parameter) for name, parameter in made.trainee.named_raw() if name in encoder}
    # The decoder of the head is the table of word embeddings, which is the encoder's.
    watched = {
        "masked-LM head": [p for p in regulariser.head.parameters() if id(p) not in own],
        "classifier": [made.trainee.raw(name) for name in made.trainee.sites.head],
    }
    before = {part: [p.detach().clone() for p in parameters] for part, parameters in watched.items()}
    assert all(before.values())
    made.loop().train()
    unmoved = {
        part
        for part, parameters in watched.items()
        if all(torch.equal(p, old) for p, old in zip(parameters, before[part], strict=True))
    }
    assert unmoved == {still}


def test_oracle_predictions_give_the_plain_loss() -> None:
    # With dropout on: the filled pass draws what plain fine-tuning draws.
    made, regulariser = bench({"alpha": 0.0})
    step = made.step()
    gold = step.batch.input_ids[regulariser.positions(step, 0.05)]
    regulariser.filling = lambda step, logits: gold  # type: ignore[method-assign]
    plain = Bench(architecture="roberta", masked_lm=True)
    assert torch.equal(regulariser.backward(step), plain.stack.backward(plain.step()))
    wrong, other = bench({"alpha": 0.0})
    other.filling = lambda step, logits: (gold + 1) % 50  # type: ignore[method-assign]
    assert not torch.equal(other.backward(wrong.step()), plain.stack.backward(plain.step()))


# ------------------------------------------------------------------------------ the tied head


@pytest.mark.parametrize("architecture", FAMILIES)
def test_the_optimiser_gets_the_tied_embedding_once(architecture: str) -> None:
    made, regulariser = bench(architecture=architecture)
    parameters = made.loop().parameters
    embedding = made.trainee.sites.word_embedding.weight
    assert sum(p is embedding for p in parameters) == 1
    assert len({id(p) for p in parameters}) == len(parameters)
    ties = 0 if architecture == "eurobert" else 1  # EuroBERT has an output matrix of its own
    assert sum(p is embedding for p in regulariser.head.parameters()) == ties
    made.loop().train()
    assert sum(p is made.trainee.sites.word_embedding.weight for p in regulariser.head.parameters()) == ties


# --------------------------------------------------------------------------------- other modes


def test_masked_input_without_the_joint_loss_needs_no_head() -> None:
    options = {"alpha": 0.0, "fill": "mask"}
    made = Bench([("mask_tuning", options)], training=SHORT)  # a checkpoint without a head
    assert len(made.trainee.attached) == 0
    step = made.step()
    loss = made.stack.backward(step)
    plain = Bench(training=SHORT)
    assert not torch.equal(loss, plain.stack.backward(plain.step()))
    positions = made.stack.regularisers[0].positions(step, 0.05)
    ids = step.batch.input_ids.clone()
    ids[positions] = made.tokenizer.mask_token_id
    other = plain.step()
    other.batch.input_ids.copy_(ids)
    assert torch.equal(loss, plain.stack.backward(other))


def test_a_sampled_fill_is_what_multinomial_draws() -> None:
    """Bit for bit, but without its look at the probabilities, for which a GPU would be waited for."""
    made, regulariser = bench({"fill": "sample"})
    logits = torch.randn(300, 140, generator=torch.Generator().manual_seed(3)) * 4
    expected = torch.multinomial(logits.softmax(-1), 1, generator=made.step().generator("mask_tuning.fill"))
    assert torch.equal(regulariser.filling(made.step(), logits), expected.squeeze(1))


def test_separate_models_are_trained_by_their_own_losses() -> None:
    made, regulariser = bench({"coupling": "separate", "alpha": 0.5})
    classifier = {id(p) for p in made.model.parameters()}
    assert not any(id(p) in classifier for p in made.trainee.attached.parameters())
    before = {n: p.detach().clone() for n, p in made.trainee.named_trainable()}
    for own, plain in zip(regulariser.second.encoder.parameters(), made.model.roberta.parameters(), strict=False):
        assert torch.equal(own, plain)
    regulariser.backward(made.step())
    found = gradients(made)
    weight = "encoder.layer.0.intermediate.dense.weight"
    reference, other = bench({"coupling": "separate", "alpha": 1.0})
    other.backward(reference.step())
    alone = gradients(reference)
    assert not alone[f"roberta.{weight}"].any()
    name = f"attached.mask_tuning.encoder.{weight}"
    assert torch.allclose(found[name], 0.5 * alone[name], rtol=1e-4, atol=1e-8)
    made.train()
    moved = {n: not torch.equal(p, before[n]) for n, p in made.trainee.named_trainable()}
    assert moved[f"roberta.{weight}"]
    assert moved[name]
    assert moved["attached.mask_tuning.head.dense.weight"]


# ----------------------------------------------------------------------- phases before this one


def test_a_missing_head_is_taken_from_the_phase_that_trained_it() -> None:
    _, handed = after(HEAD)
    state = handed["head_phase"].of("masked_lm")
    untouched = Bench()
    final = Bench([("mask_tuning", TRAINED)], handed=handed)
    loaded = dict(final.stack.regularisers[0].head.named_parameters())
    assert state
    assert all(torch.equal(loaded[name.removeprefix("head/")], value) for name, value in state.items())
    drawn = Bench([("masked_lm", {"trains": "head"})], phase="head_phase").stack.regularisers[0].head
    start = dict(drawn.named_parameters())
    assert any(not torch.equal(start[name.removeprefix("head/")], value) for name, value in state.items())
    # The classifier starts from the checkpoint, and the head's output matrix is its embedding.
    assert same(final.model.state_dict(), untouched.model.state_dict())
    embedding = final.trainee.sites.word_embedding.weight
    assert any(p is embedding for p in final.stack.regularisers[0].head.parameters())
    assert "was trained on the task's training text" in final.stack.marks()[0]


def test_the_head_of_the_checkpoint_goes_before_a_trained_one() -> None:
    """A checkpoint with a head needs none: the phase was skipped, and the result is not marked."""
    ran = runner(masked_lm=True).run([HEAD])["head_phase"]
    assert ran.members[0].skipped == "the checkpoint has a masked-LM head of its own"
    assert (ran.members[0].progression.step, ran.handed.state) == (0, {})
    made = Bench([("mask_tuning", TRAINED)], masked_lm=True, handed={"head_phase": ran.handed}, training=SHORT)
    assert made.stack.marks() == []
    assert same(made.train(), Bench([("mask_tuning", {})], masked_lm=True, training=SHORT).train())


@pytest.mark.parametrize("pooling", ["head", "mean"])
def test_a_filler_is_the_frozen_masked_lm_of_its_phase(pooling: str) -> None:
    _, handed = after(FILLER, pooling=pooling)
    weights, state = handed["filler_phase"].weights, handed["filler_phase"].of("masked_lm")
    weight = "encoder.layer.0.intermediate.dense.weight"
    assert not torch.equal(weights[f"bert.{weight}"], Bench().model.bert.get_parameter(weight))
    final = Bench([("mask_tuning", FILLED)], handed=handed, training=SHORT, pooling=pooling)
    regulariser = final.stack.regularisers[0]
    # The classifier starts from the checkpoint; the filler is another model.
    assert same(final.model.state_dict(), Bench(pooling=pooling).model.state_dict())
    assert len(final.trainee.attached) == 0
    done = final.loop().train()
    for name, value in regulariser.second.encoder.named_parameters():
        assert torch.equal(value, weights[f"bert.{name}"])
    head = dict(regulariser.second.head.named_parameters())
    assert all(torch.equal(head[name.removeprefix("head/")], value) for name, value in state.items())
    assert not regulariser.second.training
    assert not any(parameter.requires_grad for parameter in regulariser.second.parameters())
    cost = MaskTuning.declare(MaskTuningConfig(**FILLED)).says.cost
    assert (done.forward_passes / done.batches, done.backward_passes / done.batches) == (cost.forward, cost.backward)
    # Without dropout the fill depends on the masks alone.
    step = final.step()
    positions = regulariser.positions(step, 0.05)
    one, two = (regulariser.masked_logits(step, positions) for _ in range(2))
    assert torch.equal(one, two)


def test_a_filler_resumes_with_the_bits_of_an_uninterrupted_run() -> None:
    """No checkpoint holds it: it comes from the phase's weights."""
    _, handed = after(FILLER)
    options = {**FILLED, "mask_rate": 0.3}
    weights, _ = resumed(lambda: Bench([("mask_tuning", options)], handed=handed), at=3)
    assert same(weights, Bench([("mask_tuning", options)], handed=handed).train())


# ----------------------------------------------------------------------------------- refusals


def test_a_phase_that_left_no_head_is_refused_with_what_to_do() -> None:
    empty = {"head_phase": Handed("key", {}), "filler_phase": Handed("key", {}, Bench().trainee.trained_weights())}
    with raises_code(ModelError, "masked-lm-head-missing"):
        Bench([("mask_tuning", TRAINED)], handed=empty)
    with raises_code(ModelError, "masked-lm-missing", "filler_phase"):
        Bench([("mask_tuning", FILLED)], handed=empty)


# ------------------------------------------------------------------------------ the whole step


@pytest.mark.parametrize("architecture", [name for name in MASKED_LM_ARCHITECTURES if name != "eurobert"])
def test_every_family_gets_a_head(architecture: str) -> None:
    _, handed = after(HEAD, architecture)
    final = Bench([("mask_tuning", TRAINED)], architecture=architecture, handed=handed, training=SHORT)
    assert all(value.isfinite().all() for value in final.train().values())


def test_a_head_that_is_the_embedding_itself_cannot_be_trained_and_is_refused() -> None:
    """EuroBERT's head is one matrix; a checkpoint without it leaves the frozen encoder's embedding."""
    with raises_code(ModelError, "masked-lm-untrainable"):
        after(HEAD, "eurobert")
    with raises_code(ModelError, "masked-lm-untrainable"):
        Bench([("mask_tuning", {})], architecture="eurobert")


def test_a_batch_without_masks_has_the_task_loss_only() -> None:
    made, regulariser = bench({"alpha": 0.6, "selection": "bernoulli", "mask_rate": 1e-9})
    plain = Bench(architecture="roberta", masked_lm=True)
    loss = regulariser.backward(made.step())
    assert torch.allclose(loss, 0.4 * plain.stack.backward(plain.step()), rtol=1e-6)
    assert all(value.isfinite().all() for value in gradients(made).values())
