"""The methods of one block by score, a line each, in the columns that page, terminal and notebook show.

A column is declared once, in ``_columns``: its head and a cell for each line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from regft_core import metrics
from regft_core.names import plural
from regft_core.report.model import Block, Report, Role, Row
from regft_core.report.page.formatting import NOT_AVAILABLE, interval, listed, measured, ratio, score, some
from regft_core.report.sentences import looked_at
from regft_core.statistics.verdict import BELOW, BELOW_MARK, GAIN, LOSS, SYMBOLS, overall

#: A method this many times farther from the best than the median is does not stretch the scale.
FAR = 3.0
#: How a mark or a text is coloured.
UP, DOWN = "up", "down"


@dataclass(frozen=True)
class Cell:
    """What a column says of one method."""

    text: str = ""
    #: What sorts the column; None stands last.
    value: float | None = None
    #: Beside the text, less prominent.
    small: str = ""
    #: After both, coloured by ``style``; of a cell without a mark the text is.
    mark: str = ""
    style: str = ""
    #: More, where a pointer rests on it.
    title: str = ""


@dataclass(frozen=True)
class Column:
    """A head, what explains it, and a cell for each line."""

    head: str
    small: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Line:
    """One method."""

    #: 1 is the best mean; equal means share it. None without a finished run.
    rank: int | None
    row: Row


@dataclass(frozen=True)
class Board:
    """All methods of a block, the best first."""

    block: Block
    lines: tuple[Line, ...]
    columns: tuple[Column, ...]
    #: Scale of the drawn intervals, in the metric's unit.
    low: float
    high: float

    def at(self, value: float) -> float:
        """Place of ``value`` on the scale, from 0 to 1; what is beyond stands at the end."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def beyond(self, value: float) -> int:
        """-1 where ``value`` is left of the scale, 1 where it is right of it, else 0."""
        return int(value > self.high) - int(value < self.low)


def leaderboard(block: Block, reference: str | None = None) -> Board:
    """Sort and rank the methods of ``block``."""
    sign = -1.0 if metrics.higher_is_better(block.primary) else 1.0
    means = {row.method: _mean(row, block.primary) for row in block.rows}
    rows = sorted(block.rows, key=lambda row: math.inf if math.isnan(means[row.method]) else sign * means[row.method])
    order = [round(means[row.method], 12) for row in rows]
    ranks = [None if math.isnan(mean) else 1 + order.index(mean) for mean in order]
    lines = tuple(Line(rank, row) for rank, row in zip(ranks, rows, strict=True))
    return Board(block, lines, tuple(_columns(block, rows, reference)), *_scale(rows, block.primary, sign))


def _columns(block: Block, rows: Sequence[Row], reference: str | None) -> Iterator[Column]:
    """The columns beside the methods' names, in their order."""

    def column(head: str, small: str, cell: Callable[[Row], Cell]) -> Column:
        return Column(head, small, tuple(cell(row) for row in rows))

    for name in block.sets:
        if any(name in row.scores for row in rows):
            bounds = name == "dev"
            small = block.primary if bounds else "OOD"
            yield column(name, small, lambda row, name=name, bounds=bounds: _score(block, row, name, bounds))  # type: ignore[misc]
    roles: tuple[tuple[Role, str], ...] = (("control", "vs control"), ("reference", f"vs {reference}"))
    for role, head in roles:
        if any(row.against(role) for row in rows):
            yield column(head, "", lambda row, role=role: _against(row, role))  # type: ignore[misc]
    yield column("cost", "passes", lambda row: Cell(ratio(row.cost.declared), row.cost.declared))
    yield column("measured", "seconds", _measured)
    yield column("seeds", "", lambda row: Cell(f"{row.n_ok}/{row.n_expected}", row.n_ok, style=DOWN * bool(row.failed)))


def _score(block: Block, row: Row, name: str, bounds: bool) -> Cell:
    found = row.scores.get(name, {}).get(block.primary)
    if found is None or not found.estimate.n:
        return Cell(NOT_AVAILABLE)
    by = row.no_better(block.primary).get(name)
    span = interval(found.interval, block.primary)
    return Cell(
        score(found.estimate.mean, block.primary),
        found.estimate.mean,
        span if bounds else "",
        BELOW_MARK if by else "",
        DOWN if by else "",
        (BELOW if block.primary in by else f"{BELOW} (by {listed(by)})") if by else "" if bounds else span,
    )


def _against(row: Row, role: Role) -> Cell:
    """The smallest gain over what ``row`` is compared with, and the verdict on all of them."""
    found = row.against(role)
    word = overall(c.verdict.word for c in found)
    if word is None:
        return Cell()
    sign = 1.0 if metrics.higher_is_better(found[0].metric) else -1.0
    closest = min([c for c in found if c.estimate.n] or found, key=lambda c: sign * c.estimate.mean)
    texts = [f"{c.other} {score(c.estimate.mean, c.metric, signed=True)} {c.verdict.symbol}" for c in found]
    style = {GAIN: UP, LOSS: DOWN}.get(word, "none")
    shown = score(closest.estimate.mean, closest.metric, signed=True)
    return Cell(shown, closest.estimate.mean, "", SYMBOLS[word], style, f"{word}: {listed(texts)}")


def _measured(row: Row) -> Cell:
    spread = row.cost.spread
    title = f"{ratio(spread[0])} to {ratio(spread[1])} over the seeds" if spread else ""
    return Cell(measured(row.cost.measured, spread), row.cost.measured, title=title)


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


def _seeds_of(block: Block, count: Callable[[Row], int]) -> str:
    """``vanilla (2 of 6 seeds)`` for each method with some; empty without."""
    found = [(row, count(row)) for row in block.rows]
    return some([f"{row.method} ({number} of {plural(row.n_expected, 'seed')})" for row, number in found if number])


def legend() -> str:
    """What the marks mean."""
    return "   ".join([*(f"{symbol} {word}" for word, symbol in SYMBOLS.items()), f"{BELOW_MARK} {BELOW}"])


def _mean(row: Row, metric: str) -> float:
    found = row.scores.get("dev", {}).get(metric)
    return found.estimate.mean if found is not None and found.estimate.n else math.nan


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
