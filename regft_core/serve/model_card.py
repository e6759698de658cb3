"""What a model card says of a run, from what the stages have written; what is not there yet is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from regft_core.data.lengths import share
from regft_core.data.reading import Reading
from regft_core.data.splits import fold_line
from regft_core.errors import DataError, StoreError
from regft_core.io.reading import read_json
from regft_core.kinds import find
from regft_core.models.served import Served
from regft_core.runs.context import Context
from regft_core.runs.outputs import cell_of, reads_encoder
from regft_core.runs.project import versions
from regft_core.runs.results.records import Cost, Draw, EvaluationRecord, TrainingRecord
from regft_core.runs.results.work import Work
from regft_core.serve.abstention import sentence
from regft_core.serve.out_of_fold import OutOfFold
from regft_core.serve.refit_card import expectations, weaknesses
from regft_core.settings.files import RESULTS

T = TypeVar("T")


def card_contents(
    context: Context, record: TrainingRecord, served: Served, others: OutOfFold | None = None
) -> dict[str, Any]:
    """The facts of ``models.card.model_card``.

    Args:
        record: of the run, as the stage finetune writes it.
        served: what ``regft.json`` will say.
        others: of a refit the runs that were judged; None for a run that was judged itself.
    """
    job, task = context.job, context.task
    examples = context.data(context.phase("finetune")).examples
    drawn, judged = (None, None) if others else (_drawn(context), _judged(context))
    counts = find(task["kind"]).label_counts([row.label for row in examples], task["labels"] or ())
    weakened = [record, *(others.runs if others else ())]  # what weakens the judged runs weakens their scores
    columns = context.task_config.columns
    read = reads_encoder(context)
    return {
        "name": f"{job.method} on {job.task}",
        "method": job.method,
        "description": context.method.config.description,
        "paper": context.method.config.paper,
        "mark": context.params.small_scale.mark if context.params.small_scale else None,
        "base_model": context.source.name if read else None,
        "revision": context.source.revision if read else None,
        "pooling": context.encoder.pooling if read else "head",
        "rows_per_example": context.rows_per_example(examples),
        "max_length": context.encoder.max_length if read else None,
        "instruction": context.encoder.prompt if read else None,
        "windows": context.encoder.windows if read else 1,
        "stride": context.encoder.stride,
        "task": job.task,
        "kind": task["kind"],
        "labels": task["labels"],
        "train_rows": len(examples),
        "train_total": task["counts"]["train"],
        "fold": fold_line(task, job.seed),
        "train_labels": counts,
        "columns": {"text": columns.text, "second text": columns.text_pair, "label": ", ".join(columns.of_labels)},
        "source": _source(task["source"]),
        "seed": job.seed,
        "run_key": record.key,
        "scores": _scores(context, judged),
        "compared": _reported(context).get("findings") or (),
        "confidence": context.params.report.confidence,
        "cost": _cost(record, compared=others is None),
        "limits": [
            *([sentence(served.abstain)] if served.abstain else []),
            *dict.fromkeys(f"Degraded: {text}" for one in weakened for text in one.degraded),
            *(_limits(context, drawn, judged) if others is None else weaknesses(context, served, others)),
            *_cut(context),
        ],
        "versions": versions(),
        "training": context.phase("finetune").training.model_dump(mode="json"),
        **(expectations(context, served, others) if others else {}),
    }


def _there(read: Callable[..., T], *what: Any) -> T | None:
    """What ``read`` gives; None where the stage has not run, or must run again, which it says by itself."""
    try:
        return read(*what)
    except (DataError, StoreError):
        return None


def _drawn(context: Context) -> Draw | None:
    """What the subsample stage wrote down of this seed's rows."""
    found = _there(Work(context.root).subsample, context.job.task, context.job.size)
    return found.seeds.get(str(context.job.seed)) if found else None


def _source(source: dict[str, Any]) -> str:
    named = [source["kind"], source.get("id"), source.get("config"), source.get("generator")]
    revision = f" at {source['revision']}" if source.get("revision") else ""
    return " ".join(str(part) for part in named if part) + revision


def _judged(context: Context) -> EvaluationRecord | None:
    """What the evaluate stage wrote down of the run; None when it was not evaluated."""
    found = _there(Work(context.root).evaluation, cell_of(context.job))
    return next((run for run in found.runs if run.seed == context.job.seed), None) if found else None


def _reported(context: Context) -> dict[str, Any]:
    """What the report has of the run's cell; empty before there is one."""
    reported = _there(read_json, context.root / RESULTS) or {}
    return (reported.get(f"{context.job.task}-{context.job.size}") or {}).get(context.job.method) or {}


def _scores(context: Context, judged: EvaluationRecord | None) -> list[dict[str, Any]]:
    """This run's scores beside mean and interval over all seeds, where the report has them."""
    cell, scores = _reported(context), []
    for name, found in (judged.sets if judged else {}).items():
        for metric, value in found.metrics.items():
            over = (cell.get(name) or {}).get(metric) or {}
            bounds = {"mean": over.get("mean"), "low": over.get("low"), "high": over.get("high"), "runs": over.get("n")}
            scores.append({"set": name, "metric": metric, "value": value, **bounds})
    return scores


def _cost(record: TrainingRecord, compared: bool) -> dict[str, str]:
    cost, search, found = record.cost, record.search_cost, {}
    if record.ok:
        found["Training"] = f"{record.steps:,} steps in {_seconds(cost):.0f} s"
        found["Passes per step"] = (
            f"{cost.forward_passes_per_step:.1f} forward, {cost.backward_passes_per_step:.1f} backward"
        )
        if compared:  # with plain fine-tuning on as many rows
            found["Compute, declared"] = f"{cost.declared_ratio:.2f} times plain fine-tuning, all phases together"
    if search:
        found["Phases before"] = f"{search.steps:,} steps in {_seconds(search):.0f} s"
    if record.environment:
        found["Trained on"] = ", ".join(f"{key} {value}" for key, value in sorted(record.environment.items()))
    return found


def _seconds(cost: Cost) -> float:
    return (cost.train_seconds or 0.0) + (cost.fit_seconds or 0.0)


def _limits(context: Context, drawn: Draw | None, judged: EvaluationRecord | None) -> list[str]:
    """Sentences on what weakens the model or its scores."""
    limits = []
    if judged is not None:
        if judged.collapsed:
            limits.append("It collapsed: on the validation set it is no better than a constant answer.")
        limits += [f"{name}: {found.warning}" for name, found in judged.sets.items() if found.warning]
    absent = [label for label, count in ((drawn and drawn.label_counts) or {}).items() if not count]
    if absent:
        limits.append(f"No training row has the label {', '.join(absent)}.")
    seen = {name: count for name, count in (drawn.duplicates_with if drawn else {}).items() if count}
    if seen:
        shown = ", ".join(f"{count} rows of {name}" for name, count in seen.items())
        limits.append(f"Contamination: {shown} have the text of a training row, so scores there count what was seen.")
    elif drawn:
        limits.append("Contamination: no row of an evaluation set has the text of a training row.")
    if judged is None:
        limits.append("Not evaluated when it was exported.")
    return limits


def _cut(context: Context) -> list[str]:
    found = _there(Work(context.root).lengths, context.job.task)
    settings = {"max_length": context.encoder.max_length, **asdict(Reading.of(context.encoder) or Reading())}
    if not reads_encoder(context) or not found or any(found.get(name) != value for name, value in settings.items()):
        return []
    mode = context.encoder.pairs
    cut = {name: (one.get(mode) or one["jointly"])["cut"] for name, one in found["sets"].items()}
    shown = ", ".join(f"{share(value)} of {name}" for name, value in cut.items() if value)
    longest = f"{found['max_length']} tokens" + (f" in {found['windows']} windows" if found["windows"] > 1 else "")
    if not shown:
        return [f"Truncation: no row is longer than {longest}."]
    return [f"Truncation: {shown} are longer than {longest} and were read in part."]
