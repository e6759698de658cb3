"""The engine: the runs that the plan asks for, once, in order; what is there is left alone; trials of tuned methods."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.disk.reading import read_json
from regft_core.errors import ConfigError, DataError, InputChanged
from regft_core.grid import jobs
from regft_core.grid.cell_keys import read_failures
from regft_core.grid.compute import compute, compute_only
from regft_core.grid.jobs import Planner, prepared_devices, run_job
from regft_core.models.devices import refuse_slow_bf16
from regft_core.runs.context import STAGES, Context
from regft_core.runs.evaluate import evaluate
from regft_core.runs.run import look_up, run
from regft_core.runs.store import RunStore
from regft_core.runs.train import CHOSEN_ON_DEV, finetune, search
from regft_core.settings import read_project
from regft_core.settings.read_project import open_project
from tests.errors import raises_code
from tests.grid.conftest import plan, quiet, reproduce, tree
from tests.runs.conftest import SIZE, TASK, change, edit, edit_method, job, runs, stored, train, write_method

CELL = f"{TASK}/24"


def test_a_stage_whose_runs_are_stored_imports_no_torch(done: Path, tmp_path: Path) -> None:
    stage = "finetune"
    (tmp_path / "blocker").mkdir()
    (tmp_path / "blocker" / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    path = f"{tmp_path / 'blocker'}:{Path(__file__).resolve().parents[2]}"
    shutil.rmtree(done / "work" / stage)
    command = [sys.executable, "-m", "regft_core", stage]
    told = subprocess.run(command, cwd=done, env={"PYTHONPATH": path}, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    assert (done / "work" / stage / "weight_mixup" / CELL).is_dir()


def test_one_configuration_holds_for_a_whole_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it is edited while the run trains; the next run has the edit."""
    reads: list[None] = []
    discover = read_project.discover
    monkeypatch.setattr(read_project, "discover", lambda: reads.append(None) or discover())
    run(job(project, "weight_mixup"))
    assert len(reads) == 1
    assert [run_job(job(project, "weight_mixup", seed), device="cpu") for seed in (0, 1)]
    assert len(reads) == 2
    change(project, training={"learning_rate": 2e-3})
    assert open_project(project).params.training.learning_rate == 2e-3


def test_only_what_is_missing_is_a_job(project: Path) -> None:
    record = train(project, "vanilla")
    evaluate(Context(job(project, "vanilla")), record)
    searched = search(Context(job(project, "weight_mixup", 1)))
    finetune(Context(job(project, "weight_mixup", 1)), searched)  # not evaluated
    opened = open_project(project)
    assert look_up(job(project, "vanilla"), opened, "evaluate") is not None
    assert look_up(job(project, "weight_mixup", 1), opened, "finetune") is not None
    assert look_up(job(project, "weight_mixup", 1), opened, "evaluate") is None
    said: list[str] = []
    plan(project)
    compute(project, "search", say=said.append)
    assert [line for line in said if "weight_mixup cue_sentence 24 seed 0:" in line] == said[1:]
    assert said[0] == "search: 1 run, 1 job on the executor 'serial'"
    compute(project, "finetune", say=said.append)
    assert "finetune: 4 runs, 4 jobs on the executor 'serial'" in said
    compute(project, "evaluate", say=said.append)
    assert "evaluate: 1 run, 1 job on the executor 'serial'" in said  # the others when they were trained


def test_what_trains_no_encoder_has_its_scores_before_the_searches_by_one_job_each(project: Path) -> None:
    change(project, methods=["majority", "linear_probe", "weight_mixup"], report={"reference": "majority"})
    said: list[str] = []
    compute_only(project, "search", [f"weight_mixup/{TASK}"], said.append)
    assert [line.split()[0] for line in said] == ["search:", "weight_mixup", "weight_mixup"]
    shutil.rmtree(project / "work" / "search")
    said.clear()
    compute(project, "search", say=said.append)
    assert said[0] == "search: 4 runs, 4 jobs on the executor 'serial'"
    assert all("accuracy" in line for line in said[1:])


def test_bf16_is_refused_before_anything_runs_on_a_processor_that_lacks_it(
    project: Path, trained: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(project, methods=["vanilla"], training={"precision": "bf16"})
    plan(project)
    for units in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, units, lambda: False)
    with raises_code(ConfigError, "precision-not-possible", "training.precision", "avx512_bf16", "amx_tile", "fp32"):
        compute(project, "finetune", say=quiet)
    assert not trained
    refuse_slow_bf16(["cpu"], ["fp32"])
    refuse_slow_bf16(["cuda:0"], ["bf16"])
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    refuse_slow_bf16(["cpu"], ["bf16"])


def test_every_library_of_a_worker_has_the_threads_of_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    change(project, execution={"threads": 2})
    prepared_devices(open_project(project))
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_what_several_runs_share_is_done_once(project: Path, trained: list[tuple[str, int]]) -> None:
    """A phase with a seed of its own, two methods that amount to the same, and a search that two methods share."""

    def after() -> list[set[int]]:
        planner = Planner(open_project(project))
        for method in ("one", "other"):
            planner.add(job(project, method), "finetune")
        return [planned.after for planned in planner.jobs]

    search_phase = {"data": {"size": "full"}, "training": {"max_steps": 1}, "seed": 7}
    fine = {"regularisers": {"hype": {"scale": 1e-3}}}
    write_method(project, "one", phases={"early": search_phase, "finetune": {}})
    write_method(project, "other", phases={"early": search_phase, "finetune": fine})
    write_method(project, "nothing", regularisers={"hype": {"scale": 0.0, "hidden_dropout": "keep"}})
    change(project, methods=["vanilla", "nothing", "one", "other"])
    assert after() == [set(), {0}]
    search(Context(job(project, "one")))
    assert after() == [set(), set()]  # one waits for another only while both lack a phase
    reproduce(project)
    assert sorted(trained) == sorted([("early", 7), *[("finetune", 0), ("finetune", 1)] * 3])


def test_runs_that_share_only_their_last_earlier_phase_have_a_search_each(
    project: Path, trained: list[tuple[str, int]]
) -> None:
    shared = {"start": "checkpoint", "data": {"size": "full"}, "training": {"max_steps": 1}, "seed": 7}
    write_method(project, "one", phases={"own": {}, "shared": shared, "finetune": {"start": "own"}})
    change(project, methods=["vanilla", "one"])
    reproduce(project)
    ran = [("own", 0), ("own", 1), ("shared", 7), *[("finetune", 0), ("finetune", 1)] * 2]
    assert sorted(trained) == sorted(ran)


def test_some_cells_are_computed_with_all_that_they_need_and_the_others_left(
    project: Path, trained: list[tuple[str, int]]
) -> None:
    assert compute_only(project, "finetune", [f"weight_mixup/{TASK}"], quiet) == {}
    assert sorted(set(trained)) == [("finetune", 0), ("finetune", 1), ("search", 0), ("search", 1)]
    assert [path.name for path in (project / "work/finetune").iterdir() if path.is_dir()] == ["weight_mixup"]
    assert not (project / "work/evaluate").exists()
    reproduce(project)
    before = tree(project)
    edit_method(project, "hype_n", "1.0e-5", "1.0e-4")
    compute_only(project, "evaluate", ["vanilla"], quiet)
    assert tree(project) == before
    failures = project / "work/evaluate/failures.json"
    failures.write_text(json.dumps({f"hype_n/{CELL}": "of another call", f"removed/{CELL}": "no longer in the grid"}))
    compute_only(project, "evaluate", ["vanilla"], quiet)
    assert read_json(failures) == {f"hype_n/{CELL}": "of another call"}


def test_without_a_plan_the_stage_that_makes_it_is_named(project: Path) -> None:
    with raises_code(DataError, "no-plan", "work/plan/finetune.json is missing", "`dvc repro`, whose stage subsample"):
        compute(project, "finetune", say=quiet)


@pytest.mark.parametrize("seconds", [0.0, float("inf")])
def test_pruning_spares_what_unfinished_runs_need(
    project: Path, trained: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """After every job or at the end the store is pruned, here to nothing, and nothing is trained twice."""
    looks, original = list[object](), RunStore.prune
    monkeypatch.setattr(RunStore, "prune", lambda *given, **keep: (looks.append(0), original(*given, **keep))[1])
    monkeypatch.setattr("regft_core.grid.compute.PRUNING", seconds)
    change(project, store={"budget_gb": 1e-9})
    assert reproduce(project) == {}
    assert (len(looks) == 2) == (seconds > 0)  # at the end of two stages
    assert len(trained) == 2 * 3 + 2 * 2  # three fine-tunings and the two members of a search, for two seeds
    Context(job(project, "vanilla")).store.prune()
    left = [run for key in runs(project) if (run := stored(project, key)).tensor_names]
    assert len(left) == len(trained) + 2  # with the two merged searches
    assert not any(run.has_weights for run in left)


def test_a_configuration_edited_after_the_plan_is_refused(project: Path) -> None:
    plan(project)
    change(project, grid={"seeds": [0]})
    with pytest.raises(InputChanged, match=r"work/plan/finetune.json is not the plan"):
        compute(project, "finetune", say=quiet)
    assert not (project / "work" / "finetune").exists()


def test_rows_that_change_while_a_stage_runs_are_not_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(project, methods=["hype_n"], report={"reference": "hype_n"})
    plan(project)
    original, cell = jobs.run_job, f"hype_n/{TASK}/24"

    def meanwhile(job: Any, *, device: str) -> str:
        line = original(job, device=device)
        if job.seed == 1:
            edit(project / "work/subsamples" / TASK / "24/seed-1.jsonl", "the", "teh")
        return line

    monkeypatch.setattr(jobs, "run_job", meanwhile)
    failures = compute(project, "finetune", say=quiet)
    assert list(failures) == [cell]
    assert "run `dvc repro` again" in failures[cell]
    assert not (project / "work" / "finetune" / "hype_n" / TASK).exists()


def test_the_plan_has_no_path_and_no_time(project: Path, tmp_path: Path) -> None:
    here = plan(project)
    copy = Path(shutil.copytree(project, tmp_path / "elsewhere"))
    assert plan(copy) == here
    for stage in STAGES:
        assert str(tmp_path) not in (copy / "work/plan" / f"{stage}.json").read_text()


def test_what_changes_the_key_of_a_tuned_cell(tuned: Callable[..., Path]) -> None:
    root = tuned("vanilla")
    first = plan(root)
    change(root, execution={"executor": "processes", "workers": 2})
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
    found = read_json(root / "work/finetune/vanilla" / TASK / SIZE / "manifest.json")["runs"]
    assert len({run["tuned"]["chosen"] for run in found}) == 1
    evaluated = read_json(root / "work/evaluate/vanilla" / TASK / SIZE / "result.json")["runs"]
    for record, scored in zip(found, evaluated, strict=True):
        chosen = record["tuned"]["trials"][record["tuned"]["chosen"]]
        assert (record["key"], CHOSEN_ON_DEV in record["degraded"]) == (chosen["key"], True)
        assert scored["sets"]["dev"]["metrics"]["accuracy"] == pytest.approx(chosen["score"])


def test_trials_share_a_phase_that_their_values_do_not_touch(
    tuned: Callable[..., Path], trained: list[tuple[str, int]]
) -> None:
    own = {"weight_mixup": {"phases.finetune.training.learning_rate": [1e-6, 3e-3]}}
    root = tuned("weight_mixup", values={}, methods=own)
    assert reproduce(root) == {}
    # Two members each of the search that the trials share and of that on all rows; two trials and the run.
    assert Counter(trained) == {(phase, seed): n for phase, n in (("search", 4), ("finetune", 3)) for seed in (0, 1)}


def test_a_run_that_raises_is_said_at_once_and_its_reason_is_that_of_the_cell(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = jobs.run

    def failing(job: Any, *project: Any, **options: Any) -> Any:
        if job.seed == 0:
            raise OSError("the disk is gone")
        return original(job, *project, **options)

    monkeypatch.setattr(jobs, "run", failing)
    said: list[str] = []
    failures = compute_only(project, "evaluate", ["vanilla"], said.append)
    assert ["the disk is gone" in reason for reason in failures.values()] == [True]
    assert ["the disk is gone" in line for line in said] == [False, True, False, True]  # its job, at the end its cell


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
    told = read_failures(root)
    assert compute_only(root, "finetune", ["hype_n"], quiet) == {}
    assert read_failures(root) == told  # of cells that were not asked for
    trained.clear()
    assert reproduce(root) == {}
    assert trained == [("finetune", 1), ("finetune", 0), ("finetune", 1)]  # the trial, then the runs
