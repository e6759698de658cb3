"""Runs in the store: damaged, pruned, shared, or from another environment."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import PlanOutdated
from regft_core.grid.queue import torch_threads
from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluate
from regft_core.runs.train import finetune, search
from tests.killed import in_child
from tests.runs.conftest import (
    change,
    edit_method,
    job,
    runs,
    stored,
    train,
)


def evaluated(root: Path, method: str, record: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    return evaluate(Context(job(root, method, seed, finetune=record["key"], **record["phases"])), record)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(bytes(content))


# ------------------------------------------------------------------------------------ damage


def test_flipped_bytes_are_found_set_aside_and_trained_again_with_the_same_bits(
    project: Path, trained: list[tuple[str, int]], caplog: pytest.LogCaptureFixture
) -> None:
    searched = search(Context(job(project, "weight_mixup")))
    before = stored(project, searched["phases"]["search"])
    hashes = {name: before.tensors_sha256(name) for name in before.tensor_names}
    flip(before.path / "state.safetensors")
    trained.clear()
    record = finetune(Context(job(project, "weight_mixup", 0, **searched["phases"])), searched)
    assert record["status"] == "ok"
    assert trained == [("finetune", 0)]  # the members are there: merging them again is enough
    again = stored(project, before.key)
    assert {name: again.tensors_sha256(name) for name in again.tensor_names} == hashes
    assert [path.name for path in (project / ".regft/runs").glob("*/*.damaged")] == [f"{before.key}.damaged"]
    weights = stored(project, record["key"]).tensors_sha256()
    flip(stored(project, record["key"]).path / "weights.safetensors")
    scores = evaluated(project, "weight_mixup", record)
    assert trained == [("finetune", 0)] * 2
    assert stored(project, record["key"]).tensors_sha256() == weights
    assert scores["status"] == "ok"
    assert "differ from those that were lost" not in caplog.text


# ----------------------------------------------------------------------------------- pruning


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
    assert evaluated(project, "vanilla", record)["status"] == "ok"
    assert trained == [("finetune", 0)]
    assert stored(project, record["key"]).tensors_sha256() == before


def test_weights_are_not_restored_from_another_configuration_than_they_had(project: Path) -> None:
    """A run's key stands for what it was trained with; an evaluation under it must not be of anything else."""
    record = train(project, "vanilla")
    store = Context(job(project, "vanilla")).store
    store.prune(budget_bytes=0)
    change(project, training={"learning_rate": 2e-3})
    before = set(runs(project))
    with pytest.raises(PlanOutdated, match="no longer those it was trained with"):
        evaluated(project, "vanilla", record)
    assert set(runs(project)) == before
    change(project, training={"learning_rate": 1e-3})
    assert evaluated(project, "vanilla", record)["status"] == "ok"


# ------------------------------------------------------------------------------------ sharing


# -------------------------------------------------------------------------------- environment


def test_a_killed_run_is_not_continued_in_another_environment(project: Path, caplog: Any) -> None:
    with torch_threads(1):
        assert in_child(train, project, "vanilla", at="step:4") == -signal.SIGKILL
    with caplog.at_level(logging.WARNING), torch_threads(2):
        record = train(project, "vanilla")
    assert "another environment" in caplog.text
    assert record["environment"]["threads"] == 2
    assert len(record["curve"]) == 6


def test_a_run_whose_phases_are_from_different_environments_says_so(project: Path) -> None:
    with torch_threads(1):
        searched = search(Context(job(project, "weight_mixup")))
    assert searched["marks"] == []
    with torch_threads(2):
        record = finetune(Context(job(project, "weight_mixup", 0, **searched["phases"])), searched)
    assert any("trained elsewhere" in mark and "threads 1" in mark for mark in record["degraded"])
    edit_method(project, "weight_mixup", "repeat: {times: 2}", "repeat: {times: 3}")
    with torch_threads(2):
        searched = search(Context(job(project, "weight_mixup")))
    assert searched["environment"]["threads"] == 2
    assert any("search was trained elsewhere" in mark for mark in searched["marks"])
