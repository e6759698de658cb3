"""Views of weights: singular values, and the mix with pretrained ones, with the bits of their formulas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.models import weight_views
from regft_core.models.weight_views import SpectralView, WeightMixing, coefficients, largest_singular_value


def weights(rows: int, scale: float, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, 32, generator=torch.Generator().manual_seed(seed)) * scale


@pytest.mark.parametrize("scale", [1e-6, 0.02, 1e3])
@pytest.mark.parametrize("rows", [1, 2, 3, 20])
def test_products_alone_give_the_solvers_singular_value_and_its_gradient(rows: int, scale: float) -> None:
    """What GPUs run, where a solver would be waited for."""
    one, two = (weights(rows, scale).requires_grad_() for _ in range(2))
    found, expected = largest_singular_value(one), torch.linalg.matrix_norm(two, ord=2)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0.0)
    found.backward()
    expected.backward()
    torch.testing.assert_close(one.grad, two.grad, rtol=1e-4, atol=1e-6)


def test_close_singular_values_are_as_exact_and_a_weight_of_zeros_stays_finite() -> None:
    rows = torch.linalg.qr(weights(3, 1.0).T).Q.T
    for gap in (0.0, 1e-7, 1e-4):
        weight = rows * torch.tensor([[0.3], [1.0], [1.0 - gap]])
        torch.testing.assert_close(largest_singular_value(weight), torch.tensor(1.0), rtol=5e-7, atol=0.0)
    zeros = torch.zeros(2, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(largest_singular_value(zeros), zeros)
    assert gradient.isfinite().all()


def test_a_cpu_asks_the_solver() -> None:
    """So that stored results keep their bits."""
    weight = weights(3, 0.1)
    assert torch.equal(SpectralView()(weight), weight / torch.linalg.matrix_norm(weight, ord=2))


# ---------------------------------------------------------------------------------------------- mixing


def mix(form: str, shape: tuple[int, ...] = (70, 33), seed: int = 0) -> tuple[WeightMixing, Tensor, Tensor]:
    """A mixing with attention inside (0, 1), a weight and a gradient of the mix."""
    generator = torch.Generator().manual_seed(seed)
    pretrained, weight, gradient = (torch.randn(shape, generator=generator) for _ in range(3))
    found = WeightMixing(pretrained, rank=1, form=form, std=0.3, generator=generator)
    return found, weight.requires_grad_(), gradient


def written_out(found: WeightMixing, weight: Tensor) -> Tensor:
    own, kept = coefficients(found.attention, found.form, found.rank)
    return (own * weight.reshape(own.shape) + kept * found.pretrained.reshape(own.shape)).reshape(found.shape)


@pytest.mark.parametrize("form", ["factored", "convex"])
@pytest.mark.parametrize("shape", [(70, 33), (3, 4, 5), (1, 7)])
def test_mix_and_gradients_have_the_bits_of_the_formula(
    form: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_views, "ROWS_CHUNK", 100)  # several pieces of rows
    found, weight, gradient = mix(form, shape)
    found.pretrained.requires_grad_(True)  # as under the released variant's clip norm
    found.a1.requires_grad_(True)
    found.a2.requires_grad_(True)
    inputs = [weight, found.pretrained, found.a1, found.a2]
    expected, mixed = written_out(found, weight), found(weight)
    assert torch.equal(mixed, expected)
    wanted = torch.autograd.grad(expected, inputs, gradient)
    for one, other in zip(torch.autograd.grad(mixed, inputs, gradient), wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-6)
    # Of what training uses, every bit.
    for place in (0, 1) if form == "convex" else (0, 1, 2, 3):
        own = torch.autograd.grad(found(weight), inputs, gradient)[place]
        assert torch.equal(own, wanted[place])


@pytest.mark.parametrize("form", ["factored", "convex"])
def test_it_can_be_differentiated_twice(form: str) -> None:
    found, weight, _ = mix(form)
    found.a1.requires_grad_(True)

    def second(function: Any) -> Tensor:
        first = torch.autograd.grad(function(weight).square().sum(), weight, create_graph=True)[0]
        return torch.autograd.grad(first.sin().sum(), found.a1)[0]

    assert torch.allclose(second(found), second(lambda w: written_out(found, w)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("factored", [[1.0, 1.6], [1.5, 5.6]]),
        ("convex", [[1.0, 5.6], [16.5, 25.6]]),
        ("full_rank", [[1, 20], [16.5, 31]]),
    ],
)
def test_worked_example_of_the_mixed_weight(form: str, expected: list[list[float]]) -> None:
    """Oracle 3 of the card of weight mixup."""
    module = WeightMixing(torch.tensor([[10.0, 20], [30, 40]]), rank=1, form=form, std=0.0, generator=torch.Generator())
    with torch.no_grad():
        if form == "full_rank":
            module.a.copy_(torch.tensor([[1.0, 0.0], [0.5, 0.25]]))
        else:
            module.a1.copy_(torch.tensor([[1.0], [0.5]]))
            module.a2.copy_(torch.tensor([[1.0, 0.8]]))
    assert torch.allclose(module(torch.tensor([[1.0, 2], [3, 4]])), torch.tensor(expected))


def test_initial_attention_is_clipped_and_about_half_of_it_is_one() -> None:
    generator = torch.Generator().manual_seed(0)
    module = WeightMixing(torch.zeros(2000, 3000), rank=1, form="factored", std=0.005, generator=generator)
    values = torch.cat([module.a1.flatten(), module.a2.flatten()])
    assert values.max() == 1
    assert (values == 1).float().mean().item() == pytest.approx(0.5, abs=0.03)
    assert values.min() > 0.96
