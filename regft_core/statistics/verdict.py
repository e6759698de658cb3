"""One of three words for a comparison, read off its interval and nothing else; a fourth when there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regft_core.statistics.signed_rank import SMALLEST_USEFUL_N

Word = Literal["better", "worse", "no evidence", "nothing to judge"]


@dataclass(frozen=True)
class Verdict:
    """The word, and whether there were too few seeds to take it as more than an indication."""

    word: Word
    too_few_seeds: bool


def verdict(low: float, high: float, n_seeds: int, *, higher_is_better: bool = True) -> Verdict:
    """Judge an arm by the interval [low, high] of its difference to the reference.

    ``better`` or ``worse`` needs an interval that excludes zero and at least two seeds: with one,
    the interval knows nothing of the spread over seeds. NaN bounds are no evidence. Without a seed
    that both arms finished there is ``nothing to judge``, which is not the same as having looked and
    found no evidence. Fewer than six seeds are flagged, since no second opinion by a signed-rank test
    is possible.
    """
    too_few = n_seeds < SMALLEST_USEFUL_N
    if n_seeds == 0:
        return Verdict("nothing to judge", too_few)
    if n_seeds < 2 or not (low > 0 or high < 0):
        return Verdict("no evidence", too_few)
    return Verdict("better" if (low > 0) == higher_is_better else "worse", too_few)
