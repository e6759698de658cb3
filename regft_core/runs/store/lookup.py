"""A run store that only answers: what is not in it is not computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from regft_core.runs.store.run_store import RunStore
from regft_core.runs.store.stored_run import StoredRun
from regft_core.runs.store.working_run import WorkingRun


class NotStored(Exception):
    """A run was asked for that is not in the store; a caller that only looks it up computes it elsewhere."""


class LookupStore(RunStore):
    """The same runs; ``NotStored`` instead of any run that is not complete."""

    def get(self, key: str) -> StoredRun:
        """Return the complete run of ``key``; raises ``NotStored`` when there is none, else like ``RunStore.get``."""
        found = super().get(key)
        if found is None:
            raise NotStored(key)
        return found

    def open(
        self,
        key: str,
        identity: Mapping[str, Any],
        timeout: float | None = None,
        *,
        guard: Callable[[], None] | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> WorkingRun:
        """Raises ``NotStored``: who opens a run means to compute it."""
        raise NotStored(key)
