"""UDA and FixMatch against numbers worked out by hand; Xie et al., 2020, and Sohn et al., 2020, equation 4."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from regft_core.methods.uda import HIDDEN, TARGETS, released
from tests.methods.harness import STILL, Bench, same, watched

HARD = {"targets": "hard", "temperature": 1.0, "annealing": "none"}


def bench(**options: Any) -> Bench:
    return Bench([("uda", options)])


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def kl(p: float, q: float) -> float:
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


#: Two logits are one probability, the sigmoid of their difference: of three texts, and of these with hidden tokens.
GAPS, HIDDEN_GAPS = (2.0, -1.0, 0.2), (1.0, 0.5, -0.3)


def logits(gaps: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor([[0.5, 0.5 + gap] for gap in gaps])


@pytest.mark.parametrize(("temperature", "threshold"), [(1.0, 0.0), (0.5, 0.7), (0.4, 0.9)])
def test_sharpened_answers_of_confident_texts_are_learned(temperature: float, threshold: float) -> None:
    run = bench(temperature=temperature, threshold=threshold)
    loss, share = run.method.divergence(logits(GAPS), logits(HIDDEN_GAPS))
    counted = [max(sigmoid(gap), sigmoid(-gap)) > threshold for gap in GAPS]
    each = [kl(sigmoid(gap / temperature), sigmoid(other)) for gap, other in zip(GAPS, HIDDEN_GAPS)]
    assert float(loss) == pytest.approx(sum(e for e, c in zip(each, counted) if c) / 3, abs=1e-6)
    assert float(share) == pytest.approx(sum(counted) / 3)


def test_the_loss_of_fixmatch() -> None:
    """Cross-entropy with the most probable label where its probability is above the threshold, over all texts."""
    loss, _ = bench(**HARD, threshold=0.7).method.divergence(logits(GAPS), logits(HIDDEN_GAPS))
    # The third text has a probability of 0.55; the labels of the others are 1 and 0.
    assert float(loss) == pytest.approx((-math.log(sigmoid(1.0)) - math.log(sigmoid(-0.5))) / 3, abs=1e-6)


@pytest.mark.parametrize(
    ("schedule", "share"),
    [("linear", 0.3), ("log", 1 - math.exp(-1.5)), ("exp", math.exp(-3.5))],
)
def test_a_row_counts_until_its_label_is_learned(schedule: str, share: float) -> None:
    assert released(schedule, 0.3, 4) == pytest.approx(share * 0.75 + 0.25)
    run = bench(annealing=schedule)
    step = run.step(3)  # of ten
    limit = share / 2 + 0.5
    gaps = torch.tensor([-1.0, 0.1, 3.0, math.log(limit / (1 - limit)) + 1e-3])
    outputs = torch.stack([torch.zeros(4), gaps], 1)
    loss = run.method.task_loss(step, outputs, torch.ones(4, dtype=torch.long))
    counting = [gap for gap in (-1.0, 0.1, 3.0) if sigmoid(gap) <= limit]
    assert float(loss) == pytest.approx(sum(-math.log(sigmoid(gap)) for gap in counting) / len(counting), abs=1e-6)
    learned = torch.tensor([[0.0, 9.0]]).repeat(4, 1)
    assert float(run.method.task_loss(step, learned, torch.ones(4, dtype=torch.long))) == 0.0


def test_a_step_reads_texts_of_its_own_and_hides_some_of_their_tokens() -> None:
    run = bench(ratio=3, hide=0.5, annealing="none")
    step = run.step()
    passes = watched(step)
    run.stack.backward(step)
    (_, _, main, _), (first, _, texts, _), (second, _, hidden, _) = passes
    assert (main, first, second) == (None, TARGETS, HIDDEN)
    assert len(texts) == 3 * len(step.batch)
    mask = run.tokenizer.mask_token_id
    moved = hidden.input_ids != texts.input_ids
    assert moved.any()
    assert not moved[texts.segment == -1].any()
    assert set(hidden.input_ids[moved].tolist()) == {mask}
    assert not torch.equal(run.step(1).texts().indices, texts.indices)
    assert same({"ids": run.step().texts().input_ids}, {"ids": texts.input_ids})


def test_the_answers_to_whole_texts_are_constants() -> None:
    """With nothing hidden and nothing dropped out, a soft target at temperature 1 is its own answer: no gradient."""
    options = {"hide": 0.0, "temperature": 1.0, "annealing": "none"}
    found, plain = (Bench(listed, dropout=STILL).gradients() for listed in ([("uda", options)], []))
    assert all(torch.allclose(found[name], plain[name], atol=1e-6) for name in plain)
