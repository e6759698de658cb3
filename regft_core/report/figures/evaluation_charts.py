"""Figures of evaluations: their tables, and scores and numbers over the training sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from regft_core.evaluate.analysis_result import RUN, Plot
from regft_core.report.evaluations import Found, Place, ShownTable
from regft_core.report.figures.charts import POINT, lines, named
from regft_core.report.formatting import factor
from regft_core.report.values import Block, Report, by_size

#: Most panels of a figure with a panel per method.
MOST_PANELS = 12
#: The interval of one seed, whose spread nobody knows.
UNKNOWN = (math.nan, math.nan)


def table_figures(section: str, found: Found, reference: str | None) -> dict[str, Markup]:
    """Name of each table that says how it is drawn -> one figure of all sets and methods."""
    present = {shown.method for tables in found.tables.values() for shown in tables}
    methods, figures = named(found.block, reference, present), dict[str, Markup]()
    for name in dict.fromkeys(name for _, name in found.tables):
        key = f"{section}-{name}-{found.block.name}".replace(", ", "-").replace(" ", "-")
        try:
            svg = Markup(_drawn(key, f"{section}: {name} on {found.block.title}", name, found.tables, methods))
        except Exception as error:  # a table of a plug-in may hold anything: it costs its own figure
            svg = escape(f"It cannot be drawn: {type(error).__name__}: {error}")
        if svg:
            figures[name] = svg
    return figures


def _drawn(
    key: str, title: str, name: str, tables: Mapping[Place, Sequence[ShownTable]], methods: Sequence[str]
) -> str:
    own = [(place, shown) for (place, other), by_method in tables.items() if other == name for shown in by_method]
    shown = [(place, table, plot) for place, table in own if (plot := table.table.plot) is not None]
    if not shown:
        return ""
    plot, rows = shown[0][2], [row for place, table, plot in shown for row in _points(place, table, plot)]
    points = pd.DataFrame(rows, columns=[*POINT, "baseline"], dtype=object)
    if plot.points:  # a panel per method, where panels name the points
        points = points.rename(columns={"panel": "method", "method": "panel"})
        if points["panel"].nunique() > MOST_PANELS:
            points = points[points["panel"].isin(methods)]
        methods = list(dict.fromkeys(points["method"]))
    return lines(key, title, points, methods, x=plot.x, y=plot.y, baseline=plot.baseline or "", dots=plot.points)


def _points(place: str, shown: ShownTable, plot: Plot) -> Iterator[tuple[Any, ...]]:
    """What is drawn of a table: the rows that have both coordinates."""
    for i, cells in enumerate(shown.table.rows):
        row = dict(zip(shown.table.columns, cells, strict=True))
        if row[plot.x] is not None and row[plot.y] is not None:
            set_name = "" if place == RUN or (plot.points and place == "dev") else place
            panel = ", ".join(filter(None, [set_name, *(str(row[column]) for column in plot.group)])) or "all"
            baseline, bounds = row[plot.baseline] if plot.baseline else None, shown.bands.get(i, UNKNOWN)
            yield (panel, shown.method, row[plot.x], row[plot.y], *bounds, baseline)


def over_sizes(report: Report) -> tuple[dict[str, Markup], dict[str, list[Markup]]]:
    """Figures over the training sizes: task -> its primary metric; evaluation -> the numbers that it asks for."""
    scores: dict[str, Markup] = {}
    numbers: dict[str, list[Markup]] = {section.name: [] for section in report.evaluations}
    several = {task: blocks for task, blocks in by_size(report.blocks).items() if len(blocks) > 1}
    for task, blocks in several.items():
        primary, scale = blocks[-1].primary, factor(blocks[-1].primary)
        points = [
            (name, row.method, block.subsample.n, scale * e.mean, *(scale * end for end in e.interval or UNKNOWN))
            for name in blocks[-1].sets
            for block in blocks
            for row in block.rows
            if (e := block.estimate(row.method, name)) is not None
        ]
        label = primary + (" × 100" if scale == 100 else "")
        if svg := _over_rows(f"sizes-{task}", f"{primary} of {task}", label, points, blocks[-1], report):
            scores[task] = svg
        for section in report.evaluations:
            own = [(b.subsample.n, found) for b in blocks for found in section.found if found.block.name == b.name]
            for name in dict.fromkeys(name for _, found in own for name in found.over_sizes):
                points = [
                    (task if place == RUN else f"{task}, {place}", method, n, of.mean, *(of.interval or UNKNOWN))
                    for n, found in own
                    for (method, place, other), of in found.numbers.items()
                    if other == name
                ]
                key, title = f"sizes-{section.name}-{name}-{task}", f"{name} of {section.name} on {task}"
                numbers[section.name].append(_over_rows(key, title, name, points, blocks[-1], report))
    return scores, numbers


def _over_rows(
    key: str, title: str, y: str, points: Sequence[tuple[Any, ...]], largest: Block, report: Report
) -> Markup:
    frame = pd.DataFrame(points, columns=list(POINT))
    methods = named(largest, report.reference, frame["method"])
    title = f"{title} over the training rows"
    return Markup(lines(key, title, frame, methods, x="training rows", y=y, log=True))
