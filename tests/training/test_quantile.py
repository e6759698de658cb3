"""The exact quantile of many tensors against numpy on one array in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regft_core.training.quantile import order_statistics, quantile


def parts(values: torch.Tensor) -> list[torch.Tensor]:
    """The values as tensors of different shapes, one of them not contiguous, one empty."""
    third = values.numel() // 3
    square = values[third : 3 * third].reshape(2, third).t()
    return [values[:third], square, torch.empty(0), values[3 * third :]]


def squares(count: int, seed: int = 0) -> torch.Tensor:
    """Squared gradients: non-negative, over many orders of magnitude."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(count, generator=generator) * 4 - 12).exp()


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1000, 200_003])
@pytest.mark.parametrize("q", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999, 1.0])
def test_it_is_numpys_to_the_last_bit(count: int, q: float) -> None:
    values = squares(count)
    expected = np.quantile(values.double().numpy(), q)
    found = quantile(parts(values), q)
    assert found.value == expected
    # The cut chooses the same entries, in single precision.
    assert torch.equal(values >= found.cut, values.double() >= expected)


@pytest.mark.parametrize("zeros", [0.2, 0.5, 0.95, 1.0])
def test_ties(zeros: float) -> None:
    values = squares(300_000)
    values[: int(zeros * len(values))] = 0.0
    values[-1000:] = values[-1]
    for q in (0.1, 0.5, 0.9, 0.9999):
        assert quantile(parts(values), q).value == np.quantile(values.double().numpy(), q)


def test_what_has_no_quantile_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        order_statistics([torch.tensor([1.0, float("nan")])], 0, 1)
    with pytest.raises(ValueError, match="at least one value"):
        quantile([], 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile([torch.ones(3)], 1.5)
