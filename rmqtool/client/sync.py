"""The client for programs without asyncio: the same names, each call returns when it is done.

Every object has an event loop in a thread of its own, and may be used from any thread.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.cluster import ClientOptions
from rmqtool.client.consuming import consumer as pushing
from rmqtool.client.consuming.options import Listener, PushOptions
from rmqtool.client.producing import producer, transactions
from rmqtool.client.producing.message import Message, SendResult
from rmqtool.client.producing.producer import BATCH_BYTES, ProducerOptions, Select
from rmqtool.client.producing.transactions import Check, Execute, State
from rmqtool.client.pulling import consumer
from rmqtool.client.pulling.pull import LOOKING, Received

T = TypeVar("T")


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rmqtool-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, which is cancelled when the wait for it is interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Producer:
    """As :class:`rmqtool.client.producing.producer.Producer`. Use as a context manager, or call :meth:`close`."""

    def __init__(
        self, client: str | ClientOptions, group: str = "rmqtool-producer", options: ProducerOptions | None = None
    ) -> None:
        self._loop = Loop()
        try:
            self._producer = self._loop.run(self._open(client, group, options))
        except BaseException:
            self._loop.close()
            raise

    async def _open(
        self, client: str | ClientOptions, group: str, options: ProducerOptions | None
    ) -> producer.Producer:
        return await producer.Producer(client, group, options).__aenter__()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group, and close the connections."""
        try:
            self._loop.run(self._producer.close())
        finally:
            self._loop.close()

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages of a topic may go to."""
        return self._loop.run(self._producer.queues(topic))

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message; it is stored when this returns."""
        return self._loop.run(self._producer.send(message, queue=queue, select=select, timeout=timeout))

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
        limit: int = BATCH_BYTES,
    ) -> list[SendResult]:
        """Send messages of one topic together, in as few requests as hold them; a result for each message."""
        sending = self._producer.send_batch(messages, queue=queue, select=select, timeout=timeout, limit=limit)
        return self._loop.run(sending)

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None, select: Select | None = None) -> str:
        """Send a message without an answer: whether it is stored is not known. Its unique id."""
        return self._loop.run(self._producer.send_oneway(message, queue=queue, select=select))

    def recall(self, topic: str, handle: str, broker_name: str) -> str:
        """Call back a message that still waits for its time (5.x). Its unique id."""
        return self._loop.run(self._producer.recall(topic, handle, broker_name))


class TransactionProducer(Producer):
    """As :class:`rmqtool.client.producing.transactions.TransactionProducer`."""

    def __init__(
        self, client: str | ClientOptions, group: str, check: Check, options: ProducerOptions | None = None
    ) -> None:
        self._check = check
        super().__init__(client, group, options)

    async def _open(
        self, client: str | ClientOptions, group: str, options: ProducerOptions | None
    ) -> producer.Producer:
        self._transactions = transactions.TransactionProducer(client, group, self._check, options)
        return await self._transactions.__aenter__()

    def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout: float | None = None
    ) -> tuple[SendResult, State]:
        """Send a message that nobody gets yet, do what belongs to it, and say how that ended."""
        return self._loop.run(self._transactions.send_in_transaction(message, execute, timeout=timeout))


class PullConsumer:
    """As :class:`rmqtool.client.pulling.consumer.PullConsumer`. Use as a context manager, or call :meth:`close`."""

    def __init__(
        self,
        client: str | ClientOptions,
        group: str = LOOKING,
        *,
        tags: Sequence[str] = (),
        sql: str | None = None,
        batch: int = 32,
    ) -> None:
        self._loop = Loop()
        try:
            self._consumer = self._loop.run(self._open(client, group, tags, sql, batch))
        except BaseException:
            self._loop.close()
            raise

    @staticmethod
    async def _open(
        client: str | ClientOptions, group: str, tags: Sequence[str], sql: str | None, batch: int
    ) -> consumer.PullConsumer:
        return await consumer.PullConsumer(client, group, tags=tags, sql=sql, batch=batch).__aenter__()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Received]:
        while True:
            yield from self.poll()

    def close(self) -> None:
        """Stop reading. Nothing is committed."""
        try:
            self._loop.run(self._consumer.close())
        finally:
            self._loop.close()

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic."""
        return self._loop.run(self._consumer.queues(topic))

    def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset of a queue, and the one behind its last message."""
        return self._loop.run(self._consumer.offsets(queue))

    def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """About the first offset of messages stored at a time (ms) or later."""
        return self._loop.run(self._consumer.offset_at(queue, timestamp))

    def committed(self, queue: MessageQueue) -> int | None:
        """Where the group is in a queue; None where it never was."""
        return self._loop.run(self._consumer.committed(queue))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues, and no others; a mapping gives the offsets to begin at."""
        self._loop.run(self._consumer.assign(queues))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at another offset of a queue that is assigned."""

        async def seek() -> None:
            self._consumer.seek(queue, offset)

        self._loop.run(seek())

    def position(self, queue: MessageQueue) -> int:
        """The offset at which the next poll of an assigned queue begins."""
        return self._consumer.position(queue)

    def poll(self, timeout: float = 5.0) -> list[Received]:
        """The next messages of one queue; none where there are none within ``timeout`` seconds."""
        return self._loop.run(self._consumer.poll(timeout))

    def commit(self) -> None:
        """Keep the positions of all assigned queues as the group's."""
        self._loop.run(self._consumer.commit())


class PushConsumer:
    """As :class:`rmqtool.client.consuming.consumer.PushConsumer`. Use as a context manager, or call :meth:`close`.

    The listener runs in threads of its own, up to ``PushOptions.concurrency`` at a time.
    """

    def __init__(
        self,
        client: str | ClientOptions,
        group: str,
        topics: Mapping[str, str],
        listener: Listener,
        options: PushOptions | None = None,
    ) -> None:
        self._loop = Loop()
        try:
            self._consumer = self._loop.run(self._open(client, group, topics, listener, options))
        except BaseException:
            self._loop.close()
            raise

    @staticmethod
    async def _open(
        client: str | ClientOptions,
        group: str,
        topics: Mapping[str, str],
        listener: Listener,
        options: PushOptions | None,
    ) -> pushing.PushConsumer:
        return await pushing.PushConsumer(client, group, topics, listener, options).__aenter__()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def queues(self) -> list[MessageQueue]:
        """The queues that are this client's now."""

        async def queues() -> list[MessageQueue]:
            return self._consumer.queues()

        return self._loop.run(queues())

    def close(self) -> None:
        """Let listeners come to an end, keep the offsets, and leave the group."""
        try:
            self._loop.run(self._consumer.close())
        finally:
            self._loop.close()
