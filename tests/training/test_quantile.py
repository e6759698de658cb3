"""The exact quantile of many tensors against numpy on one array in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regft_core.training import quantile as module
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


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1000, 2_000_003])
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
    values = squares(3_000_000)
    values[: int(zeros * len(values))] = 0.0
    values[-1000:] = values[-1]
    for q in (0.1, 0.5, 0.9, 0.9999):
        assert quantile(parts(values), q).value == np.quantile(values.double().numpy(), q)


def test_a_sample_that_says_nothing_about_the_values_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sampled value is far from the quantile, so both brackets miss it and all values are looked at."""
    values = squares(2_000_000)
    monkeypatch.setattr(module, "_sample", lambda flat, count: torch.full((1000,), 1e30))
    assert quantile([values], 0.7).value == np.quantile(values.double().numpy(), 0.7)


def test_the_two_ways_of_collecting_agree() -> None:
    values = squares(2_000_000)
    below, inside = module._collect_on_cpu([values], 1e-6, 1e-5)
    same_below, same_inside = module._collect_on_device([values], 1e-6, 1e-5)
    assert below == same_below == int((values < 1e-6).sum())
    assert torch.equal(inside, same_inside)


def test_only_the_bracket_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is rearranged at the end is a small part of the values."""
    kept: list[int] = []
    original = module._select

    def look(values: torch.Tensor, first: int, second: int) -> tuple[float, float]:
        kept.append(values.numel())
        return original(values, first, second)

    monkeypatch.setattr(module, "_select", look)
    quantile([squares(4_000_000)], 0.7)
    assert kept[0] < 0.02 * 4_000_000


def test_what_has_no_quantile_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        order_statistics([torch.tensor([1.0, float("nan")])], 0, 1)
    many = squares(2_000_000)
    many[1_234_567] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        order_statistics([many], 0, 1)
    with pytest.raises(ValueError, match="NaN"):
        module._collect_on_device([many], 0.0, 1.0)
    with pytest.raises(ValueError, match="at least one value"):
        quantile([], 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile([torch.ones(3)], 1.5)
