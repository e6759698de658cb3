"""Loss of the phases before fine-tuning, and of a two-level search the outer loss that it lowers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from regft_core.report.figures.curves import thinned
from regft_core.report.figures.scores import CURVE_POINTS, grid
from regft_core.report.figures.svg import ACCENT, INK, WORSE, panels, style, to_svg
from regft_core.report.model import Block
from regft_core.report.read_grid import BlockData
from regft_core.runs.results.logs import CurvePoint, Logged

#: Most panels: phases of so many arms.
MOST = 12
#: How a method names, in its diagnostics, the loss on held-out rows that its search lowers.
OUTER = ".validation_loss"
_Line = tuple[Sequence[float], Sequence[float]]


def search_curves(block: Block, data: BlockData, picked: Sequence[str]) -> str:
    """Inner (training) and outer (held-out) loss, one panel per arm and phase; nothing without such phases.

    Args:
        picked: the arms that come first where there are too many.
    """
    order = [row.method for row in block.rows]
    order = [name for name in order if name in picked] + [name for name in order if name not in picked]
    shown = [
        (f"{name}, {phase}", inner, outer)
        for name in order
        for phase in _phases(data.cells[name].curves or ())
        for inner, outer in [
            (_inner(data.cells[name].curves or (), phase), _outer(data.cells[name].diagnostics, phase))
        ]
        if inner or outer
    ][:MOST]
    if not shown:
        return ""
    columns, rows = grid(len(shown))
    name = f"search-{block.name}"
    with style(name):
        figure, axes = panels(columns, rows, width=2.15, height=1.25, left=0.55, gap=0.45, row_gap=0.55, bottom=0.45)
        for i, (axis, (title, inner, outer)) in enumerate(zip(axes, shown)):
            axis.set_title(title, loc="left", fontsize=8.5)
            axis.grid(axis="y")
            axis.tick_params(length=0)
            axis.locator_params(nbins=4)
            if i % columns == 0:
                axis.set_ylabel("loss")
            if i >= len(shown) - columns:
                axis.set_xlabel("step")
            _seeds_and_mean(axis, inner, "inner", ACCENT, INK, "-")
            _seeds_and_mean(axis, outer, "outer", WORSE, WORSE, (0, (4, 1.5)))
            if outer:
                axis.legend(frameon=False, fontsize=7, labelcolor=INK)
        for axis in axes[len(shown) :]:
            axis.set_visible(False)
        return to_svg(figure, name, f"Loss of the phases before fine-tuning on {block.title}")


def _phases(points: Sequence[CurvePoint]) -> list[str]:
    return [phase for phase in dict.fromkeys(point.phase for point in points) if phase != "finetune"]


def _inner(points: Sequence[CurvePoint], phase: str) -> list[_Line]:
    found: list[_Line] = []
    own = thinned([point for point in points if point.phase == phase], CURVE_POINTS)
    for seed in sorted({point.seed for point in own}):
        run = [(p.step, p.loss) for p in own if p.seed == seed and p.loss is not None and math.isfinite(p.loss)]
        if run:
            found.append(([float(step) for step, _ in run], [float(loss) for _, loss in run]))
    return found


def _outer(diagnostics: Sequence[Logged], phase: str) -> list[_Line]:
    found: dict[int, list[tuple[int, float]]] = {}
    for seed, where, step, name, value in diagnostics:
        if where == phase and name.endswith(OUTER) and math.isfinite(value):
            found.setdefault(seed, []).append((step, value))
    runs = [sorted(found[seed]) for seed in sorted(found)]
    return [([float(step) for step, _ in run], [value for _, value in run]) for run in runs]


def _seeds_and_mean(axis: Any, lines: Sequence[_Line], label: str, thin: str, thick: str, dashes: Any) -> None:
    """Seeds thin, their mean over the steps that all of them have thick."""
    if not lines:
        return
    for steps, values in lines:
        axis.plot(steps, values, color=thin, alpha=0.3, linewidth=0.7)
    first, last = max(steps[0] for steps, _ in lines), min(steps[-1] for steps, _ in lines)
    common = np.linspace(first, max(first, last), CURVE_POINTS)
    mean = np.mean([np.interp(common, steps, values) for steps, values in lines], axis=0)
    # A short search logs its outer loss once: a line of one point would not be seen.
    marker = "o" if first >= last else ""
    axis.plot(common, mean, color=thick, linewidth=1.4, linestyle=dashes, marker=marker, markersize=4, label=label)
