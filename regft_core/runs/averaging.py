"""The mean of several trained members, which is in the key of a merge with all its code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

#: Named tensors by what they are: ``weights``, ``state``, ``kept``.
Outcome = Mapping[str, Mapping[str, "Tensor"]]


def merge_mean(members: Sequence[Outcome]) -> dict[str, dict[str, Tensor]]:
    """Mean over the members, entry by entry, in double precision."""
    first = members[0]
    return {
        name: {
            key: torch.stack([member[name][key].double() for member in members]).mean(0).to(value.dtype)
            for key, value in named.items()
        }
        for name, named in first.items()
    }
