"""Figures of one block (a task at a size): scores of all seeds, paired differences, curves, cost against score."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator, NullLocator

from regft_core import metrics
from regft_core.report.figures.panels import CURVE_POINTS, Curve, Runs, runs
from regft_core.report.figures.svg import ACCENT, BETTER, INK, MUTED, PAPER, WORSE, T, columns_of, panels, text_width
from regft_core.report.formatting import factor, number, unit
from regft_core.report.model import Block, Comparison
from regft_core.report.read_grid import CellData
from regft_core.report.tables import thinned
from regft_core.statistics.verdict import GAIN, LOSS, NONE, SAME

#: Most panels of the phases before fine-tuning.
MOST_PHASES = 12
#: How a method names, in its diagnostics, the loss on held-out rows that its search lowers.
OUTER = ".validation_loss"
WORD_STYLE = {GAIN: (BETTER, "^"), LOSS: (WORSE, "v"), SAME: (MUTED, "o"), NONE: (MUTED, "x")}


def scores(block: Block) -> str:
    """Every seed as a dot, the mean with its interval, a constant answer dotted; one panel per set."""
    shown = {f"{s} (n = {n})": s for s, n in block.sets.items() if any(s in row.scores for row in block.rows)}
    labels = [("↳ " if row.control_for else "") + row.method for row in block.rows]
    metric = block.primary + (" × 100" if factor(block.primary) == 100 else "")
    title = f"Scores of all seeds on {block.title}"
    return _by_set(
        f"scores-{block.name}", title, shown, lambda axis, name: _dots(axis, block, name), labels, 0.3, metric
    )


def _by_set(
    name: str, title: str, shown: Mapping[str, T], draw: Callable[[Any, T], None], labels: Sequence[str],
    height: float, x: str,
) -> str:  # fmt: skip
    """A panel per set, with a row per label."""
    return panels(
        name, title, shown, draw, width={1: 4.6, 2: 3.4, 3: 2.6}.get(columns_of(len(shown)), 2.15),
        height=height * len(labels) + 0.1, x=x, grid="x", labels=labels, left=text_width(labels) + 0.15, bottom=0.45,
    )  # fmt: skip


def _dots(axis: Any, block: Block, name: str) -> None:
    """One set's panel; everything of a kind is drawn at once, which is much faster."""
    scale = factor(block.primary)
    good: list[tuple[float, float]] = []
    bad: list[tuple[float, float]] = []
    means, intervals = [], []
    for y, row in enumerate(block.rows):
        estimate = row.scores[name][block.primary].estimate
        collapsed = set(row.collapsed) if name == "dev" else set()
        # Spread by the position in the list of seeds, so that equal scores do not hide each other.
        offsets = 0.16 * np.linspace(-1, 1, estimate.n) if estimate.n > 1 else np.zeros(1)
        for seed, value, offset in zip(estimate.seeds, estimate.values, offsets):
            (bad if seed in collapsed else good).append((value * scale, y + offset))
        if estimate.n:
            means.append((estimate.mean * scale, y))
        if estimate.interval is not None:
            intervals.append((y, estimate.low * scale, estimate.high * scale))
    _points(axis, good, marker="o", markersize=5, color=ACCENT, alpha=0.6, markeredgewidth=0)
    _points(axis, bad, marker="x", markersize=4, color=WORSE)
    if intervals:
        axis.hlines(*zip(*intervals), colors=INK, linewidth=1.4)
    _points(axis, means, marker="D", markersize=5, color=PAPER, markeredgecolor=INK, markeredgewidth=1.3)
    constant = block.rows[0].scores[name][block.primary].majority
    if math.isfinite(constant):
        axis.axvline(constant * scale, color=MUTED, linewidth=1, linestyle=(0, (1, 2)))
    told = [row.scores[name][block.primary].estimate for row in block.rows if not row.constant]
    ends = (scale * end for e in told if e.n for end in (*e.values, *(e.interval or ())))
    _within(axis, _limits(ends), means, metrics.find(block.primary).digits)


def _limits(ends: Iterable[float]) -> tuple[float, float] | None:
    """The axis for values between these, with a margin; None where there are none."""
    values = [end for end in ends if math.isfinite(end)]
    low, high = min(values, default=0.0), max(values, default=0.0)
    margin = 0.05 * (high - low) or 0.5
    return (low - margin, high + margin) if values else None


def _within(axis: Any, limits: tuple[float, float] | None, means: Iterable[tuple[float, int]], digits: int) -> None:
    """Set the horizontal axis; means (value, row) beyond it are an arrow at the border with their value."""
    if limits is None:
        return
    axis.set_xlim(*limits)
    for value, y in means:
        if value < limits[0]:
            axis.text(limits[0], y, f"◂ {number(value, digits)}", va="center", color=MUTED, fontsize=8)
        elif value > limits[1]:
            axis.text(limits[1], y, f"{number(value, digits)} ▸", va="center", ha="right", color=MUTED, fontsize=8)


def _points(axis: Any, places: Sequence[tuple[float, float]], **looks: Any) -> None:
    if places:
        axis.plot(*zip(*places), linestyle="none", zorder=3, **looks)


def differences(block: Block) -> str:
    """Forest plot: each method minus its controls, its replacements and the reference, one panel per set."""
    found = {(c.method, c.other, c.role, c.set): c for row in block.rows for c in row.comparisons}
    pairs = sorted(dict.fromkeys(key[:3] for key in found), key=lambda pair: pair[2])  # controls come first
    sets = [name for name in block.sets if any(key[3] == name for key in found)]
    shown = {name: [found[(*pair, name)] for pair in pairs] for name in sets}
    labels = [f"{a} − {b}{f' ({role})' * (role != 'reference')}" for a, b, role in pairs]
    title, x, scale = (
        f"Paired differences on {block.title}",
        f"difference in {unit(block.primary)}",
        factor(block.primary),
    )
    constant = {row.method for row in block.rows if row.constant}
    draw = partial(_differences, scale=scale, constant=constant)
    return _by_set(f"differences-{block.name}", title, shown, draw, labels, 0.27, x)


def _differences(axis: Any, comparisons: Sequence[Comparison], scale: float, constant: Collection[str]) -> None:
    """One set's panel; ``constant``: methods whose differences do not set the axis."""
    axis.axvline(0, color=INK, linewidth=0.9)
    for word, (colour, marker) in WORD_STYLE.items():
        chosen = [(y, c) for y, c in enumerate(comparisons) if c.estimate.n and c.verdict.word == word]
        for width, bounds_of in ((0.8, lambda c: c.verdict.interval), (2.4, lambda c: c.estimate.interval)):
            lines = [(y, *(end * scale for end in bounds)) for y, c in chosen if (bounds := bounds_of(c)) is not None]
            if lines:
                axis.hlines(*zip(*lines), colors=colour, linewidth=width)
        means = [(c.estimate.mean * scale, y) for y, c in chosen]
        _points(axis, means, marker=marker, markersize=6, color=colour, markeredgewidth=0.8)
    told = [c for c in comparisons if c.estimate.n and not {c.method, c.other} & set(constant)]
    bounds = [b for c in told for b in (c.verdict.interval, c.estimate.interval, (c.estimate.mean, 0.0)) if b]
    means = [(c.estimate.mean * scale, y) for y, c in enumerate(comparisons) if c.estimate.n]
    digits = metrics.find(comparisons[0].metric).digits
    _within(axis, _limits(end * scale for pair in bounds for end in pair), means, digits)


def cost_and_score(block: Block) -> str:
    """Mean validation score with its interval against declared passes, cheap methods on the left."""
    rows = [row for row in block.rows if row.cost.declared is not None and row.n_ok and "dev" in row.scores]
    points = [
        (
            row.method,
            row.scores["dev"][block.primary].estimate,
            max(row.cost.declared or 0.0, 0.01),
            bool(row.control_for),
        )
        for row in rows
    ]
    told = [row.scores["dev"][block.primary].estimate for row in rows if not row.constant]
    ends = [end for estimate in told for end in (estimate.mean, *(estimate.interval or ()))]
    if len(points) < 2:
        return ""
    scale, costs = factor(block.primary), sorted(cost for *_, cost, _ in points)
    limits, digits = _limits(scale * end for end in ends), metrics.find(block.primary).digits

    def inside(value: float) -> float:
        """A constant answer stands at the border, with its value beside its name."""
        return value if limits is None else min(max(value, limits[0]), limits[1])

    def draw(axis: Any, _: object) -> None:
        if limits is not None:
            axis.set_ylim(*limits)
        axis.set_xscale("log")
        axis.set_xlim(costs[0] / 1.15, costs[-1] * 1.15)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if costs[-1] < 20 * costs[0] else (1,)))
        axis.xaxis.set_minor_locator(NullLocator())
        for _, estimate, cost, hollow in points:
            if estimate.interval is not None:
                axis.plot([cost, cost], [b * scale for b in estimate.interval], color=MUTED, linewidth=0.8)
            face, at = PAPER if hollow else ACCENT, inside(estimate.mean * scale)
            _points(axis, [(cost, at)], marker="o", color=face, markeredgecolor=ACCENT, clip_on=False)
        # Names stand in a column beside the axes, by score, with thin lines to their points.
        order = sorted(points, key=lambda point: point[1].mean)
        for place, (name, estimate, cost, _) in zip(np.linspace(0.02, 0.98, len(order)), order):
            arrow = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.5, "shrinkA": 2, "shrinkB": 4, "alpha": 0.6}
            mean = estimate.mean * scale
            beyond = "" if inside(mean) == mean else f" {'↓' if mean < inside(mean) else '↑'} {number(mean, digits)}"
            axis.annotate(
                name + beyond, xy=(cost, inside(mean)), xytext=(1.05, place), textcoords="axes fraction",
                va="center", annotation_clip=False, arrowprops=arrow,
            )  # fmt: skip

    x, y = "declared passes, plain fine-tuning = 1, all phases included", f"{block.primary} on dev"
    return panels(
        f"cost-{block.name}", f"Score against cost on {block.title}", {"": None}, draw, width=4.6,
        height=max(2.4, 0.21 * len(points) + 0.3), x=x, y=y, left=0.7,
        right=text_width([name for name, *_ in points]) + 1.0, top=0.2,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------ curves


def learning_curves(block: Block) -> str:
    """Loss of the fine-tuning phase, one panel per method on one scale."""
    shown = {row.method: [Runs("loss", _losses(row, "finetune"))] for row in block.rows}
    name = f"curves-{block.name}"
    return runs(name, f"Training loss on {block.title}", shown, x="step", y="loss", shared=True)


def search_curves(block: Block) -> str:
    """Inner (training) and outer (held-out) loss of the phases before fine-tuning, a panel per method and phase."""
    shown: dict[str, list[Runs]] = {}
    for row in block.rows:
        for phase in dict.fromkeys(point.phase for point in row.curves or () if point.phase != "finetune"):
            logged = (o for o in row.diagnostics if o.phase == phase and o.name.endswith(OUTER))
            outer = _dashed("outer", _curves((o.seed, o.step, o.value) for o in logged))
            shown[f"{row.method}, {phase}"] = [Runs("inner", _losses(row, phase)), outer]
    shown = dict(list(shown.items())[:MOST_PHASES])
    title = f"Loss of the phases before fine-tuning on {block.title}"
    return runs(f"search-{block.name}", title, shown, x="step", y="loss")


def epoch_curves(block: Block) -> str:
    """Primary metric after every epoch, one panel per method on one scale; nothing where no run took it."""
    taken = {row.method: epochs(row, block.primary) for row in block.rows}
    shown = {
        name: [Runs("dev", own.get("dev", [])), _dashed("set aside", own.get("held_out", []))]
        for name, own in taken.items()
    }
    title = f"Score by epoch on {block.title}"
    return runs(f"epochs-{block.name}", title, shown, x="epoch", y=block.primary, shared=True)


def epochs(cell: CellData, metric: str) -> dict[str, list[Curve]]:
    """Rows that were scored (``dev``, ``held_out``) -> a curve per run and member with at least one score."""
    points: dict[str, list[tuple[Any, float, float | None]]] = {}
    for run in cell.finetune.runs:
        if run.epoch_scores is not None and run.epoch_scores.metric == metric:
            for phase, rows, _, epoch, score in run.epoch_scores.scores:
                scaled = None if score is None else score * factor(metric)
                points.setdefault(rows, []).append(((run.seed, phase), epoch, scaled))
    return {rows: curves for rows, own in points.items() if (curves := _curves(own))}


def _dashed(label: str, curves: Sequence[Curve]) -> Runs:
    return Runs(label, curves, WORSE, WORSE, (0, (4, 1.5)))


def _losses(cell: CellData, phase: str) -> list[Curve]:
    points = thinned([point for point in cell.curves or () if point.phase == phase], CURVE_POINTS)
    return _curves((point.seed, point.step, point.loss) for point in points)


def _curves(points: Iterable[tuple[Any, float, float | None]]) -> list[Curve]:
    """Steps and finite values of each run, from (run, step, value)."""
    by_run: dict[Any, list[tuple[float, float]]] = {}
    for run, step, value in points:
        if value is not None and math.isfinite(value):
            by_run.setdefault(run, []).append((float(step), float(value)))
    return [tuple(np.array(sorted(by_run[run])).T) for run in sorted(by_run)]
