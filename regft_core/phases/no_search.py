"""The search stage of a method without earlier phases; most methods have none, so this imports little."""

from __future__ import annotations

from pathlib import Path

from regft_core.io import atomic_directory, read_json, write_json


def skip_search(root: Path, method: str, task: str) -> bool:
    """Whether the facts know method and task, and that the method has nothing to search; writes the folder then."""
    facts = root / "work" / "facts"
    fact = facts / f"search-{method}.json"
    if not ((facts / f"task-{task}.json").is_file() and fact.is_file() and read_json(fact) == {"phases": []}):
        return False
    write_nothing_to_search(root, method, task)
    return True


def write_nothing_to_search(root: Path, method: str, task: str) -> None:
    """Write ``work/search/<method>/<task>``: a folder that says that there was nothing to do."""
    with atomic_directory(root / "work" / "search" / method / task) as folder:
        fill_nothing_to_search(folder)


def fill_nothing_to_search(folder: Path) -> None:
    """What is in the folder of such a method."""
    write_json(folder / "phases.json", [])
