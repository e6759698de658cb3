"""Epochs that are scored: the best on rows set aside or, marked, on the dev set; what less is better changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from regft_core.data.examples import Example, read_jsonl, write_jsonl
from regft_core.errors import ConfigError, RunFailed
from regft_core.evaluate import evaluated, logits
from regft_core.runs import training_run
from regft_core.runs.context import Context, Job
from regft_core.runs.epoch_scores import epoch_scores, judge, validation_score
from regft_core.runs.evaluate import evaluate
from regft_core.runs.keys import CHECKPOINT_RULE, scope_of_phase
from regft_core.settings.read_project import open_project
from regft_core.training.loop import EpochScores
from regft_core.training.merges import greedy
from tests.errors import raises_code
from tests.methods.harness import TRAINING, Bench, examples
from tests.runs.conftest import SIZE, TASK, change, job, key, stored, train

SPLIT = {"checkpoint": "best_on_split", "checkpoint_share": 0.25, "epochs": 3}
DEV = {"checkpoint": "best_on_dev_as_published", "epochs": 3}


def weights(root: Path, record: dict[str, Any]) -> str:
    return stored(root, record["key"]).tensors_sha256("weights")


def test_the_best_epoch_on_rows_set_aside(project: Path) -> None:
    change(project, training=SPLIT)
    context = Context(job(project, "vanilla"))
    judging = {context.last.rows.examples[row].idx for row in context.last.drawn()[2]}
    assert len(judging) == 6
    record = train(project, "vanilla")
    scores = record["checkpoint"]["scores"]
    assert [step for step, _ in scores] == [3, 6, 9]  # 18 rows in batches of 8
    best = max(score for _, score in scores)
    assert record["checkpoint"]["step"] == next(step for step, score in scores if score == best)
    assert record["degraded"] == ["the weights are those of the best epoch on 25% of the training rows, set aside"]
    assert stored(project, record["key"]).identity["epochs_scored"]["primary"] == "accuracy"
    assert {row[1] for row in record["epoch_scores"]["scores"]} == {"held_out"}
    # Scores of every epoch on the dev set are recorded beside them, and choose nothing.
    change(project, training={"epoch_scores": True})
    both = train(project, "vanilla")
    assert weights(project, both) == weights(project, record)
    assert both["checkpoint"] == record["checkpoint"]
    rows = both["epoch_scores"]["scores"]
    assert [row[1] for row in rows] == ["held_out"] * 3 + ["dev"] * 3
    assert [row[4] for row in rows[:3]] == [score for _, score in scores]
    # Chosen on the dev set they are marked.
    change(project, training={**DEV, "epoch_scores": False})
    record = train(project, "weight_mixup")  # weight views are in place while an epoch is judged
    assert len(record["checkpoint"]["scores"]) == 3
    assert "the weights are those of the best epoch on the development set, as published" in record["degraded"]


def test_the_rule_and_what_judges_are_in_the_key_of_the_last_phase_alone(project: Path) -> None:
    change(project, training={"epochs": 3})
    last, search = key(project), key(project, "weight_mixup", "search")
    change(project, training={"checkpoint": "last", "checkpoint_share": 0.3})
    assert key(project) == last
    change(project, training=SPLIT)
    split = key(project)
    assert split != last
    assert key(project, "weight_mixup", "search") == search
    change(project, training={"checkpoint_share": 0.5})
    assert key(project) != split
    change(project, training=DEV)
    on_dev = key(project)
    dev = project / "work" / "datasets" / TASK / "dev.jsonl"
    write_jsonl(dev, read_jsonl(dev)[1:])
    assert key(project) != on_dev
    change(project, training=SPLIT)
    assert key(project) == split
    last = Context(job(project, "vanilla")).last
    assert {CHECKPOINT_RULE, "regft_core.metrics"} <= set(scope_of_phase(last).entries)


@pytest.mark.parametrize("method", ["ema", "wise_ft"])
def test_what_makes_its_result_after_the_last_step_is_refused(project: Path, method: str) -> None:
    change(project, training=SPLIT, methods=["vanilla", method])
    with raises_code(ConfigError, "bad-composition", "after the last step"):
        open_project(project)


# ------------------------------------------------------------------------------- scores of every epoch


ON = {"epochs": 3, "epoch_scores": True}
OFF = {"epochs": 3, "epoch_scores": False}


@pytest.mark.parametrize("method", ["vanilla", "weight_mixup"])
def test_the_weights_are_those_without_it(project: Path, method: str) -> None:
    """Weight views are in place while an epoch is scored."""
    change(project, training=OFF)
    plain = train(project, method)
    assert "epoch_scores" not in plain
    change(project, training=ON)
    watched = train(project, method)
    assert watched["key"] != plain["key"]
    assert weights(project, watched) == weights(project, plain)
    assert watched["curve"] == plain["curve"]
    assert watched["degraded"] == plain["degraded"]  # nothing was selected on it: no mark
    assert watched["epoch_scores"]["metric"] == "accuracy"
    found = watched["epoch_scores"]["scores"]
    assert [row[:4] for row in found] == [["finetune", "dev", 3 * n, float(n)] for n in (1, 2, 3)]
    judged = evaluate(Context(job(project, method)), watched)
    assert found[-1][4] == pytest.approx(judged["sets"]["dev"]["metrics"]["accuracy"])


def test_a_trial_that_is_judged_by_a_split_does_not_see_the_dev_set(project: Path) -> None:
    values = {"training.learning_rate": 3e-3}
    change(project, training=ON, tuning={"split": 0.75, "values": {"training.learning_rate": [1e-3, 3e-3]}})
    trial = Context(Job(str(project), "vanilla", TASK, SIZE, 0, values=values, trial=1))
    chosen = Context(Job(str(project), "vanilla", TASK, SIZE, 0, values=values))
    assert chosen.last.identity()["dev"] is not None
    assert trial.last.identity()["dev"] is None
    assert trial.last.identity()["training"]["epoch_scores"] is False


# -------------------------------------------------------------------------------------------- of which less is better


STARS: dict[str, Any] = {
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


def of(bench: Bench, task: dict[str, Any], rows: Sequence[Example] = ()) -> Any:
    """A phase that is a bench: what judging an epoch reads of it."""
    parts: dict[str, Any] = {"run": SimpleNamespace(task=task, device="cpu"), "rows": SimpleNamespace(examples=rows)}
    parts |= {"training": bench.training, "tokenizer": bench.tokenizer}
    return SimpleNamespace(**parts, encode=lambda _: bench.encoded)


def squared_error(value: float, rows: list[int]) -> float:
    gold = np.array([float(examples(12, kind="regression")[row].label) for row in rows])
    return float(np.mean((gold - value) ** 2))


def test_the_epoch_with_the_smallest_error_is_kept() -> None:
    bench = Bench(kind="regression")
    best = EpochScores("best", judge(of(bench, STARS), examples(12, kind="regression")), keeps_best=True)
    for step, bias in enumerate(BIASES, 1):
        constant(bench, bias)
        best.look(bench.trainee, bench.stack, step)
    errors = [squared_error(bias, list(range(12))) for bias in BIASES]
    assert [found for _, found in best.scores] == pytest.approx([-error for error in errors])
    assert best.step == 2
    best.restore(bench.trainee, bench.stack)
    assert bench.model.classifier.bias.item() == 2.5


def test_an_epoch_without_a_number_as_its_score_is_never_the_best() -> None:
    bench, values = Bench(), iter([math.nan, 0.5, math.inf, math.nan, math.nan])
    best = EpochScores("best", lambda _: next(values), keeps_best=True)
    for step in (1, 2, 3):
        best.look(bench.trainee, bench.stack, step)
    assert (best.step, best.scores) == (2, [(1, None), (2, 0.5), (3, None)])
    none = EpochScores("best", lambda _: next(values), keeps_best=True)
    for step in (1, 2):
        none.look(bench.trainee, bench.stack, step)
    with raises_code(RunFailed, "not-finite", "training.checkpoint"):
        none.restore(bench.trainee, bench.stack)


def test_an_epoch_is_scored_like_the_finished_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its precision, and with a label for every text where every training row has one."""
    asked = list[dict[str, Any]]()
    monkeypatch.setattr(logits, "predict", lambda *_, **how: asked.append(how) or np.full((12, 3), [-1.0, -2.0, -3.0]))
    bench = Bench(kind="multi_label", labels=3, training=TRAINING.model_copy(update={"precision": "bf16"}))
    task = {"kind": "multi_label", "labels": ["a", "b", "c"], "primary": "f1_micro", "positive_label": None}
    rows = [replace(row, label=1) for row in examples(12)]
    assert judge(of(bench, task, rows), rows)(bench.trainee) == 1.0
    some = [*rows[1:], replace(rows[0], label=0)]
    assert judge(of(bench, task, some), rows)(bench.trainee) == 0.0
    assert {how["precision"] for how in asked} == {"bf16"}


def test_scores_by_epoch_are_written_down_as_the_metric_is() -> None:
    looked: Any = SimpleNamespace(
        looks=[
            SimpleNamespace(keeps_best=True, scores=[(3, -4.0)]),
            SimpleNamespace(keeps_best=False, scores=[(3, -5.0), (4, None)]),  # an epoch that is cut off
        ],
        steps_per_epoch=3,
    )
    found = epoch_scores("finetune", looked, "best_on_split", "mse")["epoch_scores"]
    assert found == {
        "metric": "mse",
        "scores": [
            ["finetune", "held_out", 3, 1.0, 4.0],
            ["finetune", "dev", 3, 1.0, 5.0],
            ["finetune", "dev", 4, 4 / 3, None],
        ],
    }


def test_a_greedy_soup_begins_with_the_smallest_error_and_leaves_out_the_largest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, rows = Bench(kind="regression"), [1, 4, 5, 8]
    monkeypatch.setattr(training_run, "build", lambda inputs: (bench.trainee, bench.stack))
    inputs: Any = SimpleNamespace(
        encoded=bench.encoded, tokenizer=bench.tokenizer, setting=bench.setting, device="cpu", validation_rows=rows
    )
    members = []
    for bias in BIASES:
        constant(bench, bias)
        members.append({"weights": {n: t.clone() for n, t in bench.trainee.plain_weights().items()}})
    _, choice = greedy(members, lambda member: validation_score(inputs, member, STARS))
    errors = [squared_error(bias, rows) for bias in BIASES]
    assert choice["scores"] == pytest.approx([-error for error in errors])
    assert errors[1] == min(errors)
    assert choice["chosen"] == [1]
    monkeypatch.setattr(evaluated, "primary_score", lambda *_: math.nan)
    with raises_code(RunFailed, "not-finite", "mse"):
        validation_score(inputs, members[0], STARS)
