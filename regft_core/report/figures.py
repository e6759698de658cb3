"""Figures of one block (a task at a size): scores of all seeds, curves, cost, answers; and those of evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from regft_core.evaluate.analysis_result import RUN, Plot
from regft_core.report.charts import (
    ACCENT,
    INK,
    MUTED,
    NONE,
    PAPER,
    POINT,
    WORSE,
    Marks,
    limits,
    lines,
    named,
    panels,
    width_of,
)
from regft_core.report.evaluations import Found, Place, ShownTable
from regft_core.report.formatting import factor
from regft_core.report.read_grid import CellData
from regft_core.report.results import thinned
from regft_core.report.values import Block, Report, by_size
from regft_core.report.wrong_answers import SetAnswers
from regft_core.statistics.confidence import equal_mass

#: Most panels of the phases before fine-tuning, and points of a curve; ``curves.csv`` has more.
MOST_PHASES, CURVE_POINTS = 12, 60
#: How a method names, in its diagnostics, the loss on held-out rows that its search lowers.
OUTER = ".validation_loss"
#: Bins of the reliability figure, with equally many answers; and of the histogram of errors.
BINS, ERRORS = 10, 25
MOST_PANELS = 12
UNKNOWN = (math.nan, math.nan)


def block_figures(block: Block) -> dict[str, str]:
    return {
        "scores": scores(block),
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
    scale, labels = factor(block.primary), [("↳ " if row.control_for else "") + row.method for row in block.rows]
    return panels(
        f"scores-{block.name}",
        f"Scores of all seeds on {block.title}",
        shown,
        width=width_of(len(shown), (4.6, 3.4, 2.6, 2.15)),
        height=0.3 * len(labels) + 0.1,
        x=block.primary + (" × 100" if scale == 100 else ""),
        rows=labels,
        ticks=6,
        x_ends={title: limits(scale * end for end in of) for title, of in ends.items() if of},
    )


def _dots(block: Block, name: str) -> list[Marks]:
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


def learning_curves(block: Block) -> str:
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
    ends = [float(values.min()), float(values.max())]
    return Marks(ends, ends, MUTED, width=0.8)


def table_figures(section: str, found: Found, reference: str | None) -> dict[str, Markup]:
    """Name of each table that says how it is drawn -> one figure of all sets and methods."""
    present = {shown.method for tables in found.tables.values() for shown in tables}
    methods, figures = named(found.block, reference, present), dict[str, Markup]()
    for name in dict.fromkeys(name for _, name in found.tables):
        key = f"{section}-{name}-{found.block.name}".replace(", ", "-").replace(" ", "-")
        try:
            svg = Markup(_drawn(key, f"{section}: {name} on {found.block.title}", name, found.tables, methods))
        except Exception as error:  # a table of a plug-in may hold anything: it costs its own figure
            svg = escape(f"It cannot be drawn: {type(error).__name__}: {error}")
        if svg:
            figures[name] = svg
    return figures


def _drawn(
    key: str, title: str, name: str, tables: Mapping[Place, Sequence[ShownTable]], methods: Sequence[str]
) -> str:
    own = [(place, shown) for (place, other), by_method in tables.items() if other == name for shown in by_method]
    shown = [(place, table, plot) for place, table in own if (plot := table.table.plot) is not None]
    if not shown:
        return ""
    plot, rows = shown[0][2], [row for place, table, plot in shown for row in _points(place, table, plot)]
    points = pd.DataFrame(rows, columns=["panel", "method", "x", "y", "baseline"], dtype=object)
    if plot.points:  # a panel per method, where panels name the points
        points = points.rename(columns={"panel": "method", "method": "panel"})
        if points["panel"].nunique() > MOST_PANELS:
            points = points[points["panel"].isin(methods)]
        methods = list(dict.fromkeys(points["method"]))
    return lines(key, title, points, methods, x=plot.x, y=plot.y, baseline=plot.baseline or "", dots=plot.points)


def _points(place: str, shown: ShownTable, plot: Plot) -> Iterator[tuple[Any, ...]]:
    """What is drawn of a table: the rows that have both coordinates."""
    for cells in shown.table.rows:
        row = dict(zip(shown.table.columns, cells, strict=True))
        if row[plot.x] is not None and row[plot.y] is not None:
            set_name = "" if place == RUN or (plot.points and place == "dev") else place
            panel = ", ".join(filter(None, [set_name, *(str(row[column]) for column in plot.group)])) or "all"
            yield panel, shown.method, row[plot.x], row[plot.y], row[plot.baseline] if plot.baseline else None


def over_sizes(report: Report) -> tuple[dict[str, Markup], dict[str, list[Markup]]]:
    """Figures over the training sizes: task -> its primary metric; evaluation -> the numbers that it asks for."""
    scores: dict[str, Markup] = {}
    numbers: dict[str, list[Markup]] = {section.name: [] for section in report.evaluations}
    several = {task: blocks for task, blocks in by_size(report.blocks).items() if len(blocks) > 1}
    for task, blocks in several.items():
        primary, scale = blocks[-1].primary, factor(blocks[-1].primary)
        points = [
            (name, row.method, block.subsample.n, scale * e.mean, *(scale * end for end in e.interval or UNKNOWN))
            for name in blocks[-1].sets
            for block in blocks
            for row in block.rows
            if (e := block.estimate(row.method, name)) is not None
        ]
        label = primary + (" × 100" if scale == 100 else "")
        if svg := _over_rows(f"sizes-{task}", f"{primary} of {task}", label, points, blocks[-1], report):
            scores[task] = svg
        for section in report.evaluations:
            own = [(b.subsample.n, found) for b in blocks for found in section.found if found.block.name == b.name]
            for name in dict.fromkeys(name for _, found in own for name in found.over_sizes):
                points = [
                    (task if place == RUN else f"{task}, {place}", method, n, of.mean, *(of.interval or UNKNOWN))
                    for n, found in own
                    for (method, place, other), of in found.numbers.items()
                    if other == name
                ]
                key, title = f"sizes-{section.name}-{name}-{task}", f"{name} of {section.name} on {task}"
                numbers[section.name].append(_over_rows(key, title, name, points, blocks[-1], report))
    return scores, numbers


def _over_rows(
    key: str, title: str, y: str, points: Sequence[tuple[Any, ...]], largest: Block, report: Report
) -> Markup:
    frame = pd.DataFrame(points, columns=list(POINT))
    methods = named(largest, report.reference, frame["method"])
    title = f"{title} over the training rows"
    return Markup(lines(key, title, frame, methods, x="training rows", y=y, log=True))
