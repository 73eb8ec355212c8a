"""Pulling the messages of a queue, one pull after the other (DefaultMQPushConsumerImpl.pullMessage)."""

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from formats.topics import RETRY_PREFIX
from rmqtool.client.consumer.options import PushOptions
from rmqtool.client.consumer.process_queue import ProcessQueue
from rmqtool.client.consumer.proof import MadeAgain
from rmqtool.client.consumer.puller import Pulled
from rmqtool.client.consumer.reading import FULL_PAUSE, keep_reading
from rmqtool.client.consumer.received import Received, as_sent
from rmqtool.client.consumer.subscriptions import Subscriptions

log = logging.getLogger(__name__)

RESET_WAIT = 10.0  # s for a listener to finish before its queue continues at another offset


class Handler(Protocol):
    """A Processing or an OrderlyProcessing."""

    def submit(self, process: ProcessQueue, messages: Sequence[Received]) -> None:
        """Consume new messages of a queue."""

    async def leave(self, process: ProcessQueue, wait: float) -> bool:
        """Start no more calls; returns whether the running one has ended."""


class Fetcher:
    """Pulls messages into process queues.

    Args:
        handler: gets their new messages.
        namespace: to remove from messages.

    Attributes:
        paused: nothing is pulled while true.
    """

    def __init__(
        self, subscriptions: Subscriptions[ProcessQueue], options: PushOptions, handler: Handler, namespace: str = ""
    ) -> None:
        self._subscriptions, self._options, self._handler, self._namespace = subscriptions, options, handler, namespace
        self._locked = options.orderly and not options.broadcasting
        self.paused = False

    def start(self, process: ProcessQueue) -> None:
        """Start pulling a queue."""
        self._subscriptions.assign(process)
        process.task = asyncio.create_task(
            keep_reading(
                process.queue,
                partial(self._pull, process),
                goes_on=lambda: not process.dropped,
                wait=partial(self._wait, process),
                error_pause=self._options.error_pause,
            )
        )

    def restart(self, before: ProcessQueue, offset: int) -> None:
        """Continue a queue at another offset, dropping messages pulled before."""
        process = ProcessQueue(before.queue, offset)
        process.consumed = offset
        process.locked_at, process.lock_time = before.locked_at, before.lock_time
        self.start(process)

    def _wait(self, process: ProcessQueue) -> float | None:
        options = self._options
        if self.paused or (self._locked and not process.is_locked(asyncio.get_running_loop().time())):
            return min(options.error_pause, 1.0)
        limits = self._subscriptions.topics[process.queue.topic].limits or options.limits
        return FULL_PAUSE if process.full(limits, ordered=options.orderly) else None

    async def _pull(self, process: ProcessQueue) -> None:
        options, clock = self._options, asyncio.get_running_loop().time
        process.pulled_at = time.time_ns() // 1_000_000
        begin = clock()
        try:
            pulled = await self._subscriptions.puller(process.queue.topic).pull(
                process.queue, process.offset, most=options.pull_batch, wait=options.hold,
                commit=0 if options.broadcasting else process.consumed or 0,
            )  # fmt: skip
        except MadeAgain as err:
            process.dropped = True
            process.consumed = None
            if options.made_again is not None:
                options.made_again(err)
            return
        if pulled.moved:
            await self._move(process, pulled.next_offset)
        else:
            await self._hand_on(process, pulled, clock() - begin)

    async def _move(self, process: ProcessQueue, offset: int) -> None:
        """Continue at the broker's offset when the requested one is out of range, dropping messages pulled before."""
        level = logging.INFO if process.consumed is None else logging.WARNING  # or it is a group's beginning
        log.log(level, "%s: offset %d is outside of the queue; on at %d", process.queue, process.offset, offset)
        await self._handler.leave(process, RESET_WAIT)
        process.dropped = True
        process.consumed = offset
        await self._subscriptions.keep(process)
        await asyncio.sleep(self._options.error_pause)  # a broker that keeps saying so is asked rarely
        if self._subscriptions.holds(process):
            self.restart(process, offset)

    async def _hand_on(self, process: ProcessQueue, pulled: Pulled, seconds: float) -> None:
        before, process.offset = process.offset, pulled.next_offset
        topic = process.queue.topic
        if pulled.messages:
            subscription = self._subscriptions.topics[topic]
            subscription.pulled.add(asyncio.get_running_loop().time(), len(pulled.messages), 0, seconds)
            messages = pulled.messages
            if self._namespace or topic.startswith(RETRY_PREFIX):
                messages = [as_sent(message, self._namespace, subscription.sent_to) for message in messages]
            self._handler.submit(process, process.put(messages))
            if self._options.pull_pause:
                await asyncio.sleep(self._options.pull_pause)
            return
        if not len(process):
            process.advance(pulled.next_offset)
        if pulled.next_offset == before:
            await asyncio.sleep(FULL_PAUSE)  # a broker that does not hold pulls must not be polled without a pause
