"""Rules that make one of the members of a repeated phase; ``repeat.merge`` names one of these, or a file.

A file defines ``merge(members, score)``. A member is what its training left: named tensors by what they are
(``weights``, ``state``, ``kept``). ``score`` of a member, or of a mean, is the task's primary metric on the validation
share; larger is better. Returned are the merged tensors and what the record tells of the choice: ``scores`` of the
members alone and the ``chosen`` ones in their order, or nothing. ``SCORES = True`` says that scores are asked for, so
that the phase needs a validation share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from regft_core.lazy import Tensor, torch

#: Named tensors by what they are: ``weights``, ``state``, ``kept``.
Outcome = Mapping[str, Mapping[str, Tensor]]
Score = Callable[[Outcome], float]
#: What a rule returns: merged tensors, and what the record tells.
Merged = tuple[dict[str, dict[str, Tensor]], dict[str, Any]]


def entrywise(members: Sequence[Outcome], merged: Callable[[Tensor], Tensor]) -> dict[str, dict[str, Tensor]]:
    """Every tensor as ``merged`` makes it of those of all members, stacked, in double precision: [members, ...]."""
    return {
        part: {
            name: merged(torch.stack([member[part][name] for member in members]).double()).to(value.dtype)
            for name, value in named.items()
        }
        for part, named in members[0].items()
    }


def mean(members: Sequence[Outcome], score: Score) -> Merged:
    """The mean over the members, entry by entry."""
    return entrywise(members, lambda stacked: stacked.mean(0)), {}


def greedy(members: Sequence[Outcome], score: Score, *, keeps_ties: bool = True) -> Merged:
    """A greedy soup (Wortsman et al., "Model soups", ICML 2022, recipe 1).

    Members are ordered by their score on the validation share, equal ones in their order; one after another is added
    and kept if the score of the mean does not fall.

    Differences between paper and released code (``merge: greedy_released``):
    - released: a member is kept only if the score rises. On a small share, where scores tie, that is another soup.
    """

    def of(chosen: Sequence[int]) -> dict[str, dict[str, Any]]:
        return entrywise([members[index] for index in chosen], lambda stacked: stacked.mean(0))

    alone = [score(of([index])) for index in range(len(members))]
    order = sorted(range(len(members)), key=lambda index: (-alone[index], index))
    chosen = order[:1]
    best = alone[order[0]]
    for index in order[1:]:
        tried = score(of([*chosen, index]))
        if tried > best or (tried == best and keeps_ties):
            chosen, best = [*chosen, index], tried
    return of(chosen), {"scores": alone, "chosen": chosen}


SHIPPED = {
    "mean": SimpleNamespace(merge=mean),
    "greedy": SimpleNamespace(merge=greedy, SCORES=True, VARIANT="paper"),
    "greedy_released": SimpleNamespace(merge=partial(greedy, keeps_ties=False), SCORES=True, VARIANT="released"),
}
