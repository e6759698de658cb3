"""Mask-tuning against the invariants of its paper."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.contract import laws
from regft_core.errors import ModelError
from regft_core.hooks.declare import Handed
from regft_core.methods.mask_tuning import MaskTuning, MaskTuningConfig
from regft_core.models.masking import choose_positions, masked_positions
from regft_core.schema.method import Phase
from tests.errors import raises_code
from tests.methods.chain import phase, runner
from tests.methods.harness import STILL, TRAINING, Bench, close, gradients, only, same, watched

SHORT = TRAINING.model_copy(update={"max_steps": 2})
FAMILIES = ("xlnet", "deberta-v2", "eurobert")  # many tests below are on bert
HEAD = phase([("masked_lm", {"trains": "head"})], name="head_phase", epochs=2, learning_rate=1e-2)
FILLER = phase([("masked_lm", {})], name="filler_phase", epochs=2, learning_rate=1e-2)
TRAINED = {"head": "head_phase"}
FILLED = {"filler": "filler_phase", "alpha": 0.0}
INSIDE = "encoder.layer.0.intermediate.dense.weight"
bench = only("mask_tuning", architecture="roberta", masked_lm=True)


def stepped(options: dict[str, Any], **more: Any) -> dict[str, torch.Tensor]:
    """The gradients of one step."""
    run = bench(options, **more)
    run.method.backward(run.step())
    return gradients(run)


def after(given: Phase, architecture: str = "bert", **more: Any) -> dict[str, Handed]:
    """What the phase hands over, run on a checkpoint without a masked-LM head."""
    return {given.name: runner(architecture, **more).run([given], steps=6)[given.name].handed}


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


@pytest.mark.parametrize("architecture", [*FAMILIES, "bart"])
def test_filled_input_differs_inside_the_masks_only(architecture: str) -> None:
    run = bench(architecture=architecture, pair=True)
    step = run.step()
    passes = watched(step)
    run.method.backward(step)
    assert [name for name, *_ in passes] == ["masked", "filled"]
    masked, filled = (batch.input_ids for _, _, batch, _ in passes)
    clean = step.batch.input_ids
    positions = masked == run.tokenizer.mask_token_id
    assert (positions.sum(1) == 1).all()  # a row of the harness has fewer than 30 maskable tokens
    assert not positions[step.batch.segment == -1].any()
    assert torch.equal(masked[~positions], clean[~positions])
    assert torch.equal(filled[~positions], clean[~positions])


@pytest.mark.parametrize("fill", ["argmax", "sample"])
def test_bart_fills_in_no_end_of_the_text(fill: str) -> None:
    run = bench({"fill": fill}, architecture="bart")
    end = run.method.trainee.model.config.eos_token_id
    logits = torch.zeros(5, run.method.trainee.model.config.vocab_size)
    logits[:, end] = 100.0
    assert end not in run.method.filling(run.step(), logits).tolist()


def test_alpha_one_trains_the_masked_lm_alone() -> None:
    found = stepped({"alpha": 1.0}, dropout=STILL)
    reference = bench({"alpha": 1.0}, dropout=STILL)
    assert not any(found[name].any() for name in reference.trainee.sites.head)
    step = reference.step()
    positions = masked_positions(reference.method, step)
    ids = step.batch.input_ids.clone()
    ids[positions] = reference.tokenizer.mask_token_id
    hidden = reference.model.roberta(input_ids=ids, attention_mask=step.batch.attention_mask)[0]
    labels = torch.full_like(ids, -100)
    labels[positions] = step.batch.input_ids[positions]
    logits = reference.method.head(hidden)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100).backward()
    assert gradients(reference)[f"roberta.{INSIDE}"].any()
    assert close(found, gradients(reference))


@pytest.mark.parametrize("alpha", [0.3, 0.6])
def test_gradients_add_up(alpha: float) -> None:
    masked, task, joint = (stepped({"alpha": weight}) for weight in (1.0, 0.0, alpha))
    for name, value in joint.items():
        zero = torch.zeros_like(value)
        expected = alpha * masked.get(name, zero) + (1 - alpha) * task.get(name, zero)
        assert (value - expected).norm() <= 1e-5 * expected.norm() + 1e-8, name


def test_oracle_predictions_give_the_plain_loss() -> None:
    """With dropout on: the filled pass draws what plain fine-tuning draws."""
    plain = Bench(architecture="roberta", masked_lm=True)
    expected = plain.stack.backward(plain.step())
    for wrong in (0, 1):
        run = bench({"alpha": 0.0})
        step = run.step()
        gold = step.batch.input_ids[masked_positions(run.method, step)]
        run.method.filling = lambda step, logits, gold=gold, wrong=wrong: (gold + wrong) % 50 if wrong else gold
        assert torch.equal(run.method.backward(step), expected) == (not wrong)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_the_optimiser_gets_the_tied_embedding_once(architecture: str) -> None:
    run = bench(architecture=architecture)
    parameters, embedding = run.loop().parameters, run.trainee.sites.word_embedding.weight
    assert sum(p is embedding for p in parameters) == 1
    assert len({id(p) for p in parameters}) == len(parameters)
    ties = 0 if architecture == "eurobert" else 1  # EuroBERT has an output matrix of its own
    assert sum(p is embedding for p in run.method.head.parameters()) == ties


def test_masked_input_without_the_joint_loss_needs_no_head() -> None:
    run = Bench([("mask_tuning", {"alpha": 0.0, "fill": "mask"})])  # a checkpoint without a head
    assert len(run.trainee.attached) == 0
    step, plain = run.step(), Bench()
    loss, other = run.stack.backward(step), plain.step()
    assert not torch.equal(loss, plain.stack.backward(plain.step()))
    other.batch.input_ids[masked_positions(run.method, step)] = run.tokenizer.mask_token_id
    assert torch.equal(loss, plain.stack.backward(other))


def test_a_sampled_fill_is_what_multinomial_draws() -> None:
    """Bit for bit, but without its look at the probabilities, for which a GPU would be waited for."""
    run = bench({"fill": "sample"})
    logits = torch.randn(300, 140, generator=torch.Generator().manual_seed(3)) * 4
    expected = torch.multinomial(logits.softmax(-1), 1, generator=run.step().generator("mask_tuning.fill"))
    assert torch.equal(run.method.filling(run.step(), logits), expected.squeeze(1))


def test_separate_models_are_trained_by_their_own_losses() -> None:
    run = bench({"coupling": "separate", "alpha": 0.5})
    classifier = {id(p) for p in run.model.parameters()}
    assert not any(id(p) in classifier for p in run.trainee.attached.parameters())
    for own, plain in zip(run.method.second.encoder.parameters(), run.model.roberta.parameters(), strict=False):
        assert torch.equal(own, plain)
    name = f"attached.mask_tuning.encoder.{INSIDE}"
    alone, both = (stepped({"coupling": "separate", "alpha": alpha}) for alpha in (1.0, 0.5))
    assert not alone[f"roberta.{INSIDE}"].any()
    assert torch.allclose(both[name], 0.5 * alone[name], rtol=1e-4, atol=1e-8)
    assert {f"roberta.{INSIDE}", name, "attached.mask_tuning.head.dense.weight"} <= both.keys()


def test_a_missing_head_is_taken_from_the_phase_that_trained_it() -> None:
    handed = after(HEAD)
    state = handed["head_phase"].of("masked_lm")
    run, fresh = Bench([("mask_tuning", TRAINED)], handed=handed), Bench()
    drawn = Bench([("masked_lm", {"trains": "head"})], phase="head_phase").method.head
    loaded, start = (dict(head.named_parameters()) for head in (run.method.head, drawn))
    names = [name.removeprefix("head/") for name in state]
    assert all(torch.equal(loaded[name], state[f"head/{name}"]) for name in names)
    assert any(not torch.equal(start[name], state[f"head/{name}"]) for name in names)
    # The classifier starts from the checkpoint, and the head's output matrix is its embedding.
    assert same(run.model.state_dict(), fresh.model.state_dict())
    assert any(p is run.trainee.sites.word_embedding.weight for p in run.method.head.parameters())
    assert len(run.stack.marks()) == 1


def test_the_head_of_the_checkpoint_goes_before_a_trained_one() -> None:
    """A checkpoint with a head needs none: the phase was skipped, and the result is not marked."""
    ran = runner(masked_lm=True).run([HEAD])["head_phase"]
    assert ran.members[0].skipped
    assert (ran.members[0].progression.step, ran.handed.state) == (0, {})
    run = Bench([("mask_tuning", TRAINED)], masked_lm=True, handed={"head_phase": ran.handed}, training=SHORT)
    assert run.stack.marks() == []
    assert same(run.train(), Bench([("mask_tuning", {})], masked_lm=True, training=SHORT).train())


@pytest.mark.parametrize("pooling", ["head", "mean"])
def test_a_filler_is_the_frozen_masked_lm_of_its_phase(pooling: str) -> None:
    handed = after(FILLER, pooling=pooling)
    weights, state = handed["filler_phase"].weights, handed["filler_phase"].of("masked_lm")
    assert not torch.equal(weights[f"bert.{INSIDE}"], Bench().model.bert.get_parameter(INSIDE))
    run = Bench([("mask_tuning", FILLED)], handed=handed, training=SHORT, pooling=pooling)
    second = run.method.second
    # The classifier starts from the checkpoint; the filler is another model, which no checkpoint of the run holds.
    assert same(run.model.state_dict(), Bench(pooling=pooling).model.state_dict())
    assert len(run.trainee.attached) == 0
    done = run.loop().train()
    assert all(torch.equal(value, weights[f"bert.{name}"]) for name, value in second.encoder.named_parameters())
    head = dict(second.head.named_parameters())
    assert all(torch.equal(head[name.removeprefix("head/")], value) for name, value in state.items())
    cost = MaskTuning.declare(MaskTuningConfig(**FILLED)).description.cost
    assert (done.forward_passes / done.batches, done.backward_passes / done.batches) == (cost.forward, cost.backward)
    # Without dropout the fill depends on the masks alone.
    step = run.step()
    positions = masked_positions(run.method, step)
    assert torch.equal(*(run.method.masked_logits(step, positions) for _ in range(2)))


def test_a_filler_resumes_with_the_bits_of_an_uninterrupted_run() -> None:
    """No checkpoint holds it: it comes from the phase's weights."""
    handed, options = after(FILLER), {**FILLED, "mask_rate": 0.3}
    assert laws.resume(lambda **loop: Bench([("mask_tuning", options)], handed=handed).loop(**loop), 3) == ""


def test_a_head_that_is_missing_or_cannot_be_trained_is_refused() -> None:
    """EuroBERT's head is one matrix; a checkpoint without it leaves the frozen encoder's embedding."""
    empty = {"head_phase": Handed("key", {}), "filler_phase": Handed("key", {}, Bench().trainee.trained_weights())}
    with raises_code(ModelError, "masked-lm-head-missing"):
        Bench([("mask_tuning", TRAINED)], handed=empty)
    with raises_code(ModelError, "masked-lm-missing", "filler_phase"):
        Bench([("mask_tuning", FILLED)], handed=empty)
    with raises_code(ModelError, "masked-lm-untrainable"):
        after(HEAD, "eurobert")
    with raises_code(ModelError, "masked-lm-untrainable"):
        Bench([("mask_tuning", {})], architecture="eurobert")


def test_a_batch_without_masks_has_the_task_loss_only() -> None:
    run = bench({"alpha": 0.6, "selection": "bernoulli", "mask_rate": 1e-9})
    plain = Bench(architecture="roberta", masked_lm=True)
    assert torch.allclose(run.method.backward(run.step()), 0.4 * plain.stack.backward(plain.step()), rtol=1e-6)
    assert all(value.isfinite().all() for value in gradients(run).values())
