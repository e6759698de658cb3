"""Budgets: how many lines and files each room may have. They are lowered as rooms shrink.

A commit that raises a budget says in its message why the room needs more.
``python -m tests.structure.test_size`` prints the table as the tree is now.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: A file of code above this many lines holds more than one thing.
LONGEST = 350
#: Room -> lines and files of Python at most. ``regft_core`` stands for the files beside its folders.
BUDGETS: dict[str, tuple[int, int]] = {
    "benchmarks": (2472, 14),
    "regft_core": (931, 10),
    "regft_core/contract": (466, 2),
    "regft_core/data": (3811, 23),
    "regft_core/evaluate": (2522, 22),
    "regft_core/fit": (1142, 7),
    "regft_core/grid": (3588, 26),
    "regft_core/hooks": (1578, 9),
    "regft_core/disk": (661, 7),
    "regft_core/kinds": (1034, 9),
    "regft_core/methods": (6361, 42),
    "regft_core/metrics": (554, 15),
    "regft_core/models": (4576, 43),
    "regft_core/report": (5695, 35),
    "regft_core/runs": (6278, 34),
    "regft_core/schema": (1370, 14),
    "regft_core/serve": (2169, 15),
    "regft_core/settings": (5344, 44),
    "regft_core/statistics": (1780, 11),
    "regft_core/tracking": (891, 6),
    "regft_core/training": (3172, 26),
    "stages": (1780, 28),
    "tests": (1500, 16),
    "tests/adversary": (601, 2),
    "tests/benchmarks": (208, 2),
    "tests/data": (2330, 16),
    "tests/documents": (265, 3),
    "tests/evaluate": (1664, 15),
    "tests/execution": (1073, 10),
    "tests/fit": (476, 4),
    "tests/gpu": (248, 2),
    "tests/grid": (1124, 8),
    "tests/hooks": (279, 3),
    "tests/disk": (232, 2),
    "tests/kinds": (747, 6),
    "tests/methods": (8524, 38),
    "tests/models": (2652, 21),
    "tests/official": (1230, 7),
    "tests/papers": (890, 6),
    "tests/presets": (325, 5),
    "tests/promises": (2323, 16),
    "tests/report": (3303, 24),
    "tests/runs": (4157, 31),
    "tests/serve": (270, 4),
    "tests/settings": (3350, 33),
    "tests/stages": (2039, 19),
    "tests/statistics": (1569, 13),
    "tests/store": (933, 6),
    "tests/structure": (787, 9),
    "tests/tracking": (635, 4),
    "tests/training": (1830, 12),
    "tests/wheel": (102, 4),
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
        print(f'    "{room}": ({count}, {files}),')
