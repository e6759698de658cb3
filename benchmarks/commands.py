"""What benchmarks share that run a whole project: CPU seconds of commands, and the engine with other jobs."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def run(root: Path, *command: str) -> tuple[float, str]:
    """CPU seconds (user and system, children included) and output of a command; it must succeed."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    before = _children()
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return _children() - before, done.stdout + done.stderr


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def stages_by(script: Path, root: Path) -> None:
    """Let DVC run ``script --stage NAME`` in the place of the stages that compute."""
    path = root / "dvc.yaml"
    computing = r"python -m regft_core\.stages\.(search|finetune|evaluate) --keep-going"
    text = re.sub(computing, rf"python {script} --stage \1", path.read_text())
    path.write_text(text)


def stage_with(name: Any, job: Callable[..., str]) -> None:
    """Compute a stage whose jobs are ``job``."""
    from regft_core.grid import compute, pool

    pool.run_job = job
    failures = compute.compute(Path(), name, say=lambda line: None)
    if failures:
        raise SystemExit(f"{len(failures)} cells failed: {next(iter(failures.items()))}")
