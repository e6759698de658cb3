"""A paper's table in the paper's shape: the same rows and columns, ours beside what is printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from regft_core.report.page.formatting import listed
from regft_core.report.published.claims import verdicts
from regft_core.report.published.model import (
    ClaimVerdict,
    Mean,
    PrintedCell,
    PrintedColumn,
    PrintedRow,
    PublishedTable,
)
from regft_core.report.published.ours import Ours
from regft_core.report.published.paper import Measured, Paper, difference
from regft_core.settings.papers.claims import row_of
from regft_core.settings.papers.published import Published, PublishedRow
from regft_core.statistics.reproduction import Bounds


def tables(published: Sequence[Published], ours: Ours) -> tuple[PublishedTable, ...]:
    """Put what ran here into the tables, and judge their claims."""
    return tuple(_Table(one, ours).built() for one in published)


class _Table:
    def __init__(self, one: Published, ours: Ours) -> None:
        self.name, self.config, self.ours, self.paper = one.name, one.config, ours, Paper(one.config)

    def built(self) -> PublishedTable:
        config, paper = self.config, self.paper
        rows = tuple(self._row(row) for row in config.rows)
        claims = verdicts(paper, self.ours)
        cells = [cell for row in rows for cell in row.cells]
        otherwise = list(dict.fromkeys(text for cell in cells for text in cell.otherwise))
        return PublishedTable(
            name=self.name,
            where=f"{config.paper}, {_place(config.table)}",
            what=config.what,
            statistic=config.statistic,
            transposed=config.transposed,
            columns=tuple(self._column(key) for key in paper.shown),
            rows=rows,
            claims=claims,
            nothing=self._nothing(rows),
            otherwise=tuple(otherwise),
            notes=tuple(self._notes(rows, cells)),
        )

    def _column(self, key: str) -> PrintedColumn:
        column = self.config.columns[key]
        return PrintedColumn(key, column.metric or column.unit or "mean", bool(self.paper.weights(key)))

    def _row(self, row: PublishedRow) -> PrintedRow:
        return PrintedRow(
            method=row.method,
            arm=row.arm,
            encoder=row.encoder,
            model=self.config.model(row) or "",
            size=str(row.size),
            setting=", ".join(f"{name} {value}" for name, value in row.setting.items()),
            copied_from=row.copied_from,
            cells=tuple(self._cell(row, key) for key in self.paper.shown),
            note=row.note,
        )

    def _cell(self, row: PublishedRow, key: str) -> PrintedCell:
        if key not in row.scores and key not in row.gains:
            return PrintedCell(key, None)
        notes = []
        if key in row.recomputed:
            notes.append(f"misprint: {row.scores[key]:g} is printed, {row.recomputed[key]:g} follows from the scores")
        base = self._base(row)
        cell = PrintedCell(
            key,
            Mean(row.scores[key], row.deviations.get(key), self.config.seeds) if key in row.scores else None,
            gain_printed=key in row.gains,
            published_gain=self.paper.gain(row, base, key) if base is not None else row.gains.get(key),
            notes=tuple(notes),
        )
        if row.copied_from is not None or row.arm is None:
            why = f"copied from {row.copied_from}" if row.copied_from else "regft has no such method"
            return replace(cell, why=why)
        return self._with_ours(cell, row, row.arm, base)

    def _with_ours(self, cell: PrintedCell, row: PublishedRow, arm: str, base: PublishedRow | None) -> PrintedCell:
        key, notes = cell.key, list(cell.notes)
        places = self.paper.places(self.ours, arm, row.encoder, str(row.size), key)
        if isinstance(places, str):
            return replace(cell, why=places)
        ours, parts = self.ours.mean(places)
        otherwise = tuple(dict.fromkeys(text for place, _ in places for text in place.otherwise))
        if any(self.ours.by_shape(place) for place, _ in places):
            notes.append("our encoder is known by its shape alone")
        beside = None
        if not otherwise and cell.published is not None:
            found = self.paper.measured(row, key)
            beside = difference(found, Measured(arm, key, ours.value, tuple(parts)), self.ours.config.confidence)
            if not found.parts:
                notes.append("no published deviation: the interval is of our seeds alone")
        against = self.paper.places(self.ours, base.arm, row.encoder, str(row.size), key) if base and base.arm else ""
        gain = None if isinstance(against, str) else ours.value - self.ours.mean(against)[0].value
        return replace(cell, ours=ours, difference=beside, our_gain=gain, otherwise=otherwise, notes=tuple(notes))

    def _base(self, row: PublishedRow) -> PublishedRow | None:
        """The row that gains are over: the one that the paper says, else the reference; never the row itself."""
        beside = [one for one in self.config.rows if (one.encoder, one.size) == (row.encoder, row.size)]
        if row.gain_over is not None:
            return next((one for one in beside if one.method == row.gain_over), None)
        base = row_of(self.config, self.ours.config.reference, row.encoder, str(row.size))
        return None if base is row else base

    def _nothing(self, rows: Sequence[PrintedRow]) -> str:
        """Why no cell has a difference."""
        if not rows:
            return (
                f"The paper's text lacks the numbers of this table: {self.config.missing}. "
                "Ours stand in the tables above; claims are judged by their direction alone"
            )
        cells = [(row, cell) for row in rows for cell in row.cells if cell.printed]
        if any(cell.ours is not None and not cell.otherwise for _, cell in cells):
            return ""
        if any(cell.ours is not None for _, cell in cells):
            return "Another experiment than the paper's: nothing is subtracted and no claim is tested"
        reasons = list(dict.fromkeys(cell.why for row, cell in cells if row.copied_from is None))
        return f"None of its cells was run here: {'; '.join(reasons[:4])}"

    def _notes(self, rows: Sequence[PrintedRow], cells: Sequence[PrintedCell]) -> list[str]:
        config, found = self.config, []
        own = [row for row in rows if row.arm is not None and row.copied_from is None]
        absent = [] if self._nothing(rows) else [row.method for row in own if not row.ran]
        if absent:
            names = listed(list(dict.fromkeys(absent)))
            found.append(f"Not run here, and compared with nothing: {names} as published")
        for source in dict.fromkeys(row.copied_from for row in rows if row.copied_from):
            copied = list(dict.fromkeys(row.method for row in rows if row.copied_from == source))
            found.append(f"Copied by the paper and not compared: {listed(copied)} (from: {source})")
        if rows and config.seeds is None:
            found.append("The paper does not say how many seeds; intervals hold the spread of our runs only")
        elif rows and not any(row.deviations for row in config.rows):
            found.append("The paper prints no deviations; intervals hold the spread of our runs only")
        if rows and config.missing:
            found.append(f"Missing: {config.missing}")
        return found + [f"Misprint: {text}" for text in config.misprints]


def _place(table: str) -> str:
    """``table 3``; figures and sections as they are called."""
    return f"table {table}" if table.isdigit() else "numbers of its text" if table == "prose" else table


def as_numbers(tables: Sequence[PublishedTable]) -> dict[str, Any]:
    """For ``results.json``: table -> its claims with their words, gains, intervals and power."""

    def numbers(bounds: Bounds | None) -> list[float | None] | None:
        if bounds is None:
            return None
        return [None if math.isnan(one) else one for one in (bounds.value, bounds.low, bounds.high)]

    def claim(one: ClaimVerdict) -> dict[str, Any]:
        plain = {name: getattr(one, name) for name in ("says", "where", "measure", "arm", "encoder", "size", "word")}
        tested = [
            {
                "over": part.over,
                "column": part.key,
                "word": part.word,
                "printed": numbers(part.printed),
                "ours": numbers(part.ours),
                "seeds": part.seeds,
                "detectable": part.detectable if math.isfinite(part.detectable) else None,
                "why": part.why,
            }
            for part in one.tested
        ]
        return plain | {"confidence": one.confidence, "tested": tested}

    return {table.name: {"nothing": table.nothing, "claims": [claim(one) for one in table.claims]} for table in tables}
