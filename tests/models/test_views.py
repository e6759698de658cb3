"""Views of weights; what methods make of them is in the tests of the methods."""

from __future__ import annotations

import pytest
import torch

from regft_core.models.weight_views import SpectralView, largest_singular_value


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


@pytest.mark.parametrize("gap", [0.0, 1e-7, 1e-4])
def test_singular_values_that_are_close_are_as_exact(gap: float) -> None:
    rows = torch.linalg.qr(weights(3, 1.0).T).Q.T
    weight = rows * torch.tensor([[0.3], [1.0], [1.0 - gap]])
    torch.testing.assert_close(largest_singular_value(weight), torch.tensor(1.0), rtol=5e-7, atol=0.0)


def test_a_weight_of_zeros_stays_finite() -> None:
    weight = torch.zeros(2, 4, requires_grad=True)
    value = largest_singular_value(weight)
    value.backward()
    assert float(value.detach()) < 1e-12
    assert weight.grad is not None
    assert weight.grad.isfinite().all()


def test_a_cpu_asks_the_solver() -> None:
    """So that stored results keep their bits."""
    weight = weights(3, 0.1)
    assert torch.equal(SpectralView()(weight), weight / torch.linalg.matrix_norm(weight, ord=2))
