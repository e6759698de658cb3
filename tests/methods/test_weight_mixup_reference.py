"""Weight mixup against its card: the mixed weight, the hypergradient, splits, averages, folding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.config.schema import DropoutConfig
from regft_core.methods.weight_mixup import WeightMixupSearchConfig
from regft_core.models.mixing import WeightMixing
from regft_core.training import bilevel
from tests.methods.harness import TRAINING, Bench, largest_difference, same

SEARCH = WeightMixupSearchConfig()


def searching(options: dict[str, Any] | None = None, search: WeightMixupSearchConfig = SEARCH, **more: Any) -> Bench:
    return Bench([("weight_mixup", options or {})], phase="search-0", search=search, validation=True, **more)


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


def test_attention_at_one_is_vanilla_for_twenty_steps() -> None:
    """Card, oracle 1: forward, gradients and optimiser steps."""
    twenty = TRAINING.model_copy(update={"epochs": 20, "max_steps": 20})
    ones = Bench([("weight_mixup", {"mode": "fixed", "initial_std": 0.0})], training=twenty)
    assert same(ones.train(), Bench(training=twenty).train())
    assert not same(ones.trainee.plain_weights(), Bench().train())  # of six steps


def test_attention_at_zero_is_the_pretrained_weight_with_the_bias_of_the_task() -> None:
    """Card, oracle 1: whatever the task weight, the output is that of the pretrained one."""
    from torch.nn.utils import parametrize

    inputs = torch.randn(3, 4)
    linear = torch.nn.Linear(4, 5)
    pretrained = linear.weight.detach().clone()
    module = WeightMixing(linear.weight, rank=1, form="factored", std=0.0, generator=None)
    parametrize.register_parametrization(linear, "weight", module)
    with torch.no_grad():
        module.a1.zero_()
        module.a2.zero_()
        linear.parametrizations.weight.original.normal_()
        linear.bias.normal_()
        assert torch.equal(linear(inputs), torch.nn.functional.linear(inputs, pretrained, linear.bias))


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
    names = set(run.stack.searcher.mixings)
    linears = {f"{n}.weight" for n, m in run.model.named_modules() if isinstance(m, torch.nn.Linear)}
    assert linears - names == {"classifier.weight"}


# -------------------------------------------------------------------------------- hypergradient


def hypergradient_terms(run: Bench, radius: float) -> tuple[list[Tensor], list[Tensor]]:
    """(finite difference, exact) mixed term of one step with dropout on and shared masks."""
    step = run.step(optimizer=None)
    weights = [p for _, p in run.trainee.named_raw()]
    attention = [p for m in run.stack.searcher.mixings.values() for p in m.parameters()]
    for parameter in attention:
        parameter.requires_grad_(True)

    def loss() -> Tensor:
        return step.task_loss(step.forward("train", draw=0))

    assert run.validation is not None
    batch = run.validation.batch(0)
    direction = bilevel.gradients(
        step.task_loss(step.forward("validation", batch=batch, draw=1), batch.labels), weights
    )
    exact = bilevel.exact_mixed_term(loss, weights, direction, attention)
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


def test_independent_dropout_masks_ruin_the_estimate() -> None:
    """Card, trap 1: why both sides of the difference share their draw."""
    run = searching(attention="eager")
    step = run.step()
    weights = [p for _, p in run.trainee.named_raw()]
    attention = [p for m in run.stack.searcher.mixings.values() for p in m.parameters()]
    for parameter in attention:
        parameter.requires_grad_(True)
    _, exact = hypergradient_terms(run, 0.01)
    direction = bilevel.gradients(step.task_loss(step.forward("validation", draw=1)), weights)
    copies = bilevel.snapshot(weights)
    estimate = bilevel.mixed_term(
        lambda: step.task_loss(step.forward("train", draw=2)),
        lambda: step.task_loss(step.forward("train", draw=3)),
        weights,
        direction,
        attention,
        0.01,
    )
    bilevel.restore(weights, copies)
    assert relative_error(estimate, exact) > 0.5


def captured_update(run: Bench) -> dict[str, Any]:
    """Run one search step and capture what the attention update was given."""
    two_level = run.stack.searcher.two_level
    seen: dict[str, Any] = {}
    original = two_level._update

    def spy(step: Any, gradient: Any) -> None:
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
    two_level = run.stack.searcher.two_level
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
    first_order = WeightMixupSearchConfig(implicit="none")
    constant = TRAINING.model_copy(update={"warmup_ratio": 0.0})
    run = searching(search=first_order, training=constant)
    step = run.step()
    attention = [p for m in run.stack.searcher.mixings.values() for p in m.parameters()]
    for parameter in attention:
        parameter.requires_grad_(True)
    assert run.validation is not None
    batch = run.validation.batch(0)
    logits = step.forward("validation", batch=batch, draw=1)
    expected = bilevel.gradients(step.task_loss(logits, batch.labels), attention)
    other = searching(search=first_order, training=constant)
    seen = captured_update(other)
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(expected, seen["gradient"], strict=True))
    copies = [p.detach().clone().requires_grad_(True) for p in attention]
    for copy, gradient in zip(copies, seen["gradient"], strict=True):
        copy.grad = gradient
    torch.optim.AdamW(copies, lr=2e-3, weight_decay=0.01).step()
    stepped = [p for m in other.stack.searcher.mixings.values() for p in m.parameters()]
    assert any(not torch.equal(a, b) for a, b in zip(attention, stepped, strict=True))
    for copy, parameter in zip(copies, stepped, strict=True):
        assert torch.allclose(copy.detach().clamp(0, 1), parameter, atol=1e-7)


def test_second_order_differs_from_first_order_by_the_learning_rate_times_the_mixed_term() -> None:
    constant = TRAINING.model_copy(update={"warmup_ratio": 0.0, "schedule": "constant", "learning_rate": 0.05})
    first = captured_update(searching(search=WeightMixupSearchConfig(implicit="none"), training=constant))
    second = captured_update(searching(training=constant))
    one = captured_update(searching(search=WeightMixupSearchConfig(implicit="one"), training=constant))
    assert any(not torch.equal(a, b) for a, b in zip(first["gradient"], second["gradient"], strict=True))
    # lr and one share the virtual step and differ only in the factor of the mixed term.
    mixed = [(s - o) / (1 - 0.05) for s, o in zip(second["gradient"], one["gradient"], strict=True)]
    direct = [s + 0.05 * m for s, m in zip(second["gradient"], mixed, strict=True)]
    rebuilt = [d - m for d, m in zip(direct, mixed, strict=True)]
    assert all(torch.allclose(r, o, atol=1e-6) for r, o in zip(rebuilt, one["gradient"], strict=True))


def test_reused_gradient_saves_a_pass_and_fresh_sees_the_new_attention() -> None:
    fresh = searching().loop().train()
    reused = searching(search=WeightMixupSearchConfig(inner_gradient="reused")).loop().train()
    assert (fresh.forward_passes / fresh.batches, reused.forward_passes / reused.batches) == (5.0, 4.0)


def test_interval_updates_the_attention_every_so_many_steps() -> None:
    search = WeightMixupSearchConfig(interval=3)
    done = searching(search=search).loop().train()
    assert done.forward_passes == 6 + 2 * 4  # 6 steps, 2 of them with 4 more passes


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_attention_stays_in_range_and_moves(variant: str) -> None:
    """Card, oracle 8."""
    run = searching({"variant": variant, "attention_learning_rate": 0.1})
    before = [p.detach().clone() for p in run.stack.searcher._attention().values()]
    loop = run.loop()
    loop.on_step = lambda _: [
        (pytest.fail("out of range") if p.min() < 0 or p.max() > 1 else None)
        for p in run.stack.searcher._attention().values()
    ]
    loop.train()
    after = list(run.stack.searcher._attention().values())
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


# ------------------------------------------------------------------------- splits and averaging


def test_splits_are_disjoint_sized_and_independent() -> None:
    """Card, oracle 9."""
    runs = Bench([("weight_mixup", {})], search=WeightMixupSearchConfig(repeats=5)).stack.search_runs(301)
    again = Bench([("weight_mixup", {})], search=WeightMixupSearchConfig(repeats=5)).stack.search_runs(301)
    assert runs == again
    for run in runs:
        assert len(run.train_rows) == int(0.8 * 301)
        assert sorted(run.train_rows + run.validation_rows) == list(range(301))
    assert len({run.train_rows for run in runs}) == 5
    other = Bench([("weight_mixup", {})], search=SEARCH, seed=1).stack.search_runs(301)
    assert other[0].train_rows != runs[0].train_rows


def test_average_of_the_searches_and_what_fine_tuning_starts_from() -> None:
    """Averages entry by entry; all weights continue, or only the attention and weights restart."""
    results = []
    for phase in ("search-0", "search-1"):
        run = Bench([("weight_mixup", {})], phase=phase, search=SEARCH, validation=True)
        run.loop().train()
        results.append(run.stack.searcher.search_result(run.trainee))
    name = "attention/bert.encoder.layer.0.attention.self.query.weight/a1"
    state = run.stack.searcher.combine(results)
    assert torch.allclose(state[name], (results[0][name] + results[1][name]) / 2)
    assert not torch.equal(results[0][name], results[1][name])
    assert all(v.min() >= 0 and v.max() <= 1 for n, v in state.items() if n.startswith("attention/"))  # oracle 8
    started = Bench([("weight_mixup", {})], search=SEARCH, handed=state)
    for plain, raw in started.trainee.named_raw():
        assert torch.equal(raw, state[f"weights/{plain}"])
    only = {key: value for key, value in state.items() if key.startswith("attention/")}
    restarted = Bench([("weight_mixup", {})], search=SEARCH, handed=only)
    pretrained = Bench().trainee.plain_weights()
    assert all(torch.equal(raw, pretrained[plain]) for plain, raw in restarted.trainee.named_raw())
    # W0 stays the pretrained weight, not the averaged one.
    mixing_module = started.stack.searcher.mixings["bert.encoder.layer.0.attention.self.query.weight"]
    assert torch.equal(mixing_module.pretrained, pretrained["bert.encoder.layer.0.attention.self.query.weight"])


def test_attention_is_frozen_while_fine_tuning_and_trained_jointly_on_request() -> None:
    run = Bench([("weight_mixup", {})], search=SEARCH)
    before = [p.detach().clone() for p in run.stack.searcher._attention().values()]
    run.loop().train()
    assert all(torch.equal(a, b) for a, b in zip(before, run.stack.searcher._attention().values(), strict=True))
    joint = Bench([("weight_mixup", {"mode": "joint"})])
    before = [p.detach().clone() for p in joint.stack.regularisers[0]._attention().values()]
    joint.loop().train()
    after = list(joint.stack.regularisers[0]._attention().values())
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(p.min() >= 0 and p.max() <= 1 for p in after)


def test_soup_control_searches_without_mixing() -> None:
    """Attention at 1: a search run is plain training on its split."""
    run = Bench([("weight_mixup", {"attention": "ones"})], phase="search-0", search=SEARCH, validation=True)
    plain = Bench(phase="search-0")
    assert same(run.train(), plain.train())


def test_released_clip_norm_counts_the_frozen_tensors() -> None:
    tight = TRAINING.model_copy(update={"clip_norm": 0.1, "optimizer": "adamax"})
    run = Bench([("weight_mixup", {"variant": "released"})], search=SEARCH, training=tight)
    done = run.loop().train()
    plain = Bench([("weight_mixup", {"variant": "paper"})], search=SEARCH, training=tight).loop().train()
    # The norm that the loop measures was already scaled by the larger, joint norm.
    assert done.curve[0][4] < 0.1 < plain.curve[0][4]


def test_folding_gives_a_plain_model_with_the_same_logits() -> None:
    """Card, oracle 7."""
    run = Bench([("weight_mixup", {"mode": "fixed", "initial_std": 0.45})])
    run.loop().train()
    inputs = run.stream.batch(0).model_inputs()
    run.model.eval()
    with torch.no_grad():
        mixed = run.model(**inputs).logits
        run.stack.export(run.trainee)
        folded = run.model(**inputs).logits
    assert torch.equal(mixed, folded)
    assert set(run.trainee.plain_weights()) == set(Bench().trainee.plain_weights())
    assert largest_difference(run.trainee.plain_weights(), Bench().trainee.plain_weights()) > 0
