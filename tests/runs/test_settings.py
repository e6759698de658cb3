"""Settings of single tasks and methods reach the runs they are for, and no others."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from regft_core.disk.paths import RACY_NS
from regft_core.runs.context import Context
from regft_core.runs.job import Job
from regft_core.runs.project import open_project
from tests.runs.conftest import TASK, change, refresh, train

OTHER = "cue_regression"


@pytest.fixture
def two_tasks(project: Path) -> Path:
    change(project, grid={"tasks": [TASK, OTHER]})
    refresh(project)
    return project


def keys(root: Path) -> dict[tuple[str, str], str]:
    project = open_project(root)
    return {
        (method, task): Context(Job(str(root), method, task, "24", 0), project=project).keys.of("finetune")
        for method in project.methods
        for task in project.params.grid.tasks
    }


def changed(root: Path, **settings: Any) -> set[tuple[str, str]]:
    before = keys(root)
    change(root, **settings)
    return {cell for cell, key in keys(root).items() if before[cell] != key}


def test_a_tasks_training_changes_that_tasks_runs_only(two_tasks: Path) -> None:
    found = changed(two_tasks, task_settings={OTHER: {"training": {"learning_rate": 5e-4}}})
    assert found == {(method, OTHER) for method in ("vanilla", "hype_n", "weight_mixup")}


def test_a_method_on_a_task_is_one_cell(two_tasks: Path) -> None:
    layer = {"hype_n": {"regularisers": {"hype": {"scale": 1e-3}}}}
    assert changed(two_tasks, task_settings={TASK: {"methods": layer}}) == {("hype_n", TASK)}


def test_the_run_has_the_steps_of_its_task(two_tasks: Path) -> None:
    change(two_tasks, task_settings={TASK: {"training": {"max_steps": 3, "warmup_steps": 2}}})
    record = train(two_tasks, "vanilla")
    assert record["steps"] == 3
    rates = [row[4] for row in record["curve"]]
    assert rates == pytest.approx([0.0, 5e-4, 1e-3])  # two steps of warm-up
    assert record["cost"]["declared_ratio"] == 1.0  # of the task's own plain run


def test_an_edit_that_keeps_size_and_time_is_seen(make_project: Any) -> None:
    root = make_project(methods=["vanilla"])
    file = root / "params.yaml"
    long_ago = file.stat().st_mtime_ns - 10**12
    os.utime(file, ns=(long_ago, long_ago))
    time.sleep(2 * RACY_NS / 1e9)  # what is younger than that is read anew anyway
    assert open_project(root) is open_project(root)
    before = file.read_text()
    seeds = open_project(root).params.grid.seeds
    file.write_text(before.replace("seeds:\n  - 0", "seeds:\n  - 7").replace("seeds: [0", "seeds: [7"))
    os.utime(file, ns=(long_ago, long_ago))
    assert len(file.read_text()) == len(before)
    assert open_project(root).params.grid.seeds != seeds
