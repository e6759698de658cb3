"""What the schema cannot say about tasks: metrics that fit, labels that agree, sets that differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from regft_core import metrics
from regft_core.errors import ConfigError, Problem
from regft_core.kinds import find
from regft_core.names import listing, suggestion
from regft_core.schema.tasks import BuiltinSource, OodConfig, TaskConfig
from regft_core.settings.checks.builtin_tasks import check_declared
from regft_core.settings.checks.ood import check_label_values, check_ood
from regft_core.settings.checks.sources import Columns, Source, Sources, Use, same_rows
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.files import task_file

#: Names that mean something else where sets are named, in files of results and in MLflow, and what they are there.
RESERVED_SETS = {
    "train": "the name of the task's own set",
    "dev": "the name of the task's own set",
    "train_within": "the count of repeated training rows in task.json",
    "run": "what evaluations find out about a run as a whole",
    "cost": "the costs of a run in MLflow",
    "failed": "a count in the files of the report",
    "decision": "the expected score in the files of the report",
    "collapsed": "a count in the files of the report",
    "mixed_environments": "a mark in the files of the report",
    "cost_ratio": "the cost of a method in the files of the report",
    "versus_reference": "a comparison in the files of the report",
    "versus_control": "a comparison in the files of the report",
    "verdict_reference": "a verdict in the files of the report",
    "verdict_control": "a verdict in the files of the report",
    "versus_opponent": "a comparison in the files of the report",
    "no_better_than_constant": "a verdict in the files of the report",
    "findings": "sentences in the files of the report",
    "same_answers_under_every_seed": "a note in the files of the report",
}


def referenced_tasks(document: Document) -> Iterator[str]:
    """Names of the tasks that a task's YAML is judged on, also when the rest of it is wrong."""
    ood = document.data.get("ood")
    for name, entry in ood.items() if isinstance(ood, dict) else ():
        if isinstance(name, str) and name not in RESERVED_SETS and isinstance(entry, dict) and "source" not in entry:
            yield name


def check_task(
    root: Path,
    name: str,
    tasks: Mapping[str, TaskConfig],
    document: Document,
    documents: Mapping[str, Document],
    warnings: list[str],
) -> list[Problem]:
    """Return problems of a task, and of everything that judges it.

    ``tasks`` are those that are right; ``documents`` holds the files read so far; ``warnings`` is added to.
    """
    task, sources = tasks[name], Sources(root, warnings)
    uses = {
        key: Use(document, ("splits", key), split)
        for key, split in (("train", task.splits.train), ("dev", task.splits.dev))
        if isinstance(split, str)
    }
    problems = [*_check_metrics(task, document), *_check_labels(task, document)]
    if task.splits.train is None:
        message, hint = (
            "'train' is missing: this set can only judge others",
            "add splits.train, or take the task out of grid.tasks",
        )
        problems.append(document.problem("training-split-missing", ("splits",), message, hint))
    problems += _check_source(sources, task, document, list(uses.values()))
    if "dev" in uses:
        problems += _check_unseen(root, task, task.source, uses["dev"], document, ("splits", "dev"))
    for ood, config in task.ood.items():
        path: KeyPath = ("ood", ood)
        if ood in RESERVED_SETS:
            message = f"'{ood}' is {RESERVED_SETS[ood]}, so no set can be called so"
            hint = "give the out-of-distribution set another name"
            problems.append(document.problem("reserved-name", path, message, hint))
            continue
        source, use = config.source, None if config.split is None else Use(document, (*path, "split"), config.split)
        if source is not None:
            problems += _check_in_place(sources, task, config, source, use, document, path)
        elif ood in tasks:
            other, place = tasks[ood], documents[task_file(ood)]
            if use is None:
                key = "dev" if isinstance(other.splits.dev, str) else "train"
                use = Use(place, ("splits", key), other.splits.judging or "")
            problems += [*_check_labels(other, place), *_check_source(sources, other, place, [use])]
            source = other.source
        if source is not None and use is not None:
            problems += _check_unseen(root, task, source, use, document, path)
        problems += check_ood(ood, task, tasks, document)
    return problems


def _check_metrics(task: TaskConfig, document: Document) -> list[Problem]:
    right = metrics.names(task.kind)
    other = tuple(name for name in metrics.names() if name not in right)
    problems = []
    for i, metric in enumerate(task.metrics):
        path = ("metrics", i)
        if metric in other:
            try:
                metrics.find(metric)
            except ConfigError as error:  # a broken file fits no kind
                problems += error.problems
                continue
            message, hint = f"'{metric}' does not fit kind: {task.kind}", f"allowed for {task.kind}: {', '.join(right)}"
            problems.append(document.problem("metric-does-not-fit", path, message, hint))
        elif metric not in right:
            swapped = [name for name in right if sorted(name.split("_")) == sorted(metric.split("_"))]
            hint = suggestion(swapped[0] if swapped else metric, right, f"allowed for {task.kind}")
            problems.append(document.problem("unknown-metric", path, f"unknown metric '{metric}'", hint))
        elif metric in task.metrics[:i]:
            problems.append(document.problem("listed-twice", path, f"'{metric}' is listed twice", "keep one of them"))
    counting = [metric for metric in right if metric in task.metrics and metrics.find(metric).needs_positive_label]
    if counting and task.positive_label is None:
        message = f"'positive_label' is missing: {' and '.join(counting)} counts one class against the rest"
        labels = task.labels or ()
        hint = f"add 'positive_label:' with one of the labels: {listing(labels)}" if labels else "name one of labels"
        if len(labels) > 2 and "f1_macro" in right:
            hint += "; or take f1_macro, the mean over all classes"
        at = ("metrics", task.metrics.index(counting[0]))
        problems.append(document.problem("positive-label-missing", at, message, hint))
    return problems


def _check_labels(task: TaskConfig, document: Document) -> list[Problem]:
    problems = check_label_values(task.label_values, task.labels, document, ())
    if task.range is not None and (wrong := find(task.kind).wrong_range(task.range)):
        problems.append(document.problem("bad-range", ("range",), *wrong))
    if task.keyword_segment == "text_pair" and task.columns.text_pair is None:
        message, hint = "is text_pair, but columns.text_pair is missing", "write text, or add the column"
        problems.append(document.problem("column-not-declared", ("keyword_segment",), message, hint))
    return problems


def _check_source(sources: Sources, task: TaskConfig, document: Document, uses: list[Use]) -> list[Problem]:
    """Return problems of the source of a task with a file of its own, and of the splits that are read from it."""
    columns = Columns(document, ("columns",), task.columns, task.drop_empty)
    problems = sources.check(task.kind, task.source, document, ("source",), uses, columns)
    if isinstance(task.source, BuiltinSource):
        problems += check_declared(task.source, task, task.labels, document, ())
    return problems


def _check_in_place(
    sources: Sources,
    task: TaskConfig,
    config: OodConfig,
    source: Source,
    use: Use | None,
    document: Document,
    path: KeyPath,
) -> list[Problem]:
    """Return problems of a set that is defined where it is named; what it does not say it has from its task."""
    at = (*path, "columns") if config.columns is not None else ("columns",)
    # The group is of the task's own rows.
    own = config.columns or task.columns.model_copy(update={"group": None})
    columns = Columns(document, at, own, config.drop_empty or task.drop_empty)
    problems = sources.check(task.kind, source, document, (*path, "source"), [use] if use else [], columns)
    if isinstance(source, BuiltinSource):
        labels = config.labels if config.labels is not None else task.labels
        # The same generator as the task's: wrong labels are reported where they are written, and nowhere else.
        if config.labels is None and getattr(task.source, "generator", None) == source.generator:
            labels = None
        problems += check_declared(source, config, labels, document, path)
    return problems


def _check_unseen(
    root: Path, task: TaskConfig, source: Source, use: Use, document: Document, path: KeyPath
) -> list[Problem]:
    """Return whether a set that judges runs is the one that they train on."""
    if task.splits.train is None or not same_rows(root, task.source, task.splits.train, source, use.split):
        return []
    what = "the development set" if path[0] == "splits" else "this set"
    message = f"{what} ('{use.split}') is the training split, so it would only measure what was memorised"
    at = use.path if use.document is document else path
    return [document.problem("judged-on-training-rows", at, message, "name a split or file that is not trained on")]
