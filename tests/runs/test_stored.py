"""Runs in the store: pruned, from another environment, without the encoder's own weights, on their way elsewhere."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from regft_core.errors import InputChanged, StoreError
from regft_core.grid.executors import torch_threads
from regft_core.grid.executors.ray import _work_in_copy
from regft_core.grid.jobs import run_job
from regft_core.runs import encoder_tensors
from regft_core.runs.context import Context, Job, project_store
from regft_core.runs.encoder_tensors import left_out, load_whole, without_encoder
from regft_core.runs.evaluate import evaluate
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.phase import phase_inputs
from regft_core.runs.run import run
from regft_core.runs.store import RunStore
from regft_core.runs.train import finetune, search
from regft_core.runs.training_run import outcome_tensors
from regft_core.runs.training_run import train as train_phase
from regft_core.settings.read_project import open_project
from tests.errors import raises_code
from tests.runs.conftest import Trained, change, job, runs, stored, train


def test_pruned_weights_come_back_when_they_are_read_and_must_be_the_same(project: Path, trained: Trained) -> None:
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
        for outside in ("../escaped", str(tmp_path / "escaped")):
            with raises_code(StoreError, "damaged-run"):
                other.add(key, packed | {outside: b""})
        with raises_code(StoreError, "damaged-run"):
            other.add("0" * 64, packed)
    assert list(tmp_path.rglob("escaped")) == []
    assert list(other.keys()) == []
    assert {path.suffix for path in other.path.rglob("*") if path.is_file()} == {".lock"}


HEAD = {"classifier.bias", "classifier.weight"}
#: Shipped methods -> what of a weight's name tells that it is stored.
STORED: dict[str, Any] = {
    "linear_probe": lambda name: name in HEAD,
    "bitfit": lambda name: name in HEAD or name.endswith(".bias"),
    "lora": lambda name: name in HEAD or name.endswith(("query.weight", "value.weight")),
    "vanilla": lambda name: True,
}


@pytest.mark.parametrize("method", STORED)
def test_a_run_stores_what_it_changed_and_gives_all_of_it(project: Path, method: str) -> None:
    change(project, methods=["vanilla", "linear_probe", "bitfit", "lora"])
    asked = job(project, method)
    record = run(asked, until="finetune")["finetune"]
    context, phase = Context(asked), Context(asked).phase("finetune")
    inputs = phase_inputs(phase, None)
    whole, there = outcome_tensors(inputs, train_phase(inputs), weights=True)["weights"], stored(project, record["key"])
    on_disk = there.load_tensors("weights")
    listed = left_out(context.phase("finetune"), there)
    assert set(on_disk) == {name for name in whole if STORED[method](name)}
    assert set(listed) == {name for name in whole if not STORED[method](name)}
    read = load_whole(phase, there, "weights")
    assert read.keys() == whole.keys()
    assert all(torch.equal(read[name], whole[name]) for name in whole)
    model = FinishedModel(context).model.state_dict()  # what an export writes
    assert all(torch.equal(model[name], whole[name]) for name in whole)
    with torch.no_grad():
        first = next(iter(model))
        model[first].add_(1)  # a copy: what is read again is the encoder's
    assert torch.equal(load_whole(phase, there, "weights")[first], whole[first])


def test_another_encoder_than_the_one_that_was_compared_is_refused(project: Path) -> None:
    change(project, methods=["vanilla", "linear_probe"])
    asked = job(project, "linear_probe")
    there = stored(project, run(asked, until="finetune")["finetune"]["key"])
    weights = project / "models" / "tiny" / "model.safetensors"
    tensors = load_file(weights)
    first = next(iter(tensors))
    save_file(tensors | {first: tensors[first] + 1}, weights, {"format": "pt"})
    context = Context(job(project, "linear_probe"))
    with pytest.raises(InputChanged, match=there.key):
        load_whole(context.phase("finetune"), there, "weights")


def test_bits_decide(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(job(project, "vanilla"))
    phase = context.phase("finetune")
    model = encoder_tensors.load_pretrained(phase)
    with torch.no_grad():
        name = "bert.embeddings.LayerNorm.bias"
        model.get_parameter(name)[:2] = torch.tensor([0.0, float("nan")])
    monkeypatch.setattr(encoder_tensors, "load_pretrained", lambda *_: model)
    monkeypatch.setattr(encoder_tensors, "encoder_sha256", encoder_tensors.encoder_sha256.__wrapped__)
    own = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    stored_of, files = without_encoder(phase, {"weights": own})
    assert set(stored_of["weights"]) == HEAD  # drawn, so no file has it; NaN is itself
    assert list(files) == [encoder_tensors.FILE]
    own[name][0] = -0.0
    assert set(without_encoder(phase, {"weights": own})[0]["weights"]) == {*HEAD, name}
    own["bert.embeddings.word_embeddings.weight"] = own["bert.embeddings.word_embeddings.weight"].double()
    assert "bert.embeddings.word_embeddings.weight" in without_encoder(phase, {"weights": own})[0]["weights"]
