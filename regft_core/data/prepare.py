"""Read a task and everything that judges it, check it, and write ``work/datasets/<task>/``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from random import Random
from typing import Any

from regft_core.data.checks import oddities, require_contrast
from regft_core.data.examples import text_key, to_jsonl, write_jsonl
from regft_core.data.leaks import leaks_between, leaks_of_folds
from regft_core.data.rows import Declaration, Split
from regft_core.data.sources import Source, read_split
from regft_core.data.splits import WHOLE, Part, split_dev, with_splits
from regft_core.errors import DataError, together
from regft_core.io.canonical import sha256_text
from regft_core.io.files import atomic_directory, write_json
from regft_core.kinds import find
from regft_core.rng import derive, shuffled
from regft_core.schema.tasks import ColumnsConfig, FilesSource, OodConfig, TaskConfig


@dataclass(frozen=True)
class EvaluationSet:
    """Where an out-of-distribution set comes from, once references are resolved."""

    source: Source
    split: str
    declaration: Declaration
    label_map: dict[str, str] | None
    task: str | None
    #: Whether it is built so that a shortcut answers the opposite.
    reversed: bool = False


def declaration_of(task: TaskConfig) -> Declaration:
    """What a task's YAML says of its own rows."""
    return Declaration(
        task.kind,
        task.columns,
        task.labels,
        task.label_values,
        task.drop_labels,
        task.drop_empty,
        task.range,
        decimal_of(task.source),
    )


def decimal_of(source: Source) -> str | None:
    """Return the decimal mark of numbers in a source's files, None where nothing is said."""
    return source.decimal if isinstance(source, FilesSource) else None


def resolve_ood(task_name: str, name: str, tasks: Mapping[str, TaskConfig]) -> EvaluationSet:
    """Find the OOD set ``name`` of a task and check that its labels can be compared by name.

    An in-place set takes over the task's columns, labels and range where it does not give its
    own. Raises DataError.
    """
    task = tasks[task_name]
    config = task.ood[name]
    where = f"task '{task_name}', ood.{name}"
    if config.source is not None:
        if config.split is None:
            raise DataError(
                "split-missing", f"{where}: 'split' is missing\n    -> an in-place set names its split or file"
            )
        own = config.labels is None
        declaration = Declaration(
            task.kind,
            config.columns or _ungrouped(task.columns),
            task.labels if own else config.labels,
            task.label_values if own and config.label_values is None else config.label_values,
            config.drop_labels or (task.drop_labels if own else ()),
            config.drop_empty or task.drop_empty,
            task.range,
            decimal_of(config.source),
        )
        found = EvaluationSet(config.source, config.split, declaration, config.label_map, None, config.reversed)
    else:
        other = tasks.get(name)
        if other is None:
            near = get_close_matches(name, tasks, n=1)
            hint = f"did you mean '{near[0]}'?" if near else "add that file, or a 'source' in place"
            raise DataError("unknown-task", f"{where}: no pipelines/tasks/{name}.yaml\n    -> {hint}")
        split = config.split or other.splits.judging
        if split is None:
            raise DataError("split-missing", f"{where}: '{name}' has no split\n    -> name one with 'split'")
        found = EvaluationSet(other.source, split, declaration_of(other), config.label_map, name, config.reversed)
    _check_labels(where, task, config, found)
    return found


def _check_labels(where: str, task: TaskConfig, config: OodConfig, found: EvaluationSet) -> None:
    if task.kind != found.declaration.kind:
        raise DataError(
            "kind-mismatch",
            f"{where}: a {task.kind} task cannot be judged on a {found.declaration.kind} set\n"
            "    -> take the set out of the task's ood, or name one of the same kind",
        )
    if not find(task.kind).has_labels:
        if config.label_map is not None:
            raise DataError(
                "classification-only",
                f"{where}: 'label_map' is for classification; targets are compared by correlation\n"
                "    -> remove label_map",
            )
        return
    own, theirs = task.labels or (), found.declaration.labels or ()
    label_map = config.label_map if config.label_map is not None else {label: label for label in own}
    problems = [f"'{label}' is mapped to nothing" for label in own if label not in label_map]
    problems += [f"label_map has '{label}', which the task has not" for label in label_map if label not in own]
    problems += [
        f"'{label}' becomes '{target}', which the set has not"
        for label, target in label_map.items()
        if label in own and target not in theirs
    ]
    problems += [f"nothing becomes the set's '{label}'" for label in theirs if label not in label_map.values()]
    if problems:
        raise DataError(
            "labels-differ",
            f"{where}: labels do not match: {'; '.join(problems[:5])}"
            f"\n    -> label_map takes each of {list(own)} to one of {list(theirs)}",
        )


def prepare_dataset(
    root: Path,
    task_name: str,
    tasks: Mapping[str, TaskConfig],
    out_dir: Path | None = None,
    before_commit: Callable[[Path], None] | None = None,
    place: Callable[[str], str] | None = None,
    rows: int | None = None,
) -> Path:
    """Write train, dev and every OOD set of a task with ``task.json``; returns the directory.

    ``out_dir`` is ``work/datasets/<task>`` by default. It appears complete or not at all;
    ``before_commit`` is given the complete folder right before it appears, and may refuse. ``place`` gives the
    ``file:line`` of a split, for messages. ``rows``: of each set at most so many, drawn at random.
    Raises DataError when anything in a source does not match its declaration.
    """
    out_dir = out_dir or root / "work" / "datasets" / task_name
    task = _find(task_name, tasks)
    if task.splits.train is None:
        raise DataError(
            "training-split-missing",
            f"task '{task_name}' has no training split: it only judges other tasks"
            "\n    -> take it out of grid.tasks, or add splits.train to its YAML",
        )

    def where(split: str) -> str:
        return f"{place(split)} (task '{task_name}')" if place else f"task '{task_name}', splits.{split}"

    own = declaration_of(task)
    wanted = {"train": EvaluationSet(task.source, task.splits.train, own, None, task_name)}
    if isinstance(task.splits.dev, str):
        wanted["dev"] = EvaluationSet(task.source, task.splits.dev, own, None, task_name)
    resolved = {name: resolve_ood(task_name, name, tasks) for name in task.ood}
    ood = _read_all(root, task_name, {**wanted, **resolved}, rows)
    train, dev = ood.pop("train"), ood.pop("dev", None)
    require_contrast(where("train"), task.kind, task.labels or (), train)
    parts = split_dev(where("dev"), task_name, task, train) if dev is None else [Part("dev", train, dev)]
    with atomic_directory(out_dir) as directory:
        if len(parts) > 1:  # folds: what a seed trains on is in theirs; all rows are for phases of other tasks
            write_jsonl(directory / "train.jsonl", train.examples)
        elif not isinstance(task.splits.dev, str):
            write_jsonl(directory / WHOLE, train.examples)
        for part in parts:
            folder = directory / "folds" / part.name if len(parts) > 1 else directory
            write_jsonl(folder / "train.jsonl", part.train.examples)
            write_jsonl(folder / "dev.jsonl", part.dev.examples)
        for name, split in ood.items():
            write_jsonl(directory / "ood" / f"{name}.jsonl", split.examples)
        whole = Part("all", train, train) if len(parts) > 1 else parts[0]
        grouped = {"train": whole.train, "dev": whole.dev, **ood}
        if groups := {name: split.group_of for name, split in grouped.items() if split.groups is not None}:
            write_json(directory / "groups.json", groups)
        write_json(directory / "task.json", _describe(task_name, task, train, parts, resolved, ood))
        if before_commit is not None:
            before_commit(directory)
    return out_dir


def _read_all(root: Path, task_name: str, wanted: Mapping[str, EvaluationSet], rows: int | None) -> dict[str, Split]:
    """Every set; what is wrong with several files is said of all at once."""
    found: dict[str, Split] = {}
    wrong: list[DataError] = []
    for name, entry in wanted.items():
        try:
            where = entry.task or f"{task_name}, ood.{name}"
            split = read_split(root, where, entry.source, entry.split, entry.declaration)
            if rows is not None:
                drawn = shuffled(range(len(split.examples)), Random(derive(0, "small", where, entry.split)))
                split = split.take(drawn[:rows])
            found[name] = split
        except DataError as error:
            if not isinstance(entry.source, FilesSource):
                raise
            wrong.append(error)
    if wrong:
        raise together(wrong)
    return found


def _find(task_name: str, tasks: Mapping[str, TaskConfig]) -> TaskConfig:
    if task_name not in tasks:
        near = get_close_matches(task_name, tasks, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"tasks are {', '.join(sorted(tasks))}"
        raise DataError("unknown-task", f"no pipelines/tasks/{task_name}.yaml\n    -> {hint}")
    return tasks[task_name]


def _ungrouped(columns: ColumnsConfig) -> ColumnsConfig:
    """What a set takes over of a task's columns: the group is of the task's own rows."""
    return columns.model_copy(update={"group": None})


def _describe(
    task_name: str,
    task: TaskConfig,
    rows: Split,
    parts: Sequence[Part],
    resolved: Mapping[str, EvaluationSet],
    ood: Mapping[str, Split],
) -> dict[str, Any]:
    labels = list(task.labels) if task.labels is not None else None
    folded = len(parts) > 1
    train, dev = (rows, replace(rows, dropped={})) if folded else (parts[0].train, parts[0].dev)
    sets: dict[str, Any] = {
        "dev": {
            "labels": labels,
            "label_map": None,
            "n": len(dev.examples),
            "split": task.splits.model_dump(mode="json")["dev"],
            "source": None,
        }
    }
    for name, entry in resolved.items():
        theirs = entry.declaration.labels
        sets[name] = {
            "labels": list(theirs) if theirs is not None else None,
            "label_map": entry.label_map,
            "n": len(ood[name].examples),
            "split": entry.split,
            "source": entry.source.model_dump(mode="json"),
            "reversed": entry.reversed,
        }
    splits = {"train": train, "dev": dev, **ood}
    keys = [text_key(example) for example in train.examples]
    known = set(keys)
    duplicates = {"train_within": len(keys) - len(known)}
    for name, split in splits.items():
        if name != "train" and not (folded and name == "dev"):
            duplicates[name] = sum(text_key(example) in known for example in split.examples)
    found = {
        "task": task_name,
        "kind": task.kind,
        "labels": labels,
        "metrics": list(task.metrics),
        "primary": task.primary,
        "positive_label": task.positive_label,
        "range": list(task.range) if task.range is not None else None,
        "keyword_segment": task.keyword_segment,
        "counts": {name: len(split.examples) for name, split in splits.items()},
        "dropped": {name: split.dropped for name, split in splits.items() if split.dropped},
        "duplicates": duplicates,
        "leaks": leaks_of_folds(rows) if folded else leaks_between(train, dev),
        "oddities": oddities(task.kind, task.labels, {"train": rows} if folded else {"train": train, "dev": dev}),
        "content": {name: sha256_text(to_jsonl(split.examples)) for name, split in splits.items()},
        "sets": sets,
        "source": task.source.model_dump(mode="json"),
    }
    return found if isinstance(task.splits.dev, str) else with_splits(found, task, parts)
