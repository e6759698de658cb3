"""A paper's table in its own shape, ours beside what is printed, as page and terminal show it.

A published baseline is never the opponent of a method that ran here: runs of one baseline by two groups lie further
apart than most gains (0.92 points for DPS in weight mixup's table 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.text import Text

from regft_core.report.claims import NOT_TESTED, SYMBOLS, ClaimVerdict, claim_in_words, claim_verdicts, family
from regft_core.report.formatting import listed, number, quantity
from regft_core.report.paper import Mean, Paper, Place, mean_of, rows_of
from regft_core.report.values import Block
from regft_core.schema.params import ReportConfig
from regft_core.settings.published import PublishedConfig, PublishedRow
from regft_core.statistics.reproduction import Bounds, welch_interval

#: Marks a number of ours that is from another experiment than the paper's, and a cell without ours.
OTHER, NONE = "†", "–"
STYLES = {"reproduced": "green", "smaller": "yellow", "contradicted": "red"}
#: Name and smaller print of a row or column.
Head = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class PrintedCell:
    """One column of a row: the paper's number, and ours.

    Attributes:
        ours: None when it was not run here, which ``why`` explains.
        our_gain: over the same row as the printed one, of which ``otherwise`` tells, too.
        difference: ours minus published, with its interval; None in another experiment, which ``otherwise`` describes.
    """

    key: str
    published: Mean | None
    published_gain: float | None
    ours: Mean | None = None
    our_gain: float | None = None
    difference: Bounds | None = None
    otherwise: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class PublishedTable:
    name: str
    config: PublishedConfig
    columns: tuple[str, ...]
    #: The paper's rows, each with a cell per column; None where the paper prints nothing.
    rows: tuple[tuple[PublishedRow, tuple[PrintedCell | None, ...]], ...]
    claims: tuple[ClaimVerdict, ...]

    @property
    def where(self) -> str:
        table = self.config.table
        place = "numbers of its text" if table == "prose" else f"table {table}" if table.isdigit() else table
        return f"{self.config.paper}, {place}"

    @property
    def otherwise(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for _, row in self.rows for cell in row if cell for text in cell.otherwise))

    @property
    def nothing(self) -> str:
        """Why nothing can be compared; empty when something is, or the paper's text lacks all its numbers."""
        cells = [(row, cell) for row, own in self.rows for cell in own if cell]
        ran = [cell for _, cell in cells if cell.ours is not None]
        if ran and all(cell.otherwise for cell in ran):
            return "Another experiment than the paper's: nothing is subtracted and no claim is tested"
        reasons = list(dict.fromkeys(cell.why for row, cell in cells if row.copied_from is None))
        return "" if ran or not cells else f"None of its cells was run here: {'; '.join(reasons[:4])}"

    @property
    def notes(self) -> Iterator[str]:
        if self.rows and (self.config.seeds is None or not any(row.deviations for row, _ in self.rows)):
            lacks = "how many seeds" if self.config.seeds is None else "deviations"
            yield f"The paper does not say {lacks}; intervals hold the spread of our runs only"
        if self.config.missing:
            yield f"Missing: {self.config.missing}"
        yield from (f"Misprint: {text}" for text in self.config.misprints)


def published_tables(
    published: Mapping[str, PublishedConfig], blocks: Sequence[Block], report: ReportConfig, seeds: Sequence[int]
) -> tuple[PublishedTable, ...]:
    tables = []
    for name, config in published.items():
        paper = Paper(config, blocks, report, seeds)
        columns = tuple(
            key for key in config.columns if any(key in row.scores or key in row.gains for row in config.rows)
        )
        rows = tuple((row, tuple(_cell(row, key, paper) for key in columns)) for row in config.rows)
        tables.append(PublishedTable(name, config, columns, rows, claim_verdicts(paper)))
    return tuple(tables)


def _cell(row: PublishedRow, key: str, paper: Paper) -> PrintedCell | None:
    if key not in row.scores and key not in row.gains:
        return None
    printed = Mean(row.scores[key], row.deviations.get(key), paper.config.seeds) if key in row.scores else None
    cell = PrintedCell(key, printed, row.gains.get(key))
    if row.copied_from is not None or row.arm is None:
        return replace(cell, why=f"copied from {row.copied_from}" if row.copied_from else "regft has no such method")
    if isinstance(places := paper.places(row.arm, row.encoder, str(row.size), key), str):
        return replace(cell, why=places)
    ours, parts = mean_of(places)
    difference, otherwise = None, [text for place in places for text in place.otherwise]
    if not otherwise and printed is not None:
        theirs = row.recomputed.get(key, printed.value)
        spread = [*parts, *paper.printed_parts(row, key)] if parts else []
        gap, ends = ours.value - theirs, [end - theirs for end in paper.ends(key)]
        difference = Bounds(gap, *welch_interval(gap, spread, paper.report.confidence)).within(*ends)
    beside = (one for one in paper.config.rows if (one.encoder, one.size) == (row.encoder, row.size))
    base = next((one for one in beside if one.method == row.gain_over), None) if key in row.gains else None
    against = paper.places(base.arm, row.encoder, str(row.size), key) if base and base.arm else ""
    gain = None if isinstance(against, str) else ours.value - mean_of(against)[0].value
    otherwise += [text for place in against if isinstance(place, Place) for text in place.otherwise]
    return replace(cell, ours=ours, our_gain=gain, difference=difference, otherwise=tuple(dict.fromkeys(otherwise)))


def grid(table: PublishedTable) -> tuple[list[Head], list[tuple[Head, list[PrintedCell | None]]]]:
    """The heads of the columns and the rows with their cells, turned as the paper prints them."""
    columns = table.config.columns
    heads: list[Head] = [(key, (columns[key].metric or columns[key].unit or "mean",)) for key in table.columns]
    lines = [(_head(row, cells, table.config), list(cells)) for row, cells in table.rows]
    if not table.config.transposed:
        return heads, lines
    return [head for head, _ in lines], [(head, [cells[i] for _, cells in lines]) for i, head in enumerate(heads)]


def _head(row: PublishedRow, cells: Sequence[PrintedCell | None], config: PublishedConfig) -> Head:
    small = [row.encoder] if len({other.encoder for other in config.rows}) > 1 else []
    if len({other.size for other in config.rows}) > 1:
        small.append(rows_of(str(row.size)))
    setting = ", ".join(f"{name} {value}" for name, value in row.setting.items())
    small += [setting] if setting and setting not in row.method else []
    if row.copied_from or row.arm is None:
        small.append(f"copied from {row.copied_from}" if row.copied_from else "not in regft")
    else:
        ran = any(cell and cell.ours for cell in cells)
        small.append(f"here {row.arm}" if ran else f"{row.arm}: not run here")
    return row.method, tuple(small)


def published(cell: PrintedCell) -> str:
    """Return the paper's printed cell: ``90.07 ± 0.67 (3) +1.20``, its deviation, seeds and gain where it has them."""
    return _shown(cell, cell.published, cell.published_gain)


def ours(cell: PrintedCell) -> str:
    """Our number of a cell with what the paper prints, marked where it is from another experiment."""
    return _shown(cell, cell.ours, cell.our_gain) + (OTHER if cell.otherwise else "")


def _shown(cell: PrintedCell, value: Mean | None, gain: float | None) -> str:
    gains = [number(gain, 2, signed=True)] if cell.published_gain is not None and gain is not None else []
    if value is None or (gains and cell.published is None):
        return gains[0] if gains else NONE
    shown = number(value.value, 2) if abs(value.value) < 1000 else quantity(value.value)
    shown += "" if value.deviation is None else f" ± {number(value.deviation, 2)}"
    shown += "" if value.seeds is None else f" ({value.seeds})"
    return " ".join([shown, *gains])


def in_terminal(table: PublishedTable, confidence: float) -> Iterator[Text]:
    yield Text(f"{table.where}: {table.config.what} (side by side in reports/report.html)", style="bold")
    if table.nothing:
        yield Text(f"{table.nothing}.", style="yellow")
    yield from (Text(f"{OTHER} {text}", style="yellow") for text in table.otherwise)
    yield from (Text(f"{text}.", style="dim") for text in table.notes)
    for verdict in table.claims:
        line = Text(f"{SYMBOLS[verdict.word]} {verdict.word}: ", style=STYLES.get(verdict.word, "bold"))
        yield line.append(claim_in_words(verdict), style="default")
        if reasons := list(dict.fromkeys(test.why for test in verdict.tested if test.why)):
            yield Text(f"    {NOT_TESTED}: {listed(reasons, 3)}", style="dim")
    if table.claims:
        yield Text(family(table.claims, confidence), style="dim")
