from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regft_core.settings.grid import Cell, cells, parse_size
from regft_core.settings.layers import all_sizes
from regft_core.settings.read_project import load_project


def test_cells_are_every_combination_in_the_order_of_the_file(build: Any, registry: dict[str, Any]) -> None:
    project = load_project(build({}), registry)
    assert [cell.name for cell in cells(project)] == [
        "vanilla-opinions-100",
        "vanilla-opinions-full",
        "noise-opinions-100",
        "noise-opinions-full",
        "mask-opinions-100",
        "mask-opinions-full",
    ]
    assert cells(project)[0].directory == "vanilla/opinions/100"


def test_a_task_has_its_own_sizes_where_its_settings_say_so(build: Any, registry: dict[str, Any], files: Any) -> None:
    params = files["params.yaml"] + "task_settings: {opinions: {sizes: [50, full]}}\n"
    project = load_project(build({"params.yaml": params}), registry)
    assert [cell.directory for cell in cells(project)][:3] == [
        "vanilla/opinions/50",
        "vanilla/opinions/full",
        "noise/opinions/50",
    ]
    assert all_sizes(project.params) == [50, "full"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a;rm", "a\n"])
def test_names_that_could_be_paths_or_shell_words_are_refused(name: str) -> None:
    for method, task in ((name, "task"), ("method", name)):
        with pytest.raises(ValueError, match="not a name of a method or task"):
            Cell(method, task, 10)


@given(st.integers(min_value=2, max_value=10**9))
def test_sizes_read_back(size: int) -> None:
    assert parse_size(str(size)) == parse_size(size) == size
