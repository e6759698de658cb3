"""The devices that ``execution.device`` means on the machine that asks, and how a process computes on one of them.

On AMD's Zen 5, torch's own choice for products in fp32 (MKL) takes AVX2 only; through oneDNN a training step takes
0.63 of its time. torch has no switch for it, so ``mm`` and ``addmm`` are registered anew, in processes that regft
starts (``SWITCH``). Last bits differ; the environment of a result names it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regft_core.errors import ConfigError, Problem, RegftError
from regft_core.lazy import torch
from regft_core.names import listing

if TYPE_CHECKING:
    from torch import Tensor

#: GPU -> bytes that stayed on it when its memory was freed last: work space of matrix products, for example.
_staying: dict[str, int] = {}


def _accelerator_driver() -> bool:
    """Whether a CUDA or ROCm driver can be loaded; without one torch sees no GPU either."""
    for name in ("libcuda.so.1", "nvcuda.dll", "libamdhip64.so"):
        with suppress(OSError):
            return ctypes.CDLL(name) is not None
    return False


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_devices(device: str) -> list[str]:
    """Return the devices that ``execution.device`` means on this machine, at least one.

    ``auto``: all CUDA devices, or the CPU; ``cuda``: all CUDA devices; ``cuda:1``, ``mps`` and ``cpu``: that one.
    Raises ``ConfigError`` when it is not there.
    """
    if device == "cpu" or (device == "auto" and not _accelerator_driver()):
        return ["cpu"]  # without importing torch: the parent of the workers needs it for nothing else
    every = [f"cuda:{i}" for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)]
    meant = {"auto": every or ["cpu"], "cuda": every, **{name: [name] for name in every}}
    meant["mps"] = ["mps"] if torch.backends.mps.is_available() else []
    if devices := meant.get(device):
        return devices
    message = f"{device} is not available on this machine"
    hint = f"torch sees {listing([*every, *meant['mps']])}; choose one that is there, or auto"
    raise ConfigError([Problem("device-missing", "params.yaml", 0, "execution.device", message, hint)])


def multiplies_bf16(kind: str) -> bool:
    """Whether a type of device multiplies bf16 faster than fp32: units of its own, not only a type."""
    if kind == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return kind == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def no_bf16(kind: str) -> str | None:
    """Why bf16 is refused on a type of device; None where it is not."""
    if multiplies_bf16(kind):
        return None
    asked = " (neither avx512_bf16 nor amx_tile)" if kind == "cpu" else ""
    return f"this {kind} has no bf16 products{asked}, so it would be slower than fp32"


def multiplies_int8() -> bool:
    """Whether the CPU has units for products of int8; without them torch's take 25 times as long as fp32's."""
    return bool(torch.cpu._is_vnni_supported() or torch.cpu._is_amx_tile_supported())


def refuse_slow_bf16(devices: list[str], precisions: Iterable[str | None]) -> None:
    """Raise ConfigError where runs are to train in bf16 on a CPU that would be slower with it."""
    if devices == ["cpu"] and "bf16" in precisions and (message := no_bf16("cpu")):
        hint = "use precision: fp32, or a machine whose processor has them"
        raise ConfigError([Problem("precision-not-possible", "params.yaml", 0, "training.precision", message, hint)])


def take_device(device: str) -> None:
    """Make ``cuda:<n>`` the current GPU of this process, and free what finished runs have left there.

    Streams, pinned memory and the recording of steps go by the current GPU, which is the first one unless told.
    """
    if device.startswith("cuda:"):
        torch.cuda.set_device(device)
        free_memory(device)


def free_memory(device: str) -> None:
    """Free what finished runs have left on a GPU: their models, and memory that torch keeps from other processes.

    A model and its hooks refer to each other, so it stays, with its optimiser, until Python looks for such cycles. It
    does that by the number of objects and not by what they hold on a GPU. Elsewhere nothing happens.
    """
    if device.startswith("cuda"):
        if torch.cuda.memory_allocated(device) > _staying.get(device, 0):  # else there is nothing to look for
            gc.collect()
            _staying[device] = torch.cuda.memory_allocated(device)
        torch.cuda.empty_cache()


#: The same thread may take it again: training loads models.
_computing = threading.RLock()


@contextmanager
def computing_alone() -> Iterator[None]:
    """Be the only thread of this process that loads or trains models; raises ``RegftError`` when another one does.

    Dropout and newly drawn tensors come from the generator of torch, and kernels, TF32 and threads are settings
    of torch: two trainings at once would shift each other's draws, and both would be stored as if they had not.
    """
    # Not by waiting: a pool of threads would look as if it trained side by side.
    if not _computing.acquire(blocking=False):
        message = "two runs at once in one process would change each other's random draws: this one was not started"
        hint = "run one job at a time in each process, as `executor: processes` does"
        raise RegftError("two-runs-at-once", f"{message}\n    -> {hint}")
    try:
        yield
    finally:
        _computing.release()


#: Environment variable: 1 in processes that regft starts and in theirs; 0 leaves all products to torch.
SWITCH = "REGFT_ONEDNN"
#: Family of AMD's Zen 5 in /proc/cpuinfo. On Zen 4 (25) a step gains 3 to 5%, which is not worth other bits.
_FAMILY = "26"
#: Multiplications below which a call of oneDNN costs more than it saves (measured: 64 x 64 x 64 loses, 16 x 384 x 384
#: gains).
_FEWEST = 1_000_000


@cache
def _slow_with_mkl() -> bool:
    """Whether this is the processor, and this torch has both libraries."""
    cpus = Path("/proc/cpuinfo")
    text = cpus.read_text(encoding="utf-8", errors="replace") if cpus.is_file() else ""
    zen5 = "AuthenticAMD" in text and re.search(rf"^cpu family\s*: {_FAMILY}$", text, re.MULTILINE) is not None
    return zen5 and torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()


def fast_products() -> bool:
    """Whether fp32 products of this process go through oneDNN, once a model was loaded."""
    return os.environ.get(SWITCH) == "1" and _slow_with_mkl() and torch._C._get_mkldnn_enabled()


def take_fast_products() -> None:
    """Let linear layers multiply through oneDNN from now on, where that is faster; nothing happens elsewhere."""
    if fast_products():
        _registered()


@cache
def _registered() -> Any:
    """The registration, which lasts as long as this object; of the whole process, so it is made once."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*Overriding a previously registered kernel")
        library.impl("mm", _mm, "CPU", allow_override=True)
        library.impl("addmm", _addmm, "CPU", allow_override=True)
    return library


def _product(one: Tensor, other: Tensor, bias: Tensor | None) -> Tensor | None:
    """The product by oneDNN; None for matrices that it does not take or gain by: torch says what is wrong with them."""
    fit = one.dim() == other.dim() == 2 and one.shape[1] == other.shape[0]
    large = fit and one.numel() * other.shape[1] >= _FEWEST
    if not (large and one.dtype is other.dtype is torch.float32 and fast_products()):
        return None
    weight = other.t()
    # Of rows with gaps between them (one token of every text) oneDNN has a reference implementation only.
    if not (weight.is_contiguous() or other.is_contiguous()):
        weight = weight.contiguous()
    return torch.ops.mkldnn._linear_pointwise(one, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def _mm(one: Tensor, other: Tensor) -> Tensor:
    product = _product(one, other, None)
    # The variant with a place for the result is another operation to torch, and is MKL's as before.
    return torch.mm(one, other, out=one.new_empty(0)) if product is None else product


def _addmm(added: Tensor, one: Tensor, other: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    bias = added.dim() == 1 and added.dtype is torch.float32 and added.shape[0] == other.shape[-1]
    product = _product(one, other, added) if beta == alpha == 1 and bias else None
    return torch.addmm(added, one, other, beta=beta, alpha=alpha, out=one.new_empty(0)) if product is None else product
