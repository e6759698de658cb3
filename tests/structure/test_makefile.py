"""The environment that make works in may lie anywhere."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("given", "programs"),
    [(".elsewhere", f"{ROOT}/.elsewhere/bin/"), ("/nowhere/environment", "/nowhere/environment/bin/")],
)
def test_the_environment_may_lie_outside_the_project(given: str, programs: str) -> None:
    shown = subprocess.run(
        ["make", "--dry-run", f"VENV={given}", "install"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert f"test -x {programs}python ||" in shown
    assert f"{programs}python -m pip" in shown
