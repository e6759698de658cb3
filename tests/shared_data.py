"""Real public data for tests: copied into a temporary project, never into the repository.

``REGFT_TEST_DATA`` names the folder; ``../shared/data`` beside the repository is the default.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def materialise(task_name: str, project_root: Path) -> None:
    """Write a shipped task and its OOD tasks for ``project_root``; skip the test where there are no local data."""
    folder = Path(os.environ.get("REGFT_TEST_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no local public data (REGFT_TEST_DATA or ../shared/data)")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        import real_tasks
    real_tasks.materialise(task_name, project_root, folder)
