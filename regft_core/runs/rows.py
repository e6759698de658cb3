"""The rows of a phase: those of the cell, other rows of its task, or another task's; which of them it trains on.

The draws are part of what a run computes, so they are pure functions of (seed, task, size) and of (seed,
phase, member); rows, their split and the names of the streams enter the key by content.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from regft_core.data.examples import UNLABELLED, Example, divide, hold_out, read_jsonl, text_key, to_jsonl
from regft_core.data.splits import rows_file
from regft_core.data.subsample import draw
from regft_core.disk.canonical import canonical_json, sha256_text
from regft_core.disk.paths import file_state, settled
from regft_core.disk.reading import read_json
from regft_core.errors import DataError
from regft_core.kinds import find
from regft_core.rng import derive
from regft_core.schema.method import Phase
from regft_core.schema.methods import DataConfig
from regft_core.schema.params import TuningConfig
from regft_core.schema.training import TrainingConfig


class Summary(NamedTuple):
    """Hash of some rows, how many there are, and whether they are pairs."""

    sha256: str
    length: int
    pairs: bool


#: ``PhaseData.source`` -> what is known of those rows.
_summaries: dict[tuple[Any, ...], Summary] = {}


#: In a prepared task: the groups of its rows.
GROUPS = "groups.json"


@dataclass(frozen=True)
class PhaseData:
    """Rows of one phase of one run.

    Attributes:
        task: content of ``task.json`` of the task that the rows are of, in the folder ``dataset``.
        labelled: whether the labels are the task's; ``taught``: whether the head answers the task all the same, as an
            earlier phase does.
        read: reads the rows.
        source: what tells the rows from others, the state of their file included: what a key needs of rows that were
            seen before is known without reading them.
    """

    task: dict[str, Any]
    labelled: bool
    read: Callable[[], list[Example]]
    source: tuple[Any, ...]
    dataset: Path
    taught: bool = False

    @cached_property
    def groups(self) -> list[str] | None:
        """The group of each row, which no draw among them splits; None where the task names no column of groups."""
        # Rows without groups are not read for them: planning asks for the groups of every run.
        return groups_of(self.dataset, self.examples) if (self.dataset / GROUPS).is_file() else None

    @property
    def examples(self) -> list[Example]:
        """The rows; without labels every label is 0."""
        return self._opened[0]

    @cached_property
    def summary(self) -> Summary:
        """Hash and number of the rows, for a key."""
        summary = _summaries.get(self.source) or self._opened[1]
        if settled(self.source[0]):
            _summaries[self.source] = summary
        return summary

    @cached_property
    def _opened(self) -> tuple[list[Example], Summary]:
        """The rows as they were read, once, and what a key needs of these."""
        rows = self.read()
        if not self.labelled:
            rows = [Example(row.idx, row.text, row.text_pair, 0) for row in rows]
        text = to_jsonl(rows) if self.labelled else canonical_json([[row.text, row.text_pair] for row in rows])
        return rows, Summary(sha256_text(text), len(rows), bool(rows) and rows[0].text_pair is not None)

    @property
    def sha256(self) -> str:
        """Hash of what a run can see of the rows: their texts and, where it learns them, their labels."""
        return self.summary.sha256

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


def read_phase_data(
    data: DataConfig,
    dataset: Path,
    described: dict[str, Any],
    subsample: Path,
    *,
    task: str,
    seed: int,
    stratified: bool,
) -> PhaseData:
    """The rows of a phase: the cell's own subsample, or drawn where that is not what it asks for; read when used.

    Args:
        dataset: folder with the rows of the task that the phase trains on; where it reads no labels and not the
            cell's rows, the texts of the task's split ``unlabelled`` are among them.
        described: its ``task.json``, with folds as ``splits.of_seed`` describes it: then no row of the cell's own task
            is read that the cell's seed is evaluated on.
        subsample: file with the rows of the cell, used when ``data`` says nothing else.
        task: name of the phase's task, which names its random draw.

    Raises:
        DataError: a file of an earlier stage is missing; when they are read, there are fewer rows than asked for.
    """
    is_drawn = data.task is None and data.size is None
    rows = subsample if is_drawn else dataset / rows_file(described, "train")
    if not rows.is_file():
        code = "rows-missing" if is_drawn else "not-prepared"
        raise DataError(code, f"{rows} is missing; run `dvc repro`, whose stage subsample writes it")
    state, more = file_state(str(rows)), dataset / UNLABELLED
    if is_drawn:
        return PhaseData(described, data.labels, partial(read_jsonl, rows), (state, data.labels), dataset)
    size, further = data.size if data.size is not None else "full", not data.labels and more.is_file()

    def drawn() -> list[Example]:
        every = read_jsonl(rows) + (read_jsonl(more) if further else [])
        labels, kind = [row.label for row in every], described["kind"]
        chosen = draw(labels, size, seed=seed, task=task, stratified=stratified and data.labels, kind=kind)
        return [every[index] for index in chosen]

    source = (state, data.labels, size, seed, task, stratified, file_state(str(more)) if further else None)
    return PhaseData(described, data.labels, drawn, source, dataset)


def groups_of(dataset: Path, rows: Sequence[Example]) -> list[str] | None:
    """The groups of training rows of the prepared task in ``dataset``; None for a task without groups."""
    path = dataset / GROUPS
    group_of = read_json(path).get("train") if path.is_file() else None
    # A text without label is a group of its own.
    return None if group_of is None else [group_of.get(row.idx, row.idx) for row in rows]


def without_texts(data: PhaseData, judging: Path) -> PhaseData:
    """Another task's rows without the texts that the run is evaluated on.

    Two tasks may label one file; where a development set is drawn from its rows, the other task has all of them.
    """

    def read() -> list[Example]:
        hidden = {text_key(row) for row in read_jsonl(judging)}
        return [row for row in data.read() if text_key(row) not in hidden]

    return replace(data, read=read, source=(*data.source, "without", file_state(str(judging))))


def without_units(data: PhaseData, held_out: Sequence[Example], drawn: tuple[Any, ...]) -> PhaseData:
    """The rows without those that are held out, nor others of their groups; ``drawn`` tells this draw from others."""

    def read() -> list[Example]:
        rows, hidden = data.read(), {row.idx for row in held_out}
        groups, theirs = groups_of(data.dataset, rows), set(groups_of(data.dataset, held_out) or ())
        if groups is None:
            return [row for row in rows if row.idx not in hidden]
        return [row for row, group in zip(rows, groups, strict=True) if group not in theirs]

    state = file_state(str(data.dataset / GROUPS))
    return replace(data, read=read, source=(*data.source, *drawn, state))


def with_more_rows(
    phase: Phase, training: TrainingConfig, task: str, size: str, judged: Mapping[str, int], now: Mapping[str, int]
) -> TrainingConfig:
    """``training`` of a phase with ``max_steps`` and ``warmup_steps`` scaled by its rows, rounded up.

    Args:
        task: of the run; a phase on another task's rows, or on a number of rows of its own, stays as it is.
        size: of the evaluated runs.
        judged, now: rows of each set in the evaluated runs and in this one; ``train`` of them train.
    """
    data = phase.data
    if data.task not in (None, task) or data.size not in (None, "full"):
        return training
    of = data.size or size
    before = judged["train"] if of == "full" else int(of)
    steps_of = {name: getattr(training, name) for name in ("max_steps", "warmup_steps")}
    texts = now.get("unlabelled", 0) if data.size == "full" and not data.labels else 0
    scaled = {n: math.ceil(steps * (now["train"] + texts) / (before + texts)) for n, steps in steps_of.items() if steps}
    return training.model_copy(update=scaled)


# ---------------------------------------------------------------------- which rows, and random streams


def split_rows(
    count: int,
    share: float,
    seed: int,
    phase: str,
    index: int,
    groups: Sequence[str] | None = None,
    setting: str = "data.split",
) -> tuple[list[int], list[int]]:
    """Row numbers to train on, int(share * count), and those set aside; each draw is independent.

    Repeated phases draw again per member (not folds), as weight mixup does. With ``groups``, one for each row, whole
    groups are set aside, so that the share is met as nearly as they allow.

    Raises:
        DataError: nothing is left to train on, or all rows are of one group.
    """
    if share == 1.0:
        return list(range(count)), []
    if groups is not None:
        if len(set(groups)) < 2:
            raise DataError(
                "too-few-groups",
                f"phase '{phase}': all {count} training rows are of one group, which is never split, so none can be "
                "set aside\n    -> take more rows, or name a finer column under columns.group",
            )
        aside = hold_out(groups, count - int(share * count), random.Random(derive(seed, "split", phase, index)))
        return sorted(set(range(count)) - set(aside)), aside
    order = list(range(count))
    random.Random(derive(seed, "split", phase, index)).shuffle(order)
    cut = int(share * count)
    if cut == 0:
        raise DataError(
            "no-rows-left",
            f"phase '{phase}': {setting} leaves none of {count} rows to train on\n    -> change it, or take more rows",
        )
    return sorted(order[:cut]), sorted(order[cut:])


def member_label(phase: str, member: int | None) -> str:
    """Name of a phase, or of one member of it, in curves and messages."""
    return phase if member is None else f"{phase}-{member}"


def member_rows(phase: Phase, member: int | None, data: PhaseData, seed: int) -> tuple[list[int], list[int]]:
    """Training and validation rows (numbers) of a phase, or of one member of it; ``data``: the rows of the phase."""
    varies = phase.repeat is not None and "split" in phase.repeat.vary
    number = (member or 0) if varies else 0
    return split_rows(data.summary.length, phase.data.split, seed, phase.run_name, number, data.groups)


def run_rows(phase: Phase, member: int | None, data: PhaseData, seed: int) -> tuple[list[int], list[int], list[int]]:
    """Rows to train on, those set aside for the method (``data.split``), and those that choose the epoch.

    Raises DataError where ``training.checkpoint_share`` leaves none to train on.
    """
    train, validation = member_rows(phase, member, data, seed)
    if phase.training.checkpoint != "best_on_split":
        return train, validation, []
    groups = None if data.groups is None else [data.groups[row] for row in train]
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


def trial_rows(
    rows: Sequence[Example],
    groups: Sequence[str] | None,
    kind: str,
    tuning: TuningConfig,
    task: str,
    seed: int,
    fold: int | None,
) -> list[int]:
    """Return the rows (numbers) of a run that a trial is scored on: a share of them, or one fold.

    Folds are stratified; rows of one group, or of one text, stay together.
    """
    if fold is None:
        return split_rows(len(rows), tuning.split, seed, "tuning", 0, groups)[1]
    parts = divide(
        find(kind).strata([row.label for row in rows]),
        groups or [text_key(row) for row in rows],
        [1 / tuning.rounds] * tuning.rounds,
        random.Random(derive(seed, "tuning folds", task)),
    )
    return [number for number, part in enumerate(parts) if part == fold]
