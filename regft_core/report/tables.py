"""The report as data frames: the files in ``tables/``, and the leaderboard in a notebook."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pandas as pd

from regft_core.report.contents import Report
from regft_core.report.model import ROLES, Block
from regft_core.report.results import verdict_numbers
from regft_core.report.terminal import show
from regft_core.runs.work import CurvePoint
from regft_core.statistics.verdict import overall

#: Characters of a line in a notebook.
WIDTH = 120
#: Most points per run and phase in ``curves.csv``; a full-size run has tens of thousands of steps.
POINTS = 500
#: Columns of ``Results.verdicts``.
PAIRS = (
    "method", "other", "role", "task", "size", "set", "metric", "difference", "low", "high", "verdict", "why",
    "family", "comparisons", "confidence", "detectable",
)  # fmt: skip


def tables(blocks: Sequence[Block]) -> dict[str, pd.DataFrame]:
    """Name -> table in long form.

    ``scores``: a row per task, size, method, set, metric and seed that finished; ``costs``: per run and quantity that
    was counted or measured; ``runs``: per run; ``curves``: thinned to a few hundred points per run and phase.
    """
    rows = [((block.task, block.size, row.method), row) for block in blocks for row in block.rows]
    cells = [((b.task, b.size, method), cell) for b in blocks for method, cell in b.cells.items()]
    scores = [
        (*place, score.set, score.metric, seed, value)
        for place, row in rows
        for by_metric in row.scores.values()
        for score in by_metric.values()
        for seed, value in zip(score.estimate.seeds, score.estimate.values, strict=True)
    ]
    costs = [
        (*place, run.seed, quantity, float(value))
        for place, cell in cells
        for run in cell.runs
        for quantity, value in run.cost.plain().items()
        if isinstance(value, int | float)
    ]
    runs = [(*place, run.seed, run.status, run.collapsed, run.key) for place, cell in cells for run in cell.runs]
    curves = [
        (method, task, size, *point) for (task, size, method), cell in cells for point in thinned(cell.curves or ())
    ]
    place = ["task", "size", "method"]
    return {
        "scores": pd.DataFrame(scores, columns=[*place, "set", "metric", "seed", "value"]),
        "costs": pd.DataFrame(costs, columns=[*place, "seed", "quantity", "value"]),
        "runs": pd.DataFrame(runs, columns=[*place, "seed", "status", "collapsed", "key"]),
        "curves": pd.DataFrame(curves, columns=["method", "task", "size", *CurvePoint._fields]),
    }


def thinned(points: Sequence[CurvePoint], most: int = POINTS) -> list[CurvePoint]:
    """Return ``points`` as they are, or at most ``most`` per (seed, phase), each the mean of a bin of steps.

    A loss that was not finite stays missing only when its whole bin was.
    """

    def mean(values: Sequence[float | None]) -> float | None:
        finite = [value for value in values if value is not None and np.isfinite(value)]
        return float(np.mean(finite)) if finite else None

    found: list[CurvePoint] = []
    for _, group in groupby(sorted(points, key=lambda p: p[:3]), lambda p: p[:2]):
        run = list(group)
        for part in np.array_split(np.arange(len(run)), most) if len(run) > most else ():
            own = [run[i] for i in part]
            found.append(CurvePoint(*own[-1][:3], *(mean([p[column] for p in own]) for column in (3, 4, 5))))
        found += run if len(run) <= most else []
    return found


class Results(pd.DataFrame):  # type: ignore[misc]
    """One row for each method, task, size, set and metric; selections from it are plain data frames.

    Columns:
        mean: over the ``seeds`` that finished. low, high: its interval (``report.confidence``); NaN below two seeds.
        expected: score on new data that the decision goes by, on the validation set; NaN elsewhere.
        primary: whether it is the task's main metric. Verdicts are about it; other metrics have none.
        vs_reference, vs_control, vs_replacement: the verdict; against several of a role that against all of them.
            A difference to a control, the method at strength 0, is a gain.
        no_better_than_constant: whether the mean is no better than the score of a constant answer.
        declared_cost, measured_cost: of training; plain fine-tuning is 1.
        failed: number of seeds that did not finish.
        seed 0, seed 1, ...: score of each seed; NaN where it failed.

    Scores are in the metric's own unit, as in ``results.json`` (accuracy from 0 to 1).
    """

    _metadata = ("_report",)

    @classmethod
    def of(cls, report: Report) -> Results:
        """The results that a report holds."""
        lines = []
        for block, row in ((b, row) for b in report.blocks for row in b.rows):
            for score in (score for metrics in row.scores.values() for score in metrics.values()):
                low, high = score.estimate.interval or (math.nan, math.nan)
                choice = block.decision.choice(row.method) if block.decision is not None else None
                if (score.set, score.metric) != ("dev", block.primary):
                    choice = None
                compared = [c for c in row.comparisons if (c.set, c.metric) == (score.set, score.metric)]
                lines.append(
                    {"method": row.method, "task": block.task, "size": block.size}
                    | {"set": score.set, "metric": score.metric, "primary": score.metric == block.primary}
                    | {"mean": score.estimate.mean, "low": low, "high": high}
                    | {"expected": choice.belief.expected if choice is not None else math.nan}
                    | {"seeds": score.estimate.n, "failed": len(row.failed)}
                    | {f"vs_{role}": overall(c.verdict.word for c in compared if c.plays(role)) for role in ROLES}
                    | {"no_better_than_constant": score.no_better and not row.constant}
                    | {"declared_cost": row.cost.declared, "measured_cost": row.cost.measured}
                    | dict.fromkeys((f"seed {seed}" for seed in report.seeds), math.nan)
                    | {f"seed {seed}": value for seed, value in zip(score.estimate.seeds, score.estimate.values)}
                )
        found = cls(lines)
        found._report = report
        return found

    @property
    def verdicts(self) -> pd.DataFrame:
        """One row for each compared pair (``method`` minus ``other``) on each set, by the primary metric.

        ``low`` and ``high`` are the interval that gives the ``verdict``, corrected for the ``comparisons`` of the
        ``family``. ``detectable`` is the smallest true difference that is detected 80% of the time.
        """
        lines = []
        for block in self._report.blocks:
            for c in (*(c for row in block.rows for c in row.comparisons), *block.opposed()):
                low, high = c.verdict.interval or (math.nan, math.nan)
                lines.append(
                    {"task": block.task, "size": block.size, "method": c.method, "other": c.other, "role": c.role}
                    | {"set": c.set, "metric": c.metric, "difference": c.estimate.mean, "why": ""}
                    | verdict_numbers(c.verdict)
                    | {"low": low, "high": high}
                )
        return pd.DataFrame(lines, columns=list(PAIRS))

    def _repr_html_(self) -> str:
        """The decision and the leaderboard, as in the terminal."""
        from rich.console import Console

        if self.empty:
            return "<p>No run of the grid has finished.</p>"
        console = Console(width=WIDTH, file=io.StringIO(), record=True, force_jupyter=False)
        show(self._report, console)
        form = '<pre style="overflow-x: auto; line-height: 1.3">{code}</pre>'
        return console.export_html(code_format=form, inline_styles=True)
