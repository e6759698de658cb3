"""No phase of any method sees a row that judges its seed, and a folded task goes through all stages."""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from regft_core.data.examples import text_key
from regft_core.runs.context import Context
from regft_core.runs.opened_project import Job, open_project
from regft_core.runs.trials import trials_that_choose
from tests.small_project import TASK, build

WORDS = ["film", "story", "actor", "plot", "music", "place", "food", "service", "night", "house", "dog", "cat", "red"]
FOLDED: dict[str, Any] = {
    **TASK,
    "splits": {"train": "rows.csv", "dev": {"folds": 3, "repeats": 2}},
    "columns": {"text": "review", "label": "verdict", "group": "shop"},
    "ood": {},
}
#: The same file under another name, with all of its rows.
TWIN = {**FOLDED, "splits": {"train": "rows.csv", "dev": "dev.csv"}, "columns": TASK["columns"]}


def make(root: Path, methods: list[str], dev: Any = None, **changes: Any) -> Path:
    folded = {**FOLDED, "splits": {**FOLDED["splits"], **({"dev": dev} if dev else {})}}
    sections = {
        "grid": {"sizes": ["full"], "seeds": [0, 1, 2, 3, 4, 5]},
        "report": {"reference": methods[0]},
        **changes,
    }
    root = build(root, tasks={"reviews": folded, "twin": TWIN}, methods=methods, **sections)
    with (root / "data" / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "verdict", "shop"])
        for row in range(48):
            text = " ".join(
                ["good" if row % 2 else "bad", *Random(row).choices(WORDS, k=6), "night" * (row % 2)]
            ).strip()
            writer.writerow([f"{text} {row}", "good" if row % 2 else "bad", f"s{row // 4}"])
    return root


def check_unseen(root: Path, method: str, seed: int, job: Job | None = None) -> int:
    """Check every phase of one run; returns how many it has."""
    context = Context(job or Job(str(root), method, "reviews", "full", seed), project=open_project(root))
    judged = {row.idx for row in context.dev_rows}
    texts = {text_key(row) for row in context.dev_rows}
    assert judged
    for phase in context.phases:
        rows = phase.rows.examples
        assert rows, phase.name
        assert not texts & {text_key(row) for row in rows}, (method, phase.name)
        if phase.declared.data.task in (None, "reviews"):
            assert not judged & {row.idx for row in rows}
    return len(context.method.phases)


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = sorted(
        path.stem
        for path in (Path(__file__).resolve().parents[2] / "pipelines" / "methods").glob("*.yaml")
        if "intermediate" not in path.stem
    )
    root = make(tmp_path_factory.mktemp("every") / "project", ["vanilla", *(n for n in names if n != "vanilla")][:1])
    for name, task in (("own_rows", "reviews"), ("twin_rows", "twin")):
        phases = {
            "first": {"data": {"task": task}, "regularisers": {}, "training": {}},
            "finetune": {"start": "first", "regularisers": {}, "training": {}},
        }
        content = {"description": "a test", "phases": phases}
        (root / "pipelines" / "methods" / f"{name}.yaml").write_text(yaml.dump(content, sort_keys=False))
    params = yaml.safe_load((root / "params.yaml").read_text())
    # They want several labels of a row, or a prompt.
    others = {"label_thresholds", "prompt_fine_tuning", "prompt_fine_tuning_demonstrations"}
    names = [n for n in names if n not in others]
    several = [n for n in names if (root / "pipelines" / "methods" / f"{n}.yaml").read_text().count("phases:")]
    params["methods"] = ["vanilla", *several, "own_rows", "twin_rows"]
    (root / "params.yaml").write_text(yaml.dump(params))
    plan_rows(root)
    return root


def plan_rows(root: Path) -> None:
    from regft_core.grid.data import prepare

    prepare(open_project(root))


def test_no_phase_of_any_method_sees_the_rows_that_judge_its_seed(every: Path) -> None:
    methods = open_project(every).params.methods
    assert {"post_training", "setfit", "greedy_soup", "weight_mixup", "lp_ft"} <= set(methods)
    phases = [check_unseen(every, method, seed) for method in methods for seed in (0, 4)]
    assert max(phases) > 1


def test_another_task_on_the_same_file_gives_no_judged_row(every: Path) -> None:
    context = Context(Job(str(every), "twin_rows", "reviews", "full", 1), project=open_project(every))
    assert len(context.phases[0].rows.examples) == 48 - len(context.dev_rows)


def test_as_many_steps_as_on_all_rows_are_those_of_the_own_fold(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"grid": {"sizes": [12], "seeds": [0, 1, 2, 3, 4]}, "training": {"batch_size": 1}}
    root = make(tmp_path / "project", ["vanilla"], dev={"folds": 5}, **changes)
    content = {"description": "a test", "phases": {"finetune": {"data": {"steps": "full"}, "regularisers": {}}}}
    (root / "pipelines" / "methods" / "long.yaml").write_text(yaml.dump(content))
    params = yaml.safe_load((root / "params.yaml").read_text())
    (root / "params.yaml").write_text(yaml.dump({**params, "methods": ["vanilla", "long"]}))
    plan_rows(root)
    project = open_project(root).snapshot()
    contexts = [Context(Job(str(root), "long", "reviews", "12", seed), project=project) for seed in range(5)]
    steps = [context.phase("finetune").training.max_steps for context in contexts]
    assert steps == [context.task["counts"]["train"] for context in contexts]
    assert len(set(steps)) == 2


def test_trials_are_judged_by_rows_of_their_own_seed(tmp_path: Path) -> None:
    tuning = {"selection": "split", "split": 0.75, "values": {"training.learning_rate": [1e-5, 1e-3]}}
    root = make(tmp_path / "project", ["vanilla"], tuning=tuning)
    params = yaml.safe_load((root / "params.yaml").read_text())
    (root / "params.yaml").write_text(yaml.dump({**params, "tuning": tuning}))
    plan_rows(root)
    project = open_project(root)
    for trial in trials_that_choose(project, Job(str(root), "vanilla", "reviews", "full", 2)):
        assert trial.seed == 2
        check_unseen(root, "vanilla", 2, trial)
        context = Context(trial, project=project)
        assert not {row.idx for row in context.held_out} & {row.idx for row in context.dev_rows}
