"""The mean over the members, entry by entry."""

from __future__ import annotations

from collections.abc import Sequence

from regft_core.training.merges import Merged, Outcome, Score, entrywise


def merge(members: Sequence[Outcome], score: Score) -> Merged:
    return entrywise(members, lambda stacked: stacked.mean(0)), {}
