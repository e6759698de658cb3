"""The report as plain numbers: all of them for programs, and the few that ``dvc metrics show`` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from regft_core.reporting.model import Block, Comparison, Role, Row
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.verdict import Verdict, Word, overall

#: Of the comparisons that a method's own table shows.
ROLES: tuple[Role, ...] = ("reference", "control")


def results(blocks: Sequence[Block]) -> dict[str, Any]:
    """Content of ``results.json``: block -> method -> everything that the page shows of it."""
    return {block.name: {row.method: _row(block, row) for row in block.rows} for block in blocks}


def primary(blocks: Sequence[Block]) -> dict[str, Any]:
    """block -> method -> set -> primary metric's mean; on the development set with its interval.

    Each method of each block becomes a file (``write.METRICS``), a line of ``dvc metrics show``. DVC prints one column
    per number, so everything else is in ``results.json`` only, and what went wrong is a column where something did.
    """
    return {block.name: {row.method: _shown(block, row) for row in block.rows} for block in blocks}


def _shown(block: Block, row: Row) -> dict[str, Any]:
    bounds = {name: _bounds(scores[block.primary].estimate) for name, scores in row.scores.items()}
    keys = {"dev": ("mean", "low", "high")}
    found: dict[str, Any] = {name: {key: own[key] for key in keys.get(name, ("mean",))} for name, own in bounds.items()}
    found |= {f"vs_{role}": word for role, word in words(row).items()}
    if row.below_chance:
        found["below_chance"] = ", ".join(row.below_chance)
    if row.failed:
        found["failed"] = len(row.failed)
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
    found["collapsed"] = row.collapsed_on_dev
    found["below_chance"] = list(row.below_chance)
    found["same_answers_under_every_seed"] = row.still
    found["cost_ratio"] = {
        "declared": _plain(row.cost.declared),
        "measured": _plain(row.cost.measured),
        "per_step": _plain(row.cost.per_step),
        "memory": _plain(row.cost.memory),
    }
    if block.decision is not None:
        choice = next((c for c in block.decision.choices if c.method == row.method), None)
        if choice is not None:
            found["decision"] = {
                "expected": choice.belief.expected,
                "probability_best": choice.belief.best,
                "expected_loss": choice.belief.loss,
                "taken": choice is block.decision.pick,
            }
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
