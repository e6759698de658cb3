"""The report as plain numbers: all of them for programs, and the few that ``dvc metrics show`` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from regft_core.reporting.model import Block, Comparison, Row
from regft_core.reporting.sentences import overall
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.sequential import Look


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
    found["cost_ratio"] = {
        "declared": _plain(row.cost.declared),
        "measured": _plain(row.cost.measured),
        "per_step": _plain(row.cost.per_step),
        "memory": _plain(row.cost.memory),
    }
    for role in ("reference", "control"):
        chosen = [c for c in row.comparisons if c.role == role]
        if chosen:
            found[f"versus_{role}"] = _comparisons(chosen)
            found[f"verdict_{role}"] = overall([c for c in chosen if c.set == "dev"])
    return found


def _comparisons(chosen: Sequence[Comparison]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for c in chosen:
        looked = {} if c.look is None else {"look": _look(c.look)}
        plain = _bounds(c.estimate) | {"metric": c.metric, "verdict": c.verdict.word} | looked
        found.setdefault(c.other, {})[c.set] = plain
    return found


def _look(look: Look) -> dict[str, Any]:
    return {
        "number": look.number,
        "seeds": list(look.seeds),
        "confidence": look.confidence,
        "low": _plain(look.low),
        "high": _plain(look.high),
    }
