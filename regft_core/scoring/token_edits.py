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

#: (token ids [n], editable [n]) of one row -> other token ids [n]
Replacement = Callable[["npt.NDArray[Any]", "npt.NDArray[Any]"], "npt.NDArray[Any]"]


def parts(encoded: Encoded) -> list[Tokens]:
    """The rows of all first texts (or joined pairs) and, where there are two rows per example, of all second ones."""
    first = Tokens(
        input_ids=encoded.input_ids,
        token_type_ids=encoded.token_type_ids,
        special_mask=encoded.special_mask,
        segment=encoded.segment,
    )
    return [first] if encoded.second is None else [first, encoded.second]


def editable(encoded: Encoded) -> list[list[npt.NDArray[Any]]]:
    """Example -> for each of its rows ``[n]``, True on tokens of its texts."""
    columns = [part["special_mask"] for part in parts(encoded)]
    return [[np.asarray(mask) == 0 for mask in rows] for rows in zip(*columns, strict=True)]


def with_replaced(encoded: Encoded, draw: Replacement) -> Encoded:
    """``encoded`` with the ids that ``draw`` gives; it is asked for the rows of one example after the other."""
    found = [Tokens(**part) for part in parts(encoded)]
    ids: list[Rows] = [[] for _ in found]
    for index in range(len(encoded)):
        for part, rows in zip(found, ids, strict=True):
            own, free = np.asarray(part["input_ids"][index]), np.asarray(part["special_mask"][index]) == 0
            rows.append([int(token) for token in np.where(free, draw(own, free), own)])
    for part, rows in zip(found, ids, strict=True):
        part["input_ids"] = rows
    return _joined(encoded, found)


def with_kept(encoded: Encoded, kept: Sequence[Sequence[npt.NDArray[Any]]]) -> Encoded:
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
            )
        )
    return _joined(encoded, found)


def _joined(encoded: Encoded, found: Sequence[Tokens]) -> Encoded:
    return replace(encoded, **found[0], second=found[1] if len(found) == 2 else None)
