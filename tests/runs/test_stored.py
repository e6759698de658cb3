"""Runs in the store: damaged, pruned, shared, or from another environment."""

from __future__ import annotations

from pathlib import Path

from regft_core.errors import InputChanged
from regft_core.grid.executors import torch_threads
from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluate
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
