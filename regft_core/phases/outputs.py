"""What a stage leaves behind for DVC, the next stage, the report and the tracker."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regft_core.config.method import Phase
from regft_core.errors import DataError
from regft_core.hooks import compose
from regft_core.io import atomic_directory, fill_in, json_text, read_json, write_json
from regft_core.phases.context import Context
from regft_core.phases.project import versions

CURVE_COLUMNS = ("seed", "phase", "step", "epoch", "loss", "learning_rate", "gradient_norm")
METRIC_COLUMNS = ("seed", "phase", "step", "name", "value")
#: Parts of a record that have files of their own.
BULKY = ("curve", "diagnostics")
EVALUATED_APART = ("predictions", "evaluations")
#: Parts of a finding that are those of its evaluation, not of the run.
_SHARED = ("description", "options", "machine_dependent")


def stage_folder(root: Path, stage: str, method: str, task: str) -> Path:
    """``work/<stage>/<method>/<task>``: one folder for each training size lies in it."""
    return root / "work" / stage / method / task


def by_size(records: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Records of a stage by training size, in their order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault(record["size"], []).append(record)
    return found


def read_runs(root: Path, stage: str, method: str, task: str) -> dict[tuple[str, int], dict[str, Any]]:
    """(size, seed) -> record that an earlier stage has written; DataError when it did not."""
    folder = stage_folder(root, stage, method, task)
    found = {}
    for path in sorted(folder.glob("*/manifest.json")):
        for record in read_json(path)["runs"]:
            found[(record["size"], record["seed"])] = record
    if not found:
        raise DataError(
            "run-missing", f"{folder} holds no runs; run `dvc repro`, whose stage {stage}@{method}-{task} writes them"
        )
    return found


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def write_training(context: Context, stage: str, records: Sequence[dict[str, Any]], target: Path | None = None) -> Path:
    """Write ``work/search`` or ``work/finetune`` of a method and a task from the records of all its runs.

    ``target``: another folder in its place.
    """
    job = context.job
    target = target or stage_folder(context.root, stage, job.method, job.task)
    with atomic_directory(target) as folder:
        for size, own in by_size(records).items():
            manifest = {
                "cell": {"method": job.method, "task": job.task, "size": _plain(size)},
                "phase": stage,
                "phases": [phase.name for phase in context.method.phases],
                "trains_encoder": trains_encoder(context),
                "reads_encoder": reads_encoder(context),
                "method": context.method.config.model_dump(mode="json", exclude_none=True),
                "regularisers": _regularisers(context),
                "model": {
                    "name": context.source.name,
                    "revision": context.source.revision,
                    "content_sha256": context.source.content_sha256,
                    "max_length": context.encoder.max_length,
                    "pooling": context.encoder.pooling,
                    "pairs": context.encoder.pairs,
                },
                "training": context.phase("finetune").training.model_dump(mode="json"),
                "versions": versions(),
                "runs": [{key: value for key, value in record.items() if key not in BULKY} for record in own],
            }
            curves = [[record["seed"], *row] for record in own for row in record.get("curve", [])]
            metrics = [[record["seed"], *row] for record in own for row in record.get("diagnostics", [])]
            fill_in(folder / size / "manifest.json", json_text(manifest).encode())
            fill_in(folder / size / "curves.csv", _csv(CURVE_COLUMNS, curves).encode())
            fill_in(folder / size / "method_metrics.csv", _csv(METRIC_COLUMNS, metrics).encode())
    return target


def trains_encoder(context: Context) -> bool:
    """Whether any phase takes optimiser steps that change what the encoder computes, as its methods declare.

    LoRA, prefix and prompt tuning freeze the encoder's own tensors and train what they put into it.
    """

    def frozen(phase: Phase) -> bool:
        acting = compose.active(context.entries(phase))
        freezing = [(cls, options) for cls, options in acting if cls.freezes_encoder(options)]
        return bool(freezing) and not any("structure" in cls.edits(options) for cls, options in freezing)

    phases = context.method.phases
    return any(context.phase(phase.name).training.epochs > 0 and not frozen(phase) for phase in phases)


def reads_encoder(context: Context) -> bool:
    """Whether the answers depend on the encoder, as the methods of the last phase declare."""
    acting = compose.active(context.entries(context.phase("finetune")))
    return all(cls.reads_encoder(options) for cls, options in acting)


def _regularisers(context: Context) -> dict[str, Any]:
    """Options of every regulariser of every phase, defaults included."""
    return {
        phase.name: {name: options.model_dump(mode="json") for name, options in phase.regularisers}
        for phase in context.method.phases
    }


def _plain(size: str) -> int | str:
    return size if size == "full" else int(size)


def write_evaluation(
    context: Context, records: Sequence[dict[str, Any]], target: Path | None = None, metrics: Path | None = None
) -> Path:
    """Write ``work/evaluate`` and ``work/metrics`` of a method and a task from the evaluations of its runs.

    ``target``, ``metrics``: another folder, and another file, in their place. ``evaluations/<name>.json``
    beside ``result.json`` is what an evaluation beyond the scores found out.
    """
    job, task = context.job, context.task
    target = target or stage_folder(context.root, "evaluate", job.method, job.task)
    with atomic_directory(target) as folder:
        for size, own in by_size(records).items():
            result = {
                "cell": {"method": job.method, "task": job.task, "size": _plain(size)},
                "primary": task["primary"],
                "metrics": task["metrics"],
                "kind": task["kind"],
                "labels": task["labels"],
                "runs": [{key: record[key] for key in record if key not in EVALUATED_APART} for record in own],
            }
            fill_in(folder / size / "result.json", json_text(result).encode())
            for name, content in evaluations_by_name(own).items():
                text = json_text({"cell": result["cell"], **content})
                fill_in(folder / size / "evaluations" / f"{name}.json", text.encode())
            for record in own:
                for name, text in record["predictions"].items():
                    fill_in(folder / size / "predictions" / f"seed-{record['seed']}" / f"{name}.jsonl", text.encode())
    metrics_file = metrics or stage_folder(context.root, "metrics", job.method, job.task).with_suffix(".json")
    by = by_size(records).items()
    write_json(metrics_file, {size: metrics_summary(own, task["primary"]) for size, own in by})
    return target


def evaluations_by_name(records: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Content of the file of each evaluation: what it is, and what it found out about every run that it saw."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        for name, finding in record["evaluations"].items():
            shared = {key: finding[key] for key in _SHARED}
            own = {key: value for key, value in finding.items() if key not in _SHARED}
            content = found.setdefault(name, {"evaluation": name, **shared, "runs": []})
            content["runs"].append({"seed": record["seed"], "key": record["key"], **own})
    return found


def metrics_summary(records: Sequence[dict[str, Any]], primary: str) -> dict[str, Any]:
    """Numbers for ``dvc metrics show``, which has a column for each: means of the primary metric, and counts.

    Single seeds and other metrics are in ``result.json``, intervals in ``reports/metrics``.
    """
    names = list(dict.fromkeys(name for record in records for name in record["sets"]))
    values = {
        name: [record["sets"][name]["metrics"][primary] for record in records if name in record["sets"]]
        for name in names
    }
    return {
        primary: {name: sum(scores) / len(scores) for name, scores in values.items()},
        "runs": sum(record["status"] == "ok" for record in records),
        "failed_runs": sum(record["status"] != "ok" for record in records),
        # On an OOD set a score at chance is a finding, not a failed run.
        "collapsed_runs": sum(record["collapsed"].get("dev") is not None for record in records),
    }
