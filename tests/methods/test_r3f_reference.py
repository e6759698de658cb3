"""R3F and R4F against numbers worked out by hand and the invariants of their paper."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.errors import ModelError
from regft_core.hooks import ownership
from regft_core.hooks.declare import MainPass
from regft_core.methods.r3f import NOISED, R3f, R3fConfig
from regft_core.methods.r4f import last_projection
from regft_core.schema import DropoutConfig
from regft_core.training.step import repeat_batch
from tests.errors import raises_code
from tests.methods.harness import TRAINING, Bench, entries, same
from tests.tiny import ARCHITECTURES

STILL = DropoutConfig(hidden=0.0, attention=0.0)
#: KL(p || q) + KL(q || p) of p = (1/2, 1/2) and q = (3/4, 1/4).
P, Q, BOTH = torch.tensor([[0.0, 0.0]]), torch.tensor([[math.log(3.0), 0.0]]), 0.274653


def r3f(bench: Bench) -> R3f:
    found = next(r for r in bench.stack.regularisers if r.name == "r3f")
    assert isinstance(found, R3f)
    return found


def term(bench: Bench, one: Tensor, two: Tensor) -> float:
    step = bench.step()
    step.forward = lambda *args, **options: two  # type: ignore[method-assign]
    return float(r3f(bench).terms(step, MainPass(one, None, torch.zeros(()))))


def noise_of(bench: Bench) -> Tensor:
    """What was added to the word embeddings of the noised pass, ``[rows, n, E]``."""
    seen: list[Tensor] = []
    bench.trainee.hooks.on_word_embedding(lambda tensor, site: seen.append(tensor.detach().clone()) or tensor)
    step = bench.step()
    step.forward()
    step.forward(NOISED, draw=NOISED)
    clean, noised = seen
    return noised.double() - clean.double()


def test_the_directions_are_summed_and_the_batch_is_averaged() -> None:
    bench = Bench([("r3f", {"weight": 0.5})])
    assert term(bench, P, Q) == pytest.approx(0.5 * BOTH, abs=1e-6)
    assert term(bench, Q, P) == pytest.approx(0.5 * BOTH, abs=1e-6)
    assert term(bench, P.repeat(3, 1), Q.repeat(3, 1)) == pytest.approx(0.5 * BOTH, abs=1e-6)
    mixed = term(bench, P.repeat(2, 1), torch.cat([Q, P]))
    assert mixed == pytest.approx(0.25 * BOTH, abs=1e-6)
    regression = Bench([("r3f", {"weight": 0.5})], kind="regression")
    assert term(regression, torch.tensor([[1.0]]), torch.tensor([[-2.0]])) == pytest.approx(4.5)


def test_without_dropout_and_noise_the_term_is_zero() -> None:
    bench = Bench([("r3f", {"scale": 0.0})], dropout=STILL)
    step = bench.step()
    logits = step.forward().detach()
    assert float(r3f(bench).terms(step, MainPass(logits, None, logits.sum())).detach()) == pytest.approx(0.0, abs=1e-7)


def test_a_batch_twice_over_has_the_same_term() -> None:
    values = []
    for times in (1, 2):
        # The two halves of the batch get noise of their own, so the noise is left out.
        bench = Bench([("r3f", {"scale": 0.0})], dropout=STILL)
        step = bench.step()
        step.batch = repeat_batch(step.batch, times)
        other = step.forward() * 1.5
        values.append(float(r3f(bench).terms(step, MainPass(other, None, other.sum())).detach()))
    assert values[0] > 1e-4
    assert values[0] == pytest.approx(values[1], rel=1e-4)


@pytest.mark.parametrize(("law", "sd"), [("uniform", 1 / math.sqrt(3)), ("normal", 1.0)])
def test_noise_has_the_declared_law_and_reaches_padding(law: str, sd: float) -> None:
    scale = 1e-2
    wide = TRAINING.model_copy(update={"batch_size": 64})
    noise = noise_of(Bench([("r3f", {"scale": scale, "distribution": law})], rows=64, training=wide))
    assert noise.std().item() == pytest.approx(scale * sd, rel=0.02)
    assert abs(noise.mean().item()) < 5 * scale / math.sqrt(noise.numel())
    assert (noise != 0).double().mean() > 0.99
    if law == "uniform":
        assert noise.abs().max() <= scale * 1.001


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_noised_pass_sends_no_gradient_to_the_embedding_table(architecture: str) -> None:
    bench = Bench([("r3f", {"scale": 1e-2})], architecture=architecture)
    step = bench.step()
    step.forward(NOISED, draw=NOISED).square().sum().backward()
    table = bench.trainee.sites.word_embedding.weight
    assert table.grad is None or not table.grad.any()
    layers = bench.trainee.sites.mixable
    assert any((grad := bench.trainee.raw(name).grad) is not None and grad.any() for name in layers)
    bench.model.zero_grad(set_to_none=True)
    step.forward().square().sum().backward()
    assert table.grad is not None
    assert table.grad.any()


def test_noise_reaches_the_predictions_and_only_in_its_pass() -> None:
    bench = Bench([("r3f", {"scale": 1e-1})], dropout=STILL)
    step = bench.step()
    plain = Bench(dropout=STILL).step().forward()
    assert torch.equal(step.forward(), plain)
    noised = step.forward(NOISED, draw=NOISED)
    assert not torch.allclose(noised, plain, atol=1e-4)
    assert torch.equal(noised, step.forward(NOISED, draw=NOISED))


def test_hype_acts_in_the_noised_pass_in_place_of_the_embedding_noise() -> None:
    hype = ("hype", {"scale": 1e-1, "passes": [NOISED]})
    bench = Bench([("r3f", {"scale": 0.0}), hype], dropout=DropoutConfig(attention=0.0))
    plain = Bench(dropout=STILL).step().forward()
    step = bench.step()
    assert torch.equal(step.forward(), plain)
    assert not torch.allclose(step.forward(NOISED, draw=NOISED), plain, atol=1e-4)
    assert not ownership.pass_problems(entries([("r3f", {}), hype]))


def test_regression_is_a_marked_substitute_and_refused_as_released(regression_task: Any) -> None:
    assert "substitute" in R3f.declare(R3fConfig()).says.degraded["regression"]
    assert "adds nothing on regression" in R3f.check_task(R3fConfig(variant="released"), regression_task)[0]
    assert not R3f.check_task(R3fConfig(), regression_task)


# ------------------------------------------------------------------------------------------ R4F


def test_the_effective_head_is_the_weight_over_its_largest_singular_value() -> None:
    bench = Bench([("r4f", {})], labels=2)
    with torch.no_grad():
        raw = bench.trainee.raw("classifier.weight")
        raw.zero_()
        raw[0, 0], raw[1, 1] = 4.0, 2.0
    expected = torch.zeros(2, 32)
    expected[0, 0], expected[1, 1] = 1.0, 0.5
    assert torch.allclose(bench.model.classifier.weight, expected)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("labels", [2, 5])
def test_the_largest_singular_value_is_one_also_after_training_and_export(architecture: str, labels: int) -> None:
    bench = Bench([("r4f", {}), ("r3f", {})], architecture=architecture, labels=labels)
    name = last_projection(bench.trainee, labels)
    weights = bench.train()
    assert torch.linalg.svdvals(weights[name])[0].item() == pytest.approx(1.0, abs=1e-5)
    plain = Bench(architecture=architecture, labels=labels)
    assert set(weights) == set(plain.trainee.plain_weights())
    assert plain.trainee.sites.head[-1].rpartition(".")[0] == name.rpartition(".")[0]


def test_one_output_is_divided_by_its_norm_and_a_zero_weight_stays_finite() -> None:
    bench = Bench([("r4f", {})], kind="regression")
    raw = bench.trainee.raw("classifier.weight")
    assert torch.allclose(bench.model.classifier.weight, raw / raw.norm())
    with torch.no_grad():
        raw.zero_()
    assert not bench.model.classifier.weight.any()


def test_the_gradient_is_that_of_the_normalised_weight() -> None:
    """d(w / |w|) has no component along w."""
    bench = Bench([("r4f", {})], kind="regression", dropout=STILL)
    bench.stack.backward(bench.step())
    raw = bench.trainee.raw("classifier.weight")
    assert raw.grad is not None
    assert raw.grad.any()
    assert abs(float((raw.grad * raw.detach()).sum())) < 1e-5 * float(raw.grad.norm() * raw.detach().norm())


def test_a_head_of_another_shape_is_an_error() -> None:
    with raises_code(ModelError, "head-outputs", "in 7", "classifier.weight", "has 2"):
        last_projection(Bench().trainee, 7)


def test_r4f_is_r3f_where_the_head_is_normalised_already() -> None:
    """Without training the head, dividing a head of norm 1 by its norm changes nothing."""
    start = Bench().trainee.plain_weights()
    start["classifier.weight"] = start["classifier.weight"] / torch.linalg.matrix_norm(start["classifier.weight"], 2)
    one, two = Bench([("r3f", {})], start=start), Bench([("r3f", {}), ("r4f", {})], start=start)
    losses = [float(bench.stack.backward(bench.step())) for bench in (one, two)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    assert not same(one.train(), two.train())


ADAPTERS: list[tuple[str, dict[str, Any]]] = [
    ("lora", {}),
    ("lora", {"rank": 0}),
    ("prefix_tuning", {}),
    ("prompt_tuning", {}),
    ("prompt_tuning", {"reads": "text"}),
    ("top_k_layers", {"layers": 0, "pooler": False}),
]


@pytest.mark.parametrize("adapter", ADAPTERS, ids=str)
def test_the_head_over_a_frozen_encoder_is_normalised(adapter: tuple[str, dict[str, Any]]) -> None:
    """It was refused as a view of weights that stay frozen; the head is trained, and is all that it views."""
    assert ownership.ownership_problems(entries([adapter, ("r4f", {})])) == []
    bench = Bench([adapter, ("r4f", {})])
    raw = bench.trainee.raw("classifier.weight").detach().clone()
    before = bench.trainee.plain_weights()
    weights = bench.train()
    assert torch.linalg.svdvals(weights["classifier.weight"])[0].item() == pytest.approx(1.0, abs=1e-5)
    assert not torch.allclose(weights["classifier.weight"], raw / torch.linalg.matrix_norm(raw, 2), atol=1e-4)
    # The rest is frozen still: what LoRA folds in at the end stands in query and value.
    frozen = [name for name in before if not name.startswith("classifier") and ".self." not in name]
    assert all(torch.equal(weights[name], before[name]) for name in frozen)
    assert not same(weights, Bench([adapter]).train())


@pytest.mark.parametrize(("other", "options"), [("linear_head", {}), ("masked_lm", {"trains": "head"})])
def test_a_head_that_no_step_on_the_task_trains_is_refused(other: str, options: dict[str, Any]) -> None:
    """The solution would be written into a copy; a masked-LM phase has another loss."""
    (problem,) = ownership.ownership_problems(entries([("r4f", {}), (other, options)]))
    assert problem.startswith(f"'r4f' computes the head's weights from trained ones, but '{other}' freezes the encoder")
