"""The engine: the runs that the plan asks for, once, in order; what is there is left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.errors import ConfigError, DataError, StoreError
from regft_core.grid import compute as module
from regft_core.grid.compute import compute, compute_only
from regft_core.grid.jobs import Planner
from regft_core.grid.pool import prepared_devices
from regft_core.grid.queue import JobQueue
from regft_core.grid.rates import Rates
from regft_core.io.reading import read_json
from regft_core.models.devices import refuse_slow_bf16
from regft_core.runs import project as opening
from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluate
from regft_core.runs.project import kept_open, open_project
from regft_core.runs.run import STAGES, look_up, run
from regft_core.runs.store import RunStore
from regft_core.runs.train import finetune, search
from tests.errors import raises_code
from tests.extras import needs
from tests.grid.conftest import bits, plan, quiet, reproduce, scores, tree
from tests.grid.other_executors import on_other_executors
from tests.killed import in_child
from tests.runs.conftest import DIVERGES, TASK, change, edit_method, job, runs, stored, train, write_method

CELL = f"{TASK}/24"


@pytest.fixture(scope="module")
def reproduced(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with everything computed; tests get copies."""
    root = Path(shutil.copytree(template, tmp_path_factory.mktemp("reproduced") / "project"))
    assert reproduce(root) == {}
    return root


@pytest.fixture
def done(reproduced: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reproduced, tmp_path / "project"))


def test_a_second_time_nothing_is_computed_or_written(done: Path, trained: list[tuple[str, int]]) -> None:
    before = {path: path.stat().st_mtime_ns for path in (done / "work").rglob("*.json") if path.parent.name == "24"}
    assert len(before) > 6
    said: list[str] = []
    assert reproduce(done, said.append) == {}
    assert (trained, said) == ([], [])
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_what_work_has_is_not_computed_again_when_the_store_is_gone(done: Path, trained: list[tuple[str, int]]) -> None:
    shutil.rmtree(done / ".regft")
    before = tree(done)
    reproduce(done)
    assert (tree(done), trained) == (before, [])
    # Only what an edit makes stale is trained: its own runs, and nothing of the others.
    edit_method(done, "hype_n", "1.0e-5", "1.0e-4")
    reproduce(done)
    assert trained == [("finetune", 0), ("finetune", 1)]
    # Phases that fine-tuning starts from come back where they are needed.
    trained.clear()
    shutil.rmtree(done / ".regft")
    edit_method(done, "weight_mixup", "finetune:\n", "finetune:\n    training: {epochs: 3}\n")
    reproduce(done)
    assert sorted(set(trained)) == [("finetune", 0), ("finetune", 1), ("search", 0), ("search", 1)]


def test_outputs_that_were_lost_or_edited_come_back_from_the_store(done: Path, trained: list[tuple[str, int]]) -> None:
    before = tree(done)
    shutil.rmtree(done / "work" / "finetune")
    manifest = done / "work/search/weight_mixup" / CELL / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"status": "ok"', '"status": "failed"'))
    (done / "work/evaluate/vanilla" / CELL / "predictions/seed-0/dev.jsonl").unlink()
    reproduce(done)
    assert (tree(done), trained) == (before, [])


def test_stores_of_their_own_come_to_the_same_bits(done: Path) -> None:
    first, weights = scores(tree(done)), bits(done)
    assert len(first) == 3 * 2 * 3  # methods, seeds, sets
    change(done, store={"path": "another"})
    shutil.rmtree(done / "work")
    reproduce(done)
    assert scores(tree(done)) == first
    assert bits(done) == weights


def test_what_leaves_the_grid_leaves_the_outputs(done: Path) -> None:
    change(done, methods=["vanilla", "hype_n"])
    reproduce(done)
    assert not (done / "work/search/weight_mixup").exists()
    assert not (done / "work/finetune/weight_mixup").exists()
    assert (done / "work/evaluate/vanilla" / CELL).is_dir()


def test_a_new_seed_and_a_new_size_train_their_own_runs_only(done: Path, trained: list[tuple[str, int]]) -> None:
    change(done, grid={"seeds": [0, 1, 2]})
    reproduce(done)
    assert sorted(trained) == [("finetune", 2)] * 3 + [("search", 2)] * 2
    trained.clear()
    before = {path: path.stat().st_mtime_ns for path in (done / "work").rglob("24/key.json")}
    change(done, grid={"sizes": [24, 16]}, methods=["vanilla"])
    reproduce(done)
    assert trained == [("finetune", 0), ("finetune", 1), ("finetune", 2)]
    after = {path: path.stat().st_mtime_ns for path in before if path.exists()}
    assert after
    assert after == {path: before[path] for path in after}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_whose_runs_are_stored_imports_no_torch(done: Path, tmp_path: Path, stage: str) -> None:
    (tmp_path / "blocker").mkdir()
    (tmp_path / "blocker" / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    path = f"{tmp_path / 'blocker'}:{Path(__file__).resolve().parents[2]}"
    shutil.rmtree(done / "work" / stage)
    command = [sys.executable, "-m", f"stages.{stage}"]
    told = subprocess.run(command, cwd=done, env={"PYTHONPATH": path}, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    assert (done / "work" / stage / "weight_mixup" / CELL).is_dir()


def test_one_configuration_holds_for_a_whole_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it is edited while the run trains; the next run has the edit."""
    looks = []
    real = opening._files
    monkeypatch.setattr(opening, "_files", lambda *given: looks.append(given) or real(*given))
    time.sleep(0.2)  # so young a configuration is read again each time
    open_project(project)
    looks.clear()
    run(job(project, "weight_mixup"))
    assert len(looks) == 1
    with kept_open():
        before = open_project(project)
        change(project, training={"learning_rate": 2e-3})
        assert open_project(project) is before
        with kept_open():
            assert open_project(project) is before
        assert open_project(project) is before
    assert open_project(project).params.training.learning_rate == 2e-3


def test_only_what_is_missing_is_a_job(project: Path) -> None:
    record = train(project, "vanilla")
    evaluate(Context(job(project, "vanilla")), record)
    searched = search(Context(job(project, "weight_mixup", 1)))
    trained = finetune(Context(job(project, "weight_mixup", 1)), searched)  # not evaluated
    assert look_up(job(project, "vanilla"), "evaluate", record) is not None
    assert look_up(job(project, "weight_mixup", 1), "finetune", searched) is not None
    assert look_up(job(project, "weight_mixup", 1), "evaluate", trained) is None
    said: list[str] = []
    plan(project)
    compute(project, "search", say=said.append)
    assert [line for line in said if "phase search" in line] == said[1:]
    assert said[0] == "search: 1 run, 1 job on the executor 'serial'"
    compute(project, "finetune", say=said.append)
    assert "finetune: 4 runs, 4 jobs on the executor 'serial'" in said
    compute(project, "evaluate", say=said.append)
    assert "evaluate: 1 run, 1 job on the executor 'serial'" in said  # the others when they were trained


def test_arms_that_train_alike_train_once(project: Path, trained: list[tuple[str, int]]) -> None:
    """Alone 17 trainings: plain fine-tuning, that of WiSE-FT, and three soups of the same five members."""
    soups = ["greedy_soup", "greedy_soup_uniform", "greedy_soup_released"]
    change(project, methods=["vanilla", "wise_ft", *soups], grid={"seeds": [0]})
    assert reproduce(project) == {}
    # Five members and one training; the means of the three soups are phases without a step.
    assert Counter(trained) == {("members", 0): 5, ("finetune", 0): 1 + len(soups)}


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


def test_a_run_waits_for_the_phases_that_it_starts_from(project: Path) -> None:
    planner = Planner(open_project(project))
    (last,) = planner.add(job(project, "weight_mixup"), "finetune", None)
    names = [one.name for one in planner.jobs.jobs]
    assert names[last] == "weight_mixup cue_sentence 24 seed 0"
    assert {names[i] for i in planner.jobs.after[last]} == {"weight_mixup cue_sentence 24 seed 0 phase search"}


def test_the_longest_chain_starts_first_by_measured_seconds(project: Path) -> None:
    """Both methods take as many steps; the one whose step takes longer starts first, whatever the order."""
    change(project, methods=["vanilla", "hype_n"])
    first = {}
    for slow in ("vanilla", "hype_n"):
        planner = Planner(open_project(project))
        planner._rates = lambda cell, slow=slow: Rates(train=0.02 if cell.method == slow else 0.01, judge=1.0)
        for method in ("vanilla", "hype_n"):
            planner.add(job(project, method), "finetune", None)
        taken = JobQueue(planner.jobs.jobs, after=planner.jobs.after, costs=planner.jobs.costs).take()
        assert taken is not None
        first[slow] = planner.jobs.jobs[taken].method
        shares = planner.jobs.shares[planner.jobs.jobs[taken].name]
        assert shares == {"finetune": pytest.approx(planner.jobs.costs[taken] - 1.0), "evaluate": 1.0}
    assert first == {"vanilla": "vanilla", "hype_n": "hype_n"}


def test_every_library_of_a_worker_has_the_threads_of_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    change(project, execution={"threads": 2})
    prepared_devices(open_project(project))
    assert os.environ["OMP_NUM_THREADS"] == "2"
    assert caplog.messages == ["OMP_NUM_THREADS=3 does not count: workers have execution.threads, which is 2"]
    prepared_devices(open_project(project))
    assert len(caplog.messages) == 1


def test_what_several_runs_share_is_done_once(project: Path, trained: list[tuple[str, int]]) -> None:
    """A phase with a seed of its own, two methods that amount to the same, and a search that two methods share."""
    search_phase = {"data": {"size": "full"}, "training": {"max_steps": 1}, "seed": 7}
    fine = {"regularisers": {"hype": {"scale": 1e-3}}}
    write_method(project, "one", phases={"early": search_phase, "finetune": {}})
    write_method(project, "other", phases={"early": search_phase, "finetune": fine})
    write_method(project, "nothing", regularisers={"hype": {"scale": 0.0, "hidden_dropout": "keep"}})
    change(project, methods=["vanilla", "nothing", "one", "other"])
    reproduce(project)
    assert sorted(trained) == sorted([("early", 7), *[("finetune", 0), ("finetune", 1)] * 3])


# ------------------------------------------------------------------------------------------ a part


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
    compute_only(project, "evaluate", [f"vanilla/{TASK}"], quiet)
    assert tree(project) == before


# ------------------------------------------------------------------------------------- what fails


def test_a_run_that_raises_stops_neither_the_others_nor_their_outputs(
    project: Path, monkeypatch: pytest.MonkeyPatch, trained: list[tuple[str, int]]
) -> None:
    write_method(project, "breaks", regularisers=DIVERGES)
    original = module.produce

    def failing(context: Any, phase: Any, *rest: Any) -> Any:
        if context.job.seed == 1:
            raise OSError("the disk is gone")
        return original(context, phase, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(module, "produce", failing)
        said: list[str] = []
        failures = reproduce(project, said.append)
    name = f"weight_mixup/{CELL}"
    assert list(failures) == [name]
    assert read_json(project / "work/search/failures.json") == {
        name: "weight_mixup cue_sentence 24 seed 1 phase search: OSError: the disk is gone"
    }
    assert any(line.startswith(f"FAILED: {name}: ") for line in said)
    # A run that diverged is a result, not a failure.
    manifest = json.loads((project / "work/finetune/breaks" / CELL / "manifest.json").read_text())
    assert [run["status"] for run in manifest["runs"]] == ["failed", "failed"]
    assert (project / "work/evaluate/breaks" / CELL).is_dir()
    for stage in STAGES:
        assert not (project / "work" / stage / name).exists()
    trained.clear()
    assert reproduce(project) == {}
    assert sorted(set(trained)) == [("finetune", 0), ("finetune", 1), ("search", 1)]
    assert read_json(project / "work/search/failures.json") == {}


def test_a_command_that_failed_says_so_by_its_exit_code(project: Path) -> None:
    edit_method(project, "hype_n", "scale: 1.0e-5", "scale: 1.0e-5, layers: [7]")
    change(project, methods=["hype_n", "vanilla"])
    plan(project)
    path = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    for options, code in (([], 1), (["--keep-going"], 0)):
        command = [sys.executable, "-m", "stages.finetune", *options]
        told = subprocess.run(command, cwd=project, env=path, capture_output=True, text=True)
        assert told.returncode == code, told.stdout + told.stderr
        assert f"FAILED: hype_n/{CELL}" in told.stdout
        line = 1 + (project / "pipelines/methods/hype_n.yaml").read_text().split("scale: 1.0e-5")[0].count("\n")
        assert f"pipelines/methods/hype_n.yaml:{line}: hype.layers: the model has layers 0 to" in told.stdout
        assert (project / "work/finetune/vanilla" / CELL).is_dir()

    lines: list[str] = []
    assert list(compute(project, "evaluate", say=lines.append)) == [f"hype_n/{CELL}"]
    assert f"evaluate: 1 cell failed in a stage before: hype_n/{CELL}" in lines
    assert not [line for line in lines if line.startswith("FAILED")]


def test_without_a_plan_the_stage_that_makes_it_is_named(project: Path) -> None:
    with raises_code(DataError, "no-plan", "work/plan/finetune.json is missing", "`dvc repro`, whose stage plan"):
        compute(project, "finetune", say=quiet)


@pytest.mark.parametrize("point", ["step:3", "commit.renamed:1", "commit.renamed:4"])
def test_a_killed_stage_goes_on_where_it_stopped(
    project: Path, reproduced: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    plan(project)
    assert in_child(reproduce, project, at=point) == -signal.SIGKILL
    before = len(runs(project))
    assert reproduce(project) == {}
    assert bits(project) == bits(reproduced)
    assert scores(tree(project)) == scores(tree(reproduced))
    assert before < len(runs(project))


def test_pruning_spares_what_unfinished_runs_need(project: Path, trained: list[tuple[str, int]]) -> None:
    """After every job the store is pruned, here to nothing, and still nothing is trained twice."""
    change(project, store={"budget_gb": 1e-9})
    assert reproduce(project) == {}
    assert len(trained) == 2 * 3 + 2 * 2  # three fine-tunings and the two members of a search, for two seeds
    Context(job(project, "vanilla")).store.prune()
    left = [run for key in runs(project) if (run := stored(project, key)).tensor_names]
    assert len(left) == len(trained) + 2  # with the two merged searches
    assert not any(run.has_weights for run in left)


def test_a_store_that_cannot_be_pruned_now_ends_no_runs(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(self: RunStore, keep: Any = ()) -> None:
        raise StoreError("cannot-write", "the disk is full")

    monkeypatch.setattr(RunStore, "prune", failing)
    change(project, methods=["vanilla"], store={"budget_gb": 1e-9})
    assert reproduce(project) == {}
    assert "is not pruned now: the disk is full" in caplog.text


@on_other_executors
def test_other_executors_come_to_the_same_in_any_order(
    make_project: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    executor: str,
    package: str,
    options: dict[str, Any],
) -> None:
    needs(package, executor)
    repository = str(Path(__file__).resolve().parents[2])
    monkeypatch.setenv("PYTHONPATH", repository)
    root = make_project(execution={"executor": executor, "workers": 2, "device": "cpu", **options})
    monkeypatch.chdir(root)
    assert reproduce(root) == {}
    first, weights = scores(tree(root)), bits(root)
    for name in options:
        change(root, execution={name: None})
    change(root, store={"path": "serially"}, execution={"executor": "serial"}, grid={"seeds": [1, 0]})
    shutil.rmtree(root / "work")
    assert reproduce(root) == {}
    assert scores(tree(root)) == first
    assert bits(root) == weights
    manifest = read_json(next(root.glob("work/finetune/*/*/*/manifest.json")))
    assert [record["seed"] for record in manifest["runs"]] == [1, 0]
