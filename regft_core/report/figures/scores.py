"""The figures of one block, as SVG: all seeds, paired differences, curves, cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from regft_core.report.figures.curves import thinned
from regft_core.report.figures.svg import ACCENT, BETTER, INK, MUTED, PAPER, WORSE, panels, style, text_width, to_svg
from regft_core.report.model import Block, Comparison
from regft_core.report.page.formatting import factor, unit
from regft_core.report.read_grid import BlockData
from regft_core.runs.results.logs import CurvePoint
from regft_core.statistics.verdict import GAIN, LOSS, NONE, SAME

COLUMNS = 4
#: Points per line in a figure; ``curves.csv`` has more.
CURVE_POINTS = 60
WORD_STYLE = {GAIN: (BETTER, "^"), LOSS: (WORSE, "v"), SAME: (MUTED, "o"), NONE: (MUTED, "x")}


def grid(count: int) -> tuple[int, int]:
    """Columns and rows of so many panels."""
    columns = min(count, COLUMNS)
    return columns, math.ceil(count / columns)


def panel_width(columns: int) -> float:
    """Inches of one panel: fewer panels are wider."""
    return {1: 4.6, 2: 3.4, 3: 2.6}.get(columns, 2.15)


def _label_rows(axes: Sequence[Any], columns: int, labels: Sequence[str]) -> None:
    """Methods from top to bottom; only the first panel of a row spells them out."""
    for i, axis in enumerate(axes):
        axis.set_ylim(len(labels) - 0.5, -0.5)
        axis.set_yticks(range(len(labels)), labels if i % columns == 0 else [""] * len(labels))
        axis.tick_params(length=0)
        axis.grid(axis="x")
        axis.locator_params(axis="x", nbins=6)
        axis.spines["left"].set_visible(False)


def scores(block: Block) -> str:
    """Every seed as a dot, the mean with its interval, the majority baseline dotted; one panel per set."""
    shown = [name for name in block.sets if any(name in row.scores for row in block.rows)]
    if not shown:
        return ""
    labels = [("↳ " if row.control_for else "") + row.method for row in block.rows]
    columns, rows = grid(len(shown))
    with style(f"scores-{block.name}"):
        figure, axes = panels(
            columns,
            rows,
            width=panel_width(columns),
            height=0.3 * len(labels) + 0.1,
            left=text_width(labels) + 0.15,
            bottom=0.45,
        )
        _label_rows(axes, columns, labels)
        for axis, name in zip(axes, shown):
            axis.set_title(f"{name} (n = {block.sets[name]})", loc="left")
            _dots(axis, block, name)
        for axis in axes[len(shown) :]:
            axis.set_visible(False)
        for axis in axes[max(0, len(shown) - columns) : len(shown)]:
            axis.set_xlabel(block.primary + (" × 100" if factor(block.primary) == 100 else ""))
        return to_svg(figure, f"scores-{block.name}", f"Scores of all seeds on {block.title}")


def _dots(axis: Any, block: Block, name: str) -> None:
    """One set's panel; everything of a kind is drawn at once, which is much faster."""
    scale = factor(block.primary)
    good: list[tuple[float, float]] = []
    bad: list[tuple[float, float]] = []
    means, intervals = [], []
    for y, row in enumerate(block.rows):
        score = row.scores[name][block.primary]
        collapsed = {seed for seed, _ in row.collapsed} if name == "dev" else set()
        # Spread by the position in the list of seeds, so that equal scores do not hide each other.
        offsets = 0.16 * np.linspace(-1, 1, score.estimate.n) if score.estimate.n > 1 else np.zeros(1)
        for seed, value, offset in zip(score.estimate.seeds, score.estimate.values, offsets):
            (bad if seed in collapsed else good).append((value * scale, y + offset))
        if score.estimate.n:
            means.append((score.estimate.mean * scale, y))
        if score.interval is not None:
            intervals.append((y, score.interval[0] * scale, score.interval[1] * scale))
    _points(axis, good, marker="o", markersize=5, color=ACCENT, alpha=0.6, markeredgewidth=0)
    _points(axis, bad, marker="x", markersize=4, color=WORSE)
    if intervals:
        axis.hlines(*zip(*intervals), colors=INK, linewidth=1.4)
    _points(axis, means, marker="D", markersize=5, color=PAPER, markeredgecolor=INK, markeredgewidth=1.3)
    majority = next((row.scores[name][block.primary].majority for row in block.rows), math.nan)
    if math.isfinite(majority):
        axis.axvline(majority * scale, color=MUTED, linewidth=1, linestyle=(0, (1, 2)))


def _points(axis: Any, places: Sequence[tuple[float, float]], **looks: Any) -> None:
    if places:
        axis.plot(*zip(*places), linestyle="none", zorder=3, **looks)


def differences(block: Block) -> str:
    """Forest plot: each method minus its controls and minus the reference, one panel per set."""
    pairs = [(c.method, c.other, c.role) for row in block.rows for c in row.comparisons]
    pairs = sorted(dict.fromkeys(pairs), key=lambda pair: pair[2] != "control")
    shown = [name for name in block.sets if any(c.set == name for row in block.rows for c in row.comparisons)]
    if not pairs or not shown:
        return ""
    found: dict[tuple[str, str, str, str], Comparison] = {
        (c.method, c.other, c.role, c.set): c for row in block.rows for c in row.comparisons
    }
    labels = [f"{a} − {b}{' (control)' if role == 'control' else ''}" for a, b, role in pairs]
    columns, rows = grid(len(shown))
    with style(f"differences-{block.name}"):
        figure, axes = panels(
            columns,
            rows,
            width=panel_width(columns),
            height=0.27 * len(labels) + 0.1,
            left=text_width(labels) + 0.15,
            bottom=0.45,
        )
        _label_rows(axes, columns, labels)
        for axis, name in zip(axes, shown):
            axis.set_title(name, loc="left")
            axis.axvline(0, color=INK, linewidth=0.9)
            _differences(axis, [found[(*pair, name)] for pair in pairs])
        for axis in axes[len(shown) :]:
            axis.set_visible(False)
        for axis in axes[max(0, len(shown) - columns) : len(shown)]:
            axis.set_xlabel(f"difference in {unit(block.primary)}")
        return to_svg(figure, f"differences-{block.name}", f"Paired differences on {block.title}")


def _differences(axis: Any, comparisons: Sequence[Comparison]) -> None:
    for word, (colour, marker) in WORD_STYLE.items():
        chosen = [(y, c) for y, c in enumerate(comparisons) if c.estimate.n and c.verdict.word == word]
        for width, bounds_of in ((0.8, lambda c: c.verdict.interval), (2.4, lambda c: c.pointwise)):
            bounded = [(y, bounds_of(c), factor(c.metric)) for y, c in chosen]
            lines = [(y, bounds[0] * scale, bounds[1] * scale) for y, bounds, scale in bounded if bounds is not None]
            if lines:
                axis.hlines(*zip(*lines), colors=colour, linewidth=width)
        means = [(c.estimate.mean * factor(c.metric), y) for y, c in chosen]
        _points(axis, means, marker=marker, markersize=6, color=colour, markeredgewidth=0.8)


def learning_curves(block: Block, data: BlockData) -> str:
    """Loss of the fine-tuning phase: seeds thin, their mean thick, one panel per method on one scale."""
    runs = {row.method: _losses(data.cells[row.method].curves or (), block) for row in block.rows}
    shown = [row.method for row in block.rows if runs[row.method]]
    if not shown:
        return ""
    columns, rows = grid(len(shown))
    every = np.concatenate([loss for name in shown for _, loss in runs[name]])
    # One run that diverged must not flatten all others.
    top = min(float(every.max()), 1.5 * float(np.quantile(every, 0.98)) + 1e-9)
    bottom = min(0.0, float(every.min()))
    with style(f"curves-{block.name}"):
        figure, axes = panels(columns, rows, width=2.15, height=1.25, left=0.55, gap=0.3, row_gap=0.55, bottom=0.45)
        for i, (axis, name) in enumerate(zip(axes, shown)):
            axis.set_title(name, loc="left")
            axis.grid(axis="y")
            axis.tick_params(length=0)
            axis.locator_params(nbins=4)
            axis.set_ylim(bottom, top * 1.05)
            if i % columns:
                axis.set_yticklabels([])
            else:
                axis.set_ylabel("loss")
            if i >= len(shown) - columns:
                axis.set_xlabel("step")
            for steps, loss in runs[name]:
                axis.plot(steps, loss, color=ACCENT, alpha=0.3, linewidth=0.7)
            last = max(float(steps[-1]) for steps, _ in runs[name])
            common = np.linspace(max(float(s[0]) for s, _ in runs[name]), last, CURVE_POINTS)
            # A seed that stopped early counts as far as it went.
            values = np.array([np.interp(common, s, v, right=np.nan) for s, v in runs[name]])
            axis.plot(common, np.nanmean(values, axis=0), color=INK, linewidth=1.4)
        for axis in axes[len(shown) :]:
            axis.set_visible(False)
        return to_svg(figure, f"curves-{block.name}", f"Training loss on {block.title}")


def _losses(points: Sequence[CurvePoint], block: Block) -> list[tuple[np.ndarray, np.ndarray]]:
    found = []
    own = thinned([p for p in points if p.phase == "finetune"], CURVE_POINTS)
    for seed in sorted({p.seed for p in own}):
        run = [(p.step, p.loss) for p in own if p.seed == seed and p.loss is not None and math.isfinite(p.loss)]
        if run:
            found.append((np.array([step for step, _ in run], dtype=float), np.array([loss for _, loss in run])))
    return found


#: Arms that cost less, such as a constant answer, stand here: the axis is logarithmic.
_SMALLEST_COST = 0.01


def cost_and_score(block: Block) -> str:
    """Mean development score with interval against measured cost; names beside the points, never over them."""
    points = []
    for row in block.rows:
        score = row.scores.get("dev", {}).get(block.primary)
        if score is not None and score.estimate.n and row.cost.measured is not None:
            points.append((row, score, max(row.cost.measured, _SMALLEST_COST)))
    if len(points) < 2:
        return ""
    scale = factor(block.primary)
    names = [row.method for row, _, _ in points]
    with style(f"cost-{block.name}"):
        height = max(2.4, 0.21 * len(points) + 0.3)
        figure, (axis,) = panels(1, 1, width=4.6, height=height, left=0.7, right=text_width(names) + 0.75, top=0.2)
        axis.set_xscale("log")
        costs = [cost for _, _, cost in points]
        axis.set_xlim(min(costs) / 1.15, max(costs) * 1.15)
        wide = max(costs) > 50 * min(costs)
        marks = (_SMALLEST_COST, 0.1, 1, 10, 100) if wide else (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32)
        ticks = [t for t in marks if axis.get_xlim()[0] <= t]
        ticks = [t for t in ticks if t <= axis.get_xlim()[1]] or [round(float(np.median(costs)), 2)]
        axis.set_xticks(ticks, [f"{'≤' if t == _SMALLEST_COST else ''}{t:g}×" for t in ticks])
        axis.set_xticks([], minor=True)
        axis.grid()
        axis.tick_params(length=0)
        axis.set_xlabel("measured training time, plain fine-tuning = 1, search included")
        axis.set_ylabel(f"{block.primary} on dev")
        for row, score, cost in points:
            if score.interval is not None:
                axis.plot([cost, cost], [b * scale for b in score.interval], color=MUTED, linewidth=0.8)
            axis.scatter(
                [cost], [score.estimate.mean * scale], s=24, zorder=3,
                color=PAPER if row.control_for else ACCENT, edgecolors=ACCENT, linewidths=1.2,
            )  # fmt: skip
        _names_beside(axis, [(cost, score.estimate.mean * scale, row.method) for row, score, cost in points], height)
        return to_svg(figure, f"cost-{block.name}", f"Score against cost on {block.title}")


def _names_beside(axis: Any, points: Sequence[tuple[float, float, str]], height: float) -> None:
    """Write the names in a column right of the axes, pushed apart, with thin leaders to the points."""
    low, high = axis.get_ylim()
    axis.set_ylim(low, high)
    places = sorted(((y - low) / (high - low), x, name) for x, y, name in points)
    spacing = 0.19 / height
    heights: list[float] = []
    for wanted, _, _ in places:
        heights.append(max(wanted, heights[-1] + spacing) if heights else wanted)
    over = heights[-1] - 1.0
    if over > 0:
        heights[-1] -= over
        for i in range(len(heights) - 2, -1, -1):
            heights[i] = min(heights[i], heights[i + 1] - spacing)
    for (wanted, x, name), at in zip(places, heights):
        axis.annotate(
            name,
            xy=(x, low + wanted * (high - low)),
            xytext=(1.05, at),
            textcoords="axes fraction",
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.5, "shrinkA": 2, "shrinkB": 4, "alpha": 0.6},
        )
