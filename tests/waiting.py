"""Finds where a step would make the host wait for a GPU, without one.

Reading a value, or an operation whose result's size depends on values, needs the device to have finished; so does a
copy to the device from memory that is not pinned. On a CPU the first two are the same calls, so they can be counted.
On the device ``meta`` (``UNREADABLE``) tensors have no values: there the branches of a device are taken, what
is on the host is told from what is not, and nothing can be read unseen. What neither can see (blocking copies
inside a kernel library) is what ``tests/gpu`` asks CUDA itself.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from regft_core.rng import derive
from regft_core.training.trainee import Trainee

#: A device of which nothing can be read, in the place of a GPU.
UNREADABLE = torch.device("meta")
#: Operations that read values on the host, or whose result has a size that depends on values.
READING = {
    *("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "bincount"),
    *("unique_consecutive", "_unique", "_unique2", "unique_dim", "unique_dim_consecutive"),
}
#: Operations whose CUDA kernels let the host read something: whether probabilities are valid, or a solver converged.
CHECKING = {
    *("multinomial", "_linalg_svd", "_linalg_eigh", "_linalg_eigvals", "linalg_eig", "linalg_lstsq"),
    *("_linalg_det", "_linalg_slogdet", "_linalg_solve_ex", "linalg_inv_ex", "linalg_cholesky_ex"),
}
MOVING = {Tensor.cpu: "cpu", Tensor.numpy: "numpy", Tensor.tolist: "tolist"}
BUILDING = {torch.tensor: "tensor", torch.as_tensor: "as_tensor"}


def _where() -> str:
    skipped = ("/tests/waiting.py", "/site-packages/torch/")
    own = [frame for frame in traceback.extract_stack() if not any(name in frame.filename for name in skipped)]
    inside = [f for f in own if "regft_core" in f.filename or "transformers/" in f.filename]
    frame = (inside or own)[-1]
    return f"{frame.filename.rsplit('site-packages/')[-1]}:{frame.lineno} {frame.line}"


def _tensors(given: Any) -> Iterator[Tensor]:
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, list | tuple):
        for part in given:
            yield from _tensors(part)


class _Functions(TorchFunctionMode):
    def __init__(self, found: list[str], device: torch.device) -> None:
        super().__init__()
        self.found, self.device = found, device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in MOVING and args[0].device == self.device:
            self.found.append(f"{MOVING[func]} at {_where()}")
        # Built on the host and sent to the device that was named, which waits for the copy.
        if func in BUILDING and not isinstance(args[0], Tensor):
            named = kwargs.get("device")
            if named is not None and torch.device(named) == self.device:
                self.found.append(f"{BUILDING[func]} at {_where()}")
        return func(*args, **kwargs)


class Waits(TorchDispatchMode):
    """Within the block ``found`` collects what would wait, each with its place.

    Args:
        on_host: tensors that are on the host whatever the device (the step counts of optimisers).
        device: that stands for the GPU.
    """

    def __init__(self, on_host: Iterable[Tensor] = (), device: torch.device | str = "cpu") -> None:
        super().__init__()
        self.device = torch.device(device)
        self.on_host = {tensor.data_ptr() for tensor in on_host}
        self.found: list[str] = []
        self._functions = _Functions(self.found, self.device)

    def __enter__(self) -> Waits:
        self._functions.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._functions.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if self._waits(name, args) or self._copies(name, args, kwargs):
            self.found.append(f"{name} at {_where()}")
        return func(*args, **kwargs)

    def _waits(self, name: str, args: Any) -> bool:
        if name in READING or name in CHECKING:
            found = not (name == "_local_scalar_dense" and args[0].data_ptr() in self.on_host)
        elif name == "repeat_interleave":
            found = isinstance(args[0], Tensor) and (len(args) < 2 or isinstance(args[1], Tensor))
        elif name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            chosen = any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
            found = chosen and (name == "index" or args[2].numel() > 1)
        else:
            return False
        return found and any(tensor.device == self.device for tensor in _tensors(args))

    def _copies(self, name: str, args: Any, kwargs: Any) -> bool:
        """Whether what is on the host is copied to the device, or meets what is there; single numbers may."""
        if self.device.type == "cpu":
            return False
        strangers = [tensor for tensor in _tensors(args) if tensor.device != self.device]
        if not strangers:
            return False
        if name == "_to_copy":
            return kwargs.get("device") == self.device and not kwargs.get("non_blocking")
        beside = any(tensor.device == self.device for tensor in _tensors(args))
        return beside and any(tensor.dim() for tensor in strangers)


def step_counts(*optimizers: torch.optim.Optimizer) -> list[Tensor]:
    """The counts of steps in optimisers' states, which torch keeps on the host unless an update is fused."""
    states = (state for optimizer in optimizers for state in optimizer.state.values())
    return [state["step"] for state in states if isinstance(state.get("step"), Tensor)]


class _Generator(torch.Generator):
    """Description that it is of the device of which nothing can be read, where no draw has a value."""

    device = UNREADABLE  # type: ignore[assignment]


def unreadable(patch: pytest.MonkeyPatch) -> None:
    """Let runs be on :data:`UNREADABLE`, which torch knows no generators, no autocast and no fused AdamW for."""
    adamw, autocast = torch.optim.AdamW, torch.autocast
    begin, enter, leave = autocast.__init__, autocast.__enter__, autocast.__exit__

    def generator(trainee: Trainee, *key: str | int, on_host: bool = False) -> torch.Generator:
        made = torch.Generator() if on_host or trainee.device.type == "cpu" else _Generator()
        return made.manual_seed(derive(trainee.seed, trainee.phase, *key))

    def unfused(*args: Any, **named: Any) -> torch.optim.Optimizer:
        return adamw(*args, **(named | {"fused": None, "foreach": True}))

    def begin_unless(context: Any, device_type: str, *rest: Any, **named: Any) -> None:
        context.idle = device_type == UNREADABLE.type
        if not context.idle:
            begin(context, device_type, *rest, **named)

    # Else a tensor that two modules share would become two.
    patch.setattr(torch.__future__, "_swap_module_params_on_conversion", True)
    patch.setattr(Trainee, "generator", generator)
    patch.setattr(torch.optim, "AdamW", unfused)
    patch.setattr(autocast, "__init__", begin_unless)
    patch.setattr(autocast, "__enter__", lambda context: context if context.idle else enter(context))
    patch.setattr(autocast, "__exit__", lambda context, *error: None if context.idle else leave(context, *error))
