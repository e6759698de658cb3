"""Where a run was computed, as far as its bits may depend on it.

The rule, in one place: the environment is *recorded* with every result and is no part of its key, so
that a store filled on one machine serves another. Results of different environments are equal only up
to rounding, so the report refuses to compare them unless ``report.mixed_environments: mark`` says
that it may (and marks them); a killed run continues only in the environment it was started in.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from typing import Any

from regft_core.config.schema.execution import ExecutionConfig
from regft_core.runs.stored import StoredRun


def environment(device: str, execution: ExecutionConfig) -> dict[str, Any]:
    """Device kind and name, CPU threads, and whether kernels are deterministic, of this process."""
    import torch

    kind = device.split(":")[0]
    if kind == "cuda":
        found = {
            "device": kind,
            "name": torch.cuda.get_device_name(device),
            "threads": execution.threads,
            "deterministic": execution.deterministic,
        }
        # Named where they are on, so that records from before they existed stay what they were.
        return found | {name: True for name in ("tf32", "cuda_graphs") if getattr(execution, name)}
    # Kernels differ by instruction set (AVX2, AVX-512, NEON) and by the number of threads.
    name = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}" if kind == "cpu" else kind
    return {"device": kind, "name": name, "threads": execution.threads, "deterministic": True}


def other_environments(here: Mapping[str, Any] | None, parts: Iterable[StoredRun]) -> list[str]:
    """Marks for a result that is made of ``parts`` (members, earlier phases) from another environment."""
    marks = [
        f"{part.result['phase']} was trained elsewhere ({describe_environment(part.result.get('environment'))})"
        for part in parts
        if part.result.get("environment") != here
    ]
    return list(dict.fromkeys(marks))


def describe_environment(recorded: Mapping[str, Any] | None) -> str:
    """An environment in words."""
    return ", ".join(f"{name} {value}" for name, value in sorted((recorded or {}).items())) or "unknown"
