"""Cells: executors and order do not matter, seeds are reused, failures are shown, nothing is lost."""

from __future__ import annotations

import csv
import json
import os
import platform
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.errors import StoreError
from regft_core.phases import training_run
from regft_core.phases.cells import KEEP_FREED_MEMORY, describe, run_cell
from regft_core.phases.context import Context, Job
from regft_core.phases.evaluate import evaluate
from regft_core.phases.finetune import ensure_finetuned, finetune, finetune_identity
from regft_core.phases.outputs import write_evaluation, write_training
from regft_core.phases.search import search
from tests.phases.conftest import PARAMS, refresh

TASK = ("cue_sentence", "24")


def change(root: Path, **changes: Any) -> None:
    params = yaml.safe_load((root / "params.yaml").read_text())
    for key, value in changes.items():
        params[key] = {**params[key], **value}
    (root / "params.yaml").write_text(yaml.dump(params))


def essence(records: list[dict[str, Any]]) -> dict[int, Any]:
    return {r["seed"]: {k: v for k, v in r.items() if k not in ("seconds", "cost", "search_cost")} for r in records}


def test_executor_and_order_do_not_matter(make_project: Callable[..., Path], tmp_path: Path) -> None:
    root = make_project(grid={"tasks": ["cue_sentence"], "sizes": [24], "seeds": [0, 1, 2]})
    _, serial = run_cell(root, finetune, "hype_n", *TASK)
    params = yaml.safe_load((root / "params.yaml").read_text())
    params["store"] = {"path": str(tmp_path / "reverse")}
    params["grid"]["seeds"] = [2, 1, 0]
    (root / "params.yaml").write_text(yaml.dump(params))
    _, reverse = run_cell(root, finetune, "hype_n", *TASK)
    params["store"] = {"path": str(tmp_path / "processes")}
    params["execution"] = {**params["execution"], "executor": "processes", "workers": 2}
    (root / "params.yaml").write_text(yaml.dump(params))
    _, processes = run_cell(root, finetune, "hype_n", *TASK)
    assert essence(serial) == essence(reverse) == essence(processes)
    weights = [ensure_finetuned(Context(Job(str(root), "hype_n", *TASK, seed))).tensors_sha256() for seed in (0, 1, 2)]
    assert len(set(weights)) == 3


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def report_allocator(job: Job, *, device: str) -> dict[str, Any]:
    """A phase that says what its process was told about memory and whether it keeps a freed block."""
    before = resident()
    block = bytearray(b"1") * 2**27  # 128 MiB, written
    del block
    told = {name: os.environ.get(name) for name in KEEP_FREED_MEMORY}
    return {"seed": job.seed, "told": told, "kept": resident() - before > 2**26}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are those of glibc's allocator")
def test_workers_on_a_cpu_keep_freed_memory_unless_told_otherwise(
    make_project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_project(grid={"tasks": ["cue_sentence"], "sizes": [24], "seeds": [0]})
    change(root, execution={"executor": "processes", "workers": 1, "device": "cpu"})
    for name in KEEP_FREED_MEMORY:
        monkeypatch.delenv(name, raising=False)
    _, records = run_cell(root, report_allocator, "vanilla", *TASK)
    assert records == [{"seed": 0, "told": KEEP_FREED_MEMORY, "kept": True}]
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1048576")
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "65536")
    _, records = run_cell(root, report_allocator, "vanilla", *TASK)
    assert records[0]["told"]["MALLOC_TRIM_THRESHOLD_"] == "1048576"
    assert records[0]["kept"] is False


def test_a_new_seed_trains_that_seed_only(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []
    original = training_run.train_phase

    def counting(context: Context, *args: Any, **options: Any) -> Any:
        trained.append(context.job.seed)
        return original(context, *args, **options)

    monkeypatch.setattr(training_run, "train_phase", counting)
    run_cell(project, finetune, "vanilla", *TASK)
    assert trained == [0, 1]
    change(project, grid={"seeds": [0, 1, 2]})
    refresh(project)
    _, records = run_cell(project, finetune, "vanilla", *TASK)
    assert trained == [0, 1, 2]
    assert [record["seed"] for record in records] == [0, 1, 2]


def test_the_plan_asks_the_run_store(project: Path) -> None:
    from regft_core.config.grid import cells
    from regft_core.phases.context import open_project
    from regft_core.phases.finetune import cached_seeds

    finetune(Job(str(project), "vanilla", *TASK, 1))
    loaded = open_project(project)
    found = {cell.method: cached_seeds(project, loaded, cell) for cell in cells(loaded)}
    assert found == {"vanilla": {1}, "vanilla_no_dropout": set(), "hype_n": set(), "weight_mixup": set()}
    change(project, training={"learning_rate": 2e-3})
    loaded = open_project(project)
    assert cached_seeds(project, loaded, cells(loaded)[0]) == set()


def test_what_changes_the_key_and_what_does_not(project: Path) -> None:
    """The key is a correctness boundary: everything that determines a run is in it."""

    def key() -> str:
        context = Context(Job(str(project), "hype_n", *TASK, 0))
        return context.store.run_key(finetune_identity(context))

    first = key()
    change(project, execution={"executor": "processes", "workers": 2, "checkpoint_seconds": 5})
    assert key() == first
    method = project / "pipelines" / "methods" / "hype_n.yaml"
    text = method.read_text()
    method.write_text("# a comment\n" + text.replace("HyPe with", "Another text,"))
    assert key() == first
    method.write_text(text.replace("1.0e-5", "2.0e-5"))
    assert key() != first
    method.write_text(text)
    for section, value in {"training": {"learning_rate": 2e-3}, "model": {"max_length": 16}}.items():
        before = (project / "params.yaml").read_text()
        change(project, **{section: value})
        assert key() != first
        (project / "params.yaml").write_text(before)
    code = project / "work" / "code" / "method-hype_n.json"
    stored = code.read_text()
    code.write_text(json.dumps({**json.loads(stored), "sha256": "0" * 64}))
    assert key() != first
    code.write_text(stored)
    rows = project / "work" / "subsamples" / "cue_sentence-24" / "seed-0.jsonl"
    lines = rows.read_text().splitlines(keepends=True)
    rows.write_text("".join(reversed(lines)))
    assert key() != first
    rows.write_text("".join(lines))
    assert key() == first


def test_arms_of_a_seed_share_rows_head_and_order(project: Path) -> None:
    import torch

    def start(method: str) -> Any:
        context = Context(Job(str(project), method, *TASK, 1))
        return context.examples(), context.plain_model(context.training)

    (rows_a, model_a), (rows_b, model_b) = start("vanilla"), start("hype_n")
    assert rows_a == rows_b
    assert torch.equal(model_a.classifier.weight, model_b.classifier.weight)


def test_outputs_of_a_cell(project: Path) -> None:
    context, records = run_cell(project, search, "weight_mixup", *TASK)
    folder = write_training(context, "search", records)
    curves = list(csv.DictReader((folder / "curves.csv").open()))
    assert {row["phase"] for row in curves} == {"search-0", "search-1"}
    context, records = run_cell(project, finetune, "weight_mixup", *TASK)
    manifest = json.loads((write_training(context, "finetune", records) / "manifest.json").read_text())
    assert [run["status"] for run in manifest["runs"]] == ["ok", "ok"]
    assert manifest["runs"][0]["variant"] == "paper"
    # 2 searches of 3 steps at 5 passes, then 6 steps, against 6 steps of vanilla.
    assert manifest["runs"][0]["cost"]["declared_ratio"] == pytest.approx((2 * 3 * 5 + 6) / 6)
    context, records = run_cell(project, evaluate, "weight_mixup", *TASK)
    folder = write_evaluation(context, records)
    result = json.loads((folder / "result.json").read_text())
    assert set(result["runs"][0]["sets"]) == {"dev", "no_cue", "reversed"}
    predictions = (folder / "predictions" / "seed-0" / "dev.jsonl").read_text().splitlines()
    gold = [json.loads(line) for line in predictions]
    accuracy = sum(row["label"] == row["prediction"] for row in gold) / len(gold)
    assert accuracy == pytest.approx(result["runs"][0]["sets"]["dev"]["metrics"]["accuracy"])
    metrics = json.loads((project / "work/metrics/weight_mixup/cue_sentence-24.json").read_text())
    assert metrics["dev"]["accuracy"]["seed_0"] == pytest.approx(accuracy)


def test_a_diverged_seed_is_marked_and_the_others_continue(project: Path) -> None:
    change(project, training={"learning_rate": 1.0, "weight_decay": 1e30, "clip_norm": None})
    context, records = run_cell(project, finetune, "vanilla", *TASK)
    assert [record["status"] for record in records] == ["failed", "failed"]
    assert "step" in records[0]["error"]
    assert "FAILED" in describe(records[0], "finetune")
    write_training(context, "finetune", records)
    context, records = run_cell(project, evaluate, "vanilla", *TASK)
    write_evaluation(context, records)
    metrics = json.loads((project / "work/metrics/vanilla/cue_sentence-24.json").read_text())
    assert metrics["failed_runs"] == 2
    _, records = run_cell(project, finetune, "weight_mixup", *TASK)
    assert all("search failed" in record["error"] for record in records)


def test_pruned_weights_are_trained_again_and_must_be_the_same(project: Path) -> None:
    job = Job(str(project), "vanilla", *TASK, 0)
    run = ensure_finetuned(Context(job))
    before = run.tensors_sha256()
    Context(job).store.prune(budget_bytes=0)
    assert not ensure_finetuned(Context(job)).has_weights
    again = ensure_finetuned(Context(job), weights=True)
    assert again.has_weights
    assert again.tensors_sha256() == before


def test_a_full_disk_is_an_error_that_names_the_place(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("regft_core.runs.tensors.save_file", full, raising=False)
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match=r"space|disk"):
        ensure_finetuned(Context(Job(str(project), "vanilla", *TASK, 0)))
    assert not list((project / "work").glob("finetune/**/manifest.json"))


def test_params_of_the_template_are_those_of_this_file(project: Path) -> None:
    assert yaml.safe_load((project / "params.yaml").read_text()) == PARAMS


def test_running_out_of_memory_is_not_stored_as_a_result(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says something about the machine, not about the run: on another machine the run may fit."""
    import torch

    from regft_core.errors import OutOfMemory
    from regft_core.methods.stack import Stack

    def exhausted(*_: object) -> None:
        raise torch.OutOfMemoryError("no memory")

    job = Job(str(project), "vanilla", *TASK, 0)
    with monkeypatch.context() as patched:
        patched.setattr(Stack, "backward", exhausted)
        with pytest.raises(OutOfMemory, match="batch_size"):
            finetune(job)
    assert finetune(job)["status"] == "ok"
