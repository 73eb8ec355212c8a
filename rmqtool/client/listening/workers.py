"""Work that is done in its turn, some of it at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


class Workers(Generic[T]):
    """Workers and what waits for them.

    Args:
        count: how many there are.
        work: what is done; what it raises is logged, and the next one's turn comes.
    """

    def __init__(self, count: int, work: Callable[[T], Awaitable[None]]) -> None:
        self._count, self._work_on = count, work
        self._waiting: asyncio.Queue[T | None] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._left: list[T] = []

    def start(self) -> None:
        """Begin to work."""
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._count)]

    def submit(self, one: T) -> None:
        """Have something done, in its turn."""
        self._waiting.put_nowait(one)

    async def stop(self, wait: float) -> list[T]:
        """Begin nothing more, and wait so many seconds for what has begun; the rest is cancelled.

        Returns:
            What had not begun.
        """
        self._stopping = True
        for _ in self._tasks:
            self._waiting.put_nowait(None)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=wait)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        while not self._waiting.empty():
            if (one := self._waiting.get_nowait()) is not None:
                self._left.append(one)
        return self._left

    async def _work(self) -> None:
        while (one := await self._waiting.get()) is not None:
            if self._stopping:
                self._left.append(one)
                continue
            try:
                await self._work_on(one)
            except Exception:
                log.exception("%r: not done", type(one))
