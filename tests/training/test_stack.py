"""Every hook is called, in its place of the step, on the gradients and weights that it is promised."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from regft_core.contract import laws
from regft_core.errors import ModelError
from regft_core.hooks.base import Regulariser
from regft_core.hooks.declare import Declares
from regft_core.models.precision import in_precision
from regft_core.training.step import FitData
from regft_core.training.trainee import Trainee
from tests.errors import raises_code
from tests.methods.harness import TRAINING, Bench, declaring, same

ONE = TRAINING.model_copy(update={"max_steps": 1, "warmup_ratio": 0.0})
MATRIX = "bert.encoder.layer.0.intermediate.dense.weight"
IN_A_STEP = [
    *("observe_gradients", "change_gradients", "gradient_masks", "clip_gradients", "before_update"),
    *("pull_weights", "perturb_weights", "observe_weights"),
]


class Recorder(Regulariser):
    """Writes down what it is called with: in a step the norm of the gradient, and a weight."""

    name = "recorder"
    off = None
    calls: ClassVar[list[tuple[str, Any]]] = []

    def hand(self, trainee: Trainee) -> dict[str, torch.Tensor]:
        return {"one": torch.ones(1)}

    def keep(self, trainee: Trainee) -> dict[str, torch.Tensor]:
        return {"two": torch.full((1,), 2.0)}


def noting(hook: str) -> Any:
    def note(self: Recorder, *given: Any) -> Any:
        gradients = [p.grad.flatten() for _, p in self.trainee.named_trainable() if p.grad is not None]
        norm = float(torch.cat(gradients).norm()) if gradients else 0.0
        Recorder.calls.append((hook, (norm, self.trainee.raw(MATRIX).detach().clone())))
        return [] if hook == "gradient_masks" else None

    return note


for each in ("edit_weights", "prepare", "fit", *IN_A_STEP, "export"):
    setattr(Recorder, each, noting(each))


@pytest.fixture
def calls() -> list[tuple[str, Any]]:
    Recorder.calls.clear()
    return Recorder.calls


def test_every_hook_is_called_once_on_the_summed_and_then_the_clipped_gradient(calls: list[tuple[str, Any]]) -> None:
    """All batches of the step are in it, and the optimiser has not stepped yet."""
    tight = ONE.model_copy(update={"clip_norm": 0.01, "accumulation": 3, "batch_size": 4})
    run = Bench([(Recorder, {})], training=tight)
    start = run.trainee.raw(MATRIX).detach().clone()
    done = run.loop().train()
    run.stack.export(run.trainee)
    assert [name for name, _ in calls] == ["edit_weights", "prepare", "fit", *IN_A_STEP, "export"]
    assert run.stack.hand(run.trainee).keys() == {"recorder.one"}
    assert run.stack.keep(run.trainee).keys() == {"recorder.two"}
    seen = dict(calls)
    before, after, updated = (seen[name] for name in ("observe_gradients", "before_update", "pull_weights"))
    assert before[0] == pytest.approx(done.curve[0][4], rel=1e-5)
    assert before[0] > 0.1
    assert after[0] == pytest.approx(0.01, rel=1e-3)
    assert updated[0] == pytest.approx(0.01, rel=1e-3)  # gradients are dropped after the last hook
    assert torch.equal(before[1], start)
    assert torch.equal(after[1], start)
    assert not torch.equal(updated[1], start)


def ascent(self: Any, step: Any, main: Any) -> torch.Tensor | None:
    """A term at logits whose pass was preceded by a gradient of its own, as adversarial methods take it."""
    weight = step.trainee.raw(MATRIX)
    probe = step.task_loss(step.forward("probe", draw=1))
    self.slopes = step.gradients(probe, [weight, torch.zeros(1, requires_grad=True)])
    assert weight.grad is None
    return step.task_loss(step.forward("again", draw=2))


def test_passes_and_gradients_of_a_term_are_counted_once_each() -> None:
    run = Bench([(declaring("ascent", {"terms": ascent}), {})])
    step = run.step()
    run.stack.backward(step)
    assert (step.forward_passes, step.backward_passes) == (3, 3)
    gradient, unused = run.method.slopes
    assert gradient.abs().max() > 0
    assert not unused.any()
    # The gradient of the sum is that of both losses, and the probe left nothing in it.
    plain = Bench()
    other = plain.step()
    other.backward(other.task_loss(other.forward()) + other.task_loss(other.forward(draw=2)))
    assert torch.allclose(run.trainee.raw(MATRIX).grad, plain.trainee.raw(MATRIX).grad, atol=1e-7)


def slowed(name: str, parameter: str, factor: float) -> Any:
    return declaring(name, {"learning_rate_factors": lambda self: {parameter: factor}}), {}


def test_factors_of_two_regularisers_multiply() -> None:
    listed = [slowed("slow", MATRIX, 0.5), slowed("slower", MATRIX, 0.25)]
    loop = Bench(listed, training=ONE).loop()
    loop.train()
    for rate in ("base_lr", "lr"):  # of the group, and of the only step
        rates = {name: group[rate] for group in loop.optimizer.param_groups for name in group["names"]}
        assert rates.pop(MATRIX) == pytest.approx(TRAINING.learning_rate * 0.125)
        assert set(rates.values()) == {TRAINING.learning_rate}
    wrong = MATRIX.replace("weight", "wieght")
    with raises_code(ModelError, "unknown-parameter", "misspelt", f"to '{wrong}'", f"did you mean '{MATRIX}'?"):
        Bench([slowed("misspelt", wrong, 0.5)]).loop()
    frozen = Bench(listed)
    frozen.trainee.raw(MATRIX).requires_grad_(False)
    assert all(MATRIX not in group["names"] for group in frozen.loop().groups)


@torch.no_grad()
def add_one(self: Regulariser, trainee: Trainee) -> None:
    for _, parameter in trainee.named_raw():
        parameter.add_(1.0)


def test_anchors_are_what_was_loaded_and_what_the_phase_found_before_its_own_edits() -> None:
    """That training leaves them alone is a law of every method (``tests/methods/test_contract.py``)."""
    checkpoint = Bench().trainee.trained_weights()
    start = {name: value * 2 if value.is_floating_point() else value for name, value in checkpoint.items()}
    anchored = declaring("anchored", {"edit_weights": add_one}, anchors=("checkpoint", "start"), edits=("weights",))
    run = Bench([(anchored, {})], start=start)
    for name, parameter in run.trainee.named_raw():
        assert torch.equal(run.trainee.anchor("checkpoint")[name], checkpoint[name])
        assert torch.equal(run.trainee.anchor("start")[name], start[name])
        assert torch.equal(parameter, start[name] + 1.0)
    with pytest.raises(KeyError):
        Bench([(declaring("one", anchors=("checkpoint",)), {})]).trainee.anchor("start")


class Counter(Regulariser):
    """Sees every row of ``fit`` once, and takes gradients there."""

    name = "counter"

    def fit(self, trainee: Trainee, data: FitData) -> None:
        self.rows = [int(row) for batch in data.sequential(5) for row in batch.indices]
        step, weight = data.step(next(data.sequential(4)), 0), trainee.raw(MATRIX)
        (self.gradient,) = step.gradients(step.task_loss(step.forward()), [weight])
        assert weight.grad is None
        self.aside = [] if data.validation is None else [b.indices.tolist() for b in data.sequential(2, aside=True)]
        trainee.model.train()
        first, second = ([logits for _, logits in data.answers()] for _ in range(2))
        assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))  # without dropout
        assert not first[0].requires_grad
        assert trainee.model.training

    def observe_weights(self, step: Any) -> None:
        self.diagnostics.log(f"{self.name}.step", step.index, float(step.index))

    def state(self) -> dict[str, torch.Tensor]:
        return {"gradient": self.gradient}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        self.gradient = state["gradient"]


class Other(Counter):
    name = "counter_too"


def test_fit_reads_every_row_once_in_order_and_takes_nothing_from_training() -> None:
    run = Bench([(Counter, {}), (Other, {})], validation=True)
    fitted: Any = run.stack.regularisers[0]
    assert fitted.rows == list(range(12))
    assert fitted.gradient.abs().max() > 0
    rows = run.validation.rows
    assert fitted.aside == [rows[start : start + 2] for start in range(0, len(rows), 2)]
    # Fitting draws and counts on its own: the training after it is plain.
    assert same(run.train(), Bench().train())
    # State and diagnostics go back to the regulariser that they are of.
    assert laws.resume(lambda **options: Bench([(Counter, {}), (Other, {})]).loop(**options), 3) == ""
    assert len(run.stack.diagnostics().values) == 12


def test_a_phase_is_skipped_only_where_every_regulariser_says_so() -> None:
    idle = declaring("idle", {"skip": lambda self, trainee: "there is nothing to do"})
    for listed, reason in (([(idle, {})], "there is nothing to do"), ([(idle, {}), (Recorder, {})], None), ([], None)):
        run = Bench(listed)  # type: ignore[arg-type]
        assert run.stack.skip(run.trainee) == reason


@pytest.mark.parametrize(("final", "exports"), [(True, 2), (False, 1)])
def test_only_folded_views_leave_a_phase_before_the_last(final: bool, exports: int, calls: list[Any]) -> None:
    """What a later phase mixes again is handed over behind its view."""
    declared = classmethod(lambda cls, options: Declares(hands_over="trained"))
    kept = type("Kept", (Recorder,), {"name": "kept", "declare": declared})
    Bench([(Recorder, {}), (kept, {})], training=ONE, final=final).train()
    assert [name for name, _ in calls].count("export") == exports


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_family_whose_code_fails_in_half_precision_is_refused_with_the_reason(precision: str) -> None:
    training = TRAINING.model_copy(update={"precision": precision, "max_steps": 1})
    with raises_code(ModelError, "precision-not-possible", "deberta", precision, "fp32"):
        Bench([], architecture="deberta", training=training)
    assert Bench([], architecture="deberta-v2", training=training).loop().train().step == 1
    model = Bench([], architecture="deberta").model
    with raises_code(ModelError, "precision-not-possible", "deberta", "bf16"):
        in_precision(model, "bf16", "cpu", "the export")
