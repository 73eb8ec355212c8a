"""Calls of a listener: concurrent, or in the order of a queue."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.consumer.listener import Calls, ListenerFailure, Workers
from rmqtool.client.consumer.options import Later, Ordered, PushOptions, Said, Suspend
from rmqtool.client.consumer.process_queue import ProcessQueue
from rmqtool.client.consumer.received import Received
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_OVERDUE_LEVEL = 3  # delay level of messages that a listener has had for too long

GiveBack = Callable[[Received, int], Awaitable[None]]
_Task = tuple[ProcessQueue, list[Received]]


class Processing:
    """Workers that call a listener.

    Args:
        give_back: sends a message back with a delay level; None to drop failed messages.
    """

    def __init__(self, calls: Calls, options: PushOptions, give_back: GiveBack | None) -> None:
        self._calls, self._options, self._give_back = calls, options, give_back
        self._workers: Workers[_Task] = Workers(options.concurrency, self._consume)

    def start(self) -> None:
        """Start the workers."""
        self._workers.start()

    async def stop(self, wait: float) -> None:
        """Start no more calls, and wait for running ones. Those not finished by then count as not consumed."""
        await self._workers.stop(wait)

    def submit(self, process: ProcessQueue, messages: Sequence[Received]) -> None:
        """Queue messages, in batches."""
        for at in range(0, len(messages), self._options.batch):
            self._workers.submit((process, list(messages[at : at + self._options.batch])))

    async def leave(self, _process: ProcessQueue, _wait: float) -> bool:
        """Give up a queue: messages in running calls are redelivered to its next owner."""
        return True

    async def look_for_overdue(self, process: ProcessQueue, now: float) -> None:
        """Send back messages that a listener has had for too long, so that one message cannot block a queue forever."""
        for message in process.overdue(now, self._options.consume_timeout):
            try:
                await self._fail(message, _OVERDUE_LEVEL)
            except (ClientError, RemotingError) as err:
                log.warning("%s: consumed for too long, and not sent back: %s", message.message_id, err)
                return
            self._finish(process, [message])

    async def _fail(self, message: Received, level: int) -> None:
        if self._give_back is None:
            log.warning("%s: not consumed; it does not come again where every member has its own", message.message_id)
        else:
            await self._give_back(message, level)

    async def _consume(self, task: _Task) -> None:
        process, messages = task
        if not _counts(process):
            return
        process.start(messages, asyncio.get_running_loop().time())
        process.consumed_at = time.time_ns() // 1_000_000
        answer = await self._calls.call(messages)
        later = answer if answer is None or isinstance(answer, Later) else Later()
        failures = []
        for message in messages[max(later.first, 0) :] if later is not None else []:
            if not _counts(process):
                return
            if message in process:  # otherwise it took too long and was sent back
                try:
                    await self._fail(message, later.level if later is not None else 0)
                except (ClientError, RemotingError) as err:
                    log.warning("%s: not sent back, tried again here: %s", message.message_id, err)
                    failures.append(replace(message, retried=message.retried + 1))
        again = {message.queue_offset for message in failures}
        consumed = [message for message in messages if message.queue_offset not in again] if failures else messages
        self._finish(process, consumed)
        if failures:
            process.give_back(failures)
            asyncio.get_running_loop().call_later(self._options.retry_pause, self.submit, process, failures)

    def _finish(self, process: ProcessQueue, messages: list[Received]) -> None:
        offset = process.remove(messages)
        if offset is not None and _counts(process):
            process.advance(offset)


def _counts(process: ProcessQueue) -> bool:
    """Whether the queue still belongs to this client; may change at each await."""
    return not process.dropped


_LOOK = 0.1  # s between checks for a lock
_PAUSES = 0.01, 30.0  # s, minimum and maximum
_AFTER_MISTAKE = 1.0  # s

Dead = Callable[[Received], Awaitable[None]]


class OrderlyProcessing:
    """One chain of calls per queue: a call begins when the previous one has ended.

    Args:
        dead: sends a message that has failed too often to the dead letters; None to drop it.
    """

    def __init__(self, calls: Calls, options: PushOptions, dead: Dead | None) -> None:
        self._calls, self._options, self._dead = calls, options, dead
        self._turns = asyncio.Semaphore(options.concurrency)
        self._chains: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._calling: dict[ProcessQueue, asyncio.Lock] = {}
        self._late: set[ProcessQueue] = set()
        self._stopping = False

    def start(self) -> None:
        """Do nothing: a chain starts with the messages of its queue."""

    async def stop(self, wait: float) -> None:
        """Start no more calls, and wait for running ones. Those not finished by then count as not consumed."""
        self._stopping = True
        chains = list(self._chains.values())
        for process, chain in self._chains.items():
            if not self._calls_now(process):
                chain.cancel()
        if chains:
            _, late = await asyncio.wait(chains, timeout=wait)
            if self._calls.threads is not None:  # threads continue, and nobody else may get their queues yet
                self._late = {process for process, chain in self._chains.items() if chain in late}
            for chain in late:
                chain.cancel()
            await asyncio.gather(*chains, return_exceptions=True)

    def submit(self, process: ProcessQueue, _messages: Sequence[Received]) -> None:
        """Consume new messages of a queue."""
        if process not in self._chains and not self._stopping:
            chain = self._chains[process] = asyncio.create_task(self._chain(process))
            chain.add_done_callback(lambda _: self._end_chain(process))

    async def leave(self, process: ProcessQueue, wait: float) -> bool:
        """Start no more calls for a queue; returns whether the running one ended within ``wait`` seconds."""
        process.leaving = True
        calling = self._calling.get(process)
        if calling is None:
            return process not in self._late
        try:
            async with asyncio.timeout(wait), calling:
                return True
        except TimeoutError:
            return False

    async def look_for_overdue(self, process: ProcessQueue, now: float) -> None:
        """Do nothing: an orderly listener has no time limit."""

    def _calls_now(self, process: ProcessQueue) -> bool:
        calling = self._calling.get(process)
        return calling is not None and calling.locked()

    def _end_chain(self, process: ProcessQueue) -> None:
        chain = self._chains.pop(process)
        self._calling.pop(process, None)
        if chain.cancelled():
            return
        if chain.exception() is not None:  # a bug; it must not loop
            log.error("%s: consumption in order failed", process.queue, exc_info=chain.exception())
            asyncio.get_running_loop().call_later(_AFTER_MISTAKE, self._begin_again, process)
        else:
            self._begin_again(process)

    def _begin_again(self, process: ProcessQueue) -> None:
        if self._goes_on(process) and process.waiting:  # arrived while the chain was ending
            self.submit(process, [])

    def _goes_on(self, process: ProcessQueue) -> bool:
        return not (self._stopping or process.leaving or process.dropped)

    def _may_call(self, process: ProcessQueue) -> bool:
        return self._options.broadcasting or process.is_locked(asyncio.get_running_loop().time())

    async def _chain(self, process: ProcessQueue) -> None:
        calling = self._calling[process] = asyncio.Lock()
        while self._goes_on(process):
            if not self._may_call(process):
                await asyncio.sleep(_LOOK)
                continue
            async with self._turns, calling:
                if not (self._goes_on(process) and self._may_call(process)):
                    continue  # waiting for a turn took time: check again
                messages = process.take(self._options.batch)
                if not messages:
                    return
                process.consumed_at = time.time_ns() // 1_000_000
                try:
                    pause = await self._settle(process, messages, await self._calls.call(messages))
                except BaseException:
                    process.put_back(messages)
                    raise
            if pause:
                await asyncio.sleep(pause)

    async def _settle(self, process: ProcessQueue, messages: list[Received], answer: Said | ListenerFailure) -> float:
        """Handle the listener's answer; returns seconds until the next call."""
        auto = self._options.auto_commit
        if answer is None or isinstance(answer, Ordered):
            if auto or answer is Ordered.COMMIT:
                self._commit(process)
            elif answer is Ordered.ROLLBACK:
                process.put_back(process.taken)
                return self._pause(None)
            return 0.0
        again = await self._again(process, messages)
        if again:
            process.put_back(again)
            return self._pause(answer.pause if isinstance(answer, Suspend) else None)
        if auto:
            self._commit(process)
        return 0.0

    async def _again(self, process: ProcessQueue, messages: list[Received]) -> list[Received]:
        """The messages to redeliver; the others have failed too often and are dead letters now."""
        again, dead = [], []
        for message in messages:
            if message.reconsume_times < self._options.tries or not await self._is_dead(message):
                again.append(replace(message, retried=message.retried + 1))
            else:
                dead.append(message)
        if again:
            process.discard(dead)
        return again

    async def _is_dead(self, message: Received) -> bool:
        if self._dead is None:
            log.warning("%s: not consumed, and does not come again", message.message_id)
            return True
        try:
            await self._dead(message)
        except (ClientError, RemotingError) as err:
            log.warning("%s: no dead letter yet: %s", message.message_id, err)
            return False
        return True

    def _commit(self, process: ProcessQueue) -> None:
        offset = process.settle()
        if offset is not None and not process.dropped:
            process.consumed = offset

    def _pause(self, pause: float | None) -> float:
        least, most = _PAUSES
        return min(max(self._options.suspend_pause if pause is None else pause, least), most)
