"""Figures of what evaluations found, as a table says how it is drawn, and of numbers over training sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from regft_core.evaluate.analysis_result import RUN, Plot
from regft_core.report.evaluations import EvaluationSection, ShownTable
from regft_core.report.figures.panels import POINT, lines, named
from regft_core.report.figures.svg import ACCENT, BETTER, INK, MUTED, WORSE, columns_of, panels
from regft_core.report.formatting import factor
from regft_core.report.model import Block

#: Most panels of a figure with a panel per method.
MOST_PANELS = 12
#: Colour, marker and dashes of the lines or points of one panel, the validation set first.
_LINES: tuple[tuple[str, str, Any], ...] = (
    (ACCENT, "o", "-"),
    (WORSE, "^", "--"),
    (MUTED, "s", ":"),
    (INK, "v", "-."),
    (BETTER, "D", "-"),
    (INK, "P", ":"),
)
#: Colours of classes among points, the most frequent first; the others share a grey.
_CLASSES = (ACCENT, WORSE, BETTER, INK)


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
    points = pd.DataFrame(rows, columns=["place", "method", "group", "colour", "baseline", *POINT[2:]], dtype=object)
    if plot.panels == "arms":
        return _by_method(name, title, points, plot, methods)
    points["panel"] = [_label(*names) for names in zip(points["place"].replace(RUN, ""), points["group"])]
    zero, dotted = plot.y == "difference", plot.baseline or ""
    return lines(name, title, points, methods, x=plot.x, y=plot.y, baseline=dotted, zero=zero)


def _points(place: str, shown: ShownTable, plot: Plot) -> Iterator[tuple[Any, ...]]:
    """What is drawn of a table: the rows that have both coordinates."""
    for i, cells in enumerate(shown.table.rows):
        row = dict(zip(shown.table.columns, cells, strict=True))
        x, y, *names = (row[column] if column else "" for column in (plot.x, plot.y, plot.group, plot.colour))
        if x is not None and y is not None:
            baseline, bounds = row[plot.baseline] if plot.baseline else None, shown.bands.get(i, (None, None))
            yield (place, shown.method, *map(str, names), baseline, x, y, *bounds)


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
    found = {entry.block.name: entry for entry in section.found}
    own = [(block.subsample.n, found[block.name]) for block in blocks if block.name in found]
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
    methods = named(blocks[-1], reference, frame["method"])
    return lines(key, title, frame, methods, x="training rows", y=y, log_x=True)


# --------------------------------------------------------------------------------- a panel per method


def _by_method(name: str, title: str, points: pd.DataFrame, plot: Plot, picked: Sequence[str]) -> str:
    by_method = dict(list(points.groupby("method", sort=False)))
    if len(by_method) > MOST_PANELS:
        by_method = {method: own for method, own in by_method.items() if method in picked}
    several, first = points["place"].nunique() > 1, next(iter(by_method), None)

    def draw(axis: Any, own: pd.DataFrame) -> None:
        axis.set_xlabel(plot.x)
        axis.set_ylabel(plot.y)
        if plot.diagonal:
            axis.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7)
            axis.set_xlim(0, 1)
            axis.set_ylim(0, 1)
        groups = [
            ((place if several else "", group), part)
            for (place, group), part in own.groupby(["place", "group"], sort=False)
        ]
        if plot.colour:
            _coloured(axis, groups, plot.colour, own["colour"])
        else:
            for (names, part), (color, marker, dashes) in zip(groups, _LINES * 20):
                look: dict[str, Any] = {"linestyle": "none", "alpha": 0.65} if plot.points else {"linestyle": dashes}
                look |= {"color": color, "marker": marker, "markersize": 3, "linewidth": 1.1, "label": _label(*names)}
                axis.plot(list(part["x"]), list(part["y"]), **look)
        if own["method"].iloc[0] == first or plot.group:
            axis.legend(frameon=False, fontsize=7, labelcolor=INK, loc="best", handlelength=1.2)

    return panels(
        name, title, by_method, draw, width=2.6 if columns_of(len(by_method)) < 4 else 2.15, height=1.9, left=0.6,
        gap=0.6, bottom=0.75, one_scale=plot.one_scale,
    )  # fmt: skip


def _coloured(
    axis: Any, groups: Iterable[tuple[tuple[str, str], pd.DataFrame]], column: str, colours: Iterable[str]
) -> None:
    """Points whose marker is their group and whose colour is their class."""
    classes = [name for name, _ in Counter(colours).most_common(len(_CLASSES))]
    for (names, part), marker in zip(groups, ("o", "^", "<", "s", "D", "P") * 4):
        for own, color in (*zip(classes, _CLASSES), (None, MUTED)):
            points = part[~part["colour"].isin(classes) if own is None else part["colour"] == own]
            if len(points):
                label = _label(*names, f"{column} {own}" if own else "others")
                look = {"color": color, "marker": marker, "markersize": 3.6, "alpha": 0.65, "markeredgewidth": 0}
                axis.plot(list(points["x"]), list(points["y"]), linestyle="none", label=label, **look)
