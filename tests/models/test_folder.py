"""An exported folder gives the model's answers in transformers' own pipeline, or is refused there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from regft_core.data.batches import collate, padding_of
from regft_core.data.encode import encode
from regft_core.data.examples import Example
from regft_core.data.prompts import Reading
from regft_core.errors import ExportMismatch, ModelError
from regft_core.evaluate.logits import predict
from regft_core.kinds import find
from regft_core.models.export_record import Served
from regft_core.models.sites import SiteHooks, find_sites
from regft_core.models.write_model import export_model
from regft_core.serve.model import load_served
from tests.errors import raises_code
from tests.models.conftest import edited
from tests.tiny import ARCHITECTURES, EMBEDDERS

LONG = "the film was not good and the actor was very bad " * 9
TEXTS = ["a film that is not bad", "yes", "She saw the big dog, the small cat and no one!", LONG]
PAIRS = [(one, other) for one, other in zip(TEXTS, ["no", LONG, "a happy day", LONG[9:] + "yes"], strict=True)]
LENGTH = 24
LABELS = {"classification": ("no", "maybe", "yes"), "multi_label": ("no", "maybe", "yes"), "regression": None}


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of folders is copied to a place of this test."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("transformers.dynamic_module_utils.TIME_OUT_REMOTE_CODE", 1)


def exported(
    loaded: Any, directory: Path, kind: str, paired: bool, reading: Reading | None = None, temperature: float = 1.0
) -> tuple[Path, Any]:
    """The folder, and [n, K] scores of ``TEXTS`` or ``PAIRS`` as regft gives them."""
    torch.manual_seed(0)
    for parameter in loaded.model.parameters():
        parameter.data.add_(0.05 * torch.randn(parameter.shape))
    rows = PAIRS if paired else [(text, None) for text in TEXTS]
    examples = [Example(str(index), text, pair, 0) for index, (text, pair) in enumerate(rows)]
    separate = getattr(loaded.model, "rows_per_example", 1)
    encoded = encode(examples, loaded.tokenizer, LENGTH, rows_per_example=separate, reading=reading)
    padding = padding_of(loaded.tokenizer)
    logits = predict(loaded.model, encoded, kind=kind, padding=padding) / temperature
    told: dict[str, Any] = {"text": "text", "text_pair": "other" if paired else None, "labels": LABELS[kind]}
    told |= {} if reading is None else vars(reading)
    served = Served(**told, kind=kind, max_length=LENGTH, rows_per_example=separate)
    batch = collate(encoded, [0, 1], padding, kind).model_inputs()
    options = {"card": "# card\n", "check_batch": batch, "max_length": LENGTH, "served": served}
    export_model(loaded.model, loaded.tokenizer, directory, **options, temperature=temperature)
    count = logits.shape[1]
    return directory, find(kind).scores(logits.astype(np.float64), np.arange(count), count)


def answered(directory: Path, rows: list[Any], **options: Any) -> Any:
    """[n, K] of a pipeline over texts or pairs, in the order of the labels."""
    serve = pipeline("text-classification", model=str(directory), top_k=None, truncation=True, **options)
    inputs = [row if isinstance(row, str) else {"text": row[0], "text_pair": row[1]} for row in rows]
    found = [{one["label"]: one["score"] for one in serve([row])[0]} for row in inputs]
    return np.array([[answer[label] for label in serve.model.config.id2label.values()] for answer in found])


OWN = [(name, list(LABELS)[number % 3], number % 2 == 1) for number, name in enumerate(ARCHITECTURES)]
OWN += [("bert", kind, paired) for kind in LABELS for paired in (False, True)]


@pytest.mark.parametrize(("architecture", "kind", "paired"), sorted(set(OWN)))
def test_a_familys_own_head_answers_in_the_pipeline(architecture, kind, paired, load, tmp_path):
    loaded = load(architecture, kind=kind, labels=LABELS[kind])
    directory, expected = exported(loaded, tmp_path / "out", kind, paired)
    assert not list(directory.glob("*.py"))
    assert answered(directory, PAIRS if paired else TEXTS) == pytest.approx(expected, abs=2e-6)


POOLED = [*((name, "mean") for name in ARCHITECTURES), *EMBEDDERS.items(), ("bert", "unit_mean"), ("xlnet", "cls")]
POOLED += [(name, "mean_last_four") for name in ("bert", "bart", "xlnet", "modernbert", "deberta")]


#: Kind of task and rows: 0 for single texts, 1 and 2 for pairs in as many rows. Nothing stands between Qwen's texts.
ASKED = [("classification", 0), ("classification", 1), ("classification", 2), ("multi_label", 0), ("regression", 2)]
PLACES = [(*place, *ASKED[number % 5]) for number, place in enumerate(POOLED) if place[0] != "qwen3"]
PLACES += [("bert", "mean", *asked) for asked in ASKED] + [("qwen3", "last", *asked) for asked in ASKED[:2]]


@pytest.mark.parametrize(("architecture", "pooling", "kind", "rows"), sorted(set(PLACES)))
def test_a_pooled_model_answers_with_its_code_and_is_refused_without(architecture, pooling, kind, rows, load, tmp_path):
    loaded = load(architecture, pooling=pooling, rows_per_example=max(1, rows), kind=kind, labels=LABELS[kind])
    directory, expected = exported(loaded, tmp_path / "out", kind, rows > 0)
    given = PAIRS if rows else TEXTS
    assert answered(directory, given, trust_remote_code=True) == pytest.approx(expected, abs=2e-6)
    with pytest.raises(ValueError, match="trust_remote_code"):
        AutoModelForSequenceClassification.from_pretrained(directory)
    with pytest.raises(ValueError, match="trust_remote_code"):
        pipeline("text-classification", model=str(directory))


@pytest.mark.parametrize("pooling", ["head", "mean", "unit_mean"])
def test_a_temperature_is_in_the_weights(pooling, load, tmp_path):
    directory, expected = exported(
        load("roberta", pooling=pooling), tmp_path / "out", "classification", False, None, 2.5
    )
    assert answered(directory, TEXTS, trust_remote_code=True) == pytest.approx(expected, abs=2e-6)


READINGS = [Reading("", 3, 4), Reading("query: ", 1, 0), Reading("query: ", 2, 3)]
#: Windows average pooled vectors.
POOLED = [("bert", "mean", 0), ("roberta", "unit_mean", 2), ("xlnet", "cls", 0), ("qwen3", "last", 0)]
POOLED += [("bert", "mean_last_four", 2)]


@pytest.mark.parametrize(
    ("architecture", "pooling", "rows", "reading"),
    [*((*pooled, reading) for pooled in POOLED for reading in READINGS), ("bert", "head", 0, READINGS[1])],
)
def test_windows_and_an_instruction_are_read_as_in_training(architecture, pooling, rows, reading, load, tmp_path):
    loaded = load(architecture, pooling=pooling, rows_per_example=max(1, rows))
    loaded.tokenizer.truncation_side = "left"  # which a reading does not ask
    directory, expected = exported(loaded, tmp_path / "out", "classification", rows > 0, reading)
    begun = reading.instruction
    given = [(begun + one, begun + two) for one, two in PAIRS] if rows else [begun + text for text in TEXTS]
    assert answered(directory, given, trust_remote_code=True) == pytest.approx(expected, abs=2e-6)
    if begun:
        with pytest.raises(ValueError, match="query"):
            answered(directory, [PAIRS[1]] if rows else TEXTS[:1], trust_remote_code=True)


def test_inputs_that_were_not_trained_on_are_refused(load, tmp_path):
    """Never an answer to something else: a single text for a pair, and a pair in one row that is not truncated."""
    separate, _ = exported(load("bert", pooling="mean", rows_per_example=2), tmp_path / "one", "classification", True)
    with pytest.raises(ValueError, match="two texts"):
        answered(separate, TEXTS[:1], trust_remote_code=True)
    one_end, _ = exported(load("qwen3", pooling="last", rows_per_example=2), tmp_path / "four", "classification", True)
    with pytest.raises(ValueError, match="nothing between two texts"):  # Qwen3 ends a pair, and divides it by nothing
        answered(one_end, PAIRS[:1], trust_remote_code=True)
    joint, _ = exported(load("bert", pooling="mean"), tmp_path / "two", "classification", True)
    model = AutoModelForSequenceClassification.from_pretrained(joint, trust_remote_code=True)
    with pytest.raises(ValueError, match="tokens"):
        model(**AutoTokenizer.from_pretrained(joint)(*PAIRS[3], return_tensors="pt"))
    loaded = load("bert", pooling="mean")
    loaded.tokenizer.truncation_side = "left"
    single, expected = exported(loaded, tmp_path / "three", "classification", False)
    model = AutoModelForSequenceClassification.from_pretrained(single, trust_remote_code=True)
    with torch.no_grad():  # a long text is cut as in training, truncated or not
        logits = model(**AutoTokenizer.from_pretrained(single)(LONG, return_tensors="pt")).logits
    assert logits.softmax(-1)[0].numpy() == pytest.approx(expected[3], abs=2e-6)
    cut = loaded.tokenizer(LONG, truncation=True, max_length=LENGTH)["input_ids"]
    assert Tokenizer.from_file(str(single / "tokenizer.json")).encode(LONG).ids == cut


@pytest.mark.parametrize("always", [True, False])
def test_hooks_stay_behind_and_are_refused_where_they_act_in_evaluation(always, load, tmp_path):
    loaded = load("bert")
    hooks, model = SiteHooks(loaded.model, find_sites(loaded.model)), loaded.model.train()
    hooks.on_layer_input(lambda tensor, site: tensor * 1.5, always=always)
    options = {"card": "# card\n", "check_batch": loaded.batch(), "max_length": 32}
    if always:
        with raises_code(ExportMismatch, "export-differs"):
            export_model(model, loaded.tokenizer, tmp_path / "out", **options)
    else:
        export_model(model, loaded.tokenizer, tmp_path / "out", **options)
    assert [path.name for path in tmp_path.iterdir()] == ([] if always else ["out"])
    assert model.training, "the mode of the model is restored"


def test_a_directory_of_something_else_is_not_replaced(load, tmp_path):
    loaded = load("bert")
    (tmp_path / "notes.txt").write_text("mine")
    options = {"card": "# card\n", "check_batch": loaded.batch(), "max_length": 32}
    with raises_code(ModelError, "in-the-way"):
        export_model(loaded.model, loaded.tokenizer, tmp_path, **options)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def damage_weights(directory: Path, change: Any) -> None:
    tensors = load_file(directory / "model.safetensors")
    save_file(change(dict(tensors)), directory / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("pooling", ["head", "mean"])
def test_weights_that_the_configuration_does_not_use_are_refused(pooling, load, tmp_path):
    directory, _ = exported(load("bert", pooling=pooling), tmp_path / "out", "classification", False)
    whole = (directory / "model.safetensors").read_bytes()
    damage_weights(directory, lambda tensors: tensors | {"bert.encoder.layer.7.weight": torch.zeros(2)})
    with raises_code(ModelError, "weights-do-not-fit", "layer.7"):
        load_served(directory, "cpu")
    (directory / "model.safetensors").write_bytes(whole)
    damage_weights(directory, lambda tensors: {n: t for n, t in tensors.items() if not n.startswith("classifier")})
    with raises_code(ModelError, "weights-missing", "classifier"):
        load_served(directory, "cpu")
    (directory / "model.safetensors").write_bytes(whole[:-40])
    with raises_code(ModelError, "cannot-load"):
        load_served(directory, "cpu")


@pytest.mark.parametrize("name", ["config.json", "regft.json", "tokenizer_config.json", "tokenizer.json"])
def test_damaged_json_is_one_error(name, load, tmp_path):
    directory, _ = exported(load("bert", pooling="mean"), tmp_path / "out", "classification", False)
    file, half = directory / name, ["\ud800", "b", "c"]
    whole = file.read_text()
    for damage in ("deep", "link", "half", "nan"):
        if damage == "link":
            file.unlink()
            file.symlink_to(name)
        elif damage == "deep":
            file.write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
        elif damage == "half":
            edited(file, id2label=dict(enumerate(half)), labels=half)
        else:
            edited(file, max_length=float("nan"))
        with pytest.raises(ModelError) as caught:
            load_served(directory, "cpu")
        assert str(caught.value).encode()
        file.unlink()
        file.write_text(whole)
