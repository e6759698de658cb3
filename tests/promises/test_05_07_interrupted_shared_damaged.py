"""5: killed anywhere, a run continues with the same bits. 6: two grids on one store train each run once.
7: a damaged file is named, its run trained again, with the same bits."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.promises.kit import bits, exit_code, forked, python, run_cells, weights, with_own_method
from tests.small_project import build

CELLS = [("weight_mixup", "reviews")]
POINTS = 6


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], int]:
    """A project; what an uninterrupted run leaves in it; how often that renames a file."""
    root = build(
        tmp_path_factory.mktemp("killed") / "project",
        methods=["weight_mixup"],
        grid={"seeds": [0]},
        training={"epochs": 2},
        execution={"checkpoint_seconds": 0},
        report={"reference": "weight_mixup"},
    )
    copy = Path(shutil.copytree(root, root.with_name("whole")))
    count = copy / "renames"
    assert exit_code(lambda: renames(lambda n: count.write_text(str(n)), lambda: run_cells(copy, *CELLS))) == 0
    return root, bits(copy), int(count.read_text())


def renames(before: Callable[[int], object], function: Callable[[], None]) -> None:
    """Call a function; ``before`` hears the number of each renaming of a file or folder, just before it happens.

    Those of the progress board, which go by the clock, are not counted.
    """
    number = 0
    for name in ("rename", "replace"):
        original = getattr(os, name)

        def counted(*arguments: object, _original: Callable[..., object] = original, **options: object) -> object:
            nonlocal number
            if "regft-progress" not in str(arguments[1]):
                number += 1
                before(number)
            return _original(*arguments, **options)

        setattr(os, name, counted)
    function()


@pytest.mark.parametrize("part", range(POINTS))
def test_a_killed_run_continues_with_the_same_bits(
    whole: tuple[Path, dict[str, str], int], tmp_path: Path, part: int
) -> None:
    """Every write ends with a renaming, so these are six moments between and within writes."""
    template, expected, count = whole
    root = Path(shutil.copytree(template, tmp_path / "project"))
    at = (2 * part + 1) * count // (2 * POINTS)

    def die(number: int) -> None:
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)

    assert exit_code(lambda: renames(die, lambda: run_cells(root, *CELLS))) == -signal.SIGKILL
    assert bits(root) != expected
    assert exit_code(lambda: run_cells(root, *CELLS)) == 0
    assert bits(root) == expected


def test_two_grids_on_one_store_train_each_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = build(tmp_path / "one", methods=["vanilla"], grid={"seeds": [0, 1, 2]}, store={"path": str(tmp_path / "s")})
    trained = with_own_method(root)
    other = Path(shutil.copytree(root, tmp_path / "other"))
    monkeypatch.setenv("REGFT_TEST_TRAINED", str(trained))
    both = [forked(lambda root=root: run_cells(root, ("stretched", "reviews"))) for root in (root, other)]  # type: ignore[misc]
    for process in both:
        process.join(300)
    assert [process.exitcode for process in both] == [0, 0]
    assert len(trained.read_text().split()) == 3
    predictions = [bits(one) for one in (root, other)]
    assert predictions[0] == predictions[1]
    assert len(predictions[0]) == 6  # of dev and shop


def test_a_damaged_file_is_named_and_its_run_trained_again_with_the_same_bits(
    tmp_path: Path,
) -> None:
    root = build(tmp_path / "project", methods=["vanilla"], grid={"seeds": [0]})
    run_cells(root, ("vanilla", "reviews"))
    expected = bits(root)
    (path,) = weights(root)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    shutil.rmtree(root / "work" / "evaluate")
    for run in list((root / ".regft").rglob("predictions")):  # evaluations, which would answer without the weights
        shutil.rmtree(run.parent)
    again = python(root, 'from regft_core.api import Project\nProject.open(".").run("vanilla", "reviews")')
    assert again.returncode == 0, again.stderr
    assert "damaged" in again.stderr
    assert path.parent.name in again.stderr
    found = bits(root)
    assert {name: found[name] for name in expected} == expected
