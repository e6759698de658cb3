"""Everything that chooses by a score, under a metric of which less is better: epochs, members of a soup, trials."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from regft_core.runs import training_run
from regft_core.runs.epoch_scores import epoch_scores, judge, validation_score
from regft_core.training.loop import EpochScores
from regft_core.training.merges import greedy
from tests.methods.harness import Bench, examples

TASK: dict[str, Any] = {
    "kind": "regression",
    "labels": None,
    "primary": "mse",
    "metrics": ["pearson", "mse"],
    "positive_label": None,
}
#: Biases of a head that gives nothing else, so that one is far better than the others; the middle of the labels is 2.6.
BIASES = (9.0, 2.5, -4.0)


def constant(bench: Bench, value: float) -> None:
    """Let the model answer ``value`` for every text."""
    with torch.no_grad():
        bench.model.classifier.weight.zero_()
        bench.model.classifier.bias.fill_(value)


def squared_error(value: float, rows: list[int]) -> float:
    gold = np.array([float(examples(12, kind="regression")[row].label) for row in rows])
    return float(np.mean((gold - value) ** 2))


def test_the_epoch_with_the_smallest_error_is_kept() -> None:
    bench = Bench(kind="regression")
    score = judge(bench.encoded, examples(12, kind="regression"), TASK, bench.tokenizer, "cpu")
    best = EpochScores("best", score, keeps_best=True)
    for step, bias in enumerate(BIASES, 1):
        constant(bench, bias)
        best.look(bench.trainee, bench.stack, step)
    errors = [squared_error(bias, list(range(12))) for bias in BIASES]
    assert [found for _, found in best.scores] == pytest.approx([-error for error in errors])
    assert best.step == 2
    best.restore(bench.trainee, bench.stack)
    assert bench.model.classifier.bias.item() == 2.5


def test_scores_by_epoch_are_written_down_as_the_metric_is() -> None:
    looked: Any = SimpleNamespace(
        looks=[
            SimpleNamespace(keeps_best=True, scores=[(3, -4.0)]),
            SimpleNamespace(keeps_best=False, scores=[(3, -5.0)]),
        ],
        steps_per_epoch=3,
    )
    found = epoch_scores("finetune", looked, "best_on_split", "mse")["epoch_scores"]
    assert found == {
        "metric": "mse",
        "scores": [["finetune", "held_out", 3, 1.0, 4.0], ["finetune", "dev", 3, 1.0, 5.0]],
    }


def test_a_greedy_soup_begins_with_the_smallest_error_and_leaves_out_the_largest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, rows = Bench(kind="regression"), [1, 4, 5, 8]
    monkeypatch.setattr(training_run, "build", lambda inputs: (bench.trainee, bench.stack))
    inputs: Any = SimpleNamespace(
        encoded=bench.encoded,
        tokenizer=bench.tokenizer,
        setting=bench.setting,
        device="cpu",
        validation_rows=rows,
    )
    members = []
    for bias in BIASES:
        constant(bench, bias)
        members.append({"weights": {n: t.clone() for n, t in bench.trainee.plain_weights().items()}})
    _, choice = greedy(members, lambda member: validation_score(inputs, member, TASK))
    errors = [squared_error(bias, rows) for bias in BIASES]
    assert choice["scores"] == pytest.approx([-error for error in errors])
    assert errors[1] == min(errors)
    assert choice["chosen"] == [1]
