"""Runs in the store: damaged, pruned, shared, or from another environment."""

from __future__ import annotations

import logging
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import PlanOutdated
from regft_core.grid.failures import torch_threads
from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluate
from regft_core.runs.train import finetune, search
from tests.killed import in_child
from tests.runs.conftest import (
    change,
    edit_method,
    job,
    run_stages,
    runs,
    stored,
    train,
    write_method,
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


@pytest.mark.parametrize("file", ["weights.safetensors", "result.json", "manifest.json"])
def test_a_truncated_file_of_a_finished_run_is_no_reason_to_stop(project: Path, file: str) -> None:
    record = train(project, "vanilla")
    weights = stored(project, record["key"]).tensors_sha256()
    path = stored(project, record["key"]).path / file
    path.write_bytes(path.read_bytes()[:20])
    assert evaluated(project, "vanilla", record)["status"] == "ok"
    assert stored(project, record["key"]).tensors_sha256() == weights


def test_damaged_predictions_are_made_again(project: Path) -> None:
    record = train(project, "vanilla")
    first = evaluated(project, "vanilla", record)
    file = next((project / ".regft/runs").rglob("predictions/dev.jsonl"))
    flip(file)
    assert evaluated(project, "vanilla", record) == first
    assert len(list((project / ".regft/runs").glob("*/*.damaged"))) == 1


def test_a_run_whose_store_was_deleted_is_trained_again(project: Path) -> None:
    record = train(project, "vanilla")
    first = evaluated(project, "vanilla", record)
    shutil.rmtree(project / ".regft")
    assert evaluated(project, "vanilla", record)["sets"] == first["sets"]


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


def test_projects_that_share_a_store_share_runs_and_train_again_what_was_pruned(
    project: Path, tmp_path: Path, trained: list[tuple[str, int]]
) -> None:
    change(project, store={"path": str(tmp_path / "shared"), "budget_gb": 1e-9})
    other = Path(shutil.copytree(project, tmp_path / "other"))
    searched = search(Context(job(project, "weight_mixup")))
    trained.clear()
    # The other project tunes for longer: the same search, another fine-tuning.
    write_method(other, "vanilla", training={"epochs": 1})
    edit_method(other, "weight_mixup", "finetune:\n", "finetune:\n    training: {epochs: 3}\n")
    also = search(Context(job(other, "weight_mixup")))
    assert also["phases"] == searched["phases"]
    assert trained == []
    run_stages(project, "weight_mixup")
    trained.clear()
    finetune(Context(job(other, "weight_mixup", 0, **also["phases"])), also)
    assert trained == [("search", 0), ("search", 0), ("finetune", 0)]  # the first project pruned what it had done with
    Context(job(project, "vanilla")).store.prune()
    assert not stored(project, searched["phases"]["search"]).has_weights
    trained.clear()
    assert train(other, "hype_n")["key"] == train(project, "hype_n")["key"]
    assert trained == [("finetune", 0)]


# -------------------------------------------------------------------------------- environment


def test_a_record_says_on_what_it_was_computed(project: Path) -> None:
    """Not what the configuration asks for: that is 1 thread."""
    with torch_threads(2):
        record = train(project, "weight_mixup")
    found = record["environment"]
    assert record["numerics"] == {"attention": "sdpa", "parameters": "float32"}
    assert (found["device"], found["threads"], found["deterministic"]) == ("cpu", 2, True)
    assert found["name"]
    assert evaluated(project, "weight_mixup", record)["environment"] == found
    assert search(Context(job(project, "weight_mixup")))["environment"] == found


def test_a_killed_run_is_not_continued_in_another_environment(project: Path, caplog: Any) -> None:
    with torch_threads(1):
        assert in_child(train, project, "vanilla", at="step:4") == -signal.SIGKILL
    with caplog.at_level(logging.WARNING), torch_threads(2):
        record = train(project, "vanilla")
    assert "another environment" in caplog.text
    assert "threads: 1 then, 2 now" in caplog.text
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
