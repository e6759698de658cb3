"""The record of a finished phase: steps, cost, curve and marks; and of several, or of all members of one, together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regft_core.runs.epoch_scores import merged_epoch_scores
from regft_core.runs.run_folder import StoredRun

if TYPE_CHECKING:
    from regft_core.runs.training_run import TrainedPhase

_SUMMED = ("train_seconds", "fit_seconds", "real_tokens", "padded_tokens")


def phase_record(label: str, trained: TrainedPhase) -> dict[str, Any]:
    """Steps, cost, curve ([phase, step, epoch, loss, learning rate, gradient norm]) and diagnostics."""
    done = trained.progression
    batches = max(1, done.batches)
    best = trained.best
    chosen = {} if best is None else {"checkpoint": {"step": best.step, "scores": best.scores}}
    return chosen | {
        "steps": done.step,
        "seconds": done.seconds + trained.fit_seconds,
        "skipped": trained.skipped,
        "marks": phase_marks(trained) if trained.skipped is None else [],
        "cost": {
            # Passes are per batch of the step, in units of the batch.
            "forward_passes_per_step": done.forward_passes / batches,
            "backward_passes_per_step": done.backward_passes / batches,
            "batches_per_step": batches / max(1, done.step),
            "train_seconds": done.seconds,
            "fit_seconds": trained.fit_seconds,
            "seconds_per_step": done.seconds / max(1, done.step),
            "real_tokens": done.real_tokens,
            "padded_tokens": done.padded_tokens,
            "peak_memory_bytes": trained.peak_memory_bytes,
        },
        "final_loss": done.curve[-1][2] if done.curve else None,
        "curve": [[label, *values] for values in done.curve],
        "diagnostics": [[label, s, n, v] for n, s, v in trained.stack.diagnostics().values],
    }


def phase_marks(trained: TrainedPhase) -> list[str]:
    """Marks that only the prepared model shows: those of its regularisers, and passes that no dropout tells apart."""
    from regft_core.models.architectures import without_dropout

    comparing = [r for r in trained.stack.regularisers if r.declares.dropout.either and not r.marks()]
    still = comparing and without_dropout(trained.trainee.model.config)
    return trained.stack.marks() + [
        f"{r.name}: this encoder runs without dropout, so its passes differ by the noise of others or not at all"
        for r in comparing
        if still
    ]


def merged_record(members: Sequence[StoredRun]) -> dict[str, Any]:
    """Costs, curves and diagnostics of several phases, or of all members of one, as one record."""
    done = [member.result for member in members if member.result["status"] == "ok"]
    steps = sum(result["steps"] for result in done)
    cost: dict[str, Any] = {name: sum(result["cost"][name] for result in done) for name in _SUMMED}
    for name in ("forward_passes_per_step", "backward_passes_per_step", "batches_per_step"):
        cost[name] = sum(r["cost"][name] * r["steps"] for r in done) / max(1, steps)
    cost["seconds_per_step"] = cost["train_seconds"] / max(1, steps)
    peaks = [r["cost"]["peak_memory_bytes"] for r in done if r["cost"]["peak_memory_bytes"] is not None]
    cost["peak_memory_bytes"] = max(peaks) if peaks else None
    skipped = [result["skipped"] for result in done if result["skipped"]]
    return merged_epoch_scores(done) | {
        "steps": steps,
        "seconds": sum(result["seconds"] for result in done),
        "skipped": "; ".join(skipped) if skipped and len(skipped) == len(done) else None,
        "marks": list(dict.fromkeys(mark for result in done for mark in result["marks"])),
        "cost": cost,
        "final_loss": next((r["final_loss"] for r in reversed(done) if r["final_loss"] is not None), None),
        "curve": [row for result in done for row in result["curve"]],
        "diagnostics": [row for result in done for row in result["diagnostics"]],
    }
