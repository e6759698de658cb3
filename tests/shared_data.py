"""Real public data for tests: copied into a temporary project, never into the repository.

``REGFT_TEST_DATA`` names the folder; ``../shared/data`` beside the repository is the default.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


def shared_data() -> Path | None:
    """The folder of local public data, None where there is none."""
    folder = Path(os.environ.get("REGFT_TEST_DATA") or ROOT.parent / "shared" / "data")
    return folder if folder.is_dir() else None


def require_shared_data() -> Path:
    """``shared_data``, or skip the test."""
    folder = shared_data()
    if folder is None:
        pytest.skip("no local public data (REGFT_TEST_DATA or ../shared/data)")
    return folder


def materialise(task_name: str, project_root: Path, *, with_ood: bool = True) -> list[str]:
    """Write a shipped task and its OOD tasks for ``project_root``, reading the local public data.

    Returns the OOD sets without a local copy. Skips the test where there are no local data.
    """
    return real_tasks().materialise(task_name, project_root, require_shared_data(), with_ood=with_ood)


def real_tasks() -> ModuleType:
    """``benchmarks/real_tasks.py``, which is no package."""
    if "regft_real_tasks" not in sys.modules:
        spec = importlib.util.spec_from_file_location("regft_real_tasks", ROOT / "benchmarks" / "real_tasks.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["regft_real_tasks"] = module
        spec.loader.exec_module(module)
    return sys.modules["regft_real_tasks"]
