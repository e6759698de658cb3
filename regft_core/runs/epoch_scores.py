"""Scores of epochs, to choose whose weights a run leaves or to be shown, and of merged models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regft_core import metrics
from regft_core.schema.training import CheckpointRule

if TYPE_CHECKING:
    from regft_core.data.examples import Example
    from regft_core.runs.run_phase import RunPhase
    from regft_core.runs.training_run import PhaseInputs, TrainedPhase
    from regft_core.training.loop import Judge
    from regft_core.training.merges import Outcome
    from regft_core.training.trainee import Trainee


def judge(phase: RunPhase, examples: Sequence[Example]) -> Judge:
    """Return a function that scores a model of ``phase`` on ``examples`` as the finished run is scored."""
    from regft_core.data.batches import padding_of
    from regft_core.evaluate.evaluated import primary_score, unfitted_decision
    from regft_core.evaluate.logits import predict
    from regft_core.models.heads import evaluating

    task, encoded, labels = phase.run.task, phase.encode(list(examples)), [example.label for example in examples]
    how: dict[str, Any] = {"padding": padding_of(phase.tokenizer), "precision": phase.training.precision}
    how |= {"device": phase.run.device, "kind": task["kind"]}
    decision = unfitted_decision(task, lambda: (row.label for row in phase.rows.examples))
    sign = 1.0 if metrics.higher_is_better(task["primary"]) else -1.0

    def score(trainee: Trainee) -> float:
        with evaluating(trainee.attached):
            logits = predict(trainee.model, encoded, **how)
        return sign * primary_score(trainee.answers(logits), labels, task, decision)

    return score


def epoch_scores(label: str, trained: TrainedPhase, rule: CheckpointRule, primary: str) -> dict[str, Any]:
    """Return the metric and [phase, rows, step, epoch, score] of every look, in order; a score may be None."""
    sign = 1.0 if metrics.higher_is_better(primary) else -1.0  # larger values are better here
    chosen_on = "dev" if rule == "best_on_dev_as_published" else "held_out"  # training rows that were set aside
    scores = [
        [label, rows, step, step / trained.steps_per_epoch, None if score is None else sign * score]
        for looks in trained.looks
        for rows in [chosen_on if looks.keeps_best else "dev"]
        for step, score in looks.scores
    ]
    return {"epoch_scores": {"metric": primary, "scores": scores}} if scores else {}


def merged_epoch_scores(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Those of several phases, or of all members of one, as one record."""
    recorded = [result["epoch_scores"] for result in results if "epoch_scores" in result]
    if not recorded:
        return {}
    scores = [row for record in recorded for row in record["scores"]]
    return {"epoch_scores": {"metric": recorded[0]["metric"], "scores": scores}}


def validation_score(inputs: PhaseInputs, outcome: Outcome, task: Mapping[str, Any]) -> float:
    """Return a merged model's primary metric on the validation share, larger is better. RunFailed if not finite."""
    from regft_core.data.batches import padding_of
    from regft_core.evaluate.evaluated import primary_score, require_number, unfitted_decision
    from regft_core.evaluate.logits import predict
    from regft_core.runs.training_run import build

    trainee, stack = build(inputs)
    if not inputs.setting.final:  # its weights are those behind the views
        stack.put_views(trainee, inputs.handed, outcome.get("state", {}))
    trainee.load_weights(outcome["weights"], head=True)
    stack.rebuild(trainee, outcome.get("kept", {}))
    setting = inputs.setting
    how: dict[str, Any] = {"device": inputs.device, "precision": setting.training.precision, "kind": setting.kind}
    logits = predict(trainee.model, inputs.encoded, padding=padding_of(inputs.tokenizer), **how)
    rows = list(inputs.validation_rows)
    labels = inputs.encoded.labels
    decision = unfitted_decision(task, lambda: labels)
    value = primary_score(trainee.answers(logits[rows]), [labels[row] for row in rows], task, decision)
    require_number(value, task["primary"], "the validation share")
    return value if metrics.higher_is_better(task["primary"]) else -value
