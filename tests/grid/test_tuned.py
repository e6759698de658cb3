"""Tuned methods: the stage search runs the trials, fine-tuning what they have chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regft_core.disk.reading import read_json
from regft_core.grid import jobs
from regft_core.grid.jobs import Planner
from regft_core.runs.opened_project import open_project
from regft_core.runs.train import CHOSEN_ON_DEV
from tests.grid.conftest import plan, reproduce
from tests.runs.conftest import SIZE, TASK, change, job


def tuned_runs(root: Path, method: str) -> list[dict[str, Any]]:
    return list(read_json(root / "work" / "finetune" / method / TASK / SIZE / "manifest.json")["runs"])


def test_what_changes_the_key_of_a_tuned_cell(tuned: Callable[..., Path]) -> None:
    root = tuned("vanilla")
    first = plan(root)
    change(root, execution={"workers": 2})
    assert plan(root) == first
    for changes in (
        {"tuning": {"values": {"training.learning_rate": [1e-6, 2e-3]}}},
        {"tuning": {"split": 0.5}},
        {"tuning": {"selection": "dev_as_published"}},
        {"training": {"epochs": 3}},
    ):
        before = (root / "params.yaml").read_text()
        change(root, **changes)
        found = plan(root)
        assert all(found[stage] != first[stage] for stage in first), changes
        (root / "params.yaml").write_text(before)
    assert plan(root) == first


def test_where_seeds_choose_together_each_waits_for_the_trials_of_all(
    tuned: Callable[..., Path], trained: list[tuple[str, int]]
) -> None:
    root = tuned("vanilla", selection="dev_as_published")
    plan(root)
    planner = Planner(open_project(root))
    for seed in (0, 1):
        waits = planner.add(job(root, "vanilla", seed), "search")
        names = {planner.jobs[index].job.name for index in waits}
        assert names == {f"vanilla {TASK} {SIZE} seed {s} trial {t}" for s in (0, 1) for t in (1, 2)}
    assert reproduce(root) == {}
    assert trained == [("finetune", 0), ("finetune", 0), ("finetune", 1), ("finetune", 1)]  # a chosen trial is the run
    found = tuned_runs(root, "vanilla")
    assert len({run["tuned"]["chosen"] for run in found}) == 1
    evaluated = read_json(root / "work/evaluate/vanilla" / TASK / SIZE / "result.json")["runs"]
    for run, scored in zip(found, evaluated, strict=True):
        chosen = run["tuned"]["trials"][run["tuned"]["chosen"]]
        assert (run["key"], CHOSEN_ON_DEV in run["degraded"]) == (chosen["key"], True)
        assert scored["sets"]["dev"]["metrics"]["accuracy"] == pytest.approx(chosen["score"])


def test_trials_share_a_phase_that_their_values_do_not_touch(
    tuned: Callable[..., Path], trained: list[tuple[str, int]]
) -> None:
    own = {"weight_mixup": {"phases.finetune.training.learning_rate": [1e-6, 3e-3]}}
    root = tuned("weight_mixup", values={}, methods=own)
    assert reproduce(root) == {}
    # Two members each of the search that the trials share and of that on all rows; two trials and the run.
    assert Counter(trained) == {(phase, seed): n for phase, n in (("search", 4), ("finetune", 3)) for seed in (0, 1)}


def test_a_trial_that_raises_stops_its_own_cell_only(
    tuned: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, trained: list[tuple[str, int]]
) -> None:
    root = tuned("vanilla", "hype_n")
    original = jobs.try_values

    def failing(job: Any, *project: Any, **options: Any) -> Any:
        if (job.method, job.seed, job.trial) == ("vanilla", 1, 0):
            raise OSError("the disk is gone")
        return original(job, *project, **options)

    with monkeypatch.context() as patched:
        patched.setattr(jobs, "try_values", failing)
        failures = reproduce(root)
    assert list(failures) == [f"vanilla/{TASK}/{SIZE}"]
    assert (root / "work/evaluate/hype_n" / TASK / SIZE).is_dir()
    trained.clear()
    assert reproduce(root) == {}
    assert trained == [("finetune", 1), ("finetune", 0), ("finetune", 1)]  # the trial, then the runs
