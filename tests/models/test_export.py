from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils import parametrize
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from regft_core.errors import ExportMismatch, ModelError
from regft_core.models.export import export_model, fold, model_card
from regft_core.models.layout import load_modules
from regft_core.models.pooling import PooledClassifier
from regft_core.models.sites import SiteHooks, classify, find_sites
from tests.errors import raises_code
from tests.extras import needs
from tests.tiny import ARCHITECTURES

FACTS = {
    "name": "sentiment-hype",
    "method": "hype_n",
    "description": "Noise at every layer.",
    "base_model": 'odd "name"',
    "task": "sentiment",
    "kind": "classification",
    "labels": ["negative", "positive"],
    "train_rows": 300,
    "seed": 4,
    "confidence": 0.95,
    "scores": [
        {"set": "dev", "metric": "accuracy", "value": 0.81234, "mean": 0.8, "low": 0.79, "high": 0.8301, "runs": 5},
        {"set": "reversed", "metric": "accuracy", "value": None},
    ],
    "versions": {"torch": "2"},
    "limits": ["Degraded: bf16"],
    "cost": {"Training": "57 steps"},
    "columns": {"text": "review", "label": "verdict"},
}


class Double(nn.Module):
    def forward(self, weight):
        return 2.0 * weight


def export(loaded, directory, **changes):
    options = {"card": "# card\n", "check_batch": loaded.batch(), **changes}
    return export_model(loaded.model, loaded.tokenizer, directory, **options)


def leftovers(path):
    return sorted(child.name for child in path.iterdir())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_exported_directory_gives_the_same_logits_without_regft(architecture, load, tmp_path):
    loaded = load(architecture)
    loaded.model.train()
    directory = export(loaded, tmp_path / "out")
    assert loaded.model.training, "the mode of the model is restored"
    assert leftovers(tmp_path) == ["out"]
    assert {"config.json", "model.safetensors", "README.md", "tokenizer.json"} <= set(leftovers(directory))
    assert not list(directory.glob("*.bin"))
    model = AutoModelForSequenceClassification.from_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    texts = ["a film that is not bad", "yes"]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(model(**batch).logits, classify(loaded.model.eval(), loaded.batch(*texts))[0])
    assert model.config.id2label == {0: "no", 1: "maybe", 2: "yes"}


@pytest.mark.parametrize("architecture", ["bert", "xlnet", "albert"])
def test_parametrized_weights_are_folded_and_the_model_keeps_them(architecture, load, tmp_path):
    loaded = load(architecture)
    plain = classify(loaded.model, loaded.batch())[0]
    name = find_sites(loaded.model).mixable[1]
    module_name, tensor = name.rsplit(".", 1)
    module = loaded.model.get_submodule(module_name)
    original = getattr(module, tensor).detach().clone()
    parametrize.register_parametrization(module, tensor, Double())
    doubled = classify(loaded.model, loaded.batch())[0]
    assert not torch.allclose(plain, doubled)

    directory = export(loaded, tmp_path / "out")
    model = AutoModelForSequenceClassification.from_pretrained(directory)
    assert torch.equal(model.get_parameter(name), 2.0 * original)
    assert not any("parametrizations" in key for key in model.state_dict())
    assert torch.equal(classify(model, loaded.batch())[0], doubled)
    assert parametrize.is_parametrized(module, tensor), "the trained model itself is not changed"


def test_training_hooks_stay_behind(load, tmp_path):
    loaded = load("bert")
    expected = classify(loaded.model, loaded.batch())[0]
    hooks = SiteHooks(loaded.model, find_sites(loaded.model))
    hooks.on_layer_input(lambda tensor, site: tensor + 1.0)
    plain = fold(loaded.model.train())
    assert torch.equal(classify(plain.train(False), loaded.batch())[0], expected)
    export(loaded, tmp_path / "out")


def test_something_that_acts_in_evaluation_outside_the_weights_is_a_mismatch(load, tmp_path):
    loaded = load("bert")
    hooks = SiteHooks(loaded.model, find_sites(loaded.model))
    hooks.on_layer_input(lambda tensor, site: tensor * 1.5, always=True)
    with raises_code(ExportMismatch, "export-differs"):
        export(loaded, tmp_path / "out")
    assert leftovers(tmp_path) == []


def test_a_failed_export_leaves_the_earlier_one(load, tmp_path):
    loaded = load("bert")
    export(loaded, tmp_path / "out", card="first")
    hooks = SiteHooks(loaded.model, find_sites(loaded.model))
    hooks.on_layer_input(lambda tensor, site: tensor * 1.5, always=True)
    with pytest.raises(ExportMismatch):
        export(loaded, tmp_path / "out", card="second")
    assert (tmp_path / "out" / "README.md").read_text() == "first"
    hooks.remove()
    export(loaded, tmp_path / "out", card="third")
    assert (tmp_path / "out" / "README.md").read_text() == "third"
    assert leftovers(tmp_path) == ["out"]


def test_parameters_that_would_be_lost_are_an_error(load, tmp_path):
    loaded = load("bert")
    loaded.model.confidence = nn.Linear(32, 1)
    with raises_code(ModelError, "does-not-fold", "confidence.weight"):
        export(loaded, tmp_path / "out")
    assert leftovers(tmp_path) == []


def test_a_directory_of_something_else_is_not_replaced(load, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with raises_code(ModelError, "in-the-way"):
        export(load("bert"), tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_pipeline_of_a_fresh_process_serves_it(load, tmp_path):
    loaded = load("bert")
    directory = export(loaded, tmp_path / "out")
    code = (
        "import json, sys\nfrom transformers import pipeline\n"
        "serve = pipeline('text-classification', model=sys.argv[1], top_k=None)\n"
        "print(json.dumps(serve('the film was good')))\n"
        "assert not any(name.startswith('regft') for name in sys.modules)\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout.splitlines()[-1])
    served = {row["label"]: row["score"] for row in (served[0] if isinstance(served[0], list) else served)}
    logits = classify(loaded.model, loaded.batch("the film was good"))[0]
    expected = dict(zip(("no", "maybe", "yes"), logits.softmax(-1)[0].tolist(), strict=True))
    assert served == pytest.approx(expected, abs=1e-5)


def run_code(code, directory, tmp_path):
    """The last line that ``code`` prints in a fresh process, which gets ``directory`` as its argument."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, "-c", code, str(directory)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_a_text_longer_than_the_model_was_trained_on_is_classified(load, tmp_path):
    loaded = load("bert")
    directory = export(loaded, tmp_path / "out", max_length=24, card=model_card({"max_length": 24}))
    assert "24 tokens" in (directory / "README.md").read_text()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    assert tokenizer.model_max_length == 24
    assert json.loads((directory / "tokenizer.json").read_text())["truncation"]["max_length"] == 24
    assert loaded.tokenizer.model_max_length == 160, "the trained model's tokenizer stays as it is"
    assert loaded.tokenizer.backend_tokenizer.truncation is None
    text = "the film was good " * 200
    serve = pipeline("text-classification", model=str(directory), truncation=True, top_k=None)
    served = {row["label"]: row["score"] for row in serve([text])[0]}
    batch = loaded.tokenizer(text, truncation=True, max_length=24, return_tensors="pt")
    expected = classify(loaded.model, batch)[0].softmax(-1)[0].tolist()
    assert served == pytest.approx(dict(zip(("no", "maybe", "yes"), expected, strict=True)), abs=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_pooled_model_is_exported_in_the_layout_of_sentence_transformers(architecture, pooling, load, tmp_path):
    loaded = load(architecture)
    directory = export(loaded, tmp_path / "out", max_length=64)
    names = {"config.json", "model.safetensors", "tokenizer.json", "modules.json", "1_Pooling", "2_Dense", "README.md"}
    assert names <= set(leftovers(directory))
    assert leftovers(tmp_path) == ["out"]
    assert not [path for path in directory.rglob("*") if path.suffix in (".bin", ".pt")]
    modes = json.loads((directory / "1_Pooling" / "config.json").read_text())
    chosen = [name for name, value in modes.items() if value is True]
    last = architecture in ("xlnet", "bart")
    token = "pooling_mode_lasttoken" if last else "pooling_mode_cls_token"
    assert chosen == ["pooling_mode_mean_tokens" if pooling == "mean" else token]
    # By hand, with nothing of regft: rows of different length, so that padding would show.
    batch = loaded.batch()
    encoder, head = AutoModel.from_pretrained(directory).eval(), load_file(directory / "2_Dense" / "model.safetensors")
    with torch.no_grad():
        tokens, mask = encoder(**batch).last_hidden_state, batch["attention_mask"] == 1
        rows = [row[real] for row, real in zip(tokens, mask, strict=True)]
        vectors = torch.stack([row.mean(0) if pooling == "mean" else row[-1 if last else 0] for row in rows])
        logits = vectors @ head["linear.weight"].T + head["linear.bias"]
        assert torch.allclose(logits, classify(loaded.model, batch)[0], atol=1e-5)
    assert encoder.config.id2label == {0: "no", 1: "maybe", 2: "yes"}


@pytest.mark.parametrize("architecture", ["bert", "xlnet", "mpnet", "modernbert", "bart"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "unit_mean"])
def test_sentence_transformers_gives_the_logits(architecture, pooling, load, tmp_path):
    package = needs("sentence_transformers", "setfit")
    loaded = load(architecture)
    directory = export(loaded, tmp_path / "out", max_length=64)
    texts = ["a film that is not bad", "yes", "no one " * 100]
    found = package.SentenceTransformer(str(directory), device="cpu").encode(texts)
    batch = loaded.tokenizer(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")
    with torch.no_grad():
        assert torch.allclose(torch.from_numpy(found), classify(loaded.model, batch)[0], atol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "pooling", "rows", "kind"),
    [
        *(
            ("bert", "mean", 1, "classification"),
            ("bert", "unit_mean", 1, "classification"),
            ("xlnet", "cls", 1, "classification"),
        ),
        *(("mpnet", "cls", 2, "classification"), ("bert", "mean", 2, "regression")),
    ],
)
def test_the_code_on_the_card_gives_the_models_answer(architecture, pooling, rows, kind, load, tmp_path):
    labels = ("no", "maybe", "yes") if kind == "classification" else None
    loaded = load(architecture, rows_per_example=rows, kind=kind, labels=labels)
    card = model_card({"kind": kind, "pooling": pooling, "rows_per_example": rows, "summary": loaded.model.summary})
    directory = export(loaded, tmp_path / "out", card=card, max_length=32, check_batch=loaded.batch("a", "b c"))
    assert ("2_Dense" in leftovers(directory), "pair_head" in leftovers(directory)) == (rows == 1, rows == 2)
    code = card.split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 20
    code = code.replace('"path/to/this/directory"', "__import__('sys').argv[1]")
    printed = run_code(code, directory, tmp_path)
    batch = loaded.batch(*(("a text",) if rows == 1 else ("first text", "second text")))
    logits = classify(loaded.model, batch)[0]
    if labels is None:
        assert json.loads(printed) == pytest.approx(logits.squeeze(-1).tolist(), abs=1e-5)
    else:
        assert printed == str([labels[best] for best in logits.argmax(-1).tolist()])


@pytest.mark.parametrize("pooling", ["mean"])
def test_a_head_on_unscaled_pairs_of_an_earlier_version_is_refused(pooling, load, tmp_path):
    loaded = load("bert", rows_per_example=2)
    directory = export(loaded, tmp_path / "out", max_length=32, check_batch=loaded.batch("a", "b c"))
    assert load_modules(directory).rows_per_example == 2
    file = directory / "pair_head" / "config.json"
    file.write_text(json.dumps({key: value for key, value in json.loads(file.read_text()).items() if key != "vectors"}))
    with raises_code(ModelError, "outdated-export"):
        load_modules(directory)
    file.unlink()
    with raises_code(ModelError, "cannot-load", "config.json"):
        load_modules(directory)


@pytest.mark.parametrize("pooling", ["mean"])
def test_a_pooled_models_parametrized_weights_are_folded(pooling, load, tmp_path):
    loaded = load("bert")
    parametrize.register_parametrization(loaded.model.bert.encoder.layer[0].output.dense, "weight", Double())
    doubled = classify(loaded.model, loaded.batch())[0]
    plain = fold(loaded.model)
    assert isinstance(plain, PooledClassifier)
    assert torch.equal(classify(plain, loaded.batch())[0], doubled)
    export(loaded, tmp_path / "out")
    hooks = SiteHooks(loaded.model, find_sites(loaded.model))
    hooks.on_layer_input(lambda tensor, site: tensor * 1.5, always=True)
    with raises_code(ExportMismatch, "export-differs"):
        export(loaded, tmp_path / "other")
    assert leftovers(tmp_path) == ["out"]


def test_the_card_shows_method_data_and_scores_with_their_interval():
    card = model_card(FACTS)
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert 'base_model: "odd \\"name\\""' in card
    for text in ("hype_n", "sentiment, classification", "0 = negative, 1 = positive", "300", "- Degraded: bf16"):
        assert text in card
    for text in ("57 steps", "text `review`"):
        assert text in card
    assert "| dev | accuracy | 0.8123 | 0.8000 | 0.7900 to 0.8301 | 5 |" in card
    assert "95% interval" in card
    assert "| reversed | accuracy | failed |  |  |  |" in card


def test_the_card_says_nothing_about_what_it_was_not_told():
    card = model_card({})
    assert "None" not in card
    assert "## Scores" not in card
    assert "pipeline(" in card
