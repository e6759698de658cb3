"""Which edit makes which cells stale: those whose keys change in the plan."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from regft_core.grid.cell_keys import cached_seeds, cell_keys
from regft_core.runs.context import Context
from regft_core.runs.opened_project import open_project
from regft_core.settings.grid import Cell
from tests.grid.conftest import plan
from tests.runs.conftest import SIZE, TASK, change, edit, edit_method, job, train, write_method

SENTENCES = "pipelines/tasks/cue_sentence.yaml"
METHODS = ("vanilla", "hype_n", "weight_mixup")


def stale(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """``stage method task`` of every cell whose keys differ."""
    found = set()
    for stage in before:
        for name in before[stage].keys() | after[stage].keys():
            if before[stage].get(name) != after[stage].get(name):
                found.add(f"{stage} {' '.join(name.split('/')[:2])}")
    return found


def of(*stages: str, methods: tuple[str, ...] = METHODS, tasks: tuple[str, ...] = (TASK,)) -> set[str]:
    every = {f"{stage} {method} {task}" for stage in stages for method in methods for task in tasks}
    return {name for name in every if not name.startswith("search") or "weight_mixup" in name}


@pytest.fixture
def planned(project: Path) -> tuple[Path, dict[str, Any]]:
    return project, plan(project)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))


def other_encoder(root: Path) -> None:
    """Give the task another encoder than the section ``model`` names."""
    shutil.copytree(root / "models/tiny", root / "models/other")
    flip(root / "models/other/model.safetensors")
    change(root, task_settings={TASK: {"model": {"name": "models/other"}}})
    assert [model.name for model in open_project(root).encoders()] == ["models/other"]


def other_primary(root: Path) -> None:
    """Let another metric rank the methods on the task."""
    edit(root / SENTENCES, "metrics:\n- accuracy", "metrics:\n- accuracy\n- matthews")
    change(root, task_settings={TASK: {"primary": "matthews"}})
    assert open_project(root).tasks[TASK].primary == "matthews"


TRAINED = ("search", "finetune", "evaluate")
EDITS = {
    "a comment": (lambda root: edit_method(root, "hype_n", "description", "# words\ndescription"), set()),
    "a description": (lambda root: edit_method(root, "hype_n", "HyPe with", "Another text,"), set()),
    "where a value is from": (
        lambda root: edit_method(root, "weight_mixup", "paper: appendix D.1", "paper: the appendix"),
        set(),
    ),
    "a number written in another way": (lambda root: edit_method(root, "hype_n", "1.0e-5", "0.00001"), set()),
    "how runs are spread": (lambda root: change(root, execution={"executor": "processes", "workers": 2}), set()),
    "how runs are computed": (lambda root: change(root, execution={"checkpoint_seconds": 5, "threads": 2}), set()),
    "how the report compares": (lambda root: change(root, report={"confidence": 0.9}), set()),
    "a value of one method": (
        lambda root: edit_method(root, "hype_n", "1.0e-5", "1.0e-4"),
        of("finetune", "evaluate", methods=("hype_n",)),
    ),
    "a value of an early phase": (
        lambda root: edit_method(root, "weight_mixup", "times: 2", "times: 1"),
        of(*TRAINED, methods=("weight_mixup",)),
    ),
    "a value of the last phase": (
        lambda root: edit_method(root, "weight_mixup", "finetune:\n", "finetune:\n    training: {epochs: 3}\n"),
        of("finetune", "evaluate", methods=("weight_mixup",)),
    ),
    "a shared value": (lambda root: change(root, training={"learning_rate": 2e-3}), of(*TRAINED)),
    "the encoder's weights": (lambda root: flip(root / "models/tiny/model.safetensors"), of(*TRAINED)),
    "the tokenizer": (lambda root: edit(root / "models/tiny/tokenizer.json", '"very"', '"ver"'), of(*TRAINED)),
    "how much of a text is read": (lambda root: change(root, model={"max_length": 16}), of(*TRAINED)),
    "how a text becomes one vector": (lambda root: change(root, model={"pooling": "mean"}), of(*TRAINED)),
    **{
        f"the shared {name}": (lambda root, name=name, to=to: change(root, training={name: to}), of(*TRAINED))
        for name, to in (("warmup_ratio", 0.2), ("bucket_batches", 1), ("dropout", {"attention": 0.2}))
    },
    "a seed": (lambda root: change(root, grid={"seeds": [0, 1, 2]}), of(*TRAINED)),
    "a size": (lambda root: change(root, grid={"sizes": [24, 16]}), of(*TRAINED)),
    "a method": (
        lambda root: change(root, methods=[*METHODS, "pats"]),
        of("finetune", "evaluate", methods=("pats",)),
    ),
    "a method less": (
        lambda root: change(root, methods=["vanilla", "hype_n"]),
        of(*TRAINED, methods=("weight_mixup",)),
    ),
    "a method that nobody lists": (lambda root: edit_method(root, "hype_u", "1.0e-5", "1.0e-4"), set()),
    "an evaluation": (lambda root: change(root, evaluations=["calibration"]), of("evaluate")),
    "the task's metrics": (
        lambda root: edit(root / SENTENCES, "metrics:\n- accuracy", "metrics:\n- matthews\n- accuracy"),
        of("evaluate"),
    ),
    "the metric that ranks": (other_primary, of("evaluate")),
    "the encoder of a task": (other_encoder, of(*TRAINED)),
    "the task's training rows": (
        lambda root: edit(root / SENTENCES, "agreement: 0.9", "agreement: 0.8"),
        of(*TRAINED),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EDITS)
def test_which_edit_makes_what_stale(planned: tuple[Path, dict[str, Any]], case: str) -> None:
    root, before = planned
    happens, expected = EDITS[case]
    happens(root)
    assert stale(before, plan(root)) == expected


def test_keys_of_a_cell_are_those_of_its_runs(planned: tuple[Path, dict[str, Any]]) -> None:
    root, found = planned
    for method in METHODS:
        for seed in (0, 1):
            key = Context(job(root, method, seed)).key("finetune")
            assert found["finetune"][f"{method}/{TASK}/{SIZE}"]["runs"][str(seed)] == key


def test_a_declared_cost_is_written_down_anew(project: Path) -> None:
    """It is in no key of a run, and in what a stage writes of its cells."""
    write_method(project, "half", phases={"head": {"regularisers": {"linear_head": {}}}, "finetune": {}})
    loaded = open_project(project)
    plan(project)
    keys = cell_keys(loaded, Cell("half", TASK, 24))
    change(project, training={"batch_size": 4})
    plan(project)
    assert cell_keys(open_project(project), Cell("half", TASK, 24))["finetune"]["with"] != keys["finetune"]["with"]


def test_the_plan_asks_the_run_store_and_work(project: Path) -> None:
    plan(project)
    train(project, "vanilla", 1)
    train(project, "weight_mixup", 0)
    loaded = open_project(project)
    found = {method: cached_seeds(loaded, Cell(method, TASK, 24)) for method in METHODS}
    assert found == {"vanilla": {1}, "hype_n": set(), "weight_mixup": {0}}
    change(project, grid={"seeds": [0, 1, 5]})  # a seed without rows hides no other
    assert cached_seeds(open_project(project), Cell("vanilla", TASK, 24)) == {1}
    change(project, training={"learning_rate": 2e-3})
    assert cached_seeds(open_project(project), Cell("vanilla", TASK, 24)) == set()
