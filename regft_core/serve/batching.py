"""Concurrent requests, answered together: whatever has come while the model was busy is its next batch.

Nothing waits for a batch to fill, so a single request is as fast as without batching.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Row = TypeVar("Row")
Answer = TypeVar("Answer")


class Full(Exception):
    """As many rows wait as may."""


@dataclass
class Batcher(Generic[Row, Answer]):
    """Answers to requests, computed by one thread for all who ask; to be used within one event loop.

    Attributes:
        work: the rows of some requests -> the answer to each; tokenizer and model are used here and nowhere else.
        most_rows: that are handed to one call of ``work``, unless one request has more.
        most_waiting: rows beyond which further requests are refused.
        waiting: rows that are not answered yet.
        batches: how many calls of ``work`` there were.
    """

    work: Callable[[Sequence[Sequence[Row]]], Sequence[Answer]]
    most_rows: int = 256
    most_waiting: int = 2_000
    waiting: int = 0
    batches: int = 0
    _queue: asyncio.Queue[tuple[Sequence[Row], asyncio.Future[Answer]]] = field(default_factory=asyncio.Queue)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "model"))

    async def answer(self, rows: Sequence[Row]) -> Answer:
        """The answer to one request. A caller that is cancelled leaves the queue.

        Raises Full, and what ``work`` raises for these rows alone.
        """
        if self.waiting and self.waiting + len(rows) > self.most_waiting:
            raise Full
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting += len(rows)
        try:
            self._queue.put_nowait((rows, future))
            return await future
        finally:
            self.waiting -= len(rows)

    async def run(self) -> None:
        """Answer requests until it is cancelled."""
        while True:
            requests = [await self._queue.get()]
            count = len(requests[0][0])
            while not self._queue.empty() and count < self.most_rows:
                requests.append(self._queue.get_nowait())
                count += len(requests[-1][0])
            await self._do([one for one in requests if not one[1].done()])

    async def _do(self, requests: Sequence[tuple[Sequence[Row], asyncio.Future[Answer]]]) -> None:
        if not requests:
            return
        self.batches += 1
        rows = [one for one, _ in requests]
        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._thread, self.work, rows)
        except Exception as error:
            if len(requests) > 1:  # what one request did wrong is its own failure only
                for one in requests:
                    await self._do([one])
            elif not requests[0][1].done():
                requests[0][1].set_exception(error)
            return
        for (_, future), answer in zip(requests, answers, strict=True):
            if not future.done():
                future.set_result(answer)
