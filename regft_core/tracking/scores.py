"""The final numbers of a run and of a cell, by metric name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regft_core.tracking.records import RunRecord


def run_scores(
    main: Mapping[str, Any], evaluated: Mapping[str, Any] | None, primary: str | None = None
) -> dict[str, float]:
    """Final numbers of one run, by metric name; ``primary`` is the task's main metric on the development set."""
    found: dict[str, Any] = {}
    development = ((evaluated or {}).get("sets") or {}).get("dev") or {}
    found["primary"] = development.get("metrics", {}).get(primary)
    for name, judged in ((evaluated or {}).get("sets") or {}).items():
        found |= {f"{name}.{metric}": value for metric, value in judged["metrics"].items()}
        found |= {f"{name}.{metric}.majority": value for metric, value in (judged.get("majority") or {}).items()}
    if evaluated is not None and evaluated["status"] == "ok":
        collapsed = evaluated.get("collapsed") or {}
        found |= {f"{name}.collapsed": int(bool(how)) for name, how in collapsed.items()}
        found["collapsed"] = int(any(collapsed.values()))
    cost = dict(main.get("cost") or {}) | dict((evaluated or {}).get("cost") or {})
    found |= {f"cost.{name}": value for name, value in cost.items()}
    found |= {"final_loss": main.get("final_loss"), "steps": main.get("steps")}
    numbers = {name: _number(value) for name, value in found.items()}
    return {name: value for name, value in numbers.items() if value is not None}


def evaluation_scores(evaluations: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """``<evaluation>.<set>.<name>`` -> number, of what the evaluations beyond the scores found about one run."""
    return {
        f"{evaluation}.{place}.{name}": float(value)
        for evaluation, finding in evaluations.items()
        for place, named in finding["scalars"].items()
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
    ratios = reported.get("cost_ratio") or {}
    found |= {f"cost.ratio_{kind}": value for kind, value in ratios.items() if kind != "declared" and value is not None}
    return found


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
