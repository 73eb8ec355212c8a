"""The consumer that polls, for programs without asyncio."""

from collections.abc import Iterable, Iterator, Mapping

from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.cluster import ClientOptions
from rmqtool.client.cluster.loop import Face
from rmqtool.client.consumer import lite as consumer
from rmqtool.client.consumer.lite import Changed
from rmqtool.client.consumer.options import PollOptions
from rmqtool.client.consumer.received import Received


class LitePullConsumer(Face[consumer.LitePullConsumer]):
    """As :class:`rmqtool.client.consumer.lite.LitePullConsumer`. Use as a context manager, or call :meth:`close`."""

    def __init__(self, client: str | ClientOptions, group: str, options: PollOptions | None = None) -> None:
        super().__init__(lambda: consumer.LitePullConsumer(client, group, options))

    def __iter__(self) -> Iterator[Received]:
        while True:
            yield from self.poll()

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Read a topic, whose queues are shared with the other members of the group."""
        self._loop.run(self._inner.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more; its queues go to the other members of the group."""
        self._loop.run(self._inner.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues, and no others, without being a member of the group."""
        self._loop.run(self._inner.assign(queues))

    def assignment(self) -> list[MessageQueue]:
        """The queues that are read now."""
        return self._now(lambda: self._inner.assignment())

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic, whoever reads them."""
        return self._loop.run(self._inner.queues(topic))

    def on_queues_changed(self, topic: str, watcher: Changed) -> None:
        """Be told, in the thread of this consumer, when a topic gets other queues."""
        self._loop.run(self._inner.on_queues_changed(topic, watcher))

    def poll(self, timeout: float = 5.0) -> list[Received]:
        """The next messages of one queue; none where there are none within ``timeout`` seconds."""
        return self._loop.run(self._inner.poll(timeout))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Keep where the group is; brokers have it when this returns."""
        self._loop.run(self._inner.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """Where the group is in a queue; None where it never was."""
        return self._loop.run(self._inner.committed(queue))

    def position(self, queue: MessageQueue) -> int:
        """The offset at which the next poll of a queue begins."""
        return self._inner.position(queue)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at another offset; what was read ahead is dropped."""
        self._loop.run(self._inner.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that a queue has."""
        self._loop.run(self._inner.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on behind the last message that a queue has."""
        self._loop.run(self._inner.seek_to_end(queue))

    def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """About the first offset of messages stored at a time (ms) or later."""
        return self._loop.run(self._inner.offset_at(queue, timestamp))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Read no more of queues, until :meth:`resume`."""
        self._now(lambda: self._inner.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with queues that are paused, where they were."""
        self._now(lambda: self._inner.resume(queues))

    def paused(self) -> list[MessageQueue]:
        """The queues that are."""
        return self._inner.paused()
