"""The client for programs without asyncio: the same names, each call returns when it is done.

Every object has an event loop in a thread of its own, and may be used from any thread.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future

from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.cluster import ClientOptions
from rmqtool.client.cluster.loop import Face
from rmqtool.client.consumer import pull as consumer
from rmqtool.client.consumer import push as pushing
from rmqtool.client.consumer.lite_sync import LitePullConsumer
from rmqtool.client.consumer.options import Listener, PushOptions
from rmqtool.client.consumer.puller import LOOKING
from rmqtool.client.consumer.received import Received
from rmqtool.client.producing import producer, transactions
from rmqtool.client.producing.message import Message, SendResult
from rmqtool.client.producing.producer import BATCH_BYTES, ProducerOptions, Select
from rmqtool.client.producing.replying import Replied
from rmqtool.client.producing.transactions import Check, Execute, State

__all__ = ["LitePullConsumer", "Producer", "PullConsumer", "PushConsumer", "TransactionProducer"]


class Producer(Face[producer.Producer]):
    """As :class:`rmqtool.client.producing.producer.Producer`. Use as a context manager, or call :meth:`close`."""

    def __init__(
        self, client: str | ClientOptions, group: str = "rmqtool-producer", options: ProducerOptions | None = None
    ) -> None:
        super().__init__(lambda: producer.Producer(client, group, options))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages of a topic may go to."""
        return self._loop.run(self._inner.queues(topic))

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message; it is stored when this returns."""
        return self._loop.run(self._inner.send(message, queue=queue, select=select, timeout=timeout))

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
    ) -> "Future[SendResult]":
        """As :meth:`send`, without waiting: the result is there when the future is done."""
        return self._loop.start(self._later(message, queue, select, timeout))

    async def _later(
        self, message: Message, queue: MessageQueue | None, select: Select | None, timeout: float | None
    ) -> SendResult:
        return await self._inner.send_async(message, queue=queue, select=select, timeout=timeout)

    def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
    ) -> Replied:
        """Send a message, and wait until whoever consumes it has answered."""
        return self._loop.run(self._inner.request(message, queue=queue, select=select, timeout=timeout))

    def request_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
    ) -> "Future[Replied]":
        """As :meth:`request`, without waiting: the answer is there when the future is done."""
        return self._loop.start(self._inner.request(message, queue=queue, select=select, timeout=timeout))

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
        sending = self._inner.send_batch(messages, queue=queue, select=select, timeout=timeout, limit=limit)
        return self._loop.run(sending)

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None, select: Select | None = None) -> str:
        """Send a message without an answer: whether it is stored is not known. Its unique id."""
        return self._loop.run(self._inner.send_oneway(message, queue=queue, select=select))

    def recall(self, topic: str, handle: str, broker_name: str) -> str:
        """Call back a message that still waits for its time (5.x). Its unique id."""
        return self._loop.run(self._inner.recall(topic, handle, broker_name))


class TransactionProducer(Producer):
    """As :class:`rmqtool.client.producing.transactions.TransactionProducer`."""

    def __init__(
        self, client: str | ClientOptions, group: str, check: Check, options: ProducerOptions | None = None
    ) -> None:
        Face.__init__(self, lambda: transactions.TransactionProducer(client, group, check, options))

    def send_in_transaction(
        self,
        message: Message,
        execute: Execute,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
        confirm: bool = False,
    ) -> tuple[SendResult, State]:
        """Send a message that nobody gets yet, do what belongs to it, and say how that ended."""
        inner = self._inner
        assert isinstance(inner, transactions.TransactionProducer)
        sending = inner.send_in_transaction(
            message, execute, queue=queue, select=select, timeout=timeout, confirm=confirm
        )
        return self._loop.run(sending)


class PullConsumer(Face[consumer.PullConsumer]):
    """As :class:`rmqtool.client.consumer.pull.PullConsumer`. Use as a context manager, or call :meth:`close`."""

    def __init__(
        self,
        client: str | ClientOptions,
        group: str = LOOKING,
        *,
        tags: Sequence[str] = (),
        sql: str | None = None,
        batch: int = 32,
    ) -> None:
        super().__init__(lambda: consumer.PullConsumer(client, group, tags=tags, sql=sql, batch=batch))

    def __iter__(self) -> Iterator[Received]:
        while True:
            yield from self.poll()

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic."""
        return self._loop.run(self._inner.queues(topic))

    def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset of a queue, and the one behind its last message."""
        return self._loop.run(self._inner.offsets(queue))

    def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """About the first offset of messages stored at a time (ms) or later."""
        return self._loop.run(self._inner.offset_at(queue, timestamp))

    def committed(self, queue: MessageQueue) -> int | None:
        """Where the group is in a queue; None where it never was."""
        return self._loop.run(self._inner.committed(queue))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues, and no others; a mapping gives the offsets to begin at."""
        self._loop.run(self._inner.assign(queues))

    def filter(self, topic: str, tags: Sequence[str] = (), sql: str | None = None) -> None:
        """Of one topic, only messages with one of these tags, or for which an SQL92 expression is true."""
        self._now(lambda: self._inner.filter(topic, tags, sql))

    def assigned(self) -> list[MessageQueue]:
        """The queues that are read, and those that are paused."""
        return self._now(lambda: self._inner.assigned())

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at another offset of a queue that is assigned."""
        self._now(lambda: self._inner.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that a queue has."""
        self._loop.run(self._inner.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on behind the last message that a queue has."""
        self._loop.run(self._inner.seek_to_end(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Read no more of queues that are assigned, until :meth:`resume`."""
        self._now(lambda: self._inner.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with queues that are paused, where they were."""
        self._now(lambda: self._inner.resume(queues))

    def paused(self) -> list[MessageQueue]:
        """The queues that are."""
        return self._inner.paused()

    def position(self, queue: MessageQueue) -> int:
        """The offset at which the next poll of an assigned queue begins."""
        return self._inner.position(queue)

    def poll(self, timeout: float = 5.0) -> list[Received]:
        """The next messages of one queue; none where there are none within ``timeout`` seconds."""
        return self._loop.run(self._inner.poll(timeout))

    def commit(self) -> None:
        """Keep the positions of all assigned queues as the group's."""
        self._loop.run(self._inner.commit())


class PushConsumer(Face[pushing.PushConsumer]):
    """As :class:`rmqtool.client.consumer.push.PushConsumer`. Use as a context manager, or call :meth:`close`.

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
        super().__init__(lambda: pushing.PushConsumer(client, group, topics, listener, options))

    def queues(self) -> list[MessageQueue]:
        """The queues that are this client's now."""
        return self._now(lambda: self._inner.queues())

    def popped_queues(self) -> list[MessageQueue]:
        """The queues of which brokers hand out messages to this client; the id -1 stands for all of a broker."""
        return self._now(lambda: self._inner.popped_queues())

    def positions(self) -> dict[MessageQueue, int]:
        """Where the group is in each of them."""
        return self._now(lambda: self._inner.positions())

    def joined(self) -> None:
        """Wait until this client has looked once which queues are its own."""
        self._loop.run(self._inner.joined())

    def pause(self) -> None:
        """Pull nothing more until :meth:`resume`; what was pulled before still comes to the listener."""
        self._inner.pause()

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self._inner.resume()
