"""R-Drop, R3F, SMART and FreeLB against their authors' steps: loss and gradients, given the same random draws."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regft_core.training import perturbation
from regft_core.training.step import Step
from tests.methods.harness import STILL, Bench
from tests.official.releases import TOLERANCE, Release, agree, gradients

pytestmark = pytest.mark.slow

R_DROP = Release("dropreg/R-Drop", "7ab94f4a60f9794126042a567de980ee1a25064d")
FAIRSEQ = Release("facebookresearch/fairseq", "a4356b1da2b19ebd2e1be5c12ff882026ea4d7d2")
MT_DNN = Release("namisan/mt-dnn", "676b48b120e04c25ad138f5affb0d6842ba366af")
FREELB = Release("zhuchen03/FreeLB", "2100e7437909f7a56db20975c00e7ca5fe715a55")


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
    agree(f"r_drop {kind} {labels}", (theirs, loss), {n: c.grad for n, c in zip(own, copies, strict=True)}, own)


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
    bench, plain = (Bench(given, dropout=STILL, attention="eager", labels=3) for given in ([("r3f", options)], []))
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
    sample = {"net_input": {"src_tokens": inputs.pop("input_ids"), **inputs}, "target": step.batch.labels, "ntokens": 1}
    total, size, _ = criterion.forward(Fairseq(plain.model.train()), sample)
    (total / size).backward()
    agree(f"r3f {law} {scale}", (total / size, loss), gradients(plain.model), gradients(bench.model))
    assert len(draws) == 1


def drawn_by(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Starts of perturbations, as they are drawn."""
    found: list[Tensor] = []
    draws = perturbation.token_draws
    monkeypatch.setattr(perturbation, "token_draws", lambda *given: found.append(draws(*given)) or found[-1])
    return found


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize(("kind", "labels"), [("classification", 2), ("classification", 3), ("regression", 1)])
def test_smart(kind: str, labels: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = drawn_by(monkeypatch)
    options = {"variant": "released", "steps": steps, "step_size": 1e-3, "noise": 1e-3, "weight": 1.0}
    form: dict[str, Any] = {"dropout": STILL, "attention": "eager", "kind": kind, "labels": labels}
    bench, plain = (Bench(given, **form) for given in ([("smart", options)], []))
    step = bench.step()
    loss = float(bench.stack.backward(step))
    names = ["stable_kl", "Criterion", "MseCriterion", "SymKlCriterion"]
    losses = MT_DNN.definitions("mt_dnn/loss.py", names, {"_Loss": torch.nn.modules.loss._Loss})
    task = SimpleNamespace(Classification=0, Ranking=1, Regression=2)
    released = MT_DNN.definitions(
        "mt_dnn/perturbation.py",
        ["SmartPerturbation"],
        {
            **{"TaskType": task, "EncoderModelType": SimpleNamespace(BERT=0), "stable_kl": losses.stable_kl},
            "generate_noise": lambda *_, epsilon: (epsilon * draws[0]).requires_grad_(),
        },
    ).SmartPerturbation
    criterion = losses.MseCriterion() if kind == "regression" else losses.SymKlCriterion()
    theirs = released(step_size=1e-3, noise_var=1e-3, k=steps, loss_map=[criterion])
    model = plain.model.train()
    inputs = step.batch.model_inputs()

    def forward(ids: Tensor, types: Tensor, mask: Tensor, *more: Any) -> Tensor:
        given = {"token_type_ids": types, "attention_mask": mask}
        if more[3] == 1:
            embedded: Tensor = model.base_model.embeddings(input_ids=ids, token_type_ids=types)
            return embedded
        logits: Tensor = model(inputs_embeds=more[4], **given).logits
        return logits

    logits = model(**inputs).logits
    kinds = task.Regression if kind == "regression" else task.Classification
    smoothness, _, _ = theirs.forward(
        forward, logits, inputs["input_ids"], inputs["token_type_ids"], inputs["attention_mask"], task_type=kinds
    )
    total = step.task_loss(logits) + smoothness
    total.backward()
    assert float(smoothness.detach()) > 1e-5
    tolerance = 2e-6 if kind == "regression" else TOLERANCE  # gradients reach 10 there
    agree(f"smart {kind} {labels} {steps}", (total, loss), gradients(model), gradients(bench.model), tolerance)


@pytest.mark.parametrize("radius", [None, 0.25])
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_freelb(kind: str, radius: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = drawn_by(monkeypatch)
    options = {"steps": 3, "ascent_size": 0.1, "initial_size": 0.2, "radius": radius}
    form: dict[str, Any] = {"dropout": STILL, "attention": "eager", "kind": kind}
    bench, plain = (Bench(given, **form) for given in ([("freelb", options)], []))
    step = bench.step()
    loss = float(bench.stack.backward(step))
    model = plain.model.train()
    inputs = step.batch.model_inputs()

    class Theirs:
        encoder = model.base_model

        def __call__(self, labels: Tensor, dp_masks: None, **given: Tensor) -> tuple[tuple[Tensor], None]:
            return (step.task_loss(model(**given).logits, labels),), None

    given = {
        "args": SimpleNamespace(
            **{"adv_init_mag": 0.2, "adv_lr": 0.1, "adv_max_norm": radius or 0.0, "adv_steps": 3, "norm_type": "l2"},
            **{"n_gpu": 1, "gradient_accumulation_steps": 1, "fp16": False},
        ),
        **{"torch": torch, "model": Theirs(), "tr_loss": 0.0, "batch": [inputs.pop("input_ids")]},
        "inputs": {**inputs, "labels": step.batch.labels},
    }
    code = FREELB.statements(
        "huggingface-transformers/examples/run_glue_freelb.py",
        "train",
        lambda line: line.startswith(
            (
                "if isinstance(model, torch.nn.DataParallel):",
                "if args.adv_init_mag > 0",
                "dp_masks = None",
                "for astep in",
            )
        ),
    )
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda self, *_: self.copy_(draws[0]))
    exec(code, given)  # noqa: S102
    tolerance = 2e-6 if kind == "regression" else TOLERANCE  # gradients reach 10 there
    agree(f"freelb {kind} {radius}", (given["tr_loss"], loss), gradients(model), gradients(bench.model), tolerance)
