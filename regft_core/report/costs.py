"""Costs of methods next to plain fine-tuning, and what they change in the shared training protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from regft_core.report.read_grid import CellData
from regft_core.runs import records
from regft_core.settings.document import dotted, leaves


@dataclass(frozen=True)
class Cost:
    """Cost of a method, in total and relative to plain fine-tuning = 1 (None where it cannot be said)."""

    #: Passes of all phases.
    declared: float | None
    #: Quantity of a run's record -> its mean over the runs that finished.
    means: Mapping[str, float | None]
    #: Share of processed tokens that are not padding.
    token_share: float | None
    #: Largest peak of all phases and seeds; None on a CPU, where it is not measured.
    peak_memory_bytes: int | None
    devices: tuple[str, ...]
    #: Why a ratio is missing.
    note: str = ""
    #: Over the seeds of both: seconds of all training (search included), seconds of one fine-tuning step, peak memory.
    measured: float | None = None
    per_step: float | None = None
    memory: float | None = None
    #: Smallest and largest of the seeds' own ratios: how much a busy machine blurs ``measured``.
    spread: tuple[float, float] | None = None


def _mean(costs: Iterable[records.Cost], name: str) -> float | None:
    values = [float(value) for cost in costs if (value := getattr(cost, name)) is not None]
    return float(np.mean(values)) if values else None


def _seconds(cost: records.Cost) -> float:
    """Of all phases: the steps of the last one, what it fits without steps, and the search (with its own fits)."""
    return sum(seconds or 0.0 for seconds in (cost.train_seconds, cost.fit_seconds, cost.search_seconds))


def _peak(costs: Iterable[records.Cost]) -> int | None:
    return max((cost.peak_memory_bytes for cost in costs if cost.peak_memory_bytes), default=None)


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b is not None and b > 0 else None


def _devices(cell: CellData) -> tuple[str, ...]:
    """Kinds of device (``cpu``, ``cuda``) that ran the cell, as the environments of its runs say."""
    places = ((run.environment or {}).get("device") or "unknown" for run in cell.finetune.runs)
    return tuple(sorted({str(place).split(":")[0] for place in places}))


def declared(cell: CellData) -> float | None:
    """Mean declared ratio to plain fine-tuning over the runs that finished."""
    return _mean((run.cost for run in cell.runs if run.ok), "declared_ratio")


def plain_cell(cells: Mapping[str, CellData], reference: str) -> CellData | None:
    """The cell of plain fine-tuning, whose cost is 1: one phase that trains the encoder without any regulariser.

    Of several the reference, else ``vanilla``, else the first.
    """
    plain = {
        name: cell
        for name, cell in cells.items()
        if cell.finetune.trains_encoder
        and len(cell.finetune.phases) == 1
        and not any(cell.finetune.regularisers.values())
        and declared(cell) == 1.0
    }
    return plain.get(reference) or plain.get("vanilla") or next(iter(plain.values()), None)


def cost_of(cell: CellData, plain: CellData | None) -> Cost:
    """Cost of a cell, as ratios over the seeds that ran to the end in both cells.

    Seconds of different kinds of device are not compared; the note says so.
    """
    ok, base = (
        {run.seed: run.cost for run in data.runs if run.ok and run.cost.train_seconds is not None} if data else {}
        for data in (cell, plain)
    )
    means = {name: _mean(ok.values(), name) for name in records.Cost.model_fields}
    devices, others = _devices(cell), _devices(plain) if plain is not None else ()
    both = sorted(ok.keys() & base.keys())
    reasons = {
        "no run finished": not ok,
        "no plain fine-tuning in the grid": plain is None,
        "no seed of both methods finished": not both,
        f"measured on {', '.join(devices)}, plain fine-tuning on {', '.join(others)}": len({*devices, *others}) > 1,
    }
    note = next((reason for reason, holds in reasons.items() if holds), "")
    mine, theirs = ([costs[seed] for seed in both if not note] for costs in (ok, base))
    ratios = [ratio for ratio in map(_ratio, map(_seconds, mine), map(_seconds, theirs)) if ratio is not None]
    return Cost(
        declared(cell),
        means,
        _ratio(means["real_tokens"], means["padded_tokens"]),
        _peak(ok.values()),
        devices,
        note,
        measured=_ratio(sum(map(_seconds, mine)), sum(map(_seconds, theirs))),
        per_step=_ratio(_mean(mine, "seconds_per_step"), _mean(theirs, "seconds_per_step")),
        memory=_ratio(_peak(mine), _peak(theirs)),
        spread=(min(ratios), max(ratios)) if len(ratios) > 1 else None,
    )


def overrides(own: Mapping[str, Any], shared: Mapping[str, Any] | None) -> dict[str, tuple[Any, Any]]:
    """Values of the training protocol that differ, as ``name -> (shared, own)``; nested names are dotted."""
    if shared is None:
        return {}
    a, b = ({dotted(path): value for path, value in leaves(one)} for one in (shared, own))
    # ``epoch_scores`` is switched off where there is nothing to score: no setting of the training.
    names = sorted((a.keys() | b.keys()) - {"epoch_scores"})
    return {name: (a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)}
