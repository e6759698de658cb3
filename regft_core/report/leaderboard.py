"""The methods of one block by score, in the columns (``_columns``) that page, terminal and notebook show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.text import Text

from regft_core import metrics
from regft_core.data import lengths
from regft_core.names import aligned, plural
from regft_core.report.claims import RULE
from regft_core.report.formatting import NOT_AVAILABLE, interval, listed, ratio, score, sign
from regft_core.report.looks import looked_at
from regft_core.report.published_table import in_terminal
from regft_core.report.values import Block, Comparison, Report, Role, Row, smaller
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.verdict import BELOW, BELOW_MARK, GAIN, LOSS, SYMBOLS, overall

#: Seeds whose ratios of seconds differ by no more than this factor were timed on a quiet machine.
QUIET = 1.25
#: How a mark or a text is coloured.
UP, DOWN = "up", "down"


@dataclass(frozen=True)
class Cell:
    """The text of a column for one method."""

    text: str = ""
    #: What sorts the column; None stands last.
    value: float | None = None
    small: str = ""
    #: After both, coloured by ``style``; of a cell without a mark the text is.
    mark: str = ""
    style: str = ""
    title: str = ""


@dataclass(frozen=True)
class Column:
    head: str
    small: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Line:
    """One method; its rank (equal means share one) and validation score are None without a finished run."""

    rank: int | None
    row: Row
    dev: Estimate | None


@dataclass(frozen=True)
class Board:
    lines: tuple[Line, ...]
    columns: tuple[Column, ...]
    #: Scale of the drawn intervals, in the metric's unit.
    low: float
    high: float

    def at(self, value: float) -> float:
        """Place of ``value`` on the scale, from 0 to 1; what is beyond stands at the end."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def leaderboard(block: Block, reference: str | None = None) -> Board:
    metric, down = metrics.find(block.primary), -sign(block.primary)
    scores = [(row, block.estimate(row.method)) for row in block.rows]
    scores.sort(key=lambda scored: math.inf if scored[1] is None else down * scored[1].mean)
    means = [None if dev is None else round(dev.mean, 12) for _, dev in scores]
    lines = tuple(Line(None if dev is None else 1 + means.index(round(dev.mean, 12)), row, dev) for row, dev in scores)
    columns = tuple(_columns(block, [line.row for line in lines], reference))
    # From the lowest to the highest end of the methods' intervals; a constant answer does not stretch it.
    told = [line.dev for line in lines if line.dev is not None and not line.row.constant]
    ends = [end for dev in told for end in (dev.interval or (dev.mean,))] or [0.0, 1.0]
    margin = 0.04 * (max(ends) - min(ends)) or 0.01 * (abs(ends[0]) or 1.0)
    low, high = max(min(ends) - margin, metric.range[0]), min(max(ends) + margin, metric.range[1])
    return Board(lines, columns, low, high)


def _columns(block: Block, rows: Sequence[Row], reference: str | None) -> Iterator[Column]:

    def column(head: str, small: str, cell: Callable[[Row], Cell]) -> Column:
        return Column(head, small, tuple(map(cell, rows)))

    for name in block.set_rows:
        small = block.primary if name == "dev" else "OOD"
        yield column(name, small, lambda row, name=name: _score(block, row, name))  # type: ignore[misc]
    heads: dict[Role, str] = {"control": "gain", "replacement": "vs replaced", "reference": f"vs {reference}"}
    for role, head in heads.items():  # gains over the reference alone need no column of their own
        if any(c.role == role for row in rows for c in row.comparisons):
            yield column(head, "", lambda row, role=role: _against(row.against(role)))  # type: ignore[misc]
    yield column("cost", "passes", lambda row: Cell(ratio(row.cost.declared), row.cost.declared))
    if any(row.cost.measured is not None for row in rows):
        yield column("measured", "seconds", _measured)
    yield column("seeds", "", lambda row: Cell(f"{row.n_ok}/{len(row.runs)}", row.n_ok, style=DOWN * bool(row.failed)))


def _score(block: Block, row: Row, name: str) -> Cell:
    """The mean, on the validation set with its interval beside it, and whether it is no better than a constant."""
    if not row.n_ok:
        return Cell(NOT_AVAILABLE)
    estimate, below = row.scores[name][block.primary].estimate, row.below(block.primary).get(name, "")
    span = interval(estimate.interval, block.primary)
    beside, title = (span, below) if name == "dev" else ("", below or span)
    mark, style = (BELOW_MARK, DOWN) if below else ("", "")
    return Cell(score(estimate.mean, block.primary), estimate.mean, beside, mark, style, title)


def _against(comparisons: Sequence[Comparison]) -> Cell:
    """The least favourable of differences, and the verdict on all of them."""
    word = overall(c.verdict.word for c in comparisons)
    if word is None:
        return Cell()
    shown = [c for c in comparisons if c.estimate.n] or comparisons
    closest = min(shown, key=lambda c: sign(c.metric) * c.estimate.mean)
    texts = [
        f"{score(c.estimate.mean, c.metric, signed=True)} {SYMBOLS[c.verdict.word]} against {c.other}"
        + f" ({c.differs_by})" * bool(c.differs_by)
        for c in comparisons
    ]
    style = {GAIN: UP, LOSS: DOWN}.get(word, "none")
    difference = score(closest.estimate.mean, closest.metric, signed=True)
    return Cell(difference, closest.estimate.mean, "", SYMBOLS[word], style, f"{word}: {listed(texts)}")


def _measured(row: Row) -> Cell:
    """A measured ratio; ``~1.2×`` where its seeds disagree on it, because the machine did other work."""
    low, high = row.cost.spread or (1.0, 1.0)
    title = f"{ratio(low)} to {ratio(high)} over the seeds" if row.cost.spread else ""
    return Cell("~" * (high > QUIET * low) + ratio(row.cost.measured), row.cost.measured, title=title)


def alerts(block: Block) -> list[str]:
    """Return what needs an action before anybody relies on the block, in sentences."""
    texts = []
    if block.mixed_environments:
        texts.append("MIXED ENVIRONMENTS: runs of this table were made in different places")
    if collapsed := [row for row in block.rows if row.collapsed]:
        shown = [f"{row.method} ({len(row.collapsed)} of {plural(len(row.runs), 'seed')})" for row in collapsed]
        texts.append(f"Collapsed ({BELOW}): {listed(shown)}.")
    # Out of distribution the mark at the score suffices: a set may be built so that a shortcut fails there.
    if low := {row.method: text for row in block.rows if (text := row.below(block.primary).get("dev"))}:
        texts.append(
            f"{BELOW_MARK} {BELOW}: {listed([name + text.removeprefix(BELOW) for name, text in low.items()])}."
        )
    return [*texts, *lengths.warnings(block.task, block.lengths), *looked_at([block])]


def show(report: Report, console: Console) -> None:
    """Print the decision, what needs action, and the leaderboard of every task, at its largest size."""
    console.print(Group(*_lines(report, console.width)), crop=False)


def _lines(report: Report, width: int) -> Iterator[Text]:
    if report.mark:
        yield Text(report.mark, style="bold red")
    folded = smaller(report.blocks)
    largest = [block for block in report.blocks if block.name not in folded]
    for block in largest:
        yield Text()
        yield from _block(report, block, width)
    if folded:
        others = ", ".join(block.title for block in report.blocks if block.name in folded)
        yield Text(f"Smaller sizes are in reports/report.html: {others}.")
    yield from (Text(text, style="yellow") for text in report.left_out)
    yield from map(Text, report.more_rows)
    if report.warnings:
        yield Text(f"{plural(len(report.warnings), 'warning')}; see reports/report.html", style="yellow")
    yield from (text for table in report.published for text in in_terminal(table, report.confidence))
    if any(table.claims for table in report.published):
        yield Text(f"Verdicts on claims: {RULE}.", style="dim")


def _block(report: Report, block: Block, width: int) -> Iterator[Text]:
    decision = block.decision
    yield Text(decision.sentences[0], style="bold")
    if not any(row.n_ok for row in block.rows):
        return
    yield Text(" ".join(decision.sentences[1:]))
    yield from (Text(text, style="yellow") for text in alerts(block))
    yield from (Text(f"  {line}", style="red") for line in block.mixed_environments)
    if decision.command:  # without wrapping: it is copied as it is
        yield Text(f"$ {decision.command}", style="bold", no_wrap=True, overflow="ignore")
    yield Text(f"{block.title}: {block.primary}, mean over seeds [{report.confidence:.0%} interval]", style="bold")
    yield from _board(leaderboard(block, report.reference), width)
    marks = [*(f"{symbol} {word}" for word, symbol in SYMBOLS.items()), f"{BELOW_MARK} {BELOW}"]
    yield Text("   ".join(marks), style="dim")


def _board(board: Board, width: int) -> Iterator[Text]:
    """The lines of the board; columns that do not fit go on below, the methods' names beside them."""
    names, columns = ["method", *map(_name, board.lines)], [[c.head, *_cells(c)] for c in board.columns]
    while columns:
        count = len(columns)
        while max(map(len, lines := aligned([*zip(names, *columns[:count])]))) > width and count > 1:
            count -= 1
        yield from (Text(line, no_wrap=True, overflow="ignore") for line in lines)
        columns = columns[count:]


def _name(line: Line) -> str:
    rank = "-" if line.rank is None else str(line.rank)
    same = f" (same runs as {line.row.same_runs_as})" if line.row.same_runs_as else ""
    constant = " (constant)" if line.row.constant else ""
    return f"{rank:>3} {'  ' if line.row.control_for else ''}{line.row.method}{same}{constant}"


def _cells(column: Column) -> Iterator[str]:
    """Text of each cell; where some have a mark, room is left for it in all of them."""
    marked = any(cell.mark for cell in column.cells)
    for cell in column.cells:
        yield f"{cell.text} {cell.small}".rstrip() + f" {cell.mark or ' '}" * (marked and bool(cell.text))
