"""Export one fine-tuned run as an ordinary Hugging Face directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from regft_core.data.batches import collate, padding_of
from regft_core.errors import RunFailed
from regft_core.io import read_json
from regft_core.models.export import export_model, model_card
from regft_core.phases.cells import known_keys
from regft_core.phases.context import Context, Job
from regft_core.phases.outputs import read_runs, stage_folder
from regft_core.phases.project import versions
from regft_core.phases.trained import Trained

#: Examples whose logits the written model must reproduce.
CHECKED_EXAMPLES = 8


def export(job: Job, out: Path | None = None) -> Path:
    """Write the run's model to ``out`` (default ``exports/<method>-<task>-<size>-seed-<seed>``).

    The directory holds safetensors weights, configuration with label names, tokenizer and a
    model card. It is loaded again and must give the same logits.

    Raises:
        RunFailed: the run has no model, because its training failed.
        ConfigError: the cell or the seed is not in the grid.
        ModelError: ``out`` exists and is something else.
        ExportMismatch: the written model differs.
    """
    context = Context(job)  # says what is not in the grid
    record = read_runs(Path(job.root), "finetune", job.method, job.task).get((job.size, job.seed))
    if record is None or record["status"] != "ok":
        why = record["error"] if record is not None else "it was not trained yet; run `dvc repro` first"
        raise RunFailed(f"seed {job.seed} of {job.method} on {job.task}-{job.size} has no model: {why}")
    context = Context(replace(job, keys=known_keys(record)), project=context.project)
    model = Trained(context).model
    encoded = context.encode(context.data(context.phase("finetune")).examples[:CHECKED_EXAMPLES])
    padding = padding_of(context.tokenizer)
    rows = list(range(len(encoded.input_ids)))
    batch = collate(encoded, rows, padding.pad_id, padding.pad_token_type_id, padding.side, context.task["kind"])
    # The tracker finds exports by the run key on their cards, one folder deep.
    name = f"{job.method}-{job.task}-{job.size}-seed-{job.seed}"
    target = out if out is not None else context.root / "exports" / name
    card = model_card(_facts(context, record) | {"summary": getattr(model, "summary", None)})
    export_model(
        model,
        context.tokenizer,
        target,
        card=card,
        check_batch=batch.model_inputs(),
        max_length=context.encoder.max_length,
    )
    return target


def _facts(context: Context, record: dict[str, Any]) -> dict[str, Any]:
    job = context.job
    scores = []
    reported = context.root / "reports" / "results.json"
    result = stage_folder(context.root, "evaluate", job.method, job.task) / job.size / "result.json"
    if result.is_file():
        intervals = read_json(reported) if reported.is_file() else {}
        run = next((run for run in read_json(result)["runs"] if run["seed"] == job.seed), None)
        for name, found in (run or {"sets": {}})["sets"].items():
            for metric, value in found["metrics"].items():
                cell = intervals.get(f"{job.task}-{job.size}", {}).get(job.method, {}).get(name, {}).get(metric, {})
                bounds = {"low": cell.get("low"), "high": cell.get("high"), "runs": cell.get("n")}
                scores.append({"set": name, "metric": metric, "value": value, **bounds})
    return {
        "name": f"{job.method} on {job.task}",
        "method": job.method,
        "description": context.method.config.description,
        "paper": context.method.config.paper,
        "base_model": context.source.name,
        "revision": context.source.revision,
        "pooling": context.encoder.pooling,
        "rows_per_example": context.rows_per_example(context.data(context.phase("finetune")).examples),
        "max_length": context.encoder.max_length,
        "task": job.task,
        "kind": context.task["kind"],
        "labels": context.task["labels"],
        "train_rows": len(context.data(context.phase("finetune")).examples),
        "seed": job.seed,
        "run_key": record["key"],
        "notes": record["degraded"],
        "versions": versions(),
        "training": context.phase("finetune").training.model_dump(mode="json"),
        "scores": scores,
        "confidence": context.params.report.confidence,
    }
