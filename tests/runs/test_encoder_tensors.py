"""Weights that are the encoder's own are left out of a stored run, and are there for whoever reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from regft_core.errors import InputChanged
from regft_core.runs import encoder_tensors
from regft_core.runs.context import Context
from regft_core.runs.encoder_tensors import left_out, load_whole, without_encoder
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.phase import phase_inputs
from regft_core.runs.run import run
from regft_core.runs.training_run import outcome_tensors, train
from tests.runs.conftest import change, job, stored, write_method

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
    whole, there = outcome_tensors(inputs, train(inputs), weights=True)["weights"], stored(project, record["key"])
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


def test_a_phase_starts_from_all_weights_of_the_one_before(project: Path) -> None:
    """Halfway between a probe, which stores its head only, and what was trained from it."""
    phases = {"head": {"regularisers": {"linear_head": {}}, "training": {"epochs": 0}}}
    mix = {"regularisers": {"wise_ft": {"alpha": 0.5, "start": "head"}}, "training": {"epochs": 0}}
    write_method(project, "mixed", model={"pooling": "mean"}, phases={**phases, "train": {}, "finetune": mix})
    asked = job(project, "mixed")
    record = run(asked)
    assert record["evaluate"]["status"] == "ok"
    context = Context(asked)
    ends = {}
    for name in ("head", "train", "finetune"):
        there = stored(project, context.key(name))
        ends[name] = load_whole(context.phase(name), there, "weights")
    for name, tensor in ends["finetune"].items():
        assert torch.allclose(tensor, (ends["head"][name] + ends["train"][name]) / 2, atol=1e-6)
    assert set(stored(project, context.key("head")).load_tensors("weights")) == HEAD


def test_another_encoder_than_the_one_that_was_compared_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    own = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    stored_of, files = without_encoder(phase, {"weights": own})
    assert set(stored_of["weights"]) == HEAD  # drawn, so no file has it; NaN is itself
    assert list(files) == [encoder_tensors.FILE]
    own[name][0] = -0.0
    assert set(without_encoder(phase, {"weights": own})[0]["weights"]) == {*HEAD, name}
    own["bert.embeddings.word_embeddings.weight"] = own["bert.embeddings.word_embeddings.weight"].double()
    assert "bert.embeddings.word_embeddings.weight" in without_encoder(phase, {"weights": own})[0]["weights"]
