"""Weight mixup against its card: hypergradient, averages, clipping. The mixed weight is in ``tests/models``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.errors import ModelError
from regft_core.evaluate import logits
from regft_core.hooks.declare import Handed, Setting
from regft_core.methods.weight_mixup import WeightMixup, WeightMixupConfig
from regft_core.runs.epoch_scores import validation_score
from regft_core.runs.training_run import build, outcome_tensors
from regft_core.schema import DropoutConfig
from regft_core.training import two_level
from regft_core.training.two_level import TwoLevelStep
from tests.errors import raises_code
from tests.methods.chain import phase, runner
from tests.methods.harness import TRAINING, Bench, calls_of, only, watched

FROM_SEARCH = {"attention": "search"}
#: A learning rate from the first step on, so that the virtual step moves the weights.
CONSTANT = TRAINING.model_copy(update={"warmup_ratio": 0.0, "schedule": "constant"})
RELEASED = {"variant": "released"}
#: Benches of the first member of the search phase.
searching = only("weight_mixup", phase="search-0", validation=True)


def attention(run: Bench) -> list[Tensor]:
    return list(run.method._attention().values())


def tuning(options: dict[str, Any] | None = None, search: dict[str, Any] | None = None, **more: Any) -> Bench:
    """A fine-tuning bench with the attention that a search starts with."""
    run = searching(search)
    handed = {"search": Handed("key", run.stack.hand(run.trainee))}
    return Bench([("weight_mixup", {**FROM_SEARCH, **(options or {})})], handed=handed, **more)


def relative_difference(one: list[Tensor], other: list[Tensor]) -> float:
    difference = two_level.global_norm([a - b for a, b in zip(one, other, strict=True)])
    return float(difference / two_level.global_norm(other))


def hypergradient_terms(run: Bench, radius: float) -> tuple[list[Tensor], list[Tensor]]:
    """(finite difference, exact) mixed term of one step with dropout on and shared masks."""
    step, weights = run.step(optimizer=None), [p for _, p in run.trainee.named_raw()]
    parameters = [p.requires_grad_(True) for p in attention(run)]

    def loss() -> Tensor:
        return step.task_loss(step.forward("train", draw=0))

    batch = run.validation.batch(0)
    logits = step.forward("validation", batch=batch, draw=1)
    direction = two_level.gradients(step.task_loss(logits, batch.labels), weights)
    # By double backward; needs an attention kernel that has a second derivative (eager).
    first = torch.autograd.grad(loss(), weights, create_graph=True, allow_unused=True)
    product = torch.stack([(g * d).sum() for g, d in zip(first, direction, strict=True) if g is not None]).sum()
    exact = two_level.gradients(product, parameters)
    copies = [weight.detach().clone() for weight in weights]
    estimate = two_level.mixed_term(loss, loss, weights, direction, parameters, radius)
    two_level.restore(weights, copies)
    return estimate, exact


def test_hypergradient_equals_double_backward_with_dropout_on() -> None:
    """Card, oracle 4. In float64 only the error of the method is left: it falls with the square of the radius."""
    run = searching(attention="eager", training=TRAINING.model_copy(update={"dropout": DropoutConfig(hidden=0.1)}))
    run.model.double()
    errors = [relative_difference(*hypergradient_terms(run, radius)) for radius in (0.04, 0.02, 0.01)]
    assert errors[2] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.3)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.3)


def search_step(run: Bench, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """One search step: what the attention update was given, and the weights after the first inner step."""
    step = run.step(validation=run.validation, optimizer=run.loop().optimizer, learning_rate=1e-3)
    seen: dict[str, Any] = {"start": [weight.detach().clone() for weight in step.weights()]}
    update, outer = TwoLevelStep._update, TwoLevelStep._validation_gradients

    def updating(self: TwoLevelStep, step: Any, direct: list[Tensor], *implicit: list[Tensor]) -> None:
        seen["gradient"] = [slope.clone() for slope in direct]
        seen["weights"] = [weight.detach().clone() for weight in step.weights()]
        update(self, step, direct, *implicit)

    def looking(self: TwoLevelStep, step: Any, weights: list[Tensor]) -> Any:
        seen["after_inner"] = [weight.detach().clone() for weight in weights]
        return outer(self, step, weights)

    monkeypatch.setattr(TwoLevelStep, "_update", updating)
    monkeypatch.setattr(TwoLevelStep, "_validation_gradients", looking)
    run.method.backward(step)
    return seen


def test_released_leaves_the_weights_displaced_by_the_radius(monkeypatch: pytest.MonkeyPatch) -> None:
    """Card, oracle 6: norm 0.01 along minus the preconditioned validation gradient."""
    seen = search_step(searching(RELEASED, training=CONSTANT), monkeypatch)
    displacement = [b - a for a, b in zip(seen["after_inner"], seen["weights"], strict=True)]
    assert float(two_level.global_norm(displacement)) == pytest.approx(0.01, rel=1e-2)
    assert relative_difference(seen["after_inner"], seen["start"]) > 0


def test_first_order_is_adamw_on_the_validation_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Card, oracle 5: implicit none steps AdamW on the plain validation gradient at the current weights."""
    run, other = (searching({"implicit": "none"}, training=CONSTANT) for _ in range(2))
    before = [p.requires_grad_(True) for p in attention(run)]
    step, batch = run.step(), run.validation.batch(0)
    logits = step.forward("validation", batch=batch, draw=1)
    expected = two_level.gradients(step.task_loss(logits, batch.labels), before)
    seen = search_step(other, monkeypatch)
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(expected, seen["gradient"], strict=True))
    copies = [p.detach().clone().requires_grad_(True) for p in before]
    for copy, gradient in zip(copies, seen["gradient"], strict=True):
        copy.grad = gradient
    torch.optim.AdamW(copies, lr=2e-3, weight_decay=0.01).step()
    assert any(not torch.equal(a, b) for a, b in zip(before, attention(other), strict=True))
    for copy, parameter in zip(copies, attention(other), strict=True):
        assert torch.allclose(copy.detach().clamp(0, 1), parameter, atol=1e-7)


def test_updates_at_an_interval_take_the_held_out_batches_in_turn() -> None:
    """None is skipped: with an interval of 2 half of the held-out rows would never be seen."""
    run = searching({"interval": 2})
    taken = calls_of(run.validation, "batch", int)
    assert run.loop().train().step == 6
    assert taken == [0, 1, 2]


@pytest.mark.parametrize("options", [{}, RELEASED, {"attention": "joint"}])
def test_attention_stays_in_range_and_moves(options: dict[str, Any]) -> None:
    """Card, oracle 8."""
    given = {**options, "attention_learning_rate": 0.1}
    run = Bench([("weight_mixup", given)]) if "attention" in options else searching(given)
    before, ranges = [p.detach().clone() for p in attention(run)], []
    run.loop(progress=lambda *_: ranges.extend((float(p.min()), float(p.max())) for p in attention(run))).train()
    assert all(low >= 0 and high <= 1 for low, high in ranges)
    assert any(not torch.equal(a, b) for a, b in zip(before, attention(run), strict=True))


def test_attention_has_the_shared_warm_up() -> None:
    run = searching({"attention_learning_rate": 0.1}, training=TRAINING.model_copy(update={"warmup_steps": 4}))
    upper = run.method.two_level
    rates = calls_of(upper, "updated", lambda *_: upper.optimizer.param_groups[0]["lr"])
    run.loop().train()
    assert rates[:5] == pytest.approx([0.0, 0.025, 0.05, 0.075, 0.1])


def test_attention_is_updated_once_a_step_whatever_the_accumulation() -> None:
    run = searching(training=TRAINING.model_copy(update={"batch_size": 2, "accumulation": 2}))
    updated = calls_of(run.method.two_level, "updated", lambda index, *_: index)
    done = run.loop().train()
    assert updated == list(range(done.step))
    assert done.batches == 2 * done.step


def test_the_first_released_step_is_that_of_its_batch_whatever_the_accumulation() -> None:
    left = []
    for share in (1.0, 0.25):
        run = searching(RELEASED, training=CONSTANT)
        loop = run.loop()
        run.model.train()
        for index in range(2):
            run.method.two_level.stepped(loop.step_on(run.stream.batch(index), index=index, share=share))
        left.append([*attention(run), *(weight for _, weight in run.trainee.named_raw())])
    assert all(torch.equal(*pair) for pair in zip(*left, strict=True))


def test_the_implicit_share_is_that_of_the_two_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, update = [], TwoLevelStep._update

    def spy(self: TwoLevelStep, step: Any, direct: list[Tensor], implicit: list[Tensor]) -> None:
        sizes = [float(two_level.global_norm(terms)) for terms in (direct, implicit)]
        seen.append((step.index, pytest.approx(sizes[1] / sum(sizes), rel=1e-5)))
        update(self, step, direct, implicit)

    monkeypatch.setattr(TwoLevelStep, "_update", spy)
    run = searching(training=CONSTANT)
    run.loop().train()
    logged = [(at, value) for name, at, value in run.stack.diagnostics().values if name.endswith("implicit_share")]
    assert logged == seen
    assert len(seen) == 6  # short, so every step is measured
    assert 0 < max(value for _, value in logged) < 0.2


@pytest.mark.parametrize(
    ("variant", "draws"),
    [
        # The released code's second inner step has masks of its own; the paper's runs on those of plain fine-tuning.
        ("released", [("train", 0), ("validation", 1), ("train", 2), ("train", 3), ("train", 4)]),
        ("paper", [("train", 0), ("validation", 1), ("train", 0), ("train", 0), ("train", 0)]),
    ],
)
def test_draws_of_the_passes_of_a_search_step(variant: str, draws: list[tuple[str, int]]) -> None:
    run = searching({"variant": variant}, training=CONSTANT)
    loop = run.loop()
    step = run.step(validation=run.validation, optimizer=loop.optimizer, learning_rate=1e-3)
    passes = watched(step, lambda logits: logits.detach())
    # No rates, so that the first and the last pass see the same weights and attention (but for the radius).
    run.method.two_level.rate = 0.0
    for group in loop.optimizer.param_groups:
        group["lr"] = 0.0
    run.method.backward(step)
    assert [(name, draw) for name, draw, *_ in passes] == draws
    assert torch.allclose(passes[0][-1], passes[-1][-1], atol=1e-3) == (variant == "paper")


@pytest.mark.parametrize(
    ("rows", "options", "training", "steps"),
    [
        (8, {}, {}, 3 * 3),  # two full batches, and one more although nothing is left
        (11, {}, {}, 3 * 3),
        (12, {}, {}, 3 * 4),
        (12, {}, {"accumulation": 2}, 3 * 2),
        (12, {}, {"max_steps": 5}, None),
        (12, {"variant": "paper"}, {}, None),
        (12, FROM_SEARCH, {}, None),
    ],
)
def test_a_released_search_epoch_has_one_step_more_than_full_batches(
    rows: int, options: dict[str, Any], training: dict[str, Any], steps: int | None
) -> None:
    protocol = TRAINING.model_copy(update={"epochs": 3, "batch_size": 4, **training})
    setting = Setting(kind="classification", num_labels=2, seed=0, training=protocol)
    assert WeightMixup(WeightMixupConfig(**{**RELEASED, **options}), setting).total_steps(rows) == steps


@pytest.mark.parametrize(("variant", "steps"), [("released", 2 * (16 // 4 + 1)), ("paper", 2 * 4)])
def test_the_loop_takes_them(variant: str, steps: int) -> None:
    """16 of 20 rows are trained on, 4 at a time."""
    search = phase([("weight_mixup", {"variant": variant})], name="search", split=0.8, batch_size=4, epochs=2)
    assert runner().run_phase(search, {}).members[0].progression.step == steps


@pytest.mark.parametrize("options", [RELEASED, {**RELEASED, "implicit": "none"}])
def test_moments_are_dropped_once_after_the_first_released_step(options: dict[str, Any]) -> None:
    run, sizes = searching(options), []
    original = run.method.backward
    run.method.backward = lambda step: (original(step), sizes.append(len(step.optimizer.state)))[0]
    run.loop().train()
    assert [bool(size) for size in sizes] == ["implicit" in options, *[True] * 5]


def test_average_of_the_searches_and_what_fine_tuning_starts_from() -> None:
    """Averages entry by entry; all weights continue, or only the attention and weights restart."""
    # At the default rate so short a search moves nothing but the draws of the initial attention.
    search = phase([("weight_mixup", {"attention_learning_rate": 0.1})], name="search", split=0.8, times=2)
    made = runner()
    merged = made.run_phase(search, {})
    alone = [outcome_tensors(made.inputs(search, {}, i), t, weights=True) for i, t in enumerate(merged.members)]
    name = "bert.encoder.layer.0.attention.self.query.weight"
    key = f"weight_mixup.attention/{name}/a1"
    first, second = (member["state"][key] for member in alone)
    assert not torch.equal(first, second)
    state, trained = merged.handed.state, merged.handed.weights
    assert torch.allclose(state[key], (first + second) / 2)
    assert torch.allclose(trained[name], (alone[0]["weights"][name] + alone[1]["weights"][name]) / 2)
    pretrained = Bench().trainee.trained_weights()
    assert not torch.equal(trained[name], pretrained[name])
    for start, weights in (("search", trained), ("checkpoint", pretrained)):
        given = made.inputs(phase([("weight_mixup", FROM_SEARCH)], start=start), {"search": merged})
        trainee, stack = build(given)
        stack.prepare(trainee, given.handed)
        assert all(torch.equal(raw, weights[plain]) for plain, raw in trainee.named_raw()), start
        module = stack.regularisers[0].mixings[name]  # type: ignore[attr-defined]
        assert torch.equal(module.a1, state[key])
        assert torch.equal(module.pretrained, pretrained[name])  # W0 is not the averaged weight


def test_a_soup_scores_a_search_by_its_mixed_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    search = phase([("weight_mixup", {"initial_std": 0.3})], name="search", split=0.8, times=2)
    made, predict, asked = runner(), logits.predict, list[Any]()
    member, inputs = made.run_phase(search, {}).members[0], made.inputs(search, {}, 0)
    outcome = outcome_tensors(inputs, member, weights=True)

    def watching(*given: Any, **how: Any) -> Any:
        asked.append((predict(*given, **how), predict(member.trainee.model, *given[1:], **how)))
        return asked[-1][0]

    monkeypatch.setattr(logits, "predict", watching)
    task = {"kind": "classification", "labels": ["a", "b"], "primary": "accuracy", "positive_label": None}
    validation_score(inputs, outcome, task)
    ((scored, trained),) = asked
    assert (scored == trained).all()


@pytest.mark.parametrize("other", [{"form": "convex"}, {"form": "full_rank"}, {"rank": 2}])
def test_an_attention_of_another_form_is_refused(other: dict[str, Any]) -> None:
    """Convex and factored attention have the same shapes, so shapes alone would not tell."""
    with raises_code(ModelError, "attention-differs", "search"):
        tuning(other)
    with raises_code(ModelError, "attention-differs", "none at all"):
        Bench([("weight_mixup", FROM_SEARCH)], handed={"search": Handed("key", {})})
    assert all(torch.isfinite(value).all() for value in tuning(other, search=other).train().values())


@pytest.mark.parametrize(("options", "decay"), [({}, 0.01), (RELEASED, 0.0), ({"attention_weight_decay": 0.25}, 0.25)])
def test_joint_attention_has_a_rate_and_decay_of_its_own(options: dict[str, Any], decay: float) -> None:
    run = Bench([("weight_mixup", {"attention": "joint", "attention_learning_rate": 0.5, **options})])
    own = [group for group in run.loop().groups if any("weight_mixup." in name for name in group["names"])]
    assert {(group["base_lr"], group["weight_decay"]) for group in own} == {(0.5, decay)}


@pytest.mark.parametrize("other", [("sam", {"radius": 0.5}), ("smart", {}), ("child_tuning", {"share": 0.5})])
def test_joint_attention_is_trained_as_others_train_the_weights(other: tuple[str, dict[str, Any]]) -> None:
    """SAM moved all but the attention, SMART's past weights had the present one, and no mask covered it."""
    run = Bench([("weight_mixup", {"attention": "joint", "attention_learning_rate": 0.1}), other])
    mixup, beside = sorted(run.stack.regularisers, key=lambda one: one.name != "weight_mixup")
    (name, parameter), *_ = mixup._attention().items()  # type: ignore[attr-defined]
    seen: list[torch.Tensor] = []
    mixing = mixup.mixings[name.split("/")[1]]  # type: ignore[attr-defined]
    mixing.register_forward_pre_hook(lambda *_: seen.append(parameter.detach().clone()))
    run.loop().train()
    if other[0] == "child_tuning":
        run.gradients()
        masks = dict(beside.gradient_masks(run.step()))
        assert any(name.startswith("attached.weight_mixup.") for name in masks)
    else:  # one step has passes under several values
        assert len({value.numpy().tobytes() for value in seen}) > run.loop().total


def test_released_clip_norm_counts_the_frozen_tensors() -> None:
    tight = TRAINING.model_copy(update={"clip_norm": 0.1, "optimizer": "adamax"})
    run = tuning(RELEASED, training=tight)
    frozen = [t for m in run.method.mixings.values() for t in (m.pretrained, *m.parameters())]
    before = [t.detach().clone() for t in frozen]

    def norms(step: Any) -> list[float]:
        own = [p.grad for _, p in run.trainee.named_trainable() if p.grad is not None]
        return [float(two_level.global_norm(part)) for part in (own, [t.grad for t in frozen])]

    clipped = calls_of(run.method, "clip_gradients", norms)
    done = run.loop().train()
    own, extra = clipped[0]
    assert extra > 0.05 * own
    assert done.curve[0][4] == pytest.approx(0.1 * own / (own**2 + extra**2) ** 0.5, rel=1e-4)
    # Counting is all: neither the attention nor the pretrained copies move.
    assert all(torch.equal(a, b) for a, b in zip(frozen, before, strict=True))
    # The frozen tensors' gradients are scaled as the others are, and no optimiser unscales them.
    scaled = tuning(RELEASED, training=tight).loop()
    scaled.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    assert [row[4] for row in scaled.train().curve] == pytest.approx([row[4] for row in done.curve], rel=1e-3)


def test_a_gradient_in_the_place_of_two_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is handed to the loop must not be the tensors that autograd gave, which may be one for two weights."""
    run, first, original = searching({"inner_gradient": "reused"}), [], two_level.gradients

    def spy(loss: Tensor, inputs: Any) -> list[Tensor]:
        slopes = original(loss, inputs)
        first.extend(slopes if not first else [])
        return slopes

    monkeypatch.setattr(two_level, "gradients", spy)
    optimizer = run.loop().optimizer
    step = run.step(validation=run.validation, optimizer=optimizer, learning_rate=1e-3, share=0.5)
    run.method.backward(step)
    pairs = [(weight.grad, slope) for weight, slope in zip(step.weights(), first, strict=True)]
    assert all(torch.equal(grad, 0.5 * slope) for grad, slope in pairs)
    assert not {grad.data_ptr() for grad, _ in pairs} & {slope.data_ptr() for _, slope in pairs}
