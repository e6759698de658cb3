"""What the schema cannot say about tasks: metrics that fit, labels that agree, sets that differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from regft_core import metrics
from regft_core.errors import Problem
from regft_core.kinds import find
from regft_core.names import listing, suggestion
from regft_core.schema.tasks import BuiltinSource, OodConfig, TaskConfig
from regft_core.settings.checks.builtin_tasks import Builtin, check_declared
from regft_core.settings.checks.ood import check_label_values, check_ood
from regft_core.settings.checks.sources import Columns, Source, Sources, Use, same_rows
from regft_core.settings.files import task_file
from regft_core.settings.yaml.document import Document, KeyPath

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
    builtin: Builtin | None,
    warnings: list[str],
) -> list[Problem]:
    """Problems of a task of the grid, and of everything that judges it.

    ``tasks`` may be incomplete (``parts``): what is known of them is checked. ``documents`` holds
    the files read so far; ``warnings`` is added to.
    """
    task = tasks[name]
    checker = Sources(root, builtin, warnings)
    problems = [*_check_metrics(task, document), *_check_labels(task, document), *_check_own(checker, task, document)]
    for ood, config in task.ood.items() if task.known("ood") else ():
        path: KeyPath = ("ood", ood)
        if ood in RESERVED_SETS:
            message = f"'{ood}' is {RESERVED_SETS[ood]}, so no set can be called so"
            problems.append(
                document.problem("reserved-name", path, message, "give the out-of-distribution set another name")
            )
            continue
        if not config.known("source"):
            continue
        split = config.split if config.known("split") else None
        source, use = config.source, None if split is None else Use(document, (*path, "split"), split)
        if source is not None:
            problems += _check_in_place(checker, task, config, source, use, document, path)
        elif ood in tasks:
            other, place = tasks[ood], documents[task_file(ood)]
            if use is None and config.known("split") and other.known("splits") and other.splits.known("train", "dev"):
                key = "dev" if isinstance(other.splits.dev, str) else "train"
                use = Use(place, ("splits", key), other.splits.judging or "")
            problems += [*_check_labels(other, place), *_check_source(checker, other, place, [use] if use else [])]
            source = other.source if other.known("source") else None
        if source is not None and use is not None:
            problems += _check_unseen(root, task, source, use, document, path)
        problems += check_ood(ood, task, tasks, document)
    return problems


def _check_metrics(task: TaskConfig, document: Document) -> list[Problem]:
    if not task.known("kind"):
        return []
    right = metrics.names(task.kind)
    other = tuple(name for name in metrics.names() if name not in right)
    problems = []
    listed = document.items(("metrics",))
    for i, metric in enumerate(listed):
        path = ("metrics", i)
        if not isinstance(metric, str):
            continue  # the schema's problem
        if metric in other:
            hint = f"allowed for {task.kind}: {', '.join(right)}"
            problems.append(
                document.problem("metric-does-not-fit", path, f"'{metric}' does not fit kind: {task.kind}", hint)
            )
        elif metric not in right:
            swapped = [name for name in right if sorted(name.split("_")) == sorted(metric.split("_"))]
            hint = suggestion(swapped[0] if swapped else metric, right, f"allowed for {task.kind}")
            problems.append(document.problem("unknown-metric", path, f"unknown metric '{metric}'", hint))
        elif metric in listed[:i]:
            problems.append(document.problem("listed-twice", path, f"'{metric}' is listed twice", "keep one of them"))
    counting = [metric for metric in right if metric in listed and metrics.find(metric).needs_positive_label]
    if counting and task.known("positive_label") and task.positive_label is None:
        message = f"'positive_label' is missing: {' and '.join(counting)} counts one class against the rest"
        labels = (task.labels if task.known("labels") else None) or ()
        hint = f"add 'positive_label:' with one of the labels: {listing(labels)}" if labels else "name one of labels"
        if len(labels) > 2 and "f1_macro" in right:
            hint += "; or take f1_macro, the mean over all classes"
        at = ("metrics", listed.index(counting[0]))
        problems.append(document.problem("positive-label-missing", at, message, hint))
    return problems


def _check_labels(task: TaskConfig, document: Document) -> list[Problem]:
    problems = []
    if task.known("label_values", "labels"):
        problems += check_label_values(task.label_values, task.labels, document, ())
    if task.known("range", "kind") and task.range is not None and (wrong := find(task.kind).wrong_range(task.range)):
        problems.append(document.problem("bad-range", ("range",), *wrong))
    two = not (task.known("columns") and task.columns.known("text_pair")) or task.columns.text_pair is not None
    if task.known("keyword_segment") and task.keyword_segment == "text_pair" and not two:
        message = "is text_pair, but columns.text_pair is missing"
        problems.append(
            document.problem("column-not-declared", ("keyword_segment",), message, "write text, or add the column")
        )
    return problems


def _check_own(checker: Sources, task: TaskConfig, document: Document) -> list[Problem]:
    """The task's training and development sets."""
    if not task.known("splits"):
        return _check_source(checker, task, document, [])
    problems = []
    uses = {
        key: Use(document, ("splits", key), getattr(task.splits, key))
        for key in ("train", "dev")
        if task.splits.known(key) and isinstance(getattr(task.splits, key), str)
    }
    if task.splits.known("train") and task.splits.train is None:
        hint = "add splits.train, or take the task out of grid.tasks"
        problems.append(
            document.problem(
                "training-split-missing", ("splits",), "'train' is missing: this set can only judge others", hint
            )
        )
    problems += _check_source(checker, task, document, list(uses.values()))
    if "dev" in uses and task.known("source"):
        problems += _check_unseen(checker.root, task, task.source, uses["dev"], document, ("splits", "dev"))
    return problems


def _check_source(checker: Sources, task: TaskConfig, document: Document, uses: list[Use]) -> list[Problem]:
    """The source of a task with a file of its own, and the splits that are read from it."""
    if not task.known("source"):
        return []
    columns = None
    if task.known("columns"):
        columns = Columns(document, ("columns",), task.columns, not task.known("drop_empty") or task.drop_empty)
    kind = task.kind if task.known("kind") else None
    problems = checker.check(kind, task.source, document, ("source",), uses, columns)
    if isinstance(task.source, BuiltinSource):
        labels = task.labels if task.known("labels") else None
        problems += check_declared(task.source, task, labels, document, ())
    return problems


def _check_in_place(
    checker: Sources,
    task: TaskConfig,
    config: OodConfig,
    source: Source,
    use: Use | None,
    document: Document,
    path: KeyPath,
) -> list[Problem]:
    """The source of a set that is defined where it is named; what it does not say it has from its task."""
    own = (*path, "columns") if config.known("columns") and config.columns is not None else ("columns",)
    known = config.known("columns") and (config.columns is not None or task.known("columns"))
    columns = None
    if known:
        sparse = not config.known("drop_empty") or not task.known("drop_empty") or config.drop_empty or task.drop_empty
        # The group is of the task's own rows.
        columns = Columns(document, own, config.columns or task.columns.model_copy(update={"group": None}), sparse)
    kind = task.kind if task.known("kind") else None
    problems = checker.check(kind, source, document, (*path, "source"), [use] if use else [], columns)
    if isinstance(source, BuiltinSource) and config.known("labels"):
        inherited = task.labels if task.known("labels") else None
        of_other = isinstance(task.source, BuiltinSource) if task.known("source") else False
        labels = config.labels if config.labels is not None else inherited
        # The same generator as the task's: wrong labels are reported where they are written, and nowhere else.
        if config.labels is None and of_other and getattr(task.source, "generator", None) == source.generator:
            labels = None
        problems += check_declared(source, config, labels, document, path)
    return problems


def _check_unseen(
    root: Path, task: TaskConfig, source: Source, use: Use, document: Document, path: KeyPath
) -> list[Problem]:
    """Whether a set that judges runs is the one that they train on."""
    if not (task.known("source", "splits") and task.splits.known("train")) or task.splits.train is None:
        return []
    if not same_rows(root, task.source, task.splits.train, source, use.split):
        return []
    what = "the development set" if path[0] == "splits" else "this set"
    message = f"{what} ('{use.split}') is the training split, so it would only measure what was memorised"
    at = use.path if use.document is document else path
    return [document.problem("judged-on-training-rows", at, message, "name a split or file that is not trained on")]
