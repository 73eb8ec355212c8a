"""Queues of the brokers of a live cluster, read message by message; no group is affected."""

from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

from formats.config.files import DelayOffsets, QueueOffset
from formats.config.properties import parse_properties
from formats.message.properties import parse
from formats.message.read import Record
from formats.model.groups import SubscriptionGroup
from formats.remoting import headers as h
from formats.remoting.bodies import QueueEntries
from formats.remoting.codes import RequestCode as C
from formats.remoting.shapes import MessageQueue, TopicOffset
from formats.topics import SCHEDULE
from rmqtool.admin.live.messages import view_record
from rmqtool.admin.live.questions import Node, Session, Warn, body
from rmqtool.admin.live.tables import (
    NO_QUEUE,
    Ranges,
    Topics,
    fetch_groups,
    fetch_offsets,
    fetch_ranges,
    fetch_topics,
)
from rmqtool.client.cluster.errors import NotThere
from rmqtool.client.consumer.puller import LOOKING, Puller
from rmqtool.errors import CorruptFile
from rmqtool.services.lookup.queue_messages import QueueMessage
from rmqtool.services.lookup.retry_names import RetryNames
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.queues.reader import QueueEntry
from rmqtool.words import counted

T = TypeVar("T")
_PAGE = 32  # messages of a pull; brokers give no more
_AHEAD = 16  # pulls of one queue in flight
_TOGETHER = 256  # pulls of several queues whose messages are held
_MOST_HELD = 16 << 20  # bytes of pages that were read


@dataclass(frozen=True)
class LiveQueue:
    """A queue of a topic on one broker, with its range when it was asked for."""

    node: Node
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int

    @property
    def name(self) -> MessageQueue:
        """As requests name it."""
        return MessageQueue(self.topic, self.node.name, self.queue_id)


class LiveQueues:
    """The queues of all brokers.

    Ranges are asked for once, so that what comes later is not part of the answer. Only masters are read, or in place of
    a missing one its slave.

    Args:
        warn: called with each reason why an answer is incomplete.

    Attributes:
        whole: every message that was asked for has come so far.

    Raises:
        ClientError, RemotingError: no broker answers.
    """

    def __init__(self, session: Session, warn: Warn) -> None:
        self._session, self._warn = session, warn
        self.whole = True
        self.questions = session.questions
        self.nodes: list[Node] = session.run(self.questions.masters())
        self.tables: Mapping[Node, Topics] = session.run(fetch_topics(self.questions, self.nodes))
        self._ranges: dict[str, Ranges] = {}
        self._unlisted: set[tuple[Node, str]] = set()
        self._partly_read: set[tuple[Node, str]] = set()
        self._pages: dict[tuple[LiveQueue, int], list[Record]] = {}  # whole ones, by number; oldest first
        self._held = 0  # bytes in them

    # -- tables -------------------------------------------------------------------------------------------------------

    @cached_property
    def groups(self) -> Mapping[Node, Mapping[str, SubscriptionGroup]]:
        """Settings of groups, of each broker that answers."""
        return self._session.run(fetch_groups(self.questions, self.nodes))

    @cached_property
    def offsets(self) -> Mapping[Node, Sequence[QueueOffset]]:
        """Offsets of groups, of each broker that answers."""
        return self._session.run(fetch_offsets(self.questions, self.nodes))

    @cached_property
    def offset_of(self) -> Mapping[tuple[Node, str, str, int], int]:
        """(broker, group, topic, queue id) to the group's offset."""
        return {
            (node, entry.group, entry.topic, entry.queue_id): entry.offset
            for node, entries in self.offsets.items()
            for entry in entries
        }

    @cached_property
    def names(self) -> RetryNames:
        """Parses names of retry topics."""
        return RetryNames(
            {group for table in self.groups.values() for group in table},
            {topic for table in self.tables.values() for topic in table},
            {(entry.topic, entry.group) for entries in self.offsets.values() for entry in entries},
        )

    @cached_property
    def delay_offsets(self) -> Mapping[Node, Mapping[int, int]]:
        """Next offset of each delay level, of each broker that answers."""

        async def fetch(node: Node) -> Mapping[int, int]:
            table = await self.questions.fetch(
                node, C.GET_ALL_DELAY_OFFSET, DelayOffsets.parse, what="offsets of delay levels are"
            )
            return table.offsets if table is not None else {}

        return self._session.run(self.questions.collect(self.nodes, fetch))

    @cached_property
    def settings(self) -> Mapping[Node, Mapping[str, str]]:
        """Settings of each broker that answers."""

        async def fetch(node: Node) -> Mapping[str, str]:
            settings = await self.questions.fetch(node, C.GET_BROKER_CONFIG, parse_properties, what="its settings are")
            return settings or {}

        return self._session.run(self.questions.collect(self.nodes, fetch))

    @cached_property
    def delays(self) -> Mapping[Node, Sequence[int]]:
        """Milliseconds of each delay level."""
        delays: dict[Node, Sequence[int]] = {}
        for node, settings in self.settings.items():
            try:
                delays[node] = BrokerConf(dict(settings), node.address).delay_levels
            except CorruptFile as err:
                self._warn(str(err))
        return delays

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run further questions."""
        return self._session.run(work)

    # -- queues -------------------------------------------------------------------------------------------------------

    def topics_named(self, prefix: str) -> list[str]:
        """Topics with this prefix, of all brokers, sorted."""
        return sorted({topic for table in self.tables.values() for topic in table if topic.startswith(prefix)})

    def load(self, topics: Iterable[str]) -> None:
        """Ask for the ranges of topics, all at once."""
        wanted = [topic for topic in dict.fromkeys(topics) if topic not in self._ranges]
        places = [(node, topic) for topic in wanted for node, table in self.tables.items() if topic in table]
        ranges = self._session.run(fetch_ranges(self.questions, places))
        self._ranges |= dict.fromkeys(wanted, ranges)

    def load_unlisted(self, topics: Iterable[str]) -> None:
        """Ask brokers about queue 0 of topics that are not in their tables: 4.9 does not list the one that ends
        transactions, and that of half messages only a minute after its start.

        Such queues cannot be pulled; their entries and messages are asked for one by one.
        """
        topics = list(topics)
        self.load(topics)
        places = [(node, topic) for topic in topics for node, table in self.tables.items() if topic not in table]

        async def fetch(place: tuple[Node, str]) -> QueueEntries | None:
            return await self._fetch_entries(*place, range(1))

        answers = self._session.run(self.questions.collect(places, fetch))
        there = {place: entries for place, entries in answers.items() if entries is not None}
        self._unlisted |= there.keys()
        queues = {
            place: {0: TopicOffset(entries.min_queue_index, entries.max_queue_index, 0)}
            for place, entries in there.items()
        }
        for topic in topics:
            known = self._ranges[topic]
            self._ranges[topic] = Ranges({**known.queues, **queues}, known.missing | ({*places} - answers.keys()))

    async def _fetch_entries(self, node: Node, topic: str, offsets: range) -> QueueEntries | None:
        """Entries of queue 0 of a topic that is not in a broker's table; None if there is no such queue.

        Raises:
            Unanswered: the broker does not answer.
        """
        return await self.questions.fetch(
            node, C.QUERY_CONSUME_QUEUE, body(QueueEntries),
            h.QueryConsumeQueue(topic=topic, queue_id=0, index=offsets.start, count=len(offsets)),
            what=f"queues of {topic} are", absent=(NO_QUEUE,),
        )  # fmt: skip

    async def _read_unlisted(self, queue: LiveQueue, offsets: range) -> list[Record]:
        """Messages of a queue of :meth:`load_unlisted`.

        Raises:
            Unanswered: the broker does not answer.
        """
        records: list[Record] = []
        at = offsets.start
        while at < offsets.stop:
            entries = await self._fetch_entries(queue.node, queue.topic, range(at, offsets.stop))
            data = entries.queue_data[: offsets.stop - at] if entries is not None else []  # of one file at most
            if not data:
                break
            places = [*dict.fromkeys(entry.physic_offset for entry in data)]
            views = self.questions.collect(places, lambda place: view_record(self.questions, queue.node, place))
            there = await self.questions.need(views, places)
            records += (record for place in places for record in there[place] if record.queue_offset in offsets)
            at += len(data)
        return records

    def look_again(self) -> None:
        """Forget the ranges: those asked for from now on have what has come meanwhile."""
        self._ranges.clear()

    def queues_of(self, topic: str) -> list[LiveQueue]:
        """The queues of a topic, by broker and number."""
        self.load([topic])
        return [
            LiveQueue(node, topic, queue_id, max(bounds.min_offset, 0), max(bounds.max_offset, 0))
            for node in self.nodes
            for queue_id, bounds in sorted(self._ranges[topic].of(node, topic).items())
        ]

    def is_missing(self, topic: str, node: Node | None = None) -> bool:
        """Whether a broker, or this one, does not tell the ranges of the queues of a topic."""
        self.load([topic])
        return any(place[1] == topic and node in (None, place[0]) for place in self._ranges[topic].missing)

    def is_whole(self, node: Node, topic: str) -> bool:
        """Whether a broker has reported the queues of a topic, and returned the messages requested so far."""
        return not self.is_missing(topic, node) and (node, topic) not in self._partly_read

    def has(self, node: Node, topic: str) -> bool:
        """Whether a topic is in the table of a broker: 4.9 has none of those that end transactions."""
        return topic in self.tables.get(node, ())

    def delivered_offset(self, queue: LiveQueue) -> int:
        """The offset from which a broker delivers a delay level: the stored one, within the queue's range.

        The end of the queue if the broker does not report it, so that nothing that was delivered seems to wait.
        """
        if queue.node not in self.delay_offsets:
            return queue.max_offset
        stored = self.delay_offsets[queue.node].get(queue.queue_id + 1, 0)
        return min(max(stored, queue.min_offset), queue.max_offset)

    # -- messages -----------------------------------------------------------------------------------------------------

    def messages(self, queue: LiveQueue, start: int | None = None, stop: int | None = None) -> Iterator[QueueMessage]:
        """Messages of queue offsets [start, stop) within the range of the queue; by default all.

        Several pulls are in flight. What a broker does not give is skipped, and a warning has the number.
        """
        low = max(queue.min_offset if start is None else start, queue.min_offset)
        high = min(queue.max_offset if stop is None else stop, queue.max_offset)
        missing, first = 0, -1
        if low >= high:
            return
        for at in range(low // _PAGE * _PAGE, high, _PAGE * _AHEAD):
            begins = range(at, min(at + _PAGE * _AHEAD, high), _PAGE)
            chunks = [range(max(begin, low), min(begin + _PAGE, high)) for begin in begins]
            pages = self._session.run(self.questions.collect(chunks, lambda chunk: self._read(queue, chunk)))
            if len(pages) < len(chunks):
                self._note_partly_read(queue)  # it is reported with the failure
                return
            if not any(pages.values()):
                self._note_partly_read(queue)
                begin = chunks[0].start
                self._warn(
                    f"{queue.topic} queue {queue.queue_id} of {queue.node.name}: its broker gives no message from "
                    f"queue offset {begin} on, though it says that there are {high - begin}: not read any further"
                )
                return
            for chunk, records in pages.items():
                if len(records) < len(chunk):
                    first = chunk.start if first < 0 else first
                    missing += len(chunk) - len(records)
                for record in records:
                    yield self.message(queue, record)
        if missing:
            self._note_partly_read(queue)
            self._warn(
                f"{queue.topic} queue {queue.queue_id} of {queue.node.name}: {counted(missing, 'message')} that its "
                f"broker does not give, the first at queue offset {first} or soon after: skipped"
            )

    def messages_at(self, queue: LiveQueue, offsets: Sequence[int]) -> Iterator[QueueMessage]:
        """Single messages of a queue, in this order; several are in flight together."""
        for first in range(0, len(offsets), _TOGETHER):
            some = offsets[first : first + _TOGETHER]
            answers = self.run(self.questions.collect(some, lambda at: self._read(queue, range(at, at + 1))))
            for offset in some:
                if not answers.get(offset):
                    self._note_partly_read(queue)
                for record in answers.get(offset, ()):
                    yield self.message(queue, record)

    def read_ahead(self, places: Iterable[tuple[LiveQueue, int]]) -> None:
        """Read the pages that begin at or include these offsets, all in flight together, for :meth:`messages`."""
        wanted = [
            (queue, self._page(queue, offset // _PAGE))
            for queue, offset in places
            if queue.min_offset <= offset < queue.max_offset
        ]

        async def read(place: tuple[LiveQueue, range]) -> None:
            await self._read(*place)

        self.run(self.questions.collect(wanted, read))

    @staticmethod
    def _page(queue: LiveQueue, number: int) -> range:
        """The offsets of a page within the range of its queue."""
        return range(max(number * _PAGE, queue.min_offset), min((number + 1) * _PAGE, queue.max_offset))

    async def _read(self, queue: LiveQueue, chunk: range) -> list[Record]:
        """A page or a part of it, from memory or from the broker.

        Raises:
            Unanswered: the broker does not answer.
        """
        key = queue, chunk.start // _PAGE
        held = self._pages.get(key)
        if held is not None:
            return [record for record in held if record.queue_offset in chunk]
        records = await self._pull(queue, chunk)
        if chunk == self._page(*key) and len(records) == len(chunk):
            self._pages[key] = records
            self._held += _bytes_of(records)
            while self._held > _MOST_HELD:
                self._held -= _bytes_of(self._pages.pop(next(iter(self._pages))))
        return records

    def _note_partly_read(self, queue: LiveQueue) -> None:
        self.whole = False
        self._partly_read.add((queue.node, queue.topic))

    def records_from(self, timestamp: int, queues: Sequence[LiveQueue]) -> Iterator[Record]:
        """Records of several queues stored at or after a time (ms), and a few before; in no order.

        Pulls of all queues are in flight together. What does not come clears :attr:`whole`.
        """

        async def find_start(queue: LiveQueue) -> int:
            puller = Puller(self.questions.cluster, LOOKING, address=queue.node.address)
            return await self.questions.attempt(
                queue.node, "offsets of times are", lambda: puller.offset_at(queue.name, timestamp)
            )

        async def pull(part: tuple[LiveQueue, range]) -> list[Record]:
            return await self._pull(*part)

        starts = self.run(self.questions.collect(queues, find_start))
        for queue in queues:
            if queue not in starts:
                self._note_partly_read(queue)
        waiting = {
            queue: iter(range(max(start, queue.min_offset), queue.max_offset, _PAGE)) for queue, start in starts.items()
        }
        while waiting:
            parts = [
                (queue, range(at, min(at + _PAGE, queue.max_offset)))
                for queue, begins in waiting.items()
                for at in islice(begins, max(_TOGETHER // len(waiting), 1))
            ]
            pages = self.run(self.questions.collect(parts, pull))
            for part in parts:
                if len(pages.get(part, ())) < len(part[1]):
                    self._note_partly_read(part[0])
            for records in pages.values():
                yield from records
            # a broker that gives nothing may say that a queue is of any length
            given = {queue for (queue, _offsets), records in pages.items() if records}
            waiting = {queue: begins for queue, begins in waiting.items() if queue in given}

    def one(self, queue: LiveQueue, offset: int) -> QueueMessage | None:
        """The message at an offset, or None."""
        return next(self.messages(queue, offset, offset + 1), None)

    def pick(self, places: Iterable[tuple[LiveQueue, int]]) -> dict[tuple[LiveQueue, int], Record | None]:
        """Single messages, all in flight together; None where the broker gives none.

        What is missing in the answer is reported as unknown.
        """

        async def fetch(place: tuple[LiveQueue, int]) -> Record | None:
            queue, offset = place
            return next(iter(await self._pull(queue, range(offset, offset + 1))), None)

        return self.run(self.questions.collect(places, fetch))

    async def _pull(self, queue: LiveQueue, offsets: range) -> list[Record]:
        if (queue.node, queue.topic) in self._unlisted:
            return await self._read_unlisted(queue, offsets)
        puller = Puller(self.questions.cluster, LOOKING, address=queue.node.address)
        records: list[Record] = []
        at = offsets.start
        while at < offsets.stop:

            async def pull(at: int = at) -> tuple[list[Record], int]:
                try:
                    pulled = await puller.pull(queue.name, at, most=offsets.stop - at)
                except NotThere as err:
                    return [], err.next_offset
                return [message.record for message in pulled.messages], pulled.next_offset

            page, following = await self.questions.attempt(queue.node, f"messages of {queue.topic} are", pull)
            records += (record for record in page if record.queue_offset < offsets.stop)
            if following <= at:
                break
            at = following
        return records

    def message(self, queue: LiveQueue, record: Record) -> QueueMessage:
        """A record of a queue as a message of it."""
        code = 0
        if queue.topic == SCHEDULE:  # brokers keep the time of delivery there
            delays = self.delays.get(queue.node, ())
            code = record.store_timestamp + (delays[queue.queue_id] if queue.queue_id < len(delays) else 0)
        entry = QueueEntry(record.queue_offset, record.physical_offset, record.total_size, code)
        return QueueMessage(entry, record, parse(record.properties))


def _bytes_of(records: Iterable[Record]) -> int:
    return sum(record.total_size for record in records)
