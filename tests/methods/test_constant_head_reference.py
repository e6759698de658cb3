"""The constant head against numbers worked out by hand, on every family."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regft_core.evaluation.metrics import majority_predictions
from regft_core.methods.constant_head import constant_answer
from tests.methods.harness import TRAINING, Bench
from tests.tiny import ARCHITECTURES

NO_STEPS = TRAINING.model_copy(update={"epochs": 0})


def test_frequencies_by_hand() -> None:
    # 3, 4 and 1 of 8 rows.
    assert constant_answer([1, 0, 1, 2, 0, 1, 0, 1], 3) == pytest.approx([math.log(v) for v in (3 / 8, 4 / 8, 1 / 8)])
    # Class 1 has no row: it counts as half of one, of 4.5.
    assert constant_answer([0, 0, 2, 2], 3) == pytest.approx([math.log(v) for v in (2 / 4.5, 0.5 / 4.5, 2 / 4.5)])
    assert constant_answer([1.0, 2.0, 4.5], None) == pytest.approx([2.5])


def test_equal_frequencies_give_the_first_class_as_the_report_does() -> None:
    labels = [2, 1, 2, 1, 0]
    assert int(constant_answer(labels, 3).argmax()) == 1
    assert set(majority_predictions("classification", np.asarray(labels)).tolist()) == {1}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_family_answers_the_same_for_every_input(architecture: str) -> None:
    run = Bench([("constant_head", {})], architecture=architecture, training=NO_STEPS, labels=3, rows=10)
    labels = [run.encoded.labels[row] for row in run.stream.rows]
    expected = torch.tensor([math.log(max(labels.count(i), 0.5) / 10) for i in range(3)])
    assert all(labels.count(i) for i in range(3))
    run.train()
    with torch.no_grad():
        for rows in ([0, 1, 2], [9]):
            logits = run.model.eval()(**run.stream.collate(rows).model_inputs()).logits
            torch.testing.assert_close(logits, expected.expand(len(rows), 3))


def test_a_value_is_the_mean_and_only_the_rows_that_are_trained_on_count() -> None:
    run = Bench([("constant_head", {})], kind="regression", pair=True, training=NO_STEPS, rows=6)
    expected = sum(run.encoded.labels) / 6
    with torch.no_grad():
        assert run.model.eval()(**run.stream.collate([0]).model_inputs()).logits.item() == pytest.approx(expected)
    run.stream.rows = [0, 1]
    from regft_core.training.fitting import FitData

    run.stack.fit(run.trainee, FitData(run.trainee, run.setting, run.stream))
    own = sum(run.encoded.labels[:2]) / 2
    assert own != pytest.approx(expected)
    with torch.no_grad():
        assert run.model.eval()(**run.stream.collate([5]).model_inputs()).logits.item() == pytest.approx(own)


def test_nothing_but_the_last_linear_changes() -> None:
    before = Bench(training=NO_STEPS).trainee.plain_weights()
    after = Bench([("constant_head", {})], training=NO_STEPS).train()
    assert {name for name in before if not torch.equal(before[name], after[name])} == {
        "classifier.weight",
        "classifier.bias",
    }
