"""What a model card says of a run, from what the stages have written; what is not there yet is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regft_core.data.lengths import share
from regft_core.errors import StoreError
from regft_core.io import read_json
from regft_core.phases.context import Context
from regft_core.phases.outputs import reads_encoder, stage_folder
from regft_core.phases.project import versions


def card_facts(context: Context, record: dict[str, Any]) -> dict[str, Any]:
    """The facts of ``models.card.model_card``.

    Args:
        record: the run's entry in the manifest of the finetune stage.
    """
    job, task = context.job, context.task
    examples = context.data(context.phase("finetune")).examples
    drawn = _drawn(context)
    columns = context.task_config.columns
    read = reads_encoder(context)
    return {
        "name": f"{job.method} on {job.task}",
        "method": job.method,
        "description": context.method.config.description,
        "paper": context.method.config.paper,
        "base_model": context.source.name if read else None,
        "revision": context.source.revision if read else None,
        "pooling": context.encoder.pooling if read else "head",
        "rows_per_example": context.rows_per_example(examples),
        "max_length": context.encoder.max_length if read else None,
        "task": job.task,
        "kind": task["kind"],
        "labels": task["labels"],
        "train_rows": len(examples),
        "train_total": task["counts"]["train"],
        "train_labels": drawn.get("label_counts"),
        "columns": {"text": columns.text, "second text": columns.text_pair, "label": columns.label},
        "source": _source(task["source"]),
        "seed": job.seed,
        "run_key": record["key"],
        "scores": _scores(context),
        "confidence": context.params.report.confidence,
        "cost": _cost(record),
        "limits": _limits(context, record, drawn),
        "versions": versions(),
        "training": context.phase("finetune").training.model_dump(mode="json"),
    }


def _read(path: Path) -> Any:
    """A file of a stage that may not have run; None then."""
    try:
        return read_json(path) if path.is_file() else None
    except StoreError:
        return None  # the stage that writes it says so when it is run


def _drawn(context: Context) -> dict[str, Any]:
    """What the subsample stage wrote down of this seed's rows."""
    manifest = _read(context.rows_file.parent / "manifest.json") or {}
    return (manifest.get("seeds") or {}).get(str(context.job.seed)) or {}


def _source(source: dict[str, Any]) -> str:
    named = [source["kind"], source.get("id"), source.get("config"), source.get("generator")]
    revision = f" at {source['revision']}" if source.get("revision") else ""
    return " ".join(str(part) for part in named if part) + revision


def _result(context: Context) -> dict[str, Any]:
    """The run's entry in ``result.json`` of the evaluate stage; empty when it was not evaluated."""
    job = context.job
    found = _read(stage_folder(context.root, "evaluate", job.method, job.task) / job.size / "result.json") or {}
    return next((run for run in found.get("runs", ()) if run["seed"] == job.seed), {})


def _scores(context: Context) -> list[dict[str, Any]]:
    """This run's scores beside mean and interval over all seeds, where the report has them."""
    job, scores = context.job, []
    reported = _read(context.root / "reports" / "results.json") or {}
    cell = (reported.get(f"{job.task}-{job.size}") or {}).get(job.method) or {}
    for name, found in _result(context).get("sets", {}).items():
        for metric, value in found["metrics"].items():
            over = (cell.get(name) or {}).get(metric) or {}
            bounds = {"mean": over.get("mean"), "low": over.get("low"), "high": over.get("high"), "runs": over.get("n")}
            scores.append({"set": name, "metric": metric, "value": value, **bounds})
    return scores


def _cost(record: dict[str, Any]) -> dict[str, str]:
    cost, search = record.get("cost") or {}, record.get("search_cost") or {}
    found = {}
    if cost:
        found["Training"] = f"{record['steps']:,} steps in {cost['train_seconds'] + cost['fit_seconds']:.0f} s"
        found["Passes per step"] = (
            f"{cost['forward_passes_per_step']:.1f} forward, {cost['backward_passes_per_step']:.1f} backward"
        )
        found["Compute, declared"] = f"{cost['declared_ratio']:.2f} times plain fine-tuning, all phases together"
    if search:
        found["Phases before"] = f"{search['steps']:,} steps in {search['train_seconds'] + search['fit_seconds']:.0f} s"
    if record.get("environment"):
        found["Trained on"] = ", ".join(f"{key} {value}" for key, value in sorted(record["environment"].items()))
    return found


def _limits(context: Context, record: dict[str, Any], drawn: dict[str, Any]) -> list[str]:
    """Sentences on what weakens the model or its scores."""
    limits = [f"Degraded: {text}" for text in record["degraded"]]
    result = _result(context)
    limits += [
        f"On {name} it does no better than a constant answer ({what})."
        for name, what in (result.get("collapsed") or {}).items()
        if what
    ]
    limits += [f"{name}: {found['warning']}" for name, found in (result.get("sets") or {}).items() if found["warning"]]
    absent = [label for label, count in (drawn.get("label_counts") or {}).items() if not count]
    if absent:
        limits.append(f"No training row has the label {', '.join(absent)}.")
    limits += _cut(context)
    seen = {name: count for name, count in (drawn.get("duplicates_with") or {}).items() if count}
    if seen:
        shown = ", ".join(f"{count} rows of {name}" for name, count in seen.items())
        limits.append(f"Contamination: {shown} have the text of a training row, so scores there count what was seen.")
    elif drawn:
        limits.append("Contamination: no row of an evaluation set has the text of a training row.")
    if not result:
        limits.append("Not evaluated when it was exported.")
    return limits


def _cut(context: Context) -> list[str]:
    found = _read(context.root / "work" / "lengths" / f"{context.job.task}.json")
    if not reads_encoder(context) or not found or found["max_length"] != context.encoder.max_length:
        return []
    mode = context.encoder.pairs
    cut = {name: (one.get(mode) or one["jointly"])["cut"] for name, one in found["sets"].items()}
    shown = ", ".join(f"{share(value)} of {name}" for name, value in cut.items() if value)
    if not shown:
        return [f"Truncation: no row is longer than {found['max_length']} tokens."]
    return [f"Truncation: {shown} are longer than {found['max_length']} tokens and were read in part."]
