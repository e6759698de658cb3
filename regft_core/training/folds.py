"""Folds of training rows, by which a fit chooses its penalty; groups of rows stay together."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from regft_core.data.dividing import divide

#: The note of a fit whose groups leave no folds.
TOO_FEW = "groups leave too few folds, so the strength was not cross-validated"


def folds_of(
    rows: int, strata: Sequence[int] | None, groups: Sequence[str] | None, count: int, seed: int
) -> list[tuple[Any, Any]] | None:
    """(training rows, left-out rows) of ``count`` folds, fewer where there are fewer groups, drawn by ``seed``.

    ``strata`` [rows], if there are any, keep their shares; rows of one of the ``groups`` [rows] share a fold. None
    where there is a single group, or groups would leave no row of a stratum to train on.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    if groups is None:
        draw = (KFold if strata is None else StratifiedKFold)(count, shuffle=True, random_state=seed % 2**32)
        return list(draw.split(np.zeros(rows), strata))
    count = min(count, len(set(groups)))
    if count < 2:
        return None
    stratum = np.zeros(rows) if strata is None else np.asarray(strata)
    part = np.array(divide([int(one) for one in stratum], groups, [1 / count] * count, Random(seed)))
    splits = [(np.flatnonzero(part != fold), np.flatnonzero(part == fold)) for fold in range(count)]
    every = set(stratum.tolist())
    whole = all(len(left) and set(stratum[train].tolist()) == every for train, left in splits)
    return splits if whole else None
