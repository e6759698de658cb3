"""5: killed anywhere, a run continues with the same bits. 6: two grids on one store train each run once. 7: a damaged
file is named, its run trained again, with the same bits. 8: over its budget a store loses weights, never results. 9:
every executor gives the same bits, and one failure stops no other run. 10: so do any number of workers and any order
of seeds."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regft_core.api import Project
from regft_core.errors import RunFailed
from regft_core.runs import training_run
from tests.promises.kit import (
    bits,
    change,
    done,
    exit_code,
    forked,
    regft,
    run_cells,
    weights,
    with_own_method,
    write_method,
)
from tests.skips import needs
from tests.small_project import build, python

SOUP = {"times": 2, "merge": "greedy", "vary": ["order", "head"]}
#: Members in a search, members that a merge scores, and the best of several epochs on rows set aside.
METHODS: dict[str, dict[str, Any]] = {
    "weight_mixup": {},
    "soup": {"phases": {"finetune": {"data": {"split": 0.7}, "repeat": SOUP}}},
    "best": {"training": {"epochs": 3, "checkpoint": "best_on_split", "checkpoint_share": 0.3}},
}
#: (method, part of its renamings that are done before the kill).
KILLS = [*(("weight_mixup", (2 * part + 1) / 12) for part in range(6)), ("best", 0.7)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = build(
        tmp_path_factory.mktemp("killed") / "project",
        methods=["weight_mixup"],
        grid={"seeds": [0]},
        training={"epochs": 2},
        execution={"checkpoint_seconds": 0},
        report={"reference": "weight_mixup"},
    )
    for name, content in METHODS.items():
        if content:
            write_method(root, name, **content)
    return root


@pytest.fixture(scope="module")
def whole(project: Path) -> dict[str, tuple[dict[str, str], int]]:
    """Method -> what an uninterrupted run of it leaves, and how often that renames a file."""
    found = {}
    for method in METHODS:
        copy = Path(shutil.copytree(project, project.with_name(method)))
        count = copy / "renames"
        assert exit_code(lambda: renames(lambda n: count.write_text(str(n)), lambda: train(copy, method))) == 0  # noqa: B023
        found[method] = bits(copy), int(count.read_text())
    return found


def train(root: Path, method: str) -> None:
    run_cells(root, (method, "reviews"))


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


def killed(root: Path, method: str, when: Callable[[int], bool]) -> None:
    """Train in a child that dies before the first renaming for which ``when`` holds."""

    def die(number: int) -> None:
        if when(number):
            os.kill(os.getpid(), signal.SIGKILL)

    assert exit_code(lambda: renames(die, lambda: train(root, method))) == -signal.SIGKILL


@pytest.mark.parametrize(("method", "part"), KILLS)
def test_a_killed_run_continues_with_the_same_bits(
    project: Path, whole: dict[str, tuple[dict[str, str], int]], tmp_path: Path, method: str, part: float
) -> None:
    """Every write ends with a renaming, so these are moments between and within writes."""
    root = Path(shutil.copytree(project, tmp_path / "project"))
    expected, count = whole[method]
    killed(root, method, lambda number: number == int(part * count))
    assert bits(root) != expected
    assert exit_code(lambda: train(root, method)) == 0
    assert bits(root) == expected


def test_a_member_that_was_finished_before_the_kill_is_not_trained_again(
    project: Path, whole: dict[str, tuple[dict[str, str], int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, trained, original = Path(shutil.copytree(project, tmp_path / "project")), [], training_run.train
    killed(
        root, "soup", lambda _: any(path.parent.name != "commit" for path in weights(root))
    )  # in that they are written
    monkeypatch.setattr(training_run, "train", lambda *given, **more: trained.append(0) or original(*given, **more))
    train(root, "soup")
    assert len(trained) == 1  # the second of two
    assert bits(root) == whole["soup"][0]


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


def test_a_damaged_file_is_named_and_its_run_trained_again_with_the_same_bits(tmp_path: Path) -> None:
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
    again = python(root, "-c", 'from regft_core.api import Project; Project.open(".").run("vanilla", "reviews")')
    assert again.returncode == 0, again.stderr
    assert "damaged" in again.stderr
    assert path.parent.name in again.stderr
    found = bits(root)
    assert {name: found[name] for name in expected} == expected


# ------------------------------------------------------------------------------------------------------------ 8 to 10


#: Executor -> the package that it needs, its settings.
EXECUTORS: dict[str, tuple[str, dict[str, Any]]] = {
    "processes": ("", {"workers": 2}),
    "ray": ("ray", {"workers": 2, "ray": {"cpus": 1.0}}),
    "slurm": ("submitit", {"workers": 2, "slurm": {"cluster": "local", "minutes": 5, "memory_gb": 1}}),
}
BOTH = ["vanilla", "weight_mixup"]


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid that was run one job after the other."""
    root = build(tmp_path_factory.mktemp("serial") / "project", methods=BOTH)
    run_cells(root, *((method, "reviews") for method in BOTH))
    assert len(bits(root)) > 8
    return root


def test_over_its_budget_a_store_loses_weights_and_no_results(serial: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(serial, tmp_path / "project"))
    scores = Project.open(root).results().to_csv()
    change(root, store={"budget_gb": 1e-6})
    assert weights(root)
    done(root, "store", "prune")
    assert weights(root) == []
    before = sorted((root / ".regft").rglob("result.json"))
    run_cells(root, *((method, "reviews") for method in BOTH))
    assert sorted((root / ".regft").rglob("result.json")) == before, "nothing was trained again"
    assert Project.open(root).results().to_csv() == scores


@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_executor_gives_the_bits_of_serial(serial: Path, tmp_path: Path, executor: str) -> None:
    package, settings = EXECUTORS[executor]
    if package:
        needs(package, executor)
    root = build(tmp_path / "project", methods=BOTH, execution={"executor": executor, **settings})
    write_method(root, "broken", regularisers={"hype": {"layers": [7]}})
    for name in ("subsample", "search", "finetune", "evaluate"):
        done(root, name, *([] if name == "subsample" else ["--keep-going"]))
    assert bits(root) == bits(serial)
    process = regft(root, "report")
    assert process.returncode == RunFailed.exit_code
    assert "[cells-failed]" in process.stderr
    assert "broken/reviews/16" in process.stderr
    results = json.loads((root / "reports" / "results.json").read_text())
    assert set(BOTH) <= set(results["reviews-16"])
    assert list(results["failed"]) == ["broken/reviews/16"]


def test_the_order_of_seeds_and_of_methods_changes_no_bit(serial: Path, tmp_path: Path) -> None:
    root = build(tmp_path / "project", methods=BOTH[::-1], grid={"seeds": [1, 0]})
    run_cells(root, *((method, "reviews") for method in BOTH[::-1]))
    assert bits(root) == bits(serial)
