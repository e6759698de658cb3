"""The constant answer against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regft_core.kinds import find
from regft_core.methods.constant_answer import best_constant
from regft_core.training.fitting import FitData
from tests.methods.harness import TRAINING, Bench, examples

NO_STEPS = TRAINING.model_copy(update={"epochs": 0})


def test_frequencies_by_hand() -> None:
    # 3, 4 and 1 of 8 rows.
    assert best_constant([1, 0, 1, 2, 0, 1, 0, 1], 3) == pytest.approx([math.log(v) for v in (3 / 8, 4 / 8, 1 / 8)])
    # Class 1 has no row: it counts as half of one, of 4.5.
    assert best_constant([0, 0, 2, 2], 3) == pytest.approx([math.log(v) for v in (2 / 4.5, 0.5 / 4.5, 2 / 4.5)])
    assert best_constant([1.0, 2.0, 4.5], None) == pytest.approx([2.5])


def test_equal_frequencies_give_the_first_class_as_the_report_does() -> None:
    labels = [2, 1, 2, 1, 0]
    assert int(best_constant(labels, 3).argmax()) == 1
    assert set(find("classification").constant(np.asarray(labels)).tolist()) == {1}


def test_the_same_for_every_input_whatever_it_is() -> None:
    run = Bench([("constant_answer", {})], training=NO_STEPS, labels=3, rows=10)
    labels = [run.encoded.labels[row] for row in run.stream.rows]
    expected = [math.log(max(labels.count(i), 0.5) / 10) for i in range(3)]
    assert all(labels.count(i) for i in range(3))
    answers = answered(run, 7)
    assert answers.shape == (7, 3)
    np.testing.assert_allclose(answers, np.tile(expected, (7, 1)), rtol=1e-6)


def test_a_value_is_the_mean_and_only_the_rows_that_are_trained_on_count() -> None:
    run = Bench([("constant_answer", {})], kind="regression", pair=True, training=NO_STEPS, rows=6)
    expected = sum(run.encoded.labels) / 6
    assert answered(run, 1).item() == pytest.approx(expected)
    run.stream.rows = [0, 1]
    own = sum(run.encoded.labels[:2]) / 2
    assert own != pytest.approx(expected)
    assert answered(run, 1).item() == pytest.approx(own)


def answered(run: Bench, rows: int) -> np.ndarray:
    """[rows, K] answers to texts that it was not fitted on."""
    run.stack.fit(run.trainee, FitData(run.trainee, run.setting, run.stream))
    return run.stack.predict(None, run.stack.keep(run.trainee), examples(rows))
