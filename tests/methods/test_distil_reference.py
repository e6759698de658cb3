"""Distillation against numbers worked out by hand; Hinton et al., 2015, section 2."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from regft_core.hooks.declare import Handed
from regft_core.hooks.phase_entries import Entry
from regft_core.hooks.registry import discover
from regft_core.kinds.regression import Scale
from tests.methods.chain import phase
from tests.methods.harness import Bench, same

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


def test_the_teachers_answers_are_constants() -> None:
    run = bench(torch.zeros(12, 2), weight=1.0)
    plain = Bench()
    assert not same(run.gradients(), plain.gradients())
    assert not run.method.answers.requires_grad


def test_rows_without_labels_take_the_whole_weight() -> None:
    cls = discover()["distil"]
    entry = Entry(cls, cls.Config(weight=0.5))
    given = phase([("distil", {"weight": 0.5})])
    hidden = given.data.model_copy(update={"labels": False})
    assert not cls.check_options(entry.options, given)
    assert cls.check_options(entry.options, replace(given, data=hidden))
    assert not cls.check_options(cls.Config(weight=1.0), replace(given, data=hidden))
