"""Encoded sets with some tokens replaced or left out; added tokens such as [CLS] always stay.

An example is one row of tokens, or two where the texts of a pair are encoded separately; both are edited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core.data.encode import Encoded, Rows, Tokens
from regft_core.evaluate.findings import BY_WINDOWS, Unfit

#: One array [n] for each row of an example.
PerRow = Sequence["npt.NDArray[Any]"]
#: (token ids, editable) of one example's rows -> its other token ids
Replacement = Callable[[PerRow, PerRow], PerRow]


def parts(encoded: Encoded) -> list[Tokens]:
    """The rows of all first texts (or joined pairs) and, where there are two rows per example, of all second ones.

    Raises Unfit where texts are read in windows.
    """
    if encoded.windows is not None:
        raise Unfit(BY_WINDOWS)
    first = Tokens(
        input_ids=encoded.input_ids,
        token_type_ids=encoded.token_type_ids,
        special_mask=encoded.special_mask,
        segment=encoded.segment,
        windows=None,
    )
    return [first] if encoded.second is None else [first, encoded.second]


def editable(encoded: Encoded) -> list[list[npt.NDArray[Any]]]:
    """Example -> for each of its rows ``[n]``, True on tokens of its texts."""
    columns = [part["special_mask"] for part in parts(encoded)]
    return [[np.asarray(mask) == 0 for mask in rows] for rows in zip(*columns, strict=True)]


def with_replaced(encoded: Encoded, draw: Replacement) -> Encoded:
    """``encoded`` with the ids that ``draw`` gives on editable tokens; it is asked for one example after the other."""
    found = [Tokens(**part) for part in parts(encoded)]
    ids: list[Rows] = [[] for _ in found]
    for index, free in enumerate(editable(encoded)):
        own = [np.asarray(part["input_ids"][index]) for part in found]
        for rows, before, may, after in zip(ids, own, free, draw(own, free), strict=True):
            rows.append([int(token) for token in np.where(may, after, before)])
    for part, rows in zip(found, ids, strict=True):
        part["input_ids"] = rows
    return _joined(encoded, found)


def with_masked(encoded: Encoded, kept: Sequence[PerRow], mask: int) -> Encoded:
    """``encoded`` with ``mask`` instead of text tokens whose entry of ``kept`` (see ``with_kept``) is False."""
    stays = iter(kept)
    return with_replaced(
        encoded, lambda ids, _: [np.where(keep, own, mask) for own, keep in zip(ids, next(stays), strict=True)]
    )


def with_kept(encoded: Encoded, kept: Sequence[PerRow]) -> Encoded:
    """``encoded`` without the tokens whose entry of ``kept`` (example -> per row ``[n]``) is False."""
    found = []
    for which, part in enumerate(parts(encoded)):
        own = [np.asarray(rows[which], dtype=bool) for rows in kept]

        def cut(rows: Rows, own: list[npt.NDArray[Any]] = own) -> Rows:
            return [[int(token) for token in np.asarray(row)[keep]] for row, keep in zip(rows, own, strict=True)]

        types = part["token_type_ids"]
        found.append(
            Tokens(
                input_ids=cut(part["input_ids"]),
                token_type_ids=None if types is None else cut(types),
                special_mask=cut(part["special_mask"]),
                segment=cut(part["segment"]),
                windows=None,
            )
        )
    return _joined(encoded, found)


def _joined(encoded: Encoded, found: Sequence[Tokens]) -> Encoded:
    return replace(encoded, **found[0], second=found[1] if len(found) == 2 else None)
