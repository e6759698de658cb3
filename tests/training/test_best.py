"""The best epoch in the place of the last step: what is kept, and that looking changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from regft_core.training.best import BestState
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


class Memory:
    """A checkpointer that remembers the last checkpoint."""

    def __init__(self) -> None:
        self.stored: Any = None

    def save_checkpoint(self, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
        self.stored = ({name: value.detach().clone() for name, value in tensors.items()}, meta)

    def load_checkpoint(self) -> Any:
        return self.stored


def loop(looks: Looks | None, **options: Any) -> tuple[Bench, Loop]:
    bench = Bench(training=TRAINING.model_copy(update={"epochs": EPOCHS}))
    best = BestState(looks) if looks is not None else None
    return bench, Loop(bench.trainee, bench.stack, bench.stream, bench.training, best=best, **options)


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


@pytest.mark.parametrize("stop", [4, 6, 7])
def test_a_killed_run_keeps_the_best_that_it_had(stop: int) -> None:
    """The best epoch lies before the kill: it must come back from the checkpoint."""
    scores = [0.9, 0.2, 0.5]
    whole, run = loop(Looks(scores))
    run.train()

    def dies(step: int) -> None:
        if step == stop:
            raise KeyboardInterrupt

    memory = Memory()
    _, killed = loop(Looks(scores), checkpointer=memory, checkpoint_seconds=0.0, on_step=dies)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    resumed, rest = loop(Looks(scores, stop // killed.steps_per_epoch), checkpointer=memory)
    rest.train()
    assert same(weights(whole), weights(resumed))
    assert run.best is not None
    assert rest.best is not None
    assert (run.best.scores, run.best.step) == (rest.best.scores, rest.best.step)
