"""Judge a model on a set with other labels than its own.

A set's label map goes by name, from the model's own label to the set's label, and may merge:
MNLI's ``neutral`` and ``contradiction`` are both HANS's ``non-entailment``. How predictions and scores
are then made is the kind's (``Kind.predictions``, ``Kind.scores``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from regft_core.runs.records import PreparedTask


def label_indices(
    own_labels: Sequence[str], set_labels: Sequence[str], label_map: Mapping[str, str] | None = None
) -> npt.NDArray[np.int64]:
    """Return [K]: for each of the model's own labels, the index of the set's label that it counts as; empty for none.

    Without ``label_map`` the names are the same (their order may differ). The checks of the settings have found them
    right (``labels-differ``).
    """
    names = [name if label_map is None else label_map[name] for name in own_labels]
    return np.array([list(set_labels).index(name) for name in names], dtype=np.int64)


def positive_index(
    own_labels: Sequence[str], positive_label: str | None, to_set: Sequence[int] | npt.NDArray[np.int64]
) -> int | None:
    """Index, among the set's labels, of what F1 counts (by default the last own label); None without labels.

    ``to_set [K]`` has the set's label of each own one.
    """
    return int(to_set[own_labels.index(positive_label or own_labels[-1])]) if own_labels else None


def positive_of(described: PreparedTask, name: str) -> int | None:
    """Index, among the labels of the set ``name``, of what a task's positive label counts as."""
    own, declared = described.labels or [], described.sets[name]
    to_set = label_indices(own, declared.labels or own, declared.label_map)
    return positive_index(own, described.positive_label, to_set)
