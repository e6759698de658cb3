"""Trials are runs of the store; the choice is deterministic, and nobody looks at the dev set unless it says so."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.api import Project
from regft_core.data.examples import read_jsonl, write_jsonl
from regft_core.disk.reading import read_json
from regft_core.grid.cell_keys import cached_seeds
from regft_core.runs.context import Context, Job
from regft_core.runs.store import NotStored
from regft_core.runs.train import choice_of, choose, score_identity, trials_that_choose, try_values
from regft_core.schema.params import TuningConfig
from regft_core.serve.export import export
from regft_core.settings.project import Cell
from regft_core.settings.read_project import open_project
from tests.runs.conftest import SIZE, TASK, Trained, change, job, stored, write_method

TUNING: dict[str, Any] = {"split": 0.75, "values": {"training.learning_rate": [1e-6, 3e-3]}}


@pytest.fixture
def tuned(project: Path) -> Path:
    change(project, methods=["vanilla", "weight_mixup"], grid={"seeds": [0]}, tuning=TUNING)
    return project


def manifest(root: Path, stage: str, method: str) -> dict[str, Any]:
    return dict(read_json(root / "work" / stage / method / TASK / SIZE / "manifest.json"))


def test_trials_then_the_run_on_all_rows(tuned: Path, trained: Trained) -> None:
    Project.open(tuned).run("vanilla", TASK)
    assert trained == [("finetune", 0)] * 3  # two trials, one run
    (run,) = manifest(tuned, "finetune", "vanilla")["runs"]
    found = run["tuned"]
    assert [trial["values"]["training.learning_rate"] for trial in found["trials"]] == [1e-6, 3e-3]
    assert found["split"] == 0.75
    final = stored(tuned, run["key"])
    assert final.identity["training"]["learning_rate"] == found["values"]["training.learning_rate"]
    for trial in found["trials"]:
        identity = stored(tuned, trial["key"]).identity
        assert identity["training"]["learning_rate"] == trial["values"]["training.learning_rate"]
        assert identity["rows"] != final.identity["rows"]
    # All over again: nothing is trained, and the same is chosen.
    before = len(trained)
    Project.open(tuned).run("vanilla", TASK)
    assert len(trained) == before
    assert manifest(tuned, "finetune", "vanilla")["runs"][0]["tuned"] == found
    assert cached_seeds(open_project(tuned), Cell("vanilla", TASK, 24)) == {0}
    # The model that is exported is the chosen one: it reproduces the run's logits or raises.
    assert export(Job(str(tuned), "vanilla", TASK, SIZE, 0)).is_dir()
    # What else is in the grid is nothing to a cell that is there; other trials are another search.
    change(tuned, tuning={**TUNING, "values": {"training.learning_rate": [1e-6, 2e-3]}})
    assert cached_seeds(open_project(tuned), Cell("vanilla", TASK, 24)) == set()


def test_a_trial_sees_no_row_that_judges_it(tuned: Path) -> None:
    values = {"training.learning_rate": 3e-3}
    context = Context(Job(str(tuned), "weight_mixup", TASK, SIZE, 0, values=values, trial=0))
    judging = {row.idx for row in context.held_out}
    assert len(judging) == 6
    for phase in context.method.phases:
        seen = {row.idx for row in context.phase(phase.name).rows.examples}
        assert len(seen) == 18
        assert not seen & judging
    every = {"one": {"data": {"task": TASK, "size": "full"}}, "finetune": {"data": {"size": "full"}}}
    write_method(tuned, "other", phases=every)
    context = Context(Job(str(tuned), "other", TASK, SIZE, 0, values=values, trial=0))
    for phase in context.method.phases:
        assert not {row.idx for row in context.phase(phase.name).rows.examples} & judging
        assert context.phase(phase.name).training.learning_rate == 3e-3  # a phase that names its rows has them, too
    plain = Context(Job(str(tuned), "weight_mixup", TASK, SIZE, 0, values=values))
    assert plain.held_out == []
    assert len(plain.phase("finetune").rows.examples) == 24


def test_every_fold_of_the_training_rows_judges_once(project: Path) -> None:
    change(project, grid={"seeds": [0]}, tuning={"folds": 3, "values": {"training.learning_rate": [1e-6, 3e-3]}})
    whole = {row.idx for row in read_jsonl(Context(Job(str(project), "vanilla", TASK, SIZE, 0)).rows_file)}
    trials = trials_that_choose(open_project(project), job(project, "vanilla"))
    assert [(one.trial, one.fold) for one in trials] == [(trial, fold) for trial in (0, 1) for fold in (0, 1, 2)]
    judged: list[str] = []
    for one in trials[:3]:
        context = Context(one)
        judging = {row.idx for row in context.held_out}
        seen = {row.idx for row in context.phase("finetune").rows.examples}
        assert not seen & judging
        assert seen | judging == whole
        assert {row.label for row in context.held_out} == {0, 1}  # stratified
        judged += judging
    assert sorted(judged) == sorted(whole)


def test_the_mean_over_folds_chooses_and_shares_of_one_training_cost_it_once(project: Path, trained: Trained) -> None:
    share, rate = "phases.finetune.regularisers.wise_ft.alpha", "phases.train.training.max_steps"
    trials = [{share: alpha, rate: 2} for alpha in (0.0, 0.5, 1.0)]
    change(project, methods=["lp_ft_share"], grid={"seeds": [0]}, report={"reference": "lp_ft_share"})
    change(project, tuning={"folds": 2, "methods": {"lp_ft_share": trials}})
    Project.open(project).run("lp_ft_share", TASK)
    (run,) = manifest(project, "finetune", "lp_ft_share")["runs"]
    assert [phase for phase, _ in trained].count("train") == 3  # once for each fold, once on all rows
    jobs = trials_that_choose(open_project(project), job(project, "lp_ft_share"))
    for trial in run["tuned"]["trials"]:
        scores = [try_values(one, open_project(project))["score"] for one in jobs if one.trial == trial["trial"]]
        assert trial["score"] == sum(scores) / 2
    # Share 0 is the head's phase itself, share 1 what was trained.
    for number, phase in ((0, "head"), (2, "train")):
        context = Context(jobs[2 * number], project=open_project(project))
        keys = (context.key(name) for name in ("finetune", phase))
        mixed, whole = (context.store.get(key).load_tensors("weights") for key in keys)
        assert all(torch.equal(mixed[name], whole[name]) for name in mixed), phase
    best = max(trial["score"] for trial in run["tuned"]["trials"])
    assert run["tuned"]["chosen"] == next(one["trial"] for one in run["tuned"]["trials"] if one["score"] == best)


def test_the_dev_set_is_not_read_to_choose(tuned: Path) -> None:
    trial = Job(str(tuned), "vanilla", TASK, SIZE, 0, values={"training.learning_rate": 3e-3}, trial=0)
    record = try_values(trial, open_project(tuned))
    dev = tuned / "work" / "datasets" / TASK / "dev.jsonl"
    rows = read_jsonl(dev)
    write_jsonl(dev, rows[:5])
    again = try_values(trial, open_project(tuned))
    assert (again["key"], again["score"]) == (record["key"], record["score"])


def test_a_score_is_known_by_the_rows_that_judged(tuned: Path) -> None:
    """Other rows, or other labels of the same ones, would find the score of the first under the same key."""
    context = Context(Job(str(tuned), "vanilla", TASK, SIZE, 0, values={"training.learning_rate": 3e-3}, trial=0))
    rows = context.held_out
    flipped = [replace(rows[0], label=1 - rows[0].label), *rows[1:]]
    found = []
    for some in (rows, rows[1:], flipped, rows):
        vars(context)["held_out"] = some
        found.append(str(score_identity(context)))
    assert len(set(found)) == 3
    assert found[0] == found[3]


def test_a_choice_from_the_store_is_that_of_the_stage(tuned: Path, trained: Trained) -> None:
    with pytest.raises(NotStored):
        choice_of(replace(job(tuned, "vanilla"), stored_only=True), open_project(tuned))
    Project.open(tuned).run("vanilla", TASK)
    found = manifest(tuned, "finetune", "vanilla")["runs"][0]["tuned"]
    trained.clear()
    assert choice_of(replace(job(tuned, "vanilla"), stored_only=True), open_project(tuned)) == found
    # A trial that was damaged since is run again, with the same bits; only the time may be another.
    store = Context(job(tuned, "vanilla")).store
    shutil.rmtree(store.directory(found["trials"][0]["key"]))
    again = choice_of(job(tuned, "vanilla"), open_project(tuned))
    assert trained == [("finetune", 0)]
    assert [trial["score"] for trial in again["trials"]] == [trial["score"] for trial in found["trials"]]
    assert again["values"] == found["values"]
    change(tuned, tuning={**TUNING, "methods": {"vanilla": {}}})
    assert choice_of(job(tuned, "vanilla"), open_project(tuned)) is None


def records(scores: dict[tuple[int, int], float | None]) -> list[dict[str, Any]]:
    shared = {"size": "24", "status": "ok", "error": None, "seconds": 1.0, "steps": 1, "key": "k"}
    return [
        {**shared, "seed": seed, "trial": trial, "values": {"training.epochs": trial}, "score": score}
        for (seed, trial), score in scores.items()
    ]


@pytest.mark.parametrize(
    ("scores", "per", "metric", "chosen"),
    [
        ({(0, 0): 0.5, (0, 1): 0.7, (1, 0): 0.9, (1, 1): 0.6}, "seed", "accuracy", [1, 0]),
        ({(0, 0): 0.5, (0, 1): 0.7, (1, 0): 0.9, (1, 1): 0.6}, "cell", "accuracy", [0, 0]),
        ({(0, 0): 0.5, (0, 1): 0.7, (1, 0): 0.9, (1, 1): 0.6}, "seed", "mse", [0, 1]),
        ({(0, 0): 0.5, (0, 1): 0.5}, "seed", "accuracy", [0]),  # of equal ones the first
        ({(0, 0): None, (0, 1): 0.1, (1, 0): 0.9, (1, 1): 0.6}, "cell", "accuracy", [1, 1]),  # a failed seed
        ({(0, 0): None, (0, 1): None}, "seed", "accuracy", [0]),
    ],
)
def test_the_choice(scores: dict[tuple[int, int], float | None], per: Any, metric: str, chosen: list[int]) -> None:
    selection: Any = "split" if per == "seed" else "dev_as_published"
    tuning = TuningConfig(selection=selection, values={"training.epochs": [1, 2]})
    for seed, expected in enumerate(chosen):
        own = {of: score for of, score in scores.items() if per == "cell" or of[0] == seed}
        assert choose(records(own), tuning, metric, seed)["chosen"] == expected
