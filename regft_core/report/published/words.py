"""How tables and verdicts read, on the page and in the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.text import Text

from regft_core.names import plural
from regft_core.report.formatting import MINUS, NOT_AVAILABLE, number, quantity, signed_quantity, some
from regft_core.report.published.paper import Mean, rows_of
from regft_core.report.published.published_table import (
    NOT_TESTED,
    ClaimVerdict,
    PrintedCell,
    PrintedRow,
    PublishedTable,
    Tested,
)
from regft_core.statistics.reproduction import Bounds

#: Marks a number of ours that is from another experiment than the paper's, and a cell without ours.
OTHER, NONE = "†", "–"
SYMBOLS = {"reproduced": "▲", "smaller": "△", "not shown": "○", "contradicted": "▼", NOT_TESTED: "∅"}
STYLES = {"reproduced": "green", "smaller": "yellow", "contradicted": "red"}
RULE = (
    "reproduced: our interval lies above zero and our gain is not below the printed one; smaller: above zero and below "
    "the printed one; contradicted: below zero, or without a shown gain and below half of the printed one; not shown: "
    "anything else, with the gain that this run detects 80% of the time"
)
#: Name and smaller print of a row or column.
Head = tuple[str, tuple[str, ...]]


def grid(table: PublishedTable) -> tuple[list[Head], list[tuple[Head, list[PrintedCell]]]]:
    """The heads of the columns and the rows with their cells, turned as the paper prints them."""
    columns = table.config.columns
    heads: list[Head] = [(key, (columns[key].metric or columns[key].unit or "mean",)) for key in table.columns]
    lines = [(_head(row, table), list(row.cells)) for row in table.rows]
    if not table.config.transposed:
        return heads, lines
    return [head for head, _ in lines], [(head, [cells[i] for _, cells in lines]) for i, head in enumerate(heads)]


def _head(row: PrintedRow, table: PublishedTable) -> Head:
    printed, rows = row.row, table.config.rows
    small = [printed.encoder] if len({other.encoder for other in rows}) > 1 else []
    if len({other.size for other in rows}) > 1:
        small.append(rows_of(str(printed.size)))
    setting = ", ".join(f"{name} {value}" for name, value in printed.setting.items())
    small += [setting] if setting and setting not in printed.method else []
    if printed.copied_from or printed.arm is None:
        small.append(f"copied from {printed.copied_from}" if printed.copied_from else "not in regft")
    else:
        ran = any(cell.ours is not None for cell in row.cells)
        small.append(f"here {printed.arm}" if ran else f"{printed.arm}: not run here")
    return printed.method, tuple(small)


def mean(value: Mean | None) -> str:
    """``90.07 ± 0.67 (3)``: a mean, its deviation over seeds and their number, as far as they are known."""
    if value is None:
        return NONE
    shown = number(value.value, 2) if abs(value.value) < 1000 else quantity(value.value)
    deviation = "" if value.deviation is None else f" ± {number(value.deviation, 2)}"
    return f"{shown}{deviation}" + (f" ({value.seeds})" if value.seeds is not None else "")


def published(cell: PrintedCell) -> str:
    """Return the paper's printed cell, with its gain; nothing where it prints nothing."""
    return _with_gain(cell, cell.published, cell.published_gain) if cell.printed else ""


def ours(cell: PrintedCell) -> str:
    """Our number of a cell with what the paper prints, marked where it is from another experiment."""
    return _with_gain(cell, cell.ours, cell.our_gain) + (OTHER if cell.otherwise else "") if cell.printed else ""


def _with_gain(cell: PrintedCell, value: Mean | None, gain: float | None) -> str:
    gains = [number(gain, 2, signed=True)] if cell.gain_printed and gain is not None else []
    without_mean = gains and (value is None or cell.published is None)
    return " ".join([*([] if without_mean else [mean(value)]), *gains])


def bounds(found: Bounds | None, ratio: bool = False, free: bool = False) -> str:
    """``+1.23 [-0.31, +2.72]``; the interval only where there is one.

    ``ratio``: the logarithm of how many times smaller a deviation is, shown as its ratio: ``0.60× [0.40×, 0.90×]``.
    ``free``: a number of any size.
    """
    if found is None or math.isnan(found.value):
        return NOT_AVAILABLE
    ends = (found.value, *((found.high, found.low) if ratio else (found.low, found.high)))
    shown = signed_quantity if free else lambda x: f"{math.exp(-x):.2f}×" if ratio else number(x, 2, signed=True)
    value, low, high = (shown(end).replace("inf", "∞") for end in ends)
    return value if math.isnan(found.low) else f"{value} [{low}, {high}]"


def claimed(verdict: ClaimVerdict) -> str:
    """The claim with its place in the paper, and what of it was tested."""
    tested = sum(test.word != NOT_TESTED for test in verdict.tested)
    place = f"{verdict.claim.where}; {verdict.encoder}, {rows_of(verdict.size)}"
    part = f"; {tested} of its {plural(len(verdict.tested), 'comparison')} tested here"
    return f"{verdict.claim.says} ({place}{part if 0 < tested < len(verdict.tested) else ''})"


def judged(test: Tested, verdict: ClaimVerdict) -> str:
    """One column against one opponent, in a line."""
    claim, gain = verdict.claim, test.gain
    ratio, subject = claim.measure != "mean", "gain over" if claim.measure == "mean" else f"{claim.measure} relative to"
    what = f"{subject} {test.over}" if claim.of_cost else f"{test.key}, {subject} {test.over}"
    limit = "at most" if claim.of_cost else "printed"
    parts = [f"{what}: {limit} {bounds(test.printed, ratio)}, ours {bounds(gain.ours, ratio)}"]
    if claim.numbers is not None:
        side = "below" if claim.numbers.lower else "above"
        parts = [f"{test.key} {side} that of {test.over} by {bounds(gain.ours, free=True)}"]
    parts += [plural(gain.seeds, "seed")] if gain.seeds else []
    if test.word != NOT_TESTED and not math.isnan(gain.detectable):
        smallest = bounds(Bounds(gain.detectable), True) if ratio else number(gain.detectable, 2)
        parts.append(f"80% power from {smallest if claim.numbers is None else quantity(gain.detectable)}")
    return ", ".join(parts) + "".join(f"; {part}" for part in (test.why, *test.notes) if part)


def family(verdicts: Sequence[ClaimVerdict], confidence: float) -> str:
    """For how many claims the verdicts of one table are corrected."""
    count = sum(verdict.word != NOT_TESTED for verdict in verdicts)
    over = "seeds" if all(verdict.claim.numbers for verdict in verdicts) else "seeds and rows"
    shared = f"; corrected for {count} claims (Holm)" if count > 1 else ""
    return f"Intervals over {over} at {confidence:.0%}{shared}".replace("-", MINUS) + "." if count else ""


def in_terminal(table: PublishedTable, confidence: float) -> Iterator[Text]:
    """The table's title, what makes ours another experiment, and the verdicts on claims; the page has the numbers."""
    yield Text(f"{table.where}: {table.config.what} (side by side in reports/report.html)", style="bold")
    if table.nothing:
        yield Text(f"{table.nothing}.", style="yellow")
    yield from (Text(f"{OTHER} {text}", style="yellow") for text in table.otherwise)
    yield from (Text(f"{text}.", style="dim") for text in table.notes)
    for verdict in table.claims:
        line = Text(f"{SYMBOLS[verdict.word]} {verdict.word}: ", style=STYLES.get(verdict.word, "bold"))
        yield line.append(claimed(verdict), style="default")
        if reasons := list(dict.fromkeys(test.why for test in verdict.tested if test.why)):
            yield Text(f"    not tested: {some(reasons, 3)}", style="dim")
    if table.claims:
        yield Text(family(table.claims, confidence), style="dim")
