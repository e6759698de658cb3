"""Figures of what evaluations found, as a table says how it is drawn: a panel per arm, or a line or violin per arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regft_core.evaluate.findings import RUN, Plot
from regft_core.report.evaluations import ShownTable
from regft_core.report.figures.lines import Panel, Point, drawn
from regft_core.report.figures.scores import grid, panel_width
from regft_core.report.figures.svg import ACCENT, BETTER, INK, MUTED, WORSE, panels, style, to_svg
from regft_core.report.figures.violins import ViolinPanel, violins

#: Most panels of a figure with a panel per arm.
MOST_PANELS = 12
#: Looks of the lines or points of one panel, the development set first; colours and markers both differ.
LOOKS: tuple[dict[str, Any], ...] = (
    {"color": ACCENT, "marker": "o", "linewidth": 1.4},
    {"color": WORSE, "marker": "^", "linewidth": 1.0, "linestyle": "--"},
    {"color": MUTED, "marker": "s", "linewidth": 1.0, "linestyle": ":"},
    {"color": INK, "marker": "v", "linewidth": 0.8, "linestyle": "-."},
)
#: Colours of classes among points, the most frequent first; the others share a grey.
CLASSES = (ACCENT, WORSE, BETTER, INK)


def plotted(name: str, title: str, tables: Mapping[str, Sequence[ShownTable]], picked: Sequence[str]) -> str:
    """The tables of one name, set -> one per arm, as one figure; nothing when none says how it is drawn.

    Args:
        picked: the arms that are named; with more arms than fit they alone get a panel.
    """
    shown = {place: [table for table in own if table.plot is not None] for place, own in tables.items()}
    shown = {place: own for place, own in shown.items() if own}
    if not shown:
        return ""
    plot = next(iter(shown.values()))[0].plot
    assert plot is not None
    if plot.violins:
        return _violins(name, title, shown, plot, picked)
    if plot.panels == "sets":
        return _by_set(name, title, shown, plot, picked)
    return _by_arm(name, title, shown, picked)


# ------------------------------------------------------------------------------------- a line per arm


def _by_set(name: str, title: str, shown: Mapping[str, Sequence[ShownTable]], plot: Plot, picked: Sequence[str]) -> str:
    found = []
    for place, tables in shown.items():
        # A group that few tables have is drawn where it first appears.
        for group in dict.fromkeys(group for table in tables for group in _groups(table, plot)):
            lines = {table.method: _points(table, plot, group, plot.y) for table in tables}
            base = next((_points(table, plot, group, plot.baseline) for table in tables), ()) if plot.baseline else ()
            where = "" if place == RUN else place
            found.append(Panel(", ".join(filter(None, (where, group))) or "all", lines, base))
    zero = plot.y == "difference"
    return drawn(
        name, title, found, picked, x=plot.x, y=plot.y, baseline=plot.baseline or "", log_y=plot.log, zero=zero
    )


def _violins(
    name: str, title: str, shown: Mapping[str, Sequence[ShownTable]], plot: Plot, picked: Sequence[str]
) -> str:
    found = []
    for place, tables in shown.items():
        for group in dict.fromkeys(group for table in tables for group in _groups(table, plot)):
            arms: dict[str, dict[float, list[float]]] = {}
            for table in tables:
                for point in _points(table, plot, group, plot.y):
                    arms.setdefault(table.method, {}).setdefault(point.x, []).append(point.y)
            found.append(ViolinPanel(", ".join(filter(None, ("" if place == RUN else place, group))) or "all", arms))
    return violins(name, title, found, picked, x=plot.x, y=plot.y)


def _groups(table: ShownTable, plot: Plot) -> list[str]:
    if plot.group is None:
        return [""]
    column = table.columns.index(plot.group)
    return [str(value) for value in dict.fromkeys(row[column] for row in table.rows)]


def _points(table: ShownTable, plot: Plot, group: str, column: str) -> list[Point]:
    x, y = table.columns.index(plot.x), table.columns.index(column)
    bands = table.bands if column == plot.y else {}
    return [
        Point(row[x], row[y], *bands.get(i, (None, None)))
        for i, row in _of_group(table, plot, group)
        if row[x] is not None and row[y] is not None
    ]


def _of_group(table: ShownTable, plot: Plot, group: str) -> Iterator[tuple[int, Sequence[Any]]]:
    column = None if plot.group is None else table.columns.index(plot.group)
    for i, row in enumerate(table.rows):
        if column is None or str(row[column]) == group:
            yield i, row


# ------------------------------------------------------------------------------------ a panel per arm


def _by_arm(name: str, title: str, shown: Mapping[str, Sequence[ShownTable]], picked: Sequence[str]) -> str:
    methods = list(dict.fromkeys(table.method for own in shown.values() for table in own))
    if len(methods) > MOST_PANELS:
        methods = [method for method in methods if method in picked]
    if not methods:
        return ""
    columns, rows = grid(len(methods))
    with style(name):
        width = min(2.6, panel_width(columns))
        figure, axes = panels(columns, rows, width=width, height=width * 0.8, left=0.6, gap=0.6, bottom=0.75)
        for axis, method in zip(axes, methods):
            axis.set_title(method, loc="left")
            axis.grid()
            axis.tick_params(length=0)
            looks = iter(LOOKS * 20)
            for place, own in shown.items():
                for table in own:
                    if table.method == method and table.plot is not None:
                        axis.set_xlabel(table.plot.x)
                        axis.set_ylabel(table.plot.y)
                        _in_panel(axis, table, table.plot, place if len(shown) > 1 else "", looks)
            handles, labels = axis.get_legend_handles_labels()
            if axis is axes[0] or table_has_groups(shown, method):
                axis.legend(handles, labels, frameon=False, fontsize=7, labelcolor=INK, loc="best", handlelength=1.2)
        if any(table.plot is not None and table.plot.one_scale for own in shown.values() for table in own):
            _on_one_scale(axes[: len(methods)])
        for axis in axes[len(methods) :]:
            axis.set_visible(False)
        return to_svg(figure, name, title)


def table_has_groups(shown: Mapping[str, Sequence[ShownTable]], method: str) -> bool:
    """Whether a panel's lines are named by its own table, so that its legend is not that of the others."""
    plots = [table.plot for own in shown.values() for table in own if table.method == method]
    return any(plot is not None and plot.group is not None for plot in plots)


def _on_one_scale(axes: Sequence[Any]) -> None:
    limits = [axis.get_ylim() for axis in axes]
    for axis in axes:
        axis.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _in_panel(axis: Any, table: ShownTable, plot: Plot, place: str, looks: Iterator[dict[str, Any]]) -> None:
    if plot.diagonal:
        axis.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7)
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
    if plot.colour is not None:
        _coloured(axis, table, plot, plot.colour, place)
        return
    for group, look in zip(_groups(table, plot), looks):
        points = [(p.x, p.y) for p in _points(table, plot, group, plot.y)]
        if not points:
            continue
        label = ", ".join(filter(None, (place, group))) or "all"
        if plot.points:
            own = {"color": look["color"], "marker": look["marker"], "markersize": 3.2, "alpha": 0.65}
            axis.plot(*zip(*points), linestyle="none", markeredgewidth=0, label=label, **own)
        else:
            axis.plot(*zip(*points), markersize=3, label=label, **look)


def _coloured(axis: Any, table: ShownTable, plot: Plot, column: str, place: str) -> None:
    """Points whose marker is their group and whose colour is their class."""
    classes = Counter(str(row[table.columns.index(column)]) for row in table.rows)
    named = [name for name, _ in classes.most_common(len(CLASSES))]
    markers = ("o", "^", "<", "s", "D", "P")
    for group, marker in zip(_groups(table, plot), markers * 4):
        for name in [*named, None]:
            points = [
                (row[table.columns.index(plot.x)], row[table.columns.index(plot.y)])
                for _, row in _of_group(table, plot, group)
                if (own := str(row[table.columns.index(column)])) == name or (name is None and own not in named)
            ]
            if points:
                color = MUTED if name is None else CLASSES[named.index(name)]
                label = ", ".join(filter(None, (place, group, f"{column} {name}" if name else "others")))
                look = {"color": color, "marker": marker, "markersize": 3.6, "alpha": 0.65, "markeredgewidth": 0}
                axis.plot(*zip(*points), linestyle="none", label=label, **look)
