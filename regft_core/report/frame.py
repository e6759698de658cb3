"""The report as data frames, and its leaderboard in a notebook."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from regft_core.report.model import Block, Comparison, Report, Row, Score
from regft_core.report.results import ROLES, verdict_numbers
from regft_core.report.terminal import show
from regft_core.statistics.verdict import overall

#: Characters of a line in a notebook.
WIDTH = 120
SCORES = (
    "method", "task", "size", "set", "metric", "primary", "mean", "low", "high", "seeds", "failed",
    "vs_reference", "vs_control", "no_better_than_constant", "declared_cost", "measured_cost",
)  # fmt: skip
PAIRS = (
    "method", "other", "role", "task", "size", "set", "metric", "difference", "low", "high", "verdict", "why",
    "family", "comparisons", "confidence", "detectable",
)  # fmt: skip


class Results(pd.DataFrame):  # type: ignore[misc]
    """One row for each method, task, size, set and metric; selections from it are plain data frames.

    Columns:
        mean: over the ``seeds`` that finished. low, high: its interval (``report.confidence``); NaN below two seeds.
        primary: whether it is the task's main metric. Verdicts are about it; other metrics have none.
        vs_reference, vs_control: the verdict; against several controls that against all of them.
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
        lines = [
            _score(report, block, row, score)
            for block in report.blocks
            for row in block.rows
            for metrics in row.scores.values()
            for score in metrics.values()
        ]
        found = cls(lines, columns=[*SCORES, *(f"seed {seed}" for seed in report.seeds)])
        found._report = report
        return found

    @property
    def verdicts(self) -> pd.DataFrame:
        """One row for each compared pair (``method`` minus ``other``) on each set, by the primary metric.

        ``low`` and ``high`` are the interval that gives the ``verdict``, corrected for the ``comparisons`` of the
        ``family``. ``detectable`` is the smallest true difference that is detected 80% of the time.
        """
        lines = [
            {"task": block.task, "size": block.size, **_pair(c)}
            for block in self._report.blocks
            for c in _compared(block)
        ]
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


def _score(report: Report, block: Block, row: Row, score: Score) -> dict[str, Any]:
    low, high = score.interval or (math.nan, math.nan)
    words = {
        f"vs_{role}": overall(c.verdict.word for c in row.against(role, score.set) if c.metric == score.metric)
        for role in ROLES
    }
    return {
        "method": row.method,
        "task": block.task,
        "size": block.size,
        "set": score.set,
        "metric": score.metric,
        "primary": score.metric == block.primary,
        "mean": score.estimate.mean,
        "low": low,
        "high": high,
        "seeds": score.estimate.n,
        "failed": len(row.failed),
        **words,
        "no_better_than_constant": score.no_better and not row.constant,
        "declared_cost": row.cost.declared,
        "measured_cost": row.cost.measured,
        **{f"seed {seed}": value for seed, value in zip(score.estimate.seeds, score.estimate.values, strict=True)},
    }


def _compared(block: Block) -> Iterator[Comparison]:
    for row in block.rows:
        yield from row.comparisons
    if block.opponents is not None:
        yield from (c for c in block.opponents.comparisons if c.role == "opponent")


def _pair(c: Comparison) -> dict[str, Any]:
    low, high = c.verdict.interval or (math.nan, math.nan)
    own = {"method": c.method, "other": c.other, "role": c.role, "set": c.set, "metric": c.metric}
    return {
        **own,
        "difference": c.estimate.mean,
        **verdict_numbers(c.verdict),
        "why": c.verdict.why,
        "low": low,
        "high": high,
    }
