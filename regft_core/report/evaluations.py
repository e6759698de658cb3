"""What the evaluations beyond the scores found out, over seeds: the same for every evaluation.

An evaluation is a file (``regft_core/evaluate/analyses``) that says nothing about reports; its numbers are shown
with their mean and Student's t interval over seeds, its tables as the mean over seeds or of the first seed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regft_core.evaluate.findings import Plot
from regft_core.report.page.formatting import some
from regft_core.report.read_grid import BlockData
from regft_core.runs.results.records import FindingRecord, FoundTable
from regft_core.statistics.bootstrap import seed_interval

log = logging.getLogger(__name__)

#: Arms that a remark names; of more it names the first and counts the rest.
MOST_NAMED = 6
#: (set or ``run``, name of a number or of a table)
Place = tuple[str, str]


@dataclass(frozen=True)
class Number:
    """One number of one arm over its seeds."""

    seeds: tuple[int, ...]
    values: tuple[float, ...]
    #: None below two seeds, whose spread nobody knows.
    interval: tuple[float, float] | None
    #: This arm minus the reference over the seeds that both have: mean and interval; None for the reference.
    versus: tuple[float, tuple[float, float] | None] | None = None

    @property
    def mean(self) -> float:
        """Over the seeds that have it."""
        return sum(self.values) / len(self.values)


@dataclass(frozen=True)
class ShownTable:
    """A table of one arm; ``of`` says which seeds it is of."""

    method: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    of: str
    plot: Plot | None = None
    #: Number of a row -> interval over seeds of what is drawn.
    bands: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    #: Whether its rows are shown as well as drawn.
    listed: bool = True


@dataclass(frozen=True)
class Found:
    """What one evaluation found on one task at one size."""

    block: str
    title: str
    #: Of the numbers: by set, then by name.
    places: tuple[Place, ...]
    #: (method, number per place or None)
    rows: tuple[tuple[str, tuple[Number | None, ...]], ...]
    #: Place -> one table per method.
    tables: Mapping[Place, tuple[ShownTable, ...]]
    #: What a reader must know, and whom it is about.
    remarks: tuple[str, ...]
    #: Numbers that are drawn over the training sizes.
    over_sizes: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluationSection:
    """One evaluation over all blocks."""

    name: str
    description: str
    options: Mapping[str, Any]
    machine_dependent: bool
    #: Where it measured, when it depends on the machine.
    environments: tuple[str, ...]
    found: tuple[Found, ...]
    #: Why nothing of it could be shown; empty where it could.
    failed: str = ""


def sections(
    data: Sequence[BlockData], order: Mapping[str, Sequence[str]], confidence: float, reference: str
) -> tuple[EvaluationSection, ...]:
    """One section per evaluation that any arm has; ``order`` holds the methods of each block as they are shown."""
    names = sorted({name for block in data for cell in block.cells.values() for name in cell.evaluations})
    return tuple(_section_or_failure(name, data, order, confidence, reference) for name in names)


def failures(data: Sequence[BlockData]) -> list[str]:
    """One warning per evaluation and block with runs on which it raised."""
    texts = []
    for block in data:
        for name in sorted({name for cell in block.cells.values() for name in cell.evaluations}):
            errors = {
                cell.method: run.error
                for cell in block.cells.values()
                if name in cell.evaluations
                for run in cell.evaluations[name].runs
                if run.status != "ok"
            }
            if errors:
                first = next(iter(errors.values()))
                texts.append(f"Evaluation {name} failed on {block.name} for {some(list(errors))}: {first}")
    return texts


def _section_or_failure(
    name: str, data: Sequence[BlockData], order: Mapping[str, Sequence[str]], confidence: float, reference: str
) -> EvaluationSection:
    """What a plug-in found may be anything: where it cannot be shown, its panel says so and the report stands."""
    try:
        return _section(name, data, order, confidence, reference)
    except Exception as error:
        log.warning("evaluation %s cannot be shown", name, exc_info=True)
        return EvaluationSection(name, "", {}, False, (), (), f"{type(error).__name__}: {error}")


def as_numbers(found: Sequence[EvaluationSection]) -> dict[str, dict[str, dict[str, Any]]]:
    """block -> method -> evaluation -> set -> name -> mean, interval and number of seeds, for ``results.json``."""
    plain: dict[str, dict[str, dict[str, Any]]] = {}
    for section in found:
        for entry in section.found:
            for method, numbers in entry.rows:
                for (place, name), number in zip(entry.places, numbers, strict=True):
                    if number is not None:
                        low, high = number.interval or (None, None)
                        bounds: dict[str, Any] = {"mean": number.mean, "low": low, "high": high}
                        bounds["n"] = len(number.values)
                        if number.versus is not None:
                            low, high = number.versus[1] or (None, None)
                            bounds["minus_reference"] = {"mean": number.versus[0], "low": low, "high": high}
                        own = plain.setdefault(entry.block, {}).setdefault(method, {}).setdefault(section.name, {})
                        own.setdefault(place, {})[name] = bounds
    return plain


def _section(
    name: str, data: Sequence[BlockData], order: Mapping[str, Sequence[str]], confidence: float, reference: str
) -> EvaluationSection:
    every = [cell.evaluations[name] for block in data for cell in block.cells.values() if name in cell.evaluations]
    where = [run.environment for one in every for run in one.runs if run.environment]
    return EvaluationSection(
        name=name,
        description=every[0].description,
        options=every[0].options,
        machine_dependent=every[0].machine_dependent,
        environments=tuple(sorted({f"{here['name']}, {here['threads']} threads" for here in where})),
        found=tuple(
            _found(block, name, order[block.name], confidence, reference)
            for block in data
            if any(name in cell.evaluations for cell in block.cells.values())
        ),
    )


def _found(block: BlockData, name: str, methods: Sequence[str], confidence: float, reference: str) -> Found:
    runs = {
        method: block.cells[method].evaluations[name].runs
        for method in methods
        if name in block.cells[method].evaluations
    }
    scalars: dict[Place, None] = {}
    tables: dict[Place, None] = {}
    sizes: dict[str, None] = {}
    ranges: dict[str, Sequence[float | None]] = {}
    for run in (run for own in runs.values() for run in own):
        ranges |= run.ranges
        scalars |= {(place, key): None for place, named in run.scalars.items() for key in named}
        tables |= {(place, key): None for place, named in run.tables.items() for key in named}
        sizes |= dict.fromkeys(run.over_sizes)
    places = tuple(sorted(scalars, key=lambda place: _rank(block, place[0])))
    base = runs.get(reference, ())
    shown: dict[Place, tuple[ShownTable, ...]] = {}
    for place in sorted(tables, key=lambda place: _rank(block, place[0])):
        found = ((method, _table(method, own, place, confidence)) for method, own in runs.items())
        shown[place] = tuple(table for _, table in found if table is not None)
        apart = [_minus(method, own, base, place, confidence) for method, own in runs.items() if method != reference]
        if paired := tuple(table for table in apart if table is not None):
            shown[place[0], f"{place[1]}, minus {reference}"] = paired
    title = f"{block.task} at full size" if block.size == "full" else f"{block.task} at {block.size} rows"
    rows = tuple(
        (
            method,
            tuple(
                _number(own, place, ranges.get(place[1]), confidence, base if method != reference else ())
                for place in places
            ),
        )
        for method, own in runs.items()
    )
    return Found(block.name, title, places, rows, shown, _remarks(runs), tuple(sizes))


def _rank(block: BlockData, place: str) -> int:
    """The development set, the other sets, then what is about the run as a whole; otherwise the order stays."""
    sets = list(block.described.sets)
    return sets.index(place) if place in sets else len(sets)


def _number(
    runs: Sequence[FindingRecord],
    place: Place,
    bounds: Sequence[float | None] | None,
    confidence: float,
    reference: Sequence[FindingRecord],
) -> Number | None:
    having = _values(runs, place)
    if not having:
        return None
    values = tuple(having.values())
    interval = None
    if len(values) > 1:
        low, high = seed_interval(values, confidence)
        lowest, highest = bounds or (None, None)
        # Few seeds stretch an interval beyond what the number can be.
        interval = (low if lowest is None else max(low, lowest), high if highest is None else min(high, highest))
    theirs = _values(reference, place)
    apart = [value - theirs[seed] for seed, value in having.items() if seed in theirs]
    versus = None
    if apart:
        versus = (sum(apart) / len(apart), seed_interval(apart, confidence) if len(apart) > 1 else None)
    return Number(tuple(having), values, interval, versus)


def _values(runs: Sequence[FindingRecord], place: Place) -> dict[int, float]:
    """Seed -> number, of the runs that have it."""
    return {run.seed: run.scalars[place[0]][place[1]] for run in runs if place[1] in run.scalars.get(place[0], {})}


def _tables(runs: Sequence[FindingRecord], place: Place) -> dict[int, FoundTable]:
    """Seed -> table, of the runs that have it."""
    return {run.seed: run.tables[place[0]][place[1]] for run in runs if place[1] in run.tables.get(place[0], {})}


def _table(method: str, runs: Sequence[FindingRecord], place: Place, confidence: float) -> ShownTable | None:
    having = _tables(runs, place)
    if not having:
        return None
    seed, first = next(iter(having.items()))
    columns, listed = tuple(first.columns), first.listed
    plot = Plot(**first.plot) if first.plot else None
    alike = [table for table in having.values() if table.columns == first.columns]
    if not first.keys or len(alike) < len(having):
        # A first seed's table is drawn when it was meant to be, not when the seeds do not fit each other.
        own = plot if not first.keys else None
        return ShownTable(method, columns, tuple(map(tuple, first.rows)), f"seed {seed}", own, {}, listed)
    of = f"mean of {len(having)} seeds" if len(having) > 1 else f"seed {seed}"
    rows = _mean_rows(alike)
    bands = _bands(alike, rows, plot.y, confidence) if plot is not None and plot.panels == "sets" else {}
    return ShownTable(method, columns, rows, of, plot, bands, listed)


def _bands(
    tables: Sequence[FoundTable], rows: Sequence[tuple[Any, ...]], column: str, confidence: float
) -> dict[int, tuple[float, float]]:
    """Number of a row -> Student's t interval over seeds of ``column``, where two seeds have it."""
    keys, at = tables[0].keys, tables[0].columns.index(column)
    found: dict[int, tuple[float, float]] = {}
    for i, row in enumerate(rows):
        same = [other[at] for table in tables for other in table.rows if tuple(other[:keys]) == row[:keys]]
        values = [value for value in same if value is not None]
        if len(values) > 1:
            found[i] = seed_interval(values, confidence)
    return found


def _minus(
    method: str,
    runs: Sequence[FindingRecord],
    reference: Sequence[FindingRecord],
    place: Place,
    confidence: float,
) -> ShownTable | None:
    """What is drawn of a table, minus the reference's, paired by seed; None where the table does not ask for it."""
    own, theirs = _tables(runs, place), _tables(reference, place)
    seeds = [seed for seed in own if seed in theirs and own[seed].columns == theirs[seed].columns]
    first = own[seeds[0]] if seeds else None
    if first is None or not first.plot or not first.plot.get("paired"):
        return None
    plot, keys = Plot(**first.plot), first.keys
    at = first.columns.index(plot.y)
    apart: dict[tuple[Any, ...], list[float]] = {}
    for seed in seeds:
        base = {tuple(row[:keys]): row[at] for row in theirs[seed].rows}
        for row in own[seed].rows:
            name = tuple(row[:keys])
            if row[at] is not None and base.get(name) is not None:
                apart.setdefault(name, []).append(row[at] - base[name])
    rows: list[tuple[Any, ...]] = []
    bands: dict[int, tuple[float, float]] = {}
    for name, values in apart.items():
        interval = seed_interval(values, confidence) if len(values) > 1 else None
        if interval is not None:
            bands[len(rows)] = interval
        rows.append((*name, sum(values) / len(values), *(interval or (None, None))))
    columns = (*first.columns[:keys], "difference", "low", "high")
    of = f"paired over {len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    drawn = Plot(plot.x, "difference", panels="sets", group=plot.group)
    return ShownTable(method, columns, tuple(rows), of, drawn, bands)


def _mean_rows(tables: Sequence[FoundTable]) -> tuple[tuple[Any, ...], ...]:
    """Rows of the same name with the mean of every other column; rows in the order in which they first appear."""
    keys, columns, weight = tables[0].keys, tables[0].columns, tables[0].weight
    by_name: dict[tuple[Any, ...], list[Sequence[Any]]] = {}
    for table in tables:
        for row in table.rows:
            by_name.setdefault(tuple(row[:keys]), []).append(row)
    at = None if weight is None else keys + columns[keys:].index(weight)
    return tuple(
        (*name, *(_mean(rows, i, None if i == at else at) for i in range(keys, len(columns))))
        for name, rows in by_name.items()
    )


def _mean(rows: Sequence[Sequence[Any]], column: int, weight: int | None) -> Any:
    """Mean of the cells that are numbers, by ``weight``; text stays where all say the same."""
    cells = [(row[column], 1.0 if weight is None else row[weight]) for row in rows if row[column] is not None]
    if not cells:
        return None
    if any(isinstance(value, str | bool) for value, _ in cells):
        return cells[0][0] if len({value for value, _ in cells}) == 1 else None
    total = sum(share or 0 for _, share in cells)
    return sum(value * (share or 0) for value, share in cells) / total if total else None


def _remarks(runs: Mapping[str, Sequence[FindingRecord]]) -> tuple[str, ...]:
    """What the evaluation remarked or could not do, each text once with everybody whom it is about."""
    about: dict[str, dict[str, list[int]]] = {}
    for method, own in runs.items():
        for run in own:
            failed = [f"failed: {run.error}"] if run.status != "ok" else []
            for text in (*run.remarks, *failed):
                about.setdefault(text, {}).setdefault(method, []).append(run.seed)
    found = []
    for text, methods in about.items():
        who = [
            name if len(seeds) == len(runs[name]) else f"{name} (seeds {', '.join(map(str, seeds))})"
            for name, seeds in methods.items()
        ]
        found.append(f"{', '.join(who) if len(who) <= MOST_NAMED else some(who, MOST_NAMED)}: {text}")
    return tuple(found)
