"""Results of the evaluations beyond the scores (``regft_core/evaluate/analyses``), the same for each.

Numbers are shown with their mean and Student's t interval over seeds, tables as the mean over seeds or of the first.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regft_core.evaluate.analysis_result import Table
from regft_core.report.formatting import listed
from regft_core.report.values import Block
from regft_core.runs.records import Finding, FindingRecord
from regft_core.statistics.bootstrap import seed_interval

log = logging.getLogger(__name__)

#: (set or ``run``, name of a number or of a table)
Place = tuple[str, str]
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Number:
    """One number of one method over its seeds; an interval is None below two.

    Attributes:
        values: seed -> value.
        versus: mean and interval of this method minus the reference, over common seeds; None for the reference.
    """

    values: Mapping[int, float]
    interval: Bounds | None
    versus: tuple[float, Bounds | None] | None = None

    @property
    def mean(self) -> float:
        return sum(self.values.values()) / len(self.values)


@dataclass(frozen=True)
class ShownTable:
    """A table of one method; ``of``: the seeds it is of."""

    method: str
    table: Table
    of: str
    #: Number of a row -> interval over seeds of what is drawn.
    bands: Mapping[int, Bounds] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """Results of one evaluation on one task at one size.

    Attributes:
        places: of the numbers, by set, then by name.
        numbers: (method, set, name) -> number.
        tables: place -> one table per method.
        remarks: what a reader must know, and whom it is about.
        over_sizes: numbers that are drawn over the training sizes.
    """

    block: Block
    methods: tuple[str, ...]
    places: tuple[Place, ...]
    numbers: Mapping[tuple[str, str, str], Number]
    tables: Mapping[Place, Sequence[ShownTable]]
    remarks: tuple[str, ...]
    over_sizes: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluationSection:
    """One evaluation over all blocks; ``failed``: why nothing of it can be shown."""

    name: str
    description: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    found: tuple[Found, ...] = ()
    failed: str = ""


def sections(blocks: Sequence[Block], confidence: float, reference: str) -> tuple[EvaluationSection, ...]:
    sections = []
    for name in sorted({name for block in blocks for cell in block.cells.values() for name in cell.evaluations}):
        having = [
            (block, {r.method: r.evaluations[name] for r in block.rows if name in r.evaluations}) for block in blocks
        ]
        first = next(finding for _, own in having for finding in own.values())
        try:
            found = tuple(_found(block, own, confidence, reference) for block, own in having if own)
            sections.append(EvaluationSection(name, first.description, first.options, found))
        except Exception as error:  # a plug-in may leave anything: it costs its own panel
            log.warning("evaluation %s cannot be shown", name, exc_info=True)
            sections.append(EvaluationSection(name, failed=f"{type(error).__name__}: {error}"))
    return tuple(sections)


def _found(block: Block, findings: Mapping[str, Finding], confidence: float, reference: str) -> Found:
    runs = {method: finding.runs for method, finding in findings.items()}
    records, sets = [run for own in runs.values() for run in own], list(block.described.sets)
    scalars, tables = (_by_place(runs, part, sets) for part in ("scalars", "tables"))
    ranges = {name: bounds for run in records for name, bounds in run.ranges.items()}
    numbers = {}
    for (place, name), by_method in scalars.items():
        for method, values in by_method.items():
            low, high = ranges.get(name, (None, None))
            lowest, highest = -math.inf if low is None else low, math.inf if high is None else high
            interval = _interval([*values.values()], confidence, lowest, highest)
            theirs = by_method.get(reference, {}) if method != reference else {}
            apart = [value - theirs[seed] for seed, value in values.items() if seed in theirs]
            between = _interval(apart, confidence, lowest - highest, highest - lowest)
            versus = (sum(apart) / len(apart), between) if apart else None
            numbers[method, place, name] = Number(values, interval, versus)
    shown = {at: [_table(name, own, confidence) for name, own in by.items()] for at, by in tables.items()}
    sizes = tuple(dict.fromkeys(name for run in records for name in run.over_sizes))
    return Found(block, tuple(runs), tuple(scalars), numbers, shown, _remarks(runs), sizes)


def _by_place(
    runs: Mapping[str, Sequence[FindingRecord]], part: str, sets: Sequence[str]
) -> dict[Place, dict[str, dict[int, Any]]]:
    """Place -> method -> seed -> number or table; by set, then what is about the run as a whole."""
    by_place: dict[Place, dict[str, dict[int, Any]]] = {}
    for method, run in ((method, run) for method, own in runs.items() for run in own):
        for place, named in getattr(run, part).items():
            for name, value in named.items():
                by_place.setdefault((place, name), {}).setdefault(method, {})[run.seed] = value
    return {
        at: by_place[at] for at in sorted(by_place, key=lambda at: sets.index(at[0]) if at[0] in sets else len(sets))
    }


def _interval(
    values: Sequence[float], confidence: float, lowest: float = -math.inf, highest: float = math.inf
) -> Bounds | None:
    """Student's t interval, cut where the number ends: few seeds would stretch it beyond; None below two."""
    low, high = seed_interval(values, confidence)
    return None if math.isnan(low) else (max(low, lowest), min(high, highest))


def _table(method: str, tables: Mapping[int, Table], confidence: float) -> ShownTable:
    seed, first = next(iter(tables.items()))
    if not first.keys:
        return ShownTable(method, first, f"seed {seed}")
    shown, bands = mean_rows(list(tables.values())), dict[int, Bounds]()
    if first.plot is not None:
        at, weight = first.columns.index(first.plot.y), first.columns.index(first.weight) if first.weight else None
        for i, rows in enumerate(_by_name(tables.values()).values()):
            cells = [(row[at], 1 if weight is None else row[weight] or 0) for row in rows if row[at] is not None]
            each = sum(share for _, share in cells) / max(1, len(cells))
            # Deviations count by weight, as in the mean.
            around = [shown[i][at] + share / each * (x - shown[i][at]) for x, share in cells] if each else []
            if interval := _interval(around, confidence):
                bands[i] = interval
    of = f"mean of {len(tables)} seeds" if len(tables) > 1 else f"seed {seed}"
    return ShownTable(method, replace(first, rows=shown), of, bands)


def _by_name(tables: Iterable[Table]) -> dict[tuple[Any, ...], list[Sequence[Any]]]:
    """Rows of all seeds by their keys, in the order in which they first appear."""
    by_name: dict[tuple[Any, ...], list[Sequence[Any]]] = {}
    for table in tables:
        for row in table.rows:
            by_name.setdefault(row[: table.keys], []).append(row)
    return by_name


def mean_rows(tables: Sequence[Table]) -> tuple[tuple[Any, ...], ...]:
    """Rows of the same name with the mean of every other column, by weight where there is one.

    Text stays where all say the same.
    """
    keys, columns, weight = tables[0].keys, tables[0].columns, tables[0].weight
    weighing = None if weight is None else keys + columns[keys:].index(weight)

    def mean(rows: Sequence[Sequence[Any]], column: int) -> Any:
        cells = [(row[column], 1.0 if weighing in (None, column) else row[weighing] or 0) for row in rows]
        cells = [(value, share) for value, share in cells if value is not None]
        if any(isinstance(value, str | bool) for value, _ in cells):
            return cells[0][0] if len({value for value, _ in cells}) == 1 else None
        total = sum(share for _, share in cells)
        return sum(value * share for value, share in cells) / total if total else None

    return tuple(
        (*name, *(mean(rows, column) for column in range(keys, len(columns))))
        for name, rows in _by_name(tables).items()
    )


def _remarks(runs: Mapping[str, Sequence[FindingRecord]]) -> tuple[str, ...]:
    """Return remarks and failures of the evaluation, each text once with the methods that it is about."""
    about: dict[str, list[str]] = {}
    for method, own in runs.items():
        said = {r.seed: r.remarks if r.status == "ok" else [*r.remarks, f"failed: {r.error}"] for r in own}
        for text in dict.fromkeys(text for texts in said.values() for text in texts):
            seeds = [seed for seed, texts in said.items() if text in texts]
            who = method if len(seeds) == len(own) else f"{method} (seeds {', '.join(map(str, seeds))})"
            about.setdefault(text, []).append(who)
    return tuple(f"{listed(who) if len(who) > 6 else ', '.join(who)}: {text}" for text, who in about.items())
