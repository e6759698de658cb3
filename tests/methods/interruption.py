"""Kills a run after some steps and continues it in a fresh bench, with the checkpoint in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from tests.methods.harness import Bench


class Memory:
    """A checkpointer that keeps tensors as bits and everything else as JSON, like the run store."""

    def __init__(self) -> None:
        self.stored: tuple[dict[str, torch.Tensor], str] | None = None

    def save_checkpoint(self, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
        self.stored = ({name: value.detach().clone() for name, value in tensors.items()}, json.dumps(meta))

    def load_checkpoint(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        return None if self.stored is None else (self.stored[0], json.loads(self.stored[1]))


class Killed(Exception):
    pass


def resumed(make: Callable[[], Bench], at: int) -> tuple[dict[str, torch.Tensor], list[Any]]:
    """Plain weights and diagnostics of a run that was killed after ``at`` steps and continued."""

    def kill(step: int) -> None:
        if step == at:
            raise Killed

    memory, first = Memory(), make()
    try:
        first.train(checkpointer=memory, checkpoint_seconds=0, on_step=kill)
    except Killed:
        pass
    else:
        raise AssertionError(f"the run has no step {at}")
    second = make()
    weights = second.train(checkpointer=memory, checkpoint_seconds=0)
    return weights, second.stack.diagnostics().values
