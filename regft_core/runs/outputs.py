"""Files that a stage leaves for DVC, the next stage, the report and MLflow: its settings and its records."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regft_core.disk.canonical import json_text
from regft_core.disk.files import atomic_directory, fill_in
from regft_core.errors import StoreError
from regft_core.runs.context import Context
from regft_core.runs.environment import versions
from regft_core.runs.run_phase import RunPhase
from regft_core.runs.store import RunStore
from regft_core.runs.work import COLUMNS, CURVES, LOGGED, MANIFEST, RESULT, Work, seal
from regft_core.settings.document import leaves
from regft_core.settings.encoders import facts
from regft_core.settings.run_config import run_config

#: Runs with their weights, so that ``dvc push`` and ``dvc pull`` bring them.
WEIGHTS = "weights"

#: Parts of a record that have files of their own.
_BULKY = ("curve", "diagnostics", "predictions", "evaluations")
#: A run as its stage returns it: the plain values of its record, and the bulky parts.
Plain = Mapping[str, Any]


def _settings(context: Context, read: Callable[[RunPhase], dict[str, Any]]) -> dict[str, Any]:
    """Return all that acts on training, by its path; ``read`` describes the encoder of a phase."""
    judging = {"description", "metrics", "primary", "ood", "submission"}
    phases = {
        phase.name: {
            "start": phase.start,
            "seed": phase.seed,
            "repeat": phase.repeat and phase.repeat.model_dump(mode="json"),
            "data": phase.data.model_dump(mode="json"),
            "regularisers": {name: options.model_dump(mode="json") for name, options in phase.regularisers},
            "training": of_run.training.model_dump(mode="json"),
            # A lent phase may read the encoder otherwise than its method does.
            **({"model": read(of_run)} if phase.model or phase.lent is not None else {}),
        }
        for of_run in context.phases
        for phase in [of_run.declared]
    }
    return {
        "model": read(context.last),
        "phases": phases,
        "subsample": context.params.subsample.model_dump(mode="json"),
        "task": context.task_config.model_dump(mode="json", exclude_defaults=True, exclude=judging),
    }


def manifest_head(context: Context) -> dict[str, Any]:
    """Return the part of a manifest about its cell."""
    settings = _settings(context, _model)
    return {
        "phases": list(settings["phases"]),
        "trains_encoder": trains_encoder(context),
        "reads_encoder": reads_encoder(context),
        "reads_text": reads_text(context),
        "encoder": facts(context.last.source.config()),
        "settings": settings,
    }


def changed_settings(context: Context) -> list[str]:
    """Return the settings of a finished cell that are others now: ``model.max_length: 128, now 64``.

    The encoder's files are not read: where results are shown, it may be on no disk.
    """
    before = dict(leaves(Work(context.root).finetune(context.job.cell).settings))
    now = dict(leaves(_settings(context, lambda phase: phase.encoder.model_dump(mode="json"))))
    of_files = {path for path in before | now if path[-1] in ("revision", "sha256")}
    every = [path for path in before | now if before.get(path) != now.get(path) and path not in of_files]
    return [f"{'.'.join(map(str, path))}: {before.get(path)}, now {now.get(path)}" for path in every]


def _model(phase: RunPhase) -> dict[str, Any]:
    encoder, source = phase.encoder.model_dump(mode="json"), phase.source
    return {**encoder, "revision": source.revision, "sha256": source.content_sha256}


def write_cell(context: Context, stage: str, records: Sequence[Plain], keys: Any) -> None:
    """Write ``work/<stage>`` of a cell; a search by its runs alone, so that no setting of fine-tuning changes it."""
    cell = context.job.cell
    settings: dict[str, Any] = {}
    if stage == "finetune":
        settings = manifest_head(context) | {"config": run_config(context.project, cell), "versions": versions()}
    elif stage == "evaluate":
        settings = {"primary": context.task["primary"]}
    write_folder(Work(context.root).folder(stage, cell), settings, records, keys)


def write_folder(target: Path, settings: Plain, records: Sequence[Plain], keys: Any) -> None:
    """Write the folder of a stage as a whole, sealed with its keys; ``settings`` of an evaluation have ``primary``."""
    runs = [{key: value for key, value in record.items() if key not in _BULKY} for record in records]
    with atomic_directory(target) as folder:
        evaluated = "primary" in settings
        fill_in(folder / (RESULT if evaluated else MANIFEST), json_text({**settings, "runs": runs}).encode())
        if not evaluated:
            for file, part in ((CURVES, "curve"), (LOGGED, "diagnostics")):
                rows = [[record["seed"], *row] for record in records for row in record.get(part, [])]
                text = io.StringIO()
                csv.writer(text, lineterminator="\n").writerows([COLUMNS[file], *rows])
                fill_in(folder / file, text.getvalue().encode())
        findings: dict[str, dict[str, Any]] = {}  # by evaluation: what it is, and what it found out about every run
        for record in records:
            for name, lines in record.get("predictions", {}).items():
                fill_in(folder / "predictions" / f"seed-{record['seed']}" / f"{name}.jsonl", lines.encode())
            for name, of_run in record.get("evaluations", {}).items():
                shared = {key: of_run[key] for key in ("description", "options")}
                content = findings.setdefault(name, {**shared, "runs": []})
                found = {key: value for key, value in of_run.items() if key not in shared}
                content["runs"].append({"seed": record["seed"], "key": record["key"], **found})
        for name, content in findings.items():
            fill_in(folder / "evaluations" / f"{name}.json", json_text(content).encode())
        seal(folder, keys)


def trains_encoder(context: Context) -> bool:
    """Return whether any phase takes optimiser steps that change the encoder's own tensors or its structure (LoRA)."""

    def frozen(phase: RunPhase) -> bool:
        freezing = [entry.declares for entry in phase.acting if entry.declares.freezes_encoder]
        return bool(freezing) and not any("structure" in declares.edits for declares in freezing)

    return any(phase.training.epochs > 0 and not frozen(phase) for phase in context.phases)


def reads_encoder(context: Context) -> bool:
    """Whether the answers depend on the encoder, as the methods of the last phase declare."""
    return all(entry.declares.reads == "encoder" for entry in context.last.acting)


def reads_text(context: Context) -> bool:
    """Return whether the answers depend on the input, as the methods of the last phase declare."""
    return all(entry.declares.reads != "nothing" for entry in context.last.acting)


def share(root: Path, store: RunStore, keys: Iterable[str]) -> int:
    """Copy runs of the store into ``weights/``; return how many are new. Raises StoreError without their weights."""
    new = 0
    for key in keys:
        run, target = store.get(key), root / WEIGHTS / key
        if target.is_dir():
            continue
        if run is None or not run.has_weights:
            hint = "`regft export` trains it again; raise store.budget_gb to keep weights"
            raise StoreError("no-weights", f"{store.path} has no weights of run {key}\n    -> {hint}")
        run.check()
        with atomic_directory(target) as folder:
            shutil.copytree(run.path, folder, dirs_exist_ok=True)
        new += 1
    return new


def take_shared(root: Path, store: RunStore, key: str) -> None:
    """Put a run of ``weights/`` into the store, if that lacks its weights. Raises StoreError where it is damaged."""
    folder, stored = root / WEIGHTS / key, store.get(key)
    if folder.is_dir() and (stored is None or stored.pruned):
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        store.add(key, {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})
