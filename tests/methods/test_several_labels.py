"""Tasks whose examples have several labels: which methods are refused by name, log odds, thresholds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from regft_core.hooks import compose
from regft_core.hooks.registry import discover
from regft_core.methods.constant_answer import best_odds
from regft_core.methods.label_thresholds import threshold
from tests.methods.cases import task
from tests.methods.chain import METHODS, Runner, method, phase
from tests.methods.harness import TRAINING, changed, examples, source_of

#: Regularisers that have no meaning without one class an example, or are for values.
REFUSED = ("verbaliser", "label_smoothing", "contrastive", "supervised_contrastive", "zero_shot_similarity", "uda")
LABELS = 3


@pytest.mark.parametrize("name", METHODS)
def test_what_has_no_meaning_is_refused_by_name(name: str) -> None:
    given = method(name)
    tasks = {phase.data.task: task("classification") for phase in given.phases if phase.data.task is not None}
    problems = compose.check_method(discover(), given, TRAINING, task("multi_label"), None, tasks)
    refusing = {known for known in REFUSED if any(f"'{known}'" in said and "multi_label" in said for said in problems)}
    assert refusing == {r for phase in given.phases for r, _ in phase.regularisers if r in REFUSED}
    assert bool(problems) == (bool(refusing) or name == "self_training")  # its targets are single labels


def test_a_constant_answers_with_the_log_odds_of_each_label() -> None:
    present = np.array([[1, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 1]], dtype=bool)
    # All rows and none count as half a row less and more.
    np.testing.assert_allclose(best_odds(present), np.log([3.5 / 0.5, 0.5 / 3.5, 1.0]))


def test_a_threshold_by_hand() -> None:
    logits = np.array([-2.0, -1.0, -0.5, 0.5])
    assert threshold(logits, np.array([False, True, True, True])) == pytest.approx(-1.5)
    assert threshold(logits, np.array([False, False, False, True])) == 0.0  # as right, and nearest to 0.5
    assert threshold(logits, np.array([False, False, False, False])) == 0.0
    assert threshold(logits, np.array([True, True, True, True])) == pytest.approx(-3.0)


def test_thresholds_move_the_bias_and_nothing_else() -> None:
    runner = Runner(source_of("bert"), kind="multi_label", labels=LABELS, rows=24)

    def run(fit: str) -> dict[str, torch.Tensor]:
        listed = phase([("label_thresholds", {"fit": fit})], split=0.5)
        return runner.run([listed], steps=2)["finetune"].tensors["weights"]

    half, fitted, shared = run("none"), run("label"), run("all")
    moved = changed(half, fitted)
    assert moved == {"classifier.bias"}
    shift = shared["classifier.bias"] - half["classifier.bias"]
    torch.testing.assert_close(shift, shift[:1].expand(LABELS))


def test_a_label_that_no_row_set_aside_has_keeps_its_threshold_and_is_marked() -> None:
    rows = tuple(dataclasses.replace(row, label=int(row.label) & 3) for row in examples(24, labels=8))
    runner = Runner(source_of("bert"), kind="multi_label", labels=LABELS, given=rows)
    stack = runner.run([phase([("label_thresholds", {})], split=0.5)], steps=1)["finetune"].members[0].stack
    assert len(stack.marks()) == 1
    assert {name: value for name, _, value in stack.diagnostics().values}["label_thresholds.2"] == 0.5
