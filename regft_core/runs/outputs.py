"""What a stage leaves behind for DVC, the next stage, the report and the tracker: its settings and its records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regft_core.hooks import listed
from regft_core.runs.context import Context
from regft_core.runs.job import Job
from regft_core.runs.project import versions
from regft_core.runs.results import write
from regft_core.runs.results.work import Work
from regft_core.schema.method import Phase
from regft_core.settings.grid import Cell, parse_size
from regft_core.settings.papers.encoders import facts


def cell_of(job: Job) -> Cell:
    """The cell that a run belongs to."""
    return Cell(job.method, job.task, parse_size(job.size))


def manifest_head(context: Context) -> dict[str, Any]:
    """What a manifest says of the method on a task, the same for all runs of a cell."""
    return {
        "cell": _cell(context),
        "phases": [phase.name for phase in context.method.phases],
        "trains_encoder": trains_encoder(context),
        "reads_encoder": reads_encoder(context),
        "reads_text": reads_text(context),
        "method": context.method.config.model_dump(mode="json", exclude_none=True, exclude={"sources"}),
        "regularisers": _regularisers(context),
        "model": {
            "name": context.source.name,
            "revision": context.source.revision,
            "content_sha256": context.source.content_sha256,
            "max_length": context.encoder.max_length,
            "pooling": context.encoder.pooling,
            "pairs": context.encoder.pairs,
            **context.encoder.reading,
            "config": facts(context.source.config()),
        },
        "training": context.phase("finetune").training.model_dump(mode="json"),
        "settings": _settings(context),
    }


def _settings(context: Context) -> dict[str, Any]:
    """Every setting that acts on training, by its path, as MLflow compares runs; nothing of the machine.

    Another metric or set that judges is no other training.
    """
    judging = {"description", "metrics", "primary", "ood", "submission"}
    phases = {
        phase.name: {
            "start": phase.start,
            "seed": phase.seed,
            "repeat": phase.repeat and phase.repeat.model_dump(mode="json"),
            "data": phase.data.model_dump(mode="json"),
            "regularisers": {name: options.model_dump(mode="json") for name, options in phase.regularisers},
            "training": context.phase(phase.name).training.model_dump(mode="json"),
        }
        for phase in context.method.phases
    }
    source = context.source
    return {
        "model": {
            **context.encoder.model_dump(mode="json"),
            "revision": source.revision,
            "sha256": source.content_sha256,
        },
        "phases": phases,
        "subsample": context.params.subsample.model_dump(mode="json"),
        "task": context.task_config.model_dump(mode="json", exclude_defaults=True, exclude=judging),
    }


def write_training(context: Context, stage: str, records: Sequence[dict[str, Any]], keys: Any) -> Path:
    """Write ``work/search`` or ``work/finetune`` of a cell from the records of its runs, sealed with its keys."""
    target = Work(context.root).folder(stage, cell_of(context.job))
    settings = manifest_head(context) | {"phase": stage, "versions": versions()}
    write.training(target, settings, records, keys)
    return target


def _cell(context: Context) -> dict[str, Any]:
    job = context.job
    return {"method": job.method, "task": job.task, "size": parse_size(job.size)}


def trains_encoder(context: Context) -> bool:
    """Whether any phase takes optimiser steps that change what the encoder computes, as its methods declare.

    LoRA, prefix and prompt tuning freeze the encoder's own tensors and train what they put into it.
    """

    def frozen(phase: Phase) -> bool:
        acting = listed.active(context.entries(phase))
        freezing = [entry.declares for entry in acting if entry.declares.freezes_encoder]
        return bool(freezing) and not any("structure" in declares.edits for declares in freezing)

    phases = context.method.phases
    return any(context.phase(phase.name).training.epochs > 0 and not frozen(phase) for phase in phases)


def reads_encoder(context: Context) -> bool:
    """Whether the answers depend on the encoder, as the methods of the last phase declare."""
    acting = listed.active(context.entries(context.phase("finetune")))
    return all(entry.declares.reads_encoder for entry in acting)


def reads_text(context: Context) -> bool:
    """Return whether the answers depend on the input, as the methods of the last phase declare."""
    acting = listed.active(context.entries(context.phase("finetune")))
    return all(entry.declares.reads_text for entry in acting)


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
    target = Work(context.root).folder("evaluate", cell_of(context.job))
    settings = {key: context.task[key] for key in ("primary", "metrics", "kind", "labels")}
    write.evaluation(target, settings | {"cell": _cell(context)}, records, keys)
    return target
