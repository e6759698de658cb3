"""Counts the passes over the encoder of everything that is fitted without steps, whoever asks the encoder for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from regft_core.training.fitting import FitData
from regft_core.training.stack import Stack
from regft_core.training.trainee import Trainee


@dataclass
class Fitted:
    """What the fits of one phase did: rows that there were, and rows that went through the encoder and back."""

    rows: int
    forward: int = 0
    backward: int = 0

    @property
    def per_row(self) -> tuple[float, float]:
        """Forward and backward passes per row, as ``Description.fit_cost`` declares them."""
        return self.forward / self.rows, self.backward / self.rows


@contextmanager
def counted_fits() -> Iterator[list[Fitted]]:
    """Within the block the fits of every stack are counted, one entry a stack.

    Counted is at the encoder itself: a pass that a method runs past ``Step`` (features of a frozen model) counts too.
    """
    found: list[Fitted] = []
    plain = Stack.fit

    def fit(self: Stack, trainee: Trainee, data: FitData) -> None:
        counted = Fitted(len(data.stream.rows))
        found.append(counted)
        texts = data.stream.encoded.rows_per_example

        def forward(_module: Any, _args: Any, output: Any) -> None:
            hidden = output[0]
            rows = hidden.shape[0] // texts
            counted.forward += rows

            def backward(_gradient: Any) -> None:
                counted.backward += rows

            if hidden.requires_grad:
                hidden.register_hook(backward)

        encoder: Any = trainee.model.base_model
        handle = encoder.register_forward_hook(forward)
        try:
            plain(self, trainee, data)
        finally:
            handle.remove()

    Stack.fit = fit  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Stack.fit = plain  # type: ignore[method-assign]
