"""The search stage of a method without earlier phases; most methods have none, so this imports little."""

from __future__ import annotations

from pathlib import Path

from regft_core.io import atomic_directory, write_json


def write_nothing_to_search(root: Path, method: str, task: str) -> None:
    """Write ``work/search/<method>/<task>``: a folder that says that there was nothing to do."""
    with atomic_directory(root / "work" / "search" / method / task) as folder:
        write_json(folder / "phases.json", [])
