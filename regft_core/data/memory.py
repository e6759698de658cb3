"""Tokens and vectors of frozen encoders, kept in memory for the runs of a process: they read the same sets."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.data.encode import Tokens

V = TypeVar("V")

#: Token ids of one tokenizer; about 150 MB.
LIMIT_TOKENS = 2_000_000
#: Bytes of vectors; about 160,000 rows of a base-size encoder.
LIMIT_BYTES = 500_000_000


class Memory(Generic[V]):
    """Values by key. When they exceed ``limit``, as ``size`` measures them, all of them go."""

    def __init__(self, limit: int, size: Callable[[V], int]) -> None:
        self._limit, self._size = limit, size
        self.clear()

    def get(self, key: str) -> V | None:
        """Return the value of a key, or None."""
        return self._values.get(key)

    def put(self, key: str, value: V) -> None:
        """Keep a value."""
        size = self._size(value)
        if self._total + size > self._limit:
            self.clear()
        self._values[key] = value
        self._total += size

    def clear(self) -> None:
        """Forget everything."""
        self._values: dict[str, V] = {}
        self._total = 0


@lru_cache(maxsize=4)
def token_memory(tokenizer_sha256: str) -> Memory[Tokens]:
    """Return the tokens of the tokenizer with these bytes."""
    return Memory(LIMIT_TOKENS, lambda tokens: sum(map(len, tokens["input_ids"])))


@cache
def vector_memory() -> Memory[Tensor]:
    """Return the vectors; a run whose inputs were edited meanwhile clears them (``made_once.py``)."""
    return Memory(LIMIT_BYTES, lambda vectors: vectors.numel() * vectors.element_size())
