"""One line for each run that ends, for the terminal."""

from __future__ import annotations

from typing import Any

from regft_core.settings.provenance import described

#: How a run collapsed, in words.
COLLAPSED = {"constant": "the same answer to every row", "majority": "no better than a constant answer"}


def describe(record: dict[str, Any]) -> str:
    """One line for a run that was trained and evaluated."""
    if record["status"] != "ok":
        return f"  {run_of(record)}: FAILED: {record['error']}"
    sets = ", ".join(
        f"{name} " + " ".join(f"{metric} {value:.3f}" for metric, value in found["metrics"].items())
        for name, found in record["sets"].items()
    )
    note = f"  COLLAPSED ({COLLAPSED[record['collapsed']]})" if record["collapsed"] else ""
    return f"  {run_of(record)}: {sets}{note}"


def run_of(record: dict[str, Any]) -> str:
    """Rows and seed of a run, for its line on the terminal."""
    return f"{record['size']} rows, seed {record['seed']}"


def describe_refit(record: dict[str, Any]) -> str:
    """The end of the line of a run on all labelled rows."""
    if record["status"] != "ok":
        return f"refit, seed {record['seed']}: FAILED: {record['error']}"
    return f"refit on all labelled rows, seed {record['seed']}: {record['steps']} steps in {record['seconds']:.0f} s"


def describe_trial(record: dict[str, Any]) -> str:
    """One line per trial for the terminal."""
    run = f"  {run_of(record)}, trial {record['trial'] + 1} ({described(record['values'])})"
    if record["status"] != "ok":
        return f"{run}: FAILED: {record['error']}"
    return f"{run}: {record['steps']} steps, score {record['score']:.4f}"
