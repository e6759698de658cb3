"""Where runs come from, as MLflow shows it: the pipeline, and the commit of the project."""

from __future__ import annotations

import subprocess
from pathlib import Path


def source_tags(root: Path) -> dict[str, str]:
    """Tags of a run that the mirror sees for the first time, which it does as soon as its cells are finished.

    Without git, or before the first commit, no commit is named. The exact code is in the run's key.
    """
    tags = {"mlflow.source.name": "dvc.yaml", "mlflow.source.type": "LOCAL"}
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    if commit:
        tags["mlflow.source.git.commit"] = commit
        tags["mlflow.source.git.branch"] = _git(root, "rev-parse", "--abbrev-ref", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".")
        tags["mlflow.source.git.dirty"] = str(bool(changed)).lower()
    return tags


def _git(root: Path, *arguments: str) -> str:
    """What git prints; nothing where it cannot say."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
