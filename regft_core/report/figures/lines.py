"""Panels of lines, one line per arm: some arms picked out and named beside the panels, the rest in grey."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.lines import Line2D

from regft_core.report.figures.svg import MUTED, legend_beside, panels, style, text_width, to_svg
from regft_core.report.page.emphasis import LOOKS, Look

COLUMNS = 4
#: With more named arms than this only the first few are shaded: more intervals hide each other.
SHADED = 3
_GREY: dict[str, Any] = {"color": MUTED, "linewidth": 0.7, "alpha": 0.3}
_BASELINE: dict[str, Any] = {"color": MUTED, "linewidth": 1.1, "linestyle": (0, (1, 2))}


@dataclass(frozen=True)
class Point:
    """One point of a line; ``low`` and ``high`` bound what is shaded around it."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Panel:
    """One panel: arm -> points in their order; ``baseline``: what is dotted for comparison."""

    title: str
    lines: Mapping[str, Sequence[Point]]
    baseline: Sequence[Point] = field(default_factory=tuple)


def drawn(
    name: str,
    title: str,
    shown: Sequence[Panel],
    picked: Sequence[str],
    *,
    x: str,
    y: str,
    baseline: str = "",
    log_x: bool = False,
    log_y: bool = False,
    zero: bool = False,
) -> str:
    """The figure as SVG; nothing when no panel has a point.

    Args:
        picked: arms with a name and a look of their own, at most as many as there are looks.
        x, y: what the axes are; ``baseline``: what the dotted line is.
        zero: a line at 0, for differences.
    """
    shown = [panel for panel in shown if any(panel.lines.values())]
    if not shown:
        return ""
    others = {arm for panel in shown for arm, points in panel.lines.items() if points and arm not in picked}
    named = [arm for arm in picked if any(panel.lines.get(arm) for panel in shown)]
    # A look goes with the place among the picked, so that an arm keeps it in the figures it shares with others.
    looks = {arm: look for arm, look in zip(picked, LOOKS) if arm in named}
    named = list(looks)
    legend = [Line2D([], [], **look.line()) for look in looks.values()]
    labels = list(named)
    if baseline and any(panel.baseline for panel in shown):
        legend.append(Line2D([], [], **_BASELINE))
        labels.append(baseline)
    if others:
        legend.append(Line2D([], [], **_GREY))
        labels.append(f"{len(others)} other arm{'' if len(others) == 1 else 's'}")
    columns = min(len(shown), COLUMNS)
    rows = math.ceil(len(shown) / columns)
    width = {1: 4.0, 2: 3.0, 3: 2.4}.get(columns, 1.9)
    right = text_width(labels) + 0.6
    with style(name):
        figure, axes = panels(
            columns, rows, width=width, height=max(1.6, 0.75 * width), left=0.85, right=right, gap=0.65, row_gap=0.6
        )
        for i, (axis, panel) in enumerate(zip(axes, shown)):
            axis.set_title(panel.title, loc="left")
            axis.grid()
            axis.tick_params(length=0)
            if log_x:
                axis.set_xscale("log")
            if log_y:
                axis.set_yscale("log")
            if zero:
                axis.axhline(0, color=MUTED, linewidth=0.8)
            _lines(axis, panel, looks, others)
            if not log_y:
                axis.set_ylim(*_limits(panel, zero))
            if not log_x:
                whole = all(float(p.x).is_integer() for points in panel.lines.values() for p in points)
                axis.locator_params(axis="x", nbins=5, integer=whole)
            if not log_y:
                axis.locator_params(axis="y", nbins=5)
            if i >= len(shown) - columns:
                axis.set_xlabel(x)
            if i % columns == 0:
                axis.set_ylabel(y)
        if log_x:
            _sizes_as_ticks(axes[: len(shown)], shown)
        legend_beside(figure, axes[len(shown) :], legend, labels, right)
        return to_svg(figure, name, title)


def _lines(axis: Any, panel: Panel, looks: Mapping[str, Look], others: set[str]) -> None:
    for arm in others:
        if points := panel.lines.get(arm):
            axis.plot([p.x for p in points], [p.y for p in points], zorder=1, **_GREY)
    if panel.baseline:
        axis.plot([p.x for p in panel.baseline], [p.y for p in panel.baseline], zorder=2, **_BASELINE)
    shaded = list(looks) if len(looks) <= SHADED + 1 else list(looks)[:SHADED]
    for arm, look in looks.items():
        points = panel.lines.get(arm) or ()
        bounded = [(p.x, p.low, p.high) for p in points if p.low is not None and p.high is not None]
        if arm in shaded and len(bounded) > 1:
            axis.fill_between(*zip(*bounded), color=look.color, alpha=0.12, linewidth=0, zorder=2)
        elif arm in shaded and bounded:
            axis.vlines(*zip(*bounded), color=look.color, linewidth=0.8, alpha=0.5, zorder=2)
        if points:
            axis.plot([p.x for p in points], [p.y for p in points], zorder=3, **look.line())


def _limits(panel: Panel, zero: bool) -> tuple[float, float]:
    """All points, and intervals as far as they do not flatten the lines (two seeds have wide ones)."""
    points = [point for line in (*panel.lines.values(), panel.baseline) for point in line]
    values = [point.y for point in points] + ([0.0] if zero else [])
    low, high = min(values), max(values)
    margin = (high - low) or abs(high) or 1.0
    lowest = min((point.low for point in points if point.low is not None), default=low)
    highest = max((point.high for point in points if point.high is not None), default=high)
    bottom, top = max(lowest, low - 0.6 * margin), min(highest, high + 0.6 * margin)
    return min(low, bottom) - 0.06 * margin, max(high, top) + 0.06 * margin


def _sizes_as_ticks(axes: Sequence[Any], shown: Sequence[Panel]) -> None:
    """On a logarithmic axis the values that occur, as long as there are few."""
    values = sorted({p.x for panel in shown for points in panel.lines.values() for p in points})
    for axis in axes:
        if len(values) <= 6:
            axis.set_xticks(values, [f"{value:g}" for value in values])
            axis.set_xticks([], minor=True)
