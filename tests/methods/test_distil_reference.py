"""Answers as targets, against numbers worked out by hand: a teacher's (Hinton et al., 2015, section 2), and those of
the model itself to texts without labels (UDA: Xie et al., 2020; FixMatch: Sohn et al., 2020, equation 4)."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from regft_core.errors import ModelError
from regft_core.hooks.declare import Handed, MainPass
from regft_core.kinds.regression import Scale
from regft_core.methods.uda import HIDDEN, TARGETS, released
from tests.errors import raises_code
from tests.methods.harness import STILL, Bench, same, watched

#: Of the student's two logits in four rows.
GAPS = (1.0, -3.0, 0.0, -0.5)


def bench(answers: torch.Tensor, kind: str = "classification", labels: int = 2, **options: Any) -> Bench:
    handed = {"teacher": Handed("key", {}, answers=answers)}
    return Bench([("distil", options)], kind=kind, labels=labels, handed=handed)


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def kl(p: float, q: float) -> float:
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


@pytest.mark.parametrize(("temperature", "weight"), [(1.0, 0.5), (2.0, 0.9), (4.0, 1.0)])
def test_the_loss_of_two_labels(temperature: float, weight: float) -> None:
    """Two logits are one probability: sigmoid of their difference over the temperature."""
    run = bench(torch.tensor([[0.0, 3.0]]).repeat(12, 1), temperature=temperature, weight=weight)
    task, added = run.terms(torch.tensor([[0.2, 1.2], [2.0, -1.0], [0.0, 0.0], [1.0, 0.5]]), torch.empty(0))
    teacher = sigmoid(3 / temperature)
    soft = [temperature**2 * kl(teacher, sigmoid(gap / temperature)) for gap in GAPS]
    hard = [-math.log(1 - sigmoid(gap)) for gap in GAPS]
    expected = (1 - weight) * sum(hard) / 4 + weight * sum(soft) / 4
    assert float(task + added) == pytest.approx(expected, abs=1e-6)


def test_each_row_learns_its_own_answer() -> None:
    answers = torch.arange(24.0).reshape(12, 2).sin()
    run = bench(answers, weight=1.0, temperature=1.0)
    step = run.step()
    logits = answers[step.batch.indices]
    assert float(run.method.divergence(run.method.answers[step.batch.indices], logits)) == pytest.approx(0, abs=1e-7)


def test_several_labels_and_values() -> None:
    """The mean over labels of a KL each; of values the squared difference, whatever the temperature."""
    several = bench(torch.tensor([[1.0, -2.0]]).repeat(12, 1), "multi_label", temperature=2.0, weight=1.0)
    found = several.method.divergence(torch.tensor([[1.0, -2.0]]), torch.tensor([[0.0, 4.0]]))
    assert float(found) == pytest.approx(4 * (kl(sigmoid(0.5), 0.5) + kl(sigmoid(-1.0), sigmoid(2.0))) / 2, abs=1e-6)
    values = bench(torch.tensor([[3.0]]).repeat(12, 1), "regression", temperature=2.0, weight=1.0)
    assert float(values.method.divergence(torch.tensor([[3.0]]), torch.tensor([[1.0]]))) == 4.0


def test_hard_targets_are_the_labels_of_confident_rows() -> None:
    """Self-training: cross-entropy with the teacher's label where its probability is above 0.7, over all rows."""
    run = bench(torch.zeros(12, 2), weight=1.0, targets="hard", temperature=1.0, threshold=0.7)
    teacher = torch.tensor([[0.0, 2.0], [1.5, 0.0], [0.0, 0.1]])
    student = torch.tensor([[0.0, 1.0], [0.0, 0.5], [0.0, 3.0]])
    expected = (-math.log(sigmoid(1.0)) - math.log(sigmoid(-0.5))) / 3
    assert float(run.method.divergence(teacher, student)) == pytest.approx(expected, abs=1e-6)


def test_values_are_learned_in_the_scale_of_the_targets() -> None:
    run = bench(torch.tensor([[3.0]]).repeat(12, 1), "regression")
    run.trainee.scale = Scale(mean=1.0, deviation=0.5)
    run.method.prepare(run.trainee, {"teacher": Handed("key", {}, answers=torch.tensor([[3.0], [1.0]]))})
    assert run.method.answers.tolist() == [[4.0], [0.0]]


def hidden_bench(width: int, **options: Any) -> Bench:
    """A student of width 32 whose teacher has states of ``width``; the distance alone, with weight 0.5."""
    states = torch.arange(12.0 * width).reshape(12, width).cos()
    handed = {"teacher": Handed("key", {}, answers=torch.zeros(12, 2), hidden=states)}
    return Bench([("distil", {"weight": 0.0, "hidden": 0.5, **options})], handed=handed)


def test_hidden_states_are_pulled_by_their_angle() -> None:
    """cos((3, 4), (4, 3)) is 24/25 and cos((1, 0), (0, 2)) is 0, so the mean distance is (1/25 + 1) / 2."""
    run = hidden_bench(32)
    assert run.method.map is None
    teacher, student = torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([[4.0, 3.0], [0.0, 2.0]])
    assert float(run.method.distance(teacher, student)) == pytest.approx(0.52, abs=1e-6)
    step = run.step()
    with torch.no_grad():
        logits, states = step.forward(hidden=True)
    loss, mask = step.task_loss(logits), step.batch.attention_mask
    added = float(run.method.terms(step, MainPass(logits, states, loss)))
    each = []
    for row, index in enumerate(step.batch.indices.tolist()):  # one row after the other, without its padding
        mean, wanted = states[row][mask[row] == 1].mean(0), run.method.states[index]
        each.append(1 - float(mean @ wanted) / math.sqrt(float(mean @ mean) * float(wanted @ wanted)))
    assert added == pytest.approx(0.5 * sum(each) / 4, abs=1e-6)


def test_states_of_another_width_are_read_through_a_trained_map() -> None:
    """W = ((1, 0), (0, 1), (1, 1)) makes (1, 0, 1) of (1, 0), whose cosine with (1, 0, 0) is 1/sqrt(2)."""
    run = hidden_bench(48, map_learning_rate=0.01)
    own = [group for group in run.loop().optimizer.param_groups if group["names"] == ["attached.distil.weight"]]
    assert [(group["base_lr"], tuple(group["params"][0].shape)) for group in own] == [(0.01, (48, 32))]
    before = run.method.map.weight.clone()
    assert float(before.detach().std()) == pytest.approx(run.model.config.initializer_range, rel=0.1)
    weights = run.train()
    assert not torch.equal(run.method.map.weight, before)
    assert set(weights) == set(Bench().trainee.plain_weights())
    run.method.map.weight = torch.nn.Parameter(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    distance = run.method.distance(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    assert float(distance) == pytest.approx(1 - 1 / math.sqrt(2), abs=1e-6)


def test_at_strength_0_hidden_states_are_not_asked_for() -> None:
    answers = torch.arange(24.0).reshape(12, 2).sin()
    assert not bench(answers).stack.hidden
    assert same(bench(answers).train(), bench(answers, map_learning_rate=0.5).train())
    assert not same(bench(answers).train(), Bench().train())


# ----------------------------------------------------------------------------------------- uda, fixmatch


HARD = {"targets": "hard", "temperature": 1.0, "annealing": "none"}


def unlabelled(**options: Any) -> Bench:
    return Bench([("uda", options)])


#: Two logits are one probability, the sigmoid of their difference: of three texts, and of these with hidden tokens.
SEEN, HIDDEN_GAPS = (2.0, -1.0, 0.2), (1.0, 0.5, -0.3)


def logits(gaps: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor([[0.5, 0.5 + gap] for gap in gaps])


@pytest.mark.parametrize(("temperature", "threshold"), [(1.0, 0.0), (0.5, 0.7), (0.4, 0.9)])
def test_sharpened_answers_of_confident_texts_are_learned(temperature: float, threshold: float) -> None:
    run = unlabelled(temperature=temperature, threshold=threshold)
    loss, share = run.method.divergence(logits(SEEN), logits(HIDDEN_GAPS))
    counted = [max(sigmoid(gap), sigmoid(-gap)) > threshold for gap in SEEN]
    each = [kl(sigmoid(gap / temperature), sigmoid(other)) for gap, other in zip(SEEN, HIDDEN_GAPS)]
    assert float(loss) == pytest.approx(sum(e for e, c in zip(each, counted) if c) / 3, abs=1e-6)
    assert float(share) == pytest.approx(sum(counted) / 3)


def test_the_loss_of_fixmatch() -> None:
    """Cross-entropy with the most probable label where its probability is above the threshold, over all texts."""
    loss, _ = unlabelled(**HARD, threshold=0.7).method.divergence(logits(SEEN), logits(HIDDEN_GAPS))
    # The third text has a probability of 0.55; the labels of the others are 1 and 0.
    assert float(loss) == pytest.approx((-math.log(sigmoid(1.0)) - math.log(sigmoid(-0.5))) / 3, abs=1e-6)


@pytest.mark.parametrize(("schedule", "share"), [("linear", 0.3), ("log", 1 - math.exp(-1.5)), ("exp", math.exp(-3.5))])
def test_a_row_counts_until_its_label_is_learned(schedule: str, share: float) -> None:
    assert released(schedule, 0.3, 4) == pytest.approx(share * 0.75 + 0.25)
    run = unlabelled(annealing=schedule)
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
    run = unlabelled(ratio=3, hide=0.5, annealing="none")
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


def test_annealing_alone_needs_no_mask_token(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Bench([("uda", {})])
    monkeypatch.setattr(run.trainee, "tokenizer", SimpleNamespace(mask_token_id=None))
    with raises_code(ModelError, "mask-token-missing"):
        run.method.prepare(run.trainee, {})
    alone = Bench([("uda", {"weight": 0.0})])
    monkeypatch.setattr(alone.trainee, "tokenizer", SimpleNamespace(mask_token_id=None))
    alone.method.prepare(alone.trainee, {})


def test_the_answers_to_whole_texts_are_constants() -> None:
    """With nothing hidden and nothing dropped out, a soft target at temperature 1 is its own answer: no gradient."""
    options = {"hide": 0.0, "temperature": 1.0, "annealing": "none"}
    found, plain = (Bench(listed, dropout=STILL).gradients() for listed in ([("uda", options)], []))
    assert all(torch.allclose(found[name], plain[name], atol=1e-6) for name in plain)
