"""Budgets: how many lines and files each room may have. They are lowered as rooms shrink.

A commit that raises a budget says in its message why the room needs more.
``python -m tests.structure.test_size`` prints the table as the tree is now, lines rounded up to fifty: a docstring
that grows by a line is no decision.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: A file of code above this many lines holds more than one thing.
LONGEST = 350
#: Room -> lines and files of Python at most. ``regft_core`` stands for the files beside its folders.
BUDGETS: dict[str, tuple[int, int]] = {
    "benchmarks": (2150, 11),
    "regft_core": (1150, 10),
    "regft_core/contract": (1050, 5),
    "regft_core/data": (2700, 14),
    "regft_core/disk": (450, 6),
    "regft_core/evaluate": (1600, 14),
    "regft_core/fit": (1700, 8),
    "regft_core/grid": (2400, 16),
    "regft_core/hooks": (1400, 7),
    "regft_core/kinds": (950, 10),
    "regft_core/methods": (6250, 45),
    "regft_core/metrics": (350, 2),
    "regft_core/models": (3550, 21),
    "regft_core/report": (4200, 23),
    "regft_core/runs": (3850, 22),
    "regft_core/schema": (1400, 7),
    "regft_core/serve": (1800, 10),
    "regft_core/settings": (3450, 18),
    "regft_core/statistics": (1350, 8),
    "regft_core/tracking": (900, 6),
    "regft_core/training": (3100, 21),
    "stages": (1550, 9),
    "tests": (1550, 12),
    "tests/benchmarks": (250, 2),
    "tests/data": (1650, 12),
    "tests/disk": (200, 1),
    "tests/documents": (400, 2),
    "tests/evaluate": (1150, 9),
    "tests/execution": (850, 7),
    "tests/fit": (810, 3),
    "tests/gpu": (250, 2),
    "tests/grid": (750, 3),
    "tests/hooks": (300, 1),
    "tests/kinds": (500, 4),
    "tests/methods": (7150, 33),
    "tests/models": (2150, 12),
    "tests/official": (1250, 7),
    "tests/papers": (800, 5),
    "tests/presets": (250, 1),
    "tests/promises": (2700, 15),
    "tests/report": (2550, 12),
    "tests/runs": (2950, 12),
    "tests/serve": (300, 2),
    "tests/settings": (2300, 10),
    "tests/stages": (1750, 9),
    "tests/statistics": (1200, 7),
    "tests/store": (450, 3),
    "tests/structure": (550, 6),
    "tests/tracking": (750, 4),
    "tests/training": (1300, 7),
    "tests/wheel": (50, 2),
}


def python_files(folder: Path) -> list[Path]:
    """Files of code, also in sub-folders; what is shipped with the package and byte code are none."""
    return [path for path in folder.rglob("*.py") if not {"shipped", "__pycache__"} & {*path.relative_to(folder).parts}]


def sizes() -> dict[str, tuple[int, int]]:
    """Room -> its lines and files."""
    rooms: dict[str, list[Path]] = {}
    for top in ("regft_core", "stages", "tests", "benchmarks"):
        for path in python_files(ROOT / top):
            parts = path.relative_to(ROOT).parts
            if parts[:2] == ("regft_core", "stages"):  # a link to the folder beside it
                continue
            inner = len(parts) > 2 and top in ("regft_core", "tests")
            rooms.setdefault("/".join(parts[:2]) if inner else top, []).append(path)
    return {room: (sum(map(lines, files)), len(files)) for room, files in sorted(rooms.items())}


def lines(path: Path) -> int:
    """Number of lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def test_every_room_keeps_its_budget() -> None:
    measured = sizes()
    over = {
        room: f"{size[0]} lines in {size[1]} files; its budget: {BUDGETS.get(room, (0, 0))}"
        for room, size in measured.items()
        if size[0] > BUDGETS.get(room, (0, 0))[0] or size[1] > BUDGETS.get(room, (0, 0))[1]
    }
    assert not over
    assert set(BUDGETS) <= set(measured), "a room that is gone has no budget"


@pytest.mark.parametrize("top", ["regft_core", "stages"])
def test_no_file_is_longer_than_it_should_be(top: str) -> None:
    long = {path.relative_to(ROOT).as_posix() for path in python_files(ROOT / top) if lines(path) > LONGEST}
    assert not long


if __name__ == "__main__":
    for room, (count, files) in sizes().items():
        print(f'    "{room}": ({-(-count // 50) * 50}, {files}),')
