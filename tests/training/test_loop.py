"""The loop against a plain hand-written one; accumulation, failure, and the best epoch in place of the last step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from regft_core.catalogue import SAMPLERS, SCHEDULES
from regft_core.contract.laws import Memory, Stopped
from regft_core.errors import OutOfMemory, RunFailed
from regft_core.rng import derive
from regft_core.schema.training import TrainingConfig
from regft_core.training.loop import EpochScores, Loop
from regft_core.training.optim import rate_factor, warmup_steps
from regft_core.training.trainee import Trainee
from tests.errors import raises_code
from tests.methods.harness import STILL, TRAINING, Bench, largest_difference, same
from tests.small_project import also


def test_what_the_device_has_not_done_yet_counts_as_time_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is some steps behind: reading their losses waits for it. The clock and the wait are stand-ins."""
    clock = [0.0]
    monkeypatch.setattr("regft_core.training.loop.time.monotonic", lambda: clock[0])
    loop = Bench().loop()
    loop.read_every = 16  # as on a GPU: more than this run has steps
    read = loop._flush

    def waiting() -> None:
        clock[0] += 1.0 * len(loop._pending)
        read()

    monkeypatch.setattr(loop, "_flush", waiting)
    assert loop.train().seconds == loop.total == 6


def plain_loop(bench: Bench, training: TrainingConfig) -> dict[str, torch.Tensor]:
    """Fine-tuning as one would write it by hand, without any of regft's loop."""
    model, total = bench.model, 6
    decayed = [p for n, p in model.named_parameters() if not bench.trainee.sites.no_decay(n)]
    kept = [p for n, p in model.named_parameters() if bench.trainee.sites.no_decay(n)]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": training.weight_decay}, {"params": kept, "weight_decay": 0.0}],
        lr=training.learning_rate,
        fused=True,
    )
    warmup = math.ceil(training.warmup_ratio * total)
    model.train()
    step = 0
    for epoch in range(2):
        for rows in bench.stream.order(epoch):
            rate = step / warmup if step < warmup else (total - step) / (total - warmup)
            for group in optimizer.param_groups:
                group["lr"] = training.learning_rate * rate
            batch = bench.stream.collate(rows)
            torch.manual_seed(derive(0, "dropout", "finetune", step, 0, 0))
            logits = model(**batch.model_inputs()).logits
            loss = torch.nn.functional.cross_entropy(logits, batch.labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm or math.inf)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def test_vanilla_equals_a_hand_written_loop_bit_for_bit() -> None:
    assert same(Bench().train(), plain_loop(Bench(), TRAINING))


def test_accumulated_batches_are_one_large_batch() -> None:
    """Weighted by examples: also the last, smaller batch counts for what it is."""
    common = {"dropout": STILL, "bucket_batches": 1, "epochs": 1, "epsilon": 0.01}
    large = TRAINING.model_copy(update={**common, "batch_size": 12})
    small = TRAINING.model_copy(update={**common, "batch_size": 5, "accumulation": 3})
    run = Bench(training=small)
    assert run.loop().total == 1
    one = Bench(training=large)
    # The first rate of a warm-up is 0; without one the two runs make the same single step.
    for bench in (run, one):
        bench.training = bench.training.model_copy(update={"warmup_ratio": 0.0})
    assert largest_difference(run.train(), one.train()) < 1e-5


def test_loss_that_is_not_a_number_fails_the_run_with_step_and_advice() -> None:
    run = Bench(training=TRAINING.model_copy(update={"learning_rate": 1e30, "clip_norm": None, "epochs": 5}))
    with raises_code(RunFailed, "not-finite", "of 15"):
        run.loop().train()


def test_out_of_memory_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Bench()

    def exhausted(*_: object) -> None:
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(run.stack, "backward", exhausted)
    with raises_code(OutOfMemory, "out-of-memory"):
        run.loop().train()


def test_a_number_of_steps_goes_before_epochs_and_no_epochs_are_no_steps() -> None:
    assert Bench().loop().total == 6
    assert Bench().loop(steps=8).total == 8
    done = Bench().loop(steps=8).train()
    assert done.step == 8
    assert [row[:2] for row in done.curve][-2:] == [[7, 2.0], [8, pytest.approx(7 / 3)]]  # into the third epoch
    none = TRAINING.model_copy(update={"epochs": 0, "max_steps": 5})
    run = Bench(training=none)
    assert run.loop().total == 0
    assert same(run.train(), Bench().trainee.plain_weights())


def test_schedules() -> None:
    assert warmup_steps(TRAINING.model_copy(update={"warmup_ratio": 0.11}), 10) == 2
    assert warmup_steps(TRAINING.model_copy(update={"warmup_steps": 12}), 10) == 10
    assert [rate_factor(SCHEDULES.load("linear").factor, s, 4, 0) for s in range(4)] == [1.0, 0.75, 0.5, 0.25]
    assert rate_factor(SCHEDULES.load("constant").factor, 3, 4, 1) == 1.0
    assert rate_factor(SCHEDULES.load("cosine").factor, 2, 4, 0) == pytest.approx(0.5)
    assert rate_factor(SCHEDULES.load("cosine").factor, 0, 10, 2) == 0.0


def test_a_schedule_is_one_file_with_the_function_factor(tmp_path: Path) -> None:
    for name, text in {
        "halved": "def factor(progress):\n    return 0.5\n",
        "assigned": "factor = lambda progress: 1.0\n",
        "misspelt": "def faktor(progress): return 1.0\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    with pytest.raises(ValidationError, match="unknown schedule 'halved'"):
        TrainingConfig(schedule="halved")
    with also(SCHEDULES, tmp_path):
        assert TrainingConfig(schedule="assigned").schedule == "assigned"
        with pytest.raises(ValidationError, match="'factor'"):
            TrainingConfig(schedule="misspelt")
        training = TrainingConfig(schedule="halved", epochs=1, batch_size=4, learning_rate=0.1, warmup_ratio=0.0)
        assert [rate for *_, rate, _ in Bench(training=training).loop().train().curve] == [0.05] * 3


BALANCED = """
from random import Random

def batches(lengths, labels, *, seed, epoch, batch_size, bucket_batches):
    drawn, rows = Random(f"{seed}/{epoch}"), [[row for row, one in enumerate(labels) if one == of] for of in (0, 1)]
    return [[drawn.choice(rows[at % 2]) for at in range(batch_size)] for _ in range(-(-len(labels) // batch_size))]
"""


def test_a_sampler_is_one_file(tmp_path: Path) -> None:
    """Every batch has as many rows of one label as of the other, and epochs differ."""
    file = tmp_path / "balanced.py"
    file.write_text(BALANCED)
    with also(SAMPLERS, tmp_path):
        run = Bench(training=TRAINING.model_copy(update={"sampler": "balanced"}))
        labels, epochs = run.encoded.labels, [run.stream.order(epoch) for epoch in range(2)]
        assert all(sum(labels[row] for row in batch) == 2 for order in epochs for batch in order)
        assert epochs[0] != epochs[1]
        assert not same(run.train(), Bench().train())
        file.write_text(BALANCED.replace("in range(-(-", "in range(1 - (-"))
        with raises_code(RunFailed, "bad-sampler"):
            Bench(training=run.training).train()


# -------------------------------------------------------------------------------------------------- scores by epoch


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
