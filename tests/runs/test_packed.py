"""Runs that travel between machines without a shared folder: whole and checked, with the bits of a run at home."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import StoreError
from regft_core.grid.executors.ray import _work_in_copy
from regft_core.grid.jobs import run_job
from regft_core.runs.context import project_store
from regft_core.runs.opened_project import Job, open_project
from regft_core.runs.store import RunStore
from tests.errors import raises_code
from tests.runs.conftest import job


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
