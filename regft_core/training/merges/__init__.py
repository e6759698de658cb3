"""Rules that make one of the members of a repeated phase; ``repeat.merge`` names the file (``catalogue.py`` finds it).

A file defines ``merge(members, score)``. A member is what its training left: named tensors by what they are
(``weights``, ``state``, ``kept``). ``score`` of a member, or of a mean, is the task's primary metric on the validation
share; larger is better. Returned are the merged tensors and what the record tells of the choice: ``scores`` of the
members alone and the ``chosen`` ones in their order, or nothing. ``SCORES = True`` says that scores are asked for, so
that the phase needs a validation share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regft_core.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

#: Named tensors by what they are: ``weights``, ``state``, ``kept``.
Outcome = Mapping[str, Mapping[str, "Tensor"]]
Score = Callable[[Outcome], float]
#: What a rule returns: merged tensors, and what the record tells.
Merged = tuple[dict[str, dict[str, "Tensor"]], dict[str, Any]]


def entrywise(members: Sequence[Outcome], merged: Callable[[Tensor], Tensor]) -> dict[str, dict[str, Tensor]]:
    """Every tensor as ``merged`` makes it of those of all members, stacked, in double precision: [members, ...]."""
    return {
        part: {
            name: merged(torch.stack([member[part][name] for member in members]).double()).to(value.dtype)
            for name, value in named.items()
        }
        for part, named in members[0].items()
    }
