"""The environment of a run, as far as its bits may depend on it: *recorded* with every result, and no part of its key.

So a store filled on one machine serves another. Results of different environments are equal up to rounding only: the
report refuses to compare them unless ``report.mixed_environments: mark``, and a killed run continues in its own alone.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from typing import Any

from regft_core import __version__
from regft_core.models.devices import fast_products
from regft_core.runs.code import version
from regft_core.schema.params import ExecutionConfig

REPORTED_PACKAGES = (
    *("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy"),
    *("datasets", "dvc", "mlflow", "pydantic"),
)


def set_up(device: str, execution: ExecutionConfig) -> dict[str, Any]:
    """Ask torch for the kernels that ``execution`` wants; returns the environment that there is then."""
    from regft_core.runs.training_run import make_deterministic

    make_deterministic(device, execution.deterministic, execution.tf32)
    return environment(device, cuda_graphs=execution.cuda_graphs)


def environment(device: str, *, cuda_graphs: bool = False) -> dict[str, Any]:
    """Return device, CPU threads, and whether kernels are deterministic, as torch has them."""
    import torch

    kind = device.split(":")[0]
    # Kernels differ by instruction set (AVX2, AVX-512, NEON) and by the number of threads.
    name = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}" if kind == "cpu" else kind
    described = {"device": kind, "name": name, "threads": torch.get_num_threads(), "deterministic": True}
    # What changes digits beyond that is named where it is on.
    if kind == "cuda":
        described["name"] = torch.cuda.get_device_name(device)
        described["deterministic"] = torch.are_deterministic_algorithms_enabled()
        matrices = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
        described |= {name: True for name, on in (("tf32", matrices), ("cuda_graphs", cuda_graphs)) if on}
    elif torch.get_float32_matmul_precision() != "highest":
        described["matrix_precision"] = torch.get_float32_matmul_precision()
    if kind == "cpu" and fast_products():
        described["products"] = "oneDNN"
    return described


def other_environments(here: Mapping[str, Any] | None, parts: Iterable[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Marks for a result made of ``parts`` (phase, result of it or of a member) that come from another environment."""
    marks = [
        f"{name} was trained elsewhere ({describe_environment(part.get('environment'))})"
        for name, part in parts
        if part.get("environment") != here
    ]
    return list(dict.fromkeys(marks))


def describe_environment(recorded: Mapping[str, Any] | None) -> str:
    """An environment in words: device and name first, everything else as ``key value``."""
    if not recorded:
        return "unknown (the records do not say)"
    first = [" ".join(str(recorded[key]) for key in ("device", "name") if recorded.get(key))]
    rest = [f"{key} {value}" for key, value in sorted(recorded.items()) if key not in ("device", "name")]
    return ", ".join([*filter(None, first), *rest])


def versions() -> dict[str, str]:
    """Return the versions of Python, regft and the packages that compute."""
    packages = {name: number for name in REPORTED_PACKAGES if (number := version(name)) is not None}
    return {"python": platform.python_version(), "regft": __version__, **packages}
