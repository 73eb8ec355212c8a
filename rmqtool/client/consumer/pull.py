"""A consumer that is told which queues to read (client.consumer.DefaultLitePullConsumer with assigned queues)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, ClientError
from rmqtool.client.consumer.puller import LOOKING, Puller
from rmqtool.client.consumer.received import Received
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.sending import check_group

log = logging.getLogger(__name__)

_ATTEMPTS = 3  # in a row that may fail before whoever polls is told
_PAUSE = 1.0  # s between them
_MOVES = 5  # in a row


@dataclass
class _Assigned:
    """A queue that is read.

    Attributes:
        position: where the next poll of it begins.
        task: reads ahead, from its own beginning on.
    """

    position: int
    task: asyncio.Task[None] | None = None


class PullConsumer:
    """Reads the queues that it is given. Use as an asynchronous context manager.

    It joins no group of consumers: others are not disturbed, and no two of them share queues. What was polled is kept
    in the group's offsets only by :meth:`commit`.

    Args:
        client: addresses of name servers, options of a client, or a cluster that is shared with others.
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
        check_group(group)
        if isinstance(client, str):
            client = ClientOptions(namesrv=client)
        self._shared = isinstance(client, Cluster)
        self.cluster = client if isinstance(client, Cluster) else Cluster(client)
        self.group = group
        self._puller = Puller(self.cluster, group, tags, sql)
        self._of_topic: dict[str, Puller] = {}
        self._batch, self._wait = batch, wait
        self._assigned: dict[MessageQueue, _Assigned] = {}
        self._ready: asyncio.Queue[tuple[MessageQueue, _Assigned, list[Received], int] | Exception]
        self._ready = asyncio.Queue(ahead)

    def filter(self, topic: str, tags: Sequence[str] = (), sql: str | None = None) -> None:
        """Of one topic, only messages with one of these tags, or for which an SQL92 expression is true.

        Raises:
            ValueError: tags and an expression.
        """
        self._of_topic[topic] = Puller(self.cluster, self.group, tags, sql)

    async def __aenter__(self) -> Self:
        if not self._shared:
            await self.cluster.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading. Nothing is committed."""
        await self.assign({})
        if not self._shared:
            await self.cluster.close()

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

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """About the first offset of messages stored at a time (ms) or later."""
        return await self._puller.offset_at(queue, timestamp)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group is in a queue; None where it never was."""
        return await self._puller.committed(queue)

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues, and no others.

        A queue that is new begins where the group is, and where it never was at its first message; a mapping gives the
        offsets to begin at instead.

        Raises:
            NoRoute, RemotingError, BrokerError: it cannot be told where a queue begins.
        """
        wanted: dict[MessageQueue, int | None]
        wanted = dict(queues) if isinstance(queues, dict) else dict.fromkeys(queues)
        for queue in self._assigned.keys() - wanted.keys():
            self._stop(self._assigned.pop(queue))
        for queue, offset in wanted.items():
            if queue not in self._assigned or offset is not None:
                self._start(queue, await self._first(queue) if offset is None else offset)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at another offset of a queue that is assigned; what was read ahead is dropped.

        Raises:
            KeyError: it is not assigned.
        """
        known = self._assigned.pop(queue)
        self._stop(known)
        if known.task is None:
            self._assigned[queue] = _Assigned(offset)  # paused, and stays so
        else:
            self._start(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that a queue has.

        Raises:
            KeyError: it is not assigned.
            NoRoute, RemotingError, BrokerError: it cannot be told where that is.
        """
        self.seek(queue, (await self.offsets(queue))[0])

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on behind the last message that a queue has.

        Raises:
            KeyError: it is not assigned.
            NoRoute, RemotingError, BrokerError: it cannot be told where that is.
        """
        self.seek(queue, (await self.offsets(queue))[1])

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Read no more of queues that are assigned, until :meth:`resume`; their positions stay.

        Raises:
            KeyError: one is not assigned.
        """
        for queue in queues:
            assigned = self._assigned[queue]
            self._stop(assigned)
            self._assigned[queue] = _Assigned(assigned.position)  # what was read ahead is another's

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with queues that are paused, where they were.

        Raises:
            KeyError: one is not assigned.
        """
        for queue in queues:
            if self._assigned[queue].task is None:
                self._start(queue, self._assigned[queue].position)

    def paused(self) -> list[MessageQueue]:
        """The queues that are."""
        return sorted(queue for queue, assigned in self._assigned.items() if assigned.task is None)

    def assigned(self) -> list[MessageQueue]:
        """The queues that are read, and those that are paused."""
        return sorted(self._assigned)

    def position(self, queue: MessageQueue) -> int:
        """The offset at which the next poll of an assigned queue begins."""
        return self._assigned[queue].position

    async def poll(self, timeout: float = 5.0) -> list[Received]:
        """The next messages of one queue; none where there are none within ``timeout`` seconds.

        Raises:
            NoRoute, RemotingError, BrokerError: a queue cannot be read; asked again, it is tried again.
        """
        try:
            async with asyncio.timeout(timeout):
                while True:
                    got = await self._ready.get()
                    if isinstance(got, Exception):
                        raise got
                    queue, assigned, messages, position = got
                    if self._assigned.get(queue) is not assigned:
                        continue  # read before a seek
                    assigned.position = position
                    if messages:
                        return messages
        except TimeoutError:
            return []

    async def commit(self) -> None:
        """Keep the positions of all assigned queues as the group's; brokers have them when this returns.

        Raises:
            NoRoute, RemotingError, BrokerError: one was not kept.
        """
        for queue, assigned in list(self._assigned.items()):
            await self._puller.commit(queue, assigned.position)

    async def __aiter__(self) -> AsyncIterator[Received]:
        while True:
            for message in await self.poll():
                yield message

    async def _first(self, queue: MessageQueue) -> int:
        stored = await self._puller.committed(queue)
        return stored if stored is not None else (await self._puller.offsets(queue))[0]

    def _start(self, queue: MessageQueue, offset: int) -> None:
        known = self._assigned.get(queue)
        if known is not None:
            self._stop(known)
        assigned = self._assigned[queue] = _Assigned(offset)
        assigned.task = asyncio.create_task(self._read(queue, assigned, offset))

    def _stop(self, assigned: _Assigned) -> None:
        if assigned.task is not None:
            assigned.task.cancel()

    async def _read(self, queue: MessageQueue, assigned: _Assigned, offset: int) -> None:
        failures = moves = 0
        while True:
            try:
                pulled = await self._of_topic.get(queue.topic, self._puller).pull(
                    queue, offset, most=self._batch, wait=self._wait
                )
                moves = moves + 1 if pulled.moved else 0
                if moves > _MOVES:
                    raise BadAnswer(f"{queue}: no offset is inside of the queue, says its broker")
            except (ClientError, RemotingError) as err:
                failures, moves = failures + 1, 0
                if failures >= _ATTEMPTS or isinstance(err, BadAnswer | BrokerError):
                    await self._ready.put(err)
                    failures = 0
                log.info("%s", err)
                await asyncio.sleep(_PAUSE)
                continue
            failures = 0
            if pulled.messages or pulled.next_offset != offset:
                await self._ready.put((queue, assigned, pulled.messages, pulled.next_offset))
            elif not pulled.moved:
                await asyncio.sleep(0.05)  # a broker that does not wait must not be asked without a pause
            offset = pulled.next_offset
