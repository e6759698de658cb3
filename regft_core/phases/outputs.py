"""Writes what a stage leaves behind for DVC, the report and the tracker."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regft_core.io import atomic_directory, write_json, write_text
from regft_core.phases.context import Context, versions

CURVE_COLUMNS = ("seed", "phase", "step", "epoch", "loss", "learning_rate", "gradient_norm")
METRIC_COLUMNS = ("seed", "phase", "step", "name", "value")
#: Parts of a record that have files of their own.
BULKY = ("curve", "diagnostics")


def cell_folder(root: Path, kind: str, method: str, task: str, size: str) -> Path:
    """``work/<kind>/<method>/<task>-<size>``."""
    return root / "work" / kind / method / f"{task}-{size}"


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def write_training(context: Context, phase: str, records: Sequence[dict[str, Any]]) -> Path:
    """Write ``work/search`` or ``work/finetune`` of one cell from the records of its seeds."""
    job = context.job
    target = cell_folder(context.root, phase, job.method, job.task, job.size)
    manifest = {
        "cell": {"method": job.method, "task": job.task, "size": job.size},
        "phase": phase,
        "protocol": context.method.protocol,
        "method": context.method.config.model_dump(mode="json", exclude_none=True),
        "model": {
            "name": context.source.name,
            "revision": context.source.revision,
            "content_sha256": context.source.content_sha256,
            "max_length": context.params.model.max_length,
        },
        "training": context.training.model_dump(mode="json"),
        "versions": versions(),
        "runs": [{key: value for key, value in record.items() if key not in BULKY} for record in records],
    }
    curves = [[record["seed"], *row] for record in records for row in record.get("curve", [])]
    metrics = [[record["seed"], *row] for record in records for row in record.get("diagnostics", [])]
    with atomic_directory(target) as folder:
        write_json(folder / "manifest.json", manifest)
        write_text(folder / "curves.csv", _csv(CURVE_COLUMNS, curves))
        write_text(folder / "method_metrics.csv", _csv(METRIC_COLUMNS, metrics))
    return target


def write_evaluation(context: Context, records: Sequence[dict[str, Any]]) -> Path:
    """Write ``work/evaluate`` and ``work/metrics`` of one cell from the evaluations of its seeds."""
    job, task = context.job, context.task
    target = cell_folder(context.root, "evaluate", job.method, job.task, job.size)
    result = {
        "cell": {"method": job.method, "task": job.task, "size": job.size},
        "primary": task["primary"],
        "metrics": task["metrics"],
        "kind": task["kind"],
        "labels": task["labels"],
        "runs": [{key: value for key, value in record.items() if key != "predictions"} for record in records],
    }
    with atomic_directory(target) as folder:
        write_json(folder / "result.json", result)
        for record in records:
            for name, text in record["predictions"].items():
                write_text(folder / "predictions" / f"seed-{record['seed']}" / f"{name}.jsonl", text)
    metrics_file = cell_folder(context.root, "metrics", job.method, job.task, job.size).with_suffix(".json")
    write_json(metrics_file, metrics_summary(records))
    return target


def metrics_summary(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Numbers for ``dvc metrics show``: every seed and the mean over the seeds that ran."""
    summary: dict[str, Any] = {
        "failed_runs": sum(record["status"] != "ok" for record in records),
        # On an OOD set a score at chance is a finding, not a failed run.
        "collapsed_runs": sum(record["collapsed"].get("dev") is not None for record in records),
    }
    names = list(dict.fromkeys(name for record in records for name in record["sets"]))
    for name in names:
        summary[name] = {}
        scored = [record for record in records if name in record["sets"]]
        for metric in scored[0]["sets"][name]["metrics"]:
            values = {f"seed_{record['seed']}": record["sets"][name]["metrics"][metric] for record in scored}
            summary[name][metric] = {"mean": sum(values.values()) / len(values), **values}
    return summary
