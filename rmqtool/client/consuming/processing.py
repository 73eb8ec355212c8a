"""Handing messages to a listener, many at a time (impl.consumer.ConsumeMessageConcurrentlyService)."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.consuming.process_queue import ProcessQueue
from rmqtool.client.listening.calls import Calls
from rmqtool.client.listening.options import Later, PushOptions
from rmqtool.client.listening.workers import Workers
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
        give_back: sends a message back, to come again after a delay level; None where what fails is gone.
        done: told how far a queue is consumed.
    """

    def __init__(self, calls: Calls, options: PushOptions, give_back: GiveBack | None, done: Done) -> None:
        self._calls, self._options, self._give_back, self._done = calls, options, give_back, done
        self._workers: Workers[_Task] = Workers(options.concurrency, self._consume)

    def start(self) -> None:
        """Begin to work."""
        self._workers.start()

    async def stop(self, wait: float) -> None:
        """Begin nothing more, and wait for what has begun. What is not at its end then counts as not consumed."""
        await self._workers.stop(wait)

    def submit(self, queue: MessageQueue, process: ProcessQueue, messages: Sequence[Received]) -> None:
        """Messages to consume, in batches."""
        for at in range(0, len(messages), self._options.batch):
            self._workers.submit((queue, process, list(messages[at : at + self._options.batch])))

    async def leave(self, _process: ProcessQueue, _wait: float) -> bool:
        """A queue is given up: what is still worked on comes again where it goes to."""
        return True

    async def look_for_overdue(self, queue: MessageQueue, process: ProcessQueue, now: float) -> None:
        """Send back what a listener has had for too long, so that one message does not hold up a queue for ever."""
        for message in process.overdue(now, self._options.consume_timeout):
            try:
                await self._fail(message, _OVERDUE_LEVEL)
            except (ClientError, RemotingError) as err:
                log.warning("%s: consumed for too long, and not sent back: %s", message.message_id, err)
                return
            self._finish(queue, process, [message])

    async def _fail(self, message: Received, level: int) -> None:
        if self._give_back is None:
            log.warning("%s: not consumed; it does not come again where every member has its own", message.message_id)
        else:
            await self._give_back(message, level)

    async def _consume(self, task: _Task) -> None:
        queue, process, messages = task
        if not _counts(process):
            return
        process.started(messages, asyncio.get_running_loop().time())
        process.consumed_at = time.time_ns() // 1_000_000
        said = await self._calls.call(messages)
        later = said if said is None or isinstance(said, Later) else Later()
        kept = []
        for message in messages[max(later.first, 0) :] if later is not None else []:
            if not _counts(process):
                return
            if message in process:  # else it took too long, and has been sent back
                try:
                    await self._fail(message, later.level if later is not None else 0)
                except (ClientError, RemotingError) as err:
                    log.warning("%s: not sent back, tried again here: %s", message.message_id, err)
                    kept.append(replace(message, retried=message.retried + 1))
        again = {message.queue_offset for message in kept}
        done = [message for message in messages if message.queue_offset not in again] if kept else messages
        self._finish(queue, process, done)
        if kept:
            process.returned(kept)
            asyncio.get_running_loop().call_later(self._options.retry_pause, self.submit, queue, process, kept)

    def _finish(self, queue: MessageQueue, process: ProcessQueue, messages: list[Received]) -> None:
        offset = process.remove(messages)
        if offset is not None and _counts(process):
            self._done(queue, offset)


def _counts(process: ProcessQueue) -> bool:
    """Whether the queue is still this client's; that may change at each await."""
    return not process.dropped
