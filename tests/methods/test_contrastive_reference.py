"""Contrastive fine-tuning against the formula by hand and the pairs that SetFit draws, and SetFit's two phases."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from regft_core.errors import RunFailed
from regft_core.methods.contrastive import Partners, pair_loss
from tests.errors import raises_code
from tests.methods.harness import STILL, Bench, calls_of, only

bench = only("contrastive", phase="contrastive")


def test_the_loss_of_three_pairs_by_hand() -> None:
    first = torch.tensor([[3.0, 4.0], [1.0, 0.0], [1.0, 1.0]])
    second = torch.tensor([[4.0, 3.0], [0.0, 2.0], [-2.0, -2.0]])
    # Cosines 24/25, 0 and -1.
    targets = torch.tensor([1.0, 1.0, 0.0])
    assert pair_loss(first, second, targets).item() == pytest.approx(((1 / 25) ** 2 + 1 + 1) / 3, abs=1e-6)


def test_partners_are_of_the_right_class_and_each_as_likely() -> None:
    rows, labels = [10, 11, 12, 13, 14, 15], [0, 0, 0, 1, 1, 2]
    partners = Partners(rows, labels, "labels")
    draws = [(i + 0.5) / 1200 for i in range(1200)]
    assert Counter(partners.positive(10, d) for d in draws) == {11: 600, 12: 600}
    assert Counter(partners.positive(12, d) for d in draws) == {10: 600, 11: 600}
    assert Counter(partners.negative(13, d) for d in draws) == {10: 300, 11: 300, 12: 300, 15: 300}
    assert partners.positive(15, 0.9) == 15  # alone in its class
    assert partners.negative(15, 1 - 2**-53) == 14


def test_random_partners_are_any_other_row() -> None:
    partners = Partners([0, 1, 2, 3], [0, 0, 1, 1], "random")
    draws = [(i + 0.5) / 900 for i in range(900)]
    assert Counter(partners.positive(1, d) for d in draws) == {0: 300, 2: 300, 3: 300}
    assert Counter(partners.negative(3, d) for d in draws) == {0: 300, 1: 300, 2: 300}


def test_one_class_has_no_negatives() -> None:
    with raises_code(RunFailed, "one-class", "all 2"):
        Partners([0, 1], [1, 1], "labels")


@pytest.mark.parametrize("pooling", ["head", "mean", "cls", "mean_last_four"])
@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_a_step_is_the_loss_of_its_pairs_encoded_one_by_one(architecture: str, pooling: str) -> None:
    run = bench(architecture=architecture, dropout=STILL, pooling=pooling)
    step = run.step()
    anchors = step.batch.indices.tolist()
    own = run.method
    draws = torch.rand(2, 4, generator=step.generator("contrastive.partners"), dtype=torch.float64).tolist()
    labels = run.encoded.labels
    total = 0.0
    for anchor, one, other in zip(anchors, *draws, strict=True):
        positive, negative = own._partners.positive(anchor, one), own._partners.negative(anchor, other)
        assert labels[positive] == labels[anchor] != labels[negative]
        u, v, w = (embed(run, row, pooling) for row in (anchor, positive, negative))
        total += (1 - float(u @ v) / float(u.norm() * v.norm())) ** 2 + (float(u @ w) / float(u.norm() * w.norm())) ** 2
    assert run.stack.backward(step).item() == pytest.approx(total / 8, abs=1e-5)


def embed(run: Bench, row: int, pooling: str) -> torch.Tensor:
    """The vector of one unpadded row."""
    with torch.no_grad():
        inputs = run.stream.collate([row]).model_inputs()
        outputs = run.model.base_model(**inputs, output_hidden_states=True)
    if pooling == "mean_last_four":  # of two
        return torch.cat([torch.nn.functional.normalize(s[0].mean(0), dim=0) for s in outputs.hidden_states[-2:]])
    tokens: torch.Tensor = outputs[0][0]
    return tokens[-1 if run.trainee.sites.architecture == "xlnet" else 0] if pooling == "cls" else tokens.mean(0)


def test_an_epoch_gives_every_row_one_pair_of_each_kind() -> None:
    run = bench(rows=12)
    seen, loop = calls_of(run.method._stream, "collate", list), run.loop()
    loop.train()
    # The loop's own batches have 4 rows, those of anchors and partners 12.
    pairs = [rows for rows in seen if len(rows) == 12]
    assert len(pairs) == loop.total == 2 * 3
    assert Counter(row for rows in pairs for row in rows[:4]) == dict.fromkeys(range(12), 2)
