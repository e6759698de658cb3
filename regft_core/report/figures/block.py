"""Figures of one block (a task at a size): scores of all seeds, paired differences, curves, cost against score."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator, NullLocator

from regft_core.report.figures.panels import CURVE_POINTS, Curve, Runs, grid, runs
from regft_core.report.figures.svg import ACCENT, BETTER, INK, MUTED, PAPER, WORSE, canvas, style, text_width, to_svg
from regft_core.report.model import Block, Comparison
from regft_core.report.page.formatting import factor, listed, unit
from regft_core.report.read_grid import BlockData, CellData
from regft_core.runs.work import CurvePoint
from regft_core.statistics.verdict import GAIN, LOSS, NONE, SAME

#: Most points per run and phase in ``curves.csv``; a full-size run has tens of thousands of steps.
POINTS = 500
#: Most panels of the phases before fine-tuning.
MOST_PHASES = 12
#: How a method names, in its diagnostics, the loss on held-out rows that its search lowers.
OUTER = ".validation_loss"
WORD_STYLE = {GAIN: (BETTER, "^"), LOSS: (WORSE, "v"), SAME: (MUTED, "o"), NONE: (MUTED, "x")}


def scores(block: Block) -> str:
    """Every seed as a dot, the mean with its interval, a constant answer dotted; one panel per set."""
    shown = [name for name in block.sets if any(name in row.scores for row in block.rows)]
    labels = [("↳ " if row.control_for else "") + row.method for row in block.rows]
    label = block.primary + (" × 100" if factor(block.primary) == 100 else "")
    figure = _by_set(f"scores-{block.name}", shown, labels, 0.3, label)
    if figure is None:
        return ""
    with style(f"scores-{block.name}"):
        for axis, name in zip(figure.axes, shown):
            axis.set_title(f"{name} (n = {block.sets[name]})", loc="left")
            _dots(axis, block, name)
        return to_svg(figure, f"scores-{block.name}", f"Scores of all seeds on {block.title}")


def _by_set(name: str, shown: Sequence[str], labels: Sequence[str], height: float, x: str) -> Any:
    """Panels with a row per label, one panel per set; None without sets or rows."""
    if not shown or not labels:
        return None
    columns, rows = grid(len(shown))
    with style(name):
        figure, axes = canvas(
            columns, rows, len(shown), width={1: 4.6, 2: 3.4, 3: 2.6}.get(columns, 2.15),
            height=height * len(labels) + 0.1, left=text_width(labels) + 0.15, bottom=0.45,
        )  # fmt: skip
        for i, axis in enumerate(axes[: len(shown)]):
            axis.set_ylim(len(labels) - 0.5, -0.5)
            axis.set_yticks(range(len(labels)), labels if i % columns == 0 else [""] * len(labels))
            axis.grid(axis="x")
            axis.locator_params(axis="x", nbins=6)
            axis.spines["left"].set_visible(False)
            axis.set_xlabel(x if i >= len(shown) - columns else "")
    return figure


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
    constant = next((row.scores[name][block.primary].majority for row in block.rows), math.nan)
    if math.isfinite(constant):
        axis.axvline(constant * scale, color=MUTED, linewidth=1, linestyle=(0, (1, 2)))


def _points(axis: Any, places: Sequence[tuple[float, float]], **looks: Any) -> None:
    if places:
        axis.plot(*zip(*places), linestyle="none", zorder=3, **looks)


def differences(block: Block) -> str:
    """Forest plot: each method minus its controls and minus the reference, one panel per set."""
    found = {(c.method, c.other, c.role, c.set): c for row in block.rows for c in row.comparisons}
    pairs = sorted(dict.fromkeys(key[:3] for key in found), key=lambda pair: pair[2] != "control")
    shown = [name for name in block.sets if any(key[3] == name for key in found)]
    labels = [f"{a} − {b}{' (control)' if role == 'control' else ''}" for a, b, role in pairs]
    figure = _by_set(f"differences-{block.name}", shown, labels, 0.27, f"difference in {unit(block.primary)}")
    if figure is None:
        return ""
    with style(f"differences-{block.name}"):
        for axis, name in zip(figure.axes, shown):
            axis.set_title(name, loc="left")
            axis.axvline(0, color=INK, linewidth=0.9)
            _differences(axis, [found[(*pair, name)] for pair in pairs])
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


def cost_and_score(block: Block) -> str:
    """Mean validation score with its interval against declared passes, cheap methods on the left."""
    points = [
        (row.method, row.scores["dev"][block.primary], max(row.cost.declared, 0.01), bool(row.control_for))
        for row in block.rows
        if row.cost.declared is not None and row.n_ok and "dev" in row.scores
    ]
    if len(points) < 2:
        return ""
    scale, names = factor(block.primary), [name for name, *_ in points]
    with style(f"cost-{block.name}"):
        height = max(2.4, 0.21 * len(points) + 0.3)
        right = text_width(names) + 0.75
        figure, (axis,) = canvas(1, 1, 1, width=4.6, height=height, left=0.7, right=right, top=0.2)
        axis.set_xscale("log")
        costs = sorted(cost for *_, cost, _ in points)
        axis.set_xlim(costs[0] / 1.15, costs[-1] * 1.15)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if costs[-1] < 20 * costs[0] else (1,)))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.grid()
        axis.set_xlabel("declared passes, plain fine-tuning = 1, all phases included")
        axis.set_ylabel(f"{block.primary} on dev")
        for _, score, cost, hollow in points:
            if score.interval is not None:
                axis.plot([cost, cost], [b * scale for b in score.interval], color=MUTED, linewidth=0.8)
            face = PAPER if hollow else ACCENT
            _points(axis, [(cost, score.estimate.mean * scale)], marker="o", color=face, markeredgecolor=ACCENT)
        # Names stand in a column beside the axes, by score, with thin lines to their points.
        order = sorted(points, key=lambda point: point[1].estimate.mean)
        for place, (name, score, cost, _) in zip(np.linspace(0.02, 0.98, len(order)), order):
            arrow = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.5, "shrinkA": 2, "shrinkB": 4, "alpha": 0.6}
            axis.annotate(
                name, xy=(cost, score.estimate.mean * scale), xytext=(1.05, place), textcoords="axes fraction",
                va="center", annotation_clip=False, arrowprops=arrow,
            )  # fmt: skip
        return to_svg(figure, f"cost-{block.name}", f"Score against cost on {block.title}")


# ------------------------------------------------------------------------------------------ curves


def learning_curves(block: Block, data: BlockData) -> str:
    """Loss of the fine-tuning phase, one panel per method on one scale."""
    shown = {row.method: [Runs("loss", _losses(data.cells[row.method], "finetune"))] for row in block.rows}
    name = f"curves-{block.name}"
    return runs(name, f"Training loss on {block.title}", shown, x="step", y="loss", shared=True)


def search_curves(block: Block, data: BlockData) -> str:
    """Inner (training) and outer (held-out) loss of the phases before fine-tuning, a panel per method and phase."""
    shown: dict[str, list[Runs]] = {}
    for row in block.rows:
        cell = data.cells[row.method]
        for phase in dict.fromkeys(point.phase for point in cell.curves or () if point.phase != "finetune"):
            outer = Runs("outer", _outer(cell, phase), WORSE, WORSE, (0, (4, 1.5)))
            shown[f"{row.method}, {phase}"] = [Runs("inner", _losses(cell, phase)), outer]
    shown = dict(list(shown.items())[:MOST_PHASES])
    title = f"Loss of the phases before fine-tuning on {block.title}"
    return runs(f"search-{block.name}", title, shown, x="step", y="loss")


def epoch_curves(block: Block, data: BlockData) -> str:
    """Primary metric after every epoch, one panel per method on one scale; nothing where no run took it."""
    shown = {}
    for row in block.rows:
        found = _epochs(data.cells[row.method], block.primary)
        dev = Runs("dev", found.get("dev", []))
        shown[row.method] = [dev, Runs("set aside", found.get("held_out", []), WORSE, WORSE, (0, (4, 1.5)))]
    title = f"Score by epoch on {block.title}"
    return runs(f"epochs-{block.name}", title, shown, x="epoch", y=block.primary, shared=True)


def epoch_note(block: Block, data: BlockData) -> str:
    """Return on which rows the scores by epoch were taken, and whether an epoch was chosen by them."""
    taken = {row.method: _epochs(data.cells[row.method], block.primary) for row in block.rows}
    rules = {name: data.cells[name].finetune.training.get("checkpoint", "last") for name in taken}
    chosen_on_dev = [name for name, own in taken.items() if own and rules[name] == "best_on_dev_as_published"]
    held_out = [name for name, own in taken.items() if "held_out" in own]
    shown_only = [name for name, own in taken.items() if "dev" in own and name not in chosen_on_dev]
    sentences = [
        f"Score ({block.primary}) after every epoch of fine-tuning, before what a method makes of its weights after "
        "the last step; thin lines are seeds, the thick line is their mean."
    ]
    if shown_only:
        whose = f" of {listed(shown_only)}" if chosen_on_dev else ""
        sentences.append(f"Scores on the validation set{whose} are shown only: no epoch was chosen by them.")
    if chosen_on_dev:
        sentences.append(f"The validation set chose the epoch of {listed(chosen_on_dev)}, as published.")
    if held_out:
        sentences.append(f"Dashed: training rows set aside, which chose the epoch of {listed(held_out)}.")
    return " ".join(sentences)


def _epochs(cell: CellData, metric: str) -> dict[str, list[Curve]]:
    """Rows that were scored (``dev``, ``held_out``) -> a curve per run and member with at least one score."""
    points: dict[str, list[tuple[Any, float, float | None]]] = {}
    for run in cell.finetune.runs:
        if run.epoch_scores is not None and run.epoch_scores.metric == metric:
            for phase, rows, _, epoch, score in run.epoch_scores.scores:
                scaled = None if score is None else score * factor(metric)
                points.setdefault(rows, []).append(((run.seed, phase), epoch, scaled))
    return {rows: curves for rows, own in points.items() if (curves := _curves(own))}


def _losses(cell: CellData, phase: str) -> list[Curve]:
    points = thinned([point for point in cell.curves or () if point.phase == phase], CURVE_POINTS)
    return _curves((point.seed, point.step, point.loss) for point in points)


def _outer(cell: CellData, phase: str) -> list[Curve]:
    points = (one for one in cell.diagnostics if one.phase == phase and one.name.endswith(OUTER))
    return _curves((one.seed, one.step, one.value) for one in points)


def _curves(points: Iterable[tuple[Any, float, float | None]]) -> list[Curve]:
    """Steps and finite values of each run, from (run, step, value)."""
    runs: dict[Any, list[tuple[float, float]]] = {}
    for run, step, value in points:
        if value is not None and math.isfinite(value):
            runs.setdefault(run, []).append((float(step), float(value)))
    return [tuple(np.array(sorted(runs[run])).T) for run in sorted(runs)]


def thinned(points: Sequence[CurvePoint], most: int = POINTS) -> list[CurvePoint]:
    """Return ``points`` as they are, or at most ``most`` per (seed, phase), each the mean of a bin of steps.

    A loss that was not finite stays missing only when its whole bin was.
    """
    found: list[CurvePoint] = []
    for _, group in groupby(sorted(points, key=lambda p: (p.seed, p.phase, p.step)), lambda p: (p.seed, p.phase)):
        run = list(group)
        if len(run) <= most:
            found += run
            continue
        for part in np.array_split(np.arange(len(run)), most):
            own = [run[i] for i in part]
            means = [_mean([getattr(p, name) for p in own]) for name in ("loss", "learning_rate", "gradient_norm")]
            found.append(CurvePoint(own[-1].seed, own[-1].phase, own[-1].step, *means))
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and np.isfinite(value)]
    return float(np.mean(known)) if known else None
