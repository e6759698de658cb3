"""A development set that is drawn from the training rows: a share of them, or folds that judge in turn.

Each row is judged once per repeat, by the model of the seed that did not train on it. The draw is a function of the
rows, the task's name and the repeat alone: all methods share it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from regft_core.data.deal import deal
from regft_core.data.examples import text_key, to_jsonl
from regft_core.data.rows import Split
from regft_core.errors import ConfigError, DataError
from regft_core.io.canonical import sha256_text
from regft_core.kinds import find
from regft_core.names import plural
from regft_core.rng import derive
from regft_core.schema.tasks import FoldsConfig, TaskConfig
from regft_core.settings.files import TASKS, read

#: All rows of a task whose development set is a share of them.
WHOLE = "rows.jsonl"
#: A group with more than this share of the rows leaves too little for the other parts.
MOST_OF_THE_ROWS = 0.5


@dataclass(frozen=True)
class Part:
    """One way to divide the rows: those that train and those that judge, both in the order of the source."""

    name: str
    train: Split
    dev: Split


def draw_dev(root: Path, name: str, task: TaskConfig, rows: Split) -> list[Part]:
    """The rows of a task whose ``dev`` is no split: one part for a share, one for each fold of each repeat.

    Rows of one group stay together; without groups, rows of one text do.

    Raises:
        DataError: a class is missing in a part, there are too few groups, or one holds most rows.
    """
    labels = [example.label for example in rows.examples]
    units = rows.groups or [text_key(example) for example in rows.examples]
    strata = find(task.kind).strata(labels)
    where = place(root, name, "dev")
    if rows.groups is not None:
        _check_groups(where, task, rows.groups)
    dev = task.splits.dev
    parts = []
    if isinstance(dev, FoldsConfig):
        for repeat in range(dev.repeats):
            random = Random(derive(repeat, "folds", name))
            fold_of = deal(strata, units, [1 / dev.folds] * dev.folds, random)
            parts += [_part(f"{repeat}-{fold}", rows, fold_of, fold) for fold in range(dev.folds)]
    else:
        assert isinstance(dev, float)
        side = deal(strata, units, [1 - dev, dev], Random(derive(0, "held out", name)))
        parts.append(_part("held-out", rows, side, 1))
    _check_classes(where, task, parts, labels, units)
    return parts


def _part(name: str, rows: Split, part_of: Sequence[int], judging: int) -> Part:
    train = [row for row, part in enumerate(part_of) if part != judging]
    return Part(name, rows.take(train), rows.take([row for row, part in enumerate(part_of) if part == judging]))


def with_draw(described: dict[str, Any], task: TaskConfig, parts: Sequence[Part]) -> dict[str, Any]:
    """``task.json`` with how its development set was drawn, under ``drawn``.

    With folds ``counts.train`` is the least that a seed trains on; ``of_seed`` has the numbers of one.
    """
    dev, group = task.splits.dev, task.columns.group
    if not isinstance(dev, FoldsConfig):
        return described | {"drawn": {"share": dev, "group": group}}
    rows = {part.name: {"train": len(part.train.examples), "dev": len(part.dev.examples)} for part in parts}
    drawn = {"folds": dev.folds, "repeats": dev.repeats, "group": group, "rows": rows}
    judging = sha256_text("".join(to_jsonl(part.dev.examples) for part in parts))
    return described | {
        "drawn": drawn,
        "counts": described["counts"] | {"train": min(one["train"] for one in rows.values())},
        "content": described["content"] | {"folds": judging},
    }


def of_seed(described: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """``task.json`` as one seed sees it: with folds, ``part`` and the numbers of rows are those of its fold.

    Raises DataError for a seed beyond the last repeat.
    """
    drawn = described.get("drawn") or {}
    if "folds" not in drawn:
        return dict(described)
    repeat, fold = divmod(seed, drawn["folds"])
    part = f"{repeat}-{fold}"
    rows = drawn["rows"].get(part)
    if rows is None:
        most = drawn["folds"] * drawn["repeats"]
        raise DataError(
            "no-such-fold",
            f"task '{described['task']}': there is no fold for seed {seed}; {drawn['folds']} folds and "
            f"{plural(drawn['repeats'], 'repeat')} have the seeds 0 to {most - 1}\n    -> raise splits.dev.repeats, "
            "or take smaller seeds",
        )
    sets = {name: {**one, "n": rows["dev"]} if name == "dev" else one for name, one in described["sets"].items()}
    return {**described, "part": part, "counts": {**described["counts"], **rows}, "sets": sets}


def of_refit(described: Mapping[str, Any]) -> dict[str, Any]:
    """``task.json`` as a run sees it that trains on all labelled rows: a development set that was drawn trains, too.

    A set of its own goes on judging.
    """
    drawn = described.get("drawn")
    if not drawn:
        return dict(described)
    folded, counts = "folds" in drawn, described["counts"]
    return {
        **{name: value for name, value in described.items() if name != "drawn"},
        "whole": "train.jsonl" if folded else WHOLE,
        "counts": {**counts, "train": counts["dev"] + (0 if folded else counts["train"])},
        "sets": {name: one for name, one in described["sets"].items() if name != "dev"},
    }


def drawn_line(described: Mapping[str, Any]) -> str:
    """How the development set was drawn; empty for a set of its own."""
    drawn = described.get("drawn")
    if not drawn:
        return ""
    kept = f", groups of '{drawn['group']}' kept together" if drawn["group"] else ""
    counts = described["counts"]
    if "folds" not in drawn:
        return f"dev is {counts['dev']} rows drawn from {counts['dev'] + counts['train']}, the same for all seeds{kept}"
    sizes = [one["dev"] for one in drawn["rows"].values()]
    each = f"{min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else f"{sizes[0]}"
    return (
        f"{drawn['folds']} folds x {plural(drawn['repeats'], 'repeat')} of {counts['dev']} rows, {each} rows a fold"
        f"{kept}; seed s is judged on fold s % {drawn['folds']} of repeat s // {drawn['folds']}"
    )


def fold_line(described: Mapping[str, Any], seed: int) -> str | None:
    """Which rows a run with folds was trained and judged on; None without folds. ``described``: of its seed."""
    drawn = described.get("drawn") or {}
    if "folds" not in drawn:
        return None
    repeat, fold = divmod(seed, drawn["folds"])
    return (
        f"trained on fold {fold} of repeat {repeat} ({drawn['folds']} folds, {plural(drawn['repeats'], 'repeat')}): "
        f"on rows of the other folds, judged on its own {plural(described['counts']['dev'], 'row')}"
    )


def rows_file(described: Mapping[str, Any], name: str) -> str:
    """The file, in the folder of the prepared task, of the set ``name`` (train, dev) as ``of_seed`` describes it.

    Raises DataError for the folds as a whole, which no seed trains on or is judged by.
    """
    if name == "train" and "whole" in described:  # as of_refit describes it
        return str(described["whole"])
    if "folds" not in (described.get("drawn") or {}):
        return f"{name}.jsonl"
    if "part" not in described:
        raise DataError(
            "no-such-fold",
            f"task '{described['task']}' has folds: which rows are meant depends on a seed\n"
            "    -> name a task whose splits.dev is a file or a share",
        )
    return f"folds/{described['part']}/{name}.jsonl"


def set_files(described: Mapping[str, Any]) -> dict[str, str]:
    """Name of each evaluation set, as ``of_seed`` describes them, and its file in the folder of the prepared task."""
    return {name: rows_file(described, name) if name == "dev" else f"ood/{name}.jsonl" for name in described["sets"]}


def place(root: Path, name: str, split: str) -> str:
    """``file:line`` of a split (train, dev), and the task."""
    try:
        document = read(root, TASKS, name)
    except ConfigError:
        document = None
    if document is None:  # a task that has no file, as tests make them
        return f"task '{name}', splits.{split}"
    return f"{document.place(('splits', split))} (task '{name}')"


def _check_groups(where: str, task: TaskConfig, groups: Sequence[str]) -> None:
    dev = task.splits.dev
    least = dev.folds if isinstance(dev, FoldsConfig) else 2
    counts = Counter(groups)
    (largest, rows), *_ = counts.most_common(1)
    if len(counts) < least:
        raise DataError(
            "too-few-groups",
            f"{where}: column '{task.columns.group}' has {plural(len(counts), 'group')}, but {least} parts are asked "
            "for, and a group is never split\n    -> ask for fewer folds, name another column under columns.group, or "
            "remove it",
        )
    if rows > MOST_OF_THE_ROWS * len(groups):
        raise DataError(
            "group-too-large",
            f"{where}: group '{largest}' of column '{task.columns.group}' holds {rows} of {len(groups)} rows, and a "
            "group is never split\n    -> name a finer column under columns.group, or remove it",
        )


def _check_classes(
    where: str, task: TaskConfig, parts: Sequence[Part], labels: Sequence[int | float], units: Sequence[str]
) -> None:
    kind, names = find(task.kind), task.labels or ()
    every = kind.label_counts(labels, names) or {}
    for part in parts:
        for side, rows in (("judges", part.dev), ("trains", part.train)):
            counts = kind.label_counts([row.label for row in rows.examples], names) or {}
            if not rows.examples or any(every[name] and not counts[name] for name in every):
                raise _lacking(where, task, side, every, counts, len(labels), units)


def _lacking(
    where: str,
    task: TaskConfig,
    side: str,
    every: Mapping[str, int],
    counts: Mapping[str, int],
    total: int,
    units: Sequence[str],
) -> DataError:
    dev = task.splits.dev
    what = f"one of {dev.folds} folds" if isinstance(dev, FoldsConfig) else f"the share {dev}"
    kept = (
        f"groups of '{task.columns.group}' are never split"
        if task.columns.group
        else f"the rows have {plural(len(set(units)), 'different text')}"
    )
    absent = next((name for name, rows in every.items() if rows and not counts.get(name)), None)
    of_class = "" if absent is None else f" of class '{absent}', which has {every[absent]}"
    where_to = what if side == "judges" else f"what remains beside {what}"
    remedy = "ask for fewer folds" if isinstance(dev, FoldsConfig) else "give another share"
    return DataError(
        "class-missing",
        f"{where}: {where_to} has no row{of_class} of {total}; {kept}"
        f"\n    -> {remedy}, label more rows of that class, or leave it out with drop_labels",
    )
