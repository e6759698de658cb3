"""Writes what a stage found out about all runs of a method on a task: each folder appears as a whole or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regft_core.io import atomic_directory, fill_in, json_text, write_json
from regft_core.results.logs import CURVE_COLUMNS, LOGGED_COLUMNS
from regft_core.results.records import (
    EvaluationResult,
    Finding,
    Record,
    SearchManifest,
    TrainingManifest,
)

#: Parts of a record that have files of their own.
_BULKY = ("curve", "diagnostics", "predictions", "evaluations")
#: Parts of a finding that are those of its evaluation, not of the run.
_SHARED = ("description", "options", "machine_dependent")

#: A run as its stage returns it: the plain values of its record, and the bulky parts.
Plain = Mapping[str, Any]


def training(target: Path, settings: Plain, records: Sequence[Plain]) -> None:
    """Write ``work/search`` or ``work/finetune`` of a method and a task.

    Args:
        settings: of ``records.Manifest``, but the size of the cell.
        records: of ``SearchRecord`` or ``TrainingRecord``, with ``curve`` ([phase, step, epoch, loss, learning rate,
            gradient norm]) and ``diagnostics`` ([phase, step, name, value]).
    """
    model = SearchManifest if settings["phase"] == "search" else TrainingManifest
    with atomic_directory(target) as folder:
        for size, own in _by_size(records).items():
            _fill_in(folder / size / "manifest.json", model, _sized(settings, size) | {"runs": _slim(own)})
            curves = [[record["seed"], *row] for record in own for row in record.get("curve", [])]
            logged = [[record["seed"], *row] for record in own for row in record.get("diagnostics", [])]
            fill_in(folder / size / "curves.csv", _csv(CURVE_COLUMNS, curves))
            fill_in(folder / size / "method_metrics.csv", _csv(LOGGED_COLUMNS, logged))


def evaluation(target: Path, metrics: Path, settings: Plain, records: Sequence[Plain]) -> None:
    """Write ``work/evaluate`` and the file in ``work/metrics`` of a method and a task.

    Args:
        settings: of ``EvaluationResult``, but the size of the cell.
        records: of ``EvaluationRecord``, with ``predictions`` (set -> lines) and ``evaluations`` (name -> what is in
            ``FindingRecord`` and ``Finding``).
    """
    with atomic_directory(target) as folder:
        for size, own in _by_size(records).items():
            result = _sized(settings, size) | {"runs": _slim(own)}
            _fill_in(folder / size / "result.json", EvaluationResult, result)
            for name, content in _findings(own).items():
                _fill_in(folder / size / "evaluations" / f"{name}.json", Finding, {"cell": result["cell"], **content})
            for record in own:
                for name, text in record["predictions"].items():
                    fill_in(folder / size / "predictions" / f"seed-{record['seed']}" / f"{name}.jsonl", text.encode())
    by_size = _by_size(records).items()
    write_json(metrics, {size: _summary(own, settings["primary"]) for size, own in by_size})


def _by_size(records: Sequence[Plain]) -> dict[str, list[Plain]]:
    found: dict[str, list[Plain]] = {}
    for record in records:
        found.setdefault(record["size"], []).append(record)
    return found


def _sized(settings: Plain, size: str) -> dict[str, Any]:
    return {**settings, "cell": {**settings["cell"], "size": size if size == "full" else int(size)}}


def _slim(records: Sequence[Plain]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key not in _BULKY} for record in records]


def _fill_in(path: Path, model: type[Record], content: Plain) -> None:
    """Write a new file of a record as it was given; one that could not be read again is a mistake in the caller."""
    model.model_validate(content, extra="forbid")
    fill_in(path, json_text(content).encode())


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()


def _findings(records: Sequence[Plain]) -> dict[str, dict[str, Any]]:
    """Content of the file of each evaluation: what it is, and what it found out about every run that it saw."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        for name, finding in record["evaluations"].items():
            shared = {key: finding[key] for key in _SHARED}
            own = {key: value for key, value in finding.items() if key not in _SHARED}
            content = found.setdefault(name, {"evaluation": name, **shared, "runs": []})
            content["runs"].append({"seed": record["seed"], "key": record["key"], **own})
    return found


def _summary(records: Sequence[Plain], primary: str) -> dict[str, Any]:
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
