"""Pieces of tensors: every entry once, and updates with the bits of torch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regft_core.schema.training import TrainingConfig
from regft_core.training import chunks, two_level
from regft_core.training.chunks import chunked, groups_within, order_statistics, quantile_cut
from regft_core.training.optimisers.adamax import DecoupledAdamax, build


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CPU_CHUNK", 64)


def test_every_entry_is_in_one_piece() -> None:
    tensor, other = torch.zeros(30, 11), torch.zeros(30, 11)
    pieces = list(chunked(tensor, other))
    assert len(pieces) == 6
    for piece, beside in pieces:
        assert piece.shape == beside.shape
        piece.add_(1)
    assert torch.equal(tensor, torch.ones(30, 11))


def test_groups_are_neighbours_within_the_limit() -> None:
    assert groups_within([3, 3, 3, 9, 1], 6) == [range(0, 2), range(2, 3), range(3, 4), range(4, 5)]
    assert groups_within([], 6) == []


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamax_in_pieces_has_the_bits_of_torch(decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(40, 33), (7,), (1,)]
    values = [torch.randn(shape, generator=generator) for shape in shapes]
    training = TrainingConfig(optimizer="adamax", learning_rate=1e-2, weight_decay=decay)
    ours, theirs = ([torch.nn.Parameter(value.clone()) for value in values] for _ in range(2))
    own = build([{"params": ours, "weight_decay": decay, "lr": 1e-2}], training)
    assert isinstance(own, DecoupledAdamax)
    reference = torch.optim.Adamax(theirs, lr=1e-2, betas=training.betas, eps=training.epsilon)
    for _ in range(5):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        own.step()
        with torch.no_grad():
            for other in theirs:
                if decay:
                    other.mul_(1 - 1e-2 * decay)
        reference.step()
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    for one, other in zip(ours, theirs, strict=True):
        assert {*own.state[one]} == {*reference.state[other]}


@pytest.mark.parametrize("scale", [-0.3, torch.tensor(0.7)])
def test_a_shift_in_pieces_has_the_bits_of_a_shift_at_once(scale: float | torch.Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    weights, direction = ([torch.randn(s, generator=generator) for s in ((40, 33), (7,))] for _ in range(2))
    expected = [weight + move * scale for weight, move in zip(weights, direction, strict=True)]
    two_level.shift(weights, direction, scale)
    assert all(torch.equal(weight, other) for weight, other in zip(weights, expected, strict=True))


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
