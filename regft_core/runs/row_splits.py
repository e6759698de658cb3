"""Which rows of a phase it trains on, sets aside, or is judged by; and its random streams.

The draws are part of what a run computes, so they are pure functions of (seed, phase, member); the splits and the
names of the streams enter the key by content.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from regft_core.data.dividing import divide, hold_out
from regft_core.data.examples import Example, text_key
from regft_core.errors import DataError
from regft_core.kinds import find
from regft_core.rng import derive
from regft_core.schema.method import Phase
from regft_core.schema.tuning import TuningConfig

if TYPE_CHECKING:
    from regft_core.runs.rows import PhaseData


def split_rows(
    count: int, share: float, seed: int, phase: str, index: int, groups: Sequence[str] | None = None
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
            f"phase '{phase}': data.split {share} of {count} rows leaves none to train on"
            "\n    -> raise data.split, or take more rows",
        )
    return sorted(order[:cut]), sorted(order[cut:])


def member_label(phase: Phase, member: int | None) -> str:
    """Name of a phase, or of one member of it, in curves and messages."""
    return phase.name if member is None else f"{phase.name}-{member}"


def member_rows(phase: Phase, member: int | None, data: PhaseData, seed: int) -> tuple[list[int], list[int]]:
    """Training and validation rows (numbers) of a phase, or of one member of it; ``data``: the rows of the phase."""
    varies = phase.repeat is not None and "split" in phase.repeat.vary
    number = (member or 0) if varies else 0
    return split_rows(data.summary.length, phase.data.split, seed, phase.name, number, data.groups)


def run_rows(phase: Phase, member: int | None, data: PhaseData, seed: int) -> tuple[list[int], list[int], list[int]]:
    """Rows to train on, those set aside for the method (``data.split``), and those that choose the epoch.

    Raises DataError where ``training.checkpoint_share`` leaves none to train on.
    """
    train, validation = member_rows(phase, member, data, seed)
    if phase.training.checkpoint != "best_on_split":
        return train, validation, []
    share = phase.training.checkpoint_share
    if int((1.0 - share) * len(train)) == 0:
        raise DataError(
            "no-rows-left",
            f"phase '{phase.name}': training.checkpoint_share {share} of {len(train)} rows leaves none to train on"
            "\n    -> lower it, or take more rows",
        )
    groups = None if data.groups is None else [data.groups[row] for row in train]
    training, judging = split_rows(len(train), 1.0 - share, seed, f"{phase.name}/checkpoint", 0, groups)
    return [train[index] for index in training], validation, [train[index] for index in judging]


def member_streams(phase: Phase, member: int | None) -> dict[str, str]:
    """Names of the random streams of a phase, or of one member of it: noise and dropout, data order, head."""
    vary = phase.repeat.vary if phase.repeat is not None else ()
    label = member_label(phase, member)
    return {
        "noise": label if "noise" in vary else phase.name,
        "order": label if "order" in vary else phase.name,
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
    """Return the rows (numbers) of a run that judge a trial: a share of them, or one fold.

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
