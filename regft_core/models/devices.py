"""The devices that ``execution.device`` means on the machine that asks; what a process does with one of its GPUs."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from regft_core.errors import ConfigError, Problem, RegftError
from regft_core.names import listing

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

    ``auto``: all CUDA devices, or the CPU; ``cuda``: all CUDA devices; ``cuda:1``, ``mps`` and
    ``cpu``: that one. Raises ``ConfigError`` when it is not there (never falls back).
    """
    if device == "cpu" or (device == "auto" and not _accelerator_driver()):
        return ["cpu"]  # without importing torch: the parent of the workers needs it for nothing else
    import torch

    every = [f"cuda:{i}" for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)]
    meant = {"auto": every or ["cpu"], "cuda": every, **{name: [name] for name in every}}
    meant["mps"] = ["mps"] if torch.backends.mps.is_available() else []
    if devices := meant.get(device):
        return devices
    message, hint = f"{device} is not available on this machine", "choose one that is there, or auto"
    seen = listing([*every, *meant["mps"]])
    raise ConfigError(
        [Problem("device-missing", "params.yaml", 0, "execution.device", message, f"torch sees {seen}; {hint}")]
    )


def own_device(device: str) -> str:
    """The one device of a worker that a cluster placed: the first that the cluster lets it see. Raises as above."""
    return visible_devices(device)[0]


#: What :func:`multiplies_bf16` looks for, for errors.
ASKED = {"cpu": " (neither avx512_bf16 nor amx_tile)"}


def multiplies_bf16(kind: str) -> bool:
    """Whether a type of device multiplies bf16 faster than fp32: units of its own, not only a type."""
    import torch

    if kind == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return False


def multiplies_int8() -> bool:
    """Whether the CPU has units for products of int8; without them torch's take 25 times as long as fp32's."""
    import torch

    return bool(torch.cpu._is_vnni_supported() or torch.cpu._is_amx_tile_supported())


def refuse_slow_bf16(devices: list[str], precisions: Iterable[str | None]) -> None:
    """Raise ConfigError where runs are to train in bf16 on a CPU that would be slower with it."""
    if devices == ["cpu"] and "bf16" in precisions and not multiplies_bf16("cpu"):
        message = f"bf16: this CPU has no bf16 products{ASKED['cpu']}, so it would be slower than fp32"
        hint = "use precision: fp32, or a machine whose processor has them"
        raise ConfigError([Problem("precision-not-possible", "params.yaml", 0, "training.precision", message, hint)])


def take_device(device: str) -> None:
    """Make ``cuda:<n>`` the current GPU of this process, and free what finished runs have left there.

    Streams, pinned memory and the recording of steps go by the current GPU, which is the first one unless told:
    a run on ``cuda:1`` would hold a context on ``cuda:0`` as well, and record its steps on a stream of that. Nothing
    happens elsewhere.
    """
    if device.startswith("cuda:"):
        import torch

        torch.cuda.set_device(device)
        free_memory(device)


def free_memory(device: str) -> None:
    """Free what finished runs have left on a GPU: their models, and memory that torch keeps for later.

    A model and its hooks refer to each other, so it stays, with its optimiser, until Python looks for such cycles. It
    does that by the number of objects and not by what they hold on a GPU. Memory that torch keeps serves this process
    only, while others that share the GPU run out of it. Elsewhere nothing happens.
    """
    if device.startswith("cuda"):
        import torch

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
