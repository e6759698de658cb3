from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

from regft_core.errors import ModelError
from regft_core.models.architectures import apply_dropout, dropout_fields
from regft_core.models.load import load_classifier, load_masked_lm_head, load_tokenizer
from regft_core.models.sites import classify, find_sites
from regft_core.models.source import resolve_model
from regft_core.schema import DropoutConfig
from regft_core.schema.training import EncoderConfig
from tests.errors import raises_code
from tests.methods import harness
from tests.models.conftest import Loaded, edited, every_head
from tests.tiny import ARCHITECTURES, MASKED_LM_ARCHITECTURES, tiny_config, tiny_tokenizer

#: Paths of attention-probability dropout; every other dropout acts on hidden representations.
ATTENTION = {
    "bart": ("self_attn", "encoder_attn"),
    "distilbert": ("attention.dropout",),
    "albert": ("attention.attention_dropout",),
    "mpnet": ("attention.attn.dropout",),
    "modernbert": ("attn.out_drop", "attention_dropout"),
    "eurobert": ("attention_dropout",),
    "gte": ("self_attn:attention_dropout",),
}
#: Families without any dropout of hidden representations.
NO_HIDDEN_DROPOUT = ("eurobert",)


@pytest.fixture(autouse=True)
def fresh():
    """Loading is what these tests are about."""
    harness.loaded.cache_clear()


def reload(path, **changes):
    options = {"kind": "classification", "labels": ("a", "b"), "dropout": DropoutConfig(), "head_seed": 0, **changes}
    return load_classifier(resolve_model(EncoderConfig(name=str(path)), Path(".")), **options)


def head_of(model):
    return {name: model.get_parameter(name).detach() for name in find_sites(model).head}


def dropouts(model):
    """Name -> probability of every dropout; some families keep theirs as plain attributes of their modules."""
    found = {name: module.p for name, module in model.named_modules() if isinstance(module, nn.Dropout)}
    for name, module in model.named_modules():
        for attribute in ("dropout", "activation_dropout", "attention_dropout"):
            if isinstance(getattr(module, attribute, None), int | float):
                found[f"{name}:{attribute}"] = getattr(module, attribute)
    return found


@every_head
def test_hidden_dropout_off_leaves_attention_dropout_on(architecture, pooling, load):
    kept = dropouts(load(architecture, dropout=DropoutConfig()).model)
    assert set(kept.values()) == {0.1}, "the tiny checkpoint has 0.1 everywhere"
    found = dropouts(load(architecture, dropout=DropoutConfig(hidden=0.0)).model)
    assert set(found) <= set(kept)
    if architecture == "xlnet" and pooling == "mean":
        assert set(found.values()) == {0.0}
        return
    if architecture == "xlnet":  # one field for both; the summary keeps its own
        assert {name: p for name, p in found.items() if p > 0} == {"sequence_summary.last_dropout": 0.1}
        return
    marks = ATTENTION.get(architecture, ("attention.self.dropout",))
    attention = {name: p for name, p in found.items() if any(mark in name for mark in marks)}
    hidden = {name: p for name, p in found.items() if name not in attention}
    assert set(attention.values()) == {0.1}
    assert set(hidden.values()) == (set() if architecture in NO_HIDDEN_DROPOUT else {0.0})
    # one per layer, two in a BART decoder layer; ALBERT has one layer, called twice; ModernBERT's acts in two places
    assert len(attention) == {"bart": 6, "albert": 1, "modernbert": 4}.get(architecture, 2)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dropout_fields_take_what_is_given(architecture):
    config = tiny_config(architecture, tiny_tokenizer(architecture))
    fields, hidden = dropout_fields(config), 0.0 if architecture in NO_HIDDEN_DROPOUT else 0.3
    apply_dropout(config, hidden, hidden if architecture == "xlnet" else 0.6)
    assert bool(fields["hidden"]) == (architecture not in NO_HIDDEN_DROPOUT)
    assert all(getattr(config, name) == hidden for name in fields["hidden"])
    assert all(getattr(config, name) == 0.6 for name in fields["attention"])
    assert not set(fields["hidden"]) & set(fields["attention"])


@every_head
def test_the_head_is_a_function_of_its_seed_alone(architecture, pooling, load):
    before = torch.get_rng_state()
    first = head_of(load(architecture, head_seed=7).model)
    assert torch.equal(torch.get_rng_state(), before), "loading moved the global generator"
    torch.manual_seed(99)
    hidden = 0.0 if architecture in NO_HIDDEN_DROPOUT else 0.3
    second = head_of(load(architecture, head_seed=7, dropout=DropoutConfig(hidden=hidden)).model)
    other = head_of(load(architecture, head_seed=8).model)
    assert first.keys() == second.keys() == other.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    for name, value in first.items():
        if name.endswith("bias"):
            assert not value.any()
        elif value.dim() == 1:  # the norm in ModernBERT's head
            assert (value == 1).all()
        else:
            assert not torch.equal(value, other[name])
            assert value.std().item() == pytest.approx(0.1, rel=0.35)  # initializer_range of the tiny models


@every_head
def test_everything_but_the_head_comes_from_the_checkpoint(architecture, pooling, load):
    loaded = load(architecture)
    if architecture == "gte":  # its files have other names and packed matrices, which transformers unpacks
        stored = AutoModel.from_pretrained(loaded.source.path, add_pooling_layer=True).state_dict()
    else:
        stored = load_file(loaded.source.path / "model.safetensors")
    base = loaded.model.base_model_prefix
    head = set(find_sites(loaded.model).head)
    seen = 0
    for name, value in loaded.model.named_parameters():
        if name not in head:
            assert torch.equal(value, stored[name.removeprefix(f"{base}.")]), name
            assert value.dtype == torch.float32
            seen += 1
    assert seen > 10


def test_a_pretrained_head_is_kept_and_one_that_is_absent_is_drawn(load):
    loaded = load("modernbert", masked_lm=True)
    stored = load_file(loaded.source.path / "model.safetensors")
    assert torch.equal(loaded.model.head.dense.weight, stored["head.dense.weight"])
    assert find_sites(loaded.model).head == ("classifier.weight", "classifier.bias")
    other = load("modernbert", masked_lm=True, head_seed=9)
    assert torch.equal(other.model.head.dense.weight, stored["head.dense.weight"])
    assert not torch.equal(other.model.classifier.weight, loaded.model.classifier.weight)

    bare = load("modernbert")
    assert "head.dense.weight" not in load_file(bare.source.path / "model.safetensors")
    assert "head.dense.weight" in find_sites(bare.model).head


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_pooling_of_the_checkpoints_own_classifier_is_respected(pooling, load, tmp_path):
    path = Path(shutil.copytree(load("modernbert").source.path, tmp_path / "own"))
    edited(path / "config.json", classifier_pooling=pooling)
    model = reload(path)
    batch = load("modernbert").batch("no film is bad")
    logits, hidden = classify(model, batch, need_hidden=True)
    pooled = hidden[:, 0] if pooling == "cls" else hidden.mean(1)
    assert torch.allclose(logits, model.classifier(model.head(pooled)), atol=1e-6)


def test_sdpa_is_used_where_the_family_has_it(load):
    assert load("bert").model.config._attn_implementation == "sdpa"
    assert load("deberta").model.config._attn_implementation == "eager"


def test_a_half_precision_checkpoint_is_loaded_in_fp32(own):
    weights = {name: value.half() for name, value in load_file(own / "model.safetensors").items()}
    save_file(weights, own / "model.safetensors", metadata={"format": "pt"})
    assert {value.dtype for value in reload(own).parameters()} == {torch.float32}


def test_a_fine_tuned_head_is_drawn_anew_whatever_its_width(own, load):
    model = load("bert").model
    with torch.no_grad():
        model.classifier.weight.fill_(5.0)
    model.save_pretrained(own)
    for labels in (("a", "b"), ("a", "b", "c")):
        found = reload(own, labels=labels)
        assert found.classifier.weight.shape[0] == len(labels)
        assert found.classifier.weight.abs().max() < 1


@pytest.mark.parametrize(
    ("architecture", "dropout"), [("xlnet", {"hidden": 0.0, "attention": 0.1}), ("eurobert", {"hidden": 0.1})]
)
def test_a_dropout_that_the_family_does_not_have_is_refused(architecture, dropout, load):
    with raises_code(ModelError, "dropout-not-possible"):
        load(architecture, dropout=DropoutConfig(**dropout))


def without(own, name):
    weights = load_file(own / "model.safetensors")
    del weights[name]
    save_file(weights, own / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("edit", "code", "said"),
    [
        (lambda own: without(own, "encoder.layer.1.output.dense.weight"), "weights-do-not-fit", "layer.1.output.dense"),
        (lambda own: edited(own / "config.json", num_hidden_layers=1), "weights-do-not-fit", "layer.1."),
        (lambda own: edited(own / "config.json", intermediate_size=48), "weights-do-not-fit", "mis-shapes"),
        (lambda own: (own / "model.safetensors").write_bytes(b"not safetensors"), "cannot-load", ""),
        (lambda own: (own / "tokenizer.json").write_text('{"version": "1.0"}'), "cannot-load", "tokenizer"),
        (lambda own: edited(own / "tokenizer_config.json", pad_token=None), "pad-token-missing", ""),
    ],
)
def test_a_checkpoint_that_is_not_whole_is_refused(own, edit, code, said):
    edit(own)
    with raises_code(ModelError, code, said):
        load_tokenizer(resolve_model(EncoderConfig(name=str(own)), Path(".")))
        reload(own)


@pytest.mark.parametrize(("architecture", "side"), [("bert", "left"), ("roberta", "left"), ("xlnet", "right")])
def test_rows_are_padded_where_the_family_reads_no_padding(architecture, side, tmp_path):
    path = shutil.copytree(harness.source_of(architecture).path, tmp_path / "own")
    edited(path / "tokenizer_config.json", padding_side=side)
    source = resolve_model(EncoderConfig(name=str(path)), Path("."))
    own = Loaded(source, reload(path), load_tokenizer(source))
    with torch.no_grad():
        together, alone = (own.model(**own.batch(*texts)).logits[-1] for texts in ((), ("no",)))
    assert torch.allclose(together, alone, atol=1e-5)


# -------------------------------------------------------------------------------------------------- masked-LM heads


#: Families whose masked LM has an output matrix of its own.
UNTIED = ("eurobert",)


@pytest.mark.parametrize("architecture", MASKED_LM_ARCHITECTURES)
def test_the_pretrained_head_gives_the_logits_of_the_familys_own_masked_lm(architecture, load):
    loaded = load(architecture, masked_lm=True)
    head, pretrained = load_masked_lm_head(loaded.source, loaded.model)
    assert pretrained
    auto = AutoModelForCausalLM if architecture == "xlnet" else AutoModelForMaskedLM
    reference = auto.from_pretrained(loaded.source.path).eval()
    batch = loaded.batch()
    with torch.no_grad():
        expected = reference(**batch).logits
        _, hidden = classify(loaded.model, batch, need_hidden=True)
        found = head(hidden[1, 2:5])  # any choice of positions, [m, H]
    assert found.shape == (3, len(loaded.tokenizer))
    assert torch.allclose(found, expected[1, 2:5], atol=1e-5)


@pytest.mark.parametrize("architecture", [name for name in MASKED_LM_ARCHITECTURES if name not in UNTIED])
@pytest.mark.parametrize("masked_lm", [True, False])
def test_the_output_matrix_is_the_input_embedding(architecture, masked_lm, load):
    loaded = load(architecture, masked_lm=masked_lm)
    head, pretrained = load_masked_lm_head(loaded.source, loaded.model)
    assert pretrained == (masked_lm or architecture == "bart")  # whose head is the embedding alone
    embedding = loaded.model.get_input_embeddings().weight
    assert any(parameter is embedding for parameter in head.parameters())
    stored = load_file(loaded.source.path / "model.safetensors")
    assert any(torch.equal(value, embedding) for value in stored.values())
    hidden = torch.randn(4, 32)
    with torch.no_grad():
        first = head(hidden)
        embedding[7] += 1.0  # moving the embedding moves this token's logit and no other
        change = (head(hidden) - first).abs().sum(0)
    assert change.sum() == change[7] > 0


def test_a_pretrained_output_matrix_that_is_not_tied_stays_the_heads_own(load):
    loaded = load("eurobert", masked_lm=True)
    head, pretrained = load_masked_lm_head(loaded.source, loaded.model)
    assert pretrained
    stored = load_file(loaded.source.path / "model.safetensors")
    assert torch.equal(head.weight, stored["lm_head.weight"])
    assert not torch.equal(head.weight, loaded.model.get_input_embeddings().weight)
    absent = load("eurobert")
    head, pretrained = load_masked_lm_head(absent.source, absent.model)
    assert not pretrained
    assert head.weight is absent.model.get_input_embeddings().weight, "nothing of its own to learn from few rows"


@pytest.mark.parametrize("architecture", [name for name in MASKED_LM_ARCHITECTURES if name != "bart"])
def test_a_head_that_the_checkpoint_lacks_is_drawn_from_its_seed(architecture, load):
    loaded = load(architecture)
    state = torch.get_rng_state()
    hidden = torch.linspace(-1, 1, 64).view(2, 32)

    def logits(seed):
        head, pretrained = load_masked_lm_head(loaded.source, loaded.model, head_seed=seed)
        assert not pretrained
        return head(hidden).detach()

    embedding = loaded.model.get_input_embeddings().weight.detach().clone()
    first = logits(3)
    assert torch.equal(first, logits(3))
    if architecture not in ("xlnet", "eurobert"):  # their heads are the embedding (and a bias), with nothing to draw
        assert not torch.equal(first, logits(4))
    assert torch.equal(torch.get_rng_state(), state), "the caller's generator moved"
    assert torch.equal(loaded.model.get_input_embeddings().weight, embedding)
