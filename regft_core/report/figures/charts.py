"""The grammar of all figures: panels of one size side by side, and in each of them marks, which are lines or points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from regft_core.report.figures import ACCENT, BETTER, INK, MUTED, SETTINGS, WORSE, element
from regft_core.report.leaderboard import leaderboard
from regft_core.report.values import Block

#: The lowest and the highest value of an axis.
Ends = tuple[float, float]
Values = Sequence[float] | npt.NDArray[np.float64]
#: Most panels side by side.
COLUMNS = 4
#: Line style of points.
NONE = "none"


@dataclass(frozen=True)
class Marks:
    """A line, or points (``dashes`` is ``none``), in one panel.

    Attributes:
        label: in the legend; empty where it has no place there.
        face: colour inside of a marker whose border has ``color``; empty: the same.
        bounds: (low, high) around each mark: of ``y``, or of ``x`` where ``across``; drawn as lines of width ``reach``,
            or (``band``) as a shaded area.
    """

    x: Values
    y: Values
    color: str = ACCENT
    marker: str = ""
    dashes: Any = "-"
    label: str = ""
    size: float = 4.0
    width: float = 1.3
    alpha: float = 1.0
    face: str = ""
    bounds: Sequence[tuple[float, float]] = ()
    across: bool = False
    band: bool = False
    reach: float = 0.8

    @property
    def look(self) -> dict[str, Any]:
        """As matplotlib takes it."""
        border = {"markeredgecolor": self.color, "markerfacecolor": self.face or self.color}
        edge = {"markeredgewidth": 1.3} if self.face else {"markeredgewidth": 0.0} if self.alpha < 1 else {}
        line = {"linestyle": self.dashes, "linewidth": self.width, "marker": self.marker, "markersize": self.size}
        return {"color": self.color, "alpha": self.alpha} | line | border | edge

    def draw(self, axis: Any) -> None:
        """Draw on an axis. Everything of a kind at once, which is much faster."""
        bounded = [(x, y, *ends) for x, y, ends in zip(self.x, self.y, self.bounds) if np.isfinite(ends).all()]
        if bounded:
            xs, ys, lows, highs = map(list, zip(*bounded))
            if self.band and len(bounded) > 1:
                axis.fill_between(xs, lows, highs, color=self.color, alpha=0.12, linewidth=0, zorder=2)
            elif self.across:
                axis.hlines(ys, lows, highs, colors=self.color, linewidth=self.reach, zorder=2)
            else:
                axis.vlines(xs, lows, highs, colors=self.color, linewidth=self.reach, zorder=2)
        if len(self.x):
            axis.plot(list(self.x), list(self.y), zorder=3, label=self.label or None, **self.look)


def text_width(texts: Iterable[str], size: float = 9.0) -> float:
    """Inches that the longest text needs, on the safe side for any sans-serif font."""
    return max(map(len, texts), default=0) * size * 0.62 / 72


def width_of(panels: int, widths: Sequence[float]) -> float:
    """The width of each of so many panels: by how many stand side by side."""
    return widths[min(panels, COLUMNS) - 1]


def limits(values: Iterable[float], margin: float = 0.05) -> tuple[float, float]:
    """Ends of an axis for values between these, with a margin; a margin of their size, or of 1, where they are one."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    around = margin * ((high - low) or abs(high) or 1.0)
    return low - around, high + around


def panels(
    name: str, title: str, shown: Mapping[str, Sequence[Marks]], *, width: float, height: float, x: str, y: str = "",
    rows: Sequence[str] = (), beside: Sequence[Marks] = (), ticks: int = 5, log: bool = False,
    x_ends: Mapping[str, Ends] | None = None, y_ends: Mapping[str, Ends] | None = None,
    x_ticks: Mapping[float, str] | None = None,
) -> str:  # fmt: skip
    """Return a panel for each title of ``shown`` as one ``<svg>``; nothing where no panel has a mark.

    Args:
        name: prefix of the figure's identifiers; ``title`` is read aloud.
        width, height: of a panel, in inches.
        x, y: named below the lowest panels, and beside the first of each row.
        rows: names of the places 0, 1, ... of ``y``, from the top.
        beside: what a legend on the right explains; without it panels have their own, of the marks with a label.
        ticks: most numbers of an axis; ``log``: ``x`` is logarithmic.
        x_ends, y_ends: title of a panel -> the ends of its axes; without them the marks decide.
        x_ticks: place on ``x`` -> its number; there are no others then.
    """
    shown = {panel: marks for panel, marks in shown.items() if any(len(one.x) for one in marks)}
    if not shown:
        return ""
    left, gap = (text_width(rows) + 0.15, 0.25) if rows else (0.8, 0.6)
    right = text_width(one.label for one in beside) + 0.6 if beside else 0.15
    across = min(len(shown), COLUMNS)
    down = math.ceil(len(shown) / across)
    top, bottom, row_gap = 0.35 if any(shown) else 0.12, 0.5, 0.7
    total_width = left + across * width + (across - 1) * gap + right
    total_height = top + down * height + (down - 1) * row_gap + bottom
    with mpl.rc_context({**SETTINGS, "svg.hashsalt": name}):
        figure = Figure(figsize=(total_width, total_height))
        for place, (text, marks) in enumerate(shown.items()):
            row, column = divmod(place, across)
            at_x, at_y = left + column * (width + gap), total_height - top - (row + 1) * height - row * row_gap
            size = (at_x / total_width, at_y / total_height, width / total_width, height / total_height)
            axis: Any = figure.add_axes(size)
            axis.tick_params(length=0)
            axis.set_title(text, loc="left")
            axis.grid(axis="x" if rows else "both")
            if log:
                axis.set_xscale("log")
            for one in marks:
                one.draw(axis)
            if rows:
                axis.set_ylim(len(rows) - 0.5, -0.5)
                axis.set_yticks(range(len(rows)), rows if column == 0 else [""] * len(rows))
                axis.spines["left"].set_visible(False)
            else:
                axis.locator_params(axis="y", nbins=ticks)
            if not log:
                whole = all(float(value).is_integer() for one in marks for value in one.x)
                axis.locator_params(axis="x", nbins=ticks, integer=whole)
            if x_ends and text in x_ends:
                axis.set_xlim(*x_ends[text])
            if y_ends and text in y_ends:
                axis.set_ylim(*y_ends[text])
            if x_ticks:
                axis.set_xticks([*x_ticks], [*x_ticks.values()])
                axis.set_xticks([], minor=True)
            if not beside and any(one.label for one in marks):
                axis.legend(frameon=False, fontsize=7.5, labelcolor=INK, loc="best", handlelength=1.6)
            axis.set_ylabel(y if column == 0 else "")
            axis.set_xlabel(x if place >= len(shown) - across else "")
        if beside:
            figure.legend(
                [Line2D([], [], **one.look) for one in beside], [one.label for one in beside], loc="upper left",
                bbox_to_anchor=(1 - (right - 0.1) / total_width, 1 - 0.25 / total_height),
                frameon=False, fontsize=8, borderaxespad=0, borderpad=0, handlelength=2.2,
            )  # fmt: skip
        return element(figure, name, title)


# ------------------------------------------------------------------------------- a line for each method

#: Looks of the methods of a figure; colour, marker and dashes differ, so that no meaning is in the colour alone.
LOOKS = (
    Marks((), (), INK, "o", "-", size=3.5),
    Marks((), (), ACCENT, "^", "-", size=3.5),
    Marks((), (), WORSE, "s", (0, (5, 2)), size=3.5),
    Marks((), (), BETTER, "v", (0, (1, 1.2)), size=3.5),
    Marks((), (), MUTED, "D", (0, (5, 1.5, 1, 1.5)), size=3.5),
    Marks((), (), ACCENT, "P", (0, (1, 1.2)), size=3.5),
    Marks((), (), WORSE, "X", (0, (1, 1.2)), size=3.5),
    Marks((), (), BETTER, "<", (0, (5, 2)), size=3.5),
    Marks((), (), INK, "*", (0, (3, 1, 1, 1)), size=3.5),
)
_BASELINE = Marks((), (), MUTED, dashes=(0, (1, 2)), width=1.1)
#: With more lines than this only the first few have their interval shaded: more would hide each other.
SHADED = 3
#: Columns of the points of a figure; ``low`` and ``high`` bound what is shaded around a line.
POINT = ("panel", "method", "x", "y", "low", "high")


def named(block: Block, reference: str | None, present: Iterable[str]) -> list[str]:
    """Return the methods among ``present`` that a figure shows: all, or of many the reference and the best."""
    there = set(present)
    ranked = [line.row.method for line in leaderboard(block).lines if line.row.method in there]
    if len(ranked) <= len(LOOKS):
        return [row.method for row in block.rows if row.method in there]
    return sorted(ranked, key=lambda name: name != reference)[: len(LOOKS)]


def lines(
    name: str, title: str, points: pd.DataFrame, methods: Sequence[str], *, x: str, y: str, baseline: str = "",
    log: bool = False, dots: bool = False,
) -> str:  # fmt: skip
    """Return panels with a line per method as SVG; nothing when no panel has a point.

    Args:
        points: with the columns ``POINT``, and ``baseline`` where there is something to compare with.
        methods: those that are drawn; the legend counts the others.
        baseline: name of the dotted line.
        dots: points instead of lines.
    """
    drawn = points[points["method"].isin(methods)]
    by_panel = dict(list(points[points["panel"].isin(drawn["panel"])].groupby("panel", sort=False)))
    present = set(drawn["method"])
    style: dict[str, Any] = {"dashes": NONE, "alpha": 0.65} if dots else {}
    looks = {method: replace(look, label=method, **style) for method, look in zip(methods, LOOKS) if method in present}
    shaded = [*looks][: len(looks) if dots or len(looks) <= SHADED + 1 else SHADED]
    beside, shown, ends = list(looks.values()), dict[str, list[Marks]](), dict[str, Ends]()
    for panel, own in by_panel.items():
        marks = []
        if baseline:
            compared = own[own["method"] == own["method"].iloc[0]].dropna(subset="baseline")
            marks.append(replace(_BASELINE, label=baseline, x=[*compared["x"]], y=[*compared["baseline"]]))
        for method, look in looks.items():
            of_method = own[own["method"] == method]
            columns = {column: [*of_method[column].astype(float)] for column in POINT[2:]}
            bounds = list(zip(columns["low"], columns["high"])) if method in shaded else ()
            marks.append(replace(look, x=columns["x"], y=columns["y"], bounds=bounds, band=True))
        shown[panel] = marks
        within = own[own["method"].isin(looks)]
        whole = [*marks[0].y] if baseline else [*within[["low", "high"]].stack()] if dots else []
        ends[panel] = _limits(within, whole)
    if any(one.label == baseline and len(one.x) for marks in shown.values() for one in marks if baseline):
        beside.append(replace(_BASELINE, label=baseline))
    if others := len({method for panel in by_panel.values() for method in panel["method"]} - looks.keys()):
        beside.append(Marks((), (), dashes=NONE, label=f"{others} not drawn"))
    values = sorted({value for panel in by_panel.values() for value in panel["x"]})
    ticks = {value: f"{value:{'.2g' if dots else 'g'}}" for value in values} if log and len(values) <= 6 else None
    width = width_of(len(shown), (4.0, 3.0, 2.4, 1.9))
    return panels(
        name, title, shown, width=width, height=max(1.6, 0.75 * width), x=x, y=y, beside=beside, log=log,
        y_ends=ends, x_ticks=ticks,
    )  # fmt: skip


def _limits(points: pd.DataFrame, whole: Sequence[float]) -> tuple[float, float]:
    """All points and ``whole``, and intervals as far as they do not flatten the lines (two seeds have wide ones)."""
    low, high = limits([*points["y"], *whole], 0.06)
    widest = limits([low, high], 0.55)
    reached = [*points["low"].dropna(), *points["high"].dropna(), low, high]
    return max(min(reached), widest[0]), min(max(reached), widest[1])
