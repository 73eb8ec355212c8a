"""Verify that a queue is still the one that was read.

An offset alone proves nothing: the topic may have been deleted and created again, or its broker may have another store,
and a different message may now have that offset. The message before the position proves it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from formats.message.fingerprint import fingerprint
from formats.message.read import Record
from formats.remoting.shapes import MessageQueue
from formats.topics import LMQ_PREFIX
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BadAnswer, ClientError, MasterAway, NotThere
from rmqtool.client.consumer.puller import Pulled, Puller

P = TypeVar("P", int, int | None)
_MADE_AGAIN = "the topic was made again since then, or its broker has another store"


class MadeAgain(ClientError):
    """A queue is not the one that was read: positions in it are meaningless."""


class Last(NamedTuple):
    """The last message read from a queue.

    Attributes:
        offset: its queue offset.
        digest: its fingerprint.
    """

    offset: int
    digest: int


def last_of(record: Record, offset: int) -> Last:
    """The fingerprint of a message, with its queue offset."""
    return Last(offset, fingerprint(record))


async def prove(puller: Puller, queue: MessageQueue, last: Last) -> None:
    """Verify that a queue is the one from which a message was read.

    Args:
        puller: a puller without a filter.

    Raises:
        MadeAgain: the queue is a different one.
        NoRoute, RemotingError, BrokerError: the broker does not answer.
    """
    if await last_at(puller, queue, last.offset) not in (last, None):
        raise MadeAgain(f"{queue}: has another message at offset {last.offset} than before: {_MADE_AGAIN}")


async def last_at(puller: Puller, queue: MessageQueue, offset: int) -> Last | None:
    """The fingerprint of the message at an offset; None if it has expired.

    Raises:
        MadeAgain: the queue ends before it.
        NoRoute, RemotingError, BrokerError: the broker does not answer.
    """
    try:
        pulled = await puller.pull(queue, offset, most=1)
    except NotThere:  # as in a queue that begins later, from a broker that does not report it
        return None
    if pulled.messages and pulled.messages[0].queue_offset == offset:
        return last_of(pulled.messages[0].record, offset)
    if offset >= pulled.max_offset:
        raise _ends_before(puller, queue, offset + 1, pulled.max_offset)
    if pulled.messages or offset < pulled.min_offset:
        return None
    raise BadAnswer(f"{queue}: its broker gives no message at offset {offset}, which it had")


def _is_light(queue: MessageQueue) -> bool:
    """Whether it is a light queue, whose messages have the offsets of other queues (5.x)."""
    return queue.topic.startswith(LMQ_PREFIX)


def _ends_before(puller: Puller, queue: MessageQueue, offset: int, end: int) -> MadeAgain | MasterAway:
    if not puller.is_master(queue):
        return MasterAway(f"{queue}: was read up to {offset}, and a slave has it up to {end}: its master is away")
    return MadeAgain(f"{queue}: was read up to offset {offset}, and ends at {end}: {_MADE_AGAIN}")


class ProvingPuller(Puller):
    """A puller that verifies after each pull and before each commit that a queue is the one read before.

    The proof of a position that a broker reports is read together with it: until the first pull the broker may come
    back with another store, which has another message there.
    """

    def __init__(self, cluster: Cluster, group: str, tags: Sequence[str] = (), sql: str | None = None) -> None:
        super().__init__(cluster, group, tags, sql)
        self._last: dict[MessageQueue, Last] = {}
        self._next: dict[MessageQueue, int] = {}
        self._reported: dict[MessageQueue, _Position] = {}

    async def pull(
        self, queue: MessageQueue, offset: int, *, most: int = 32, wait: float = 0, commit: int = 0
    ) -> Pulled:
        """As :meth:`Puller.pull`, but ``commit`` is ignored, because it would not be verified.

        Raises:
            MadeAgain: the queue is a different one, or ends before the offset.
        """
        if self._next.get(queue) != offset:
            await self._begin(queue, offset)
        pulled = await super().pull(queue, offset, most=most, wait=wait)
        await self._prove(queue)
        if pulled.moved and not pulled.reset and offset > pulled.max_offset:
            raise _ends_before(self, queue, offset, pulled.max_offset)
        if pulled.messages and not _is_light(queue):
            self._last[queue] = last_of(pulled.messages[-1].record, pulled.messages[-1].queue_offset)
        self._next[queue] = pulled.next_offset
        return pulled

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """As :meth:`Puller.commit`, over a connection that existed when the queue was verified.

        Raises:
            MadeAgain: the queue is a different one.
        """
        address = await self._address(queue)
        connection = await self.cluster.connect(address)
        await self._prove(queue)
        await self.cluster.ask(address, self._commit_request(queue, offset), over=connection)

    async def committed(self, queue: MessageQueue) -> int | None:
        return await self._report(queue, super().committed)

    async def end(self, queue: MessageQueue) -> int:
        return await self._report(queue, super().end)

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        return await self._report(queue, lambda queue: super(ProvingPuller, self).offset_at(queue, timestamp))

    async def _report(self, queue: MessageQueue, ask: Callable[[MessageQueue], Awaitable[P]]) -> P:
        """A position and its proof, over one connection: so both are of the same store."""
        address = await self._address(queue)
        while True:
            connection = await self.cluster.connect(address)
            offset = await ask(queue)
            try:
                proof: Last | MadeAgain | None = await self._message_before(queue, offset or 0)
            except MadeAgain as err:  # raised by the pull from there
                proof = err
            if await self.cluster.connect(address) is connection:
                self._reported[queue] = _Position(offset or 0, proof)
                return offset

    async def _begin(self, queue: MessageQueue, offset: int) -> None:
        """Take the message before an offset, if it still exists, as the proof."""
        self._last.pop(queue, None)
        reported = self._reported.get(queue)
        if reported is None or reported.offset != offset:
            proof = await self._message_before(queue, offset)
        elif isinstance(reported.proof, MadeAgain):
            raise reported.proof
        else:
            proof = reported.proof
        if proof is not None:
            self._last[queue] = proof
        self._next[queue] = offset

    async def _message_before(self, queue: MessageQueue, offset: int) -> Last | None:
        if offset <= 0 or _is_light(queue):
            return None
        return await last_at(Puller(self.cluster, self.group), queue, offset - 1)

    async def _prove(self, queue: MessageQueue) -> None:
        if (last := self._last.get(queue)) is not None:
            # without a filter and from the master: this puller may have a filter, or read from a slave
            await prove(Puller(self.cluster, self.group), queue, last)


class _Position(NamedTuple):
    """An offset that a broker has reported, and the message before it, if that still exists."""

    offset: int
    proof: Last | MadeAgain | None
