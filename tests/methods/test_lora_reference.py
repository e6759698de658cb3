"""LoRA against its formula, the parameter counts of the literature and the PEFT library."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.errors import ModelError
from regft_core.hooks import compose
from regft_core.hooks.base import Setting
from regft_core.methods.lora import Lora, LoraConfig
from regft_core.schema import DropoutConfig
from tests.errors import raises_code
from tests.methods.harness import TRAINING, Bench, entries
from tests.methods.peft_oracle import bert_large, peft, trainable, wrapped
from tests.tiny import ARCHITECTURES

FAMILIES = [name for name in ARCHITECTURES if name != "xlnet"]


def bench(options: dict[str, Any] | None = None, **more: Any) -> tuple[Bench, Lora]:
    run = Bench([("lora", options or {})], **more)
    regulariser = run.stack.regularisers[0]
    assert isinstance(regulariser, Lora)
    return run, regulariser


def logits(run: Bench, model: Any = None) -> torch.Tensor:
    inputs = run.stream.batch(0).model_inputs()
    if not run.trainee.sites.token_types:
        inputs.pop("token_type_ids", None)
    with torch.no_grad():
        found: torch.Tensor = (model or run.model).eval()(**inputs).logits
    return found


def shaken(regulariser: Lora, size: float = 0.2) -> None:
    """Additions that are not 0."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for addition in regulariser.additions.values():
            addition.b.normal_(0, size, generator=generator)


@pytest.mark.parametrize(("labels", "count"), [(2, 788_482), (1, 787_457)])
def test_the_counts_of_bert_large(labels: int, count: int) -> None:
    """24 layers, 2 matrices of A [8, 1024] and B [1024, 8], and a head of 1025 per label."""
    trainee = bert_large(labels)
    Lora(LoraConfig(), Setting("classification", labels, 0, TRAINING)).prepare(trainee, {})
    assert trainable(trainee) == count == 24 * 2 * 8 * 2048 + 1025 * labels


@pytest.mark.parametrize("architecture", FAMILIES)
def test_it_starts_at_the_base_model(architecture: str) -> None:
    run, regulariser = bench(architecture=architecture)
    assert torch.equal(logits(run), logits(Bench(architecture=architecture)))
    attentions = {"bart": 6, "albert": 1}.get(architecture, 2)
    packed = architecture in ("deberta", "modernbert")
    assert len(regulariser.additions) == attentions * (1 if packed else 2)


def test_the_output_is_that_of_the_formula() -> None:
    run, regulariser = bench({"rank": 3, "alpha": 6.0})
    shaken(regulariser)
    name = "bert.encoder.layer.1.attention.self.value"
    module, addition = run.model.get_submodule(name), regulariser.additions[name]
    x = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0))
    run.model.eval()
    expected = x @ module.weight.T + module.bias + 2.0 * x @ addition.a.T @ addition.b.T
    assert torch.allclose(module(x), expected, atol=1e-5)
    root, other = bench({"rank": 4, "alpha": 6.0, "scaling": "root"})
    assert next(iter(other.additions.values())).scale == 3.0
    assert root.setting.num_labels == 2


def test_start_of_a_and_b() -> None:
    _, regulariser = bench({"rank": 8})
    first, second = (regulariser.additions[f"bert.encoder.layer.{i}.attention.self.query"] for i in (0, 1))
    bound = 32**-0.5
    assert float(first.a.detach().abs().max()) <= bound
    assert float(first.a.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.1)
    assert not torch.equal(first.a, second.a)
    assert not first.b.any()


@pytest.mark.parametrize("architecture", FAMILIES)
def test_folding_changes_nothing(architecture: str) -> None:
    run, regulariser = bench(architecture=architecture)
    shaken(regulariser)
    expected = logits(run)
    assert not torch.equal(expected, logits(Bench(architecture=architecture)))
    run.stack.export(run.trainee)
    assert float((logits(run) - expected).abs().max()) <= Lora.declare(LoraConfig()).says.export_tolerance
    fresh = Bench(architecture=architecture)
    fresh.model.load_state_dict(run.trainee.plain_weights(), strict=True)
    assert torch.equal(logits(fresh), logits(run))


def test_only_additions_and_head_are_trained() -> None:
    run, regulariser = bench(training=TRAINING.model_copy(update={"weight_decay": 0.5}))
    before = run.trainee.plain_weights()
    starts = {name: (a.a.detach().clone(), a.b.detach().clone()) for name, a in regulariser.additions.items()}
    run.loop().train()
    after = run.trainee.plain_weights()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    assert run.trainee.raw("bert.pooler.dense.weight").requires_grad is False
    for name, (a, b) in starts.items():
        assert not torch.equal(regulariser.additions[name].a, a)
        assert not torch.equal(regulariser.additions[name].b, b)


def test_dropout_before_a_acts_in_training_only() -> None:
    off = {"hidden": 0.0, "attention": 0.0}
    from regft_core.schema import DropoutConfig

    for dropout, same_draws in ((0.5, False), (0.0, True)):
        run, regulariser = bench({"dropout": dropout}, dropout=DropoutConfig(**off))
        shaken(regulariser)
        step = run.step()
        first, second = step.forward(draw=0), step.forward(draw=1)
        assert torch.equal(first, second) is same_draws
        assert torch.equal(step.forward(draw=0), first)
        assert torch.equal(logits(run), logits(run))


def test_its_dropout_tells_two_passes_apart() -> None:
    """R-Drop over LoRA without other dropout was refused, as if both its passes were the same."""
    still = DropoutConfig(hidden=0.0, attention=0.0)
    both = entries([("lora", {}), ("r_drop", {})])
    assert compose.randomness_problems(both, still) == (
        [],
        ["'r_drop' runs without dropout: its passes differ by 'lora' only"],
    )
    for options in ({"dropout": 0.0}, {"rank": 0}):
        (problem,), _ = compose.randomness_problems(entries([("lora", options), ("r_drop", {})]), still)
        assert "both are the same" in problem


@pytest.mark.parametrize("targets", [("key",), ("intermediate.dense",), ("dense",)])
def test_targets_are_names_of_linear_modules(targets: tuple[str, ...]) -> None:
    if targets == ("intermediate.dense",):
        with raises_code(ModelError, "unknown-module"):
            bench({"targets": list(targets)})
        return
    _, regulariser = bench({"targets": list(targets)})
    assert len(regulariser.additions) == (2 if targets == ("key",) else 6)


def test_rank_zero_trains_the_head_alone() -> None:
    run, _ = bench({"rank": 0})
    before = run.trainee.plain_weights()
    after = run.train()
    assert {n for n in before if not torch.equal(before[n], after[n])} == {"classifier.weight", "classifier.bias"}


# --------------------------------------------------------------------------- the PEFT library


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
    run, regulariser = bench(architecture=architecture)
    shaken(regulariser)
    model = reference(run, regulariser)
    assert torch.allclose(logits(run), logits(run, model), atol=1e-6)
    trained, total = model.get_nb_trainable_parameters()
    # PEFT leaves DeBERTa's newly drawn pooler as it was drawn; here everything that is new is trained.
    pooler = 32 * 32 + 32 if architecture == "deberta-v2" else 0
    assert trainable(run.trainee) == trained + pooler
    assert total > trained
    inputs = run.stream.batch(0).model_inputs()
    if not run.trainee.sites.token_types:
        inputs.pop("token_type_ids", None)
    run.model(**inputs).logits.square().sum().backward()
    model(**inputs).logits.square().sum().backward()
    for name, addition in regulariser.additions.items():
        layer = model.base_model.model.get_submodule(name)
        assert torch.allclose(addition.a.grad, layer.lora_A["default"].weight.grad, rtol=1e-3, atol=1e-5)
        assert torch.allclose(addition.b.grad, layer.lora_B["default"].weight.grad, rtol=1e-3, atol=1e-5)
    merged = model.merge_and_unload().state_dict()
    run.stack.export(run.trainee)
    for name, value in run.trainee.plain_weights().items():
        assert torch.allclose(value, merged[name], atol=1e-6), name
