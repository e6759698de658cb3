"""Figures of several panels: lines of named methods, and the runs of one method beside their mean."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.lines import Line2D

from regft_core.report.figures.svg import ACCENT, BETTER, INK, MUTED, WORSE, columns_of, panels, text_width
from regft_core.report.leaderboard import leaderboard
from regft_core.report.model import Block

#: Points of a curve; ``curves.csv`` has more.
CURVE_POINTS = 60
#: With more lines than this only the first few have their interval shaded: more would hide each other.
SHADED = 3
#: Colour, marker and dashes.
Look = tuple[str, str, Any]
#: Of the methods of a figure; all three differ, so that no meaning is in the colour alone.
LOOKS: tuple[Look, ...] = (
    (INK, "o", "-"),
    (ACCENT, "^", "-"),
    (WORSE, "s", (0, (5, 2))),
    (BETTER, "v", (0, (1, 1.2))),
    (MUTED, "D", (0, (5, 1.5, 1, 1.5))),
    (ACCENT, "P", (0, (1, 1.2))),
    (WORSE, "X", (0, (1, 1.2))),
    (BETTER, "<", (0, (5, 2))),
)
_BASELINE: dict[str, Any] = {"color": MUTED, "linewidth": 1.1, "linestyle": (0, (1, 2))}
#: Columns of the points of a figure; ``low`` and ``high`` bound what is shaded around a line.
POINT = ("panel", "method", "x", "y", "low", "high")

Array = npt.NDArray[np.float64]
#: Steps (or epochs) and values of one run.
Curve = tuple[Sequence[float] | Array, Sequence[float] | Array]


def named(block: Block, reference: str | None, present: Iterable[str]) -> list[str]:
    """Return the methods among ``present`` that a figure shows: all, or of many the reference and the best."""
    there = set(present)
    ranked = [line.row.method for line in leaderboard(block).lines if line.row.method in there]
    if len(ranked) <= len(LOOKS):
        return [row.method for row in block.rows if row.method in there]
    return sorted(ranked, key=lambda name: name != reference)[: len(LOOKS)]


def drawn(points: pd.DataFrame, methods: Sequence[str]) -> tuple[dict[str, pd.DataFrame], dict[str, Look]]:
    """Return the points of each panel in which one of ``methods`` has some, and the looks of those that have."""
    present = points[points["method"].isin(methods)]
    shown = points[points["panel"].isin(present["panel"])].groupby("panel", sort=False)
    return dict(list(shown)), {m: look for m, look in zip(methods, LOOKS) if m in set(present["method"])}


def lines(
    name: str, title: str, points: pd.DataFrame, methods: Sequence[str], *, x: str, y: str, baseline: str = "",
    log_x: bool = False, zero: bool = False,
) -> str:  # fmt: skip
    """Return panels with a line per method as SVG; nothing when no panel has a point.

    Args:
        points: with the columns ``POINT``, and ``baseline`` where there is something to compare with.
        methods: those that are drawn; the legend counts the others.
        x, y: what the axes are; ``baseline``: what the dotted line is.
        zero: a line at 0, for differences.
    """
    shown, looks = drawn(points, methods)
    handles = [
        Line2D([], [], color=color, marker=marker, linestyle=dashes, linewidth=1.3, markersize=3.5)
        for color, marker, dashes in looks.values()
    ]
    labels = list(looks)
    if baseline and any(panel["baseline"].notna().any() for panel in shown.values()):
        handles.append(Line2D([], [], **_BASELINE))
        labels.append(baseline)
    if others := len({method for panel in shown.values() for method in panel["method"]} - looks.keys()):
        handles.append(Line2D([], [], linestyle="none"))
        labels.append(f"{others} not drawn")
    values = sorted({value for panel in shown.values() for value in panel["x"]})

    def draw(axis: Any, panel: pd.DataFrame) -> None:
        compared = panel[panel["method"] == panel["method"].iloc[0]].dropna(subset="baseline") if baseline else None
        if log_x:
            axis.set_xscale("log")
        axis.set_ylim(
            *_limits(panel[panel["method"].isin(looks)], [] if compared is None else compared["baseline"], zero)
        )
        axis.locator_params(axis="y", nbins=5)
        if zero:
            axis.axhline(0, color=MUTED, linewidth=0.8)
        if compared is not None and len(compared):
            axis.plot(list(compared["x"]), list(compared["baseline"]), zorder=2, **_BASELINE)
        _draw(axis, panel, looks)
        if not log_x:
            axis.locator_params(axis="x", nbins=5, integer=all(float(value).is_integer() for value in values))
        elif len(values) <= 6:
            axis.set_xticks(values, [f"{value:g}" for value in values])
            axis.set_xticks([], minor=True)

    width = {1: 4.0, 2: 3.0, 3: 2.4}.get(columns_of(len(shown)), 1.9)
    return panels(
        name, title, shown, draw, width=width, height=max(1.6, 0.75 * width), x=x, y=y, left=0.85,
        right=text_width(labels) + 0.6, gap=0.65, row_gap=0.6, legend=(handles, labels),
    )  # fmt: skip


def _draw(axis: Any, panel: pd.DataFrame, looks: Mapping[str, Look]) -> None:
    shaded = list(looks)[: len(looks) if len(looks) <= SHADED + 1 else SHADED]
    for method, (color, marker, dashes) in looks.items():
        points = panel[panel["method"] == method]
        bounded = points.dropna(subset=["low", "high"])
        ends = [list(bounded[column]) for column in ("x", "low", "high")]
        if method in shaded and len(bounded) > 1:
            axis.fill_between(*ends, color=color, alpha=0.12, linewidth=0, zorder=2)
        elif method in shaded and len(bounded):
            axis.vlines(*ends, color=color, linewidth=0.8, alpha=0.5, zorder=2)
        if len(points):
            look = {"color": color, "marker": marker, "linestyle": dashes, "linewidth": 1.3, "markersize": 3.5}
            axis.plot(list(points["x"]), list(points["y"]), zorder=3, **look)


def _limits(points: pd.DataFrame, compared: Collection[float], zero: bool) -> tuple[float, float]:
    """All drawn points, and intervals as far as they do not flatten the lines (two seeds have wide ones)."""
    values = [*points["y"], *compared, *([0.0] if zero else [])]
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = (high - low) or abs(high) or 1.0
    lowest, highest = min(points["low"].dropna(), default=low), max(points["high"].dropna(), default=high)
    bottom, top = max(lowest, low - 0.6 * margin), min(highest, high + 0.6 * margin)
    return min(low, bottom) - 0.06 * margin, max(high, top) + 0.06 * margin


@dataclass(frozen=True)
class Runs:
    """The runs of one method in one panel: thin lines, and their mean, which is thick."""

    label: str
    curves: Sequence[Curve]
    thin: str = ACCENT
    thick: str = INK
    dashes: Any = "-"


def runs(name: str, title: str, shown: Mapping[str, Sequence[Runs]], *, x: str, y: str, shared: bool = False) -> str:
    """Return a panel per title of ``shown`` as SVG; nothing without curves. ``shared``: one scale for all panels."""
    shown = {panel: [one for one in own if one.curves] for panel, own in shown.items()}
    shown = {panel: own for panel, own in shown.items() if own}
    if not shown:
        return ""
    values = np.concatenate([ys for own in shown.values() for one in own for _, ys in one.curves])
    # One run that diverged must not flatten all others.
    top = min(float(values.max()), 1.5 * float(np.quantile(values, 0.98)) + 1e-9) if y == "loss" else values.max()
    bottom = min(0.0, float(values.min())) if y == "loss" else values.min()
    margin = 0.05 * float(top - bottom) or 1.0

    def draw(axis: Any, own: Sequence[Runs]) -> None:
        axis.locator_params(nbins=4)
        if shared:
            axis.set_ylim(bottom - (0 if y == "loss" else margin), top + margin)
        for one in own:
            _with_mean(axis, one)
        if len(own) > 1:
            axis.legend(frameon=False, fontsize=7, labelcolor=INK)

    return panels(
        name, title, shown, draw, width=2.15, height=1.25, x=x, y=y, grid="y", left=0.55, gap=0.45, row_gap=0.55,
        bottom=0.45, fontsize=8.5,
    )  # fmt: skip


def _with_mean(axis: Any, one: Runs) -> None:
    """A run that stopped early counts in the mean as far as it went."""
    for steps, values in one.curves:
        axis.plot(steps, values, color=one.thin, alpha=0.3, linewidth=0.7)
    first, last = max(steps[0] for steps, _ in one.curves), max(steps[-1] for steps, _ in one.curves)
    common = np.unique(np.concatenate([np.asarray(steps, dtype=float) for steps, _ in one.curves]))
    common = common[common >= first]
    if len(common) > CURVE_POINTS:
        common = np.linspace(first, last, CURVE_POINTS)
    means = np.nanmean([np.interp(common, steps, values, right=np.nan) for steps, values in one.curves], axis=0)
    marker = "o" if len(common) == 1 else ""  # a line of one point would not be seen
    axis.plot(
        common, means, color=one.thick, linewidth=1.4, linestyle=one.dashes, marker=marker, markersize=4,
        label=one.label,
    )  # fmt: skip
