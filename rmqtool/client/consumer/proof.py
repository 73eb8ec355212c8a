"""Reading on in a queue only while it is the queue that was read.

An offset alone proves nothing: the topic may have been deleted and made again, or its broker may have another store,
and what has that offset now is another message. What lies before the position proves it.
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
    """A queue is not the one that was read: positions in it say nothing."""


class Last(NamedTuple):
    """The last message of a queue that was read.

    Attributes:
        offset: its queue offset.
        digest: its fingerprint.
    """

    offset: int
    digest: int


def last_of(record: Record, offset: int) -> Last:
    """What stands for a message at a queue offset."""
    return Last(offset, fingerprint(record))


async def prove(puller: Puller, queue: MessageQueue, last: Last) -> None:
    """That a queue is the one of which a message was read.

    Args:
        puller: asks for all messages.

    Raises:
        MadeAgain: it is another.
        NoRoute, RemotingError, BrokerError: the broker does not answer.
    """
    if await last_at(puller, queue, last.offset) not in (last, None):
        raise MadeAgain(f"{queue}: has another message at offset {last.offset} than before: {_MADE_AGAIN}")


async def last_at(puller: Puller, queue: MessageQueue, offset: int) -> Last | None:
    """What stands for the message at an offset; None where it has expired.

    Raises:
        MadeAgain: the queue ends before it.
        NoRoute, RemotingError, BrokerError: the broker does not answer.
    """
    try:
        pulled = await puller.pull(queue, offset, most=1)
    except NotThere:  # as in a queue that begins behind it, by a broker that does not say so
        return None
    if pulled.messages and pulled.messages[0].queue_offset == offset:
        return last_of(pulled.messages[0].record, offset)
    if offset >= pulled.max_offset:
        raise _ends_before(puller, queue, offset + 1, pulled.max_offset)
    if pulled.messages or offset < pulled.min_offset:
        return None
    raise BadAnswer(f"{queue}: its broker gives no message at offset {offset}, which it had")


def _is_light(queue: MessageQueue) -> bool:
    """Whether its messages are those of other queues, with the offsets that they have there (5.x)."""
    return queue.topic.startswith(LMQ_PREFIX)


def _ends_before(puller: Puller, queue: MessageQueue, offset: int, end: int) -> MadeAgain | BadAnswer:
    if not puller.is_master(queue):
        return BadAnswer(f"{queue}: was read up to {offset}, and a slave has it up to {end}: its master is away")
    return MadeAgain(f"{queue}: was read up to offset {offset}, and ends at {end}: {_MADE_AGAIN}")


class ProvingPuller(Puller):
    """A puller that proves, behind each pull and before each commit, that a queue is the one that was read before."""

    def __init__(self, cluster: Cluster, group: str, tags: Sequence[str] = (), sql: str | None = None) -> None:
        super().__init__(cluster, group, tags, sql)
        self._last: dict[MessageQueue, Last] = {}
        self._next: dict[MessageQueue, int] = {}

    async def pull(
        self, queue: MessageQueue, offset: int, *, most: int = 32, wait: float = 0, commit: int = 0
    ) -> Pulled:
        """As :meth:`Puller.pull`; nothing is committed on the way, because that would not be proved.

        Raises:
            MadeAgain: the queue is another, or ends before the offset.
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
        """As :meth:`Puller.commit`, over a connection that stood when the queue was proved.

        Raises:
            MadeAgain: the queue is another.
        """
        address = await self._address(queue)
        connection = await self.cluster.connect(address)
        await self._prove(queue)
        await self.cluster.ask(address, self._commit_request(queue, offset), over=connection)

    async def _begin(self, queue: MessageQueue, offset: int) -> None:
        """Have the message before an offset, where it is there still, to prove the queue with."""
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
            # of all messages, and from its master: this one asks for some, perhaps a slave
            await prove(Puller(self.cluster, self.group), queue, last)
