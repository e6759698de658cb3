"""A weight view that asks its method: a parametrisation without tensors of its own."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class View(nn.Module):
    """Maps the trained tensor of plain parameter ``name`` to the one that a forward pass uses.

    Args:
        function: called with ``name`` and the trained tensor; returns a tensor of its shape and dtype.
    """

    def __init__(self, function: Callable[[str, Tensor], Tensor], name: str) -> None:
        super().__init__()
        self.function, self.name = function, name

    def forward(self, weight: Tensor) -> Tensor:
        return self.function(self.name, weight)
