"""A development set that is split off from the training rows, by rows and repeat alone: a share of them, or folds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from regft_core.data.examples import divide, text_key, to_jsonl
from regft_core.data.read_split import Split
from regft_core.disk.canonical import sha256_text
from regft_core.errors import DataError
from regft_core.kinds import find
from regft_core.names import plural
from regft_core.rng import derive
from regft_core.schema.tasks import FoldsConfig, TaskConfig

#: All rows of a task whose development set is a share of them.
WHOLE = "rows.jsonl"
#: A group with more than this share of the rows leaves too little for the other parts.
MOST_OF_THE_ROWS = 0.5


@dataclass(frozen=True)
class Part:
    """One split of the rows into training and development rows, both in the order of the source."""

    name: str
    train: Split
    dev: Split


def split_dev(where: str, task: TaskConfig, rows: Split) -> list[Part]:
    """Split the rows of a task whose ``dev`` is no split of its own: one part for a share, one for each fold.

    Rows of one group (without groups: of one text) stay together. Raises DataError for parts that cannot be.
    """
    units = rows.groups or [text_key(example) for example in rows.examples]
    by_text = sorted(
        range(len(units)), key=lambda row: (units[row], text_key(rows.examples[row]), rows.examples[row].label)
    )
    strata = find(task.kind).strata([rows.examples[row].label for row in by_text])
    dev = task.splits.dev
    if rows.groups is not None:
        _check_groups(f"{where}: column '{task.columns.group}'", rows.groups, getattr(dev, "folds", 2))

    def divided(shares: Sequence[float], random: Random) -> list[int]:
        numbers = divide(strata, [units[row] for row in by_text], shares, random)
        number_of = dict(zip(by_text, numbers, strict=True))
        return [number_of[row] for row in range(len(units))]

    def part(name: str, number_of: Sequence[int], dev: int) -> Part:
        sides = [[row for row, number in enumerate(number_of) if (number == dev) is held] for held in (False, True)]
        return Part(name, *map(rows.take, sides))

    if isinstance(dev, FoldsConfig):
        parts = []
        for repeat in range(dev.repeats):
            fold_of = divided([1 / dev.folds] * dev.folds, Random(derive(repeat, "folds")))
            parts += [part(f"{repeat}-{fold}", fold_of, fold) for fold in range(dev.folds)]
    else:
        assert isinstance(dev, float)
        parts = [part("held-out", divided([1 - dev, dev], Random(derive(0, "held out"))), 1)]
    _check_classes(where, task, parts, rows, len(set(units)))
    return parts


def _check_groups(column: str, groups: Sequence[str], parts: int) -> None:
    counts = Counter(groups)
    largest, rows = counts.most_common(1)[0]
    if len(counts) < parts:
        hint = "ask for fewer folds, name another column under columns.group, or remove it"
        message = f"{column} has {plural(len(counts), 'group')} for {parts} parts, and a group is never split"
        raise DataError("too-few-groups", f"{message}\n    -> {hint}")
    if rows > MOST_OF_THE_ROWS * len(groups):
        message = f"{column}: group '{largest}' holds {rows} of {len(groups)} rows, and a group is never split"
        raise DataError("group-too-large", f"{message}\n    -> name a finer column under columns.group, or remove it")


def _check_classes(where: str, task: TaskConfig, parts: Sequence[Part], rows: Split, units: int) -> None:
    """Raise DataError where a part lacks rows, or a class (of one label per row) that has a row for each part."""

    def counts(split: Split) -> dict[str, int]:
        return find(task.kind).label_counts([row.label for row in split.examples], task.labels or ()) or {}

    every, needed = counts(rows), getattr(task.splits.dev, "folds", 1)
    for side, split in ((side, getattr(part, side)) for part in parts for side in ("dev", "train")):
        present = counts(split)
        absent = next((name for name, count in every.items() if count >= needed and not present[name]), None)
        absent = absent if find(task.kind).one_label else None
        if absent is not None or not split.examples:
            of_class = "" if absent is None else f" of class '{absent}' ({plural(every[absent], 'row')} in all)"
            together = f"groups of '{task.columns.group}'" if task.columns.group else "rows of one text"
            raise DataError(
                "class-missing",
                f"{where}: a part has no {side} rows{of_class}; {together} are never split ({units} units in "
                f"{plural(len(rows.examples), 'row')})\n    -> ask for fewer folds or another share, label more rows "
                "of that class, or leave it out with drop_labels",
            )


def with_splits(described: dict[str, Any], task: TaskConfig, parts: Sequence[Part]) -> dict[str, Any]:
    """Return ``task.json`` with how its development set was split off, under ``drawn`` (``of_seed``)."""
    dev, group = task.splits.dev, task.columns.group
    if not isinstance(dev, FoldsConfig):
        return described | {"drawn": {"share": dev, "group": group}}
    rows = {part.name: {"train": len(part.train.examples), "dev": len(part.dev.examples)} for part in parts}
    folds = sha256_text("".join(to_jsonl(part.dev.examples) for part in parts))
    labels = [row.label for part in parts[: dev.folds] for row in part.dev.examples]
    counts = find(task.kind).label_counts(labels, task.labels or ()) or {}
    scarce = [name for name, count in counts.items() if 0 < count < dev.folds]
    return described | {
        "drawn": {"folds": dev.folds, "repeats": dev.repeats, "group": group, "rows": rows}
        | ({"scarce": scarce} if scarce else {}),
        "counts": described["counts"] | {"train": min(counts["train"] for counts in rows.values())},
        "content": described["content"] | {"folds": folds},
    }


def _drawn(described: Mapping[str, Any]) -> Mapping[str, Any]:
    return described.get("drawn") or {}


def of_seed(described: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return ``task.json`` as one seed sees it: with folds, ``part`` and the numbers of rows are those of its fold."""
    drawn = _drawn(described)
    if "folds" not in drawn:
        return dict(described)
    part = "{}-{}".format(*divmod(seed, drawn["folds"]))
    if (rows := drawn["rows"].get(part)) is None:
        message = f"task '{described['task']}': no fold for seed {seed}, only for 0 to {len(drawn['rows']) - 1}"
        raise DataError("no-such-fold", f"{message}\n    -> raise splits.dev.repeats, or take smaller seeds")
    sets = described["sets"] | {"dev": described["sets"]["dev"] | {"n": rows["dev"]}}
    return {**described, "part": part, "counts": {**described["counts"], **rows}, "sets": sets}


def of_refit(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``task.json`` as a run on all labelled rows sees it; a development set of its own stays."""
    if not (drawn := _drawn(described)):
        return dict(described)
    folded, counts = "folds" in drawn, described["counts"]
    return {
        **{name: value for name, value in described.items() if name != "drawn"},
        "whole": "train.jsonl" if folded else WHOLE,
        "counts": {**counts, "train": counts["dev"] + (0 if folded else counts["train"])},
        "sets": {name: one for name, one in described["sets"].items() if name != "dev"},
    }


def split_line(described: Mapping[str, Any]) -> str:
    """Return how the development set was split off; empty for a set of its own."""
    if not (drawn := _drawn(described)):
        return ""
    groups = f", groups of '{drawn['group']}' kept together" if drawn["group"] else ""
    counts = described["counts"]
    if "folds" not in drawn:
        return f"dev is {counts['dev']} of {counts['dev'] + counts['train']} rows, the same for all seeds{groups}"
    sizes = [rows["dev"] for rows in drawn["rows"].values()]
    each = f"{min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else f"{sizes[0]}"
    return (
        f"{plural(len(sizes), 'seed')} = {drawn['folds']} folds x {plural(drawn['repeats'], 'repeat')} of "
        f"{counts['dev']} rows, {each} rows a fold{groups}"
    )


def fold_line(described: Mapping[str, Any], seed: int) -> str | None:
    """Return which rows a run with folds was trained and evaluated on; None without folds."""
    drawn = _drawn(described)
    if "folds" not in drawn:
        return None
    repeat, fold = divmod(seed, drawn["folds"])
    return (
        f"trained on the other folds and evaluated on the {plural(described['counts']['dev'], 'row')} of fold {fold} "
        f"of repeat {repeat} ({drawn['folds']} folds, {plural(drawn['repeats'], 'repeat')})"
    )


def rows_file(described: Mapping[str, Any], name: str) -> str:
    """Return the file of the set ``name`` (train, dev) below the prepared task. DataError for folds without a seed."""
    if name == "train" and "whole" in described:  # as of_refit describes it
        return str(described["whole"])
    if "folds" not in _drawn(described):
        return f"{name}.jsonl"
    if "part" not in described:
        message = f"task '{described['task']}' has folds: which rows are meant depends on a seed"
        raise DataError("no-such-fold", f"{message}\n    -> name a task whose splits.dev is a file or a share")
    return f"folds/{described['part']}/{name}.jsonl"


def set_files(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the file of each evaluation set, as ``of_seed`` describes them, below the prepared task."""
    return {name: rows_file(described, name) if name == "dev" else f"ood/{name}.jsonl" for name in described["sets"]}
