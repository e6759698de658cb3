"""The report as plain numbers: all of them for programs, and the few that ``dvc metrics show`` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from regft_core.report.model import Block, Comparison, Role, Row
from regft_core.report.page.formatting import some
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.verdict import GAIN, LOSS, Verdict, Word, overall

#: Of the comparisons that a method's own table shows.
ROLES: tuple[Role, ...] = ("reference", "control")
#: Most columns of ``dvc exp show`` that scores may take; settings take about forty beside them.
COLUMNS = 60


def results(blocks: Sequence[Block]) -> dict[str, Any]:
    """Content of ``results.json``: block -> method -> everything that the page shows of it."""
    return {block.name: {row.method: _row(block, row) for row in block.rows} for block in blocks}


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
    return sum(map(_columns, value.values())) if isinstance(value, dict) else 1


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
    said = {row.method: words(row) for row in block.rows}
    for role in ROLES if details else ():
        if any(role in own for own in said.values()):
            by_word = {word: [method for method, own in said.items() if own.get(role) == word] for word in (GAIN, LOSS)}
            found[f"vs_{role}"] = {word: some(methods) or "none" for word, methods in by_word.items()}
    if low := [f"{row.method} on {name}" for row in block.rows for name in row.no_better(block.primary)]:
        found["no_better_than_constant"] = some(low)
    if failed := sum(len(row.failed) for row in block.rows):
        found["failed"] = failed
    if block.mixed_environments:
        found["mixed_environments"] = True
    return found


def _plain(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _bounds(estimate: Estimate) -> dict[str, Any]:
    """Numbers of one estimate; the interval is null below two seeds."""
    several = estimate.n > 1
    return {
        "mean": _plain(estimate.mean),
        "low": _plain(estimate.low) if several else None,
        "high": _plain(estimate.high) if several else None,
        "n": estimate.n,
    }


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
    found["cost_ratio"] = {
        "declared": _plain(row.cost.declared),
        "measured": _plain(row.cost.measured),
        "per_step": _plain(row.cost.per_step),
        "memory": _plain(row.cost.memory),
    }
    if block.decision is not None:
        choice = next((c for c in block.decision.choices if row.method in (c.method, *c.same)), None)
        if choice is not None:
            found["decision"] = {
                "expected": choice.belief.expected,
                "probability_best": choice.belief.best,
                "expected_loss": choice.belief.loss,
                "taken": choice is block.decision.pick and choice.method == row.method,
            } | ({"same_as": choice.method} if choice.method != row.method else {})
    for role, word in words(row).items():
        found[f"versus_{role}"] = _comparisons([c for c in row.comparisons if c.role == role])
        found[f"verdict_{role}"] = word
    others = block.opponents.comparisons if block.opponents is not None else ()
    if chosen := [c for c in others if (c.method, c.role) == (row.method, "opponent")]:
        found["versus_opponent"] = _comparisons(chosen)
    return found


def words(row: Row) -> dict[str, Word]:
    """Role -> the word of the row on the development set; roles without a comparison are absent."""
    found = {role: overall(c.verdict.word for c in row.against(role)) for role in ROLES}
    return {role: word for role, word in found.items() if word is not None}


def _comparisons(chosen: Sequence[Comparison]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for c in chosen:
        own = _bounds(c.estimate) | {"metric": c.metric} | verdict_numbers(c.verdict)
        if c.look is not None:
            own["look"] = {"number": c.look.number, "seeds": list(c.look.seeds)}
        found.setdefault(c.other, {})[c.set] = own
    return found


def verdict_numbers(found: Verdict) -> dict[str, Any]:
    """The word, the interval that gave it, and what that interval holds together with."""
    return {
        "verdict": found.word,
        "simultaneous": {"low": _plain(found.low), "high": _plain(found.high)},
        "family": found.family,
        "comparisons": found.comparisons,
        "confidence": found.confidence,
        "detectable": _plain(found.detectable),
    } | ({"why": found.why} if found.why else {})
