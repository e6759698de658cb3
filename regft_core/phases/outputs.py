"""What a stage leaves behind for DVC, the next stage, the report and the tracker."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regft_core.config.grid import parse_size
from regft_core.config.method import Phase
from regft_core.errors import DataError
from regft_core.hooks import compose
from regft_core.io import atomic_directory, fill_in, json_text, read_json
from regft_core.keyed import seal
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


def read_runs(root: Path, stage: str, method: str, task: str) -> dict[tuple[str, int], dict[str, Any]]:
    """(size, seed) -> record that an earlier stage has written; DataError when it did not."""
    folder = stage_folder(root, stage, method, task)
    found = {}
    for path in sorted(folder.glob("*/manifest.json")):
        for record in read_json(path)["runs"]:
            found[(record["size"], record["seed"])] = record
    if not found:
        raise DataError("run-missing", f"{folder} holds no runs; run `dvc repro`, whose stage {stage} writes them")
    return found


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def manifest_head(context: Context) -> dict[str, Any]:
    """What a manifest says of the method on a task, the same for all runs of a cell."""
    return {
        "cell": _cell(context),
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
    }


def write_training(context: Context, stage: str, records: Sequence[dict[str, Any]], keys: Any) -> Path:
    """Write ``work/search`` or ``work/finetune`` of a cell from the records of its runs, sealed with its keys."""
    runs = [{key: value for key, value in record.items() if key not in BULKY} for record in records]
    manifest = manifest_head(context) | {"phase": stage, "versions": versions(), "runs": runs}
    curves = [[record["seed"], *row] for record in records for row in record.get("curve", [])]
    metrics = [[record["seed"], *row] for record in records for row in record.get("diagnostics", [])]
    target = cell_folder(context, stage)
    with atomic_directory(target) as folder:
        fill_in(folder / "manifest.json", json_text(manifest).encode())
        fill_in(folder / "curves.csv", _csv(CURVE_COLUMNS, curves).encode())
        fill_in(folder / "method_metrics.csv", _csv(METRIC_COLUMNS, metrics).encode())
        seal(folder, keys)
    return target


def cell_folder(context: Context, stage: str) -> Path:
    """``work/<stage>/<method>/<task>/<size>``."""
    return stage_folder(context.root, stage, context.job.method, context.job.task) / context.job.size


def _cell(context: Context) -> dict[str, Any]:
    job = context.job
    return {"method": job.method, "task": job.task, "size": parse_size(job.size)}


def trains_encoder(context: Context) -> bool:
    """Whether any phase takes optimiser steps that change what the encoder computes, as its methods declare.

    LoRA, prefix and prompt tuning freeze the encoder's own tensors and train what they put into it.
    """

    def frozen(phase: Phase) -> bool:
        acting = compose.active(context.entries(phase))
        freezing = [entry.declares for entry in acting if entry.declares.freezes_encoder]
        return bool(freezing) and not any("structure" in declares.edits for declares in freezing)

    phases = context.method.phases
    return any(context.phase(phase.name).training.epochs > 0 and not frozen(phase) for phase in phases)


def reads_encoder(context: Context) -> bool:
    """Whether the answers depend on the encoder, as the methods of the last phase declare."""
    acting = compose.active(context.entries(context.phase("finetune")))
    return all(entry.declares.reads_encoder for entry in acting)


def _regularisers(context: Context) -> dict[str, Any]:
    """Options of every regulariser of every phase, defaults included."""
    return {
        phase.name: {name: options.model_dump(mode="json") for name, options in phase.regularisers}
        for phase in context.method.phases
    }


def write_evaluation(context: Context, records: Sequence[dict[str, Any]], keys: Any) -> Path:
    """Write ``work/evaluate`` of a cell from the evaluations of its runs, sealed with its keys.

    ``evaluations/<name>.json`` beside ``result.json`` is what an evaluation beyond the scores found out.
    """
    task, cell = context.task, _cell(context)
    result = {
        "cell": cell,
        "primary": task["primary"],
        "metrics": task["metrics"],
        "kind": task["kind"],
        "labels": task["labels"],
        "runs": [{key: record[key] for key in record if key not in EVALUATED_APART} for record in records],
    }
    target = cell_folder(context, "evaluate")
    with atomic_directory(target) as folder:
        fill_in(folder / "result.json", json_text(result).encode())
        for name, content in evaluations_by_name(records).items():
            fill_in(folder / "evaluations" / f"{name}.json", json_text({"cell": cell, **content}).encode())
        for record in records:
            for name, text in record["predictions"].items():
                fill_in(folder / "predictions" / f"seed-{record['seed']}" / f"{name}.jsonl", text.encode())
        seal(folder, keys)
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
