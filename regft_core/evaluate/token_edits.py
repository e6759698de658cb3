"""Encoded sets with some tokens replaced; added tokens such as [CLS] always stay.

An example is one row of tokens, or two where the texts of a pair are encoded separately; both are edited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core.data.encode import Encoded, Rows
from regft_core.evaluate.analysis_result import BY_WINDOWS, Unfit

#: One array [n] for each row of an example.
PerRow = Sequence["npt.NDArray[Any]"]
#: (token ids, editable) of one example's rows -> its other token ids
Replacement = Callable[[PerRow, PerRow], PerRow]


def editable(encoded: Encoded) -> list[list[npt.NDArray[Any]]]:
    """Example -> for each of its rows ``[n]``, True on tokens of its texts. Raises Unfit for texts in windows."""
    if encoded.windows is not None:
        raise Unfit(BY_WINDOWS)
    return [[np.asarray(row) == 0 for row in encoded.rows_of("special_mask", i)] for i in range(len(encoded))]


def with_replaced(encoded: Encoded, draw: Replacement) -> Encoded:
    """``encoded`` with the ids that ``draw`` gives on editable tokens; it is asked for one example after the other."""
    rows: Rows = []
    for index, free in enumerate(editable(encoded)):
        ids = [np.asarray(row) for row in encoded.rows_of("input_ids", index)]
        for before, may, after in zip(ids, free, draw(ids, free), strict=True):
            rows.append([int(token) for token in np.where(may, after, before)])
    return replace(encoded, input_ids=rows)


def with_masked(encoded: Encoded, kept: Sequence[PerRow], mask: int) -> Encoded:
    """``encoded`` with ``mask`` for text tokens whose entry of ``kept`` (example -> per row ``[n]``) is False."""
    stays = iter(kept)
    return with_replaced(
        encoded, lambda ids, _: [np.where(keep, own, mask) for own, keep in zip(ids, next(stays), strict=True)]
    )
