"""Results of the evaluations beyond the scores, over seeds: the same for every evaluation.

An evaluation is a file (``regft_core/evaluate/analyses``) that knows nothing of reports; its numbers are shown with
their mean and Student's t interval over seeds, its tables as the mean over seeds or of the first seed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regft_core.evaluate.analysis_result import Plot
from regft_core.report.formatting import some
from regft_core.report.read_grid import BlockData, block_title
from regft_core.runs.records import FindingRecord, FoundTable
from regft_core.statistics.bootstrap import seed_interval

log = logging.getLogger(__name__)

#: (set or ``run``, name of a number or of a table)
Place = tuple[str, str]
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Number:
    """One number of one method over its seeds."""

    seeds: tuple[int, ...]
    values: tuple[float, ...]
    #: None below two seeds, whose spread nobody knows.
    interval: Bounds | None
    #: This method minus the reference over the seeds that both have: mean and interval; None for the reference.
    versus: tuple[float, Bounds | None] | None = None

    @property
    def mean(self) -> float:
        """Over the seeds that have it."""
        return sum(self.values) / len(self.values)


@dataclass(frozen=True)
class ShownTable:
    """A table of one method; ``of``: the seeds it is of."""

    method: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    of: str
    plot: Plot | None = None
    #: Number of a row -> interval over seeds of what is drawn.
    bands: Mapping[int, Bounds] = field(default_factory=dict)
    #: Whether its rows are shown as well as drawn.
    listed: bool = True


@dataclass(frozen=True)
class Found:
    """Results of one evaluation on one task at one size."""

    block: str
    title: str
    methods: tuple[str, ...]
    #: Of the numbers: by set, then by name.
    places: tuple[Place, ...]
    #: (method, set, name) -> number
    numbers: Mapping[tuple[str, str, str], Number]
    #: Place -> one table per method.
    tables: Mapping[Place, tuple[ShownTable, ...]]
    #: What a reader must know, and whom it is about.
    remarks: tuple[str, ...]
    #: Numbers that are drawn over the training sizes.
    over_sizes: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluationSection:
    """One evaluation over all blocks; ``failed``: why nothing of it can be shown."""

    name: str
    description: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    machine_dependent: bool = False
    #: Where it measured, when it depends on the machine.
    environments: tuple[str, ...] = ()
    found: tuple[Found, ...] = ()
    failed: str = ""


def sections(
    data: Sequence[BlockData], order: Mapping[str, Sequence[str]], confidence: float, reference: str
) -> tuple[EvaluationSection, ...]:
    """One section per evaluation that any method has; ``order`` holds the methods of each block as they are shown."""
    sections = []
    for name in sorted({name for block in data for cell in block.cells.values() for name in cell.evaluations}):
        try:
            sections.append(_section(name, data, order, confidence, reference))
        except Exception as error:  # a plug-in may leave anything: it costs its own panel
            log.warning("evaluation %s cannot be shown", name, exc_info=True)
            sections.append(EvaluationSection(name, failed=f"{type(error).__name__}: {error}"))
    return tuple(sections)


def failures(data: Sequence[BlockData]) -> Iterator[str]:
    """One warning per evaluation and block with runs on which it raised."""
    for block in data:
        errors: dict[str, dict[str, str | None]] = {}
        for cell in block.cells.values():
            for name, finding in cell.evaluations.items():
                for run in (run for run in finding.runs if run.status != "ok"):
                    errors.setdefault(name, {})[cell.method] = run.error
        for name, of in errors.items():
            yield f"Evaluation {name} failed on {block.name} for {some(list(of))}: {next(iter(of.values()))}"


def _section(
    name: str, data: Sequence[BlockData], order: Mapping[str, Sequence[str]], confidence: float, reference: str
) -> EvaluationSection:
    files = [cell.evaluations[name] for block in data for cell in block.cells.values() if name in cell.evaluations]
    where = {
        tuple(run.environment[key] for key in ("name", "threads")) for f in files for run in f.runs if run.environment
    }
    found = []
    for block in data:
        having = (method for method in order[block.name] if name in block.cells[method].evaluations)
        if runs := {method: block.cells[method].evaluations[name].runs for method in having}:
            found.append(_found(block, runs, confidence, reference))
    environments = tuple(sorted(f"{machine}, {threads} threads" for machine, threads in where))
    first = files[0]
    return EvaluationSection(
        name, first.description, first.options, first.machine_dependent, environments, tuple(found)
    )


def _found(block: BlockData, runs: Mapping[str, Sequence[FindingRecord]], confidence: float, reference: str) -> Found:
    records, sets = [run for own in runs.values() for run in own], list(block.described.sets)
    # (place, name) by set, then what is about the run as a whole -> method -> seed -> number or table
    scalars, tables = (
        {
            place: by_place[place]
            for place in sorted(by_place, key=lambda at: sets.index(at[0]) if at[0] in sets else len(sets))
        }
        for by_place in (_by_place(runs, "scalars"), _by_place(runs, "tables"))
    )
    limits = {name: bounds for run in records for name, bounds in run.ranges.items()}
    numbers = {}
    for (place, name), by_method in scalars.items():
        base = by_method.get(reference, {})
        for method, values in by_method.items():
            theirs = base if method != reference else {}
            numbers[method, place, name] = _number(values, limits.get(name, (None, None)), confidence, theirs)
    shown: dict[Place, tuple[ShownTable, ...]] = {}
    for (place, name), by_method in tables.items():
        shown[place, name] = tuple(_table(method, own, confidence) for method, own in by_method.items())
        theirs = by_method.get(reference, {})
        apart = [_minus(method, own, theirs, confidence) for method, own in by_method.items() if method != reference]
        if paired := tuple(table for table in apart if table is not None):
            shown[place, f"{name}, minus {reference}"] = paired
    sizes = tuple(dict.fromkeys(name for run in records for name in run.over_sizes))
    title = block_title(block.task, block.size)
    return Found(block.name, title, tuple(runs), tuple(scalars), numbers, shown, _remarks(runs), sizes)


def _by_place(runs: Mapping[str, Sequence[FindingRecord]], part: str) -> dict[Place, dict[str, dict[int, Any]]]:
    """Place -> method -> seed -> number or table, of the runs that have it, in the order of appearance."""
    found: dict[Place, dict[str, dict[int, Any]]] = {}
    for method, run in ((method, run) for method, own in runs.items() for run in own):
        for place, named in getattr(run, part).items():
            for name, value in named.items():
                found.setdefault((place, name), {}).setdefault(method, {})[run.seed] = value
    return found


def _interval(values: Sequence[float], confidence: float) -> Bounds | None:
    return seed_interval(values, confidence) if len(values) > 1 else None


def _number(
    values: Mapping[int, float], limits: Sequence[float | None], confidence: float, reference: Mapping[int, float]
) -> Number:
    interval = _interval(list(values.values()), confidence)
    if interval is not None:  # few seeds stretch it beyond what the number can be
        (low, high), (lowest, highest) = interval, limits
        interval = (low if lowest is None else max(low, lowest), high if highest is None else min(high, highest))
    apart = [value - reference[seed] for seed, value in values.items() if seed in reference]
    versus = (sum(apart) / len(apart), _interval(apart, confidence)) if apart else None
    return Number(tuple(values), tuple(values.values()), interval, versus)


def _table(method: str, tables: Mapping[int, FoundTable], confidence: float) -> ShownTable:
    seed, first = next(iter(tables.items()))
    columns, keys, listed = tuple(first.columns), first.keys, first.listed
    plot = Plot(**first.plot) if first.plot else None
    if not keys:
        return ShownTable(method, columns, tuple(map(tuple, first.rows)), f"seed {seed}", plot, {}, listed)
    bands: dict[int, Bounds] = {}
    if plot is not None and plot.panels == "sets":
        at = columns.index(plot.y)
        for i, own in enumerate(_by_name(tables.values()).values()):
            if interval := _interval([row[at] for row in own if row[at] is not None], confidence):
                bands[i] = interval
    of = f"mean of {len(tables)} seeds" if len(tables) > 1 else f"seed {seed}"
    return ShownTable(method, columns, mean_rows(list(tables.values())), of, plot, bands, listed)


def _by_name(tables: Iterable[FoundTable]) -> dict[tuple[Any, ...], list[Sequence[Any]]]:
    """Rows of all seeds by their keys, in the order in which they first appear."""
    found: dict[tuple[Any, ...], list[Sequence[Any]]] = {}
    for table in tables:
        for row in table.rows:
            found.setdefault(tuple(row[: table.keys]), []).append(row)
    return found


def mean_rows(tables: Sequence[FoundTable]) -> tuple[tuple[Any, ...], ...]:
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


def _minus(
    method: str, own: Mapping[int, FoundTable], theirs: Mapping[int, FoundTable], confidence: float
) -> ShownTable | None:
    """Return what is drawn of a table, minus the reference's, paired by seed; None where it does not ask for it."""
    seeds = [seed for seed in own if seed in theirs]
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
    intervals = {name: _interval(values, confidence) for name, values in apart.items()}
    rows = [(*name, sum(apart[name]) / len(apart[name]), *(own or (None, None))) for name, own in intervals.items()]
    bands = {i: interval for i, interval in enumerate(intervals.values()) if interval is not None}
    of = f"paired over {len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    drawn = Plot(plot.x, "difference", panels="sets", group=plot.group)
    return ShownTable(method, (*first.columns[:keys], "difference", "low", "high"), tuple(rows), of, drawn, bands)


def _remarks(runs: Mapping[str, Sequence[FindingRecord]]) -> tuple[str, ...]:
    """Return remarks and failures of the evaluation, each text once with the methods that it is about."""
    about: dict[str, dict[str, list[int]]] = {}
    for method, run in ((method, run) for method, own in runs.items() for run in own):
        for text in (*run.remarks, *([f"failed: {run.error}"] if run.status != "ok" else [])):
            about.setdefault(text, {}).setdefault(method, []).append(run.seed)

    def who(method: str, seeds: Sequence[int]) -> str:
        return method if len(seeds) == len(runs[method]) else f"{method} (seeds {', '.join(map(str, seeds))})"

    shown = {text: [who(*one) for one in methods.items()] for text, methods in about.items()}
    return tuple(f"{some(names) if len(names) > 6 else ', '.join(names)}: {text}" for text, names in shown.items())
