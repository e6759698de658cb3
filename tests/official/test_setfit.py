"""The head of ``setfit.yaml`` against the installed setfit package: the same encoder and rows give the same answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regft_core.data.encode import encode
from regft_core.data.examples import Example
from regft_core.errors import RegftError
from regft_core.methods.linear_head import LinearHead
from regft_core.models.source import resolve_model
from regft_core.schema.training import EncoderConfig
from tests.methods.chain import Ran, Runner, phase
from tests.methods.harness import examples, source_of
from tests.skips import needs

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
TRAIN, NEW = 60, 120


@pytest.fixture(scope="module")
def package() -> Any:
    needs("sentence_transformers", "setfit")
    return needs("setfit", "setfit")


def own(encoder: str, pooling: str, rows: list[Example], labels: int) -> Ran:
    """The frozen encoder with its fitted head."""
    if encoder == "minilm":
        try:
            source = resolve_model(EncoderConfig(name="minilm"), ROOT)
        except RegftError as error:
            pytest.skip(str(error))
    else:
        source = source_of(encoder)
    given = phase([("linear_head", {"head": "package"})], epochs=0)
    return Runner(source, labels=labels, pooling=pooling, given=tuple(rows)).run_phase(given, {})


def answers(outcome: Ran, rows: list[Example]) -> np.ndarray:
    """Logits [n, K]."""
    return outcome.logits(encode(rows, outcome.inputs.tokenizer, 32))  # type: ignore[no-any-return]


def pipeline(outcome: Ran, normalised: bool) -> Any:
    """The encoder of ``outcome`` as sentence-transformers holds it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    if encoder_has_pipeline(outcome) and normalised:
        body = SentenceTransformer(str(outcome.inputs.source.path), device="cpu")
        assert [type(module).__name__ for module in body] == ["Transformer", "Pooling", "Normalize"]
        body.max_seq_length = 32
        return body
    transformer = Transformer(str(outcome.inputs.source.path), max_seq_length=32)
    modules: list[Any] = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")]
    return SentenceTransformer(modules=[*modules, Normalize()] if normalised else modules, device="cpu")


def encoder_has_pipeline(outcome: Ran) -> bool:
    return (outcome.inputs.source.path / "modules.json").is_file()


@pytest.mark.parametrize("pooling", ["mean", "unit_mean"])
@pytest.mark.parametrize(("encoder", "labels"), [("bert", 2), ("bert", 3), ("mpnet", 3), ("minilm", 2)])
def test_same_encoder_and_rows_give_the_package_s_answers(
    package: Any, encoder: str, labels: int, pooling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn.linear_model import LogisticRegression

    made = examples(TRAIN + NEW, labels=labels)
    rows, new = made[:TRAIN], made[TRAIN:]
    fitted, features = [], LinearHead.features
    monkeypatch.setattr(LinearHead, "features", lambda *given: fitted.append(features(*given)) or fitted[0])
    outcome = own(encoder, pooling, rows, labels)
    body = pipeline(outcome, normalised=pooling == "unit_mean")
    model = package.SetFitModel(model_body=body, model_head=LogisticRegression())
    model.fit([row.text for row in rows], [int(row.label) for row in rows], num_epochs=1)

    texts = [row.text for row in [*rows, *new]]
    logits = answers(outcome, [*rows, *new])
    theirs = model.predict_proba(texts, as_numpy=True)
    probabilities = torch.from_numpy(logits).double().softmax(-1).numpy()
    linear = outcome.model.classifier
    # What the linear receives, read off its input while every row is answered.
    seen: list[torch.Tensor] = []
    handle = linear.register_forward_pre_hook(lambda _module, args: seen.append(args[0].detach()))
    outcome.model.eval()
    for row in [*rows, *new]:
        answers(outcome, [row])
    handle.remove()
    vectors = torch.cat(seen).numpy()
    assert np.abs(vectors - model.encode(texts)).max() < 1e-5
    # Its solver stops at a gradient of 1e-4: vectors that differ in last bits end up to 4e-4 apart (seen on AMD EPYC).
    assert np.abs(probabilities - theirs).max() < 1e-3
    assert np.array_equal(logits.argmax(1), model.predict(texts, as_numpy=True))
    # Given equal vectors, the head is the package's, bit for bit.
    received, targets = fitted[0]
    again = LogisticRegression().fit(received.numpy(), targets.numpy())
    weight, bias = linear.weight.detach().numpy(), linear.bias.detach().numpy()
    if labels == 2:
        assert np.array_equal(weight[1] * 2, again.coef_[0])
        assert np.array_equal(bias[1:] * 2, again.intercept_)
    else:
        assert np.array_equal(weight, again.coef_)
        assert np.allclose(bias, again.intercept_ - again.intercept_.mean(), rtol=0, atol=1e-7)
    assert np.array_equal(logits.argmax(1), (vectors @ weight.T + bias).argmax(1))
    assert np.array_equal(again.predict(vectors), logits.argmax(1))
