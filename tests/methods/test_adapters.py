"""Adapters over a frozen encoder: LoRA, prefix-tuning and prompt tuning against formulas and the PEFT library."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from regft_core.errors import ModelError
from regft_core.hooks.base import Regulariser, Setting
from regft_core.methods.lora import Lora
from regft_core.methods.prefix_tuning import PrefixTuning
from regft_core.methods.prompt_tuning import PromptTuning, PromptTuningConfig
from regft_core.models.sites import classify
from regft_core.models.virtual_tokens import FAMILIES as PREFIXED
from regft_core.training.trainee import Trainee
from tests.errors import raises_code
from tests.methods.harness import TRAINING, Bench, source_of
from tests.skips import needs
from tests.tiny import ARCHITECTURES, EMBEDDERS


def bench(cls: type[Regulariser], options: dict[str, Any] | None = None, **more: Any) -> tuple[Bench, Any]:
    run = Bench([(cls, options or {})], **more)
    return run, run.method


def peft() -> Any:
    """The library, or a skip that says what to install."""
    return needs("peft", "peft")


def wrapped(model: Any, config: Any) -> Any:
    """A copy of the classifier under PEFT, in eval mode; the model itself is left as it is."""
    with torch.random.fork_rng(devices=[]):
        return peft().get_peft_model(copy.deepcopy(model), config).eval()


def trainable(trainee: Trainee) -> int:
    return sum(parameter.numel() for _, parameter in trainee.named_trainable())


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize(
    ("cls", "own"),
    [
        (Lora, 24 * 2 * 8 * 2048),  # 24 layers, 2 matrices of A [8, 1024] and B [1024, 8]
        (PrefixTuning, 20 * 24 * 2 * 1024),  # 20 keys and values of width 1024 in 24 layers
        (PromptTuning, 20 * 1024),  # 20 vectors of width 1024
    ],
)
def test_the_counts_of_bert_large(cls: type[Regulariser], own: int, labels: int) -> None:
    """With a head of 1025 per label."""
    from transformers import BertConfig, BertForSequenceClassification

    shape = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    with torch.device("meta"):
        model = BertForSequenceClassification(BertConfig(num_labels=labels, **shape))
    trainee = Trainee(model, None, source_of("bert"), 0, "finetune", torch.device("cpu"))
    cls(cls.Config(), Setting("classification", labels, 0, TRAINING)).prepare(trainee, {})
    assert trainable(trainee) == own + 1025 * labels


# ---------------------------------------------------------------------------------------------------------------- lora


def shaken(regulariser: Lora, size: float = 0.2) -> None:
    """Additions that are not 0."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for addition in regulariser.additions.values():
            addition.b.normal_(0, size, generator=generator)


@pytest.mark.parametrize(("architecture", "additions"), [("bert", 4), ("bart", 12), ("deberta", 2), ("albert", 2)])
def test_it_starts_at_the_base_model(architecture: str, additions: int) -> None:
    """Query and value of every attention; DeBERTa has them in one matrix, ALBERT shares one layer."""
    run, regulariser = bench(Lora, architecture=architecture)
    assert torch.equal(run.logits(), Bench(architecture=architecture).logits())
    assert len(regulariser.additions) == additions


def test_the_output_is_that_of_the_formula() -> None:
    run, regulariser = bench(Lora, {"rank": 3, "alpha": 6.0})
    shaken(regulariser)
    name = "bert.encoder.layer.1.attention.self.value"
    module, addition = run.model.get_submodule(name), regulariser.additions[name]
    x = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0))
    run.model.eval()
    expected = x @ module.weight.T + module.bias + 2.0 * x @ addition.a.T @ addition.b.T
    assert torch.allclose(module(x), expected, atol=1e-5)
    _, other = bench(Lora, {"rank": 9, "alpha": 6.0, "scaling": "root"})
    assert next(iter(other.additions.values())).scale == 2.0


def test_start_of_a_and_b() -> None:
    _, regulariser = bench(Lora, {"rank": 8})
    first, second = (regulariser.additions[f"bert.encoder.layer.{i}.attention.self.query"] for i in (0, 1))
    bound = 32**-0.5
    assert float(first.a.detach().abs().max()) <= bound
    assert float(first.a.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.1)
    assert not torch.equal(first.a, second.a)


@pytest.mark.parametrize(("target", "additions"), [("key", 2), ("dense", 6)])
def test_targets_are_names_of_linear_modules(target: str, additions: int) -> None:
    assert len(bench(Lora, {"targets": [target]})[1].additions) == additions
    with raises_code(ModelError, "unknown-module"):
        bench(Lora, {"targets": ["intermediate.dense"]})


def reference(run: Bench, regulariser: Lora, **options: Any) -> Any:
    """The same adapters in PEFT."""
    config = peft().LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, lora_dropout=0.1, **options)
    model = wrapped(Bench(architecture=run.trainee.sites.architecture).model, config)
    for name, addition in regulariser.additions.items():
        layer = model.base_model.model.get_submodule(name)
        with torch.no_grad():
            layer.lora_A["default"].weight.copy_(addition.a)
            layer.lora_B["default"].weight.copy_(addition.b)
    return model


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "deberta-v2"])
def test_peft_gives_the_same_logits_gradients_and_merge(architecture: str) -> None:
    peft()
    run, regulariser = bench(Lora, architecture=architecture)
    shaken(regulariser)
    model = reference(run, regulariser)
    assert torch.allclose(run.logits(), run.logits(model), atol=1e-6)
    trained, total = model.get_nb_trainable_parameters()
    # PEFT leaves DeBERTa's newly drawn pooler as it was drawn; here everything that is new is trained.
    pooler = 32 * 32 + 32 if architecture == "deberta-v2" else 0
    assert trainable(run.trainee) == trained + pooler
    assert total > trained
    inputs = run.inputs()
    for other in (run.model, model):
        other(**inputs).logits.square().sum().backward()
    for name, addition in regulariser.additions.items():
        layer = model.base_model.model.get_submodule(name)
        assert torch.allclose(addition.a.grad, layer.lora_A["default"].weight.grad, rtol=1e-3, atol=1e-5)
        assert torch.allclose(addition.b.grad, layer.lora_B["default"].weight.grad, rtol=1e-3, atol=1e-5)
    merged = model.merge_and_unload().state_dict()
    run.stack.export(run.trainee)
    for name, value in run.trainee.plain_weights().items():
        assert torch.allclose(value, merged[name], atol=1e-6), name


# ------------------------------------------------------------------------------------------------------- prefix tuning


CACHED = ["bert", "roberta", "electra"]


@pytest.mark.parametrize("architecture", CACHED)
@pytest.mark.parametrize("positions", ["kept", "shifted"])
def test_it_is_a_cache_of_keys_and_values(architecture: str, positions: str) -> None:
    from transformers import DynamicCache

    run, regulariser = bench(PrefixTuning, {"tokens": 5, "positions": positions}, architecture=architecture)
    found = run.logits()
    plain, inputs = Bench(architecture=architecture).model, run.inputs()
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    rows, layers = ids.shape[0], 2
    table = regulariser.table.detach().view(5, layers, 2, 2, 16)  # P, layer, key or value, heads, width
    cache = DynamicCache()
    for layer in range(layers):
        key, value = (table[:, layer, i].permute(1, 0, 2).expand(rows, 2, 5, 16) for i in (0, 1))
        cache.update(key, value, layer)
    if architecture == "roberta":
        places = torch.cumsum(mask, 1) * mask + 1
        places = places + (5 * mask if positions == "shifted" else 0)
    else:
        places = torch.arange(ids.shape[1]).expand_as(ids) + (5 if positions == "shifted" else 0)
    extended = torch.cat([torch.ones(rows, 5, dtype=mask.dtype), mask], dim=1)
    with torch.no_grad():
        hidden = plain.base_model(
            **{**inputs, "attention_mask": extended}, position_ids=places, past_key_values=cache
        ).last_hidden_state
        expected = plain.classifier(plain.bert.pooler(hidden) if architecture == "bert" else hidden)
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("architecture", PREFIXED)
def test_without_its_prefixes_the_base_model_is_left(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, regulariser = bench(PrefixTuning, architecture=architecture)
    base = Bench(architecture=architecture).logits()
    assert not torch.allclose(run.logits(), base, atol=1e-3)
    extend = regulariser.prefixes.extend

    def masked(key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        longer, values, seen = extend(key, value, mask)
        seen = torch.ones(len(key), 1, 1, longer.shape[2], dtype=torch.bool) if seen is None else seen
        seen[..., : longer.shape[2] - key.shape[2]] = False
        return longer, values, seen

    monkeypatch.setattr(regulariser.prefixes, "extend", masked)
    assert torch.allclose(run.logits(), base, atol=1e-6)
    run.stack.export(run.trainee)
    assert torch.equal(run.logits(), base)


@pytest.mark.parametrize(
    ("cls", "options", "architecture", "words"),
    [
        (PrefixTuning, {"positions": "shifted"}, "bert", ("and 150", "encoder's 160", "to 10")),
        (PromptTuning, {}, "bert", ("150 virtual", "encoder's 160")),
        (PromptTuning, {}, "roberta", ("150 virtual", "encoder's 158")),
    ],
)
def test_inputs_for_which_there_is_no_room_are_refused(
    cls: type[Regulariser], options: dict[str, Any], architecture: str, words: tuple[str, ...]
) -> None:
    run, _ = bench(cls, {**options, "tokens": 150}, architecture=architecture)
    with raises_code(ModelError, "input-too-long", *words):
        run.logits()


@pytest.mark.parametrize(
    ("cls", "options", "architecture"),
    [(PrefixTuning, {"positions": "shifted"}, "bert"), (PromptTuning, {}, "bert"), (PromptTuning, {}, "roberta")],
)
def test_peft_gives_the_same_logits(cls: type[Regulariser], options: dict[str, Any], architecture: str) -> None:
    kinds = {PrefixTuning: peft().PrefixTuningConfig, PromptTuning: peft().PromptTuningConfig}
    run, regulariser = bench(cls, options, architecture=architecture)
    config = kinds[cls](task_type="SEQ_CLS", num_virtual_tokens=20)
    model = wrapped(Bench(architecture=architecture).model, config)
    theirs = model.prompt_encoder["default"].embedding.weight
    assert theirs.shape == regulariser.table.shape
    with torch.no_grad():
        theirs.copy_(regulariser.table)
    assert torch.allclose(run.logits(), run.logits(model), atol=1e-6)
    assert trainable(run.trainee) == model.get_nb_trainable_parameters()[0]


# ------------------------------------------------------------------------------------------------------- prompt tuning


REFUSED = PromptTuning.declare(PromptTuningConfig()).description.refused_architectures
PROMPT_TUNING_FAMILIES = [name for name in ARCHITECTURES if name not in REFUSED]
#: Families whose head reads the first hidden state itself.
FIRST = ["bert", "roberta", "electra", "deberta", "deberta-v2", "distilbert", "albert", "mpnet", "modernbert", "gte"]


def fed(run: Bench, table: torch.Tensor) -> dict[str, torch.Tensor]:
    """Model inputs in which the vectors stand before the words' embeddings."""
    inputs, count = run.inputs(), len(table)
    words = run.model.get_input_embeddings()(inputs.pop("input_ids"))
    rows = len(words)
    found = {"inputs_embeds": torch.cat([table.expand(rows, -1, -1), words], dim=1)}
    for name, value in (("attention_mask", 1), ("token_type_ids", 0)):
        if name in inputs:
            added = torch.full((rows, count), value, dtype=inputs[name].dtype)
            found[name] = torch.cat([added, inputs[name]], dim=1)
    return found


@pytest.mark.parametrize("architecture", FIRST)
def test_the_head_reads_a_virtual_token(architecture: str) -> None:
    run, regulariser = bench(PromptTuning, architecture=architecture)
    with torch.no_grad():
        expected = Bench(architecture=architecture).model(**fed(run, regulariser.table)).logits
    assert torch.allclose(run.logits(), expected, atol=1e-6)


@pytest.mark.parametrize("architecture", PROMPT_TUNING_FAMILIES)
def test_or_the_first_token_of_the_text(architecture: str) -> None:
    run, regulariser = bench(PromptTuning, {"reads": "text"}, architecture=architecture)
    plain: Any = Bench(architecture=architecture).model
    with torch.no_grad():
        hidden = plain.base_model(**fed(run, regulariser.table)).last_hidden_state[:, 20:]
        if architecture in ("bert", "gte"):
            expected = plain.classifier(plain.base_model.pooler(hidden))
        elif architecture == "albert":
            expected = plain.classifier(torch.tanh(plain.albert.pooler(hidden[:, 0])))
        elif architecture in ("roberta", "electra", "mpnet"):
            expected = plain.classifier(hidden)
        elif architecture == "distilbert":
            expected = plain.classifier(torch.relu(plain.pre_classifier(hidden[:, 0])))
        elif architecture.startswith("deberta"):
            expected = plain.classifier(plain.pooler(hidden))
        elif architecture == "modernbert":
            expected = plain.classifier(plain.head(hidden[:, :1]))[:, 0]
        else:
            mask = run.inputs()["attention_mask"].unsqueeze(-1)
            expected = plain.classifier(plain.activation(plain.dense(hidden)))
            expected = (expected * mask).sum(1) / mask.sum(1)
    assert torch.allclose(run.logits(), expected, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooled_heads_pool_over_the_text_in_both(pooling: str) -> None:
    run, method = bench(PromptTuning, pooling=pooling)
    text, other = bench(PromptTuning, {"reads": "text"}, pooling=pooling)
    assert torch.equal(run.logits(), text.logits())
    assert [len(each.marks) for each in (method, other)] == [0, 1]  # reads: text changes nothing
    plain: Any = Bench(pooling=pooling).model
    with torch.no_grad():
        hidden = plain.base_model(**fed(run, method.table)).last_hidden_state[:, 20:]
        mask = run.inputs()["attention_mask"].unsqueeze(-1)
        pooled = hidden[:, 0] if pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
        assert torch.allclose(run.logits(), plain.classifier(pooled), atol=1e-6)


@pytest.mark.parametrize("architecture", ["bert", *EMBEDDERS])
def test_padding_comes_between_no_vector_and_the_text(architecture: str) -> None:
    run, _ = bench(PromptTuning, architecture=architecture)
    together = run.logits()
    for row, expected in enumerate(together):
        with torch.no_grad():
            alone, _ = classify(run.model, run.stream.collate([row]).model_inputs())
        assert torch.allclose(alone[0], expected, atol=1e-5)


def test_the_two_starts() -> None:
    _, normal = bench(PromptTuning, {"tokens": 100})
    assert float(normal.table.detach().std()) == pytest.approx(1.0, rel=0.05)
    for architecture in ("gemma3_text", "bert"):
        run, drawn = bench(PromptTuning, {"start": "vocabulary"}, architecture=architecture)
        looked_up = run.model.get_input_embeddings()(torch.arange(len(run.tokenizer)))
        assert all((looked_up == vector).all(1).any() for vector in drawn.table)
    assert len(drawn.table.unique(dim=0)) > 10
