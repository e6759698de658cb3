"""Finds where a step would make the host wait for a GPU, on a CPU.

Reading a value, or an operation whose result's size depends on values, needs the device to have finished.
On a CPU such operations are the same calls, so they can be counted. What this cannot see (blocking
copies inside a kernel library) is what ``tests/gpu`` asks CUDA itself.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

#: Operations that read values on the host, or whose result has a size that depends on values.
READING = {
    *("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "bincount"),
    *("unique_consecutive", "_unique", "_unique2", "unique_dim", "unique_dim_consecutive"),
}
MOVING = {Tensor.cpu: "cpu", Tensor.numpy: "numpy", Tensor.tolist: "tolist"}
BUILDING = {torch.tensor: "tensor", torch.as_tensor: "as_tensor"}


def _where() -> str:
    skipped = ("/tests/waiting.py", "/site-packages/torch/")
    own = [frame for frame in traceback.extract_stack() if not any(name in frame.filename for name in skipped)]
    inside = [f for f in own if "regft_core" in f.filename or "transformers/" in f.filename]
    frame = (inside or own)[-1]
    return f"{frame.filename.rsplit('site-packages/')[-1]}:{frame.lineno} {frame.line}"


class _Functions(TorchFunctionMode):
    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in MOVING:
            self.found.append(f"{MOVING[func]} at {_where()}")
        # Built on the host and sent to the device that was named, which waits for the copy.
        if func in BUILDING and kwargs.get("device") is not None and not isinstance(args[0], Tensor):
            self.found.append(f"{BUILDING[func]} at {_where()}")
        return func(*args, **kwargs)


class Waits(TorchDispatchMode):
    """Within the block ``found`` collects what would wait, each with its place.

    Args:
        on_host: tensors that are on the host whatever the device (the step counts of optimisers).
    """

    def __init__(self, on_host: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.on_host = {tensor.data_ptr() for tensor in on_host}
        self.found: list[str] = []
        self._functions = _Functions(self.found)

    def __enter__(self) -> Waits:
        self._functions.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._functions.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if self._waits(name, args):
            self.found.append(f"{name} at {_where()}")
        return func(*args, **(kwargs or {}))

    def _waits(self, name: str, args: Any) -> bool:
        if name in READING:
            return not (name == "_local_scalar_dense" and args[0].data_ptr() in self.on_host)
        if name == "repeat_interleave":
            return isinstance(args[0], Tensor) and (len(args) < 2 or isinstance(args[1], Tensor))
        if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            chosen = any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
            return chosen and (name == "index" or args[2].numel() > 1)
        return False


def step_counts(*optimizers: torch.optim.Optimizer) -> list[Tensor]:
    """The counts of steps in optimisers' states, which torch keeps on the host unless an update is fused."""
    states = (state for optimizer in optimizers for state in optimizer.state.values())
    return [state["step"] for state in states if isinstance(state.get("step"), Tensor)]
