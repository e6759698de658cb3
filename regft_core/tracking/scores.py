"""The final numbers of a run and of a cell, by metric name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regft_core.runs.results.records import EvaluationRecord, FindingRecord, TrainingRecord
from regft_core.tracking.records import RunRecord


def run_scores(
    main: TrainingRecord, evaluated: EvaluationRecord | None, primary: str | None = None
) -> dict[str, float]:
    """Final numbers of one run, by metric name; ``primary`` is the task's main metric on the development set."""
    sets = evaluated.sets if evaluated else {}
    found: dict[str, float | None] = {"primary": sets["dev"].metrics.get(primary or "") if "dev" in sets else None}
    for name, judged in sets.items():
        found |= {f"{name}.{metric}": value for metric, value in judged.metrics.items()}
        found |= {f"{name}.{metric}.majority": value for metric, value in judged.majority.items()}
    if evaluated is not None and evaluated.ok:
        found["collapsed"] = int(bool(evaluated.collapsed))
    cost = main.cost.plain() | (evaluated.cost.plain() if evaluated else {})
    found |= {f"cost.{name}": value for name, value in cost.items()}
    found |= {"final_loss": main.final_loss, "steps": main.steps}
    return {name: float(value) for name, value in found.items() if value is not None}


def evaluation_scores(findings: Mapping[str, FindingRecord]) -> dict[str, float]:
    """``<evaluation>.<set>.<name>`` -> number, of what the evaluations beyond the scores found about one run."""
    return {
        f"{evaluation}.{place}.{name}": value
        for evaluation, finding in findings.items()
        for place, named in finding.scalars.items()
        for name, value in named.items()
    }


def cell_scores(runs: Sequence[RunRecord], reported: Mapping[str, Any]) -> dict[str, float]:
    """Means over the runs that did not fail, and the report's intervals where they are about the same runs."""
    good = [run for run in runs if run.ok]
    found: dict[str, float] = {}
    for name in dict.fromkeys(name for run in good for name in run.scores):
        values = [run.scores[name] for run in good if name in run.scores]
        found[name] = sum(values) / len(values)
    found |= {
        "runs": len(runs),
        "failed_runs": len(runs) - len(good),
        "collapsed_runs": sum(run.scores.get("collapsed", 0.0) for run in good),
    }
    for set_name, metrics in reported.items():
        for metric, bounds in metrics.items() if isinstance(metrics, Mapping) else ():
            mean = bounds.get("mean") if isinstance(bounds, Mapping) else None
            name = f"{set_name}.{metric}"
            # A report older than the results describes other runs.
            if mean is None or name not in found or abs(mean - found[name]) > 1e-9 or bounds.get("n") != len(good):
                continue
            found |= {f"{name}.{side}": bounds[side] for side in ("low", "high") if bounds.get(side) is not None}
    if "primary" in found:
        metric = f"dev.{runs[0].tags['primary']}"
        bounds = {f"primary.{side}": found.get(f"{metric}.{side}") for side in ("low", "high")}
        found |= {name: value for name, value in bounds.items() if value is not None}
    ratios = reported.get("cost_ratio") or {}
    found |= {f"cost.ratio_{kind}": value for kind, value in ratios.items() if kind != "declared" and value is not None}
    return found
