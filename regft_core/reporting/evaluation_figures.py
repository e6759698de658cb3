"""Figures of what evaluations found: the columns that a table says are to be drawn, one panel per arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regft_core.reporting.evaluations import ShownTable
from regft_core.reporting.figures import grid, panel_width
from regft_core.reporting.svg import ACCENT, INK, MUTED, WORSE, panels, style, to_svg

#: Line styles of the sets, the development set first; colours and dashes both differ.
LOOKS: tuple[dict[str, Any], ...] = (
    {"color": ACCENT, "marker": "o", "linewidth": 1.4},
    {"color": WORSE, "marker": "^", "linewidth": 1.0, "linestyle": "--"},
    {"color": MUTED, "marker": "s", "linewidth": 1.0, "linestyle": ":"},
    {"color": INK, "marker": "v", "linewidth": 0.8, "linestyle": "-."},
)


def plotted(name: str, title: str, tables: Mapping[str, Sequence[ShownTable]]) -> str:
    """The tables of one name, set -> one per arm, as one figure; nothing when none says how it is drawn."""
    drawn = {place: own for place, own in tables.items() if any(table.plot is not None for table in own)}
    methods = list(dict.fromkeys(table.method for own in drawn.values() for table in own))
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
            for look, (place, own) in zip(LOOKS * len(drawn), drawn.items()):
                for table in own:
                    if table.method == method and table.plot is not None:
                        _line(axis, table, table.plot, place, look)
        for axis in axes[len(methods) :]:
            axis.set_visible(False)
        axes[0].legend(frameon=False, fontsize=7, labelcolor=INK)
        return to_svg(figure, name, title)


def _line(axis: Any, table: ShownTable, plot: Mapping[str, Any], place: str, look: Mapping[str, Any]) -> None:
    x, y = (table.columns.index(plot[side]) for side in ("x", "y"))
    points = [(row[x], row[y]) for row in table.rows if row[x] is not None and row[y] is not None]
    if plot["diagonal"]:
        axis.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7)
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
    if points:
        axis.plot(*zip(*points), markersize=3, label=place, **look)
    axis.set_xlabel(plot["x"])
    axis.set_ylabel(plot["y"])
