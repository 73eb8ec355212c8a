"""A consumer of assigned queues (client.consumer.DefaultLitePullConsumer with assigned queues)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, ClientError
from rmqtool.client.cluster.member import GroupMember
from rmqtool.client.consumer.offsets import LocalOffsets
from rmqtool.client.consumer.puller import LOOKING, Puller
from rmqtool.client.consumer.reading import FULL_PAUSE, keep_reading
from rmqtool.client.consumer.received import Received
from rmqtool.client.consumer.subscriptions import Assigned, Subscriptions
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_ATTEMPTS = 3  # failures in a row until a poll raises the error
_PAUSE = 1.0  # s between them
_MOVES = 5  # in a row


@dataclass(eq=False)
class PolledQueue(Assigned):
    """A queue that is read ahead of polls; paused if it has no task.

    Attributes:
        position: the offset at which the next poll begins.
        failures, moves: number of pulls in a row that failed, and that the broker redirected to another offset.
    """

    position: int = 0
    failures: int = 0
    moves: int = 0


class QueueReader(GroupMember):
    """Base of polling consumers: reads queues ahead of polls."""

    def __init__(
        self,
        client: str | ClientOptions | Cluster,
        group: str,
        *,
        batch: int,
        ahead: int,
        wait: float,
        tags: Sequence[str] = (),
        sql: str | None = None,
        namespaced: bool = True,
        broadcasting: bool = False,
        local_offsets: Path | None = None,
    ) -> None:
        super().__init__(client, group, fixed_id=broadcasting, namespaced=namespaced)
        self._batch, self._wait = batch, wait
        self._puller = Puller(self.cluster, self.group, tags, sql)
        local = LocalOffsets(local_offsets, self.cluster.client_id, self.group) if broadcasting else None
        self._subscriptions = Subscriptions[PolledQueue](self.cluster, self._puller, local)
        self._ready: asyncio.Queue[tuple[PolledQueue, list[Received], int] | Exception] = asyncio.Queue(ahead)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the first message of a queue.

        Raises:
            KeyError: the queue is not read.
            NoRoute, RemotingError, BrokerError: the broker does not answer.
        """
        self._seek(queue, (await self._puller.offsets(queue))[0])

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue after the last message of a queue.

        Raises:
            KeyError: the queue is not read.
            NoRoute, RemotingError, BrokerError: the broker does not answer.
        """
        self._seek(queue, (await self._puller.offsets(queue))[1])

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """The approximate offset of the first message stored at or after a time (ms).

        Raises:
            NoRoute, RemotingError, BrokerError: the broker does not answer.
        """
        return await self._puller.offset_at(queue, timestamp)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset in a queue, or None.

        Raises:
            NoRoute, RemotingError, BrokerError: the broker does not answer.
        """
        return await self._subscriptions.store.read(queue)

    def position(self, queue: MessageQueue) -> int:
        """The offset at which the next poll of a queue begins.

        Raises:
            KeyError: the queue is not read.
        """
        return self._subscriptions.queues[queue].position

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading queues until :meth:`resume`; their positions are kept.

        Raises:
            KeyError: a queue is not read.
        """
        for queue in queues:
            before = self._subscriptions.queues[queue]  # messages read ahead do not belong to its successor
            self._begin(queue, before.position, before.consumed, paused=True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Continue reading paused queues.

        Raises:
            KeyError: a queue is not read.
        """
        for queue in queues:
            before = self._subscriptions.queues[queue]
            if before.task is None:
                self._begin(queue, before.position, before.consumed)

    def paused(self) -> list[MessageQueue]:
        """The paused queues."""
        return sorted(queue for queue, polled in self._subscriptions.queues.items() if polled.task is None)

    async def poll(self, timeout: float = 5.0) -> list[Received]:
        """The next messages of one queue; empty after ``timeout`` seconds.

        Raises:
            NoRoute, RemotingError, BrokerError: a queue cannot be read; the next poll tries again.
        """
        try:
            async with asyncio.timeout(timeout):
                while True:
                    batch = await self._ready.get()
                    if isinstance(batch, Exception):
                        raise batch
                    polled, messages, position = batch
                    if not self._subscriptions.holds(polled):
                        continue  # read before a seek
                    polled.position = position
                    if messages:
                        return messages
        except TimeoutError:
            return []

    async def __aiter__(self) -> AsyncIterator[Received]:
        while True:
            for message in await self.poll():
                yield message

    def _begin(self, queue: MessageQueue, offset: int, consumed: int | None = None, *, paused: bool = False) -> None:
        """Read a queue from an offset, replacing its previous state."""
        self._end(queue)
        polled = PolledQueue(queue, offset, consumed, position=offset)
        self._subscriptions.assign(polled)
        if not paused:
            polled.task = asyncio.create_task(
                keep_reading(queue, partial(self._read, polled), failed=partial(self._fail, polled), error_pause=_PAUSE)
            )

    def _end(self, queue: MessageQueue) -> PolledQueue | None:
        """Stop reading a queue; returns its state."""
        polled = self._subscriptions.revoke(queue)
        if polled is not None:
            polled.stop()
        return polled

    def _seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset; messages read ahead are dropped, and a paused queue stays paused."""
        self._begin(queue, offset, offset, paused=self._subscriptions.queues[queue].task is None)

    async def _read(self, polled: PolledQueue) -> None:
        queue = polled.queue
        pulled = await self._subscriptions.puller(queue.topic).pull(
            queue, polled.offset, most=self._batch, wait=self._wait
        )
        polled.moves = polled.moves + 1 if pulled.moved else 0
        if polled.moves > _MOVES:
            raise BadAnswer(f"{queue}: no offset is inside of the queue, says its broker")
        polled.failures = 0
        if pulled.messages or pulled.next_offset != polled.offset:
            await self._ready.put((polled, list(pulled.messages), pulled.next_offset))
        elif not pulled.moved:
            await asyncio.sleep(FULL_PAUSE)  # a broker that does not wait must not be polled without a pause
        polled.offset = pulled.next_offset

    async def _fail(self, polled: PolledQueue, err: ClientError | RemotingError) -> float:
        polled.failures, polled.moves = polled.failures + 1, 0
        if polled.failures >= _ATTEMPTS or isinstance(err, BadAnswer | BrokerError):
            await self._ready.put(err)
            polled.failures = 0
        log.info("%s", err)
        return _PAUSE


class PullConsumer(QueueReader):
    """Reads assigned queues. Use as an asynchronous context manager.

    It joins no consumer group, so it does not disturb other consumers, and shares no queues with them. Offsets are
    committed only by :meth:`commit`. Names of topics and groups are used as they are, even if the client has a
    namespace.

    Args:
        client: addresses of name servers, options of a client, or a shared cluster.
        group: the group whose offsets are used; by default one for tools that only read.
        tags: only messages with one of these tags.
        sql: only messages for which this SQL92 expression is true; brokers must have ``enablePropertyFilter``.
        batch: messages per answer of a broker.
        ahead: maximum number of answers waiting for :meth:`poll`, over all queues.

    Raises:
        ValueError: an invalid group name, or invalid options.
        NotReached: no name server is given.
    """

    def __init__(
        self,
        client: str | ClientOptions | Cluster,
        group: str = LOOKING,
        *,
        tags: Sequence[str] = (),
        sql: str | None = None,
        batch: int = 32,
        ahead: int = 16,
        wait: float = 20.0,
    ) -> None:
        super().__init__(client, group, batch=batch, ahead=ahead, wait=wait, tags=tags, sql=sql, namespaced=False)

    def filter(self, topic: str, tags: Sequence[str] = (), sql: str | None = None) -> None:
        """For one topic, read only messages with one of these tags, or for which a SQL92 expression is true.

        Raises:
            ValueError: both tags and an expression.
        """
        self._subscriptions.subscribe(topic, tags, sql)

    async def _leave(self) -> None:
        await self.assign({})

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic.

        Raises:
            NoRoute: no name server knows it.
            RemotingError: none answers.
        """
        return (await self.cluster.route(topic)).readable

    async def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset of a queue, and the offset after its last message."""
        return await self._puller.offsets(queue)

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues.

        A new queue begins at the group's offset, or at its first message if there is none; a mapping gives other
        offsets to begin at.

        Raises:
            NoRoute, RemotingError, BrokerError: the beginning of a queue is unknown.
        """
        offsets: dict[MessageQueue, int | None]
        offsets = dict(queues) if isinstance(queues, dict) else dict.fromkeys(queues)
        for queue in self._subscriptions.queues.keys() - offsets.keys():
            self._end(queue)
        for queue, offset in offsets.items():
            if offset is not None:
                self._begin(queue, offset)
            elif queue not in self._subscriptions.queues:
                stored = await self.committed(queue)
                self._begin(queue, (await self.offsets(queue))[0] if stored is None else stored)

    def assigned(self) -> list[MessageQueue]:
        """The assigned queues, including paused ones."""
        return sorted(self._subscriptions.queues)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset of an assigned queue; messages read ahead are dropped.

        Raises:
            KeyError: the queue is not assigned.
        """
        self._seek(queue, offset)

    async def commit(self) -> None:
        """Commit the positions of all assigned queues; brokers have them when this returns.

        Raises:
            NoRoute, RemotingError, BrokerError: an offset was not committed.
        """
        for queue, polled in list(self._subscriptions.queues.items()):
            await self._puller.commit(queue, polled.position)
