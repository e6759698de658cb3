"""The methods of one block by score, a line each: what page and terminal show first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from regft_core import metrics
from regft_core.names import plural
from regft_core.report.model import Block, Comparison, Report, Role, Row
from regft_core.report.page.formatting import listed, score, some
from regft_core.report.sentences import looked_at
from regft_core.statistics.verdict import BELOW, BELOW_MARK, SYMBOLS, Word, overall

#: A method this many times farther from the best than the median is does not stretch the scale.
FAR = 3.0


@dataclass(frozen=True)
class Against:
    """A method against its controls, or against the reference, on the development set."""

    word: Word
    #: The comparison with the smallest gain.
    closest: Comparison
    #: What it is compared with, and the differences with their intervals, in words.
    text: str

    @property
    def symbol(self) -> str:
        """The mark of the word."""
        return SYMBOLS[self.word]

    @property
    def shown(self) -> str:
        """The difference and the mark."""
        c = self.closest
        return f"{score(c.estimate.mean, c.metric, signed=True)} {self.symbol}"


@dataclass(frozen=True)
class Line:
    """One method."""

    #: 1 is the best mean; equal means share it. None without a finished run.
    rank: int | None
    row: Row
    control: Against | None
    reference: Against | None


@dataclass(frozen=True)
class Board:
    """All methods of a block, the best first."""

    block: Block
    lines: tuple[Line, ...]
    #: Scale of the drawn intervals, in the metric's unit.
    low: float
    high: float

    @property
    def sets(self) -> list[str]:
        """Sets beside the development set."""
        return [
            name for name in self.block.sets if name != "dev" and any(name in line.row.scores for line in self.lines)
        ]

    def at(self, value: float) -> float:
        """Place of ``value`` on the scale, from 0 to 1; what is beyond stands at the end."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def beyond(self, value: float) -> int:
        """-1 where ``value`` is left of the scale, 1 where it is right of it, else 0."""
        return int(value > self.high) - int(value < self.low)


def leaderboard(block: Block) -> Board:
    """Sort and rank the methods of ``block``."""
    upwards = metrics.higher_is_better(block.primary)
    means = {row.method: _mean(row, block.primary) for row in block.rows}
    sign = -1.0 if upwards else 1.0
    rows = sorted(block.rows, key=lambda row: math.inf if math.isnan(means[row.method]) else sign * means[row.method])
    order = [round(means[row.method], 12) for row in rows]
    lines = [
        Line(
            None if math.isnan(means[row.method]) else 1 + order.index(round(means[row.method], 12)),
            row,
            _against(row, "control", upwards),
            _against(row, "reference", upwards),
        )
        for row in rows
    ]
    return Board(block, tuple(lines), *_scale(rows, block.primary, sign))


def _seeds_of(block: Block, count: Callable[[Row], int]) -> str:
    """``vanilla (2 of 6 seeds)`` for each method with some; empty without."""
    found = [(row, count(row)) for row in block.rows]
    return some([f"{row.method} ({number} of {plural(row.n_expected, 'seed')})" for row, number in found if number])


def alerts(report: Report, block: Block) -> list[str]:
    """What needs an action before anybody relies on the block, in sentences."""
    found = []
    if block.mixed_environments:
        found.append("MIXED ENVIRONMENTS: runs of this table were made in different places")
    if failed := _seeds_of(block, lambda row: len(row.failed)):
        found.append(f"Runs failed: {failed}. Fix the cause, then `regft run`.")
    if collapsed := _seeds_of(block, lambda row: len(row.collapsed)):
        found.append(f"Collapsed ({BELOW}): {collapsed}.")
    # Out of distribution the mark at the score suffices: a set may be built so that a shortcut fails there.
    low = {row.method: by for row in block.rows if (by := row.no_better(block.primary).get("dev"))}
    if low:
        shown = [name if block.primary in by else f"{name} (by {listed(by)})" for name, by in low.items()]
        found.append(f"{BELOW_MARK} {BELOW}: {some(shown)}.")
    found += [text for text in report.cut_warnings if text.startswith(f"{block.task}:")]
    return found + list(looked_at([block]))


def legend() -> str:
    """What the marks mean."""
    return "   ".join([*(f"{symbol} {word}" for word, symbol in SYMBOLS.items()), f"{BELOW_MARK} {BELOW}"])


def _mean(row: Row, metric: str) -> float:
    found = row.scores.get("dev", {}).get(metric)
    return found.estimate.mean if found is not None and found.estimate.n else math.nan


def _against(row: Row, role: Role, upwards: bool) -> Against | None:
    found = row.against(role)
    if not found:
        return None
    sign = 1.0 if upwards else -1.0
    known = [c for c in found if c.estimate.n] or found
    word = overall(c.verdict.word for c in found)
    assert word is not None
    texts = [f"{c.other} {score(c.estimate.mean, c.metric, signed=True)} {c.verdict.symbol}" for c in found]
    return Against(word, min(known, key=lambda c: sign * c.estimate.mean), listed(texts))


def _scale(rows: Sequence[Row], metric: str, sign: float) -> tuple[float, float]:
    """From the intervals of all methods but those that are far behind, which would squeeze the others."""
    scores = [row.scores["dev"][metric] for row in rows if not math.isnan(_mean(row, metric))]
    if not scores:
        return 0.0, 1.0
    behind = np.array([sign * s.estimate.mean for s in scores])
    behind = behind - behind.min()
    near = behind <= FAR * max(float(np.median(behind)), 1e-12)
    ends = [end for s, kept in zip(scores, near, strict=True) if kept for end in (s.interval or (s.estimate.mean,))]
    low, high = min(ends), max(ends)
    margin = 0.04 * (high - low) or 0.01 * (abs(high) or 1.0)
    return low - margin, high + margin
