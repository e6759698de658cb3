"""The report as plain numbers: ``results.json``, what ``dvc metrics show`` prints, ``tables/``, and a data frame."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from regft_core.report.formatting import as_shown, factor
from regft_core.report.leaderboard import show
from regft_core.report.read_grid import Inputs
from regft_core.report.values import ROLES, Block, Comparison, Report, Row
from regft_core.runs.records import MARK
from regft_core.runs.work import CURVE
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.reproduction import Bounds
from regft_core.statistics.verdict import Verdict, overall

WIDTH = 120
#: Most points per run and phase in ``curves.csv``; a full-size run has tens of thousands of steps.
POINTS = 500
PAIRS = (
    "method", "other", "role", "task", "size", "set", "metric", "difference", "low", "high", "verdict", "why",
    "family", "comparisons", "confidence", "detectable",
)  # fmt: skip


def results(report: Report, inputs: Inputs) -> dict[str, Any]:
    numbers: dict[str, Any] = {b.name: {row.method: _row(b, row) for row in b.rows} for b in report.blocks}
    # Scores are in the metric's own unit (accuracy from 0 to 1); page, terminal, DVC and MLflow show them times this.
    numbers["shown_times"] = {metric: factor(metric) for b in report.blocks for metric in b.described.metrics}
    for section, entry in ((s, entry) for s in report.evaluations for entry in s.found):
        for (method, place, name), number in entry.numbers.items():
            shown = _interval(number.mean, number.interval) | {"n": len(number.values)}
            if number.versus is not None:
                shown["minus_reference"] = _interval(*number.versus)
            by_place = numbers[entry.block.name][method].setdefault("evaluations", {}).setdefault(section.name, {})
            by_place.setdefault(place, {})[name] = shown
    for block in report.blocks:
        if answers := report.answers[block.name]:
            plain = {place: of_set.plain() for place, of_set in answers.items()}
            numbers[block.name][block.taken]["answers"] = plain
    if report.averages:
        numbers["averages"] = {
            f"{average.name}-{average.size}": {
                line.method: {
                    name if end == "value" else f"{name}_{end}": _plain(getattr(bounds, end)) if bounds else None
                    for name, bounds in (("mean", line.value), ("difference", line.difference))
                    for end in ("value", "low", "high")
                }
                for line in average.lines
            }
            for average in report.averages
        }
    if inputs.failed:
        numbers["failed"] = dict(inputs.failed)
    if inputs.mark:
        numbers[MARK] = inputs.mark
    if report.published:
        numbers["published"] = {
            table.name: {
                "nothing": table.nothing,
                "claims": [
                    {name: getattr(verdict.claim, name) for name in ("says", "where", "measure", "arm")}
                    | {name: getattr(verdict, name) for name in ("encoder", "size", "word", "confidence")}
                    | {
                        "tested": [
                            {"over": test.over, "column": test.key, "word": test.word, "why": test.why}
                            | {"printed": _three(test.printed), "ours": _three(test.ours)}
                            | {"seeds": test.seeds, "detectable": _plain(test.detectable)}
                            for test in verdict.tested
                        ]
                    }
                    for verdict in table.claims
                ],
            }
            for table in report.published
        }
    if inputs.left_out:
        left_out = inputs.left_out.items()
        numbers["left_out"] = {task: {name: reason.why for name, reason in sets.items()} for task, sets in left_out}
    return numbers


def _row(block: Block, row: Row) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        name: {metric: _estimate(score.estimate) for metric, score in scores.items()}
        for name, scores in row.scores.items()
    }
    numbers["failed"] = len(row.failed)
    if block.mixed_environments:
        numbers["mixed_environments"] = list(block.mixed_environments)
    numbers["collapsed"] = len(row.collapsed)
    numbers["no_better_than_constant"] = list(row.no_better(block.primary))
    numbers["same_answers_under_every_seed"] = row.still
    numbers["cost_ratio"] = {"declared": _plain(row.cost.declared), "measured": _plain(row.cost.measured)}
    if (choice := block.decision.choice(row.method)) is not None:
        leads = choice.method == row.method
        numbers["decision"] = {
            "expected": choice.belief.expected,
            **dict(zip(("low", "high"), choice.interval or (None, None), strict=True)),
            "probability_best": choice.belief.best,
            "expected_loss": choice.belief.loss,
            "expected_out_of_distribution": choice.elsewhere and choice.elsewhere.expected,
            "taken": choice is block.decision.pick and leads,
        } | ({} if leads else {"same_as": choice.method})
    for role in ROLES:
        if (word := overall(c.verdict.word for c in row.against(role))) is not None:
            numbers[f"versus_{role}"] = _comparisons(c for c in row.comparisons if c.plays(role))
            numbers[f"verdict_{role}"] = word
    if row.opposed:
        numbers["versus_opponent"] = _comparisons(row.opposed)
    return numbers


def _comparisons(compared: Iterable[Comparison]) -> dict[str, Any]:
    by_other: dict[str, Any] = {}
    for c in compared:
        numbers = _estimate(c.estimate) | {"metric": c.metric} | verdict_numbers(c.verdict)
        if c.look is not None:
            numbers["look"] = {"number": c.look.number, "seeds": list(c.look.seeds)}
        by_other.setdefault(c.other, {})[c.set] = numbers
    return by_other


def verdict_numbers(verdict: Verdict) -> dict[str, Any]:
    """The verdict, the interval that gave it, and what that interval holds together with."""
    return {
        "verdict": verdict.word,
        "simultaneous": {"low": _plain(verdict.low), "high": _plain(verdict.high)},
        "family": verdict.family,
        "comparisons": verdict.comparisons,
        "confidence": verdict.confidence,
        "detectable": _plain(verdict.detectable),
    } | ({"why": verdict.why} if verdict.why else {})


def _interval(mean: float, bounds: tuple[float, float] | None) -> dict[str, Any]:
    low, high = bounds or (None, None)
    return {"mean": _plain(mean), "low": _plain(low), "high": _plain(high)}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    """Numbers of one estimate; the interval is null below two seeds."""
    return _interval(estimate.mean, estimate.interval) | {"n": estimate.n}


def _three(bounds: Bounds | None) -> list[float | None] | None:
    return None if bounds is None else [_plain(value) for value in (bounds.value, bounds.low, bounds.high)]


def _plain(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def primary(blocks: Sequence[Block]) -> dict[str, Any]:
    """block -> the few numbers of the primary metric that DVC shows; each block becomes a file of ``metrics/``.

    Each number is a column of ``dvc exp show``; of more than two blocks only method and score, so that all fit.
    """
    return {block.name: _shown(block, whole=len(blocks) <= 2) for block in blocks}


def _shown(block: Block, whole: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if row := block.row(block.taken):
        scores = {name: by_metric[block.primary].estimate for name, by_metric in row.scores.items()}
        numbers = {"score": scores["dev"].mean}
        if whole:
            numbers |= zip(("score_low", "score_high"), scores["dev"].interval or ())
            numbers |= {f"set_{name}": estimate.mean for name, estimate in scores.items() if name != "dev"}
        shown |= {"method": row.method, **{name: as_shown(n, block.primary) for name, n in numbers.items()}}
    if failed := sum(len(row.failed) for row in block.rows):
        shown["unfinished"] = failed
    if block.mixed_environments:
        shown["mixed_environments"] = True
    return shown


def tables(blocks: Sequence[Block]) -> dict[str, pd.DataFrame]:
    """Name -> table in long form, a row per number or run; ``curves`` are thinned."""
    rows = [((block.task, block.size, row.method), row) for block in blocks for row in block.rows]
    cells = [((b.task, b.size, method), cell) for b in blocks for method, cell in b.cells.items()]
    scores = [
        (*place, score.set, score.metric, seed, value)
        for place, row in rows
        for by_metric in row.scores.values()
        for score in by_metric.values()
        for seed, value in score.estimate.by_seed.items()
    ]
    costs = [
        (*place, run.seed, quantity, float(value))
        for place, cell in cells
        for run in cell.runs
        for quantity, value in run.cost.plain().items()
        if isinstance(value, int | float)
    ]
    runs = [(*place, run.seed, run.status, run.collapsed, run.key) for place, cell in cells for run in cell.runs]
    curves = [thinned(cell.curves).assign(task=task, size=size, method=method) for (task, size, method), cell in cells]
    place = ["task", "size", "method"]
    return {
        "scores": pd.DataFrame(scores, columns=[*place, "set", "metric", "seed", "value"]),
        "costs": pd.DataFrame(costs, columns=[*place, "seed", "quantity", "value"]),
        "runs": pd.DataFrame(runs, columns=[*place, "seed", "status", "collapsed", "key"]),
        "curves": pd.concat(curves)[["method", "task", "size", "seed", "phase", "step", *CURVE]],
    }


def thinned(points: pd.DataFrame, most: int = POINTS) -> pd.DataFrame:
    """The points of curves, of each seed and phase at most ``most``, each the finite mean of a bin of steps."""
    run = ["seed", "phase"]
    frame = points.sort_values([*run, "step"], kind="stable")
    frame[CURVE] = frame[CURVE].astype(float).where(np.isfinite)
    runs = frame.groupby(run)["step"]
    bins = frame.groupby([*run, runs.cumcount() * most // runs.transform("size").clip(lower=most)])
    return bins[["step"]].last().join(bins[CURVE].mean()).reset_index()[[*run, "step", *CURVE]]


class Results(pd.DataFrame):  # type: ignore[misc]
    """One row for each method, task, size, set and metric; selections from it are plain data frames.

    Columns:
        mean: over the ``seeds`` that finished. low, high: its interval (``report.confidence``); NaN below two seeds.
        expected: score on new data that the decision goes by, on the validation set; NaN elsewhere.
        primary: whether it is the task's main metric, which verdicts are about.
        vs_reference, vs_control, vs_replacement: the verdict; against several of a role that against all of them.
        declared_cost, measured_cost: of training; plain fine-tuning is 1.
        failed: number of seeds that did not finish.
        seed 0, seed 1, ...: score of each seed; NaN where it failed.

    Scores are in the metric's own unit, as in ``results.json`` (accuracy from 0 to 1).
    """

    _metadata = ("_report",)

    @classmethod
    def of(cls, report: Report) -> Results:
        lines = []
        for block, row in ((b, row) for b in report.blocks for row in b.rows):
            for score in (score for metrics in row.scores.values() for score in metrics.values()):
                low, high = score.estimate.interval or (math.nan, math.nan)
                decides = (score.set, score.metric) == ("dev", block.primary)
                choice = block.decision.choice(row.method) if decides else None
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
                    | {f"seed {seed}": value for seed, value in score.estimate.by_seed.items()}
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
            for c in (c for row in block.rows for c in (*row.comparisons, *row.opposed)):
                low, high = c.verdict.interval or (math.nan, math.nan)
                lines.append(
                    {"task": block.task, "size": block.size, "method": c.method, "other": c.other, "role": c.role}
                    | {"set": c.set, "metric": c.metric, "difference": c.estimate.mean, "why": ""}
                    | verdict_numbers(c.verdict)
                    | {"low": low, "high": high}
                )
        return pd.DataFrame(lines, columns=list(PAIRS))

    def _repr_html_(self) -> str:
        from rich.console import Console

        if self.empty:
            return "<p>No run of the grid has finished.</p>"
        console = Console(width=WIDTH, file=io.StringIO(), record=True, force_jupyter=False)
        show(self._report, console)
        form = '<pre style="overflow-x: auto; line-height: 1.3">{code}</pre>'
        return console.export_html(code_format=form, inline_styles=True)
