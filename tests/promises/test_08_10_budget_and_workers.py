"""8: over its budget a store loses weights, never results. 9: every executor gives the same bits, and one failure stops
no other run. 10: so do any number of workers and any order of seeds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from regft_core.api import Project
from regft_core.errors import RunFailed
from tests.extras import needs
from tests.promises.kit import bits, change, done, regft, run_cells, weights, write_method
from tests.small_project import build

#: Executor -> the package that it needs, its settings.
EXECUTORS: dict[str, tuple[str, dict[str, Any]]] = {
    "processes": ("", {"workers": 2}),
    "ray": ("ray", {"workers": 2, "ray": {"cpus": 1.0}}),
    "slurm": ("submitit", {"workers": 2, "slurm": {"cluster": "local", "minutes": 5, "memory_gb": 1}}),
}
METHODS = ["vanilla", "weight_mixup"]


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid that was run one job after the other."""
    root = build(tmp_path_factory.mktemp("serial") / "project", methods=METHODS)
    run_cells(root, *((method, "reviews") for method in METHODS))
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
    run_cells(root, *((method, "reviews") for method in METHODS))
    assert sorted((root / ".regft").rglob("result.json")) == before, "nothing was trained again"
    assert Project.open(root).results().to_csv() == scores


@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_executor_gives_the_bits_of_serial(serial: Path, tmp_path: Path, executor: str) -> None:
    package, settings = EXECUTORS[executor]
    if package:
        needs(package, executor)
    root = build(tmp_path / "project", methods=METHODS, execution={"executor": executor, **settings})
    write_method(root, "broken", regularisers={"hype": {"layers": [7]}})
    for name in ("subsample", "search", "finetune", "evaluate"):
        done(root, name, *([] if name == "subsample" else ["--keep-going"]))
    assert bits(root) == bits(serial)
    process = regft(root, "report")
    assert process.returncode == RunFailed.exit_code
    assert "[cells-failed]" in process.stderr
    assert "broken/reviews/16" in process.stderr
    results = json.loads((root / "reports" / "results.json").read_text())
    assert set(METHODS) <= set(results["reviews-16"])
    assert list(results["failed"]) == ["broken/reviews/16"]


def test_the_order_of_seeds_and_of_methods_changes_no_bit(serial: Path, tmp_path: Path) -> None:
    root = build(tmp_path / "project", methods=METHODS[::-1], grid={"seeds": [1, 0]})
    run_cells(root, *((method, "reviews") for method in METHODS[::-1]))
    assert bits(root) == bits(serial)
