"""Runs in the store: pruned, from another environment, or on their way between machines without a shared folder."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import InputChanged, StoreError
from regft_core.grid.executors import torch_threads
from regft_core.grid.executors.ray import _work_in_copy
from regft_core.grid.jobs import run_job
from regft_core.runs.context import Context, project_store
from regft_core.runs.evaluate import evaluate
from regft_core.runs.opened_project import Job, open_project
from regft_core.runs.store import RunStore
from regft_core.runs.train import finetune, search
from tests.errors import raises_code
from tests.runs.conftest import change, job, runs, stored, train


def test_pruned_weights_come_back_when_they_are_read_and_must_be_the_same(
    project: Path, trained: list[tuple[str, int]]
) -> None:
    record = train(project, "vanilla")
    before = stored(project, record["key"]).tensors_sha256()
    store = Context(job(project, "vanilla")).store
    store.prune(budget_bytes=0)
    trained.clear()
    assert train(project, "vanilla") == record
    assert trained == []  # its numbers are there
    assert not stored(project, record["key"]).has_weights
    # From no other configuration: an export reads a run by its recorded key, which stands for what it was trained with.
    change(project, training={"learning_rate": 2e-3})
    known = set(runs(project))
    context = Context(job(project, "vanilla"))
    context.take({"finetune": record["key"]})
    with raises_code(InputChanged, "out-of-date"):
        evaluate(context, record)
    assert set(runs(project)) == known
    change(project, training={"learning_rate": 1e-3})
    assert evaluate(Context(job(project, "vanilla")), record)["status"] == "ok"
    assert trained == [("finetune", 0)]
    assert stored(project, record["key"]).tensors_sha256() == before


def test_a_run_whose_phases_are_from_different_environments_says_so(project: Path) -> None:
    with torch_threads(1):
        searched = search(Context(job(project, "weight_mixup")))
    assert searched["marks"] == []
    with torch_threads(2):
        record = finetune(Context(job(project, "weight_mixup")), searched)
    assert any("trained elsewhere" in mark and "threads 1" in mark for mark in record["degraded"])


# --------------------------------------------------------------------------------------------------- between machines


def contents(store: RunStore) -> dict[str, dict[str, Any]]:
    """Key -> tensors, predictions and logits of every run, byte by byte; of their records what no clock decides."""
    found = {}
    for key in list(store.keys()):
        run = store.get(key)
        files: dict[str, Any] = {name: run.read_bytes(name) for name in run.files}
        files |= {path.name: path.read_bytes() for path in run.path.glob("*.safetensors")}
        files["record"] = [run.result.get(name) for name in ("final_loss", "steps", "sets", "status")]
        found[key] = files
    return found


def part_of(root: Path, until: Any) -> Job:
    return replace(job(root, "weight_mixup"), until=until)


def test_a_job_in_a_copy_returns_its_runs(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second job starts from what the first has made, on another machine."""
    home = Path(shutil.copytree(project, tmp_path / "home"))
    for until in ("search", "evaluate"):
        run_job(part_of(home, until), device="cpu")
    store = project_store(open_project(project))
    for host, until in (("first", "search"), ("second", "evaluate")):
        copy = Path(shutil.copytree(project, tmp_path / host / "copy", ignore=shutil.ignore_patterns(".regft")))
        monkeypatch.chdir(copy)
        runs = {key: packed for key in list(store.keys()) if (packed := store.pack(key)) is not None}
        one = part_of(project, until)
        away = project.rename(tmp_path / "away")
        _, made = _work_in_copy(run_job, one, "cpu", runs)
        away.rename(project)
        assert made
        assert not made.keys() & runs.keys()
        for key, packed in made.items():
            store.add(key, packed)
            store.add(key, packed)  # twice is once
    assert contents(store) == contents(project_store(open_project(home)))


def test_a_run_that_arrives_damaged_is_refused(project: Path, tmp_path: Path) -> None:
    run_job(job(project, "vanilla"), device="cpu")
    store, other = project_store(open_project(project)), RunStore(tmp_path / "other")
    for key in list(store.keys()):
        packed = dict(store.pack(key) or {})
        for name in packed:
            lacking = {} if name.endswith(".safetensors") else {n: c for n, c in packed.items() if n != name}
            for wrong in (packed | {name: packed[name] + b"x"}, lacking):  # without its tensors it would be pruned
                with raises_code(StoreError, "damaged-run"):
                    other.add(key, wrong)
        with raises_code(StoreError, "damaged-run"):
            other.add(key, packed | {"../escaped": b""})
        with raises_code(StoreError, "damaged-run"):
            other.add("0" * 64, packed)
    assert list(tmp_path.rglob("escaped")) == []
    assert list(other.keys()) == []
    assert {path.suffix for path in other.path.rglob("*") if path.is_file()} == {".lock"}
