"""Filling the run store: the runs that the stages ask for, once, in order; afterwards no stage needs torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import RunFailed, StoreError
from regft_core.phases import fill as module
from regft_core.phases import made_ready
from regft_core.phases import project as opening
from regft_core.phases.context import Job
from regft_core.phases.evaluate import evaluate
from regft_core.phases.facts import write_facts
from regft_core.phases.fill import fill
from regft_core.phases.finetune import finetune
from regft_core.phases.made_ready import make_ready
from regft_core.phases.pieces import plan_work
from regft_core.phases.project import kept_open, open_project
from regft_core.phases.ready import folder_of, take_ready
from regft_core.phases.search import search
from regft_core.phases.stages import run_evaluate, run_finetune, run_search
from regft_core.phases.whole_run import look_up_run, whole_run
from regft_core.runs.store import RunStore
from tests.errors import raises_code
from tests.phases.conftest import DIVERGES, TASK, change, edit_method, job, runs, train, write_method
from tests.phases.other_executors import on_other_executors

STAGES = {"search": run_search, "finetune": run_finetune, "evaluate": run_evaluate}


def quiet(line: str) -> None:
    pass


def tree(root: Path) -> dict[str, bytes]:
    """Content of every output of the stages that train and evaluate."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for stage in (*STAGES, "metrics")
        for path in sorted((root / "work" / stage).rglob("*"))
        if path.is_file()
    }


def run_all_stages(root: Path, *, ready: bool) -> dict[str, bytes]:
    """What DVC's stages write, from what a fill made ready or from the run store."""
    for stage in (*STAGES, "metrics"):
        shutil.rmtree(root / "work" / stage, ignore_errors=True)
    for method in open_project(root).methods:
        for stage, function in STAGES.items():
            if not (ready and take_ready(root, stage, method, TASK)):
                function(root, method, TASK)
    return tree(root)


@pytest.fixture
def filled(project: Path) -> Path:
    write_facts(open_project(project))
    assert fill(project, say=quiet) == 8  # 3 methods x 2 seeds, and a phase before for one of them
    return project


def test_a_fill_computes_what_the_stages_ask_for(filled: Path, trained: list[tuple[str, int]]) -> None:
    from_ready = run_all_stages(filled, ready=True)
    from_store = run_all_stages(filled, ready=False)
    assert from_ready == from_store
    assert trained == []
    assert len(from_ready) > 20
    assert not list((filled / "work" / "ready").rglob("stamp"))  # taken, not copied
    assert fill(filled, say=quiet) == 0


def test_the_scores_are_those_of_the_stages_alone(filled: Path, project: Path) -> None:
    scores = {path: text for path, text in run_all_stages(filled, ready=True).items() if "metrics/" in path}
    before = set(runs(filled))
    change(filled, store={"path": "another"})
    plain = {path: text for path, text in run_all_stages(filled, ready=False).items() if "metrics/" in path}
    assert plain == scores
    assert set(runs(filled)) == before


@pytest.mark.parametrize("stage", list(STAGES))
def test_a_stage_whose_runs_are_stored_imports_no_torch(filled: Path, tmp_path: Path, stage: str) -> None:
    """Neither with what the fill made ready nor, that being gone, from the run store."""
    (tmp_path / "blocker").mkdir()
    (tmp_path / "blocker" / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    path = f"{tmp_path / 'blocker'}:{Path(__file__).resolve().parents[2]}"
    for earlier, function in STAGES.items():
        if earlier == stage:
            break
        function(filled, "weight_mixup", TASK)
    for _ in range(2):
        command = [sys.executable, "-m", f"stages.{stage}", "--method", "weight_mixup", "--task", TASK]
        done = subprocess.run(command, cwd=filled, env={"PYTHONPATH": path}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (filled / "work" / stage / "weight_mixup" / TASK / "24").is_dir()
        shutil.rmtree(filled / "work" / stage)


def test_what_changed_since_is_not_taken(filled: Path) -> None:
    assert folder_of(filled, "finetune", "hype_n", TASK).is_dir()
    run_search(filled, "hype_n", TASK)
    edit_method(filled, "hype_n", "1.0e-5", "1.0e-4")
    assert not take_ready(filled, "finetune", "hype_n", TASK)
    edit_method(filled, "hype_n", "1.0e-4", "1.0e-5")
    rows = filled / "work" / "subsamples" / TASK / "24" / "seed-0.jsonl"
    content = rows.read_bytes()
    rows.write_bytes(content + b"\n")
    assert not take_ready(filled, "finetune", "hype_n", TASK)
    rows.write_bytes(content)
    assert take_ready(filled, "finetune", "hype_n", TASK)
    assert not take_ready(filled, "finetune", "hype_n", TASK)  # it is in its place now


def test_what_changes_while_outputs_are_made_is_not_in_their_stamp(filled: Path) -> None:
    """The outputs would be those of the configuration before, under the stamp of the one after."""

    def look_up_and_edit(run: Job) -> Any:
        found = look_up_run(run)
        if run.seed == 1:
            edit_method(filled, "hype_n", "description:", "# an edit\ndescription:")
        return found

    run_search(filled, "hype_n", TASK)
    shutil.rmtree(filled / "work" / "ready")
    make_ready(open_project(filled), "hype_n", TASK, look_up_and_edit)
    assert not take_ready(filled, "finetune", "hype_n", TASK)
    assert make_ready(open_project(filled), "hype_n", TASK, look_up_run)
    assert take_ready(filled, "finetune", "hype_n", TASK)


def test_one_configuration_holds_for_a_whole_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it is edited while the run trains; the next run has the edit."""
    looks = []
    real = opening._files
    monkeypatch.setattr(opening, "_files", lambda *given: looks.append(given) or real(*given))
    time.sleep(0.2)  # so young a configuration is read again each time
    open_project(project)
    looks.clear()
    whole_run(job(project, "weight_mixup"))
    assert len(looks) == 1
    with kept_open():
        before = open_project(project)
        change(project, training={"learning_rate": 2e-3})
        assert open_project(project) is before
        with kept_open():
            assert open_project(project) is before
        assert open_project(project) is before
    assert open_project(project).params.training.learning_rate == 2e-3


def test_only_what_is_missing_is_planned(project: Path) -> None:
    write_facts(open_project(project))
    evaluate(job(project, "vanilla"), train(project, "vanilla"))
    searched = search(job(project, "weight_mixup", 1))
    finetune(job(project, "weight_mixup", 1), searched)  # not evaluated
    assert look_up_run(job(project, "vanilla")) is not None
    assert look_up_run(job(project, "weight_mixup", 1)) is None
    opened = open_project(project)
    work = plan_work(opened, [(method, TASK) for method in opened.methods])
    names = [piece.name for piece in work.pieces]
    assert "vanilla cue_sentence 24 seed 0" not in names
    assert "weight_mixup cue_sentence 24 seed 1" in names
    last = names.index("weight_mixup cue_sentence 24 seed 0")
    assert {names[i] for i in work.after[last]} == {"weight_mixup cue_sentence 24 seed 0 phase search"}


def test_what_several_runs_share_is_done_once(project: Path, trained: list[tuple[str, int]]) -> None:
    """A phase with a seed of its own, two methods that amount to the same, and a search that two methods share."""
    search_phase = {"data": {"size": "full"}, "training": {"max_steps": 1}, "seed": 7}
    fine = {"regularisers": {"hype": {"scale": 1e-3}}}
    write_method(project, "one", phases={"early": search_phase, "finetune": {}})
    write_method(project, "other", phases={"early": search_phase, "finetune": fine})
    write_method(project, "nothing", regularisers={"hype": {"scale": 0.0, "hidden_dropout": "keep"}})
    change(project, methods=["vanilla", "nothing", "one", "other"])
    write_facts(open_project(project))
    fill(project, say=quiet)
    assert sorted(trained) == sorted([("early", 7), *[("finetune", 0), ("finetune", 1)] * 3])
    assert run_all_stages(project, ready=True) == run_all_stages(project, ready=False)


def test_a_run_that_raises_stops_neither_the_others_nor_their_outputs(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_method(project, "breaks", regularisers=DIVERGES)
    write_facts(open_project(project))
    original = module.produce

    def failing(context: Any, phase: Any, *rest: Any) -> Any:
        if context.job.seed == 1:
            raise OSError("the disk is gone")
        return original(context, phase, *rest)

    monkeypatch.setattr(module, "produce", failing)
    with raises_code(RunFailed, "jobs-failed", "2 of 10 runs", "the disk is gone", "was not started, because it needs"):
        fill(project, say=quiet)
    assert take_ready(project, "finetune", "breaks", TASK) is False  # the stage before it has not run
    run_search(project, "breaks", TASK)
    assert take_ready(project, "finetune", "breaks", TASK)
    manifest = json.loads((project / "work/finetune/breaks" / TASK / "24/manifest.json").read_text())
    assert [run["status"] for run in manifest["runs"]] == ["failed", "failed"]
    assert not folder_of(project, "finetune", "weight_mixup", TASK).exists()
    monkeypatch.undo()
    assert fill(project, say=quiet) == 2


@on_other_executors
def test_other_executors_come_to_the_same(
    make_project: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    executor: str,
    package: str,
    options: dict[str, Any],
) -> None:
    pytest.importorskip(package, reason=f"an optional extra: pip install -e '.[{executor}]'")
    repository = str(Path(__file__).resolve().parents[2])
    monkeypatch.setenv("PYTHONPATH", repository)
    root = make_project(execution={"executor": executor, "workers": 2, "device": "cpu", **options})
    monkeypatch.chdir(root)
    write_facts(open_project(root))
    assert fill(root, say=quiet) == 8
    outputs = run_all_stages(root, ready=True)
    for name in options:
        change(root, execution={name: None})
    change(root, store={"path": "serially"}, execution={"executor": "serial"})
    scores = [name for name in outputs if "predictions" in name or "metrics/" in name]
    again = run_all_stages(root, ready=False)
    assert {name: again[name] for name in scores} == {name: outputs[name] for name in scores}


def test_what_a_killed_fill_was_writing_goes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = project / "work" / "ready"
    left = ready / ".making.tmp-elsewhere.1.1.00000000"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    seen: list[str] = []
    original = made_ready.write_training

    def noting(context: Any, stage: str, records: Any, folder: Path) -> None:
        seen.append(folder.parent.name)
        original(context, stage, records, folder)

    monkeypatch.setattr(made_ready, "write_training", noting)
    change(project, methods=["vanilla"])
    write_facts(open_project(project))
    fill(project, say=quiet)
    assert not left.exists()
    assert seen
    assert all(name.startswith(".making.tmp-") for name in seen)  # what is swept when its owner is dead
    assert not list(ready.glob(".making*"))


def test_a_store_that_cannot_be_pruned_now_ends_no_runs(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(self: RunStore) -> None:
        raise StoreError("cannot-write", "the disk is full")

    monkeypatch.setattr(RunStore, "prune", failing)
    change(project, methods=["vanilla"])
    write_facts(open_project(project))
    assert fill(project, say=quiet) == 2
    assert "is not pruned now: the disk is full" in caplog.text
