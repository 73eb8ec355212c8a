"""Handing messages to a listener, many at a time (impl.consumer.ConsumeMessageConcurrentlyService)."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.consuming.options import Later, Listener, PushOptions
from rmqtool.client.consuming.process_queue import ProcessQueue
from rmqtool.client.pulling.pull import Received
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_OVERDUE_LEVEL = 3  # delay level of what a listener has had for too long

GiveBack = Callable[[Received, int], Awaitable[None]]
Done = Callable[[MessageQueue, int], None]
_Task = tuple[MessageQueue, ProcessQueue, list[Received]]


class Processing:
    """Workers that call a listener.

    Args:
        give_back: sends a message back, to come again after a delay level.
        done: told how far a queue is consumed.
    """

    def __init__(self, listener: Listener, options: PushOptions, give_back: GiveBack, done: Done) -> None:
        self._listener, self._options, self._give_back, self._done = listener, options, give_back, done
        self._async = inspect.iscoroutinefunction(listener)
        self._threads = ThreadPoolExecutor(options.concurrency, "rmqtool-listener") if not self._async else None
        self._tasks: asyncio.Queue[_Task | None] = asyncio.Queue()
        self._workers: list[asyncio.Task[None]] = []
        self._stopping = False

    def start(self) -> None:
        """Begin to work."""
        self._workers = [asyncio.create_task(self._work()) for _ in range(self._options.concurrency)]

    async def stop(self, wait: float) -> None:
        """Begin nothing more, and wait for what has begun. What is not at its end then counts as not consumed."""
        self._stopping = True
        for _ in self._workers:
            self._tasks.put_nowait(None)
        if self._workers:
            _, late = await asyncio.wait(self._workers, timeout=wait)
            for worker in late:
                worker.cancel()
            await asyncio.gather(*self._workers, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def submit(self, queue: MessageQueue, process: ProcessQueue, messages: Sequence[Received]) -> None:
        """Messages to consume, in batches."""
        for at in range(0, len(messages), self._options.batch):
            self._tasks.put_nowait((queue, process, list(messages[at : at + self._options.batch])))

    async def give_back_overdue(self, queue: MessageQueue, process: ProcessQueue, now: float) -> None:
        """Send back what a listener has had for too long, so that one message does not hold up a queue for ever."""
        for message in process.overdue(now, self._options.consume_timeout):
            try:
                await self._give_back(message, _OVERDUE_LEVEL)
            except (ClientError, RemotingError) as err:
                log.warning("%s: consumed for too long, and not sent back: %s", message.message_id, err)
                return
            self._finish(queue, process, [message])

    async def _work(self) -> None:
        while (task := await self._tasks.get()) is not None:
            try:
                await self._consume(*task)
            except Exception:  # the message stays unconsumed; the other queues go on
                log.exception("%s: messages were not consumed", task[0])

    async def _consume(self, queue: MessageQueue, process: ProcessQueue, messages: list[Received]) -> None:
        if self._stopping or not _counts(process):
            return
        process.started(messages, asyncio.get_running_loop().time())
        later = await self._call(messages)
        kept = []
        for message in messages[max(later.first, 0) :] if later is not None else []:
            if not _counts(process):
                return
            if message in process:  # else it took too long, and has been sent back
                try:
                    await self._give_back(message, later.level if later is not None else 0)
                except (ClientError, RemotingError) as err:
                    log.warning("%s: not sent back, tried again here: %s", message.message_id, err)
                    kept.append(message)
        again = {message.queue_offset for message in kept}
        self._finish(queue, process, [message for message in messages if message.queue_offset not in again])
        if kept:
            process.returned(kept)
            asyncio.get_running_loop().call_later(self._options.retry_pause, self.submit, queue, process, kept)

    def _finish(self, queue: MessageQueue, process: ProcessQueue, messages: list[Received]) -> None:
        offset = process.remove(messages)
        if offset is not None and _counts(process):
            self._done(queue, offset)

    async def _call(self, messages: list[Received]) -> Later | None:
        """What the listener says; whatever goes wrong in it means: later."""
        said: object
        try:
            if self._threads is None:
                said = self._listener(messages)
            else:
                said = await asyncio.get_running_loop().run_in_executor(self._threads, self._listener, messages)
            if inspect.isawaitable(said):
                said = await said
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            log.warning("%s: the listener was cancelled by itself", messages[0].message_id)
            return Later()
        except Exception:
            log.warning("%s: the listener failed", messages[0].message_id, exc_info=True)
            return Later()
        if said is None or isinstance(said, Later):
            return said
        log.error("%s: the listener returned %r, neither None nor Later", messages[0].message_id, type(said))
        return Later()


def _counts(process: ProcessQueue) -> bool:
    """Whether the queue is still this client's; that may change at each await."""
    return not process.dropped
