"""The score of a merged model on the validation share, by which rules of ``training.merges`` choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regft_core import metrics
from regft_core.data.batches import padding_of
from regft_core.evaluate.predict import predict
from regft_core.evaluate.score import primary_score
from regft_core.runs.training_run import PhaseInputs, build
from regft_core.training.merges import Outcome


def validation_score(inputs: PhaseInputs, outcome: Outcome, task: Mapping[str, Any]) -> float:
    """The task's primary metric of a model on the validation share; larger is better."""
    trainee, stack = build(inputs)
    trainee.load_weights(outcome["weights"], head=True)
    stack.rebuild(trainee, outcome.get("kept", {}))
    logits = predict(
        trainee.model,
        inputs.encoded,
        device=inputs.device,
        precision=inputs.training.precision,
        padding=padding_of(inputs.tokenizer),
        kind=inputs.kind,
    )
    rows = list(inputs.validation_rows)
    value = primary_score(trainee.answers(logits[rows]), [inputs.encoded.labels[row] for row in rows], task)
    return value if metrics.higher_is_better(task["primary"]) else -value
