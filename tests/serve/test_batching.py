"""Concurrent requests share calls of the model; a wrong one fails alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from regft_core.serve.http import Batcher, Full


class Work:
    """Doubles numbers; the first call waits until it is let go."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.go = threading.Event()

    def __call__(self, requests: Sequence[Sequence[int]]) -> list[list[int]]:
        self.calls.append(len(requests))
        self.go.wait(10)
        if any(-1 in rows for rows in requests):
            raise ValueError("wrong")
        return [[2 * row for row in rows] for rows in requests]


async def begun(batcher: Batcher[int, list[int]], work: Work, *requests: list[int]) -> list[asyncio.Task[list[int]]]:
    """Requests that wait while the first one is being answered."""
    first = asyncio.create_task(batcher.answer([0]))
    while not work.calls:
        await asyncio.sleep(0.001)
    others = [asyncio.create_task(batcher.answer(rows)) for rows in requests]
    await asyncio.sleep(0)
    return [first, *others]


def test_what_came_meanwhile_is_one_batch() -> None:
    async def tried() -> None:
        work = Work()
        batcher = Batcher(work)
        loop = asyncio.create_task(batcher.run())
        tasks = await begun(batcher, work, *([n, n + 1] for n in range(20)))
        assert batcher.waiting == 41
        work.go.set()
        assert await asyncio.gather(*tasks) == [[0], *([2 * n, 2 * n + 2] for n in range(20))]
        assert work.calls == [1, 20]
        assert batcher.waiting == 0
        loop.cancel()

    asyncio.run(tried())


def test_a_wrong_request_fails_alone() -> None:
    async def tried() -> None:
        work = Work()
        batcher = Batcher(work)
        loop = asyncio.create_task(batcher.run())
        tasks = await begun(batcher, work, [1], [-1], [2])
        work.go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [found[0], found[1], found[3]] == [[0], [2], [4]]
        assert isinstance(found[2], ValueError)
        loop.cancel()

    asyncio.run(tried())


def test_too_many_rows_are_refused_and_cancelled_ones_are_not_computed() -> None:
    async def tried() -> None:
        work = Work()
        batcher = Batcher(work, most_rows=2, most_waiting=4)
        loop = asyncio.create_task(batcher.run())
        tasks = await begun(batcher, work, [1, 2], [3])
        with pytest.raises(Full):
            await batcher.answer([4])
        tasks[1].cancel()
        await asyncio.sleep(0)
        work.go.set()
        assert await tasks[2] == [6]
        assert work.calls == [1, 1]
        assert batcher.waiting == 0
        loop.cancel()

    asyncio.run(tried())
