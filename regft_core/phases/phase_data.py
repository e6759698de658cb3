"""The rows of a phase: those of the cell, other rows of its task, or another task's; and its random streams.

The draws are part of what a run computes, so they are pure functions of (seed, task, size) and of (seed,
phase, member); rows, their split and the names of the streams enter the key by content.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from regft_core.config.method import Phase
from regft_core.config.schema import DataConfig
from regft_core.data.examples import Example, read_jsonl, to_jsonl
from regft_core.data.subsample import draw
from regft_core.errors import DataError
from regft_core.io import canonical_json, read_json, sha256_text
from regft_core.rng import derive


@dataclass(frozen=True)
class PhaseData:
    """Rows of one phase of one run.

    Attributes:
        task: description of the task that the rows are of (``task.json``).
        examples: the rows; without labels every label is 0.
        labelled: whether the labels are the task's.
    """

    task: dict[str, Any]
    examples: list[Example]
    labelled: bool

    @cached_property
    def sha256(self) -> str:
        """Hash of what a run can see of the rows: their texts and, where it learns them, their labels."""
        if self.labelled:
            return sha256_text(to_jsonl(self.examples))
        return sha256_text(canonical_json([[row.text, row.text_pair] for row in self.examples]))

    @property
    def kind(self) -> str:
        return str(self.task["kind"]) if self.labelled else "classification"

    @property
    def value_range(self) -> tuple[float, float] | None:
        """Smallest and largest value of a regression task."""
        given = self.task.get("range") if self.kind == "regression" else None
        return None if given is None else (float(given[0]), float(given[1]))

    @property
    def labels(self) -> list[str] | None:
        return self.task["labels"] if self.labelled or self.task["labels"] else ["0", "1"]


def read_phase_data(
    data: DataConfig, dataset: Path, subsample: Path, *, task: str, seed: int, stratified: bool
) -> PhaseData:
    """Read (and where it is not the cell's own subsample, draw) the rows of a phase.

    Args:
        dataset: folder with ``task.json`` and ``train.jsonl`` of the task that the phase trains on.
        subsample: file with the rows of the cell, used when ``data`` says nothing else.
        task: name of the phase's task, which names its random draw.

    Raises:
        DataError: a file of an earlier stage is missing, or there are fewer rows than asked for.
    """
    if not (dataset / "task.json").is_file():
        raise DataError(f"{dataset / 'task.json'} is missing; run `dvc repro`, whose stage dataset writes it")
    described = read_json(dataset / "task.json")
    if data.task is None and data.size is None:
        if not subsample.is_file():
            raise DataError(f"{subsample} is missing; run `dvc repro`, whose stage subsample writes it")
        rows = read_jsonl(subsample)
    else:
        every = read_jsonl(dataset / "train.jsonl")
        size = data.size if data.size is not None else "full"
        chosen = draw(len(every), [row.label for row in every], size, seed=seed, task=task, stratified=stratified)
        rows = [every[index] for index in chosen]
    if not data.labels:
        rows = [Example(row.idx, row.text, row.text_pair, 0) for row in rows]
    return PhaseData(described, rows, data.labels)


def split_rows(count: int, share: float, seed: int, phase: str, index: int) -> tuple[list[int], list[int]]:
    """Row numbers to train on, int(share * count), and those set aside; each draw is independent.

    Repeated phases draw again per member (not folds), as weight mixup does.

    Raises:
        DataError: nothing is left to train on.
    """
    if share == 1.0:
        return list(range(count)), []
    order = list(range(count))
    random.Random(derive(seed, "split", phase, index)).shuffle(order)
    cut = int(share * count)
    if cut == 0:
        raise DataError(
            f"phase '{phase}': data.split {share} of {count} rows leaves none to train on"
            "\n    -> raise data.split, or take more rows"
        )
    return sorted(order[:cut]), sorted(order[cut:])


def member_label(phase: Phase, member: int | None) -> str:
    """Name of a phase, or of one member of it, in curves and messages."""
    return phase.name if member is None else f"{phase.name}-{member}"


def member_rows(phase: Phase, member: int | None, count: int, seed: int) -> tuple[list[int], list[int]]:
    """Training and validation rows (numbers below ``count``) of a phase, or of one member of it."""
    varies = phase.repeat is not None and "split" in phase.repeat.vary
    return split_rows(count, phase.data.split, seed, phase.name, (member or 0) if varies else 0)


def run_rows(phase: Phase, member: int | None, count: int, seed: int) -> tuple[list[int], list[int], list[int]]:
    """Rows to train on, those set aside for the method (``data.split``), and those that choose the epoch."""
    train, validation = member_rows(phase, member, count, seed)
    if phase.training.checkpoint != "best_on_split":
        return train, validation, []
    share = phase.training.checkpoint_share
    if int((1.0 - share) * len(train)) == 0:
        raise DataError(
            f"phase '{phase.name}': training.checkpoint_share {share} of {len(train)} rows leaves none to train on"
            "\n    -> lower it, or take more rows"
        )
    kept, judging = split_rows(len(train), 1.0 - share, seed, f"{phase.name}/checkpoint", 0)
    return [train[index] for index in kept], validation, [train[index] for index in judging]


def member_streams(phase: Phase, member: int | None) -> dict[str, str]:
    """Names of the random streams of a phase, or of one member of it: noise and dropout, data order, head."""
    vary = phase.repeat.vary if phase.repeat is not None else ()
    label = member_label(phase, member)
    return {
        "noise": label if "noise" in vary else phase.name,
        "order": label if "order" in vary else phase.name,
        "head": f"head/{member or 0}" if "head" in vary else "head",
    }
