"""Figures of evaluations: their tables, and numbers over the training sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from regft_core.evaluate.analysis_result import RUN, Plot
from regft_core.report.evaluations import EvaluationSection, ShownTable
from regft_core.report.figures.charts import POINT, lines, named
from regft_core.report.formatting import factor
from regft_core.report.values import Block

#: Most panels of a figure with a panel per method.
MOST_PANELS = 12


def plotted(name: str, title: str, tables: Mapping[str, Sequence[ShownTable]], methods: Sequence[str]) -> str:
    """Return the tables of one name (set -> one per method) as one figure; nothing when none says how it is drawn.

    Args:
        methods: those that are drawn where there are many.
    """
    shown = [(place, table, table.table.plot) for place, own in tables.items() for table in own if table.table.plot]
    if not shown:
        return ""
    plot = shown[0][2]
    rows = [row for place, table, plot in shown for row in _points(place, table, plot)]
    points = pd.DataFrame(rows, columns=[*POINT, "baseline"], dtype=object)
    baseline, drawn = plot.baseline or "", methods
    if plot.points:  # a panel per method, where panels name the points
        points = points.rename(columns={"panel": "method", "method": "panel"})
        if points["panel"].nunique() > MOST_PANELS:
            points = points[points["panel"].isin(methods)]
        drawn = list(dict.fromkeys(points["method"]))
    return lines(name, title, points, drawn, x=plot.x, y=plot.y, baseline=baseline, dots=plot.points)


def _points(place: str, shown: ShownTable, plot: Plot) -> Iterator[tuple[Any, ...]]:
    """What is drawn of a table: the rows that have both coordinates."""
    for i, cells in enumerate(shown.table.rows):
        row = dict(zip(shown.table.columns, cells, strict=True))
        if row[plot.x] is not None and row[plot.y] is not None:
            set_name = "" if place == RUN or (plot.points and place == "dev") else place
            panel = _label(set_name, *(str(row[column]) for column in plot.group))
            baseline, bounds = row[plot.baseline] if plot.baseline else None, shown.bands.get(i, (None, None))
            yield (panel, shown.method, row[plot.x], row[plot.y], *bounds, baseline)


def _label(*names: str) -> str:
    return ", ".join(filter(None, names)) or "all"


def scores_over_sizes(task: str, blocks: Sequence[Block], reference: str | None) -> str:
    """Primary metric over the training rows of a task's ``blocks``, a panel per set."""
    primary = blocks[-1].primary
    scale, points = factor(primary), []
    for name in blocks[-1].sets:
        for block, row in ((b, row) for b in blocks for row in b.rows if row.n_ok and name in row.scores):
            score = row.scores[name][primary].estimate
            bounds = (bound * scale for bound in score.interval) if score.interval else (None, None)
            points.append((name, row.method, block.subsample.n, score.mean * scale, *bounds))
    label = primary + (" × 100" if scale == 100 else "")
    return _over_sizes(f"sizes-{task}", f"{primary} of {task} over the training rows", points, blocks, reference, label)


def numbers_over_sizes(
    section: EvaluationSection, task: str, blocks: Sequence[Block], reference: str | None
) -> Iterator[str]:
    """The same of the numbers that an evaluation asks to be drawn over sizes."""
    by_block = {entry.block.name: entry for entry in section.found}
    own = [(block.subsample.n, by_block[block.name]) for block in blocks if block.name in by_block]
    for name in dict.fromkeys(name for _, entry in own for name in entry.over_sizes):
        points = [
            (task if place == RUN else f"{task}, {place}", method, n, number.mean, *(number.interval or (None, None)))
            for n, entry in own
            for (method, place, other), number in entry.numbers.items()
            if other == name
        ]
        title = f"{name} of {section.name} on {task} over the training rows"
        yield _over_sizes(f"sizes-{section.name}-{name}-{task}", title, points, blocks, reference, name)


def _over_sizes(
    key: str, title: str, points: Iterable[tuple[Any, ...]], blocks: Sequence[Block], reference: str | None, y: str
) -> str:
    frame = pd.DataFrame(points, columns=list(POINT))
    return lines(key, title, frame, named(blocks[-1], reference, frame["method"]), x="training rows", y=y, log=True)
