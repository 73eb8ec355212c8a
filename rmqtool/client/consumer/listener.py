"""Calls of a listener, and their statistics (client.stat.ConsumerStatsManager)."""

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from rmqtool.client.cluster.hooks import tell_hooks
from rmqtool.client.consumer.options import Consumption, Later, Listener, Ordered, PushOptions, Said, Suspend
from rmqtool.client.consumer.received import Received

log = logging.getLogger(__name__)

T = TypeVar("T")


class Workers(Generic[T]):
    """Workers and their queue.

    Args:
        count: number of workers.
        work: handles an item; its errors are logged.
    """

    def __init__(self, count: int, work: Callable[[T], Awaitable[None]]) -> None:
        self._count, self._work_on = count, work
        self._waiting: asyncio.Queue[T | None] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._left: list[T] = []

    def start(self) -> None:
        """Start the workers."""
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._count)]

    def submit(self, item: T) -> None:
        """Queue an item."""
        self._waiting.put_nowait(item)

    async def stop(self, wait: float) -> list[T]:
        """Start nothing more, and wait this many seconds for running work; then cancel it.

        Returns:
            Items not started.
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
            if (waiting := self._waiting.get_nowait()) is not None:
                self._left.append(waiting)
        return self._left

    async def _work(self) -> None:
        while (batch := await self._waiting.get()) is not None:
            if self._stopping:
                self._left.append(batch)
                continue
            try:
                await self._work_on(batch)
            except Exception:
                log.exception("%r: not done", type(batch))


_BUCKET, _BUCKETS = 10.0, 6  # s, and how many of them a minute has


class ListenerFailure:
    """A failed call, in place of a listener's answer.

    Attributes:
        error: the exception; None if the return value was invalid.
        words: describes the failure.
    """

    def __init__(self, text: str, error: BaseException | None = None) -> None:
        self.words, self.error = text, error


class ConsumeCounts:
    """Messages of the last minute that were consumed and that failed, of one topic."""

    def __init__(self) -> None:
        self.failed_in_all = 0
        self._buckets: deque[tuple[float, list[float]]] = deque(maxlen=_BUCKETS)

    def add(self, now: float, done: int, failed: int, seconds: float) -> None:
        """Count a finished call."""
        if not self._buckets or now - self._buckets[-1][0] >= _BUCKET:
            self._buckets.append((now, [0, 0, 0, 0]))
        for at, value in enumerate((done, failed, seconds, 1)):
            self._buckets[-1][1][at] += value
        self.failed_in_all += failed

    def rates(self, now: float) -> tuple[float, float, float]:
        """(consumed per second, failed per second, ms per call)."""
        recent = [(at, sums) for at, sums in self._buckets if now - at < _BUCKET * _BUCKETS]
        if not recent:
            return 0.0, 0.0, 0.0
        span = max(now - recent[0][0], 1.0)
        done, failed, seconds, calls = (sum(column) for column in zip(*[sums for _at, sums in recent], strict=True))
        return done / span, failed / span, seconds * 1000 / calls


@dataclass
class Calls:
    """Calls a listener, in threads if it is not a coroutine function.

    Attributes:
        counts: statistics by topic.
    """

    group: str
    listener: Listener
    options: PushOptions
    threads: ThreadPoolExecutor | None
    counts: dict[str, ConsumeCounts] = field(default_factory=dict)

    @classmethod
    def of(cls, group: str, listener: Listener, options: PushOptions) -> "Calls":
        """Calls with as many threads as may run at a time."""
        if inspect.iscoroutinefunction(listener):
            return cls(group, listener, options, None)
        return cls(group, listener, options, ThreadPoolExecutor(options.concurrency, "rmqtool-listener"))

    async def call(self, messages: Sequence[Received]) -> Said | ListenerFailure:
        """The listener's answer, or a :class:`ListenerFailure`."""
        clock = asyncio.get_running_loop().time
        begin = clock()
        hooks, consumption = self.options.hooks, None
        if hooks:
            now = time.time_ns() // 1_000_000
            consumption = Consumption(group=self.group, queue=messages[0].queue, messages=messages, began=now)
            tell_hooks([hook.before for hook in hooks], consumption)
        answer = await self._call(messages)
        end = clock()
        failed = len(messages) if isinstance(answer, ListenerFailure | Later | Suspend) else 0
        counts = self.counts.setdefault(messages[0].topic, ConsumeCounts())
        counts.add(end, len(messages) - failed, failed, end - begin)
        if consumption is not None:
            consumption.took, consumption.success = round((end - begin) * 1000), not failed
            consumption.outcome = self._outcome(answer, end - begin)
            tell_hooks([hook.after for hook in hooks], consumption)
        return answer

    def _outcome(self, answer: Said | ListenerFailure, seconds: float) -> str:
        """The outcome as in ConsumeReturnType."""
        if isinstance(answer, ListenerFailure):
            return "EXCEPTION" if answer.error is not None else "RETURNNULL"
        if seconds >= self.options.consume_timeout:
            return "TIME_OUT"
        return "FAILED" if isinstance(answer, Later | Suspend) else "SUCCESS"

    async def _call(self, messages: Sequence[Received]) -> Said | ListenerFailure:
        answer: object
        try:
            if self.threads is None:
                answer = self.listener(messages)
            else:
                answer = await asyncio.get_running_loop().run_in_executor(self.threads, self.listener, messages)
            if inspect.isawaitable(answer):
                answer = await cast(Awaitable[object], answer)
        except asyncio.CancelledError as err:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            log.warning("%s: the listener was cancelled by itself", messages[0].message_id)
            return ListenerFailure("the listener was cancelled by itself", err)
        except Exception as err:
            log.warning("%s: the listener failed", messages[0].message_id, exc_info=True)
            return ListenerFailure(f"{type(err).__name__}: {err}", err)
        if answer is None or isinstance(answer, Later | Suspend | Ordered):
            return answer
        log.error("%s: the listener returned %r, which is no answer", messages[0].message_id, type(answer))
        return ListenerFailure(f"the listener returned {type(answer).__name__}, which is no answer")

    def close(self) -> None:
        """Start no more calls."""
        if self.threads is not None:
            self.threads.shutdown(wait=False, cancel_futures=True)
