"""A consumer with given queues (client.consumer.DefaultLitePullConsumer with assigned queues)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, ClientError
from rmqtool.client.cluster.member import Member
from rmqtool.client.consumer.offsets import LocalOffsets
from rmqtool.client.consumer.puller import LOOKING, Puller
from rmqtool.client.consumer.reading import FULL_PAUSE, keep_reading
from rmqtool.client.consumer.received import Received
from rmqtool.client.consumer.subscriptions import Assigned, Subscriptions
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_ATTEMPTS = 3  # in a row that may fail before a poll raises the error
_PAUSE = 1.0  # s between them
_MOVES = 5  # in a row


@dataclass(eq=False)
class PolledQueue(Assigned):
    """A queue that is read ahead of the polls; paused where it has no task.

    Attributes:
        position: the offset at which the next poll begins.
        failures, moves: pulls in a row that failed, and that the broker sent to another offset.
    """

    position: int = 0
    failures: int = 0
    moves: int = 0


class QueueReader(Member):
    """What consumers that are polled have in common: they read queues ahead, and hand their messages to polls."""

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
        """Go on at the first message that a queue has.

        Raises:
            KeyError: the queue is not read.
            NoRoute, RemotingError, BrokerError: it is not known where that is.
        """
        self._seek(queue, (await self._puller.offsets(queue))[0])

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on behind the last message that a queue has.

        Raises:
            KeyError: the queue is not read.
            NoRoute, RemotingError, BrokerError: it is not known where that is.
        """
        self._seek(queue, (await self._puller.offsets(queue))[1])

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """About the first offset of messages stored at a time (ms) or later.

        Raises:
            NoRoute, RemotingError, BrokerError: the broker does not answer.
        """
        return await self._puller.offset_at(queue, timestamp)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group is in a queue; None where it never was.

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
        """Read no more of queues, until :meth:`resume`; their positions stay.

        Raises:
            KeyError: one is not read.
        """
        for queue in queues:
            before = self._subscriptions.queues[queue]  # what was read ahead is not its successor's
            self._begin(queue, before.position, before.consumed, paused=True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with queues that are paused, where they were.

        Raises:
            KeyError: one is not read.
        """
        for queue in queues:
            before = self._subscriptions.queues[queue]
            if before.task is None:
                self._begin(queue, before.position, before.consumed)

    def paused(self) -> list[MessageQueue]:
        """The queues that are paused."""
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
        """Read a queue from an offset on, in the place of what was read of it before."""
        self._end(queue)
        polled = PolledQueue(queue, offset, consumed, position=offset)
        self._subscriptions.assign(polled)
        if not paused:
            polled.task = asyncio.create_task(
                keep_reading(queue, partial(self._read, polled), failed=partial(self._fail, polled), error_pause=_PAUSE)
            )

    def _end(self, queue: MessageQueue) -> PolledQueue | None:
        """Read a queue no more; what was read of it."""
        polled = self._subscriptions.revoke(queue)
        if polled is not None:
            polled.stop()
        return polled

    def _seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at another offset; what was read ahead is dropped, and a queue that is paused stays so."""
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
            await self._ready.put((polled, pulled.messages, pulled.next_offset))
        elif not pulled.moved:
            await asyncio.sleep(FULL_PAUSE)  # a broker that does not wait must not be asked without a pause
        polled.offset = pulled.next_offset

    async def _fail(self, polled: PolledQueue, err: ClientError | RemotingError) -> float:
        polled.failures, polled.moves = polled.failures + 1, 0
        if polled.failures >= _ATTEMPTS or isinstance(err, BadAnswer | BrokerError):
            await self._ready.put(err)
            polled.failures = 0
        log.info("%s", err)
        return _PAUSE


class PullConsumer(QueueReader):
    """Reads the queues that it is given. Use as an asynchronous context manager.

    It joins no group of consumers: others are not disturbed, and no two of them share queues. What was polled is kept
    in the group's offsets only by :meth:`commit`. Names of topics and groups are those that brokers know, also where
    the client has a namespace.

    Args:
        client: addresses of name servers, options of a client, or a shared cluster.
        group: whose offsets are used; by default one of tools, for those who only look.
        tags: only messages with one of these tags.
        sql: only messages for which this SQL92 expression is true; brokers must have ``enablePropertyFilter``.
        batch: messages of one answer of a broker.
        ahead: answers that may wait for :meth:`poll`, of all queues together.

    Raises:
        ValueError: no name for a group, or options that mean nothing.
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
        """Of one topic, only messages with one of these tags, or for which an SQL92 expression is true.

        Raises:
            ValueError: tags and an expression.
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
        """The first offset of a queue, and the one behind its last message."""
        return await self._puller.offsets(queue)

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues, and no others.

        A queue that is new begins where the group is, and where it never was at its first message; a mapping gives the
        offsets to begin at instead.

        Raises:
            NoRoute, RemotingError, BrokerError: the beginning of a queue is unknown.
        """
        wanted: dict[MessageQueue, int | None]
        wanted = dict(queues) if isinstance(queues, dict) else dict.fromkeys(queues)
        for queue in self._subscriptions.queues.keys() - wanted.keys():
            self._end(queue)
        for queue, offset in wanted.items():
            if offset is not None:
                self._begin(queue, offset)
            elif queue not in self._subscriptions.queues:
                stored = await self.committed(queue)
                self._begin(queue, (await self.offsets(queue))[0] if stored is None else stored)

    def assigned(self) -> list[MessageQueue]:
        """The queues that are read, and those that are paused."""
        return sorted(self._subscriptions.queues)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at another offset of a queue that is assigned; what was read ahead is dropped.

        Raises:
            KeyError: it is not assigned.
        """
        self._seek(queue, offset)

    async def commit(self) -> None:
        """Keep the positions of all assigned queues as the group's; brokers have them when this returns.

        Raises:
            NoRoute, RemotingError, BrokerError: an offset was not committed.
        """
        for queue, polled in list(self._subscriptions.queues.items()):
            await self._puller.commit(queue, polled.position)
