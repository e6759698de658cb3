"""Cells of the grid, and what reaches DVC's commands: names and sizes, which a shell must never have to interpret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from regft_core.schema import NAME_LENGTH
from regft_core.schema.params import Params
from regft_core.settings.document import load_yaml
from regft_core.settings.layers import all_sizes
from regft_core.settings.project import cells
from tests.settings.conftest import Load


def test_cells_are_every_combination_in_the_order_of_the_file(load: Load, files: Any) -> None:
    project = load({})
    assert [cell.directory for cell in cells(project)] == [
        "vanilla/opinions/100",
        "vanilla/opinions/full",
        "noise/opinions/100",
        "noise/opinions/full",
        "mask/opinions/100",
        "mask/opinions/full",
    ]
    # A task has its own sizes where its settings say so.
    params = files["params.yaml"] + "task_settings: {opinions: {sizes: [50, full]}}\n"
    project = load({"params.yaml": params})
    assert [cell.directory for cell in cells(project)][:2] == ["vanilla/opinions/50", "vanilla/opinions/full"]
    assert all_sizes(project.params) == [50, "full"]


# -------------------------------------------------------------------------------- what reaches a shell


PARAMS = "params.yaml"
NOT_NAMES: list[Any] = ["16; touch X;", "a b", "a\n", "a\nb", "a\t", "$(id)", "`id`", "a|b", "a&b", "a>b", "${x}"]
NOT_NAMES += ["../a", "a/b", "a.b", ".", "-a", "_a", "A", "\u00e9", "\u0663", "\uff11", "a\u200b", "a\u0000", "", " "]
NOT_NAMES += ["a" * (NAME_LENGTH + 1), 1, 1.0, True, None, ["a"], {"a": 1}]
NOT_SIZES: list[Any] = ["16; touch X;", "16", "'16'", "full ", "full\n", "Full", "\u0661\u0666", "16\n", 16.0, 1.5e3]
NOT_SIZES += [True, False, 1, 0, -16, 10**10, 10**300, None, [16], {"full": 1}]
NOT_SEEDS: list[Any] = ["0", "0; id", "٠", 0.0, True, False, -1, 2**31, None, [0]]


def lists(data: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all lists in ``data``."""
    if isinstance(data, list):
        return [path]
    return (
        [found for key, value in data.items() for found in lists(value, (*path, key))] if isinstance(data, dict) else []
    )


def test_no_list_of_params_takes_what_a_shell_could_interpret(build: Any, registry: dict[str, Any]) -> None:
    root = build({})
    whole = load_yaml(root / PARAMS, root).data
    places = [path for path in lists(whole) if path[0] != "training"]
    assert len(places) >= 4
    for path in places:
        wrong = {"sizes": NOT_SIZES, "seeds": NOT_SEEDS}.get(path[-1], NOT_NAMES)
        for value in wrong:
            data: Any = json.loads(json.dumps(whole))
            owner = data
            for part in path[:-1]:
                owner = owner[part]
            owner[path[-1]] = [value]
            with pytest.raises(ValidationError):
                Params.model_validate(data)
