"""The choice among trials. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from regft_core import metrics
from regft_core.schema.tuning import TuningConfig

Record = dict[str, Any]
#: The mark of results whose values the development set chose.
CHOSEN_ON_DEV = "hyper-parameters were chosen on the development set that also judges them, as published"
#: What is kept of every trial.
TRIAL_KEYS = ("trial", "values", "key", "status", "error", "score", "seconds", "steps")


def choose(records: Sequence[Record], tuning: TuningConfig, primary: str) -> dict[tuple[str, int], Record]:
    """(size, seed) -> what was tried and chosen, from the records of all trials of a method on a task.

    A trial that failed for a seed is not chosen where that seed counts, unless all failed; of equal trials the first
    is taken. The result holds ``values`` (the choice), ``chosen`` (its number) and every trial with its score.
    """
    sign = 1.0 if metrics.higher_is_better(primary) else -1.0
    groups: dict[tuple[str, int | None], list[Record]] = {}
    for record in records:
        groups.setdefault((record["size"], record["seed"] if tuning.judged_by_seed else None), []).append(record)
    found = {}
    for own in groups.values():
        trials = sorted({record["trial"] for record in own})
        best = max(trials, key=lambda trial: (_merit([r for r in own if r["trial"] == trial], sign), -trial))
        for size, seed in dict.fromkeys((record["size"], record["seed"]) for record in own):
            mine = [r for r in own if (r["size"], r["seed"]) == (size, seed)]
            found[size, seed] = {
                "values": next(r["values"] for r in mine if r["trial"] == best),
                "chosen": best,
                "selection": tuning.selection,
                "split": tuning.share if tuning.selection == "split" else None,
                "per": "seed" if tuning.judged_by_seed else "cell",
                "metric": primary,
                "seconds": sum(r["seconds"] for r in mine),
                "trials": [_over_folds([r for r in mine if r["trial"] == trial]) for trial in trials],
            }
    return found


def _over_folds(records: Sequence[Record]) -> Record:
    """One trial of one run: the mean over the folds that judged it, None where one of them failed."""
    first, scores = records[0], [record["score"] for record in records]
    failed = next((record for record in records if record["score"] is None), first)
    together = {
        "status": failed["status"],
        "error": failed["error"],
        "score": None if None in scores else fmean(scores),
        "seconds": sum(record["seconds"] for record in records),
        "steps": sum(record["steps"] or 0 for record in records),
    }
    return {key: (first | together)[key] for key in TRIAL_KEYS}


def _merit(records: Sequence[Record], sign: float) -> float:
    scores = [record["score"] for record in records]
    return sign * fmean(scores) if None not in scores else float("-inf")
