"""What a stage leaves behind for DVC, the next stage, the report and the tracker: its settings and its records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regft_core.config.grid import Cell, parse_size
from regft_core.config.method import Phase
from regft_core.errors import DataError
from regft_core.hooks import compose
from regft_core.phases.context import Context, Job
from regft_core.phases.project import versions
from regft_core.results import write
from regft_core.results.work import Work


def cell_of(job: Job) -> Cell:
    """The cell that a run belongs to."""
    return Cell(job.method, job.task, parse_size(job.size))


def stage_folder(root: Path, stage: str, method: str, task: str) -> Path:
    """``work/<stage>/<method>/<task>``: one folder for each training size lies in it."""
    return root / "work" / stage / method / task


def read_runs(root: Path, stage: str, method: str, task: str) -> dict[tuple[str, int], dict[str, Any]]:
    """(size, seed) -> record that an earlier stage has written; DataError when it did not."""
    folder, work = stage_folder(root, stage, method, task), Work(root)
    found = {}
    for path in sorted(folder.glob("*/manifest.json")):
        cell = Cell(method, task, parse_size(path.parent.name))
        for record in (work.search(cell) if stage == "search" else work.finetune(cell)).runs:
            found[(record.size, record.seed)] = record.plain()
    if not found:
        raise DataError(f"{folder} holds no runs; run `dvc repro`, whose stage {stage}@{method}-{task} writes them")
    return found


def write_training(context: Context, stage: str, records: Sequence[dict[str, Any]], target: Path | None = None) -> Path:
    """Write ``work/search`` or ``work/finetune`` of a method and a task from the records of all its runs.

    ``target``: another folder in its place.
    """
    job = context.job
    target = target or stage_folder(context.root, stage, job.method, job.task)
    settings = {
        "cell": {"method": job.method, "task": job.task},
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
    }
    write.training(target, settings, records)
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


def write_evaluation(
    context: Context, records: Sequence[dict[str, Any]], target: Path | None = None, metrics: Path | None = None
) -> Path:
    """Write ``work/evaluate`` and ``work/metrics`` of a method and a task from the evaluations of its runs.

    ``target``, ``metrics``: another folder, and another file, in their place. ``evaluations/<name>.json``
    beside ``result.json`` is what an evaluation beyond the scores found out.
    """
    job, task = context.job, context.task
    target = target or stage_folder(context.root, "evaluate", job.method, job.task)
    metrics = metrics or stage_folder(context.root, "metrics", job.method, job.task).with_suffix(".json")
    settings = {key: task[key] for key in ("primary", "metrics", "kind", "labels")}
    write.evaluation(target, metrics, settings | {"cell": {"method": job.method, "task": job.task}}, records)
    return target
