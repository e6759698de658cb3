"""The exact cut at a quantile of many tensors against numpy on one array in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regft_core.training.quantile import order_statistics, quantile_cut


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1000, 30_003])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 1.0])
def test_it_chooses_the_entries_that_numpys_quantile_does(count: int, zeros: float) -> None:
    """Of squared gradients over many orders of magnitude, with ties; one tensor is not contiguous, one empty."""
    values = (torch.randn(count, generator=torch.Generator().manual_seed(0)) * 4 - 12).exp()
    values[: int(zeros * count)] = 0.0
    third = count // 3
    parts = [values[:third], values[third : 3 * third].reshape(2, third).t(), torch.empty(0), values[3 * third :]]
    for q in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999, 1.0):
        expected = np.quantile(values.double().numpy(), q)
        assert torch.equal(values >= quantile_cut(parts, q), values.double() >= expected)


def test_what_has_no_quantile_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        order_statistics([torch.tensor([1.0, float("nan")])], 0, 1)
    with pytest.raises(ValueError, match="no values"):
        quantile_cut([], 0.5)
