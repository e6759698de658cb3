"""``training.epoch_scores``: the development score by epoch is recorded, and nothing else is other for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from regft_core.data.examples import read_jsonl, write_jsonl
from regft_core.runs.context import Context
from regft_core.runs.epoch_scores import epoch_scores
from regft_core.runs.evaluate import evaluate
from regft_core.runs.job import Job
from regft_core.runs.scopes import CHECKPOINT_RULE
from regft_core.training.best import BestState, EpochScores
from tests.runs.conftest import SIZE, TASK, change, job, stored, train, write_method

ON = {"epochs": 3, "epoch_scores": True}
OFF = {"epochs": 3, "epoch_scores": False}


def key(root: Path, method: str = "vanilla", phase: str = "finetune") -> str:
    return Context(job(root, method)).keys.of(phase)


def weights(root: Path, record: dict[str, Any]) -> str:
    return stored(root, record["key"]).tensors_sha256("weights")


@pytest.mark.parametrize("method", ["vanilla", "hype_n", "weight_mixup"])
def test_the_weights_are_those_without_it(project: Path, method: str) -> None:
    """Hidden noise and weight views are in place while an epoch is scored."""
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
    judged = evaluate(Context(job(project, method, 0, finetune=watched["key"], **watched["phases"])), watched)
    assert found[-1][4] == pytest.approx(judged["sets"]["dev"]["metrics"]["accuracy"])


def test_scores_follow_the_epochs(project: Path) -> None:
    """The score after one epoch of three is that of a run killed by nobody after it, not always the last one's."""
    change(project, training={**ON, "schedule": "constant", "warmup_ratio": 0.0})
    three = train(project, "vanilla")["epoch_scores"]["scores"]
    change(project, training={"epochs": 1})
    one = train(project, "vanilla")["epoch_scores"]["scores"]
    assert one == three[:1]


def test_the_end_of_a_cut_epoch_is_scored(project: Path) -> None:
    change(project, training={**ON, "max_steps": 4})
    found = train(project, "vanilla")["epoch_scores"]["scores"]
    assert [row[2:4] for row in found] == [[3, 1.0], [4, pytest.approx(4 / 3)]]


def test_off_is_as_if_there_were_no_such_switch(project: Path) -> None:
    change(project, training={"epochs": 3})
    before = key(project)
    context = Context(job(project, "vanilla"))
    phase = context.phase("finetune")
    assert "epoch_scores" not in phase.training.settled()
    assert "epoch_scores" not in context.keys.identity("finetune")
    assert CHECKPOINT_RULE not in context.keys.training_scope(phase).entries
    change(project, training=OFF)
    assert key(project) == before


def test_what_is_scored_is_in_the_key_of_the_last_phase_alone(project: Path) -> None:
    change(project, training=OFF)
    plain, search = key(project), key(project, "weight_mixup", "search")
    change(project, training=ON)
    context, on = Context(job(project, "vanilla")), key(project)
    assert on != plain
    assert key(project, "weight_mixup", "search") == search
    assert context.keys.identity("finetune")["epoch_scores"]["primary"] == "accuracy"
    assert {CHECKPOINT_RULE, "regft_core.metrics.accuracy"} <= set(
        context.keys.training_scope(context.phase("finetune")).entries
    )
    dev = project / "work" / "datasets" / TASK / "dev.jsonl"
    write_jsonl(dev, read_jsonl(dev)[1:])
    assert key(project) != on


@pytest.mark.parametrize("method", ["tfidf_logistic", "majority", "linear_probe", "uniform_soup"])
def test_where_there_is_nothing_to_score_nothing_is_other(project: Path, method: str) -> None:
    """Arms that answer without the model, or whose last phase takes no step."""
    change(project, training=OFF, methods=["vanilla", method])
    plain = key(project, method)
    change(project, training=ON)
    assert key(project, method) == plain
    if method != "uniform_soup":  # five trainings, to say the same
        record = train(project, method)
        assert record["status"] == "ok"
        assert "epoch_scores" not in record


def test_one_method_may_ask_for_it(project: Path) -> None:
    before = key(project)
    write_method(project, "watched", training={"epoch_scores": True})
    assert Context(job(project, "watched")).phase("finetune").training.epoch_scores
    assert key(project) == before


def test_beside_a_rule_on_rows_set_aside_both_are_recorded(project: Path) -> None:
    rule = {"checkpoint": "best_on_split", "checkpoint_share": 0.25}
    change(project, training={**OFF, **rule})
    plain = train(project, "vanilla")
    assert {row[1] for row in plain["epoch_scores"]["scores"]} == {"held_out"}
    change(project, training=ON)
    both = train(project, "vanilla")
    assert weights(project, both) == weights(project, plain)
    assert both["checkpoint"] == plain["checkpoint"]
    rows = both["epoch_scores"]["scores"]
    assert [row[1] for row in rows] == ["held_out"] * 3 + ["dev"] * 3
    assert [row[4] for row in rows[:3]] == [score for _, score in both["checkpoint"]["scores"]]


def test_where_the_dev_set_chooses_its_scores_are_those(project: Path) -> None:
    change(project, training={**OFF, "checkpoint": "best_on_dev_as_published"})
    plain = key(project)
    change(project, training=ON)
    assert key(project) == plain  # it is scored once
    assert [row[1] for row in train(project, "vanilla")["epoch_scores"]["scores"]] == ["dev"] * 3


def test_every_member_of_a_repeated_phase_has_its_scores(project: Path) -> None:
    repeated = {"repeat": {"times": 2, "vary": ["order"]}, "training": {"epochs": 2, "epoch_scores": True}}
    write_method(project, "soup", phases={"finetune": repeated})
    rows = train(project, "soup")["epoch_scores"]["scores"]
    assert [row[0] for row in rows] == ["finetune-0", "finetune-0", "finetune-1", "finetune-1"]


def test_a_trial_that_is_judged_by_a_split_does_not_see_the_dev_set(project: Path) -> None:
    values = {"training.learning_rate": 3e-3}
    change(project, training=ON, tuning={"split": 0.75, "values": {"training.learning_rate": [1e-3, 3e-3]}})
    trial = Context(Job(str(project), "vanilla", TASK, SIZE, 0, values=values, trial=1))
    chosen = Context(Job(str(project), "vanilla", TASK, SIZE, 0, values=values))
    assert "epoch_scores" in chosen.keys.identity("finetune")
    assert "epoch_scores" not in trial.keys.identity("finetune")
    assert "epoch_scores" not in trial.keys.shared_identity(trial.phase("finetune"))["training"]


def test_a_metric_that_is_better_lower_is_recorded_as_it_is() -> None:
    """A judge turns it round, for its larger value is the better one."""

    class Trained:
        best = BestState(lambda _: 0.0, scores=[(2, -0.5)])
        watched = EpochScores(lambda _: 0.0, scores=[(2, -0.25), (4, None)])
        steps_per_epoch = 2

    found = epoch_scores("finetune", cast(Any, Trained()), "best_on_split", "mse")
    assert found["epoch_scores"]["scores"] == [
        ["finetune", "held_out", 2, 1.0, 0.5],
        ["finetune", "dev", 2, 1.0, 0.25],
        ["finetune", "dev", 4, 2.0, None],
    ]
