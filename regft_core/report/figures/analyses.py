"""Figures of what evaluations found, as a table says how it is drawn, and of numbers over training sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.patches import Patch

from regft_core.evaluate.analysis_result import RUN, Plot
from regft_core.report.evaluations import EvaluationSection, ShownTable
from regft_core.report.figures.panels import LOOKS, Panel, Point, lines, named
from regft_core.report.figures.svg import ACCENT, BETTER, INK, MUTED, PAPER, WORSE, Sheet, columns_of, style, text_width
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
_HATCHES = (None, "///", "...", "\\\\\\", "xxx", "|||", "---", "+++")


def plotted(name: str, title: str, tables: Mapping[str, Sequence[ShownTable]], methods: Sequence[str]) -> str:
    """Return the tables of one name (set -> one per method) as one figure; nothing when none says how it is drawn.

    Args:
        methods: those that are drawn where there are many.
    """
    shown = {place: [table for table in own if table.plot is not None] for place, own in tables.items()}
    shown = {place: own for place, own in shown.items() if own}
    if not shown:
        return ""
    plot = next(iter(shown.values()))[0].plot
    assert plot is not None
    if plot.panels == "arms":
        return _by_method(name, title, shown, methods)
    panels = []
    for place, own in shown.items():
        by_group: dict[str, dict[str, Sequence[Point]]] = {}
        baselines: dict[str, Sequence[Point]] = {}
        for table in own:
            for group, rows in _by_group(table, plot).items():
                by_group.setdefault(group, {})[table.method] = _points(table, rows, plot.x, plot.y)
                if plot.baseline and group not in baselines:
                    baselines[group] = _points(table, rows, plot.x, plot.baseline, bands=False)
        for group, points in by_group.items():
            where = ", ".join(filter(None, ("" if place == RUN else place, group))) or "all"
            panels.append(Panel(where, points, baselines.get(group, ())))
    if plot.violins:
        return _violins(name, title, panels, methods, x=plot.x, y=plot.y)
    zero, dotted = plot.y == "difference", plot.baseline or ""
    return lines(name, title, panels, methods, x=plot.x, y=plot.y, baseline=dotted, zero=zero)


def scores_over_sizes(task: str, blocks: Sequence[Block], rows: Mapping[str, float], reference: str | None) -> str:
    """Primary metric over the training rows of a task's ``blocks``, a panel per set; ``rows`` by name of the block."""
    primary = blocks[-1].primary
    scale, panels = factor(primary), []
    for name in blocks[-1].sets:
        own: dict[str, list[Point]] = {}
        for block in blocks:
            for row in block.rows:
                if row.n_ok and name in row.scores:
                    score = row.scores[name][primary].estimate
                    bounds = tuple(bound * scale for bound in score.interval or ())
                    point = Point(rows[block.name], score.mean * scale, *bounds)
                    own.setdefault(row.method, []).append(point)
        panels.append(Panel(name, own))
    methods = named(blocks[-1], reference, [method for panel in panels for method in panel.lines])
    label = primary + (" × 100" if scale == 100 else "")
    title = f"{primary} of {task} over the training rows"
    return lines(f"sizes-{task}", title, panels, methods, x="training rows", y=label, log_x=True)


def numbers_over_sizes(
    section: EvaluationSection, task: str, blocks: Sequence[Block], rows: Mapping[str, float], reference: str | None
) -> Iterator[str]:
    """The same of the numbers that an evaluation asks to be drawn over sizes."""
    found = {entry.block: entry for entry in section.found}
    own = [(block, found[block.name]) for block in blocks if block.name in found]
    for name in dict.fromkeys(name for _, entry in own for name in entry.over_sizes):
        panels = []
        for place in dict.fromkeys(place for _, entry in own for place, other in entry.places if other == name):
            points: dict[str, list[Point]] = {}
            for block, entry in own:
                for method in entry.methods:
                    if (number := entry.numbers.get((method, place, name))) is None:
                        continue
                    low, high = number.interval or (None, None)
                    points.setdefault(method, []).append(Point(rows[block.name], number.mean, low, high))
            panels.append(Panel(task if place == RUN else f"{task}, {place}", points))
        methods = named(blocks[-1], reference, [method for panel in panels for method in panel.lines])
        title = f"{name} of {section.name} on {task} over the training rows"
        key = f"sizes-{section.name}-{name}-{task}"
        yield lines(key, title, panels, methods, x="training rows", y=name, log_x=True)


def _by_group(table: ShownTable, plot: Plot) -> dict[str, pd.DataFrame]:
    """Rows of a table by their group, in the order in which groups first appear; indices are numbers of rows."""
    rows = pd.DataFrame(table.rows, columns=list(table.columns), dtype=object)
    if plot.group is None or rows.empty:
        return {"": rows}
    return {str(name): part for name, part in rows.groupby(plot.group, sort=False)}


def _points(table: ShownTable, rows: pd.DataFrame, x: str, y: str, *, bands: bool = True) -> list[Point]:
    rows = rows.dropna(subset=[x, y])
    limits = table.bands if bands else {}
    return [Point(at, value, *limits.get(i, (None, None))) for i, at, value in zip(rows.index, rows[x], rows[y])]


def _violins(name: str, title: str, panels: Sequence[Panel], methods: Sequence[str], *, x: str, y: str) -> str:
    """How ``y`` is spread at each ``x``, side by side for the methods, with the mean as a dot."""
    panels = [panel for panel in panels if any(panel.lines.get(method) for method in methods)]
    looks = {method: look for method, look in zip(methods, LOOKS) if any(panel.lines.get(method) for panel in panels)}
    if not looks:
        return ""
    handles = [Patch(facecolor=look[0], alpha=0.45, hatch=_HATCHES[i]) for i, look in enumerate(looks.values())]
    with style(name):
        sheet = Sheet(
            len(panels), width=4.0 if len(panels) == 1 else 3.2, height=2.4, left=0.85,
            right=text_width(list(looks)) + 0.6, gap=0.65, row_gap=0.6, legend=(handles, list(looks)),
        )  # fmt: skip
        for axis, panel in zip(sheet.axes, panels):
            axis.set_title(panel.title, loc="left")
            axis.grid(axis="y")
            axis.set_xlabel(x)
            axis.set_ylabel(y)
            places = sorted({p.x for points in panel.lines.values() for p in points})
            width = 0.84 / len(looks)
            for i, (method, (color, marker, _)) in enumerate(looks.items()):
                values = {at: [p.y for p in panel.lines.get(method, ()) if p.x == at] for at in places}
                at = {place: j - 0.42 + (i + 0.5) * width for j, place in enumerate(places) if values[place]}
                if not at:
                    continue
                drawn = axis.violinplot([values[p] for p in at], [*at.values()], widths=0.9 * width, showextrema=False)
                for body in drawn["bodies"]:
                    body.set(facecolor=color, edgecolor=INK, linewidth=0.5, alpha=0.45, hatch=_HATCHES[i])
                means = [sum(values[p]) / len(values[p]) for p in at]
                look = {"marker": marker, "markersize": 4, "color": INK, "markeredgecolor": PAPER}
                axis.plot([*at.values()], means, linestyle="none", **look)
            axis.set_xticks(range(len(places)), [f"{place:g}" for place in places])
        return sheet.svg(name, title)


# --------------------------------------------------------------------------------- a panel per method


def _by_method(name: str, title: str, shown: Mapping[str, Sequence[ShownTable]], picked: Sequence[str]) -> str:
    methods = list(dict.fromkeys(table.method for own in shown.values() for table in own))
    if len(methods) > MOST_PANELS:
        methods = [method for method in methods if method in picked]
    if not methods:
        return ""
    width = 2.6 if columns_of(len(methods)) < 4 else 2.15
    with style(name):
        sheet = Sheet(len(methods), width=width, height=1.9, left=0.6, gap=0.6, bottom=0.75)
        for axis, method in zip(sheet.axes, methods):
            axis.set_title(method, loc="left")
            axis.grid()
            looks = iter(_LINES * 20)
            tables = [(place, table) for place, own in shown.items() for table in own if table.method == method]
            for place, table in tables:
                assert table.plot is not None
                axis.set_xlabel(table.plot.x)
                axis.set_ylabel(table.plot.y)
                _in_panel(axis, table, table.plot, place if len(shown) > 1 else "", looks)
            if axis is sheet.axes[0] or any(table.plot and table.plot.group for _, table in tables):
                axis.legend(frameon=False, fontsize=7, labelcolor=INK, loc="best", handlelength=1.2)
        if any(table.plot is not None and table.plot.one_scale for own in shown.values() for table in own):
            limits = [axis.get_ylim() for axis in sheet.axes]
            for axis in sheet.axes:
                axis.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        return sheet.svg(name, title)


def _in_panel(axis: Any, table: ShownTable, plot: Plot, place: str, looks: Iterator[tuple[str, str, Any]]) -> None:
    if plot.diagonal:
        axis.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7)
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
    if plot.colour is not None:
        _coloured(axis, table, plot, plot.colour, place)
        return
    for (group, rows), (color, marker, dashes) in zip(_by_group(table, plot).items(), looks):
        if points := [(p.x, p.y) for p in _points(table, rows, plot.x, plot.y)]:
            label = ", ".join(filter(None, (place, group))) or "all"
            look: dict[str, Any] = {"linestyle": "none", "alpha": 0.65} if plot.points else {"linestyle": dashes}
            axis.plot(*zip(*points), color=color, marker=marker, markersize=3, linewidth=1.1, label=label, **look)


def _coloured(axis: Any, table: ShownTable, plot: Plot, column: str, place: str) -> None:
    """Points whose marker is their group and whose colour is their class."""
    at = table.columns.index(column)
    classes = [name for name, _ in Counter(str(row[at]) for row in table.rows).most_common(len(_CLASSES))]
    for (group, rows), marker in zip(_by_group(table, plot).items(), ("o", "^", "<", "s", "D", "P") * 4):
        names = rows[column].astype(str)
        for own, color in (*zip(classes, _CLASSES), (None, MUTED)):
            points = rows[~names.isin(classes) if own is None else names == own]
            if len(points):
                label = ", ".join(filter(None, (place, group, f"{column} {own}" if own else "others")))
                look = {"color": color, "marker": marker, "markersize": 3.6, "alpha": 0.65, "markeredgewidth": 0}
                axis.plot(points[plot.x], points[plot.y], linestyle="none", label=label, **look)
