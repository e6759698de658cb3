"""The contract that every regulariser inherits by being found in ``regft_core/methods``.

Nothing here names a method: options come from the class (defaults, ``off``,
``refused_architectures``), so a new file is tested without an edit.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from regft_core.config.schema import DropoutConfig
from regft_core.data.batches import Batch
from regft_core.errors import ModelError
from regft_core.methods import compose
from regft_core.methods.registry import discover
from tests.methods.harness import TRAINING, Bench, examples, largest_difference, same

ARCHITECTURES = ("bert", "roberta", "electra", "xlnet", "deberta", "bart")
FORMS: dict[str, dict[str, Any]] = {
    "single": {},
    "pair": {"pair": True},
    "regression": {"kind": "regression", "pair": True},
}
NO_DROPOUT = DropoutConfig(hidden=0.0, attention=0.0)
REGISTRY = discover()
methods = pytest.mark.parametrize("name", sorted(REGISTRY))
architectures = pytest.mark.parametrize("architecture", ARCHITECTURES)
forms = pytest.mark.parametrize("form", sorted(FORMS))


def options(name: str) -> dict[str, Any]:
    return dict(getattr(REGISTRY[name], "contract_options", {}))


def bench(name: str, chosen: dict[str, Any] | None = None, **more: Any) -> Bench:
    """A bench with the method, its search section at defaults, on a checkpoint with an LM head."""
    cls = REGISTRY[name]
    given = options(name) if chosen is None else chosen
    search = cls.SearchConfig() if cls.SearchConfig is not None else None
    return Bench([(name, given)], search=search, masked_lm=True, **more)


def refused(name: str, architecture: str) -> bool:
    return architecture in REGISTRY[name].refused_architectures


@methods
def test_refused_architectures_say_why(name: str) -> None:
    for architecture in REGISTRY[name].refused_architectures:
        with pytest.raises(ModelError, match=r"\w+ "):
            bench(name, architecture=architecture).train()


@methods
@architectures
@forms
def test_strength_zero_is_plain_fine_tuning(name: str, architecture: str, form: str) -> None:
    if refused(name, architecture):
        pytest.skip("refused on this architecture, see test_refused_architectures_say_why")
    off = bench(name, REGISTRY[name].off, architecture=architecture, **FORMS[form])
    plain_training = off.training
    plain = Bench(architecture=architecture, training=plain_training, masked_lm=True, **FORMS[form])
    assert same(off.train(), plain.train())


@methods
@architectures
@forms
def test_gradients_are_finite_and_eval_is_inert(name: str, architecture: str, form: str) -> None:
    if refused(name, architecture) or not acts_on(name, form):
        pytest.skip("refused here, with a reason that other tests check")
    run = bench(name, architecture=architecture, **FORMS[form])
    step = run.step()
    loss = run.stack.backward(step)
    run.stack.before_clip(step)
    assert torch.isfinite(loss)
    gradients = [p.grad for _, p in run.trainee.named_trainable() if p.grad is not None]
    assert gradients
    assert all(torch.isfinite(g).all() for g in gradients)
    inputs = step.batch.model_inputs()
    run.model.eval()
    with torch.no_grad():
        first, second = run.model(**inputs).logits, run.model(**inputs).logits
    assert torch.equal(first, second)
    if not REGISTRY[name].owns_weights(run.stack.regularisers[0].options):
        plain = Bench(architecture=architecture, masked_lm=True, **FORMS[form]).model.eval()
        with torch.no_grad():
            assert torch.equal(first, plain(**inputs).logits)


def acts_on(name: str, form: str) -> bool:
    """Whether the method says that it can act on this kind of task."""
    from regft_core.config.schema import BuiltinSource, ColumnsConfig, SplitsConfig, TaskConfig

    regression = form == "regression"
    task = TaskConfig(
        kind="regression" if regression else "classification",
        source=BuiltinSource(kind="builtin", generator="cue_sentence"),
        splits=SplitsConfig(train="train", dev="dev"),
        columns=ColumnsConfig(text="text"),
        labels=None if regression else ("a", "b"),
        metrics=("pearson",) if regression else ("accuracy",),
        primary="pearson" if regression else "accuracy",
    )
    return not REGISTRY[name].check_task(REGISTRY[name].Config.model_validate(options(name)), task)


class Memory:
    """A checkpointer that keeps everything in memory and can stop the run."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stored: tuple[dict[str, torch.Tensor], dict[str, Any]] | None = None
        self.stop_after = stop_after

    def save_checkpoint(self, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
        import json

        self.stored = ({k: v.detach().clone() for k, v in tensors.items()}, json.loads(json.dumps(meta)))

    def load_checkpoint(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        return self.stored


class Killed(Exception):
    pass


def kill_at(step: int) -> Any:
    def check(done: int) -> None:
        if done == step:
            raise Killed

    return check


def phases(name: str) -> list[str]:
    """``finetune`` and, for a method with a search phase, one search run."""
    given = REGISTRY[name].Config.model_validate(options(name))
    return ["search-0", "finetune"] if REGISTRY[name].search_phase(given) else ["finetune"]


@methods
@pytest.mark.parametrize("kill", [1, 3])
def test_resume_equals_uninterrupted(name: str, kill: int) -> None:
    for phase in phases(name):

        def make(phase: str = phase) -> Bench:
            return bench(name, phase=phase, validation=phase != "finetune")

        whole = make()
        whole.loop().train()
        memory, broken = Memory(), make()
        with pytest.raises(Killed):
            broken.loop(checkpointer=memory, checkpoint_seconds=0, on_step=kill_at(kill)).train()
        resumed = make()
        resumed.loop(checkpointer=memory).train()
        assert same(whole.trainee.state(), resumed.trainee.state())
        assert same(whole.stack.state(), resumed.stack.state())
        assert whole.stack.diagnostics().values == resumed.stack.diagnostics().values


@methods
@architectures
def test_export_is_a_plain_model_with_the_same_logits(name: str, architecture: str) -> None:
    if refused(name, architecture):
        pytest.skip("refused on this architecture")
    run = bench(name, architecture=architecture)
    run.loop().train()
    inputs = run.stream.batch(0).model_inputs()
    run.model.eval()
    with torch.no_grad():
        trained = run.model(**inputs).logits
    run.stack.export(run.trainee)
    fresh = Bench(architecture=architecture, masked_lm=True, seed=1).model.eval()
    fresh.load_state_dict(run.trainee.plain_weights(), strict=True)
    with torch.no_grad():
        assert torch.equal(trained, fresh(**inputs).logits)


@methods
def test_a_method_of_strength_zero_shifts_no_other_draw(name: str) -> None:
    other = "hype" if name != "hype" else "weight_mixup"
    acting = {"scale": 1e-2, "hidden_dropout": "keep"} if other == "hype" else {"mode": "fixed"}
    training = bench(name, REGISTRY[name].off).training
    alone = Bench([(other, acting)], training=training, masked_lm=True).train()
    beside = Bench([(name, REGISTRY[name].off), (other, acting)], training=training, masked_lm=True).train()
    assert same(alone, beside)


@methods
def test_measured_passes_equal_the_declared_ones(name: str) -> None:
    cls = REGISTRY[name]
    given = cls.Config.model_validate(options(name))
    done = bench(name).loop().train()
    declared = cls.cost(given)
    assert done.forward_passes / done.batches == pytest.approx(declared.forward)
    assert done.backward_passes / done.batches == pytest.approx(declared.backward)
    if cls.search_phase(given):
        search = cls.SearchConfig() if cls.SearchConfig is not None else None
        run = bench(name, phase="search-0", validation=True).loop().train()
        assert run.forward_passes / run.batches == pytest.approx(cls.search_cost(given, search).forward)
        assert run.backward_passes / run.batches == pytest.approx(cls.search_cost(given, search).backward)


@methods
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_precision_is_accepted_or_refused_as_declared(name: str, precision: str) -> None:
    cls = REGISTRY[name]
    given = cls.Config.model_validate(options(name))
    training = TRAINING.model_copy(update={"precision": precision})
    refusals, _ = compose.precision_problems([(cls, given)], training)
    if precision == "fp32":
        assert not refusals
    if refusals:
        assert precision in refusals[0]
        assert "fp32" in refusals[0]
        return
    done = bench(name, training=training.model_copy(update={"max_steps": 2})).loop().train()
    assert len(done.curve) == 2


def widen(batch: Batch, columns: int) -> Batch:
    """The batch with ``columns`` more columns of padding on the right."""

    def pad(tensor: torch.Tensor, value: int) -> torch.Tensor:
        return torch.nn.functional.pad(tensor, (0, columns), value=value)

    return dataclasses.replace(
        batch,
        input_ids=pad(batch.input_ids, 0),
        attention_mask=pad(batch.attention_mask, 0),
        token_type_ids=None if batch.token_type_ids is None else pad(batch.token_type_ids, 0),
        special_mask=pad(batch.special_mask, 1),
        segment=pad(batch.segment, -1),
    )


@methods
def test_padding_does_not_change_the_loss(name: str) -> None:
    if not REGISTRY[name].padding_invariant:
        pytest.skip("the method says that it depends on padding")
    losses = []
    for columns in (0, 7):
        run = bench(name, dropout=NO_DROPOUT)
        step = run.step()
        step.batch = widen(step.batch, columns)
        losses.append(float(run.stack.backward(step)))
    # Noise is drawn for the padded shape, so methods that add it agree to the size of the noise.
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_examples_differ_enough_for_these_tests_to_mean_something() -> None:
    assert len({example.text for example in examples(12)}) == 12
    moved = largest_difference(Bench().train(), Bench().trainee.plain_weights())
    assert moved > 1e-3
