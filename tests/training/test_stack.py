"""Every hook is called, in its place of the step, on the gradients and weights that it is promised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import pytest
import torch

from regft_core.errors import ModelError
from regft_core.hooks.base import Cost, Handed, ParameterGroup, Regulariser
from regft_core.hooks.declare import Anchor, ClipSide, Declares
from regft_core.hooks.description import Description
from regft_core.schema import StrictModel
from regft_core.training.fitting import FitData
from regft_core.training.trainee import Trainee
from tests.errors import raises_code
from tests.methods.harness import TRAINING, Bench, examples, resumed, same

ONE = TRAINING.model_copy(update={"max_steps": 1, "warmup_ratio": 0.0})
MATRIX = "bert.encoder.layer.0.intermediate.dense.weight"


IN_A_STEP = [
    *("observe_gradients", "change_gradients", "gradient_masks", "clip_gradients", "before_update"),
    *("pull_weights", "perturb_weights", "observe_weights"),
]


class Recorder(Regulariser):
    """Writes down what it is called with."""

    name = "recorder"
    off = None
    calls: ClassVar[list[tuple[str, Any]]] = []

    def _note(self, what: str, value: Any = None) -> None:
        Recorder.calls.append((what, value))

    def edit_weights(self, trainee: Trainee) -> None:
        self.trainee = trainee
        self._note("edit_weights")

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self._note("prepare")

    def fit(self, trainee: Trainee, data: FitData) -> None:
        self._note("fit")

    def _norm(self) -> float:
        gradients = [p.grad for _, p in self.trainee.named_trainable() if p.grad is not None]
        return float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])))

    def _note_step(self, what: str) -> None:
        self._note(what, (self._norm(), self.trainee.raw(MATRIX).detach().clone()))

    def hand(self, trainee: Trainee) -> dict[str, torch.Tensor]:
        return {"one": torch.ones(1)}

    def keep(self, trainee: Trainee) -> dict[str, torch.Tensor]:
        return {"two": torch.full((1,), 2.0)}

    def export(self, trainee: Trainee) -> None:
        self._note("export")


def noting(hook: str) -> Any:
    """A hook of a step that writes down its name, the norm of the gradient and a weight."""

    def note(self: Recorder, step: Any) -> Any:
        self._note_step(hook)
        return [] if hook == "gradient_masks" else None

    return note


for one in IN_A_STEP:
    setattr(Recorder, one, noting(one))


@pytest.fixture
def calls() -> list[tuple[str, Any]]:
    Recorder.calls.clear()
    return Recorder.calls


def test_every_hook_is_called_once_in_the_order_of_the_base_class(calls: list[tuple[str, Any]]) -> None:
    run = Bench([(Recorder, {})], training=ONE.model_copy(update={"accumulation": 3, "batch_size": 4}))
    run.train()
    assert [name for name, _ in calls] == ["edit_weights", "prepare", "fit", *IN_A_STEP, "export"]
    assert run.stack.hand(run.trainee).keys() == {"recorder.one"}
    assert run.stack.keep(run.trainee).keys() == {"recorder.two"}


def test_hooks_around_clipping_see_the_summed_gradient_and_then_the_clipped_one(calls: list[tuple[str, Any]]) -> None:
    """All batches of the step are in it, and the optimiser has not stepped yet."""
    tight = ONE.model_copy(update={"clip_norm": 0.01, "accumulation": 3, "batch_size": 4})
    run = Bench([(Recorder, {})], training=tight)
    start = run.trainee.raw(MATRIX).detach().clone()
    done = run.loop().train()
    seen = dict(calls)
    before, after, updated = (seen[name] for name in ("observe_gradients", "before_update", "pull_weights"))
    assert before[0] == pytest.approx(done.curve[0][4], rel=1e-5)
    assert before[0] > 0.1
    assert after[0] == pytest.approx(0.01, rel=1e-3)
    assert updated[0] == pytest.approx(0.01, rel=1e-3)  # gradients are dropped after the last hook
    assert torch.equal(before[1], start)
    assert torch.equal(after[1], start)
    assert not torch.equal(updated[1], start)


class Halver(Regulariser):
    """Changes the gradient before or after clipping, or the weights after the update."""

    name = "halver"

    class Config(StrictModel):
        at: ClipSide | Literal["after_update"] = "before_clip"
        by: float = 0.5

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self.trainee = trainee

    @classmethod
    def declare(cls, options: Any) -> Declares:
        return Declares(gradients_at="before_clip" if options.at == "after_update" else options.at)

    def gradient_masks(self, step: Any) -> list[tuple[str, float]]:
        if self.options.at == "after_update":
            return []
        return [(name, self.options.by) for name, _ in self.trainee.named_trainable()]

    def pull_weights(self, step: Any) -> None:
        if self.options.at == "after_update":
            with torch.no_grad():
                self.trainee.raw(MATRIX).mul_(self.options.by)


class Owner(Regulariser):
    """Plain gradient descent as an optimiser of its own, so that an update shows its gradient."""

    name = "owner"

    @classmethod
    def declare(cls, options: Any) -> Declares:
        return Declares(optimizer="descent_of_its_own")

    def build_optimizer(self, groups: list[dict[str, Any]], training: Any) -> torch.optim.Optimizer | None:
        return torch.optim.SGD([{**group, "lr": group["base_lr"]} for group in groups], lr=training.learning_rate)


def update(*listed: Any, clip: float | None = None, **changes: Any) -> torch.Tensor:
    """What one step of gradient descent at rate 1 does to a weight."""
    protocol = {"learning_rate": 1.0, "weight_decay": 0.0, "clip_norm": clip, "schedule": "constant", **changes}
    run = Bench([(Owner, {}), *listed], training=ONE.model_copy(update=protocol))
    before = run.trainee.raw(MATRIX).detach().clone()
    run.loop().train()
    return run.trainee.raw(MATRIX).detach() - before


def test_clipping_lies_between_the_two_changes_of_the_gradient() -> None:
    clipped = update(clip=0.01)
    # A larger gradient is clipped to the same one; after clipping nothing limits it.
    before, after = (update((Halver, {"at": at, "by": 8.0}), clip=0.01) for at in ("before_clip", "after_clip"))
    assert float(clipped.abs().max()) > 1e-4
    assert torch.allclose(before, clipped, rtol=1e-3, atol=1e-7)
    assert torch.allclose(after, 8 * clipped, rtol=1e-3, atol=1e-6)


class Ascent(Regulariser):
    """A term at logits whose pass was preceded by a gradient of its own, as adversarial methods take it."""

    name = "ascent"

    @classmethod
    def declare(cls, options: Any) -> Declares:
        return Declares(adds_terms=True)

    def terms(self, step: Any, main: Any) -> torch.Tensor | None:
        weight = step.trainee.raw(MATRIX)
        probe = step.task_loss(step.forward("probe", draw=1))
        self.found = step.gradients(probe, [weight, torch.zeros(1, requires_grad=True)])
        assert weight.grad is None
        return step.task_loss(step.forward("again", draw=2))


def test_passes_and_gradients_of_a_term_are_counted_once_each() -> None:
    run = Bench([(Ascent, {})])
    step = run.step()
    run.stack.backward(step)
    assert (step.forward_passes, step.backward_passes) == (3, 3)
    gradient, unused = run.stack.regularisers[0].found  # type: ignore[attr-defined]
    assert gradient.abs().max() > 0
    assert not unused.any()
    # The gradient of the sum is that of both losses, and the probe left nothing in it.
    plain = Bench()
    other = plain.step()
    other.backward(other.task_loss(other.forward()) + other.task_loss(other.forward(draw=2)))
    assert torch.allclose(run.trainee.raw(MATRIX).grad, plain.trainee.raw(MATRIX).grad, atol=1e-7)


# ------------------------------------------------------------------------- rates and groups


class Slow(Regulariser):
    """A factor of the learning rate."""

    name = "slow"

    class Config(StrictModel):
        factor: float = 0.5

    def learning_rate_factors(self) -> Mapping[str, float]:
        return {MATRIX: self.options.factor}


class Slower(Slow):
    name = "slower"


def test_factors_of_two_regularisers_multiply() -> None:
    listed = [(Slow, {"factor": 0.5}), (Slower, {"factor": 0.25})]
    run = Bench(listed)
    assert run.stack.learning_rate_factors(run.trainee.names()) == {MATRIX: 0.125}
    rates = {name: g["base_lr"] for g in run.loop().groups for name in g["names"]}
    assert rates.pop(MATRIX) == pytest.approx(TRAINING.learning_rate * 0.125)
    assert set(rates.values()) == {TRAINING.learning_rate}
    # What the factor does to a step of gradient descent.
    assert torch.allclose(update(*listed), 0.125 * update(), atol=1e-7)


class Misspelt(Regulariser):
    """A factor for a parameter that there is not."""

    name = "misspelt"

    def learning_rate_factors(self) -> Mapping[str, float]:
        return {MATRIX.replace("weight", "wieght"): 0.5}


def test_a_factor_for_a_parameter_that_there_is_not_is_an_error_and_one_for_a_frozen_one_is_none() -> None:
    wrong = MATRIX.replace("weight", "wieght")
    with raises_code(ModelError, "unknown-parameter", "misspelt") as caught:
        Bench([(Misspelt, {})]).loop()
    assert f"to '{wrong}'" in str(caught.value)
    assert f"did you mean '{MATRIX}'?" in str(caught.value)
    run = Bench([(Slow, {})])
    run.trainee.raw(MATRIX).requires_grad_(False)
    assert all(MATRIX not in group["names"] for group in run.loop().groups)


class Extra(Regulariser):
    """A module of its own, with the settings that the options give."""

    name = "extra"

    class Config(StrictModel):
        learning_rate: float | None = None
        weight_decay: float | None = None
        frozen: bool = False

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        module = torch.nn.Linear(2, 2)
        torch.nn.init.ones_(module.weight)
        torch.nn.init.ones_(module.bias)
        self.module = trainee.attach("extra", module.requires_grad_(not self.options.frozen))

    def parameter_groups(self) -> list[ParameterGroup]:
        named = {f"attached.extra.{name}": p for name, p in self.module.named_parameters()}
        return [ParameterGroup(named, self.options.learning_rate, self.options.weight_decay)]

    @classmethod
    def declare(cls, options: Any) -> Declares:
        return Declares(program=("main",))

    def backward(self, step: Any) -> torch.Tensor:
        loss = step.task_loss(step.forward())
        # A gradient of 0, so that all that moves the module is decay.
        step.backward(loss + sum(0.0 * p.sum() for p in self.module.parameters()))
        return loss.detach()


@pytest.mark.parametrize(
    ("options", "rate", "decay"),
    [
        ({}, 0.1, 0.5),  # what the group leaves open is the shared protocol's, also for its bias
        ({"weight_decay": 0.0}, 0.1, 0.0),
        ({"weight_decay": 0.25}, 0.1, 0.25),
        ({"learning_rate": 0.2}, 0.2, 0.5),
        ({"learning_rate": 0.2, "weight_decay": 0.25}, 0.2, 0.25),
    ],
)
def test_a_special_group_decays_at_its_own_rates_or_the_shared_ones(
    options: dict[str, Any], rate: float, decay: float
) -> None:
    protocol = {"learning_rate": 0.1, "weight_decay": 0.5, "schedule": "constant"}
    run = Bench([(Extra, options)], training=ONE.model_copy(update=protocol))
    run.loop().train()
    module = run.stack.regularisers[0].module  # type: ignore[attr-defined]
    for parameter in module.parameters():
        assert parameter.detach().flatten().tolist() == pytest.approx([1 - rate * decay] * parameter.numel())


class Freezer(Regulariser):
    """Freezes everything, or all but the head."""

    name = "freezer"

    class Config(StrictModel):
        head: bool = False

    @classmethod
    def declare(cls, options: Any) -> Declares:
        return Declares(freezes_encoder=True, description=Description(cost=Cost(1, 0)))

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        for name, parameter in trainee.named_raw():
            parameter.requires_grad_(not self.options.head and name in trainee.sites.head)


# ---------------------------------------------------------------------------- start and anchors


class Anchored(Regulariser):
    """Declares the anchors that its options name, and edits the starting weights."""

    name = "anchored"

    class Config(StrictModel):
        checkpoint: bool = True
        start: bool = True

    @classmethod
    def declare(cls, options: Any) -> Declares:
        anchors: tuple[Anchor, ...] = ("checkpoint", "start")
        return Declares(anchors=tuple(name for name in anchors if getattr(options, name)), edits=("weights",))

    def edit_weights(self, trainee: Trainee) -> None:
        with torch.no_grad():
            for _, parameter in trainee.named_raw():
                parameter.add_(1.0)


def test_anchors_are_what_was_loaded_and_what_the_phase_found_before_its_own_edits() -> None:
    checkpoint = Bench().trainee.trained_weights()
    start = {name: value * 2 if value.is_floating_point() else value for name, value in checkpoint.items()}
    run = Bench([(Anchored, {})], start=start)
    for name, parameter in run.trainee.named_raw():
        assert torch.equal(run.trainee.anchor("checkpoint")[name], checkpoint[name])
        assert torch.equal(run.trainee.anchor("start")[name], start[name])
        assert torch.equal(parameter, start[name] + 1.0)
    run.loop().train()
    for name in run.trainee.plain_names:
        assert torch.equal(run.trainee.anchor("checkpoint")[name], checkpoint[name])
        assert torch.equal(run.trainee.anchor("start")[name], start[name])
    only = Bench([(Anchored, {"start": False})])
    with pytest.raises(KeyError):
        only.trainee.anchor("start")


# --------------------------------------------------------------------------- fit, state, skip


class Counter(Regulariser):
    """Sees every row of ``fit`` once, and takes gradients there."""

    name = "counter"

    def fit(self, trainee: Trainee, data: FitData) -> None:
        self.rows = [int(row) for batch in data.sequential(5) for row in batch.indices]
        batch = next(data.sequential(4))
        step = data.step(batch, 0)
        weight = trainee.raw(MATRIX)
        (self.gradient,) = step.gradients(step.task_loss(step.forward()), [weight])
        assert weight.grad is None
        self.aside = [] if data.validation is None else [b.indices.tolist() for b in data.sequential(2, aside=True)]
        trainee.model.train()
        first, second = ([logits for _, logits in data.answers(5)] for _ in range(2))
        assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))  # without dropout
        assert not first[0].requires_grad
        assert trainee.model.training
        trainee.model.eval()

    def hand(self, trainee: Trainee) -> dict[str, torch.Tensor]:
        return {"gradient": self.gradient}

    def state(self) -> dict[str, torch.Tensor]:
        return {"gradient": self.gradient}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        self.gradient = state["gradient"]


def test_fit_reads_every_row_once_in_order_and_takes_nothing_from_training() -> None:
    run = Bench([(Counter, {})], validation=True)
    fitted = run.stack.regularisers[0]
    assert isinstance(fitted, Counter)
    assert fitted.rows == list(range(len(examples(12))))
    assert fitted.gradient.abs().max() > 0
    assert run.validation is not None
    rows = run.validation.rows
    assert fitted.aside == [rows[start : start + 2] for start in range(0, len(rows), 2)]
    # Fitting draws and counts on its own: the training after it is plain.
    assert same(run.train(), Bench().train())
    weights, _ = resumed(lambda: Bench([(Counter, {})]), at=3)
    assert same(weights, Bench().train())


def test_a_phase_is_skipped_only_where_every_regulariser_says_so() -> None:
    why = {"name": "idle", "skip": lambda self, trainee: "there is nothing to do"}
    idle = type("Idle", (Regulariser,), why)
    run = Bench([(idle, {})])
    assert run.stack.skip(run.trainee) == "there is nothing to do"
    both = Bench([(idle, {}), (Recorder, {})])
    assert both.stack.skip(both.trainee) is None
    plain = Bench()
    assert plain.stack.skip(plain.trainee) is None


def test_state_and_diagnostics_go_back_to_the_regulariser_that_they_are_of() -> None:
    class Noter(Regulariser):
        name = "noter"

        def observe_weights(self, step: Any) -> None:
            self.diagnostics.log(f"{self.name}.step", step.index, float(step.index))

    class NoterToo(Noter):
        name = "noter_too"

    whole = Bench([(Noter, {}), (NoterToo, {}), (Counter, {})])
    whole.train()
    _, logged = resumed(lambda: Bench([(Noter, {}), (NoterToo, {}), (Counter, {})]), at=2)
    assert logged == whole.stack.diagnostics().values
    assert len(logged) == 12


def test_only_folded_views_leave_a_phase_before_the_last() -> None:
    """What a later phase mixes again is handed over behind its view."""
    declared = classmethod(lambda cls, options: Declares(hands_over="trained"))
    kept = type("Kept", (Recorder,), {"name": "kept", "declare": declared})
    for final, expected in ((True, 2), (False, 1)):
        Recorder.calls.clear()
        run = Bench([(Recorder, {}), (kept, {})], training=ONE, final=final)
        run.train()
        assert [name for name, _ in Recorder.calls].count("export") == expected
