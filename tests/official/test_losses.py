"""R-Drop and R3F against their authors' losses: the same two predictions give the same loss and gradients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regft_core.config.schema import DropoutConfig
from regft_core.training import perturbation
from regft_core.training.step import Step
from tests.methods.harness import Bench
from tests.official.releases import Release, apart, gradients

pytestmark = pytest.mark.slow

R_DROP = Release("dropreg/R-Drop", "7ab94f4a60f9794126042a567de980ee1a25064d")
FAIRSEQ = Release("facebookresearch/fairseq", "a4356b1da2b19ebd2e1be5c12ff882026ea4d7d2")
OFF = DropoutConfig(hidden=0.0, attention=0.0)
TOLERANCE = 1e-6


@pytest.mark.parametrize(("kind", "labels"), [("classification", 2), ("classification", 3), ("regression", 1)])
def test_r_drop(kind: str, labels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[Tensor] = []
    forward = Step.forward

    def recorded(step: Step, *given: Any, **more: Any) -> Any:
        logits = forward(step, *given, **more)
        logits.retain_grad()
        passes.append(logits)
        return logits

    monkeypatch.setattr(Step, "forward", recorded)
    bench = Bench([("r_drop", {"variant": "released"})], kind=kind, labels=labels)
    step = bench.step()
    loss = float(bench.stack.backward(step))
    first, second = passes
    assert float((first - second).detach().abs().max()) > 1e-2  # their dropout masks differ
    copies = [logits.detach().clone().requires_grad_() for logits in passes]
    path = "huggingface_transformer_src/src/transformers/models/bert/modeling_bert.py"
    given = iter(copies)
    model = SimpleNamespace(
        num_labels=labels,
        bert=lambda *_, **__: (None, next(given)),
        dropout=lambda pooled: pooled,
        classifier=lambda pooled: pooled,
    )
    released = R_DROP.definitions(path, ["BertForSequenceClassification"]).BertForSequenceClassification
    inputs = [None] * 6
    theirs, _, _ = released.bert_kl(model, *inputs, step.batch.labels, False, False, False)
    theirs.backward()
    own = {"first": first.grad, "second": second.grad}
    found = max(abs(float(theirs.detach()) - loss), apart({n: c.grad for n, c in zip(own, copies, strict=True)}, own))
    print(f"r_drop {kind} {labels}: {found:.1e}")
    assert found < TOLERANCE


class Fairseq(nn.Module):
    """A classifier of ours with the surface that fairseq's criterion reads."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = model
        self.classification_heads = {"head": None}
        self.encoder = SimpleNamespace(sentence_encoder=SimpleNamespace(embed_tokens=model.get_input_embeddings()))

    def forward(self, token_embeddings: Tensor, src_tokens: Tensor, **more: Any) -> tuple[Tensor, None]:
        kept = {name: more[name] for name in ("attention_mask", "token_type_ids") if name in more}
        return self.inner(inputs_embeds=token_embeddings, **kept).logits, None

    def get_targets(self, sample: dict[str, Any], _: Any) -> Tensor:
        target: Tensor = sample["target"]
        return target


class Criterion:
    """What fairseq's base class is to a criterion."""

    def __init__(self, task: Any) -> None:
        self.task = task


@pytest.mark.parametrize("scale", [1e-5, 1e-2])
@pytest.mark.parametrize("law", ["uniform", "normal"])
def test_r3f(law: str, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    draws: list[Tensor] = []
    draw = perturbation.draw
    monkeypatch.setattr(perturbation, "draw", lambda *given: draws.append(draw(*given)) or draws[-1])
    options = {"variant": "released", "distribution": law, "scale": scale, "weight": 1.0}
    bench, plain = (Bench(given, dropout=OFF, attention="eager", labels=3) for given in ([("r3f", options)], []))
    step = bench.step()
    loss = float(bench.stack.backward(step))
    released = FAIRSEQ.definitions(
        "examples/rxf/rxf_src/sentence_prediction_r3f.py",
        ["SentencePredictionR3F"],
        {"FairseqCriterion": Criterion, "utils": SimpleNamespace(item=float)},
    ).SentencePredictionR3F
    criterion = released(None, scale, 1.0, law, "head", False)
    expected = criterion.noise_sampler
    assert abs(float(draws[0].abs().max()) * scale / float(expected.sample((10_000,)).abs().max()) - 1) < 0.5
    criterion.noise_sampler = SimpleNamespace(sample=lambda sample_shape: scale * draws[0].reshape(sample_shape))
    inputs = {**step.batch.model_inputs()}
    sample = {
        "net_input": {"src_tokens": inputs.pop("input_ids"), **inputs},
        "target": step.batch.labels,
        "ntokens": 1,
    }
    total, size, _ = criterion.forward(Fairseq(plain.model.train()), sample)
    (total / size).backward()
    found = max(abs(float(total.detach()) / size - loss), apart(gradients(plain.model), gradients(bench.model)))
    print(f"r3f {law} {scale}: {found:.1e}")
    assert len(draws) == 1
    assert found < TOLERANCE
