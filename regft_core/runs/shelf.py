"""What the store's housekeeping (pruning, verification) asks of the store, so that it need not import it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from regft_core.runs.locks import KeyLock
from regft_core.runs.pins import Pins
from regft_core.runs.stored import StoredRun


class Shelf(Protocol):
    """The runs under one path; ``store.RunStore`` is one."""

    path: Path

    def directory(self, key: str) -> Path: ...

    def lock(self, key: str) -> KeyLock: ...

    def get(self, key: str) -> StoredRun | None: ...

    def keys(self) -> Iterator[str]: ...

    def partials(self) -> Iterator[tuple[str, Path]]: ...

    def damaged(self) -> Iterator[tuple[str, Path]]: ...

    def pins_of(self, key: str) -> Pins: ...
