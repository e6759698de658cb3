"""Logits as bytes of a ``.npy`` file, whose content is a function of the values alone; nothing is ever unpickled."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from regft_core.lazy import np

if TYPE_CHECKING:
    import numpy.typing as npt


def to_npy(values: npt.NDArray[Any]) -> bytes:
    """The file's content, of an array of any shape."""
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(values), allow_pickle=False)
    return stream.getvalue()


def from_npy(content: bytes) -> npt.NDArray[Any]:
    """What ``to_npy`` was given; raises ValueError for anything else."""
    values: npt.NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    return values
