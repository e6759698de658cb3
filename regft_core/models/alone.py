"""One thread of a process loads and trains models at a time; a second one is refused.

Dropout and newly drawn tensors come from torch's generator, and kernels, TF32 and the number of threads are settings
of torch: all of them belong to the process. Two trainings at once would shift each other's draws, and both would be
stored as if they had not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from regft_core.errors import RegftError

#: The same thread may take it again: training loads models.
_computing = threading.RLock()


@contextmanager
def computing_alone() -> Iterator[None]:
    """Be the only thread of this process that loads or trains models; raises ``RegftError`` when another one does."""
    # Not by waiting: a pool of threads would look as if it trained side by side.
    if not _computing.acquire(blocking=False):
        raise RegftError(
            "two-runs-at-once",
            "two runs at once in one process would change each other's random draws, so this one was not started\n"
            "    -> run one job at a time in each process: `executor: processes` does, and an executor of your own may "
            "start processes, not threads",
        )
    try:
        yield
    finally:
        _computing.release()
