"""Tasks whose development set is drawn: what the schema takes, and what the grid must agree with."""

from __future__ import annotations

from typing import Any

import pytest

from regft_core.schema.tasks import FoldsConfig
from regft_core.settings.read_project import load_project
from tests.settings.conftest import PARAMS, TASK, Build, Failures

OPINIONS = "pipelines/tasks/opinions.yaml"


def task(dev: str, columns: str = "{text: sentence}") -> dict[str, str | None]:
    return {OPINIONS: TASK.replace("dev: opinions/dev.csv", f"dev: {dev}").replace("{text: sentence}", columns)}


def grid(seeds: str) -> dict[str, str | None]:
    lines = [f"  seeds: {seeds}" if line.strip().startswith("seeds:") else line for line in PARAMS.splitlines()]
    return {"params.yaml": "\n".join(lines) + "\n"}


def test_folds_and_shares_are_read(build: Build, registry: dict[str, Any]) -> None:
    found = load_project(build(task("{folds: 5, repeats: 2}") | grid("[0, 1, 2, 3, 4]")), registry)
    assert found.tasks["opinions"].splits.dev == FoldsConfig(folds=5, repeats=2)
    assert found.tasks["opinions"].splits.judging == "opinions/train.csv"
    assert not [text for text in found.warnings if "repeats" in text]
    found = load_project(build(task("0.25")), registry)
    assert found.tasks["opinions"].splits.dev == 0.25


def test_every_seed_has_a_fold(failures: Failures) -> None:
    (problem,) = failures(task("{folds: 3, repeats: 2}") | grid("[0, 5, 6]"))
    assert (problem.code, problem.key) == ("no-such-fold", "grid.seeds[2]")
    assert "0 to 5" in problem.message
    assert "repeats: 3" in problem.hint


def test_incomplete_repeats_are_said(build: Build, registry: dict[str, Any]) -> None:
    found = load_project(build(task("{folds: 5, repeats: 2}") | grid("[0, 1, 2, 3, 4, 5]")), registry)
    (warning,) = [text for text in found.warnings if "whole repeats" in text]
    assert warning.startswith("params.yaml:")
    assert "6 seeds of 5 folds" in warning
    assert warning.endswith("add seeds 6, 7, 8, 9")


@pytest.mark.parametrize(("rule", "key"), [("selection: dev_as_published", "selection"), ("per: cell", "per")])
def test_no_value_is_chosen_by_rows_that_judge_other_folds(failures: Failures, rule: str, key: str) -> None:
    tuning = f"tuning:\n  {rule}\n  values: {{training.learning_rate: [1.0e-5, 2.0e-5]}}\n"
    params = {"params.yaml": (grid("[0, 1]")["params.yaml"] or "") + tuning}
    (problem,) = failures(task("{folds: 2}") | params)
    assert (problem.code, problem.key) == ("chosen-by-judges", f"tuning.{key}")
