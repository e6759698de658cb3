"""No phase of any method sees a row that judges its seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core.data.examples import text_key
from regft_core.grid.data import prepare
from regft_core.runs.context import Context
from regft_core.runs.opened_project import Job, open_project
from regft_core.runs.trials import trials_that_choose
from regft_core.settings.project import Project
from tests.promises.kit import FOLDED, folded, write_method
from tests.small_project import REPOSITORY, TASK

#: The same file under another name, with all of its rows.
TWIN = {**FOLDED, "splits": {"train": "rows.csv", "dev": "dev.csv"}, "columns": TASK["columns"]}
#: They want several labels of a row, a prompt, or rows of another task.
OTHERS = ("label_thresholds", "prompt_fine_tuning", "intermediate")


def check_unseen(job: Job, project: Project) -> int:
    """Check every phase of one run; returns how many it has."""
    context = Context(job, project=project)
    judged = {row.idx for row in context.dev_rows}
    texts = {text_key(row) for row in context.dev_rows}
    assert judged
    for phase in context.phases:
        rows = phase.rows.examples
        assert rows, phase.name
        assert not texts & {text_key(row) for row in rows}, (job.method, phase.name)
        if phase.declared.data.task in (None, "reviews"):
            assert not judged & {row.idx for row in rows}
    return len(context.method.phases)


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every shipped method of several phases, and two whose first phase names its task."""
    shipped = {path.stem: path.read_text() for path in (REPOSITORY / "pipelines" / "methods").glob("*.yaml")}
    several = sorted(name for name, text in shipped.items() if "phases:" in text and not name.startswith(OTHERS))
    root = folded(tmp_path_factory.mktemp("every") / "project", ["vanilla", *several], tasks={"twin": TWIN})
    for name, task in (("own_rows", "reviews"), ("twin_rows", "twin")):
        write_method(root, name, phases={"first": {"data": {"task": task}}, "finetune": {"start": "first"}})
    prepare(open_project(root))
    return root


def test_no_phase_of_any_method_sees_the_rows_that_judge_its_seed(every: Path) -> None:
    project = open_project(every)
    methods = project.params.methods
    assert {"post_training", "setfit", "greedy_soup", "weight_mixup", "lp_ft"} <= set(methods)
    jobs = [Job(str(every), method, "reviews", "full", seed) for method in methods for seed in (0, 4)]
    assert max(check_unseen(job, project) for job in jobs) > 1
    # Of another task on the same file no judged row is left.
    context = Context(Job(str(every), "twin_rows", "reviews", "full", 1), project=project)
    assert len(context.phases[0].rows.examples) == 48 - len(context.dev_rows)


def test_as_many_steps_as_on_all_rows_are_those_of_the_own_fold(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"grid": {"sizes": [12], "seeds": [0, 1, 2, 3, 4]}, "training": {"batch_size": 1}}
    five = {**FOLDED, "splits": {"train": "rows.csv", "dev": {"folds": 5}}}
    root = folded(tmp_path / "project", ["vanilla"], five, **changes)
    write_method(root, "long", phases={"finetune": {"data": {"steps": "full"}}})
    prepare(open_project(root))
    project = open_project(root).snapshot()
    contexts = [Context(Job(str(root), "long", "reviews", "12", seed), project=project) for seed in range(5)]
    steps = [context.phase("finetune").training.max_steps for context in contexts]
    assert steps == [context.task["counts"]["train"] for context in contexts]
    assert len(set(steps)) == 2


def test_trials_are_judged_by_rows_of_their_own_seed(tmp_path: Path) -> None:
    tuning = {"selection": "split", "split": 0.75, "values": {"training.learning_rate": [1e-5, 1e-3]}}
    root = folded(tmp_path / "project", ["vanilla"], tuning=tuning)
    prepare(open_project(root))
    project = open_project(root)
    for trial in trials_that_choose(project, Job(str(root), "vanilla", "reviews", "full", 2)):
        assert trial.seed == 2
        check_unseen(trial, project)
        context = Context(trial, project=project)
        assert not {row.idx for row in context.held_out} & {row.idx for row in context.dev_rows}
