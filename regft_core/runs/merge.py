"""The members of a repeated phase become one: their mean, or that of a greedy soup.

Wortsman et al., "Model soups", ICML 2022, recipe 1. Members are ordered by their score on the
validation share; one after another is added and kept if the score of the mean does not fall.

Differences between paper and released code (``repeat.variant``):
- released: a member is kept only if the score rises. On a small share, where scores tie, that is another soup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from regft_core import metrics
from regft_core.data.batches import padding_of
from regft_core.evaluate.predict import predict
from regft_core.evaluate.score import primary_score
from regft_core.runs.training_run import PhaseInputs, build

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.hooks.description import Variant


#: Named tensors by what they are: ``weights``, ``state``, ``kept``.
Outcome = Mapping[str, Mapping[str, "Tensor"]]


def merge_mean(members: Sequence[Outcome]) -> dict[str, dict[str, Tensor]]:
    """Mean over the members, entry by entry, in double precision."""
    first = members[0]
    return {
        name: {
            key: torch.stack([member[name][key].double() for member in members]).mean(0).to(value.dtype)
            for key, value in named.items()
        }
        for name, named in first.items()
    }


def merge_greedily(
    inputs: PhaseInputs, members: Sequence[Outcome], task: Mapping[str, Any], variant: Variant = "paper"
) -> tuple[list[int], list[float]]:
    """Members to average, in the order in which they were added, and every member's own score.

    ``inputs`` are those of a member: all have the same validation share. Scores are the task's
    primary metric, larger is better; equal members come in their order.
    """

    def score(chosen: Sequence[int]) -> float:
        return validation_score(inputs, merge_mean([members[index] for index in chosen]), task)

    alone = [score([index]) for index in range(len(members))]
    order = sorted(range(len(members)), key=lambda index: (-alone[index], index))
    chosen = order[:1]
    best = alone[order[0]]
    for index in order[1:]:
        tried = score([*chosen, index])
        if tried > best or (tried == best and variant == "paper"):
            chosen, best = [*chosen, index], tried
    return chosen, alone


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
