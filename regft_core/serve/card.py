"""The README.md of an exported model: what it is, how to load it, what it scored and what weakens it.

The facts come from what the stages have written; what is not there yet is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any, TypeVar

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from regft_core.data.lengths import share
from regft_core.data.reading import Reading
from regft_core.data.splits import fold_line
from regft_core.disk.reading import read_json
from regft_core.errors import DataError, StoreError
from regft_core.kinds import find
from regft_core.models.aliases import ALIASES
from regft_core.models.export_record import Served
from regft_core.models.source import ModelSource
from regft_core.names import plural
from regft_core.runs.context import Context
from regft_core.runs.outputs import cell_of, reads_encoder
from regft_core.runs.project import versions
from regft_core.runs.records import RunRecord
from regft_core.runs.work import Work
from regft_core.serve.out_of_fold import OutOfFold, sentence
from regft_core.settings.files import RESULTS
from regft_core.settings.provenance import described

T = TypeVar("T")


@cache
def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("regft_core.serve", ""), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(
        facts=lambda rows: "\n".join(f"- **{title}**: {value}" for title, value in rows if value not in (None, "")),
        plural=plural,
        settings=lambda values: "\n".join(f"- {key}: {value}" for key, value in sorted(values.items())),
        bullets=lambda texts: "\n".join(f"- {text}" for text in texts),
        section=lambda title, text: f"## {title}\n\n{text}\n\n" if text else "",
    )
    return environment.get_template("card.md.j2")


def model_card(
    context: Context, record: RunRecord, served: Served, judged: OutOfFold | None = None, answered_by: str = ""
) -> str:
    """Return the card as Markdown with the hub's metadata header.

    Args:
        record: of the run, as the stage finetune writes it.
        served: content of ``regft.json``.
        judged: of a refit the runs that were judged; None for a run that was judged itself.
        answered_by: the regulariser that answers where there is no model to load.
    """
    job, task, kind = context.job, context.task, find(context.task["kind"])
    evaluated, examples = None if judged else _evaluated(context), context.data(context.phase("finetune")).examples
    hub, revision, license = origin(context.source)
    scores = _judged_scores(context, judged) if judged else _scores(context, evaluated)
    weakened = [record, *(judged.runs if judged else ())]  # what weakens the judged runs weakens their scores
    return _template().render(
        job=job,
        task=task,
        method=context.method.config,
        encoder=context.encoder,
        encoder_name=context.source.name,
        columns=context.task_config.columns,
        read=reads_encoder(context),
        mark=context.params.small_scale.mark if context.params.small_scale else None,
        hub=hub,
        revision=revision,
        license=license,
        served=served,
        record=record,
        judged=judged,
        answered_by=answered_by,
        demonstrations=bool(served.prompt and served.prompt.demonstrations),
        code=context.encoder.pooling != "head" or bool(served.instruction) or served.rows_per_example == 2,
        several=kind.has_labels and not kind.one_label,
        example=_example(context, served),
        rows=len(examples),
        label_counts=kind.label_counts([row.label for row in examples], task["labels"] or ()) or {},
        fold=fold_line(task, job.seed),
        tuned=described(job.values) if job.values else None,
        scores=scores,
        index=_model_index(f"{job.method}-{job.task}", job.task, scores),
        reported=bool(reported(context)),
        confidence=f"{context.params.report.confidence:.0%}",
        compared=reported(context).get("findings") or (),
        limits=[
            *([sentence(served.abstain)] if served.abstain else []),
            *dict.fromkeys(f"Degraded: {text}" for run in weakened for text in run.degraded),
            *(_weaknesses(context, served, judged) if judged else _limits(context, evaluated)),
            *_cut(context),
        ],
        training=context.phase("finetune").training.model_dump(mode="json"),
        versions=versions(),
    )


def origin(source: ModelSource) -> tuple[str, str, str]:
    """Hub id, revision and licence of an encoder; empty where its files do not say.

    An alias has the bytes of one revision. The licence of a folder stands in the header of its README.md.
    """
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
        template = served.prompt.template.replace("[MASK]", context.tokenizer.mask_token or "[MASK]")
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


def _evaluated(context: Context) -> RunRecord | None:
    """The evaluation of the run; None before there is one."""
    result = _written(Work(context.root).evaluation, cell_of(context.job))
    return next((run for run in result.runs if run.seed == context.job.seed), None) if result else None


def reported(context: Context) -> dict[str, Any]:
    """The report's entry of the run's cell; empty before there is one."""
    results = _written(read_json, context.root / RESULTS) or {}
    return (results.get(f"{context.job.task}-{context.job.size}") or {}).get(context.job.method) or {}


def _scores(context: Context, evaluated: RunRecord | None) -> list[list[str]]:
    """Set, metric, this run's score; mean, interval and seeds as the report has them."""
    cell, rows = reported(context), []
    for name, scores in (evaluated.sets if evaluated else {}).items():
        for metric, value in scores.metrics.items():
            own = "failed" if value is None else f"{value:.4f}"
            rows.append([name, metric, own, *_interval((cell.get(name) or {}).get(metric) or {})])
    return rows


def _judged_scores(context: Context, judged: OutOfFold) -> list[list[str]]:
    """Set, metric, mean, interval and seeds of the judged runs."""
    rows = []
    for name, metric in ((name, metric) for name in judged.task.sets for metric in judged.task.metrics):
        score = judged.score(name, metric, context.params.report)
        interval = {"low": score.low, "high": score.high} if score.n > 1 else {}
        rows.append([name, metric, *_interval({"mean": score.mean, "n": score.n, **interval})])
    return rows


def _model_index(model: str, task: str, scores: Sequence[Sequence[str]]) -> str:
    """Return the scores as the hub reads them (``model-index``); empty without one."""
    sets = dict[str, list[dict[str, Any]]]()
    for name, metric, value, *_ in scores:
        if value not in ("", "failed"):
            sets.setdefault(name, []).append({"type": metric, "value": float(value)})
    results = [
        {
            "task": {"type": "text-classification"},
            "dataset": {"type": task, "name": f"{task} {name}"},
            "metrics": metrics,
        }
        for name, metrics in sets.items()
    ]
    return yaml.safe_dump({"model-index": [{"name": model, "results": results}]}, sort_keys=False) if results else ""


def _interval(score: Mapping[str, Any]) -> list[str]:
    """Mean, interval and number of runs."""
    mean, low, high, runs = (score.get(key) for key in ("mean", "low", "high", "n"))
    bounds = "" if low is None or high is None else f"{low:.4f} to {high:.4f}"
    return ["" if mean is None else f"{mean:.4f}", bounds, "" if runs is None else str(runs)]


def _limits(context: Context, evaluated: RunRecord | None) -> list[str]:
    """Sentences on what weakens the model or its scores."""
    subsample = _written(Work(context.root).subsample, context.job.task, context.job.size)
    drawn = subsample.seeds.get(str(context.job.seed)) if subsample else None
    sets = evaluated.sets if evaluated else {}
    limits = [f"{name}: {scores.warning}" for name, scores in sets.items() if scores.warning]
    if evaluated is not None and evaluated.collapsed:
        limits.insert(0, "It collapsed: on the validation set it is no better than a constant answer.")
    if absent := [label for label, count in ((drawn and drawn.label_counts) or {}).items() if not count]:
        limits.append(f"No training row has the label {', '.join(absent)}.")
    if drawn:
        none = "Contamination: no row of an evaluation set has the text of a training row."
        limits.append(_contamination(drawn.duplicates_with) or none)
    return limits if evaluated is not None else [*limits, "Not evaluated when it was exported."]


def _contamination(counts: Mapping[str, int | None]) -> str:
    shown = ", ".join(f"{count} rows of {name}" for name, count in counts.items() if count)
    seen = f"Contamination: {shown} have the text of a training row, so scores there count what was seen."
    return seen if shown else ""


def _weaknesses(context: Context, served: Served, judged: OutOfFold) -> list[str]:
    """Sentences on what weakens a model that no row judges, or what is said of its score."""
    limits, runs = [], len(judged.runs)
    if context.job.size != "full":
        limits.append(f"The expected score is of models trained on {context.job.size} rows.")
    if served.abstain:
        limits.append("The guarantee is that of the judged models; this one was trained on all of their rows.")
    if judged.failed:
        total = runs + len(judged.failed)
        limits.append(f"{len(judged.failed)} of {plural(total, 'judged run')} failed and count nowhere.")
    if low := sum(bool(run.collapsed) for run in judged.runs):
        limits.append(f"{low} of {plural(runs, 'judged run')} collapsed: no better than a constant answer.")
    for name in judged.task.sets:
        limits += dict.fromkeys(f"{name}: {text}" for run in judged.runs if (text := run.sets[name].warning))
    seen = _contamination({name: judged.task.duplicates.get(name) for name in context.task["sets"]})
    return [*limits, seen] if seen else limits


def _cut(context: Context) -> Iterable[str]:
    """The sentence on rows that are longer than what is read; empty where their lengths are not known."""
    lengths = _written(Work(context.root).lengths, context.job.task)
    settings = {"max_length": context.encoder.max_length, **asdict(Reading.of(context.encoder) or Reading())}
    if not reads_encoder(context) or not lengths or any(lengths.get(name) != value for name, value in settings.items()):
        return []
    mode = context.encoder.pairs
    cut = {name: (rows.get(mode) or rows["jointly"])["cut"] for name, rows in lengths["sets"].items()}
    shown = ", ".join(f"{share(value)} of {name}" for name, value in cut.items() if value)
    windows = f" in {lengths['windows']} windows" if lengths["windows"] > 1 else ""
    longest = f"{lengths['max_length']} tokens{windows}"
    if not shown:
        return [f"Truncation: no row is longer than {longest}."]
    return [f"Truncation: {shown} are longer than {longest} and were read in part."]
