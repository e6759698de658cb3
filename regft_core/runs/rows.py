"""The rows of a phase: those of the cell, other rows of its task, or another task's; which of them it trains on."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from regft_core.data.examples import Example, hold_out, read_jsonl, text_key, to_jsonl
from regft_core.data.subsample import Size, draw
from regft_core.disk.canonical import canonical_json, sha256_text
from regft_core.disk.paths import file_state, settled
from regft_core.disk.reading import read_json
from regft_core.errors import DataError
from regft_core.rng import derive
from regft_core.schema.method import Phase
from regft_core.schema.training import TrainingConfig


class Summary(NamedTuple):
    """Hash of what a run can see of some rows, how many there are, and whether they are pairs."""

    sha256: str
    length: int
    pairs: bool


#: Rows, with the states of their files -> what a key needs of them: a plan asks for those of a cell once a method.
_summaries: dict[tuple[Any, ...], Summary] = {}
#: In a prepared task: the groups of its rows.
GROUPS = "groups.json"


@dataclass(frozen=True)
class PhaseRows:
    """Rows of one phase of one run, read when they are first asked for.

    Attributes:
        task: content of ``task.json`` in the folder ``dataset``; ``files``: with rows, one after the other.
        draw: size, seed, task and whether it is stratified, of a draw among them; None for all.
        labelled: whether labels are the task's, else all are 0; ``taught``: whether the head answers it all the same.
        judging: file with texts that are left out, as ``texts``, and rows of the groups of ``held_out``.
    """

    task: dict[str, Any]
    dataset: Path
    files: tuple[Path, ...]
    draw: tuple[Size, int, str, bool] | None = None
    labelled: bool = True
    taught: bool = False
    judging: Path | None = None
    held_out: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @cached_property
    def _source(self) -> tuple[Any, ...]:
        """The states of their files before any is read, and how rows are drawn: equal ones are of equal rows."""
        paths = (*self.files, self.dataset / GROUPS, *([self.judging] if self.judging else []))
        return tuple(file_state(str(path)) for path in paths), self.draw, self.labelled, self.held_out, self.texts

    @cached_property
    def groups(self) -> list[str] | None:
        """The group of each row, which no draw among them splits; None where the task names no column of groups."""
        # Rows without groups are not read for them: planning asks for the groups of every run.
        return groups_of(self.dataset, self.examples) if (self.dataset / GROUPS).is_file() else None

    @property
    def examples(self) -> list[Example]:
        """The rows; without labels every label is 0. Raises DataError where there are fewer than asked for."""
        return self._read[0]

    @property
    def summary(self) -> Summary:
        """Hash and number of the rows, for keys; rows that this process has seen before are not read again."""
        return _summaries.get(self._source) or self._read[1]

    @cached_property
    def _read(self) -> tuple[list[Example], Summary]:
        source = self._source
        rows = [row for file in self.files for row in read_jsonl(file)]
        if self.draw is not None:
            (size, seed, task, stratified), labels = self.draw, [row.label for row in rows]
            drawn = draw(labels, size, seed=seed, task=task, stratified=stratified, kind=self.task["kind"])
            rows = [rows[index] for index in drawn]
        if self.judging is not None or self.texts:
            texts = {*self.texts, *map(text_key, read_jsonl(self.judging) if self.judging else ())}
            rows = [row for row in rows if text_key(row) not in texts]
        if self.held_out:
            group_of = _groups(self.dataset) or {}
            hidden = {group_of.get(idx, idx) for idx in self.held_out}
            rows = [row for row in rows if group_of.get(row.idx, row.idx) not in hidden]
        if not self.labelled:
            rows = [Example(row.idx, row.text, row.text_pair, 0) for row in rows]
        text = to_jsonl(rows) if self.labelled else canonical_json([[row.text, row.text_pair] for row in rows])
        summary = Summary(sha256_text(text), len(rows), bool(rows) and rows[0].text_pair is not None)
        if all(map(settled, source[0])):
            _summaries[source] = summary
        return rows, summary

    @property
    def kind(self) -> str:
        """Kind of task; a head that answers nothing is that of two classes."""
        return str(self.task["kind"]) if self.labelled or self.taught else "classification"

    @property
    def value_range(self) -> tuple[float, float] | None:
        """Smallest and largest value, where the task gives them and its labels are learned."""
        limits = self.task.get("range") if self.labelled else None
        return None if limits is None else (float(limits[0]), float(limits[1]))

    @property
    def labels(self) -> list[str] | None:
        """Names of the labels; None for numbers."""
        return self.task["labels"] if self.labelled or self.task["labels"] else ["0", "1"]


def _groups(dataset: Path) -> dict[str, str] | None:
    """Training row -> its group, in a prepared task with groups."""
    path = dataset / GROUPS
    return read_json(path).get("train") if path.is_file() else None


def groups_of(dataset: Path, rows: Sequence[Example]) -> list[str] | None:
    """The groups of training rows of the prepared task in ``dataset``; None for a task without groups."""
    group_of = _groups(dataset)
    # A text without label is a group of its own.
    return None if group_of is None else [group_of.get(row.idx, row.idx) for row in rows]


def with_more_rows(
    phase: Phase, training: TrainingConfig, task: str, size: str, judged: Mapping[str, int], now: Mapping[str, int]
) -> TrainingConfig:
    """``training`` of a phase with ``max_steps`` and ``warmup_steps`` scaled by its rows, rounded up.

    A phase on other rows than the cell's stays as it is unless it takes the steps of all rows. ``judged``, ``now``:
    rows of each set in the evaluated runs, which have ``size``, and in this one.
    """
    data, own = phase.data, phase.data.steps == "own"
    if own and (data.task not in (None, task) or data.size not in (None, "full")):
        return training
    of = (data.size or size) if own else "full"
    before = judged["train"] if of == "full" else int(of)
    steps_of = {name: getattr(training, name) for name in ("max_steps", "warmup_steps")}
    texts = now.get("unlabelled", 0) if own and data.size == "full" and not data.labels else 0
    scaled = {n: math.ceil(steps * (now["train"] + texts) / (before + texts)) for n, steps in steps_of.items() if steps}
    return training.model_copy(update=scaled)


def split_rows(
    count: int,
    share: float,
    seed: int,
    phase: str,
    index: int,
    groups: Sequence[str] | None = None,
    setting: str = "data.split",
) -> tuple[list[int], list[int]]:
    """Return row numbers to train on, int(share * count), and those set aside; with ``groups`` whole ones.

    Raises DataError where nothing is left to train on, or all rows are of one group.
    """
    if share == 1.0:
        return list(range(count)), []
    stream, cut = random.Random(derive(seed, "split", phase, index)), int(share * count)
    if groups is not None:
        if len(set(groups)) < 2:
            what = f"all {count} training rows are of one group, which is never split, so none can be set aside"
            hint = "take more rows, or name a finer column under columns.group"
            raise DataError("too-few-groups", f"phase '{phase}': {what}\n    -> {hint}")
        aside = hold_out(groups, count - cut, stream)
        return sorted(set(range(count)) - set(aside)), aside
    if cut == 0:
        what = f"{setting} leaves none of {count} rows to train on"
        raise DataError("no-rows-left", f"phase '{phase}': {what}\n    -> change it, or take more rows")
    order = list(range(count))
    stream.shuffle(order)
    return sorted(order[:cut]), sorted(order[cut:])


def member_label(phase: str, member: int | None) -> str:
    """Name of a phase, or of one member of it, in curves and messages."""
    return phase if member is None else f"{phase}-{member}"


def run_rows(phase: Phase, member: int | None, rows: PhaseRows, seed: int) -> tuple[list[int], list[int], list[int]]:
    """Numbers of the rows to train on, of those set aside for the method, and of those that choose the epoch."""
    varies = phase.repeat is not None and "split" in phase.repeat.vary
    number = (member or 0) if varies else 0
    train, validation = split_rows(rows.summary.length, phase.data.split, seed, phase.run_name, number, rows.groups)
    if phase.training.checkpoint != "best_on_split":
        return train, validation, []
    groups = None if rows.groups is None else [rows.groups[row] for row in train]
    share, draw_name = 1.0 - phase.training.checkpoint_share, f"{phase.run_name}/checkpoint"
    training, judging = split_rows(len(train), share, seed, draw_name, 0, groups, "training.checkpoint_share")
    return [train[index] for index in training], validation, [train[index] for index in judging]


def member_streams(phase: Phase, member: int | None) -> dict[str, str]:
    """Names of the random streams of a phase, or of one member of it: noise and dropout, data order, head."""
    vary = phase.repeat.vary if phase.repeat is not None else ()
    label = member_label(phase.run_name, member)
    return {
        "noise": label if "noise" in vary else phase.run_name,
        "order": label if "order" in vary else phase.run_name,
        "head": f"head/{member or 0}" if "head" in vary else "head",
    }
