"""Panels of violins: how a number is spread, side by side for the arms, at each place of an axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.patches import Patch

from regft_core.report.figures.svg import INK, PAPER, legend_beside, panels, style, text_width, to_svg
from regft_core.report.page.emphasis import HATCHES, LOOKS, Look

COLUMNS = 2
#: Of the room at one place of the axis, what the violins of all arms take together.
_ROOM = 0.84


@dataclass(frozen=True)
class ViolinPanel:
    """One panel: arm -> place on the axis -> values."""

    title: str
    arms: Mapping[str, Mapping[float, Sequence[float]]]


def violins(name: str, title: str, shown: Sequence[ViolinPanel], picked: Sequence[str], *, x: str, y: str) -> str:
    """The figure as SVG; nothing when no panel has a value.

    Each violin has its mean as a dot. Arms that are not ``picked`` are not drawn; the legend counts them.
    """
    shown = [panel for panel in shown if any(panel.arms.values())]
    looks = {arm: look for arm, look in zip(picked, LOOKS) if any(panel.arms.get(arm) for panel in shown)}
    if not looks:
        return ""
    others = {arm for panel in shown for arm in panel.arms} - looks.keys()
    legend = [Patch(facecolor=look.color, alpha=0.45, hatch=HATCHES[i]) for i, look in enumerate(looks.values())]
    labels = [*looks]
    if others:
        legend.append(Patch(facecolor="none"))
        labels.append(f"{len(others)} not drawn")
    columns = min(len(shown), COLUMNS)
    right = text_width(labels) + 0.6
    with style(name):
        figure, axes = panels(
            columns, math.ceil(len(shown) / columns), width=4.0 if columns == 1 else 3.2, height=2.4, left=0.85,
            right=right, gap=0.65, row_gap=0.6,
        )  # fmt: skip
        for i, (axis, panel) in enumerate(zip(axes, shown)):
            axis.set_title(panel.title, loc="left")
            axis.grid(axis="y")
            axis.tick_params(length=0)
            _panel(axis, panel, looks)
            axis.set_xlabel(x)
            if i % columns == 0:
                axis.set_ylabel(y)
        legend_beside(figure, axes[len(shown) :], legend, labels, right, handlelength=1.6)
        return to_svg(figure, name, title)


def _panel(axis: Any, panel: ViolinPanel, looks: Mapping[str, Look]) -> None:
    places = sorted({place for values in panel.arms.values() for place in values})
    width = _ROOM / len(looks)
    for i, (arm, look) in enumerate(looks.items()):
        own = panel.arms.get(arm, {})
        at = {place: places.index(place) - _ROOM / 2 + (i + 0.5) * width for place in places if own.get(place)}
        if not at:
            continue
        drawn = axis.violinplot([own[place] for place in at], [*at.values()], widths=0.9 * width, showextrema=False)
        for body in drawn["bodies"]:
            body.set(facecolor=look.color, edgecolor=INK, linewidth=0.5, alpha=0.45, hatch=HATCHES[i])
        means = [sum(own[place]) / len(own[place]) for place in at]
        axis.plot(
            [*at.values()], means, linestyle="none", marker=look.marker, markersize=4, color=INK, markeredgecolor=PAPER
        )
    axis.set_xticks(range(len(places)), [f"{place:g}" for place in places])
    axis.locator_params(axis="y", nbins=5)
