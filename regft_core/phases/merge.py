"""Merge the members of a repeated phase: the plain mean, or a greedy soup.

Greedy soup: Wortsman et al., "Model soups", ICML 2022, recipe 1. Members are ordered by their score
on the validation share; one after another is added and kept if the score of the mean does not fall.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from regft_core import metrics
from regft_core.data.batches import padding_of
from regft_core.evaluation.evaluate import SetInfo, evaluate_run
from regft_core.evaluation.predict import EVALUATION_BATCH, predict
from regft_core.phases.training_run import PhaseInputs, build

if TYPE_CHECKING:
    from torch import Tensor

#: Named tensors by what they are: ``weights``, ``state``.
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
    inputs: PhaseInputs, members: Sequence[Outcome], task: Mapping[str, Any]
) -> tuple[list[int], list[float]]:
    """Members to average, in the order in which they were added, and every member's own score.

    ``inputs`` are those of a member: all have the same validation share. Scores are the task's
    primary metric, larger is better.
    """

    def score(chosen: Sequence[int]) -> float:
        trainee, _ = build(inputs)
        trainee.load_weights(merge_mean([members[index] for index in chosen])["weights"], head=True)
        return _validation_score(trainee.model, inputs, task)

    own = [score([index]) for index in range(len(members))]
    order = sorted(range(len(members)), key=lambda index: (-own[index], index))
    chosen = order[:1]
    best = own[order[0]]
    for index in order[1:]:
        tried = score([*chosen, index])
        if tried >= best:
            chosen, best = [*chosen, index], tried
    return chosen, own


def _validation_score(model: torch.nn.Module, inputs: PhaseInputs, task: Mapping[str, Any]) -> float:
    """The task's primary metric on the validation share; larger is better."""
    padding = padding_of(inputs.tokenizer)
    logits = predict(
        model,
        inputs.encoded,
        batch_size=EVALUATION_BATCH,
        device=inputs.device,
        pad_id=padding.pad_id,
        pad_token_type_id=padding.pad_token_type_id,
        padding_side=padding.side,
        kind=inputs.kind,
    )
    rows = list(inputs.validation_rows)
    judged = SetInfo(labels=[inputs.encoded.labels[row] for row in rows], ids=[inputs.encoded.ids[row] for row in rows])
    found = evaluate_run({"validation": logits[rows]}, {"validation": judged}, dict(task))
    value = float(found.sets["validation"]["metrics"][task["primary"]])
    return value if metrics.higher_is_better(task["primary"]) else -value
