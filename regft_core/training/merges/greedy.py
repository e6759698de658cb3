"""A greedy soup (Wortsman et al., "Model soups", ICML 2022, recipe 1).

Members are ordered by their score on the validation share, equal ones in their order; one after another is added and
kept if the score of the mean does not fall.

Differences between paper and released code (``merge: greedy_released``):
- released: a member is kept only if the score rises. On a small share, where scores tie, that is another soup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regft_core.training.merges import Merged, Outcome, Score, entrywise

SCORES = True
VARIANT = "paper"


def merge(members: Sequence[Outcome], score: Score, *, keeps_ties: bool = True) -> Merged:
    def mean(chosen: Sequence[int]) -> dict[str, dict[str, Any]]:
        return entrywise([members[index] for index in chosen], lambda stacked: stacked.mean(0))

    alone = [score(mean([index])) for index in range(len(members))]
    order = sorted(range(len(members)), key=lambda index: (-alone[index], index))
    chosen = order[:1]
    best = alone[order[0]]
    for index in order[1:]:
        tried = score(mean([*chosen, index]))
        if tried > best or (tried == best and keeps_ties):
            chosen, best = [*chosen, index], tried
    return mean(chosen), {"scores": alone, "chosen": chosen}
