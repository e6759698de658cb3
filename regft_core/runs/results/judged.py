"""The rows of one set over all runs: gold labels in one order, and which of them each seed was judged on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core.runs.results.work import Predictions

Array = npt.NDArray[Any]


class JudgedRows:
    """Rows that runs were judged on, added run by run.

    Args:
        folded: each seed has rows of its own; else all have the same.
    """

    def __init__(self, folded: bool) -> None:
        self._folded = folded
        self._ids: dict[str, int] = {}
        self._gold: list[Any] = []
        self._places: dict[int, list[int]] = {}

    def fits(self, seed: int, found: Predictions) -> bool:
        """Add the rows of a run; False where they, or their labels, contradict those of an earlier one."""
        if self._folded or not self._ids:
            for idx, label in zip(found.ids, found.gold, strict=True):
                if idx not in self._ids:
                    self._ids[idx] = len(self._ids)
                    self._gold.append(label)
        if any(idx not in self._ids for idx in found.ids):
            return False
        places = [self._ids[idx] for idx in found.ids]
        known = self._places.setdefault(seed if self._folded else 0, places)
        return known == places and bool(np.array_equal(np.array(self._gold)[places], found.gold))

    @property
    def gold(self) -> Array:
        """[n] labels."""
        return np.array(self._gold)

    @property
    def judged(self) -> dict[int, npt.NDArray[np.int64]] | None:
        """Seed -> rows of ``gold``; None where all seeds were judged on all."""
        if not self._folded:
            return None
        return {seed: np.array(places, dtype=np.int64) for seed, places in self._places.items()}

    def groups(self, group_of: Mapping[str, str]) -> npt.NDArray[np.int64] | None:
        """[n] index of each row's group; None without groups."""
        if not group_of:
            return None
        names = {group: number for number, group in enumerate(dict.fromkeys(group_of[idx] for idx in self._ids))}
        return np.array([names[group_of[idx]] for idx in self._ids], dtype=np.int64)
