from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regft_core.hooks.declare import Declares
from regft_core.hooks.description import Description
from regft_core.schema.method import Cost, optimiser_steps
from regft_core.schema.training import TrainingConfig
from regft_core.settings.cost import plan_rows, table
from regft_core.settings.read_project import load_project
from tests.settings.conftest import PARAMS, Load, Plain

ROOT = Path(__file__).resolve().parents[2]


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("training", "rows", "steps"),
    [
        ({"epochs": 2, "batch_size": 16}, 100, 14),
        ({"epochs": 2, "batch_size": 16, "accumulation": 2}, 100, 8),
        ({"epochs": 2, "max_steps": 5}, 100, 5),
        ({"epochs": 2, "max_steps": 5}, None, 5),
        ({"epochs": 2}, None, None),
    ],
)
def test_optimiser_steps(training: dict[str, Any], rows: int | None, steps: int | None) -> None:
    assert optimiser_steps(TrainingConfig(**training), rows) == steps


def test_a_fresh_project_is_all_to_train(load: Load) -> None:
    rows = plan_rows(load({}))
    assert (rows[0].cell.directory, rows[0].cached, rows[0].to_train) == ("vanilla/opinions/100", 0, 6)
    assert [row.steps for row in rows] == [14, None, 14, None, 14, None]
    # The fake noise declares two forwards and two backwards per step; mask has a phase of two epochs before.
    assert [row.cost for row in rows] == [14, None, 28, None, 28, None]
    text = table(rows, lambda cell: None)
    assert "36 of 36 runs to train, about 420 plain steps and 18 runs of unknown length" in text


def test_a_public_set_counts_with_its_published_rows_until_it_is_prepared(build: Any, registry: dict[str, Any]) -> None:
    """Presets of whole public sets used to be planned with no cost at all before their data were fetched."""
    shipped = (ROOT / "pipelines/tasks/rte.yaml").read_text(encoding="utf-8").partition("ood:")[0]
    root = build({"pipelines/tasks/rte.yaml": shipped, "params.yaml": PARAMS.replace("[opinions]", "[rte]")})
    full = [row for row in plan_rows(load_project(root, registry)) if row.cell.size == "full"]
    assert [(row.rows, row.steps, row.published) for row in full[:1]] == [(2490, 2 * 156, True)]
    assert "published numbers of rows" in table(full, lambda cell: None)
    write(root / "work/datasets/rte/task.json", {"counts": {"train": 33}})
    (prepared, *_) = [row for row in plan_rows(load_project(root, registry)) if row.cell.size == "full"]
    assert (prepared.rows, prepared.published) == (33, False)


def test_cached_runs_are_not_to_train(build: Any, registry: dict[str, Any]) -> None:
    root = build({})
    write(root / "work/datasets/opinions/task.json", {"counts": {"train": 33}})
    project = load_project(root, registry)
    rows = {row.cell.directory: row for row in plan_rows(project, lambda cell: {0, 1, 77})}
    noise = rows["noise/opinions/100"]
    assert (noise.seeds, noise.cached, noise.to_train) == (6, 2, 4)
    assert rows["vanilla/opinions/full"].steps == 6
    line = next(one for one in table([noise], lambda cell: 600.0).splitlines() if one.startswith("noise"))
    assert line.split()[-2:] == ["10", "min"]


class Costly(Plain):
    """A step forwards twice and goes half a pass back; a fit is an epoch and a half of passes."""

    name = "mask"

    @classmethod
    def declare(cls, options: Any) -> Declares:
        return Declares(description=Description(cost=Cost(2, 0.5), fit_cost=Cost(2.5, 1)))


SPLIT = "data: {split: 0.5}, repeat: {times: 3}, regularisers: {mask: {}}"


@pytest.mark.parametrize(
    ("training", "search", "cost"),
    [
        # Two epochs of 7 batches. Three members of 4 epochs on 50 rows in 4 batches, (2 + 2 * 0.5) / 3 each, and a fit.
        ("epochs: 2", f"{SPLIT}, training: {{epochs: 4}}", 14 + 3 * (4 + 1.5) * 4),
        ("epochs: 2", f"{SPLIT}, training: {{epochs: 0}}", 14 + 3 * 1.5 * 4),
        ("epochs: 2\n  accumulation: 2", f"{SPLIT}, training: {{epochs: 0}}", 2 * (8 + 3 * 1.5 * 2)),
        ("epochs: 2\n  max_steps: 5", f"{SPLIT}, training: {{epochs: 0}}", 5 + 3 * 1.5 * 4),
        # Four epochs of 13 steps of two batches of 4 each, beside batches of 16.
        ("epochs: 2", "training: {epochs: 4, batch_size: 4, accumulation: 2}", 14 + 4 * 13 * 2 * 4 / 16),
    ],
)
def test_a_cost_is_that_of_all_phases_members_and_fits(
    load: Load, registry: dict[str, Any], training: str, search: str, cost: float
) -> None:
    registry["mask"] = Costly
    method = f"phases:\n  search: {{{search}}}\n  finetune: {{}}\n"
    params = PARAMS.replace("epochs: 2", training)
    project = load({"params.yaml": params, "pipelines/methods/mask.yaml": method})
    rows = {row.cell.directory: row for row in plan_rows(project)}
    assert rows["mask/opinions/100"].cost == pytest.approx(cost)
    # Of a set that is not prepared nobody knows how many rows there are, also where steps are counted.
    assert rows["mask/opinions/full"].cost is None
