"""Read a task and every set that it is evaluated on, and write ``work/datasets/<task>/``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from regft_core.data.checks import leaks_between, leaks_of_folds, oddities, require_contrast
from regft_core.data.examples import UNLABELLED, Example, text_key, to_jsonl, write_jsonl
from regft_core.data.read_split import Declaration, Split, read_split
from regft_core.data.splits import WHOLE, Part, split_dev, with_splits
from regft_core.disk.canonical import sha256_text
from regft_core.disk.files import atomic_directory, write_json
from regft_core.errors import DataError
from regft_core.rng import derive, shuffled
from regft_core.schema.sources import FilesSource, Source
from regft_core.schema.tasks import TaskConfig


@dataclass(frozen=True)
class EvaluationSet:
    """Where a set comes from, once references are resolved."""

    source: Source
    split: str
    declaration: Declaration
    label_map: dict[str, str] | None = None
    task: str | None = None
    #: Whether it is built so that a shortcut answers the opposite.
    reversed: bool = False


def declaration_of(task: TaskConfig) -> Declaration:
    """Return the declaration of a task's own rows, from its YAML."""
    declared = ("kind", "columns", "labels", "label_values", "drop_labels", "drop_empty", "range")
    return Declaration(
        **{name: getattr(task, name) for name in declared}, decimal=getattr(task.source, "decimal", None)
    )


def own_sets(task_name: str, task: TaskConfig) -> dict[str, EvaluationSet]:
    """Return train, dev and unlabelled of a task, as far as they are splits of its source."""
    declared = declaration_of(task)
    splits = ("train", task.splits.train), ("dev", task.splits.dev)
    named = {key: (name, declared) for key, name in splits if isinstance(name, str)}
    if task.splits.unlabelled is not None:
        columns = task.columns.model_copy(update={"id": None})
        named["unlabelled"] = task.splits.unlabelled, replace(declared, columns=columns, labelled=False)
    return {key: EvaluationSet(task.source, split, of, task=task_name) for key, (split, of) in named.items()}


def resolve_ood(task_name: str, name: str, tasks: Mapping[str, TaskConfig]) -> EvaluationSet:
    """Return the OOD set ``name`` of a task; one in place has the task's columns, labels and range, or its own."""
    task, config = tasks[task_name], tasks[task_name].ood[name]
    if config.source is None:
        other = tasks[name]
        split = config.split or other.splits.judging or ""
        return EvaluationSet(other.source, split, declaration_of(other), config.label_map, name, config.reversed)
    declaration = replace(
        declaration_of(task),
        # The group is of the task's own rows.
        columns=config.columns or task.columns.model_copy(update={"group": None}),
        drop_labels=config.drop_labels or (task.drop_labels if config.labels is None else ()),
        drop_empty=config.drop_empty or task.drop_empty,
        decimal=getattr(config.source, "decimal", None),
    )
    if config.labels is not None or config.label_values is not None:
        declaration = replace(declaration, labels=config.labels or task.labels, label_values=config.label_values)
    return EvaluationSet(config.source, config.split or "", declaration, config.label_map, reversed=config.reversed)


def prepare_dataset(
    root: Path,
    task_name: str,
    tasks: Mapping[str, TaskConfig],
    out_dir: Path | None = None,
    before_commit: Callable[[Path], None] | None = None,
    place: Callable[[str], str] | None = None,
    rows: int | None = None,
) -> Path:
    """Write train, dev and every OOD set of a task with ``task.json``; returns the directory, complete or absent.

    ``before_commit`` sees it before and may refuse. ``place``: split -> its ``file:line``, for messages. ``rows``: of
    each set at most so many, drawn at random. Raises DataError when a source does not match its declaration.
    """
    out_dir = out_dir or root / "work" / "datasets" / task_name
    task = tasks[task_name]

    def where(split: str) -> str:
        return f"{place(split)} (task '{task_name}')" if place else f"task '{task_name}', splits.{split}"

    resolved = {name: resolve_ood(task_name, name, tasks) for name in task.ood}
    ood = _read_all(root, task_name, own_sets(task_name, task) | resolved, rows)
    train, dev, texts = ood.pop("train"), ood.pop("dev", None), ood.pop("unlabelled", None)
    if texts is not None:
        texts = _unseen(where("unlabelled"), texts, [split for split in (train, dev, *ood.values()) if split])
    require_contrast(where("train"), task.kind, task.labels or (), train)
    parts = split_dev(where("dev"), task, train) if dev is None else [Part("dev", train, dev)]
    folded = len(parts) > 1
    with atomic_directory(out_dir) as directory:
        if dev is None:  # of folds for phases of other tasks; what a seed trains on is in theirs
            write_jsonl(directory / ("train.jsonl" if folded else WHOLE), train.examples)
        for part in parts:
            folder = directory / "folds" / part.name if folded else directory
            write_jsonl(folder / "train.jsonl", part.train.examples)
            write_jsonl(folder / "dev.jsonl", part.dev.examples)
        for name, split in ood.items():
            write_jsonl(directory / "ood" / f"{name}.jsonl", split.examples)
        if texts is not None:
            write_jsonl(directory / UNLABELLED, texts.examples)
        # With folds all rows train, and all are evaluated on.
        own = replace(parts[0].train, dropped=train.dropped), parts[0].dev
        known = (train, replace(train, dropped={})) if folded else own
        splits = {"train": known[0], "dev": known[1], **ood, **({} if texts is None else {"unlabelled": texts})}
        groups = {
            name: {example.idx: group for example, group in zip(split.examples, split.groups)}
            for name, split in splits.items()
            if split.groups is not None
        }
        if groups:
            write_json(directory / "groups.json", groups)
        described = _describe(task_name, task, splits, resolved, folded)
        write_json(directory / "task.json", with_splits(described, task, parts) if dev is None else described)
        if before_commit is not None:
            before_commit(directory)
    return out_dir


def _unseen(where: str, texts: Split, others: Sequence[Split]) -> Split:
    """Return each text once that no other set has; others and empty ones are counted. DataError without any."""
    seen, kept = {text_key(row) for split in others for row in split.examples}, list[Example]()
    dropped = {"without text": 0, "in another set, or there twice": 0}
    for row in texts.examples:
        key = text_key(row)
        if not row.text.strip() or not (row.text_pair is None or row.text_pair.strip()):
            dropped["without text"] += 1
        elif key in seen:
            dropped["in another set, or there twice"] += 1
        else:
            seen.add(key)
            kept.append(replace(row, idx=f"unlabelled-{row.idx}"))
    if not kept:
        counts = ", ".join(f"{count} {why}" for why, count in dropped.items())
        raise DataError("no-rows", f"{where}: no text is left ({counts})\n    -> name a file with texts of its own")
    return Split(kept, {why: count for why, count in dropped.items() if count})


def _read_all(root: Path, task_name: str, wanted: Mapping[str, EvaluationSet], rows: int | None) -> dict[str, Split]:
    """Return every set; mistakes in several files are raised as one error."""
    splits: dict[str, Split] = {}
    wrong: list[DataError] = []
    for name, entry in wanted.items():
        try:
            where = entry.task or f"{task_name}, ood.{name}"
            split = read_split(root, where, entry.source, entry.split, entry.declaration)
            if rows is not None:
                drawn = shuffled(range(len(split.examples)), Random(derive(0, "small", where, entry.split)))
                split = split.take(drawn[:rows])
            splits[name] = split
        except DataError as error:
            if not isinstance(entry.source, FilesSource):
                raise
            wrong.append(error)
    if wrong:  # the code is that of the first, and the others keep theirs in the text
        raise DataError(wrong[0].code, "\n".join([wrong[0].text, *map(str, wrong[1:])]))
    return splits


def _describe(
    task_name: str, task: TaskConfig, splits: Mapping[str, Split], resolved: Mapping[str, EvaluationSet], folded: bool
) -> dict[str, Any]:
    dumped = task.model_dump(mode="json")
    about = ("kind", "labels", "metrics", "primary", "positive_label", "range", "keyword_segment", "source")
    counts = {name: len(split.examples) for name, split in splits.items()}
    own = {"labels": dumped["labels"], "label_map": None, "split": dumped["splits"]["dev"], "source": None}
    sets: dict[str, Any] = {"dev": {**own, "n": counts["dev"]}}
    for name, entry in resolved.items():
        theirs = entry.declaration.labels
        sets[name] = {
            "labels": list(theirs) if theirs is not None else None,
            "label_map": entry.label_map,
            "n": counts[name],
            "split": entry.split,
            "source": entry.source.model_dump(mode="json"),
            "reversed": entry.reversed,
        }
    train, dev = splits["train"], splits["dev"]
    keys = [text_key(example) for example in train.examples]
    known = set(keys)
    others = {name: split for name, split in splits.items() if name != "train" and not (folded and name == "dev")}
    repeats = {name: sum(text_key(row) in known for row in split.examples) for name, split in others.items()}
    return {
        "task": task_name,
        **{key: dumped[key] for key in about},
        "counts": counts,
        "dropped": {name: split.dropped for name, split in splits.items() if split.dropped},
        "duplicates": {"train_within": len(keys) - len(known), **repeats},
        "leaks": leaks_of_folds(train) if folded else leaks_between(train, dev),
        "oddities": oddities(
            task.kind, task.labels, {"train": train} if folded else {"train": train, "dev": dev}, task.label_values
        ),
        "content": {name: sha256_text(to_jsonl(split.examples)) for name, split in splits.items()},
        "sets": sets,
    }
