"""Writes what a stage found out about the runs of a cell: its folder appears as a whole or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regft_core.io.canonical import json_text
from regft_core.io.files import atomic_directory, fill_in
from regft_core.runs.keyed import seal
from regft_core.runs.results.logs import CURVE_COLUMNS, LOGGED_COLUMNS
from regft_core.runs.results.records import (
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


def training(target: Path, settings: Plain, records: Sequence[Plain], keys: Any) -> None:
    """Write ``work/search`` or ``work/finetune`` of a cell.

    Args:
        settings: of ``records.Manifest``.
        records: of ``SearchRecord`` or ``TrainingRecord``, with ``curve`` ([phase, step, epoch, loss, learning rate,
            gradient norm]) and ``diagnostics`` ([phase, step, name, value]).
        keys: of the plan, with which the folder is sealed (``keyed``).
    """
    model = SearchManifest if settings["phase"] == "search" else TrainingManifest
    curves = [[record["seed"], *row] for record in records for row in record.get("curve", [])]
    logged = [[record["seed"], *row] for record in records for row in record.get("diagnostics", [])]
    with atomic_directory(target) as folder:
        _fill_in(folder / "manifest.json", model, {**settings, "runs": _slim(records)})
        fill_in(folder / "curves.csv", _csv(CURVE_COLUMNS, curves))
        fill_in(folder / "method_metrics.csv", _csv(LOGGED_COLUMNS, logged))
        seal(folder, keys)


def evaluation(target: Path, settings: Plain, records: Sequence[Plain], keys: Any) -> None:
    """Write ``work/evaluate`` of a cell.

    Args:
        settings: of ``EvaluationResult``.
        records: of ``EvaluationRecord``, with ``predictions`` (set -> lines) and ``evaluations`` (name -> what is in
            ``FindingRecord`` and ``Finding``).
        keys: of the plan, with which the folder is sealed (``keyed``).
    """
    with atomic_directory(target) as folder:
        _fill_in(folder / "result.json", EvaluationResult, {**settings, "runs": _slim(records)})
        for name, content in _findings(records).items():
            _fill_in(folder / "evaluations" / f"{name}.json", Finding, {"cell": settings["cell"], **content})
        for record in records:
            for name, text in record["predictions"].items():
                fill_in(folder / "predictions" / f"seed-{record['seed']}" / f"{name}.jsonl", text.encode())
        seal(folder, keys)


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
