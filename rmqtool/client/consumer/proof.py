"""Verify that a queue is still the one that was read.

An offset alone proves nothing: the topic may have been deleted and created again, or its broker may have another store,
and a different message may now have that offset. The message before the position proves it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from formats.message.fingerprint import fingerprint
from formats.message.read import Record
from formats.remoting.shapes import MessageQueue
from formats.topics import LMQ_PREFIX
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BadAnswer, ClientError, NotThere
from rmqtool.client.consumer.puller import Pulled, Puller

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


def _ends_before(puller: Puller, queue: MessageQueue, offset: int, end: int) -> MadeAgain | BadAnswer:
    if not puller.is_master(queue):
        return BadAnswer(f"{queue}: was read up to {offset}, and a slave has it up to {end}: its master is away")
    return MadeAgain(f"{queue}: was read up to offset {offset}, and ends at {end}: {_MADE_AGAIN}")


class ProvingPuller(Puller):
    """A puller that verifies after each pull and before each commit that a queue is the one read before."""

    def __init__(self, cluster: Cluster, group: str, tags: Sequence[str] = (), sql: str | None = None) -> None:
        super().__init__(cluster, group, tags, sql)
        self._last: dict[MessageQueue, Last] = {}
        self._next: dict[MessageQueue, int] = {}

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

    async def _begin(self, queue: MessageQueue, offset: int) -> None:
        """Read the message before an offset, if it still exists, as the proof."""
        self._last.pop(queue, None)
        if (
            offset > 0
            and not _is_light(queue)
            and (last := await last_at(Puller(self.cluster, self.group), queue, offset - 1)) is not None
        ):
            self._last[queue] = last
        self._next[queue] = offset

    async def _prove(self, queue: MessageQueue) -> None:
        if (last := self._last.get(queue)) is not None:
            # without a filter and from the master: this puller may have a filter, or read from a slave
            await prove(Puller(self.cluster, self.group), queue, last)
