"""Weight mixup against its card: the mixed weight, the hypergradient, splits, averages, folding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.errors import ModelError
from regft_core.hooks.declare import Handed, Setting
from regft_core.methods.weight_mixup import WeightMixup, WeightMixupConfig
from regft_core.models.mixing import WeightMixing
from regft_core.schema import DropoutConfig
from regft_core.training import bilevel
from tests.errors import raises_code
from tests.methods.chain import phase, runner
from tests.methods.harness import TRAINING, Bench

FROM_SEARCH = {"attention": "search"}


def searching(options: dict[str, Any] | None = None, **more: Any) -> Bench:
    """A bench of the first member of the search phase."""
    return Bench([("weight_mixup", options or {})], phase="search-0", validation=True, **more)


def attention(run: Bench) -> list[Tensor]:
    return list(run.regulariser(WeightMixup)._attention().values())


def handed_by(run: Bench) -> dict[str, Handed]:
    """What fine-tuning takes of a search."""
    return {"search": Handed("key", run.stack.hand(run.trainee))}


def tuning(options: dict[str, Any] | None = None, search: dict[str, Any] | None = None, **more: Any) -> Bench:
    """A fine-tuning bench with the attention that a search starts with."""
    return Bench([("weight_mixup", {**FROM_SEARCH, **(options or {})})], handed=handed_by(searching(search)), **more)


def mixing(form: str) -> WeightMixing:
    module = WeightMixing(torch.tensor([[10.0, 20], [30, 40]]), rank=1, form=form, std=0.0, generator=None)
    with torch.no_grad():
        if form != "full_rank":
            module.a1.copy_(torch.tensor([[1.0], [0.5]]))
            module.a2.copy_(torch.tensor([[1.0, 0.8]]))
    return module


def test_worked_example_of_the_mixed_weight() -> None:
    """Card, oracle 3."""
    weight = torch.tensor([[1.0, 2], [3, 4]])
    assert torch.allclose(mixing("factored")(weight), torch.tensor([[1.0, 1.6], [1.5, 5.6]]))
    assert torch.allclose(mixing("convex")(weight), torch.tensor([[1.0, 5.6], [16.5, 25.6]]))
    full = mixing("full_rank")
    with torch.no_grad():
        full.a.copy_(torch.tensor([[1.0, 0.0], [0.5, 0.25]]))
    assert torch.allclose(full(weight), torch.tensor([[1.0, 20], [16.5, 31.0]]))


def test_at_the_pretrained_weight_the_factored_form_shrinks_and_the_convex_does_not() -> None:
    """Card, oracle 2."""
    pretrained = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    module = WeightMixing(pretrained, rank=1, form="factored", std=0.005, generator=generator)
    a1, a2 = module.a1, module.a2
    expected = (1 - a1 - a2 + 2 * (a1 @ a2)) * pretrained
    assert torch.allclose(module(pretrained), expected, atol=1e-6)
    assert not torch.equal(module(pretrained), pretrained)
    # Each factor falls short of 1 by a normal clipped at 0, sd 0.005: 0.2% on average, so "within 1%" is typical.
    relative = ((module(pretrained) - pretrained) / pretrained).abs()
    assert relative.median() < 0.01
    assert relative.max() < 0.05
    convex = WeightMixing(pretrained, rank=1, form="convex", std=0.1, generator=generator)
    assert torch.allclose(convex(pretrained), pretrained, atol=1e-6)


def test_initial_attention_is_clipped_and_about_half_of_it_is_one() -> None:
    module = WeightMixing(
        torch.zeros(2000, 3000), rank=1, form="factored", std=0.005, generator=torch.Generator().manual_seed(0)
    )
    values = torch.cat([module.a1.flatten(), module.a2.flatten()])
    assert values.max() == 1
    assert (values == 1).float().mean().item() == pytest.approx(0.5, abs=0.03)
    assert values.min() > 0.96


def test_every_linear_but_the_head_is_mixed() -> None:
    run = searching()
    names = set(run.regulariser(WeightMixup).mixings)
    linears = {f"{n}.weight" for n, m in run.model.named_modules() if isinstance(m, torch.nn.Linear)}
    assert linears - names == {"classifier.weight"}


# -------------------------------------------------------------------------------- hypergradient


def hypergradient_terms(run: Bench, radius: float) -> tuple[list[Tensor], list[Tensor]]:
    """(finite difference, exact) mixed term of one step with dropout on and shared masks."""
    step = run.step(optimizer=None)
    weights = [p for _, p in run.trainee.named_raw()]
    attention = [p for m in run.regulariser(WeightMixup).mixings.values() for p in m.parameters()]
    for parameter in attention:
        parameter.requires_grad_(True)

    def loss() -> Tensor:
        return step.task_loss(step.forward("train", draw=0))

    assert run.validation is not None
    batch = run.validation.batch(0)
    direction = bilevel.gradients(
        step.task_loss(step.forward("validation", batch=batch, draw=1), batch.labels), weights
    )
    # By double backward; needs an attention kernel that has a second derivative (eager).
    first = torch.autograd.grad(loss(), weights, create_graph=True, allow_unused=True)
    product = torch.stack([(g * d).sum() for g, d in zip(first, direction, strict=True) if g is not None]).sum()
    exact = bilevel.gradients(product, attention)
    copies = bilevel.snapshot(weights)
    estimate = bilevel.mixed_term(loss, loss, weights, direction, attention, radius)
    bilevel.restore(weights, copies)
    return estimate, exact


def relative_error(estimate: list[Tensor], exact: list[Tensor]) -> float:
    difference = bilevel.global_norm([e - x for e, x in zip(estimate, exact, strict=True)])
    return float(difference / bilevel.global_norm(exact))


def test_hypergradient_equals_double_backward_with_dropout_on() -> None:
    """Card, oracle 4: relative error below 1e-3, falling with the square of the radius."""
    run = searching(attention="eager", training=TRAINING.model_copy(update={"dropout": DropoutConfig(hidden=0.1)}))
    run.model.double()
    # In float64 only the error of the method is left: it falls with the square of the radius.
    errors = [relative_error(*hypergradient_terms(run, radius)) for radius in (0.04, 0.02, 0.01)]
    assert errors[2] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.3)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.3)


def captured_update(run: Bench) -> dict[str, Any]:
    """Run one search step and capture what the attention update was given."""
    two_level = run.regulariser(WeightMixup).two_level
    seen: dict[str, Any] = {}
    original = two_level._update

    def spy(step: Any, gradient: Any) -> None:
        seen["validation_loss"] = two_level.validation_loss.detach().clone()
        seen["gradient"] = [g.clone() for g in gradient]
        seen["weights_before"] = [w.detach().clone() for w in step.weights()]
        original(step, gradient)

    two_level._update = spy
    loop = run.loop()
    seen["start"] = [w.detach().clone() for group in loop.optimizer.param_groups for w in group["params"]]
    seen["loop"] = loop
    run.model.train()
    rows = loop.stream.steps(0, 1)[0]
    loop._step(rows)
    return seen


def test_paper_restores_the_weights_bit_for_bit() -> None:
    """Card, oracle 6."""
    seen = captured_update(searching())
    assert all(torch.equal(a, b) for a, b in zip(seen["start"], seen["weights_before"], strict=True))


def test_released_leaves_the_weights_displaced_by_the_radius() -> None:
    """Card, oracle 6: norm 0.01 along minus the preconditioned validation gradient."""
    run = searching({"variant": "released"}, training=TRAINING.model_copy(update={"warmup_ratio": 0.0}))
    two_level = run.regulariser(WeightMixup).two_level
    after_inner: list[Tensor] = []
    original = two_level._validation_gradients

    def spy(step: Any, weights: list[Tensor]) -> Any:
        after_inner.extend(w.detach().clone() for w in weights)
        return original(step, weights)

    two_level._validation_gradients = spy
    seen = captured_update(run)
    displacement = [b - a for a, b in zip(after_inner, seen["weights_before"], strict=True)]
    assert float(bilevel.global_norm(displacement)) == pytest.approx(0.01, rel=1e-2)
    assert float(bilevel.global_norm([a - b for a, b in zip(after_inner, seen["start"], strict=True)])) > 0


def test_first_order_is_adamw_on_the_validation_gradient() -> None:
    """Card, oracle 5: implicit none steps AdamW on the plain validation gradient at the current weights."""
    first_order = {"implicit": "none"}
    constant = TRAINING.model_copy(update={"warmup_ratio": 0.0})
    run = searching(first_order, training=constant)
    step = run.step()
    attention = [p for m in run.regulariser(WeightMixup).mixings.values() for p in m.parameters()]
    for parameter in attention:
        parameter.requires_grad_(True)
    assert run.validation is not None
    batch = run.validation.batch(0)
    logits = step.forward("validation", batch=batch, draw=1)
    expected = bilevel.gradients(step.task_loss(logits, batch.labels), attention)
    other = searching(first_order, training=constant)
    seen = captured_update(other)
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(expected, seen["gradient"], strict=True))
    copies = [p.detach().clone().requires_grad_(True) for p in attention]
    for copy, gradient in zip(copies, seen["gradient"], strict=True):
        copy.grad = gradient
    torch.optim.AdamW(copies, lr=2e-3, weight_decay=0.01).step()
    stepped = [p for m in other.regulariser(WeightMixup).mixings.values() for p in m.parameters()]
    assert any(not torch.equal(a, b) for a, b in zip(attention, stepped, strict=True))
    for copy, parameter in zip(copies, stepped, strict=True):
        assert torch.allclose(copy.detach().clamp(0, 1), parameter, atol=1e-7)


def test_updates_at_an_interval_take_the_held_out_batches_in_turn() -> None:
    """None is skipped: with an interval of 2 half of the held-out rows would never be seen."""
    run, taken = searching({"interval": 2}), []
    assert run.validation is not None
    original = run.validation.batch
    run.validation.batch = lambda index: (taken.append(index), original(index))[1]  # type: ignore[method-assign]
    assert run.loop().train().step == 6
    assert taken == [0, 1, 2]


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_attention_stays_in_range_and_moves(variant: str) -> None:
    """Card, oracle 8."""
    run = searching({"variant": variant, "attention_learning_rate": 0.1})
    before = [p.detach().clone() for p in attention(run)]
    loop = run.loop()
    loop.on_step = lambda _: [
        (pytest.fail("out of range") if p.min() < 0 or p.max() > 1 else None) for p in attention(run)
    ]
    loop.train()
    after = attention(run)
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_attention_is_updated_once_a_step_whatever_the_accumulation() -> None:
    split = TRAINING.model_copy(update={"batch_size": 2, "accumulation": 2})
    run = searching(training=split)
    updated: list[int] = []
    two_level = run.regulariser(WeightMixup).two_level
    original = two_level.updated
    two_level.updated = lambda index, *rest: (updated.append(index), original(index, *rest))[1]
    done = run.loop().train()
    assert updated == list(range(done.step))
    assert done.batches == 2 * done.step


# ---------------------------------------------------------------------------- the released variant


def draws_and_losses(variant: str) -> tuple[list[tuple[str, int]], list[float]]:
    """(pass, draw) of every forward in the first search step, and the losses on the training batch."""
    run = searching({"variant": variant}, training=TRAINING.model_copy(update={"warmup_ratio": 0.0}))
    loop = run.loop()
    step = run.step(validation=run.validation, optimizer=loop.optimizer, learning_rate=1e-3)
    passes: list[tuple[str, int]] = []
    original = step.forward

    def spy(name: str = "main", *, draw: int = 0, **more: Any) -> Any:
        passes.append((name, draw))
        return original(name, draw=draw, **more)

    losses: list[float] = []
    task_loss = step.task_loss

    def keep(logits: Tensor, labels: Tensor | None = None) -> Tensor:
        loss = task_loss(logits, labels)
        if labels is None:
            losses.append(float(loss.detach()))
        return loss

    step.forward, step.task_loss = spy, keep  # type: ignore[method-assign]
    # No rates, so that the first and the last pass see the same weights and attention (but for the radius).
    run.regulariser(WeightMixup).two_level.rate = 0.0
    for group in loop.optimizer.param_groups:
        group["lr"] = 0.0
    run.regulariser(WeightMixup).backward(step)
    return passes, losses


def test_the_second_inner_step_of_the_released_code_has_dropout_masks_of_its_own() -> None:
    passes, losses = draws_and_losses("released")
    names, draws = zip(*passes, strict=True)
    assert names == ("train", "validation", "train", "train", "train")
    assert len(set(draws)) == 5  # no two passes share their masks
    assert abs(losses[0] - losses[-1]) > 1e-3  # far more than a shift of 0.01 over all weights
    # The paper's step runs on the masks of plain fine-tuning throughout.
    passes, losses = draws_and_losses("paper")
    assert [draw for name, draw in passes if name == "train"] == [0] * 4
    assert losses[0] == losses[-1]


def test_a_released_search_epoch_has_one_step_more_than_full_batches() -> None:
    def steps(rows: int, options: dict[str, Any] | None = None, **training: Any) -> int | None:
        given = {"variant": "released", **(options or {})}
        search = phase([("weight_mixup", given)], name="search", split=0.8, batch_size=4, **{"epochs": 3, **training})
        setting = Setting(kind="classification", num_labels=2, seed=0, training=search.training)
        return WeightMixup(WeightMixupConfig(**given), setting).total_steps(rows)

    assert steps(8) == 3 * 3  # two full batches, and one more although nothing is left
    assert steps(9) == 3 * 3
    assert steps(11) == 3 * 3
    assert steps(12) == 3 * 4
    assert steps(12, accumulation=2) == 3 * 2
    assert steps(12, max_steps=5) is None
    assert steps(12, {"variant": "paper"}) is None
    assert steps(12, {"attention": "search"}) is None
    # The loop takes them: 16 of 20 rows are trained on, 4 at a time.
    search = phase([("weight_mixup", {"variant": "released"})], name="search", split=0.8, batch_size=4, epochs=2)
    made = runner()
    assert made.run_phase(search, {}).members[0].progression.step == 2 * (16 // 4 + 1)
    plain = phase([("weight_mixup", {"variant": "paper"})], name="search", split=0.8, batch_size=4, epochs=2)
    assert made.run_phase(plain, {}).members[0].progression.step == 2 * 4


def test_moments_are_dropped_once_after_the_first_released_step() -> None:
    run = searching({"variant": "released"})
    loop = run.loop()
    sizes: list[int] = []
    original = run.regulariser(WeightMixup).backward

    def look(step: Any) -> Any:
        loss = original(step)
        sizes.append(len(step.optimizer.state))
        return loss

    run.regulariser(WeightMixup).backward = look  # type: ignore[method-assign]
    loop.train()
    assert sizes[0] == 0
    assert all(size > 0 for size in sizes[1:])


# ------------------------------------------------------------------------- splits and averaging


def test_average_of_the_searches_and_what_fine_tuning_starts_from() -> None:
    """Averages entry by entry; all weights continue, or only the attention and weights restart."""
    # At the default rate so short a search moves nothing but the draws of the initial attention.
    options = {"attention_learning_rate": 0.1}
    search = phase([("weight_mixup", options)], name="search", split=0.8, times=2)
    made = runner()
    merged = made.run_phase(search, {})
    from regft_core.runs.training_run import outcome_tensors

    alone = [outcome_tensors(made.inputs(search, {}, i), t, weights=True) for i, t in enumerate(merged.members)]
    key = "weight_mixup.attention/bert.encoder.layer.0.attention.self.query.weight/a1"
    first, second = (member["state"][key] for member in alone)
    assert not torch.equal(first, second)
    state = merged.handed.state
    assert torch.allclose(state[key], (first + second) / 2)
    assert all(v.min() >= 0 and v.max() <= 1 for n, v in state.items() if "attention/" in n)  # oracle 8
    pretrained = Bench().trainee.trained_weights()
    trained = merged.handed.weights
    name = "bert.encoder.layer.0.attention.self.query.weight"
    assert torch.allclose(trained[name], (alone[0]["weights"][name] + alone[1]["weights"][name]) / 2)
    assert not torch.equal(trained[name], pretrained[name])
    for start, weights in (("search", trained), ("checkpoint", pretrained)):
        given = made.inputs(phase([("weight_mixup", FROM_SEARCH)], start=start), {"search": merged})
        from regft_core.runs.training_run import build

        trainee, stack = build(given)
        stack.prepare(trainee, given.handed)
        for plain, raw in trainee.named_raw():
            assert torch.equal(raw, weights[plain]), (start, plain)
        mixing_module = stack.regularisers[0].mixings[name]  # type: ignore[attr-defined]
        assert torch.equal(mixing_module.a1, state[key])
        # W0 stays the pretrained weight, not the averaged one.
        assert torch.equal(mixing_module.pretrained, pretrained[name])


@pytest.mark.parametrize("other", [{"form": "convex"}, {"form": "full_rank"}, {"rank": 2}])
def test_an_attention_of_another_form_is_refused_with_both(other: dict[str, Any]) -> None:
    """Convex and factored attention have the same shapes, so shapes alone would not tell."""
    with raises_code(ModelError, "attention-differs", "search"):
        tuning(other)
    with raises_code(ModelError, "attention-differs", "none at all"):
        Bench([("weight_mixup", FROM_SEARCH)], handed={"search": Handed("key", {})})
    run = tuning(other, search=other)
    assert all(torch.isfinite(value).all() for value in run.train().values())


def test_attention_is_frozen_while_fine_tuning_and_trained_jointly_on_request() -> None:
    run = tuning()
    before = [p.detach().clone() for p in attention(run)]
    run.loop().train()
    assert all(torch.equal(a, b) for a, b in zip(before, attention(run), strict=True))
    joint = Bench([("weight_mixup", {"attention": "joint"})])
    before = [p.detach().clone() for p in attention(joint)]
    joint.loop().train()
    after = attention(joint)
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(p.min() >= 0 and p.max() <= 1 for p in after)


def test_joint_attention_has_a_rate_and_decay_of_its_own() -> None:
    def groups(**options: Any) -> set[tuple[float, float]]:
        run = Bench([("weight_mixup", {"attention": "joint", "attention_learning_rate": 0.5, **options})])
        return {
            (group["base_lr"], group["weight_decay"])
            for group in run.loop().groups
            for name in group["names"]
            if name.startswith("attention:")
        }

    assert groups() == {(0.5, 0.01)}
    assert groups(variant="released") == {(0.5, 0.0)}
    assert groups(attention_weight_decay=0.25) == {(0.5, 0.25)}


def test_released_clip_norm_counts_the_frozen_tensors() -> None:
    tight = TRAINING.model_copy(update={"clip_norm": 0.1, "optimizer": "adamax"})
    released = tuning({"variant": "released"}, training=tight)
    norms: list[tuple[float, float]] = []
    original = released.regulariser(WeightMixup).clip_gradients

    def look(step: Any) -> Any:
        extra = [
            t.grad for m in released.regulariser(WeightMixup).mixings.values() for t in (m.pretrained, *m.parameters())
        ]
        own = [p.grad for _, p in released.trainee.named_trainable() if p.grad is not None]
        norms.append(tuple(float(bilevel.global_norm(found)) for found in (own, extra)))  # type: ignore[arg-type]
        return original(step)

    released.regulariser(WeightMixup).clip_gradients = look  # type: ignore[method-assign]
    done = released.loop().train()
    own, extra = norms[0]
    assert extra > 0.05 * own
    assert done.curve[0][4] == pytest.approx(0.1 * own / (own**2 + extra**2) ** 0.5, rel=1e-4)
    plain = tuning(training=tight).loop().train()
    # The norm that the loop measures was already scaled by the larger, joint norm.
    assert done.curve[0][4] < 0.1 < plain.curve[0][4]
    # Counting is all: neither the attention nor the pretrained copies move.
    fresh = tuning({"variant": "released"}, training=tight).regulariser(WeightMixup)
    for name, mixing_module in released.regulariser(WeightMixup).mixings.items():
        assert torch.equal(mixing_module.pretrained, fresh.mixings[name].pretrained)
        assert all(
            torch.equal(a, b) for a, b in zip(mixing_module.parameters(), fresh.mixings[name].parameters(), strict=True)
        )


def test_released_clipping_is_the_same_under_loss_scaling() -> None:
    """The frozen tensors' gradients are scaled as the others are, and no optimiser unscales them."""
    tight = TRAINING.model_copy(update={"clip_norm": 0.1, "optimizer": "adamax"})
    norms = []
    for scale in (None, 1024.0):
        loop = tuning({"variant": "released"}, training=tight).loop()
        if scale is not None:
            loop.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        norms.append([row[4] for row in loop.train().curve])
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)


# ------------------------------------------------------------------------- the implicit term's share


def shares(run: Bench) -> list[tuple[int, float]]:
    """(step, share) of what a search logged."""
    run.loop().train()
    return [(step, value) for name, step, value in run.stack.diagnostics().values if name.endswith("implicit_share")]


def test_the_implicit_share_is_that_of_the_two_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    from regft_core.training.two_level import TwoLevelStep

    seen, measure = [], TwoLevelStep._measure

    def spy(self: TwoLevelStep, step: Any, direct: list[Tensor], implicit: list[Tensor]) -> None:
        sizes = [float(torch.cat([t.flatten() for t in terms]).norm()) for terms in (direct, implicit)]
        seen.append((step.index, sizes[1] / sum(sizes)))
        measure(self, step, direct, implicit)

    monkeypatch.setattr(TwoLevelStep, "_measure", spy)
    found = shares(searching(training=TRAINING.model_copy(update={"warmup_ratio": 0.0})))
    assert [step for step, _ in found] == list(range(6))  # short, so every step is measured
    assert found == [(step, pytest.approx(value, rel=1e-5)) for step, value in seen]
    assert 0 < max(value for _, value in found) < 0.2
