"""The README.md of an exported model: what it is, how to load it, what it scored and what weakens it, where known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from regft_core.data.lengths import share
from regft_core.data.prompts import Reading
from regft_core.data.splits import fold_line
from regft_core.disk.reading import read_json
from regft_core.errors import DataError, StoreError
from regft_core.kinds import find
from regft_core.models.export_record import Served
from regft_core.models.fetch import ALIASES
from regft_core.models.source import ModelSource
from regft_core.names import plural
from regft_core.runs.context import Context
from regft_core.runs.environment import describe_environment, versions
from regft_core.runs.outputs import reads_encoder
from regft_core.runs.records import Evaluation, Manifest, RunRecord
from regft_core.runs.work import Work
from regft_core.serve.out_of_fold import OutOfFold, sentence
from regft_core.settings.layers import described
from regft_core.settings.project import Cell
from regft_core.settings.yaml_paths import RESULTS

T = TypeVar("T")


@cache
def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("regft_core.serve", ""), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(
        facts=lambda rows: "\n".join(f"- **{title}**: {value}" for title, value in rows if value not in (None, "")),
        counted=lambda counts: ", ".join(f"{label} {count:,}" for label, count in counts.items()),
        plural=plural,
        bullets=lambda texts: "\n".join(f"- {text}" for text in texts),
        section=lambda title, text: f"## {title}\n\n{text}\n\n" if text else "",
    )
    return environment.get_template("card.md.j2")


def model_card(context: Context, record: RunRecord, served: Served, judged: OutOfFold | None) -> str:
    """Return the card as Markdown with the hub's metadata header; ``judged``: the evaluated runs of a refit."""
    job, task, kind = context.job, context.task, find(context.task["kind"])
    examples = context.last.rows.examples
    told = judged or _written(Work(context.root).evaluation, job.cell)
    evaluated = [run for run in told.runs if run.ok and (judged or run.key == record.key)] if told else []
    results = reported(context) if evaluated else {}
    hub, revision, license = origin(context.last.source)
    scores = list(_scores(results, evaluated, judged))
    return _template().render(
        context=context,
        job=job,
        task=task,
        encoder=context.last.encoder,
        columns=context.task_config.columns,
        read=reads_encoder(context),
        hub=hub,
        revision=revision,
        license=license,
        served=served,
        record=record,
        judged=judged,
        answered_by=served.answered_by.regulariser if served.answered_by else "",
        code=context.last.encoder.pooling != "head" or bool(served.instruction) or served.rows_per_example == 2,
        several=kind.has_labels and not kind.one_label,
        example=_example(context, served),
        rows=len(examples),
        label_counts=kind.label_counts([row.label for row in examples], task["labels"] or ()) or {},
        fold=fold_line(task, job.seed),
        tuned=described(job.values) if job.values else None,
        averaged="; ".join(
            f"phase {one.name}: "
            + ("these runs" if one.refit == "mean_of_runs" else f"{one.refit} trainings on all rows")
            for one in context.method.phases
            if one.refit != 1
        ),
        scores=scores,
        index=_model_index(f"{job.method}-{job.task}", job.task, scores),
        compared=list(_compared(results)),
        confidence=f"{context.params.report.confidence:.0%}",
        decided_by=context.params.report.decide_by if "decision" in results else (),
        limits=list(dict.fromkeys(_limits(context, [record, *evaluated], served, judged))),
        training=context.last.training.model_dump(mode="json"),
        machine=describe_environment(record.environment) if record.environment else None,
        versions=versions(),
    )


def origin(source: ModelSource) -> tuple[str, str, str]:
    """Hub id, revision and licence (of the README.md's header) of an encoder; empty where its files do not say."""
    if (alias := ALIASES.get(source.name)) is not None:
        return alias.hub, alias.revision, alias.license
    card = source.path / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    header = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    license = re.search(r"^license: *[\"']?([\w.-]+)", header[1], re.MULTILINE) if header else None
    hub = source.name if source.revision else ""
    return hub, source.revision or "", license[1] if license else ""


def _example(context: Context, served: Served) -> str:
    """Return the argument of a transformers pipeline, as Python."""
    if served.prompt is not None:
        # The tokenizer's own mask stands in the template.
        template = served.prompt.template.replace("[MASK]", context.last.tokenizer.mask_token or "[MASK]")
        return repr(template.replace("{text}", "a text").replace("{text_pair}", "another text"))
    text = f"{served.instruction}a text"
    if served.text_pair is None:
        return repr(text)
    second = f"{served.instruction}another text" if served.rows_per_example == 2 else "another text"
    return repr({"text": text, "text_pair": second})


def _written(read: Callable[..., T], *arguments: Any) -> T | None:
    """Result of ``read``; None where the stage has not run, or must run again."""
    try:
        return read(*arguments)
    except (DataError, StoreError):
        return None


def reported(context: Context) -> dict[str, Any]:
    """Return the report's entry of the run's cell, as ``current`` has it."""
    results, cell = _written(read_json, context.root / RESULTS, dict) or {}, context.job.cell
    return current(context.root, results, [cell])[cell]


def current(root: Path, results: Mapping[str, Any], cells: Iterable[Cell]) -> dict[Cell, dict[str, Any]]:
    """Cell -> its entry of the report, without comparisons with other runs; empty where the report has others."""
    work, table = Work(root), root / "reports" / "tables" / "runs.csv"
    of_report: dict[Any, set[tuple[str, str]]] = {}
    if table.is_file():  # which runs it is of, only the table says
        runs = pd.read_csv(table, dtype=str, keep_default_na=False).groupby(["method", "task", "size"])
        of_report = {place: {*zip(own["seed"], own["key"])} for place, own in runs}

    @cache
    def is_current(cell: Cell) -> bool:
        told = of_report.get((cell.method, cell.task, str(cell.size)))
        found: list[Manifest | Evaluation | None] = [_written(work.finetune, cell), _written(work.evaluation, cell)]
        return all(one is not None and told == {(str(run.seed), run.key) for run in one.runs} for one in found)

    def entry(cell: Cell) -> dict[str, Any]:
        own = (results.get(f"{cell.task}-{cell.size}") or {}).get(cell.method)
        if not own or not is_current(cell):
            return {}
        kept = {name: of for name, of in own.items() if not name.startswith("versus_")}
        for name, others in ((name, own[name]) for name in own.keys() - kept.keys()):
            kept[name] = {other: of for other, of in others.items() if is_current(replace(cell, method=other))}
            if len(kept[name]) < len(others):
                kept.pop(name.replace("versus", "verdict"), None)
        return kept

    return {cell: entry(cell) for cell in cells}


def _scores(
    results: Mapping[str, Any], evaluated: Sequence[RunRecord], judged: OutOfFold | None
) -> Iterator[list[str]]:
    """Yield set, metric, this run's score (not of a refit); mean, interval and seeds as the report has them."""
    for name, metric in (
        (name, metric) for run in evaluated[:1] for name, of in run.sets.items() for metric in of.metrics
    ):
        shown = (results.get(name) or {}).get(metric) or {}
        if judged and not shown:
            shown = {"mean": judged.mean(name, metric), "n": len(judged.runs)}
        own = [] if judged else [f"{evaluated[0].sets[name].metrics[metric]:.4f}"]
        mean, low, high = ("" if shown.get(key) is None else f"{shown[key]:.4f}" for key in ("mean", "low", "high"))
        yield [name, metric, *own, mean, f"{low} to {high}" if low and high else "", str(shown.get("n", ""))]


def _compared(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the verdict against each control, replacement and the reference on the validation set."""
    for role in ("control", "replacement", "reference"):
        for other, sets in results.get(f"versus_{role}", {}).items():
            c, (low, high) = sets["dev"], (sets["dev"]["simultaneous"][end] for end in ("low", "high"))
            told = "" if low is None else f", {c['mean']:+.4f} [{low:+.4f}, {high:+.4f}] {c['metric']}"
            yield f"Against {other} ({role}): {c['verdict']}{told}."


def _model_index(model: str, task: str, scores: Sequence[Sequence[str]]) -> str:
    """Return the scores as the hub reads them (``model-index``); empty without one."""
    results = [
        {
            "task": {"type": "text-classification"},
            "dataset": {"type": task, "name": f"{task} {name}"},
            "metrics": [{"type": metric, "value": float(value)}],
        }
        for name, metric, value, *_ in scores
        if value
    ]
    return yaml.safe_dump({"model-index": [{"name": model, "results": results}]}, sort_keys=False) if results else ""


def _limits(context: Context, runs: Sequence[RunRecord], served: Served, judged: OutOfFold | None) -> Iterator[str]:
    """Sentences on what weakens the model or its scores, from its own run and those that were evaluated."""
    evaluated, whose = runs[1:], "evaluated run" if judged else "run"
    if served.abstain:
        yield sentence(served.abstain)
    if not evaluated:
        yield "Not evaluated when it was exported."
    if judged:
        if context.job.size != "full":
            yield f"The expected score is of models trained on {context.job.size} rows."
        if served.abstain:
            yield "The guarantee is that of the evaluated models; this one was trained on all of their rows."
        if judged.failed:
            yield f"{len(judged.failed)} of {plural(len(evaluated) + len(judged.failed), whose)} failed."
    if low := sum(bool(run.collapsed) for run in evaluated):
        yield f"{low} of {plural(len(evaluated), whose)} collapsed: no better than a constant answer."
    yield from (f"Degraded: {text}" for run in runs for text in run.degraded)
    yield from (f"{name}: {of.warning}" for run in evaluated for name, of in run.sets.items() if of.warning)
    counts = {
        name: count for name, count in context.task["duplicates"].items() if count and name in context.task["sets"]
    }
    if seen := ", ".join(f"{count} rows of {name}" for name, count in counts.items()):
        yield f"Contamination: {seen} have the text of a training row, so scores there count what was seen."
    lengths = _written(Work(context.root).lengths, context.job.task)
    settings = {"max_length": context.last.encoder.max_length, **asdict(Reading.of(context.last.encoder) or Reading())}
    if lengths and reads_encoder(context) and all(lengths.get(name) == value for name, value in settings.items()):
        shown = ", ".join(f"{share(rows['cut'])} of {name}" for name, rows in lengths["sets"].items() if rows["cut"])
        windows = f" in {lengths['windows']} windows" if lengths["windows"] > 1 else ""
        apart = lengths.get("pairs") and context.last.encoder.pairs == "separately"
        most = "at most " if shown and apart and not lengths["apart"] else ""
        yield f"Truncation: {most}{shown or 'no row'} longer than {lengths['max_length']} tokens{windows}."
