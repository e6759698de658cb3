"""Whether a run bears out a printed gain: one of five words, read off intervals, and the intervals of printed gains."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from regft_core.lazy import stats

Outcome = Literal["reproduced", "smaller", "not shown", "contradicted", "not tested here"]

#: A gain below this share of the printed one is of no size that matters.
MATTERS = 0.5
T = TypeVar("T")


@dataclass(frozen=True)
class Bounds:
    """A number with its interval, NaN where nothing is known of its spread. Gains are positive in a claim's sense."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def within(self, lowest: float, highest: float) -> Bounds:
        """The interval within what the number can be: few seeds would stretch it beyond 100%."""
        return replace(self, low=max(self.low, lowest), high=min(self.high, highest))


def outcome(ours: Bounds, n_seeds: int, printed: Bounds | None = None) -> Outcome:
    """Judge a claimed gain by ``ours``, the paired gain of ``n_seeds`` seeds that both methods finished.

    Both gains are positive in the claim's direction. With our gain d in [lo, hi] and the printed gain g:

    - *not tested here*: fewer than two seeds, or a NaN in ours.
    - *contradicted*: hi < 0; for g > 0 also lo <= 0, d below g and hi < g / 2: half of the printed gain is excluded.
    - *reproduced*: lo > 0, and d is not below g. *smaller*: lo > 0, and d is below g.
    - *not shown*: everything else. An interval of no width at zero (identical answers) is this one.

    d is *below* g when the interval of d - g lies below zero. Its upper end is d - g + sqrt((hi - d)^2 + (g - glo)^2),
    glo being the lower end of the printed gain's interval (MOVER; Zou and Donner, Statistics in Medicine 2008). Without
    a glo g counts as exact, without a printed gain only the direction is judged.
    """
    if n_seeds < 2 or any(map(math.isnan, (ours.value, ours.low, ours.high))):
        return "not tested here"
    if ours.high < 0:
        return "contradicted"
    below = printed is not None and _below(ours, printed)
    if ours.low > 0:
        return "smaller" if below else "reproduced"
    if printed is None or ours.low == ours.high:
        return "not shown"
    return "contradicted" if below and printed.value > 0 and ours.high < MATTERS * printed.value else "not shown"


def _below(ours: Bounds, printed: Bounds) -> bool:
    own, theirs = ours.high - ours.value, printed.value - printed.low
    return ours.value - printed.value + math.hypot(own, 0.0 if math.isnan(theirs) else theirs) < 0


def together(words: Mapping[T, Outcome]) -> Outcome:
    """Judge a claim about several columns or opponents at once: by the first of ``order`` that any of them has."""
    order: tuple[Outcome, ...] = ("contradicted", "not shown", "smaller", "reproduced", "not tested here")
    return next(word for word in order if word in words.values())


def step_down(
    judge: Callable[[T, float], Outcome], claims: list[T], confidence: float
) -> dict[T, tuple[Outcome, float]]:
    """Judge a family of claims so that all words hold together (Holm, Scandinavian Journal of Statistics 1979).

    ``judge(claim, confidence)`` gives a claim's word from intervals of that confidence. All m claims start at
    1 - (1 - confidence) / m. Those that get a decisive word keep it; the others are judged again with the level shared
    among those left, until none changes. Claims that cannot be tested take no part of the level.

    Returns claim -> (word, confidence of the intervals that it was read off).
    """
    verdicts = {claim: (judge(claim, confidence), confidence) for claim in claims}
    left = [claim for claim in claims if verdicts[claim][0] != "not tested here"]
    while left:
        level = 1 - (1 - confidence) / len(left)
        verdicts |= {claim: (judge(claim, level), level) for claim in left}
        undecided = [claim for claim in left if verdicts[claim][0] == "not shown"]
        if len(undecided) == len(left):
            break
        left = undecided
    return verdicts


def welch_interval(value: float, parts: Sequence[tuple[float, int]], confidence: float = 0.95) -> tuple[float, float]:
    """Return the t-interval around ``value`` with Satterthwaite's degrees of freedom (Welch, Biometrika 1947).

    ``parts`` are (variance of the mean, number of runs) of everything that ``value`` is made of. NaN without
    parts, with a part of fewer than two runs, and without any spread: nobody knows how much ``value`` varies then.
    """
    total = sum(variance for variance, _ in parts)
    if not parts or total == 0 or min(n for _, n in parts) < 2:
        return math.nan, math.nan
    freedom = total**2 / sum(variance**2 / (n - 1) for variance, n in parts)
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * math.sqrt(total)
    return value - half, value + half
