"""Small helpers for the tests of the run store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a Python program in a fresh process that can import the project."""

    def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run
