"""The report as tables (scores, costs, runs) and as plain numbers: ``results.json`` and what DVC shows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from regft_core.report.evaluations import EvaluationSection
from regft_core.report.figures.block import thinned
from regft_core.report.inputs import Inputs
from regft_core.report.model import Average, Block, Comparison, PublishedTable, Report, Role, Row
from regft_core.report.page.formatting import some
from regft_core.report.published.model import ClaimVerdict, PrintedCell, PrintedRow
from regft_core.report.published.words import setting_of
from regft_core.report.read_grid import BlockData
from regft_core.runs.records import MARK
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.reproduction import Bounds
from regft_core.statistics.verdict import GAIN, LOSS, Verdict, Word, overall

#: Of the comparisons that a method's own table shows.
ROLES: tuple[Role, ...] = ("reference", "control")
#: Most columns of ``dvc exp show`` that scores may take; settings take about forty beside them.
COLUMNS = 60
PUBLISHED_COLUMNS = (
    "table", "method", "arm", "model", "size", "setting", "column", "published", "published_deviation", "ours",
    "our_deviation", "seeds", "difference", "low", "high", "published_gain", "our_gain", "another_experiment", "note",
)  # fmt: skip

# -------------------------------------------------------------------------------------------- tables


def scores_table(blocks: Sequence[Block]) -> pd.DataFrame:
    """One row per task, size, method, set, metric and seed that finished."""
    rows = [
        (block.task, block.size, row.method, name, metric, seed, value)
        for block in blocks
        for row in block.rows
        for name, scores in row.scores.items()
        for metric, score in scores.items()
        for seed, value in zip(score.estimate.seeds, score.estimate.values, strict=True)
    ]
    return pd.DataFrame(rows, columns=["task", "size", "method", "set", "metric", "seed", "value"])


def costs_table(data: Sequence[BlockData]) -> pd.DataFrame:
    """One row per task, size, method, seed and quantity that was counted or measured."""
    rows = [
        (block.task, block.size, cell.method, run.seed, quantity, float(value))
        for block in data
        for cell in block.cells.values()
        for run in cell.runs
        for quantity, value in run.cost.plain().items()
        if isinstance(value, int | float)
    ]
    return pd.DataFrame(rows, columns=["task", "size", "method", "seed", "quantity", "value"])


def runs_table(data: Sequence[BlockData]) -> pd.DataFrame:
    """One row per run: whether it finished, how it collapsed, where it ran, its key in the store."""
    rows = [
        (block.task, block.size, cell.method, run.seed, "ok" if run.ok else "failed", run.collapsed, run.key)
        for block in data
        for cell in block.cells.values()
        for run in cell.runs
    ]
    return pd.DataFrame(rows, columns=["task", "size", "method", "seed", "status", "collapsed", "key"])


def curves_table(data: Sequence[BlockData]) -> pd.DataFrame:
    """Training curves, thinned to a few hundred points per run and phase."""
    rows = [
        (cell.method, block.task, block.size, p.seed, p.phase, p.step, p.loss, p.learning_rate, p.gradient_norm)
        for block in data
        for cell in block.cells.values()
        for p in thinned(cell.curves or ())
    ]
    names = ["method", "task", "size", "seed", "phase", "step", "loss", "learning_rate", "gradient_norm"]
    return pd.DataFrame(rows, columns=names)


def published_table(tables: Sequence[PublishedTable]) -> pd.DataFrame:
    """One row per printed cell of the papers' tables, ours beside it."""

    def line(table: PublishedTable, row: PrintedRow, cell: PrintedCell) -> tuple[Any, ...]:
        printed, ours, gap, own = cell.published, cell.ours, cell.difference, row.row
        return (
            *(table.name, own.method, own.arm or "", row.model, own.size, setting_of(row), cell.key),
            *((printed.value, printed.deviation) if printed else (None, None)),
            *((ours.value, ours.deviation, ours.seeds) if ours else (None, None, 0)),
            *((gap.value, gap.low, gap.high) if gap else (None, None, None)),
            *(cell.published_gain, cell.our_gain, "; ".join(cell.otherwise)),
            "; ".join(filter(None, [*cell.notes, cell.why])),
        )

    rows = [line(t, row, cell) for t in tables for row in t.rows for cell in row.cells if cell.printed]
    return pd.DataFrame(rows, columns=list(PUBLISHED_COLUMNS))


# ------------------------------------------------------------------------------------- results.json


def results(report: Report, inputs: Inputs) -> dict[str, Any]:
    """Content of ``results.json``: block -> method -> everything that the page shows of it."""
    found: dict[str, Any] = {b.name: {row.method: _row(b, row) for row in b.rows} for b in report.blocks}
    for finding in report.findings:
        found[finding.block][finding.method]["findings"] = list(finding.sentences)
    for section in report.evaluations:
        _add_evaluation(found, section)
    if report.averages:
        found["averages"] = {f"{one.name}-{one.size}": _average(one) for one in report.averages}
    if inputs.failed:
        found["failed"] = dict(inputs.failed)
    if inputs.small_scale is not None:
        found[MARK] = inputs.small_scale.mark
    if report.published:
        found["published"] = {
            table.name: {"nothing": table.nothing, "claims": list(map(_claim, table.claims))}
            for table in report.published
        }
    if inputs.left_out:
        left_out = inputs.left_out.items()
        found["left_out"] = {task: {name: one.why for name, one in sets.items()} for task, sets in left_out}
    return found


def _row(block: Block, row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: {metric: _bounds(score.estimate) for metric, score in scores.items()}
        for name, scores in row.scores.items()
    }
    found["failed"] = len(row.failed)
    if block.mixed_environments:
        found["mixed_environments"] = list(block.mixed_environments)
    found["collapsed"] = len(row.collapsed)
    found["no_better_than_constant"] = list(row.no_better(block.primary))
    found["same_answers_under_every_seed"] = row.still
    ratios = ("declared", "measured", "per_step", "memory")
    found["cost_ratio"] = {name: _plain(getattr(row.cost, name)) for name in ratios}
    choices = block.decision.choices if block.decision is not None else ()
    choice = next((c for c in choices if row.method in (c.method, *c.same)), None)
    if choice is not None and block.decision is not None:
        leads = choice.method == row.method
        found["decision"] = {
            "expected": choice.belief.expected,
            "probability_best": choice.belief.best,
            "expected_loss": choice.belief.loss,
            "taken": choice is block.decision.pick and leads,
        } | ({} if leads else {"same_as": choice.method})
    for role, word in words(row).items():
        found[f"versus_{role}"] = _comparisons([c for c in row.comparisons if c.role == role])
        found[f"verdict_{role}"] = word
    others = block.opponents.comparisons if block.opponents is not None else ()
    if opposed := [c for c in others if (c.method, c.role) == (row.method, "opponent")]:
        found["versus_opponent"] = _comparisons(opposed)
    return found


def words(row: Row) -> dict[str, Word]:
    """Role -> the verdict on the row on the validation set; roles without a comparison are absent."""
    found = {role: overall(c.verdict.word for c in row.against(role)) for role in ROLES}
    return {role: word for role, word in found.items() if word is not None}


def _comparisons(compared: Sequence[Comparison]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for c in compared:
        own = _bounds(c.estimate) | {"metric": c.metric} | verdict_numbers(c.verdict)
        if c.look is not None:
            own["look"] = {"number": c.look.number, "seeds": list(c.look.seeds)}
        found.setdefault(c.other, {})[c.set] = own
    return found


def verdict_numbers(found: Verdict) -> dict[str, Any]:
    """The verdict, the interval that gave it, and what that interval holds together with."""
    return {
        "verdict": found.word,
        "simultaneous": {"low": _plain(found.low), "high": _plain(found.high)},
        "family": found.family,
        "comparisons": found.comparisons,
        "confidence": found.confidence,
        "detectable": _plain(found.detectable),
    } | ({"why": found.why} if found.why else {})


def _add_evaluation(found: dict[str, Any], section: EvaluationSection) -> None:
    """Block -> method -> evaluation -> set -> name -> mean, interval and number of seeds."""
    for entry in section.found:
        for method, numbers in entry.rows:
            for (place, name), number in zip(entry.places, numbers, strict=True):
                if number is None:
                    continue
                own = _interval(number.mean, number.interval) | {"n": len(number.values)}
                if number.versus is not None:
                    own["minus_reference"] = _interval(*number.versus)
                evaluations = found[entry.block][method].setdefault("evaluations", {})
                evaluations.setdefault(section.name, {}).setdefault(place, {})[name] = own


def _interval(mean: float, bounds: tuple[float, float] | None) -> dict[str, Any]:
    low, high = bounds or (None, None)
    return {"mean": mean, "low": low, "high": high}


def _average(average: Average) -> dict[str, dict[str, float | None]]:
    """Method -> its mean and its difference with their intervals."""
    return {
        line.method: {
            name if key == "value" else f"{name}_{key}": _plain(getattr(own, key)) if own is not None else None
            for name, own in (("mean", line.value), ("difference", line.difference))
            for key in ("value", "low", "high")
        }
        for line in average.lines
    }


def _claim(verdict: ClaimVerdict) -> dict[str, Any]:
    """A claim of a paper with its verdict, gains, intervals and power."""

    def numbers(bounds: Bounds | None) -> list[float | None] | None:
        return None if bounds is None else list(map(_plain, (bounds.value, bounds.low, bounds.high)))

    claim = verdict.claim
    return {
        **{name: getattr(claim, name) for name in ("says", "where", "measure", "arm")},
        **{name: getattr(verdict, name) for name in ("encoder", "size", "word", "confidence")},
        "tested": [
            {
                **{"over": one.over, "column": one.key, "word": one.word, "why": one.why, "seeds": one.seeds},
                **{"printed": numbers(one.printed), "ours": numbers(one.ours), "detectable": _plain(one.detectable)},
            }
            for one in verdict.tested
        ],
    }


def _plain(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _bounds(estimate: Estimate) -> dict[str, Any]:
    """Numbers of one estimate; the interval is null below two seeds."""
    several = estimate.n > 1
    low, high = (_plain(one) if several else None for one in (estimate.low, estimate.high))
    return {"mean": _plain(estimate.mean), "low": low, "high": high, "n": estimate.n}


# ----------------------------------------------------------------------------- `dvc metrics show`


def primary(blocks: Sequence[Block]) -> dict[str, Any]:
    """block -> the few numbers of the primary metric that DVC shows; each block becomes a file (``write.METRICS``).

    A block is a line of ``dvc metrics show``, and each of its numbers a column of ``dvc exp show``. So of a large grid
    the details of decisions are left out first, then the means of the methods; ``results.json`` has everything.
    """
    found: dict[str, Any] = {}
    for means, details in ((True, True), (True, False), (False, True), (False, False)):
        found = {block.name: _shown(block, means=means, details=details) for block in blocks}
        if sum(_columns(own) for own in found.values()) <= COLUMNS:
            break
    return found


def _columns(value: Any) -> int:
    return sum(map(_columns, value.values())) if isinstance(value, Mapping) else 1


def _shown(block: Block, *, means: bool, details: bool) -> dict[str, Any]:
    """``decision``: the method to take; ``dev``: all means; ``vs_...``: methods by verdict; then what went wrong."""
    scores = {
        row.method: {name: _bounds(own[block.primary].estimate) for name, own in row.scores.items()}
        for row in block.rows
    }
    found: dict[str, Any] = {}
    if block.decision is not None and block.decision.pick is not None:
        own = dict(scores[block.decision.pick.method])
        dev = own.pop("dev")
        found["decision"] = {"method": block.decision.pick.method, "dev": dev["mean"]}
        if details:
            ood = {name: one["mean"] for name, one in own.items()}
            found["decision"] |= {"low": dev["low"], "high": dev["high"], **({"ood": ood} if ood else {})}
    if means:
        found["dev"] = {method: own["dev"]["mean"] for method, own in scores.items() if "dev" in own}
    found |= dict(_by_verdict(block)) if details else {}
    if low := [f"{row.method} on {name}" for row in block.rows for name in row.no_better(block.primary)]:
        found["no_better_than_constant"] = some(low)
    if failed := sum(len(row.failed) for row in block.rows):
        found["failed"] = failed
    if block.mixed_environments:
        found["mixed_environments"] = True
    return found


def _by_verdict(block: Block) -> Iterator[tuple[str, dict[str, str]]]:
    verdicts = {row.method: words(row) for row in block.rows}
    for role in ROLES:
        if any(role in own for own in verdicts.values()):
            named = {word: [name for name, own in verdicts.items() if own.get(role) == word] for word in (GAIN, LOSS)}
            yield f"vs_{role}", {word: some(methods) or "none" for word, methods in named.items()}
