"""Checks of tasks beyond the schema: metrics that fit, files and their columns, sets that can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from regft_core import metrics
from regft_core.catalogue import KINDS
from regft_core.data.file_format import WrongFile, below_data, is_known
from regft_core.data.prepare import EvaluationSet, declaration_of, own_sets, resolve_ood
from regft_core.data.read_split import missing_columns
from regft_core.data.table import opened
from regft_core.disk.paths import what_is
from regft_core.errors import ConfigError, Problem
from regft_core.kinds import find
from regft_core.kinds._possible import impossible
from regft_core.names import listing, nearest, plural, suggestion
from regft_core.schema.params import Params
from regft_core.schema.sources import FilesSource, HubSource, Source
from regft_core.schema.tasks import RESERVED_SETS, FoldsConfig, OodConfig, TaskConfig
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.params_errors import check_revision, duplicates
from regft_core.settings.validate import Found
from regft_core.settings.yaml_paths import task_file


def referenced_tasks(document: Document) -> Iterator[str]:
    """Names of the tasks that a task's YAML is evaluated on, also when the rest of it is wrong."""
    ood = document.data.get("ood")
    for name, entry in ood.items() if isinstance(ood, dict) else ():
        if isinstance(name, str) and name not in RESERVED_SETS and isinstance(entry, dict) and "source" not in entry:
            yield name


def check_task(
    root: Path, name: str, tasks: Mapping[str, TaskConfig], documents: Mapping[str, Document]
) -> Iterator[Found]:
    task, document = tasks[name], documents[task_file(name)]
    yield from _check_kind(task, document)
    yield from _check_metrics(task, document)
    if task.splits.train is None:
        message, hint = "'train' is missing: this set can only judge others", "add it, or take the task out of the grid"
        yield document.problem("training-split-missing", ("splits",), message, hint)
    # A set of another file that is wrong is told where that is read.
    judging = {ood: config for ood, config in task.ood.items() if config.source is not None or ood in tasks}
    for key, judged in (own_sets(name, task) | {ood: resolve_ood(name, ood, tasks) for ood in judging}).items():
        config, declared = judging.get(key), judged.declaration
        at: KeyPath = ("splits", key) if config is None else ("ood", key)
        in_place, named = config is not None and config.source is not None, at if config is None else (*at, "split")
        where, start = documents[task_file(judged.task or name)], at if in_place else ()
        place = document
        if config is not None and not in_place and config.split is None:
            place, named = where, ("splits", "dev" if isinstance(tasks[key].splits.dev, str) else "train")
        if isinstance(judged.source, FilesSource):
            yield from _check_file(root, judged, where, start, place, named)
        elif isinstance(judged.source, HubSource):
            yield from check_revision(judged.source.revision, judged.source.id, where, (*start, "source", "revision"))
        trained = task.splits.train if key not in ("train", "unlabelled") else None
        if trained is not None and same_rows(root, task.source, trained, judged.source, judged.split):
            what = "the development set" if config is None else "this set"
            message = f"{what} ('{judged.split}') is the training split, so it would only measure what was memorised"
            hint = "name a split or file that is not trained on"
            at_split = named if place is document else at
            yield document.problem("judged-on-training-rows", at_split, message, hint)
        if config is not None:
            yield from _check_labels(task, config, declared.kind, declared.labels or (), at, document)


def _check_labels(
    task: TaskConfig, config: OodConfig, kind: str, theirs: tuple[str, ...], at: KeyPath, document: Document
) -> Iterator[Problem]:
    """Yield why the answers of a task cannot be compared with the labels of a set, which are matched by name."""
    if kind != task.kind:
        message = f"a {task.kind} task cannot be evaluated on a {kind} set"
        yield document.problem("kind-mismatch", at, message, "name a set of the same kind")
    elif find(kind).has_labels:
        own = task.labels or ()
        label_map = dict(zip(own, own)) if config.label_map is None else config.label_map
        if set(label_map) != set(own) or set(label_map.values()) != set(theirs):
            shown = ", ".join(f"{label}: {other}" for label, other in label_map.items())
            hint = f"label_map takes each of {listing(own)} to one of {listing(theirs)}, and all of these are reached"
            yield document.problem("labels-differ", at, f"labels do not meet those of the set: {{{shown}}}", hint)
    elif config.label_map is not None:
        message = "'label_map' is for classification, and targets are compared as they are"
        yield document.problem("classification-only", at, message, "remove it")


def _check_kind(task: TaskConfig, document: Document) -> Iterator[Problem]:
    """Yield what a kind of the project's own gives that no training works with; shipped ones have their tests."""
    if KINDS.is_shipped(task.kind):
        return
    for problem in impossible(find(task.kind), declaration_of(task).declared):
        at = document.place(("kind",))
        yield replace(problem, message=f"{problem.message} (kind: {task.kind}, in {at})")


def _check_metrics(task: TaskConfig, document: Document) -> Iterator[Problem]:
    right = metrics.names(task.kind)
    yield from duplicates(document, ("metrics",))
    for i, metric in enumerate(task.metrics):
        path = ("metrics", i)
        try:
            config = metrics.find(metric)
        except ConfigError as error:  # a broken file fits no kind
            yield from error.problems
        except ValueError:
            hint = suggestion(metric, right, f"allowed for {task.kind}")
            yield document.problem("unknown-metric", path, f"unknown metric '{metric}'", hint)
        else:
            if metric not in right:
                message = f"'{metric}' does not fit kind: {task.kind}"
                hint = f"allowed for {task.kind}: {', '.join(right)}"
                yield document.problem("metric-does-not-fit", path, message, hint)
            elif config.needs_positive_label and task.positive_label is None:
                message = f"'positive_label' is missing: {metric} counts one class against the rest"
                hint = f"add it with one of {listing(task.labels or ())}, or take f1_macro, the mean over all classes"
                yield document.problem("positive-label-missing", path, message, hint)


def check_folds(params: Params, document: Document, tasks: Mapping[str, TaskConfig]) -> Iterator[Found]:
    """Yield seeds without a fold, a choice by rows of other folds, and a warning of repeats that are incomplete."""
    seeds, tuning = params.grid.seeds, params.tuning
    for name, task in tasks.items():
        dev = task.splits.dev
        if not isinstance(dev, FoldsConfig):
            continue
        most = dev.folds * dev.repeats
        for i, seed in enumerate(seeds):
            if seed >= most:
                message = f"seed {seed} has no fold: the seeds of task '{name}' are 0 to {most - 1}"
                hint = f"take others, or set repeats: {seed // dev.folds + 1} in splits.dev of that task"
                yield document.problem("no-such-fold", ("grid", "seeds", i), message, hint)
        repeats = {seed // dev.folds for seed in seeds if seed < most}
        missing = sorted({repeat * dev.folds + fold for repeat in repeats for fold in range(dev.folds)} - set(seeds))
        if missing:
            yield (
                f"{document.place(('grid', 'seeds'))}: {plural(len(seeds), 'seed')} of {dev.folds} folds of task "
                f"'{name}' make no whole repeats, so rows are not judged equally often; add seeds "
                f"{', '.join(map(str, missing))}"
            )
        if tuning is not None and tuning.selection != "split":
            message = f"values would be chosen by rows that judge the folds of task '{name}'"
            yield document.problem("chosen-by-judges", ("tuning", "selection"), message, "set selection: split")


def _check_file(
    root: Path, judged: EvaluationSet, where: Document, start: KeyPath, document: Document, named: KeyPath
) -> Iterator[Problem]:
    """Yield faults of a set that is defined at ``start`` of ``where``; ``named`` of ``document`` is its split."""
    source, split, declared = judged.source, judged.split, judged.declaration
    assert isinstance(source, FilesSource)
    if not _is_below_data(root, split):
        message, hint = f"'{split}' is not below data/", "copy the file below data/ and give its path from there"
        yield document.problem("outside-data", named, message, hint)
        return
    folder, file, name = root / "data", below_data(split), file_name(split)
    try:
        with opened(folder / file, source) as table:
            # Rows of JSON lines that may be dropped need not have every column: the first one tells little.
            sparse = declared.drop_empty and ".jsonl" in file.name.lower()
            for key, message, hint in [] if sparse else missing_columns(table, declared):
                own = (*start, "columns", key)
                at = own if own in where.places else ("columns", key)  # a set may have the columns of its task
                yield where.problem("column-missing", at, f"{message} in {name}", hint)
    except WrongFile as error:
        message, hint = f"{name} {error}", error.hint
        if error.code == "file-missing":
            message, hint = f"there is no file {name}", f"put it at {name}"
            others = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if is_known(path)]
            if source.get:
                hint += f": {source.get}"
            elif near := nearest(file.as_posix(), others):
                hint = f"did you mean '{near}'?"
        yield document.problem(error.code, named, message, hint)


def same_rows(root: Path, one: Source, split: str, other: Source, other_split: str) -> bool:
    """Whether two splits hold the same rows: one file under two names, or one split of one set in any revision."""
    if isinstance(one, FilesSource) and isinstance(other, FilesSource):
        first, second = root / "data" / below_data(split), root / "data" / below_data(other_split)
        try:
            return first == second or first.samefile(second)
        except (OSError, ValueError):
            return False
    sets = [str(source.model_dump(exclude={"revision", "version", "sha256", "options"})) for source in (one, other)]
    return split.strip() == other_split.strip() and sets[0].lower() == sets[1].lower()


def _is_below_data(root: Path, split: str) -> bool:
    """Whether the path of a ``files`` split stays below ``data/``; that of a link to a file outside does not."""
    relative, folder = below_data(split), root / "data"
    if relative.is_absolute() or split.startswith("~") or ".." in relative.parts or {"\\", "\0"} & set(split):
        return False
    # DVC may link tracked files into its cache; a link to anywhere else would escape its watch.
    path, homes = folder / relative, (folder.resolve(), (root / ".dvc" / "cache").resolve())
    return what_is(path) != "a file" or any(path.resolve().is_relative_to(home) for home in homes)


def file_name(split: str) -> str:
    return f"data/{below_data(split).as_posix()}"


def is_there(root: Path, split: str) -> bool:
    """Whether a ``files`` split has something under its name, right or wrong."""
    return not _is_below_data(root, split) or what_is(root / "data" / below_data(split)) is not None
