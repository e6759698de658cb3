"""What a process of the test executor ``elsewhere`` runs: a module that it can import by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from regft_core.catalogue import EXECUTORS

FOLDER = Path(__file__).parent / "elsewhere"


def on_host(function: Callable[..., Any], job: Any, *, device: str) -> Any:
    """``function`` of the job, where the executor's name is known (params.yaml has it)."""
    with EXECUTORS.also(FOLDER):
        return function(job, device=device)
