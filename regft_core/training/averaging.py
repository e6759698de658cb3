"""A moving average of the trained weights, and passes under it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from regft_core.training.trainee import Trainee


class MovingAverage:
    """Copies of all trained tensors, by plain name, that follow them slowly; they start equal."""

    def __init__(self, trainee: Trainee) -> None:
        self.trainee = trainee
        self.tensors = {name: parameter.detach().clone() for name, parameter in trainee.named_trainable()}

    @torch.no_grad()
    def update(self, momentum: float) -> None:
        """average <- momentum * average + (1 - momentum) * weights."""
        for name, parameter in self.trainee.named_trainable():
            self.tensors[name].lerp_(parameter.detach(), 1 - momentum)

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the averages of a checkpoint."""
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[name])

    @contextmanager
    def in_place_of_the_weights(self) -> Iterator[None]:
        """Within it, passes run under the average; they must not build a graph.

        Only the storage behind the parameters is exchanged, so graphs of earlier passes stay valid.
        """
        parameters = dict(self.trainee.named_trainable())
        own = {name: parameter.data for name, parameter in parameters.items()}
        try:
            for name, parameter in parameters.items():
                parameter.data = self.tensors[name]
            with torch.no_grad():
                yield
        finally:
            for name, parameter in parameters.items():
                parameter.data = own[name]
