"""The best epoch in the place of the last step, and scores by epoch: what is kept, and that looking changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from regft_core.contract.laws import Memory
from regft_core.errors import RunFailed
from regft_core.training.best import BestState, EpochScores
from regft_core.training.loop import Loop
from regft_core.training.trainee import Trainee
from tests.methods.harness import TRAINING, Bench, same

EPOCHS = 3


class Looks:
    """A judge with scores given beforehand, which notes the weights that it saw."""

    def __init__(self, scores: Sequence[float], seen: int = 0) -> None:
        self.scores, self.weights, self.seen = scores, [], seen  # type: ignore[var-annotated]

    def __call__(self, trainee: Trainee) -> float:
        self.weights.append({name: value.detach().clone() for name, value in trainee.named_raw()})
        self.seen += 1
        return self.scores[self.seen - 1]


def loop(looks: Looks | None, watch: Any = None, **options: Any) -> tuple[Bench, Loop]:
    bench = Bench(training=TRAINING.model_copy(update={"epochs": EPOCHS}))
    judged: dict[str, Any] = {
        "best": BestState(looks) if looks is not None else None,
        "watched": EpochScores(watch) if watch is not None else None,
    }
    return bench, Loop(bench.trainee, bench.stack, bench.stream, bench.training, **judged, **options)


def weights(bench: Bench) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in bench.trainee.named_raw()}


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [([0.2, 0.9, 0.5], 1), ([0.9, 0.2, 0.9], 0), ([-3.0, -2.0, -1.0], 2)],
)
def test_the_first_of_the_best_epochs_is_left(scores: list[float], chosen: int) -> None:
    looks = Looks(scores)
    bench, run = loop(looks)
    run.train()
    assert same(weights(bench), looks.weights[chosen])
    assert run.best is not None
    assert run.best.step == (chosen + 1) * run.steps_per_epoch
    assert [score for _, score in run.best.scores] == scores
    assert run.best.scores[-1][0] == run.total


def test_looking_changes_no_step() -> None:
    plain, run = loop(None)
    run.train()
    looks = Looks([0.1, 0.2, 0.3])
    looked, other = loop(looks)
    other.train()
    assert same(weights(plain), weights(looked))
    assert [row[2] for row in run.done.curve] == [row[2] for row in other.done.curve]


def test_what_is_only_looked_at_is_neither_left_nor_changed() -> None:
    plain, run = loop(None)
    run.train()
    looks = Looks([0.9, 0.2, 0.5])  # the first epoch would be the best
    watched, other = loop(None, looks)
    other.train()
    assert same(weights(plain), weights(watched))
    assert same(weights(watched), looks.weights[-1])
    assert other.watched is not None
    per = other.steps_per_epoch
    assert other.watched.scores == [(per, 0.9), (2 * per, 0.2), (3 * per, 0.5)]


def test_a_look_ends_no_run() -> None:
    """Logits that are no numbers are the loss's affair; a correlation of constants is not a number either."""
    answers = iter([RunFailed("not-finite", "a logit is NaN"), float("nan"), 0.5])

    def judge(trainee: Trainee) -> float:
        answer = next(answers)
        if isinstance(answer, RunFailed):
            raise answer
        return answer

    _, run = loop(None, judge)
    run.train()
    assert run.watched is not None
    assert [score for _, score in run.watched.scores] == [None, None, 0.5]


@pytest.mark.parametrize("stop", [4, 6, 7])
def test_a_killed_run_keeps_the_scores_that_it_had(stop: int) -> None:
    """Beside a rule, whose best epoch is left: each has its own scores."""
    chosen, scores = [0.2, 0.9, 0.5], [0.9, 0.2, 0.5]
    whole, run = loop(Looks(chosen), Looks(scores))
    run.train()

    def dies(step: int) -> None:
        if step == stop:
            raise KeyboardInterrupt

    memory = Memory()
    _, killed = loop(Looks(chosen), Looks(scores), checkpointer=memory, checkpoint_seconds=0.0, on_step=dies)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    seen = stop // killed.steps_per_epoch
    resumed, rest = loop(Looks(chosen, seen), Looks(scores, seen), checkpointer=memory)
    rest.train()
    assert same(weights(whole), weights(resumed))
    assert run.watched is not None
    assert rest.watched is not None
    assert rest.watched.scores == run.watched.scores
    assert [score for _, score in rest.watched.scores] == scores
