"""The best epoch in the place of the last step, and scores by epoch: what is kept, and that looking changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
import torch

from regft_core.contract.laws import Memory, Stopped
from regft_core.errors import RunFailed
from regft_core.training.loop import EpochScores, Loop
from regft_core.training.trainee import Trainee
from tests.methods.harness import TRAINING, Bench, same


class Looks:
    """A judge with scores given beforehand, which notes the weights that it saw."""

    def __init__(self, scores: Sequence[float], seen: int = 0) -> None:
        self.scores, self.weights, self.seen = scores, [], seen  # type: ignore[var-annotated]

    def __call__(self, trainee: Trainee) -> float:
        self.weights.append({name: value.detach().clone() for name, value in trainee.named_raw()})
        self.seen += 1
        return self.scores[self.seen - 1]


def ran(best: Any = None, watched: Any = None, **options: Any) -> tuple[dict[str, torch.Tensor], Loop]:
    """Weights and loop of three epochs under a judge that chooses, and one that only looks."""
    bench = Bench(training=TRAINING.model_copy(update={"epochs": 3}))
    looks = [EpochScores("best", best, keeps_best=True)] if best is not None else []
    looks += [EpochScores("watched", watched)] if watched is not None else []
    loop = bench.loop(looks=looks, **options)
    with suppress(Stopped):
        loop.train()
    return {name: value.detach().clone() for name, value in bench.trainee.named_raw()}, loop


@pytest.mark.parametrize(("scores", "chosen"), [([0.2, 0.9, 0.5], 1), ([0.9, 0.2, 0.9], 0), ([-3.0, -2.0, -1.0], 2)])
def test_the_first_of_the_best_epochs_is_left_and_looking_changes_no_step(scores: list[float], chosen: int) -> None:
    looks = Looks(scores)
    weights, loop = ran(looks)
    assert same(weights, looks.weights[chosen])
    (best,) = loop.looks
    per = loop.steps_per_epoch
    assert best.step == (chosen + 1) * per
    assert best.scores == [(per * (epoch + 1), score) for epoch, score in enumerate(scores)]
    plain, other = ran()
    assert same(plain, looks.weights[-1])
    assert [row[2] for row in loop.done.curve] == [row[2] for row in other.done.curve]


def test_what_is_only_looked_at_is_not_left_and_ends_no_run() -> None:
    """Logits that are no numbers are the loss's affair; a correlation of constants is not a number either."""
    answers = iter([RunFailed("not-finite", "a logit is NaN"), float("nan"), 0.5])

    def judge(trainee: Trainee) -> float:
        answer = next(answers)
        if isinstance(answer, RunFailed):
            raise answer
        return answer

    watched, loop = ran(None, judge)
    assert [score for _, score in loop.looks[0].scores] == [None, None, 0.5]
    assert same(watched, ran(None, Looks([0.9, 0.2, 0.5]))[0])  # the first epoch would be the best
    assert same(watched, ran()[0])


@pytest.mark.parametrize("stop", [4, 6, 7])
def test_a_killed_run_keeps_the_scores_that_it_had(stop: int) -> None:
    """Beside a rule, whose best epoch is left: each has its own scores."""
    chosen, scores, memory = [0.2, 0.9, 0.5], [0.9, 0.2, 0.5], Memory()

    def dies(step: int, *_: Any) -> None:
        if step == stop:
            raise Stopped

    whole, loop = ran(Looks(chosen), Looks(scores))
    _, killed = ran(Looks(chosen), Looks(scores), checkpointer=memory, checkpoint_seconds=0.0, progress=dies)
    seen = stop // killed.steps_per_epoch
    resumed, rest = ran(Looks(chosen, seen), Looks(scores, seen), checkpointer=memory)
    assert same(whole, resumed)
    assert [look.scores for look in rest.looks] == [look.scores for look in loop.looks]
    assert [[score for _, score in look.scores] for look in rest.looks] == [chosen, scores]
