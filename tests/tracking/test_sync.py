"""MLflow as a history: each run is logged once, nothing is deleted or overwritten, a deleted database comes back."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from mlflow import MlflowClient
from safetensors.numpy import save_file

from regft_core.errors import DataError, StoreError
from regft_core.runs.records import MARK
from regft_core.tracking.trackers.mlflow import Tracker, register
from tests.errors import raises_code
from tests.report.synthetic import TRAINING, Task, build, edited
from tests.small_project import git
from tests.tracking.tree import (
    ARM,
    HYPE,
    SEARCHED,
    VANILLA,
    Tree,
    client,
    current,
    files_of,
    history,
    search,
    snapshot,
    sync,
)

SEEDS = [0, 1]


@pytest.fixture
def grid(tree: Tree) -> Tree:
    tree.cell(VANILLA, SEEDS, collapsed=(1,))
    tree.cell(HYPE, SEEDS)
    return tree


def test_seeds_are_nested_under_their_cell_with_all_that_is_known(grid: Tree) -> None:
    assert sync(grid.root, [VANILLA, HYPE], SEEDS) == "MLflow: 6 runs logged, 0 as before, 0 of earlier configurations"
    runs = current(grid.root)
    assert set(runs) == {f"{s}{m} rte-300" for m in ("vanilla", "hype_n") for s in ("", "seed 0 of ", "seed 1 of ")}
    cell, run = runs["hype_n rte-300"], runs["seed 1 of hype_n rte-300"]
    assert run.data.tags["mlflow.parentRunId"] == cell.info.run_id
    assert (run.info.status, run.info.end_time - run.info.start_time) == ("FINISHED", 30_000)
    wanted = {"method": "hype_n", "task": "rte", "size": "300", "seed": "1"}
    wanted |= {"model.name": "minilm", "model.max_length": "128", "phases.finetune.training.epochs": "3"}
    wanted |= {"phases.finetune.training.learning_rate": json.dumps(TRAINING.learning_rate)}
    wanted |= {"phases.finetune.regularisers.noise.scale": "2e-05"}
    assert run.data.params.items() >= wanted.items()
    assert {key: value for key, value in run.data.params.items() if key != "seed"} == cell.data.params
    curves = {"curves/loss", "curves/learning_rate", "curves/gradient_norm", "curves/hype.noise"}
    numbers = {name: value for name, value in run.data.metrics.items() if name not in curves}
    dev, hans = grid.scores(HYPE), grid.scores(HYPE, "hans")
    assert numbers == {"score": dev[1], "dev.accuracy": dev[1], "hans.accuracy": hans[1], "cost": 1.5, "seconds": 30.0}
    assert history(grid.root, run, "curves/loss") == pytest.approx(grid.losses(HYPE, 1))
    assert history(grid.root, run, "curves/hype.noise") == [0.5, 1.5, 4.5]
    assert runs["seed 1 of vanilla rte-300"].data.tags["collapsed"] == "constant"
    names = {path.relative_to(files_of(run)).as_posix() for path in files_of(run).rglob("*") if path.is_file()}
    assert names == {"config.yaml", "run.yaml", "record.json", "predictions/dev.jsonl", "predictions/hans.jsonl"}
    inputs = {one.dataset.name: (one.dataset.digest, one.tags[0].value) for one in run.inputs.dataset_inputs}
    content = grid.read("work/datasets/rte/task.json")["content"]
    drawn = grid.read("work/subsamples/rte/300/manifest.json")["seeds"]["1"]["sha256"]
    places = [json.loads(one.dataset.source)["uri"] for one in run.inputs.dataset_inputs]
    assert all((grid.root / place).is_dir() for place in places), places
    assert inputs == {
        "rte-300": (drawn[:32], "training"),
        **{f"rte {name}": (content[name][:32], "evaluation") for name in ("dev", "hans")},
    }
    assert (cell.data.metrics["score"], cell.data.metrics["seeds"]) == (pytest.approx(sum(dev) / 2), 2)


def test_the_reports_intervals_and_verdicts_are_those_of_the_same_runs(grid: Tree) -> None:
    mean = sum(grid.scores(HYPE)) / 2
    bounds = {"mean": mean / 100, "low": 0.6, "high": 0.7, "n": 2}
    hype = {"dev": {"accuracy": bounds}, "verdict_reference": "better", "no_better_than_constant": ["dev", "hans"]}
    grid.report("text", {"rte-300": {"hype_n": hype, "vanilla": {"dev": {"accuracy": bounds}}}})
    sync(grid.root, [VANILLA, HYPE], SEEDS)
    runs = current(grid.root)
    cell, other = runs["hype_n rte-300"], runs["vanilla rte-300"]
    wanted = {"score": mean, "score_low": 60.0, "score_high": 70.0}
    assert {name: cell.data.metrics[name] for name in wanted} == wanted
    shown = {"verdict_reference": "better", "no_better_than_constant": "dev, hans"}
    assert cell.data.tags.items() >= shown.items()
    assert "score_low" not in other.data.metrics, "the report is about other runs"
    assert (files_of(runs["report"]) / "report.html").is_file()


def test_a_verdict_against_earlier_runs_of_another_method_is_none(grid: Tree) -> None:
    bounds = {"mean": sum(grid.scores(HYPE)) / 200, "low": 0.6, "high": 0.7, "n": 2}
    hype = {"dev": {"accuracy": bounds}, "versus_reference": {"vanilla": {}}, "verdict_reference": "better"}
    grid.report("text", {"rte-300": {"hype_n": hype}})
    shown = []
    for changes in ({}, {"learning_rate": 1e-4}):
        grid.cell(VANILLA, SEEDS, overrides=changes)
        sync(grid.root, [VANILLA, HYPE], SEEDS)
        data = current(grid.root)["hype_n rte-300"].data
        shown.append((data.tags.get("verdict_reference"), data.metrics["score_low"]))
    assert shown == [("better", 60.0), (None, 60.0)]


@pytest.mark.parametrize(
    ("times", "stale", "fresh"), [(1, 1.01, False), (1, 1, True), (1e6, 1.01, False), (1e6, 1, True)]
)
def test_scores_without_bounds_are_the_reports_within_rounding(
    tree: Tree, times: float, stale: float, fresh: bool
) -> None:
    build(tree.root, {"hype_n": ARM}, {"rte": Task("regression", ("mse",), n=20, ood=())}, (300,), SEEDS)
    with edited(tree.root / "work/evaluate" / HYPE.directory / "result.json") as result:
        for run in result["runs"]:
            run["sets"]["dev"]["metrics"]["mse"] *= times
        mean = sum(run["sets"]["dev"]["metrics"]["mse"] for run in result["runs"]) / 2
    score = {"mean": mean * stale, "low": 0.0, "high": 9e9, "n": 2}
    tree.report("text", {"rte-300": {"hype_n": {"dev": {"mse": score}, "verdict_reference": "better"}}})
    sync(tree.root, [HYPE], SEEDS)
    assert ("verdict_reference" in current(tree.root)["hype_n rte-300"].data.tags) is fresh


def test_a_failed_cell_is_not_current_although_its_earlier_runs_are_there(grid: Tree) -> None:
    sync(grid.root, [VANILLA, HYPE], SEEDS)
    grid.write("work/finetune/failures.json", {HYPE.directory: "loss became NaN"})  # beside the manifest from before
    assert sync(grid.root, [VANILLA, HYPE], SEEDS).endswith("3 as before, 3 of earlier configurations")
    assert {name.partition(" of ")[2] or name for name in current(grid.root)} == {"vanilla rte-300"}


def test_an_edit_keeps_the_runs_before_it_and_differs_by_the_edit_alone(tree: Tree) -> None:
    tree.cell(SEARCHED, SEEDS)
    tree.cell(VANILLA, SEEDS)
    sync(tree.root, [SEARCHED, VANILLA], SEEDS)
    before = current(tree.root)
    tree.cell(SEARCHED, SEEDS, members=3, skill=0.3)
    assert sync(tree.root, [SEARCHED, VANILLA], SEEDS).startswith("MLflow: 13 runs logged, 3 as before, 11 of earlier")
    after = current(tree.root)
    for name in ("weight_mixup rte-300", "seed 0 of weight_mixup rte-300", "seed 1 of weight_mixup rte-300"):
        old = client(tree.root).get_run(before[name].info.run_id)
        new = after[name]
        assert old.info.run_id != new.info.run_id
        assert (old.info.lifecycle_stage, "current" in old.data.tags) == ("active", False)
        names = old.data.params.keys() | new.data.params.keys()
        different = {p: (old.data.params.get(p), new.data.params.get(p)) for p in names}
        different = {p: pair for p, pair in different.items() if pair[0] != pair[1]}
        assert different == {"phases.search.repeat.times": ("2", "3")}
        assert old.data.metrics["score"] > new.data.metrics["score"]
        assert len(history(tree.root, old, "score")) == 1
        for run, members in ((old, 2), (new, 3)):
            assert re.search(rf'members"?: {members}', (files_of(run) / "config.yaml").read_text())
    assert after["vanilla rte-300"].info.run_id == before["vanilla rte-300"].info.run_id
    tree.cell(SEARCHED, SEEDS)  # the edit is taken back
    assert sync(tree.root, [SEARCHED, VANILLA], SEEDS).startswith("MLflow: 0 runs logged, 14 as before, 13 of earlier")
    assert {n: r.info.run_id for n, r in current(tree.root).items()} == {n: r.info.run_id for n, r in before.items()}


def test_phases_are_runs_below_their_seed_with_what_they_left(tree: Tree) -> None:
    tree.cell(SEARCHED, [0])
    tree.stored(tree.key(SEARCHED, 0), {"phase": "finetune", "status": "ok"})
    tree.stored(
        tree.key(SEARCHED, 0, phase="search"), {"status": "ok", "seconds": 30.0, "steps": 8}, members=("a", "b")
    )
    tree.stored("b", {"status": "failed", "error": "loss became NaN", "soup": {"scores": [0.5, 0.7], "chosen": [1]}})
    sync(tree.root, [SEARCHED], [0])
    runs = current(tree.root)
    seed, name = runs["seed 0 of weight_mixup rte-300"], "of seed 0 of weight_mixup rte-300"
    phases = {run.data.params["phase"]: run for run in runs.values() if run.data.tags["regft.kind"] == "phase"}
    assert [run.info.run_name for run in phases.values()] == [f"{label} {name}" for label in phases]
    assert phases.keys() == {"search-0", "search-1", "search", "finetune"}
    assert {run.data.tags["mlflow.parentRunId"] for run in phases.values()} == {seed.info.run_id}
    assert (phases["search-1"].info.status, phases["search-1"].data.tags["error"]) == ("FAILED", "loss became NaN")
    assert history(tree.root, phases["search-1"], "curves/loss") == tree.losses(SEARCHED, 0, "search", "search-1")
    assert history(tree.root, seed, "curves/loss") == history(tree.root, phases["finetune"], "curves/loss")
    assert (phases["search"].data.metrics["steps"], phases["search"].data.metrics["seconds"]) == (8, 30)
    settings = {key for key in phases["search"].data.params if key.startswith("phases.")}
    assert settings == {key for key in seed.data.params if key.startswith("phases.search.")} != set()
    # Attention as a table and a figure, the choice of a soup; all as MLflow's own page reads them.
    table = json.loads((files_of(phases["search"]) / "tensors" / "state.json").read_text())
    assert table["columns"][:4] == ["tensor", "shape", "mean", "std"]
    mean, spread = pytest.approx(2.5), pytest.approx(1.7078, abs=1e-4)
    assert table["data"][0][:4] == ["weight_mixup.attention", "2x3", mean, spread]
    assert (files_of(phases["search"]) / "tensors" / "state.png").read_bytes().startswith(b"\x89PNG")
    soup = json.loads((files_of(phases["search-1"]) / "soup.json").read_text())
    assert soup == {"columns": ["member", "score", "added"], "data": [[0, 0.5, 0], [1, 0.7, 1]]}
    assert sync(tree.root, [SEARCHED], [0]).startswith("MLflow: 0 runs logged, 6 as before")
    assert "search" in yaml.safe_load((files_of(seed) / "run.yaml").read_text())
    path = f"work/search/{SEARCHED.directory}/manifest.json"
    manifest = tree.read(path)
    manifest["runs"][0]["phases"] = {"search": "of an edit since"}
    tree.write(path, manifest)
    tree.report("text", {MARK: "logged anew"})
    sync(tree.root, [SEARCHED], [0])
    assert "search" not in yaml.safe_load((files_of(current(tree.root)[seed.info.run_name]) / "run.yaml").read_text())


def test_curves_of_a_newer_search_are_not_those_of_the_run(tree: Tree) -> None:
    tree.cell(SEARCHED, [0])
    with edited(tree.root / f"work/search/{SEARCHED.directory}/manifest.json") as manifest:
        manifest["runs"][0]["phases"] = {"search": "of an edit since"}
    sync(tree.root, [SEARCHED], [0])
    phases = {run.data.params.get("phase"): run for run in current(tree.root).values()}
    assert phases.keys() == {None, "search", "finetune"}
    assert "curves/loss" not in phases["search"].data.metrics
    assert history(tree.root, phases["finetune"], "curves/loss") == tree.losses(SEARCHED, 0)


def test_an_experiment_of_dvc_is_logged_to_its_project(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.cell(VANILLA, [0])
    tree.write("params.yaml", "")
    sync(tree.root, [VANILLA], [0])
    copy = Tree(tree.root / ".dvc" / "tmp" / "exps" / "one")
    copy.cell(VANILLA, [0])
    copy.cell(HYPE, [0])
    for name in ("rate", "noise"):
        monkeypatch.setenv("DVC_ROOT", str(tree.root))
        monkeypatch.setenv("DVC_EXP_NAME", name)
        assert sync(copy.root, [VANILLA, HYPE], [0]).endswith(f"in {tree.root / 'mlflow.db'}")
    assert not (copy.root / "mlflow.db").exists()
    assert {run.data.tags["dvc.experiment"] for run in search(tree.root).values()} == {"rate, noise"}
    assert set(current(tree.root)) == {"vanilla rte-300", "seed 0 of vanilla rte-300"}
    monkeypatch.delenv("DVC_EXP_NAME")
    for command in ("init -q", "commit -qm one --allow-empty", "update-ref refs/exps/a/b/rate HEAD"):
        git(tree.root, *command.split())
    sync(tree.root, [VANILLA, HYPE], [0])
    short = git(tree.root, "rev-parse", "--short", "HEAD")
    assert {run.data.tags["dvc.revision"] for run in search(tree.root).values()} == {short}


def test_an_added_seed_or_another_evaluation_makes_a_run_beside_the_one_before(tree: Tree) -> None:
    name, first = "hype_n rte-300", "seed 0 of hype_n rte-300"
    tree.cell(HYPE, SEEDS, evaluated=False)
    sync(tree.root, [HYPE], SEEDS)
    without = current(tree.root)
    assert "score" not in without[first].data.metrics
    tree.cell(HYPE, SEEDS)
    assert sync(tree.root, [HYPE], SEEDS).startswith("MLflow: 3 runs logged, 0 as before, 3 of earlier")
    before, mean = current(tree.root), sum(tree.scores(HYPE)) / 2
    tree.cell(HYPE, [0, 1, 2])
    assert sync(tree.root, [HYPE], [0, 1, 2]).startswith("MLflow: 2 runs logged, 2 as before, 4 of earlier")
    after = current(tree.root)
    score = pytest.approx(sum(tree.scores(HYPE)) / 3, rel=1e-5)
    assert (after[name].data.metrics["score"], after[name].data.metrics["seeds"]) == (score, 3)
    assert len(json.loads(after[name].data.tags["regft.keys"])) == 3
    assert {after[seed].data.tags["mlflow.parentRunId"] for seed in after if seed != name} == {after[name].info.run_id}
    assert after[first].info.run_id == before[first].info.run_id
    old = client(tree.root).get_run(before[name].info.run_id)
    assert (old.data.metrics["score"], "current" in old.data.tags) == (mean, False)
    assert client(tree.root).get_run(without[first].info.run_id).data.metrics.keys().isdisjoint({"score"})


def test_what_a_run_shows_is_its_own_and_another_finding_or_mark_makes_another_run(tree: Tree) -> None:
    name = "seed 0 of vanilla rte-300"
    tree.cell(VANILLA, [0])
    sync(tree.root, [VANILLA], [0])
    finding = {
        **{"seed": 0, "key": tree.key(VANILLA, 0), "status": "ok", "scalars": {}},
        "tables": {"dev": {"bins": {"columns": ["low"], "rows": [[0.5]]}}},
    }
    found = {"description": "", "options": {}, "runs": [finding]}
    path = f"work/evaluate/{VANILLA.directory}/evaluations/confidence.json"
    tree.write(path, found)
    assert sync(tree.root, [VANILLA], [0]).startswith("MLflow: 2 runs logged, 0 as before, 2 of earlier")
    assert (files_of(current(tree.root)[name]) / "confidence" / "dev-bins.json").is_file()
    tree.write(path, {**found, "runs": [{**finding, "environment": {"device": "cuda"}}]})
    assert sync(tree.root, [VANILLA], [0]).startswith("MLflow: 0 runs logged, 2 as before"), "equal but for the machine"
    tree.report("text", {MARK: "a tenth of the rows"})
    assert sync(tree.root, [VANILLA], [0]).startswith("MLflow: 3 runs logged, 0 as before, 4 of earlier")
    assert current(tree.root)[name].data.tags[MARK] == "a tenth of the rows"
    tree.cell(VANILLA, [0], overrides={"learning_rate": 1e-3})  # trained again, and not yet judged
    tree.write(path, {**found, "runs": [{**finding, "scalars": {"dev": {"ece": 0.1}}}]})
    sync(tree.root, [VANILLA], [0])
    for shown in (name, "vanilla rte-300"):
        assert "confidence.dev.ece" not in current(tree.root)[shown].data.metrics


def test_a_deleted_database_comes_back_with_earlier_configurations(tree: Tree, empty_database: Path) -> None:
    tree.cell(VANILLA, SEEDS)
    sync(tree.root, [VANILLA], SEEDS)
    rate = {"learning_rate": 1e-3}
    tree.cell(VANILLA, SEEDS, overrides=rate)
    tree.report("text")
    sync(tree.root, [VANILLA], SEEDS)
    tree.cell(VANILLA, SEEDS, overrides=rate, skill=0.95)
    sync(tree.root, [VANILLA], SEEDS)
    before = snapshot(tree.root)
    # Made again in a copy: MLflow in this process still has the other open. That no database does: promise 20.
    moved = Path(shutil.copytree(tree.root, tree.root.parent / "before", ignore=shutil.ignore_patterns("mlflow.db*")))
    shutil.copyfile(empty_database, moved / "mlflow.db")
    assert sync(moved, [VANILLA], SEEDS).startswith("MLflow: 0 runs logged, 4 as before, 6 of earlier")
    assert snapshot(moved) == before


def test_a_copied_project_never_writes_into_the_first(grid: Tree) -> None:
    sync(grid.root, [VANILLA], SEEDS)
    copy = Path(shutil.copytree(grid.root, grid.root.parent / "copy"))
    files = sorted(grid.root.rglob("*"))
    with raises_code(StoreError, "tracker-moved", "mlflow.db"):
        sync(copy, [VANILLA], SEEDS)
    assert sorted(grid.root.rglob("*")) == files


@pytest.mark.parametrize(
    ("owner", "at", "collapsed", "earlier"),
    [
        (Tracker, "_write", (1,), 0),
        (Tracker, "_finish", (1,), 0),
        (MlflowClient, "set_terminated", (1,), 0),
        (MlflowClient, "set_terminated", (), 2),  # a value was edited before the next sync
    ],
)
def test_a_killed_sync_is_made_good(
    grid: Tree, monkeypatch: pytest.MonkeyPatch, owner: Any, at: str, collapsed: tuple[int, ...], earlier: int
) -> None:
    calls = []

    def killed(self: Any, *arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        original(self, *arguments)

    original = getattr(owner, at)
    monkeypatch.setattr(owner, at, killed)
    with pytest.raises(KeyboardInterrupt):
        sync(grid.root, [VANILLA, HYPE], SEEDS)
    monkeypatch.undo()
    grid.cell(VANILLA, SEEDS, collapsed=collapsed)
    assert sync(grid.root, [VANILLA, HYPE], SEEDS).endswith(f" {earlier} of earlier configurations")
    mlflow = client(grid.root)
    runs = mlflow.search_runs([mlflow.get_experiment_by_name("regft").experiment_id])
    assert (len(runs), len(current(grid.root))) == (6 + earlier, 6)
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert all(len(history(grid.root, run, "score")) == 1 for run in runs)
    assert all(run.data.params for run in runs)


def test_a_register_of_exports(grid: Tree) -> None:
    key = grid.key(HYPE, 0)
    grid.write("exports/model/regft.json", {"run_key": key, "text": "review"})
    grid.write("exports/model/README.md", "---\ntags: [regft]\n---\n\n# A model\n")
    for skill in (0.75, 0.95, 0.75):  # the runs of two evaluations share a key; the last sync names the first of them
        grid.cell(HYPE, SEEDS, skill=skill)
        sync(grid.root, [HYPE], SEEDS)
    run = current(grid.root)["seed 0 of hype_n rte-300"]
    folder, tags = grid.root / "exports" / "model", {"method": "hype_n", "seed": "0"}
    assert register(grid.root, folder, "rte", tags) == 1
    assert register(grid.root, folder, "rte", tags) == 1, "the same content"
    (version,) = client(grid.root).search_model_versions("name = 'rte'")
    assert (version.run_id, version.description) == (run.info.run_id, "# A model")
    (folder / "README.md").write_text("other")
    assert register(grid.root, folder, "rte", tags) == 2
    assert "A model" in (Path(version.source.removeprefix("file://")) / "README.md").read_text()


def test_what_the_files_lack_is_left_out_and_what_is_damaged_is_named(grid: Tree) -> None:
    sync(grid.root, [VANILLA, SEARCHED], SEEDS)
    assert "weight_mixup rte-300" not in current(grid.root)
    grid.write("work/finetune/vanilla/rte/300/manifest.json", "{")
    with raises_code(DataError, "damaged-json", "manifest.json"):
        sync(grid.root, [VANILLA], SEEDS)
    (grid.root / "work/finetune/vanilla/rte/300/manifest.json").unlink()
    other = grid.root.parent / "other"
    other.mkdir()
    (other / "mlflow.db").write_text("not a database, but long enough to be read as one" * 100)
    with raises_code(StoreError, "tracker-refused", "mlflow.db"):
        sync(other, [VANILLA], SEEDS)


def test_what_mlflow_or_a_figure_cannot_take_stops_no_sync(tree: Tree) -> None:
    tree.cell(SEARCHED, [0])
    path = f"work/finetune/{SEARCHED.directory}/manifest.json"
    manifest = tree.read(path)
    manifest["settings"]["task"] = {"label_values": {"+": "good", "-": "bad"}}
    tree.write(path, manifest)
    logged = tree.root / f"work/finetune/{SEARCHED.directory}/method_metrics.csv"
    logged.write_text(logged.read_text() + "0,finetune,99,hype.noise,inf\n")
    key = tree.key(SEARCHED, 0, phase="search")
    tree.stored(key, {"status": "ok"})
    state = tree.root / f".regft/runs/{key[:2]}/{key}/state.safetensors"
    save_file({"none": np.zeros((0, 2), np.float32), "masked": np.full(3, -np.inf, np.float32)}, state)
    sync(tree.root, [SEARCHED], [0])
    cell = current(tree.root)["weight_mixup rte-300"]
    values = {name: value for name, value in cell.data.params.items() if "label_values" in name}
    assert values == {"task.label_values._x2b_": "good", "task.label_values.-": "bad"}
    shutil.rmtree(tree.root / "mlartifacts")
    tree.cell(SEARCHED, [0], overrides={"learning_rate": 1e-3})
    sync(tree.root, [SEARCHED], [0])
    tree.cell(SEARCHED, [0])
    tree.write(path, manifest)
    assert sync(tree.root, [SEARCHED], [0]).startswith("MLflow: 0 runs logged")
    assert current(tree.root)["weight_mixup rte-300"].info.run_id == cell.info.run_id


def test_nothing_is_written_elsewhere_and_the_commit_is_named(grid: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///elsewhere.db")
    for command in ("init -q", "add work/datasets", "commit -qm one"):
        git(grid.root, *command.split())
    sync(grid.root, [VANILLA], SEEDS)
    assert not list(Path.cwd().iterdir())
    tags = current(grid.root)["vanilla rte-300"].data.tags
    commit = git(grid.root, "rev-parse", "HEAD")
    assert (tags["mlflow.source.git.commit"], tags["mlflow.source.git.dirty"]) == (commit, "false")
