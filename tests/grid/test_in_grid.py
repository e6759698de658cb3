"""What the plan counts once: a training that several cells name, and what the run store has."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from regft_core.grid.in_grid import grid_rows
from regft_core.grid.rates import Rates
from regft_core.grid.time import spend
from regft_core.runs.project import open_project
from tests.grid.conftest import change, make_project, plan, project, reproduce, template, tree

__all__ = ["make_project", "project", "template"]

SOUPS = ["uniform_soup", "greedy_soup", "greedy_soup_released"]


def test_a_training_that_several_cells_name_is_counted_where_it_comes_first(project: Path) -> None:
    change(project, methods=["wise_ft", "vanilla", *SOUPS], grid={"seeds": [0, 1]})
    shutil.rmtree(project / "work", ignore_errors=True)
    before = {row.cell.method: row for row in grid_rows(open_project(project))}
    assert not any(row.shared for row in before.values())  # no rows, hence no keys
    plan(project)
    opened = open_project(project)
    rows = grid_rows(opened)
    found = {row.cell.method: row for row in rows}
    assert {name: row.cost for name, row in found.items()} == {name: row.cost for name, row in before.items()}
    assert [found[name].shared for name in ("wise_ft", "vanilla", "greedy_soup")] == [0, 1, 0]
    assert found["vanilla"].in_grid == 0
    assert found["greedy_soup_released"].shared == 1  # its members are those of the greedy soup
    time = spend(opened, rows, lambda cell: Rates(train=0.01, judge=3.0, load=1.0))
    alone = time.run_seconds(found["vanilla"].cell)
    assert alone is not None
    assert alone > 4
    assert time.cells[found["vanilla"].cell] == pytest.approx(2 * 3.0)  # it is judged
    assert time.cells[found["wise_ft"].cell] == pytest.approx(2 * alone)


def test_what_the_store_has_is_not_counted_and_what_is_counted_is_what_trains(project: Path) -> None:
    change(project, methods=["vanilla"], grid={"seeds": [0, 1]})
    assert reproduce(project) == {}
    change(project, methods=["vanilla", "wise_ft"], grid={"seeds": [0, 1, 2]})
    plan(project)
    found = {row.cell.method: row for row in grid_rows(open_project(project))}
    assert (found["vanilla"].to_train, found["vanilla"].shared) == (1, 0)
    assert (found["wise_ft"].to_train, found["wise_ft"].shared) == (3, 1)
    assert reproduce(project) == {}
    assert not any(row.to_train for row in grid_rows(open_project(project)))
    assert any("wise_ft" in name for name in tree(project))
