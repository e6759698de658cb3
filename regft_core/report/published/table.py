"""A paper's table in the paper's shape: the same rows and columns, ours beside what is printed.

Ours stands beside the same method on the same column only. A published baseline is never the opponent of a method that
ran here: seeds, rows, code and selection differ between them, and runs of one baseline by two groups lie further apart
than most gains (0.92 points for DPS in weight mixup's table 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from regft_core.report.page.formatting import listed
from regft_core.report.published.claims import verdicts
from regft_core.report.published.model import Mean, PrintedCell, PrintedRow, PublishedTable
from regft_core.report.published.ours import Ours
from regft_core.report.published.paper import Paper
from regft_core.settings.papers.claims import row_of
from regft_core.settings.papers.published import Published, PublishedRow
from regft_core.statistics.reproduction import Bounds, welch_interval


def tables(published: Sequence[Published], ours: Ours) -> tuple[PublishedTable, ...]:
    """Put what ran here into the tables, and judge their claims."""
    return tuple(_table(one.name, Paper(one.config, ours)) for one in published)


def _table(name: str, paper: Paper) -> PublishedTable:
    config = paper.config
    shown = [key for key in config.columns if any(key in {**row.scores, **row.gains} for row in config.rows)]
    rows = [
        PrintedRow(row, config.model(row) or "", tuple(_cell(row, key, paper) for key in shown)) for row in config.rows
    ]
    cells = [(row, cell) for row in rows for cell in row.cells if cell.printed]
    nothing = _nothing(cells, config.missing)
    place = f"table {config.table}" if config.table.isdigit() else config.table
    columns = [(key, column.metric or column.unit or "mean") for key in shown for column in [config.columns[key]]]
    return PublishedTable(
        name=name,
        where=f"{config.paper}, {'numbers of its text' if place == 'prose' else place}",
        what=config.what,
        statistic=config.statistic,
        transposed=config.transposed,
        columns=tuple(columns),
        rows=tuple(rows),
        claims=verdicts(paper),
        nothing=nothing,
        otherwise=tuple(dict.fromkeys(text for _, cell in cells for text in cell.otherwise)),
        notes=tuple(_notes(rows, paper, bool(nothing))),
    )


def _cell(row: PublishedRow, key: str, paper: Paper) -> PrintedCell:
    """What is printed, and ours where the row is the paper's own of a method that is here."""
    if key not in row.scores and key not in row.gains:
        return PrintedCell(key, None)
    notes, base = [], _base(row, paper)
    if key in row.recomputed:
        notes.append(f"misprint: {row.scores[key]:g} is printed, {row.recomputed[key]:g} follows from the scores")
    cell = PrintedCell(
        key,
        Mean(row.scores[key], row.deviations.get(key), paper.config.seeds) if key in row.scores else None,
        gain_printed=key in row.gains,
        published_gain=paper.gain(row, base, key) if base is not None else row.gains.get(key),
        notes=tuple(notes),
    )
    if row.copied_from is not None or row.arm is None:
        return replace(cell, why=f"copied from {row.copied_from}" if row.copied_from else "regft has no such method")
    places = paper.places(row.arm, row.encoder, str(row.size), key)
    if isinstance(places, str):
        return replace(cell, why=places)
    mean, parts = paper.ours.mean(places)
    otherwise = tuple(dict.fromkeys(text for place, _ in places for text in place.otherwise))
    if paper.ours.by_shape(places):
        notes.append("our encoder is known by its shape alone")
    difference = None
    if not otherwise and cell.published is not None:
        gap, printed = mean.value - row.recomputed.get(key, row.scores[key]), paper.parts(row, key)
        interval = welch_interval(gap, [*parts, *printed], paper.ours.config.confidence) if parts else ()
        difference = Bounds(gap, *interval)
        if not printed:
            notes.append("no published deviation: the interval is of our seeds alone")
    against = paper.places(base.arm, row.encoder, str(row.size), key) if base and base.arm else ""
    gain = None if isinstance(against, str) else mean.value - paper.ours.mean(against)[0].value
    return replace(cell, ours=mean, difference=difference, our_gain=gain, otherwise=otherwise, notes=tuple(notes))


def _base(row: PublishedRow, paper: Paper) -> PublishedRow | None:
    """The row that gains are over: the one that the paper says, else the reference; never the row itself."""
    if row.gain_over is not None:
        beside = (one for one in paper.config.rows if (one.encoder, one.size) == (row.encoder, row.size))
        return next((one for one in beside if one.method == row.gain_over), None)
    base = row_of(paper.config, paper.ours.config.reference, row.encoder, str(row.size))
    return None if base is row else base


def _nothing(cells: Sequence[tuple[PrintedRow, PrintedCell]], missing: str) -> str:
    """Why no cell has a difference; empty when one has."""
    if not cells:
        return (
            f"The paper's text lacks the numbers of this table: {missing}. "
            "Ours stand in the tables above; claims are judged by their direction alone"
        )
    if any(cell.ours is not None and not cell.otherwise for _, cell in cells):
        return ""
    if any(cell.ours is not None for _, cell in cells):
        return "Another experiment than the paper's: nothing is subtracted and no claim is tested"
    reasons = list(dict.fromkeys(cell.why for row, cell in cells if row.row.copied_from is None))
    return f"None of its cells was run here: {'; '.join(reasons[:4])}"


def _notes(rows: Sequence[PrintedRow], paper: Paper, nothing: bool) -> Iterator[str]:
    config, copies = paper.config, [row.row for row in rows if row.row.copied_from is not None]
    own = [row for row in rows if row.row.arm is not None and row.row.copied_from is None]
    if absent := list(dict.fromkeys(row.row.method for row in own if not row.ran)) if not nothing else []:
        yield f"Not run here, and compared with nothing: {listed(absent)} as published"
    for source in dict.fromkeys(row.copied_from for row in copies):
        copied = list(dict.fromkeys(row.method for row in copies if row.copied_from == source))
        yield f"Copied by the paper and not compared: {listed(copied)} (from: {source})"
    if rows and config.seeds is None:
        yield "The paper does not say how many seeds; intervals hold the spread of our runs only"
    elif rows and not any(row.deviations for row in config.rows):
        yield "The paper prints no deviations; intervals hold the spread of our runs only"
    if rows and config.missing:
        yield f"Missing: {config.missing}"
    yield from (f"Misprint: {text}" for text in config.misprints)
