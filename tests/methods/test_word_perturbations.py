"""FreeLB and SMART, which perturb word embeddings, against numbers by hand and the invariants of their papers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.hooks.declare import MainPass
from regft_core.methods.freelb import PASS
from regft_core.methods.smart import PERTURBED, log_odds_divergence, per_token
from regft_core.training.perturbation import example_maxima, example_norms
from tests.methods.harness import MAKES, STILL, TRAINING, Bench, close, gradients, watched
from tests.tiny import EMBEDDERS


def trace(bench: Bench) -> list[list[Tensor]]:
    """The perturbations that each pass of one step saw."""
    step = bench.step()
    passes = watched(step, lambda _: [value.detach().clone() for value in bench.method.perturbation.tensors()])
    bench.method.backward(step)
    return [values for *_, values in passes]


@pytest.mark.parametrize("architecture", [*MAKES, *EMBEDDERS])
@pytest.mark.parametrize("direction", ["gradient", "random"])
def test_each_move_has_the_stated_length_per_example(architecture: str, direction: str) -> None:
    bench = Bench([("freelb", {"ascent_size": 0.3, "direction": direction})], architecture=architecture)
    passes = trace(bench)
    assert len(passes) == 3
    for before, after in itertools.pairwise(passes):
        moved = [b - a for a, b in zip(before, after, strict=True)]
        assert torch.allclose(example_norms(moved, 1), torch.tensor(0.3), atol=1e-5)
    mask = bench.step().batch.attention_mask.bool()
    for values in passes:
        assert not values[0][~mask].any()  # padding keeps 0


@pytest.mark.parametrize("form", [{}, {"architecture": "bart"}, {"pair": True, "pooling": "mean", "separately": True}])
def test_the_first_perturbation_of_an_example_is_within_its_bound(form: dict[str, Any]) -> None:
    """BART's encoder and decoder, or two texts that are encoded separately: one norm, not one for each."""
    wide = TRAINING.model_copy(update={"batch_size": 64})
    bench = Bench([("freelb", {"initial_size": 0.6, "steps": 1})], rows=64, training=wide, **form)
    norms = example_norms(trace(bench)[0], bench.step().batch.rows_per_example)
    assert norms.max() <= 0.6
    assert norms.mean().item() == pytest.approx(0.6 / math.sqrt(3), rel=0.02)


@pytest.mark.parametrize("radius", [0.05, 0.25])
def test_the_radius_bounds_the_norm_after_a_move(radius: float) -> None:
    passes = trace(Bench([("freelb", {"ascent_size": 0.2, "initial_size": 0.2, "radius": radius})]))
    for values in passes[1:]:
        assert example_norms(values, 1).max() <= radius * (1 + 1e-5)
    assert example_norms(passes[-1], 1).max().item() == pytest.approx(radius, rel=1e-4)


def test_the_gradient_of_the_weights_is_the_mean_over_the_passes() -> None:
    options = {"ascent_size": 0.5, "initial_size": 0.5, "steps": 2}
    bench = Bench([("freelb", options)], dropout=STILL)
    passes = trace(bench)
    found = gradients(bench)
    total: dict[str, Tensor] = {}
    for values in passes:  # by hand: a plain backward at each perturbation
        plain = Bench(dropout=STILL)
        plain.trainee.hooks.on_word_embedding(lambda tensor, site, values=values: tensor + values[site.index])
        total = {name: total.get(name, 0) + value / 2 for name, value in plain.gradients().items()}
    assert close(found, total, rtol=1e-3)
    assert found["bert.embeddings.word_embeddings.weight"].any()


def test_norms_and_maxima_are_over_all_rows_and_inputs_of_an_example() -> None:
    one, two = torch.zeros(4, 1, 2), torch.zeros(4, 1, 2)
    one[0], one[1], two[1] = torch.tensor([3.0, 0.0]), torch.tensor([0.0, -4.0]), torch.tensor([12.0, 0.0])
    assert example_norms([one, two], 1).flatten().tolist() == pytest.approx([3.0, math.sqrt(160.0), 0.0, 0.0])
    assert example_norms([one, two], 2).flatten().tolist() == [13.0, 13.0, 0.0, 0.0]
    assert example_maxima([one, one], 1).flatten().tolist() == [3.0, 4.0, 0.0, 0.0]
    assert example_maxima([one, two], 2).flatten().tolist() == [12.0, 12.0, 0.0, 0.0]


def test_a_gradient_that_is_no_number_moves_nothing() -> None:
    bench = Bench([("freelb", {})])
    method, step = bench.method, bench.step()
    method.perturbation.begin(step)
    step.forward(PASS)
    (value,) = method.perturbation.tensors()
    value.grad = torch.full_like(value, math.inf)
    value.grad[1:] = 0.0
    method.ascend(step, 0)
    assert torch.equal(method.perturbation.tensors()[0], value)


# ---------------------------------------------------------------------------------------------------------------- smart

#: KL(p || q) + KL(q || p) of p = (1/2, 1/2) and q = (3/4, 1/4).
P, Q, BOTH = torch.tensor([[0.0, 0.0]]), torch.tensor([[math.log(3.0), 0.0]]), 0.274653
SMOOTH = {"proximal": 0.0}
PROXIMAL = {"weight": 0.0, "proximal": 1.0}


def perturbation(bench: Bench) -> list[Tensor]:
    """What the perturbed pass of one step added to the word embeddings."""
    bench.stack.backward(bench.step())
    return [value.detach() for value in bench.method.perturbation.tensors()]


def test_the_released_divergence_detaches_each_target() -> None:
    """Of KL(q || p) + KL(p || q) with fixed targets, the gradient in the logits of p is p - q."""
    for variant, expected in (("released", -0.25), ("paper", None)):
        one = P.clone().requires_grad_()
        options = {"variant": variant, "proximal": 0.0, "direction": "random"}
        term = Bench([("smart", options)]).terms(one, Q)[1]
        assert float(term.detach()) == pytest.approx(BOTH, abs=1e-6)
        term.backward()
        if expected is not None:
            assert one.grad[0].tolist() == pytest.approx([expected, -expected], abs=1e-6)
        else:  # and through both: p - q plus p (log(p / q) - KL(p || q))
            ratio = math.log(0.5 / 0.75)
            more = 0.5 * (ratio - 0.143841)
            assert one.grad[0, 0].item() == pytest.approx(-0.25 + more, abs=1e-5)


@pytest.mark.parametrize("architecture", MAKES)
@pytest.mark.parametrize("direction", ["gradient", "random"])
def test_the_perturbation_stays_in_its_radius_and_off_padding(architecture: str, direction: str) -> None:
    bench = Bench([("smart", {**SMOOTH, "steps": 2, "direction": direction})], architecture=architecture)
    values = perturbation(bench)
    assert len(values) == (2 if architecture == "bart" else 1)
    mask = bench.step().batch.attention_mask.bool()
    assert not values[0][~mask].any()
    for value in values:
        assert value.abs().max().item() == pytest.approx(1e-5, rel=1e-3)
        if direction == "random":
            real = value[value.abs().sum(-1) > 0]
            assert torch.allclose(real.abs(), torch.tensor(1e-5))
            assert (real > 0).float().mean().item() == pytest.approx(0.5, abs=0.05)


def test_one_ascent_step_by_hand() -> None:
    bench = Bench([("smart", {**SMOOTH, "radius": 0.5, "step_size": 0.25})])
    method, step = bench.method, bench.step()
    method.perturbation.begin(step)
    step.forward(PERTURBED)
    method.perturbation.update([torch.zeros_like(method.perturbation.tensors()[0])])
    gradient = torch.zeros_like(method.perturbation.tensors()[0])
    gradient[0, 0, :2] = torch.tensor([4.0, -2.0])
    gradient[1, 0, 0] = -8.0
    method.ascend(step, [gradient])
    (value,) = method.perturbation.tensors()
    assert value[0, 0, :3].tolist() == pytest.approx([0.25, -0.125, 0.0])
    assert value[1, 0, 0].item() == pytest.approx(-0.25)
    assert not value[2:].any()
    for _ in range(2):
        method.ascend(step, [gradient])
    (value,) = method.perturbation.tensors()
    assert value[0, 0, :2].tolist() == pytest.approx([0.5, -0.375])


def test_the_released_ascent_climbs_a_difference_of_log_odds() -> None:
    """q = (3/4, 1/4) against p = (1/2, 1/2): 2 (3/4 - 1/4) ln 3, and 2 * 2 ln 3 * q1 q2 in its first logit."""
    two = Q.clone().requires_grad_()
    found = log_odds_divergence(P, two)
    assert found.tolist() == pytest.approx([math.log(3)], abs=1e-5)
    found.sum().backward()
    assert two.grad[0].tolist() == pytest.approx([0.75 * math.log(3), -0.75 * math.log(3)], abs=1e-5)


@pytest.mark.parametrize(("variant", "expected"), [("released", 2 * math.log(3)), ("paper", 2 * BOTH)])
def test_what_the_ascent_climbs_is_summed_over_the_batch(
    variant: str, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    climbed: list[float] = []
    bench = Bench([("smart", {"variant": variant, **SMOOTH})])
    step = bench.step()
    monkeypatch.setattr(step, "gradients", lambda loss, inputs: climbed.append(float(loss)))
    monkeypatch.setattr(step, "forward", lambda *args, **options: Q.repeat(2, 1))
    monkeypatch.setattr(bench.method, "ascend", lambda *args: None)
    bench.method.terms(step, MainPass(P.repeat(2, 1), None, torch.zeros(())))
    assert climbed == pytest.approx([expected], abs=1e-5)


def test_the_released_regression_compares_all_pairs_of_a_batch() -> None:
    one, two = torch.tensor([[1.0], [0.0]]), torch.tensor([[-2.0], [3.0]])
    for variant, expected in (("released", (9 + 4 + 4 + 9) / 4), ("paper", (9 + 9) / 2)):
        bench = Bench([("smart", {"variant": variant, **SMOOTH, "direction": "random"})], kind="regression")
        assert float(bench.terms(one, two)[1]) == pytest.approx(expected)


@pytest.mark.parametrize("direction", ["gradient", "random"])
def test_the_released_perturbation_reaches_one_per_token(direction: str) -> None:
    (value,) = perturbation(Bench([("smart", {"variant": "released", "direction": direction})]))
    largest = value.abs().amax(-1)
    assert torch.equal(largest > 0, Bench().step().batch.attention_mask.bool())
    # v / (v + 1e-6) for a largest entry v of about 2e-5.
    assert largest[largest > 0].min() > 0.8
    assert largest.max() < 1.0
    assert per_token(torch.tensor([[[2e-6, -4e-6]]])).flatten().tolist() == pytest.approx([0.4, -0.8])


def test_the_released_site_applies_the_embedding_module_twice() -> None:
    bench = Bench([("smart", {"variant": "released", "direction": "random"})], dropout=STILL)
    method, step = bench.method, bench.step()
    plain = step.forward()
    assert torch.equal(plain, Bench(dropout=STILL).step().forward())
    method.perturbation.begin(step)
    method._start = lambda *args: torch.zeros(*step.batch.input_ids.shape, 32)  # type: ignore[method-assign]
    method.perturbation.start = method._start
    found = step.forward(PERTURBED)
    other = Bench(dropout=STILL)
    output = other.model.bert.embeddings(input_ids=step.batch.input_ids, token_type_ids=step.batch.token_type_ids)
    other.trainee.hooks.on_word_embedding(lambda tensor, site: output)
    assert torch.allclose(found, other.step().forward(), atol=1e-6)
    assert not torch.allclose(found, plain, atol=1e-4)


def test_the_proximal_gradient_by_hand() -> None:
    """Passes of two models: one with today's weights, one with those of the past and no gradient."""
    bench = Bench([("smart", {**PROXIMAL, "proximal": 0.7})], dropout=STILL)
    past = bench.method._past()
    with torch.no_grad():
        for tensor in past.values():
            tensor.mul_(-0.9)
    today = {name: parameter.detach().clone() for name, parameter in bench.trainee.named_raw()}
    loss = bench.stack.backward(bench.step())
    for name, parameter in bench.trainee.named_raw():
        assert torch.equal(parameter, today[name])  # the present is back
    plain, old = Bench(dropout=STILL), Bench(dropout=STILL, start={n: -0.9 * v for n, v in today.items()})
    step = plain.step()
    one, two = step.forward(), old.step().forward().detach()
    p, q = one.log_softmax(-1), two.log_softmax(-1)
    both = ((p.exp() - q.exp()) * (p - q)).sum(-1).mean()
    by_hand = step.task_loss(one) + 0.7 * both
    by_hand.backward()
    assert float(loss) == pytest.approx(float(by_hand.detach()), rel=1e-5)
    assert float(both.detach()) > 1e-3
    assert close(gradients(bench), gradients(plain), atol=1e-5)


def test_momentum_follows_the_weights_and_changes_after_a_tenth() -> None:
    bench = Bench([("smart", {**PROXIMAL, "momentum": 0.5, "late_momentum": 0.75})])
    method, name = bench.method, "classifier.bias"
    average = method._past()[name]
    with torch.no_grad():
        average.zero_()
        bench.trainee.raw(name).fill_(8.0)
    for index, expected in ((0, 4.0), (1, 5.0), (9, 5.75)):  # step 1 of 10 is the first late one
        method.observe_weights(bench.step(index))
        assert average.tolist() == [expected] * 2
