"""Figures of one block (a task at a size): scores of all seeds, paired differences, curves, cost, answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from regft_core import metrics
from regft_core.report.figures import ACCENT, BETTER, INK, MUTED, PAPER, WORSE
from regft_core.report.figures.charts import NONE, POINT, Marks, limits, lines, named, panels, width_of
from regft_core.report.formatting import factor
from regft_core.report.read_grid import CellData
from regft_core.report.results import thinned
from regft_core.report.values import Block, Comparison
from regft_core.report.wrong_answers import SetAnswers
from regft_core.statistics.confidence import equal_mass
from regft_core.statistics.verdict import GAIN, LOSS, SAME
from regft_core.statistics.verdict import NONE as NO_VERDICT

#: Most panels of the phases before fine-tuning, and points of a curve; ``curves.csv`` has more.
MOST_PHASES, CURVE_POINTS = 12, 60
#: How a method names, in its diagnostics, the loss on held-out rows that its search lowers.
OUTER = ".validation_loss"
#: Bins of the reliability figure, with equally many answers; and of the histogram of errors.
BINS, ERRORS = 10, 25
VERDICT_LOOKS = {GAIN: (BETTER, "^"), LOSS: (WORSE, "v"), SAME: (MUTED, "o"), NO_VERDICT: (MUTED, "x")}


def figures(block: Block) -> dict[str, str]:
    """Name -> SVG of each figure; empty where there is nothing to draw."""
    return {
        "scores": scores(block),
        "differences": differences(block),
        "curves": learning_curves(block),
        "cost": cost_and_score(block),
        "search": search_curves(block),
        "epochs": epoch_curves(block),
    }


def scores(block: Block) -> str:
    """Every seed as a dot, the mean with its interval, a constant answer dotted; one panel per set."""
    told = [row for row in block.rows if not row.constant]  # a constant answer does not stretch the axis
    shown, ends = dict[str, list[Marks]](), dict[str, list[float]]()
    for name in block.set_rows:
        title = f"{name} (n = {block.sets[name]})"
        shown[title] = _dots(block, name)
        estimates = (row.scores[name][block.primary].estimate for row in told)
        ends[title] = [end for e in estimates if e.n for end in (*e.values, *(e.interval or ()))]
    labels = [("↳ " if row.control_for else "") + row.method for row in block.rows]
    x = block.primary + (" × 100" if factor(block.primary) == 100 else "")
    return _by_set(f"scores-{block.name}", f"Scores of all seeds on {block.title}", block, shown, ends, labels, x)


def _dots(block: Block, name: str) -> list[Marks]:
    """One set's panel."""
    scale, scored = factor(block.primary), [(row, row.scores[name][block.primary]) for row in block.rows]
    seeds: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for y, (row, score) in enumerate(scored):
        # Spread by the position in the list of seeds, so that equal scores do not hide each other.
        offsets = 0.16 * np.linspace(-1, 1, score.estimate.n) if score.estimate.n > 1 else np.zeros(1)
        for seed, value, offset in zip(score.estimate.seeds, score.estimate.values, offsets):
            seeds[name == "dev" and seed in row.collapsed].append((value * scale, y + offset))
    means = [(y, score.estimate) for y, (_, score) in enumerate(scored) if score.estimate.n]
    return [
        Marks(*_xy(seeds[False]), marker="o", dashes=NONE, size=5, alpha=0.6),
        Marks(*_xy(seeds[True]), WORSE, "x", NONE),
        Marks([scored[0][1].majority * scale] * 2, [-0.5, len(scored) - 0.5], MUTED, dashes=(0, (1, 2)), width=1),
        Marks(
            *_xy([(e.mean * scale, y) for y, e in means]), INK, "D", NONE, size=5, face=PAPER,
            bounds=_scaled([e.interval for _, e in means], scale), across=True, reach=1.4,
        ),
    ]  # fmt: skip


def _xy(points: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    places = list(points)
    return [x for x, _ in places], [float(y) for _, y in places]


def _scaled(intervals: Iterable[tuple[float, float] | None], scale: float) -> list[tuple[float, float]]:
    return [(low * scale, high * scale) for low, high in (ends or (math.nan, math.nan) for ends in intervals)]


def differences(block: Block) -> str:
    """Forest plot: each method minus its controls, its replacements and the reference, one panel per set."""
    compared = sorted((c for row in block.rows for c in row.comparisons), key=lambda c: c.role)  # controls come first
    by_set = {name: of_set for name in block.sets if (of_set := [c for c in compared if c.set == name])}
    constant, ends = {row.method for row in block.rows if row.constant}, dict[str, list[float]]()
    for name, own in by_set.items():
        told = [c for c in own if c.estimate.n and not {c.method, c.other} & constant]
        bounds = (b for c in told for b in (c.verdict.interval, c.estimate.interval, (c.estimate.mean, 0.0)))
        ends[name] = [end for interval in bounds for end in interval or ()]
    pairs = next(iter(by_set.values()), ())  # the same on every set
    labels = [f"{c.method} − {c.other}{f' ({c.role})' * (c.role != 'reference')}" for c in pairs]
    title, x = f"Paired differences on {block.title}", f"difference in {metrics.find(block.primary).unit}"
    shown = {name: _differences(own, factor(block.primary)) for name, own in by_set.items()}
    return _by_set(f"differences-{block.name}", title, block, shown, ends, labels, x)


def _differences(comparisons: Sequence[Comparison], scale: float) -> list[Marks]:
    """One set's panel: marks by verdict, twice, for the corrected interval and for that of the difference alone."""
    marks = [Marks([0, 0], [-0.5, len(comparisons) - 0.5], INK, width=0.9)]
    for word, (color, marker) in VERDICT_LOOKS.items():
        chosen = [(y, c) for y, c in enumerate(comparisons) if c.estimate.n and c.verdict.word == word]
        look = Marks(*_xy((c.estimate.mean * scale, y) for y, c in chosen), color, marker, NONE, size=6, across=True)
        marks.append(replace(look, bounds=_scaled((c.verdict.interval for _, c in chosen), scale), reach=0.8))
        marks.append(replace(look, bounds=_scaled((c.estimate.interval for _, c in chosen), scale), reach=2.4))
    return marks


def _by_set(
    name: str, title: str, block: Block, shown: Mapping[str, Sequence[Marks]], ends: Mapping[str, Sequence[float]],
    labels: Sequence[str], x: str,
) -> str:  # fmt: skip
    """A panel per set, with a row per label, over ``ends``."""
    x_ends = {panel: limits(factor(block.primary) * end for end in of) for panel, of in ends.items() if of}
    width, height = width_of(len(shown), (4.6, 3.4, 2.6, 2.15)), 0.3 * len(labels) + 0.1
    return panels(name, title, shown, width=width, height=height, x=x, rows=labels, ticks=6, x_ends=x_ends)


def cost_and_score(block: Block) -> str:
    """Mean validation score with its interval against declared passes; of many methods the frozen and the best ones."""
    scale, points = factor(block.primary), []
    for row in block.rows:
        if row.cost.declared is not None and (score := block.estimate(row.method)) is not None and not row.constant:
            bounds = _scaled([score.interval], scale)[0]
            points.append(("", row.method, max(row.cost.declared, 0.01), score.mean * scale, *bounds))
    frame = pd.DataFrame(points, columns=list(POINT))
    if len(frame) < 2:
        return ""
    x, y = "declared passes, plain fine-tuning = 1, all phases included", f"{block.primary} on dev"
    title, methods = f"Score against cost on {block.title}", named(block, block.frozen, frame["method"])
    return lines(f"cost-{block.name}", title, frame, methods, x=x, y=y, log=True, dots=True)


# ------------------------------------------------------------------------------------------ curves


def learning_curves(block: Block) -> str:
    """Loss of the fine-tuning phase, one panel per method on one scale."""
    shown = {row.method: _runs(_losses(row, "finetune")) for row in block.rows}
    return _curve_panels(f"curves-{block.name}", f"Training loss on {block.title}", shown, "step", "loss", shared=True)


def search_curves(block: Block) -> str:
    """Inner (training) and outer (held-out) loss of the phases before fine-tuning, a panel per method and phase."""
    shown: dict[str, list[Marks]] = {}
    for row in block.rows:
        for phase in (phase for phase in row.curves["phase"].unique() if phase != "finetune"):
            logged = row.diagnostics[row.diagnostics["phase"] == phase]
            outer = by_run(logged[logged["name"].str.endswith(OUTER)][["seed", "step", "value"]].to_numpy())
            shown[f"{row.method}, {phase}"] = _runs(_losses(row, phase), outer, ("inner", "outer"))
    title = f"Loss of the phases before fine-tuning on {block.title}"
    return _curve_panels(f"search-{block.name}", title, dict(list(shown.items())[:MOST_PHASES]), "step", "loss")


def epoch_curves(block: Block) -> str:
    """Primary metric after every epoch, one panel per method on one scale; nothing where no run took it."""
    shown = {}
    for row in block.rows:
        dev, held_out = (epochs(row, block.primary, rows) for rows in ("dev", "held_out"))
        shown[row.method] = _runs(dev, held_out, ("dev", "set aside"))
    title = f"Score by epoch on {block.title}"
    return _curve_panels(f"epochs-{block.name}", title, shown, "epoch", block.primary, shared=True)


def epochs(cell: CellData, metric: str, rows: str) -> pd.DataFrame:
    """The scores of some rows (``dev``, ``held_out``) after every epoch, as ``by_run`` has them."""
    scored = (run for run in cell.finetune.runs if run.epoch_scores is not None and run.epoch_scores.metric == metric)
    every = ((run.seed, score) for run in scored for score in run.epoch_scores.scores)  # type: ignore[union-attr]
    own = ((seed, score) for seed, score in every if score.rows == rows)
    return factor(metric) * by_run((f"{seed} {score.phase}", score.epoch, score.score) for seed, score in own)


def _losses(cell: CellData, phase: str) -> pd.DataFrame:
    points = thinned(cell.curves[cell.curves["phase"] == phase], CURVE_POINTS)
    return by_run(points[["seed", "step", "loss"]].to_numpy())


def by_run(points: Iterable[tuple[Any, float, float | None]]) -> pd.DataFrame:
    """Finite values of (run, step, value): a column for each run, by step."""
    frame = pd.DataFrame(points, columns=["run", "step", "value"]).astype({"step": float, "value": float})
    return frame[np.isfinite(frame["value"])].pivot_table(index="step", columns="run", values="value")


def _runs(curves: pd.DataFrame, others: pd.DataFrame | None = None, names: tuple[str, str] = ("", "")) -> list[Marks]:
    """Thin lines of runs and their thick mean; ``others`` dashed. Names where there are both.

    In the mean a run that stopped early counts as far as it went.
    """
    looks = (ACCENT, INK, "-"), (WORSE, WORSE, (0, (4, 1.5)))
    shown = [(own, *look, name) for own, look, name in zip((curves, others), looks, names) if own is not None]
    marks, named = [], sum(not own.empty for own, *_ in shown) > 1
    for own, thin, thick, dashes, name in (one for one in shown if not one[0].empty):
        runs = [run.dropna() for _, run in own.items()]
        marks += [Marks([*run.index], [*run], thin, width=0.7, alpha=0.3) for run in runs]
        means = own.interpolate("index", limit_area="inside")[max(run.index[0] for run in runs) :].mean(axis=1)
        dot = "o" if len(means) == 1 else ""  # a line of one point would not be seen
        marks.append(Marks([*means.index], [*means], thick, dot, dashes, name if named else "", width=1.4))
    return marks


def _curve_panels(
    name: str, title: str, shown: Mapping[str, Sequence[Marks]], x: str, y: str, shared: bool = False
) -> str:
    """``shared``: one scale for all panels, which one run that diverged does not flatten."""
    values = np.array([value for marks in shown.values() for one in marks for value in one.y])
    top = min(values.max(), 1.5 * np.quantile(values, 0.98) + 1e-9) if len(values) and y == "loss" else math.inf
    low, high = limits(value for value in values if value <= top)
    low = min(0.0, values.min()) if len(values) and y == "loss" else low
    y_ends = dict.fromkeys(shown, (low, high)) if shared else None
    return panels(name, title, shown, width=2.15, height=1.3, x=x, y=y, ticks=4, y_ends=y_ends)


# ------------------------------------------------------------------------------------------ answers


def answer_figures(block: Block, by_set: Mapping[str, SetAnswers]) -> Iterator[tuple[str, str, str]]:
    """Name, caption and SVG of each figure of the validation answers: calibration and abstention, or errors."""
    if not by_set:
        return
    answers = by_set["dev"]

    def drawn(name: str, marks: Sequence[Marks], x: str, y: str) -> str:
        title = f"{name} on {block.title}"
        return panels(f"{name}-{block.name}", title, {"": marks}, width=2.75, height=2.0, x=x, y=y)

    if not len(answers.probability):
        points = Marks(answers.gold, answers.predicted, marker="o", dashes=NONE, size=3, alpha=0.5)
        values = drawn("values", [_equal(answers.gold), points], "label", "value")
        yield "values", "Labels and values of the method to take; on the line they are equal.", values
        counts, edges = np.histogram(answers.predicted - answers.gold, bins=ERRORS)
        bounds = [(0, n) for n in counts.tolist()]
        bars = Marks((edges[:-1] + edges[1:]) / 2, counts, dashes=NONE, bounds=bounds, reach=5)
        zero = Marks([0, 0], [0, float(counts.max())], INK, width=0.8)
        yield "errors", "Value minus label of every row.", drawn("errors", [bars, zero], "value minus label", "rows")
        return
    bins = equal_mass(answers.probability, BINS)
    rows = np.maximum(np.bincount(bins), 1)
    sure, right = (100 * np.bincount(bins, weights=of) / rows for of in (answers.probability, answers.right))
    diagram = [_equal(np.append(np.concatenate([sure, right]), 100)), Marks(sure, right, marker="o")]
    yield (
        "calibration",
        "Calibration: share of right answers against their mean probability, a dot for about "
        f"{len(answers.probability) // BINS} answers. Below the line the method is too sure.",
        drawn("calibration", diagram, "probability of the answer", "right answers (%)"),
    )
    shares, scores = np.array(answers.curve).T
    kept = Marks(100 * shares, factor(block.primary) * scores)
    yield (
        "abstention",
        f"Abstention: {block.primary} of the rows that are kept when the least confident ones are left to a person.",
        drawn("abstention", [kept], "rows kept (%)", block.primary),
    )


def _equal(values: np.ndarray) -> Marks:
    """The line on which both axes are equal, over the range of ``values``."""
    ends = [float(values.min()), float(values.max())]
    return Marks(ends, ends, MUTED, width=0.8)
