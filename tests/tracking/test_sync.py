"""The mirror says what the files say, once, and comes back when it is deleted."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType

from regft_core.errors import DataError, StoreError
from regft_core.tracking.database import database_uri
from regft_core.tracking.registry import register
from regft_core.tracking.sync import SyncResult, sync
from tests.errors import raises_code
from tests.tracking.tree import HYPE, SEARCHED, VANILLA, Tree, sha

SEEDS = [0, 1]


def client(root: Path) -> Any:
    return MlflowClient(tracking_uri=database_uri(root / "mlflow.db"), registry_uri=database_uri(root / "mlflow.db"))


def search(root: Path, text: str = "", view: int = ViewType.ACTIVE_ONLY) -> list[Any]:
    mlflow = client(root)
    experiment = mlflow.get_experiment_by_name("regft").experiment_id
    return list(mlflow.search_runs([experiment], text, view, max_results=1000))


def current(root: Path, kind: str = "run") -> dict[str, Any]:
    found = search(root, f"tags.`regft.status` = 'current' and tags.`regft.kind` = '{kind}'")
    names = {run.info.run_name: run for run in found}
    assert len(names) == len(found)
    return names


def snapshot(root: Path) -> dict[str, Any]:
    """Everything that a reader sees, without the identifiers that MLflow draws."""
    mlflow, runs = client(root), search(root, "", ViewType.ALL)
    names = {run.info.run_id: run.info.run_name for run in runs}
    found = {}
    for run in runs:
        tags = {key: names.get(value, value) for key, value in run.data.tags.items()}
        curves = {
            name: [(m.step, m.timestamp, m.value) for m in mlflow.get_metric_history(run.info.run_id, name)]
            for name in run.data.metrics
        }
        files = Path(run.info.artifact_uri.removeprefix("file://"))
        contents = {str(p.relative_to(files)): p.read_text() for p in sorted(files.rglob("*")) if p.is_file()}
        inputs = [(i.dataset.name, i.dataset.digest) for i in run.inputs.dataset_inputs]
        key = run.info.run_name, run.data.tags["regft.status"]
        assert key not in found
        found[key] = (
            tags,
            run.data.params,
            curves,
            contents,
            inputs,
            run.info.status,
            run.info.start_time,
            run.info.end_time,
            run.info.lifecycle_stage,
        )
    return found


@pytest.fixture
def grid(tree: Tree) -> Tree:
    tree.subsample("rte", 300, SEEDS)
    tree.cell(VANILLA, SEEDS, collapsed=(1,))
    tree.cell(HYPE, SEEDS)
    return tree


def test_one_run_per_seed_nested_under_one_per_cell(grid: Tree) -> None:
    assert sync(grid.root, [VANILLA, HYPE], SEEDS) == SyncResult(created=6, updated=0, unchanged=0, superseded=0)
    parents, runs = current(grid.root, "cell"), current(grid.root)
    assert set(parents) == {"vanilla rte-300", "hype_n rte-300"}
    assert set(runs) == {f"seed {seed} of {name}" for name in parents for seed in SEEDS}
    for name, run in runs.items():
        assert run.data.tags["mlflow.parentRunId"] == parents[name.split(" of ", 1)[1]].info.run_id
        assert run.info.status == "FINISHED"
        assert run.info.end_time - run.info.start_time == 30_000


def test_a_second_sync_adds_nothing(grid: Tree) -> None:
    grid.report("first")
    sync(grid.root, [VANILLA, HYPE], SEEDS)
    before = snapshot(grid.root)
    assert sync(grid.root, [VANILLA, HYPE], SEEDS) == SyncResult(created=0, updated=0, unchanged=7, superseded=0)
    assert snapshot(grid.root) == before


def test_a_deleted_database_comes_back_equal(grid: Tree, empty_database: Path) -> None:
    grid.report("first")
    sync(grid.root, [VANILLA, HYPE], SEEDS)
    before = snapshot(grid.root)
    for file in grid.root.glob("mlflow.db*"):
        file.unlink()
    # Saves the seconds that making the tables takes; the two syncs at once below start from nothing.
    shutil.copyfile(empty_database, grid.root / "mlflow.db")
    assert sync(grid.root, [VANILLA, HYPE], SEEDS).created == 7
    assert snapshot(grid.root) == before


def test_numbers_parameters_files_and_data_of_a_run(grid: Tree) -> None:
    sync(grid.root, [VANILLA, HYPE], SEEDS)
    run = current(grid.root)["seed 1 of hype_n rte-300"]
    metrics, params, tags = run.data.metrics, run.data.params, run.data.tags
    assert metrics["dev.accuracy"] == pytest.approx(0.66)
    assert metrics["hans.accuracy"] == pytest.approx(0.56)
    assert metrics["dev.accuracy.majority"] == 0.5
    assert (metrics["collapsed"], metrics["cost.train_seconds"], metrics["cost.declared_ratio"]) == (0.0, 30.0, 1.5)
    assert "cost.peak_memory_bytes" not in metrics  # null on a CPU
    assert params["hype.scale"] == "1e-05"
    assert (params["hype.distribution"], params["learning_rate"], params["dropout.hidden"]) == (
        "normal",
        "0.0001",
        "0.0",
    )
    assert (params["method"], params["task"], params["size"], params["seed"]) == ("hype_n", "rte", "300", "1")
    assert (tags["regularisers"], tags["variant"], tags["phases"]) == ("hype", "paper", "finetune")
    assert tags["regft.key"] == grid.key(HYPE, 1, 1e-4)
    files = Path(run.info.artifact_uri.removeprefix("file://"))
    assert (files / "predictions" / "hans.jsonl").read_bytes() == (
        grid.root / "work/evaluate/hype_n/rte/300/predictions/seed-1/hans.jsonl"
    ).read_bytes()
    assert "scale: 1.0e-05" in (files / "config.yaml").read_text()
    [dataset] = run.inputs.dataset_inputs
    manifest = json.loads((grid.root / "work/subsamples/rte/300/manifest.json").read_text())
    assert manifest["seeds"]["1"]["sha256"].startswith(dataset.dataset.digest)
    assert (dataset.dataset.name, len(dataset.dataset.digest)) == ("rte-300", 32)
    assert current(grid.root)["seed 1 of vanilla rte-300"].data.tags["collapsed"] == "constant"


def test_cells_and_seeds_name_the_rows_that_trained_and_judged(grid: Tree) -> None:
    sync(grid.root, [HYPE], SEEDS)
    grid.task("rte")  # an earlier version of the mirror named only the training rows
    assert sync(grid.root, [HYPE], SEEDS) == SyncResult(created=0, updated=3, unchanged=0, superseded=0)
    cell, seed = current(grid.root, "cell")["hype_n rte-300"], current(grid.root)["seed 1 of hype_n rte-300"]
    for run, training in ((cell, "rte train"), (seed, "rte-300")):
        inputs = {one.dataset.name: (one.tags[0].value, one.dataset.digest) for one in run.inputs.dataset_inputs}
        assert {name: context for name, (context, _) in inputs.items()} == {
            training: "training",
            "rte dev": "evaluation",
            "rte hans": "evaluation",
        }
        assert inputs["rte dev"][1] == sha("rte", "dev", 0)[:32]
    assert sync(grid.root, [HYPE], SEEDS).unchanged == 3
    (grid.root / "work/evaluate" / HYPE.directory / "result.json").unlink()  # made again meanwhile
    assert sync(grid.root, [HYPE], SEEDS).superseded == 0
    grid.evaluation(HYPE, SEEDS)
    grid.task("rte", version=1)  # other rows: another run, since MLflow takes no dataset away
    assert sync(grid.root, [HYPE], SEEDS).superseded == 1
    data = current(grid.root, "cell")["hype_n rte-300"].inputs.dataset_inputs
    assert sorted(one.dataset.name for one in data) == ["rte dev", "rte hans", "rte train"]


def test_runs_name_the_commit_of_the_project_when_they_came_in(grid: Tree) -> None:
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git, "init", "-q", "-b", "trunk"], cwd=grid.root, check=True)
    grid.write("params.yaml", "a: 1\n")
    subprocess.run([*git, "add", "params.yaml"], cwd=grid.root, check=True)
    subprocess.run([*git, "commit", "-qm", "one"], cwd=grid.root, check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], cwd=grid.root, capture_output=True, text=True).stdout.strip()
    sync(grid.root, [VANILLA], SEEDS)
    grid.write("params.yaml", "a: 2\n")
    sync(grid.root, [VANILLA, HYPE], SEEDS)
    tags = {name: run.data.tags for name, run in (current(grid.root) | current(grid.root, "cell")).items()}
    assert {own["mlflow.source.git.commit"] for own in tags.values()} == {head}
    assert {own["mlflow.source.git.branch"] for own in tags.values()} == {"trunk"}
    assert {own["mlflow.source.name"] for own in tags.values()} == {"dvc.yaml"}
    dirty = {name: own["mlflow.source.git.dirty"] for name, own in tags.items()}
    assert (dirty["vanilla rte-300"], dirty["seed 0 of hype_n rte-300"]) == ("false", "true")


def test_an_export_becomes_a_version_of_its_task_on_request(grid: Tree) -> None:
    sync(grid.root, [HYPE], SEEDS)
    key = grid.key(HYPE, 0, 1e-4)
    folder = grid.write("exports/hype_n-rte-300-seed-0/README.md", f"- **Run**: `{key}`\n").parent
    (folder / "model.safetensors").write_text("weights")
    assert register(grid.root, folder, "rte", {"method": "hype_n"}) == 1
    assert register(grid.root, folder, "rte", {"method": "hype_n"}) == 1  # the same content
    (folder / "model.safetensors").write_text("others")
    assert register(grid.root, folder, "rte", {"method": "hype_n"}) == 2
    first, second = (client(grid.root).get_model_version("rte", number) for number in ("1", "2"))
    assert first.run_id == second.run_id == current(grid.root)["seed 0 of hype_n rte-300"].info.run_id
    assert (first.tags["method"], first.tags["regft.key"]) == ("hype_n", key)
    # What is registered stays as it was.
    copies = [Path(one.source.removeprefix("file://")) / "model.safetensors" for one in (first, second)]
    assert [copy.read_text() for copy in copies] == ["weights", "others"]


def test_mirrored_files_open_in_the_pages_viewer(grid: Tree) -> None:
    grid.report("first")
    grid.write("reports/leaderboard.txt", "1 hype_n\n")
    sync(grid.root, [VANILLA, HYPE], SEEDS)
    files = [path for path in (grid.root / "mlartifacts").rglob("*") if path.is_file()]
    assert files
    # Of the viewer of MLflow 3.17: text, images, tables, pages.
    assert {path.suffix for path in files} <= {".yaml", ".json", ".jsonl", ".txt", ".csv", ".svg", ".html"}


def test_parents_hold_means_and_the_reports_intervals(grid: Tree) -> None:
    bounds = {"mean": 0.655, "low": 0.6, "high": 0.7, "n": 2}
    stale = {"mean": 0.9, "low": 0.8, "high": 1.0, "n": 2}
    numbers = {"dev": {"accuracy": bounds}, "hans": {"accuracy": stale}, "failed": 0, "cost_ratio": {"measured": 1.2}}
    words = {"verdict_reference": "better", "no_better_than_constant": ["hans"]}
    old = {"dev": {"accuracy": stale}} | words  # of other runs: its words are not taken
    grid.report("first", {"rte-300": {"hype_n": numbers | words, "vanilla": old}})
    sync(grid.root, [VANILLA, HYPE], SEEDS)
    tags = {name: current(grid.root, "cell")[f"{name} rte-300"].data.tags for name in ("hype_n", "vanilla")}
    assert (tags["hype_n"]["verdict_reference"], tags["hype_n"]["no_better_than_constant"]) == ("better", "hans")
    assert "verdict_reference" not in tags["vanilla"]
    metrics = current(grid.root, "cell")["hype_n rte-300"].data.metrics
    assert metrics["dev.accuracy"] == pytest.approx(0.655)
    assert (metrics["dev.accuracy.low"], metrics["dev.accuracy.high"], metrics["cost.ratio_measured"]) == (
        0.6,
        0.7,
        1.2,
    )
    assert (metrics["primary.low"], metrics["primary.high"]) == (0.6, 0.7)
    assert "hans.accuracy.low" not in metrics  # the report's mean is of other runs
    assert current(grid.root, "cell")["vanilla rte-300"].data.metrics["collapsed_runs"] == 1
    grid.report("second", {"rte-300": {"hype_n": numbers}})
    sync(grid.root, [VANILLA, HYPE], SEEDS)
    kept = current(grid.root, "cell")["hype_n rte-300"].data.tags.keys()
    assert not kept & {"verdict_reference", "no_better_than_constant"}  # no word outlives its report


def test_curves_are_complete_and_of_each_phase(tree: Tree) -> None:
    tree.cell(SEARCHED, [0], steps=700)  # more points than one batch takes
    sync(tree.root, [SEARCHED], [0])
    run, mlflow = current(tree.root)["seed 0 of weight_mixup rte-300"], client(tree.root)
    for name in ("loss", "search-0.loss", "search-1.gradient_norm", "learning_rate"):
        history = mlflow.get_metric_history(run.info.run_id, name)
        assert [point.step for point in history] == list(range(1, 701))
        times = [point.timestamp for point in history]
        assert times == sorted(times)
        assert run.info.start_time <= times[0]
        assert times[-1] <= run.info.end_time
    assert [p.value for p in mlflow.get_metric_history(run.info.run_id, "loss")] == [1 / s for s in range(1, 701)]
    assert len(mlflow.get_metric_history(run.info.run_id, "search-1.hype.noise")) == 350
    assert run.info.end_time - run.info.start_time == 60_000
    assert (run.data.params["weight_mixup.rank"], run.data.params["search.weight_mixup.rank"]) == ("1", "1")


def test_scores_by_epoch_are_a_metric_by_step(tree: Tree) -> None:
    tree.cell(VANILLA, [0])
    path = tree.root / "work" / "finetune" / VANILLA.directory / "manifest.json"
    manifest = json.loads(path.read_text())
    looks = [
        ["finetune", "dev", 2, 1.0, 0.6],
        ["finetune", "dev", 4, 2.0, 0.7],
        ["finetune", "hold_out", 4, 2.0, None],
    ]
    manifest["runs"][0]["epoch_scores"] = {"metric": "accuracy", "scores": looks}
    path.write_text(json.dumps(manifest))
    sync(tree.root, [VANILLA], [0])
    run, mlflow = current(tree.root)["seed 0 of vanilla rte-300"], client(tree.root)
    history = mlflow.get_metric_history(run.info.run_id, "epoch.dev.accuracy")
    assert [(point.step, point.value) for point in history] == [(2, 0.6), (4, 0.7)]
    assert history[-1].timestamp <= run.info.end_time
    assert "epoch.hold_out.accuracy" not in run.data.metrics  # no look gave a number
    assert len(mlflow.get_metric_history(run.info.run_id, "dev.accuracy")) == 1  # the score itself stays one value
    assert sync(tree.root, [VANILLA], [0]).unchanged == 2


def test_a_changed_cell_supersedes_its_old_runs_and_a_revert_brings_them_back(grid: Tree) -> None:
    sync(grid.root, [VANILLA, HYPE], SEEDS)
    before = snapshot(grid.root)
    grid.cell(HYPE, SEEDS, learning_rate=5e-5)
    assert sync(grid.root, [VANILLA, HYPE], SEEDS) == SyncResult(created=3, updated=0, unchanged=3, superseded=3)
    assert current(grid.root)["seed 0 of hype_n rte-300"].data.params["learning_rate"] == "5e-05"
    # The README's filter finds current runs only; the others are kept out of the way.
    found = search(grid.root, "params.task = 'rte' and params.method = 'hype_n'")
    assert [run.data.params["learning_rate"] for run in found] == ["5e-05"] * 3
    assert search(grid.root, "tags.`regft.status` = 'superseded'") == []
    old = search(grid.root, "tags.`regft.status` = 'superseded'", ViewType.DELETED_ONLY)
    assert [run.data.params["learning_rate"] for run in old] == ["0.0001"] * 3
    assert all(any(Path(run.info.artifact_uri.removeprefix("file://")).iterdir()) for run in old)
    assert sync(grid.root, [VANILLA, HYPE], SEEDS) == SyncResult(created=0, updated=0, unchanged=6, superseded=0)
    grid.cell(HYPE, SEEDS)
    assert sync(grid.root, [VANILLA, HYPE], SEEDS) == SyncResult(created=0, updated=3, unchanged=3, superseded=3)
    after = snapshot(grid.root)
    assert {key: after[key] for key in before} == before
    assert {value[-1] for key, value in after.items() if key[1] == "superseded"} == {"deleted"}


def test_runs_that_an_earlier_version_left_in_sight_are_retired(grid: Tree) -> None:
    sync(grid.root, [VANILLA, HYPE], SEEDS)
    sync(grid.root, [VANILLA], SEEDS)
    old = search(grid.root, "params.method = 'hype_n'", ViewType.DELETED_ONLY)
    for run in old:
        client(grid.root).restore_run(run.info.run_id)  # also what a sync does that is then killed
    assert sync(grid.root, [VANILLA], SEEDS).superseded == 0
    assert search(grid.root, "params.method = 'hype_n'") == []
    assert sync(grid.root, [VANILLA, HYPE], SEEDS) == SyncResult(created=0, updated=3, unchanged=3, superseded=0)


def test_a_run_that_the_user_deleted_is_made_anew(grid: Tree) -> None:
    sync(grid.root, [HYPE], SEEDS)
    deleted = current(grid.root)["seed 0 of hype_n rte-300"].info.run_id
    client(grid.root).delete_run(deleted)
    assert sync(grid.root, [HYPE], SEEDS) == SyncResult(created=1, updated=0, unchanged=2, superseded=0)
    assert current(grid.root)["seed 0 of hype_n rte-300"].info.run_id != deleted
    assert client(grid.root).get_run(deleted).info.lifecycle_stage == "deleted"


def test_what_and_how_good_is_a_parameter_a_tag_and_a_metric(grid: Tree) -> None:
    sync(grid.root, [VANILLA, HYPE], SEEDS)
    wanted = {"method": "hype_n", "task": "rte", "size": "300"}
    cell = current(grid.root, "cell")["hype_n rte-300"].data
    seed = current(grid.root)["seed 1 of hype_n rte-300"].data
    for data, expected in ((cell, wanted), (seed, wanted | {"seed": "1"})):
        assert expected.items() <= data.params.items()
        assert expected.items() <= data.tags.items()
        assert data.metrics["primary"] == data.metrics["dev.accuracy"]
        assert data.tags["primary"] == "accuracy"
    assert (cell.metrics["primary"], seed.metrics["primary"]) == (pytest.approx(0.655), pytest.approx(0.66))


def test_what_the_encoder_was_trained_on_is_a_tag_of_arms_that_read_it(grid: Tree) -> None:
    table = "trained_on: {ours: {encoders: [minilm], source: its card, tasks: {rte: RTE 1 to 5}}}\n"
    grid.write("pipelines/contamination.yaml", table)
    manifest = grid.root / f"work/finetune/{VANILLA.directory}/manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "reads_encoder": False}))
    sync(grid.root, [VANILLA, HYPE], SEEDS)
    tagged = {run.info.run_name for run in search(grid.root, "tags.contaminated = 'rte: RTE 1 to 5 (its card)'")}
    assert tagged == {"hype_n rte-300", "seed 0 of hype_n rte-300", "seed 1 of hype_n rte-300"}
    # The table is read anew: what is no longer in it is no longer said.
    grid.write("pipelines/contamination.yaml", "trained_on: {}\n")
    assert sync(grid.root, [VANILLA, HYPE], SEEDS).created == 0
    assert search(grid.root, "tags.contaminated LIKE '%RTE%'") == []


def test_a_number_that_the_mirror_did_not_know_is_added(grid: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    from regft_core.tracking import reading

    def earlier(*known: Any) -> dict[str, float]:
        return {name: value for name, value in now(*known).items() if name != "primary"}

    now = reading.run_scores
    with monkeypatch.context() as patch:
        patch.setattr(reading, "run_scores", earlier)
        sync(grid.root, [HYPE], SEEDS)
    assert "primary" not in current(grid.root)["seed 1 of hype_n rte-300"].data.metrics
    assert sync(grid.root, [HYPE], SEEDS) == SyncResult(created=0, updated=3, unchanged=0, superseded=0)
    assert current(grid.root)["seed 1 of hype_n rte-300"].data.metrics["primary"] == pytest.approx(0.66)
    assert sync(grid.root, [HYPE], SEEDS).unchanged == 3


def test_what_leaves_the_grid_is_superseded(grid: Tree) -> None:
    sync(grid.root, [VANILLA, HYPE], SEEDS)
    assert sync(grid.root, [VANILLA], [0]).superseded == 4  # the cell of HyPe with its two seeds, and a seed of vanilla
    assert set(current(grid.root)) == {"seed 0 of vanilla rte-300"}
    assert set(current(grid.root, "cell")) == {"vanilla rte-300"}


def test_an_added_seed_adds_one_run_and_moves_the_mean(grid: Tree) -> None:
    sync(grid.root, [HYPE], SEEDS)
    grid.cell(HYPE, [0, 1, 2])
    assert sync(grid.root, [HYPE], [0, 1, 2]) == SyncResult(created=1, updated=1, unchanged=2, superseded=0)
    parent = current(grid.root, "cell")["hype_n rte-300"]
    assert parent.data.metrics["dev.accuracy"] == pytest.approx(0.66)
    assert parent.data.metrics["runs"] == 3
    assert {r.data.tags["mlflow.parentRunId"] for r in current(grid.root).values()} == {parent.info.run_id}


def test_a_failed_run_is_failed_and_says_why(tree: Tree) -> None:
    tree.cell(HYPE, SEEDS, failed=(1,))
    sync(tree.root, [HYPE], SEEDS)
    runs = current(tree.root)
    failed = runs["seed 1 of hype_n rte-300"]
    assert (failed.info.status, failed.data.tags["error"]) == ("FAILED", "loss became NaN at step 3")
    assert "dev.accuracy" not in failed.data.metrics
    assert runs["seed 0 of hype_n rte-300"].info.status == "FINISHED"
    parent = current(tree.root, "cell")["hype_n rte-300"]
    assert (parent.info.status, parent.data.tags["status"]) == ("FINISHED", "partly failed")
    assert parent.data.metrics["failed_runs"] == 1
    assert parent.data.metrics["dev.accuracy"] == pytest.approx(0.65)


def test_an_evaluation_completes_the_run_that_waited_for_it(tree: Tree) -> None:
    tree.cell(HYPE, [0], evaluated=False)
    sync(tree.root, [HYPE], [0])
    before = current(tree.root)["seed 0 of hype_n rte-300"]
    assert "dev.accuracy" not in before.data.metrics
    tree.evaluation(HYPE, [0])
    assert sync(tree.root, [HYPE], [0]) == SyncResult(created=0, updated=2, unchanged=0, superseded=0)
    after = current(tree.root)["seed 0 of hype_n rte-300"]
    assert after.info.run_id == before.info.run_id
    assert after.data.metrics["dev.accuracy"] == pytest.approx(0.65)
    assert sync(tree.root, [HYPE], [0]).unchanged == 2


def test_a_changed_evaluation_makes_a_new_run_and_an_absent_one_none(tree: Tree) -> None:
    tree.cell(HYPE, [0])
    sync(tree.root, [HYPE], [0])
    result = tree.root / "work/evaluate/hype_n/rte/300/result.json"
    result.rename(result.with_suffix(".away"))  # DVC deletes outputs before it makes them again
    assert sync(tree.root, [HYPE], [0]).created == 0
    result.with_suffix(".away").rename(result)
    tree.evaluation(HYPE, [0], shift=0.1)
    assert sync(tree.root, [HYPE], [0]) == SyncResult(created=1, updated=1, unchanged=0, superseded=1)
    assert current(tree.root)["seed 0 of hype_n rte-300"].data.metrics["dev.accuracy"] == pytest.approx(0.75)
    assert current(tree.root, "cell")["hype_n rte-300"].data.metrics["dev.accuracy"] == pytest.approx(0.75)


def test_an_evaluation_of_another_key_is_not_mixed_in(tree: Tree) -> None:
    tree.cell(HYPE, [0])
    tree.cell(HYPE, [0], learning_rate=5e-5, evaluated=False)
    sync(tree.root, [HYPE], [0])
    run = current(tree.root)["seed 0 of hype_n rte-300"]
    assert (run.data.params["learning_rate"], "dev.accuracy" in run.data.metrics) == ("5e-05", False)


def test_a_number_that_is_gone_becomes_nan_on_the_parent(tree: Tree) -> None:
    tree.cell(HYPE, [0])
    sync(tree.root, [HYPE], [0])
    path = tree.root / "work/evaluate/hype_n/rte/300/result.json"
    result = json.loads(path.read_text())
    del result["runs"][0]["sets"]["hans"]
    path.write_text(json.dumps(result))
    sync(tree.root, [HYPE], [0])
    parent = current(tree.root, "cell")["hype_n rte-300"]
    assert math.isnan(parent.data.metrics["hans.accuracy"])
    assert "hans.accuracy" not in current(tree.root)["seed 0 of hype_n rte-300"].data.metrics
    assert sync(tree.root, [HYPE], [0]).unchanged == 2


def test_tags_follow_the_files_without_a_new_run(grid: Tree) -> None:
    control = {"control_for": ["hype_n"], "differs_by": "no noise"}
    grid.cell(VANILLA, SEEDS, method=control)
    sync(grid.root, [VANILLA], SEEDS)
    assert len(search(grid.root, "tags.control_for = 'hype_n'")) == 3
    grid.cell(VANILLA, SEEDS)
    grid.write("exports/best/README.md", f"# best\n\n- **Seed**: 1\n- **Run**: {grid.key(VANILLA, 1, 1e-4)}\n")
    assert sync(grid.root, [VANILLA], SEEDS) == SyncResult(created=0, updated=3, unchanged=0, superseded=0)
    assert search(grid.root, "tags.control_for = 'hype_n'") == []
    [exported] = search(grid.root, "tags.`regft.export` = 'exports/best'")
    assert exported.info.run_name == "seed 1 of vanilla rte-300"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "tags.task = 'rte' and tags.method = 'hype_n'",
            ["hype_n rte-300", "seed 0 of hype_n rte-300", "seed 1 of hype_n rte-300"],
        ),
        ("params.task = 'rte' and params.method = 'hype_n' and params.seed = '1'", ["seed 1 of hype_n rte-300"]),
        ("run_name LIKE '%hype_n rte%' and params.seed = '0'", ["seed 0 of hype_n rte-300"]),
        ("tags.regularisers LIKE '%hype%' and tags.`regft.kind` = 'cell'", ["hype_n rte-300"]),
        ("metrics.`dev.accuracy` > 0.655 and tags.`regft.kind` = 'run'", ["seed 1 of hype_n rte-300"]),
        ("metrics.dev.accuracy > 0.655 and tags.regft.kind = 'run'", ["seed 1 of hype_n rte-300"]),
        ("metrics.collapsed = 1", ["seed 1 of vanilla rte-300"]),
        ("dataset.name = 'rte-300' and params.seed = '0'", ["seed 0 of hype_n rte-300", "seed 0 of vanilla rte-300"]),
    ],
)
def test_filters(synced: Path, text: str, names: list[str]) -> None:
    assert sorted(run.info.run_name for run in search(synced, text)) == names


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    root = tmp_path_factory.mktemp("synced")
    (root / "mlflow.db").write_bytes(empty_database.read_bytes())
    tree = Tree(root)
    tree.subsample("rte", 300, SEEDS)
    tree.cell(VANILLA, SEEDS, collapsed=(1,))
    tree.cell(HYPE, SEEDS)
    sync(root, [VANILLA, HYPE], SEEDS)
    return root


def test_the_report_is_one_run_that_follows_the_file(tree: Tree) -> None:
    tree.report("first")
    assert sync(tree.root, [], []).created == 1
    tree.report("second")
    assert sync(tree.root, [], []) == SyncResult(created=0, updated=1, unchanged=0, superseded=0)
    [run] = search(tree.root)
    files = Path(run.info.artifact_uri.removeprefix("file://"))
    assert (run.info.run_name, "second" in (files / "report.html").read_text()) == ("report", True)
    assert (files / "plots" / "curves.csv").is_file()


def test_nothing_is_written_elsewhere(grid: Tree) -> None:
    work = sorted(path for path in (grid.root / "work").rglob("*"))
    sync(grid.root, [VANILLA], SEEDS)
    assert list(Path.cwd().iterdir()) == []  # no ./mlruns
    assert sorted(path for path in (grid.root / "work").rglob("*")) == work
    assert {path.name for path in grid.root.iterdir()} == {
        *("work", "mlflow.db", "mlflow.db.lock", "mlflow.db.synced", "mlartifacts")
    }


def test_an_old_mlruns_directory_and_environment_do_not_redirect(grid: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    (Path.cwd() / "mlruns" / "0").mkdir(parents=True)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///elsewhere.db")
    assert sync(grid.root, [VANILLA], SEEDS).created == 3
    assert not Path("elsewhere.db").exists()
    assert list(Path("mlruns").iterdir()) == [Path("mlruns/0")]


@pytest.mark.parametrize("at", ["create_run", "log_batch", "set_terminated"])
def test_a_killed_sync_is_made_good(grid: Tree, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    calls = []

    def call(self: Any, *values: Any, **named: Any) -> Any:
        calls.append(values)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, *values, **named)

    original = getattr(MlflowClient, at)
    monkeypatch.setattr(MlflowClient, at, call)
    with pytest.raises(KeyboardInterrupt):
        sync(grid.root, [VANILLA, HYPE], SEEDS)
    monkeypatch.undo()
    assert sync(grid.root, [VANILLA, HYPE], SEEDS) == SyncResult(created=4, updated=0, unchanged=2, superseded=0)
    assert len(search(grid.root)) == 6
    assert sync(grid.root, [VANILLA, HYPE], SEEDS).unchanged == 6


TWO_SYNCS = """
import sys
from pathlib import Path
from regft_core.settings.grid import Cell
from regft_core.tracking.sync import sync
result = sync(Path(sys.argv[1]), [Cell("vanilla", "rte", 300), Cell("hype_n", "rte", 300)], [0, 1])
print(result.created, result.unchanged)
"""


def test_two_syncs_at_once_write_once(grid: Tree) -> None:
    (grid.root / "mlflow.db").unlink()  # both find no schema: the moment when MLflow's own writers crash
    command = [sys.executable, "-c", TWO_SYNCS, str(grid.root)]
    project = Path(__file__).parents[2]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=project) for _ in range(2)]
    results = sorted(process.communicate(timeout=120)[0].split() for process in running)
    assert [process.returncode for process in running] == [0, 0]
    assert results == [["0", "6"], ["6", "0"]]
    assert len(search(grid.root)) == 6


def test_runs_of_others_are_left_alone(grid: Tree) -> None:
    sync(grid.root, [VANILLA], SEEDS)
    mlflow = client(grid.root)
    mine = mlflow.create_run(mlflow.get_experiment_by_name("regft").experiment_id, run_name="mine").info.run_id
    mlflow.set_tag(search(grid.root, "params.seed = '0'")[0].info.run_id, "my_note", "keep")
    sync(grid.root, [HYPE], SEEDS)
    sync(grid.root, [VANILLA], SEEDS)
    assert "regft.status" not in mlflow.get_run(mine).data.tags
    assert search(grid.root, "tags.my_note = 'keep'")[0].data.tags["regft.status"] == "current"


def test_long_values_are_only_in_the_config(tree: Tree) -> None:
    method = {"regularisers": [{"hype": {"layers": list(range(400)), "scale": 1e-5}}], "training": {}}
    tree.cell(HYPE, [0], method=method)
    sync(tree.root, [HYPE], [0])
    run = current(tree.root)["seed 0 of hype_n rte-300"]
    assert ("hype.layers" in run.data.params, "hype.scale" in run.data.params) == (False, True)
    assert "- 399" in Path(run.info.artifact_uri.removeprefix("file://"), "config.yaml").read_text()


@pytest.mark.parametrize("how", ["copied", "moved"])
def test_a_copied_project_gets_a_database_of_its_own(grid: Tree, caplog: pytest.LogCaptureFixture, how: str) -> None:
    grid.report("first")
    sync(grid.root, [VANILLA], SEEDS)
    mine = client(grid.root).create_run(search(grid.root)[0].info.experiment_id, run_name="mine").info.run_id
    here = [run.to_dictionary() for run in search(grid.root)]
    files = {path: path.read_bytes() for path in (grid.root / "mlartifacts").rglob("*") if path.is_file()}
    there = grid.root.with_name("project two")  # with a space, which addresses write as %20
    if how == "copied":
        shutil.copytree(grid.root, there)
    else:
        grid.root.rename(there)
    assert sync(there, [VANILLA], SEEDS) == SyncResult(created=4, updated=0, unchanged=0, superseded=0)
    assert f"belongs to a project in {grid.root} " in caplog.text
    assert "it is now mlflow.db.moved-1, its files are in mlartifacts.moved-1" in caplog.text
    for run in search(there):
        place = Path(unquote(run.info.artifact_uri.removeprefix("file://")))
        assert place.is_relative_to(there / "mlartifacts")
        assert any(place.iterdir())
    assert sync(there, [VANILLA], SEEDS).unchanged == 4
    old = MlflowClient(database_uri(there / "mlflow.db.moved-1"))
    assert old.get_run(mine).info.run_name == "mine"  # nothing of the user's is lost
    kept = {there / "mlartifacts.moved-1" / path.relative_to(grid.root / "mlartifacts") for path in files}
    assert {path: path.read_bytes() for path in kept} == {
        there / "mlartifacts.moved-1" / path.relative_to(grid.root / "mlartifacts"): content
        for path, content in files.items()
    }
    if how == "copied":
        assert sync(grid.root, [VANILLA], SEEDS).unchanged == 4
        assert [run.to_dictionary() for run in search(grid.root)] == here
    again = there.rename(grid.root.with_name("third"))
    assert sync(again, [VANILLA], SEEDS).created == 4
    assert {path.name for path in again.iterdir()} >= {"mlflow.db.moved-1", "mlflow.db.moved-2", "mlartifacts.moved-2"}


def test_setting_aside_that_was_killed_is_completed(grid: Tree) -> None:
    sync(grid.root, [VANILLA], SEEDS)
    moved = grid.root.rename(grid.root.with_name("moved"))
    (moved / "mlartifacts").rename(moved / "mlartifacts.moved-1")  # and then it was killed
    assert sync(moved, [VANILLA], SEEDS).created == 3
    assert (moved / "mlflow.db.moved-1").is_file()


def test_a_broken_database_is_explained(grid: Tree) -> None:
    (grid.root / "mlflow.db").write_bytes(b"not a database" * 100)
    with raises_code(StoreError, "tracker-unreadable", "mlflow.db"):
        sync(grid.root, [VANILLA], SEEDS)


def test_a_damaged_work_file_is_named(grid: Tree) -> None:
    grid.write("work/finetune/vanilla/rte/300/manifest.json", "{")
    with raises_code(DataError, "damaged-json", "finetune/vanilla/rte/300/manifest.json"):
        sync(grid.root, [VANILLA], SEEDS)


def test_a_run_that_was_only_searched_is_left_out(tree: Tree) -> None:
    tree.cell(SEARCHED, [0], evaluated=False)
    shutil.rmtree(tree.root / "work" / "finetune")
    assert sync(tree.root, [SEARCHED], [0]) == SyncResult(0, 0, 0, 0)


def test_cells_that_were_not_run_are_left_out(tree: Tree) -> None:
    assert sync(tree.root, [VANILLA, HYPE], SEEDS) == SyncResult(0, 0, 0, 0)
