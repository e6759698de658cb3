"""Forward and backward of the plain pass as CUDA graphs, one for each shape of batch.

Small encoders on short texts leave a GPU waiting for the host to launch kernels; a recorded step is launched at
once. Batches are as long as their longest text, so there is a graph for each length that comes again: a shape
is run as usual the first time and recorded the second time. The random draws of a replay are those of its step,
because the generator is seeded before it as before any pass.

Only steps that are one plain pass are recorded: no step program, no added terms, no draws of a method's own
inside the pass (``Declares.recordable``), no loss scaling. Everything else runs as usual.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regft_core.data.batches import Batch
from regft_core.training.stack import Stack
from regft_core.training.step import Step

#: Shapes that are recorded; each keeps its input, and they share gradients and the memory of what a step makes.
LIMIT = 64
#: Takes a function over tensors and returns what repeats it on the same memory; it need not have run it.
Recorder = Callable[[Callable[[], None]], Callable[[], Any]]


def cuda_recorder() -> Recorder:
    """Return a recorder of CUDA graphs over one pool of memory: they never run beside each other."""
    pool = torch.cuda.graph_pool_handle()

    def record(function: Callable[[], None]) -> Callable[[], Any]:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            function()
        return graph.replay

    return record


class _Recorded(NamedTuple):
    batch: Batch
    replay: Callable[[], Any]
    #: ``loss`` as the last replay left it.
    made: dict[str, Tensor]


def recordable(stack: Stack, precision: str) -> bool:
    """Whether the steps of a phase are one plain pass without draws of a method's own."""
    if stack.program is not None or stack.adding or precision == "fp16":
        return False
    return all(regulariser.declares.recordable for regulariser in stack.regularisers)


class StepGraphs:
    """Takes the place of ``Stack.backward``, which it calls as ``usual``, where a phase is :func:`recordable`."""

    def __init__(self, parameters: list[Tensor], recorder: Recorder, usual: Callable[[Step], Tensor]) -> None:
        self.parameters, self.record, self.usual = parameters, recorder, usual
        self._recorded: dict[Hashable, _Recorded] = {}
        self._seen: set[Hashable] = set()
        #: Where all graphs leave the gradient of each parameter; None where a pass gives it none.
        self._gradients: list[Tensor | None] = []

    def backward(self, step: Step) -> Tensor:
        """Return the detached loss of one batch; its gradients are added to ``.grad``."""
        batch = step.batch
        windows = None if batch.windows is None else batch.windows.shape[0]
        types = batch.token_type_ids is not None
        shape = tuple(batch.input_ids.shape), len(batch), batch.padded, types, windows, step.share
        found = self._recorded.get(shape)
        if found is None:
            known, room = shape in self._seen, len(self._recorded) < LIMIT
            self._seen.add(shape)
            if not known or not room:
                loss = self.usual(step)
                if not self._gradients:
                    grads = (parameter.grad for parameter in self.parameters)
                    self._gradients = [None if grad is None else torch.zeros_like(grad) for grad in grads]
                return loss
            found = self._recorded[shape] = self._record(step)
        for name in _tensors(batch):
            getattr(found.batch, name).copy_(getattr(batch, name), non_blocking=True)
        step.seed()
        found.replay()
        for parameter, gradient in zip(self.parameters, self._gradients, strict=True):
            if gradient is not None and parameter.grad is not None:
                parameter.grad.add_(gradient)  # of several batches of a step
            elif gradient is not None:
                parameter.grad = gradient if step.share == 1.0 else gradient.clone()
        step.forward_passes += 1.0
        step.backward_passes += 1.0
        # The next replay writes over it, and losses are read several steps later.
        return found.made["loss"].clone()

    def _record(self, step: Step) -> _Recorded:
        batch = dataclasses.replace(
            step.batch, **{name: getattr(step.batch, name).clone() for name in _tensors(step.batch)}
        )
        still = step.on(batch)
        kept = [parameter.grad for parameter in self.parameters]
        made: dict[str, Tensor] = {}

        def once() -> None:
            torch._foreach_zero_([gradient for gradient in self._gradients if gradient is not None])
            for parameter, gradient in zip(self.parameters, self._gradients, strict=True):
                parameter.grad = gradient
            made["loss"] = self.usual(still)

        step.seed()
        still.seeds = False  # a recorded pass is seeded from outside
        replay = self.record(once)
        for parameter, gradient in zip(self.parameters, kept, strict=True):
            parameter.grad = gradient
        return _Recorded(batch, replay, made)


def _tensors(batch: Batch) -> list[str]:
    names = (field.name for field in dataclasses.fields(batch))
    return [name for name in names if isinstance(getattr(batch, name), Tensor)]
