"""Single messages of a live cluster. Queues are read in the name of a group for tools that no application uses."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from formats.config.properties import parse_properties
from formats.message.ids import is_id, offset_id, parse_offset_id
from formats.message.read import Record
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.shapes import MessageQueue
from rmqtool.admin.live.questions import Node, Questions, Warn, ask
from rmqtool.admin.live.tables import fetch_topics
from rmqtool.admin.target import Target
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.consumer.puller import LOOKING, Puller
from rmqtool.client.consumer.received import records_in
from rmqtool.errors import BadValue
from rmqtool.rules.statuses import GetStatus
from rmqtool.services.lookup.get_message import GetResult, nothing_at
from rmqtool.services.lookup.query import Search, has_id, has_key
from rmqtool.services.lookup.selection import Selection

_PAGE = 64  # messages per answer to a look-up; brokers return no more by default (maxMsgsNumBatch)
_SECOND = 1000  # ms by which times in the index may be too low
_FEW = 16  # messages; every broker returns at least this many
_MAX_TIME = (1 << 63) - 1
_NOTHING = (ResponseCode.QUERY_NOT_FOUND,)
_NO_MESSAGE = "can not find message by the offset"


class WireMessage(NamedTuple):
    """A message received from a broker.

    Attributes:
        node: the broker, if it is of interest.
    """

    record: Record
    node: Node | None = None

    @property
    def physical_offset(self) -> int:
        """Its position in the broker's log."""
        return self.record.physical_offset


class WireRead(NamedTuple):
    """The result of one pull."""

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[WireMessage]


class LiveMessages:
    """The messages of a cluster.

    Args:
        warn: called with each reason why an answer is incomplete.
        broker: name of the broker to read queues from, if several brokers have the queue.
    """

    def __init__(self, target: Target, warn: Warn, *, broker: str | None = None) -> None:
        self._target, self._warn, self._broker = target, warn, broker

    def by_key(self, topic: str, key: str, search: Search) -> list[WireMessage]:
        """Messages of a topic with a key, in the order of each broker's log.

        Raises:
            NoRoute: no name server knows the topic.
        """

        async def work(questions: Questions) -> list[WireMessage]:
            nodes = _of_route(await questions.masters(), (await questions.cluster.route(topic)).brokers)
            topic_bytes = topic.encode("utf-8", "surrogateescape")
            pages = _Pages(questions, self._warn, search)
            answers = await questions.collect(
                nodes, lambda node: pages.find(node, topic, key, lambda record: has_key(record, topic_bytes, key))
            )
            return [message for messages in answers.values() for message in messages][: search.limit]

        return ask(self._target, self._warn, work)

    def by_id(self, message_id: str, topics: Sequence[str], search: Search) -> list[WireMessage]:
        """Messages with an offset id, or every copy with a unique id, which is looked up in each topic.

        Args:
            topics: names or globs of topics; all by default.
        """

        return ask(
            self._target, self._warn, lambda questions: find_by_id(questions, self._warn, message_id, topics, search)
        )

    def read(self, topic: str, queue_id: int, offset: int, count: int) -> WireRead | None:
        """One pull of a queue; None if no broker has it.

        Raises:
            BadValue: several brokers have such a queue, and none is named.
            NoRoute: no name server knows the topic.
        """

        async def work(questions: Questions) -> WireRead | None:
            queue = await self._find_queue(questions.cluster, topic, queue_id)
            return None if queue is None else await _read(Puller(questions.cluster, LOOKING), queue, offset, count)

        return ask(self._target, self._warn, work)

    def offset_at(self, topic: str, queue_id: int, timestamp: int) -> tuple[int, WireMessage | None] | None:
        """The offset of a queue for a store time (ms), and the message there; None if no broker has the queue.

        Raises:
            BadValue: several brokers have such a queue, and none is named.
            NoRoute: no name server knows the topic.
        """

        async def work(questions: Questions) -> tuple[int, WireMessage | None] | None:
            queue = await self._find_queue(questions.cluster, topic, queue_id)
            if queue is None:
                return None
            puller = Puller(questions.cluster, LOOKING)
            offset = await puller.offset_at(queue, timestamp)
            messages = (await _read(puller, queue, offset, 1)).messages
            return offset, next((message for message in messages if message.record.queue_offset == offset), None)

        return ask(self._target, self._warn, work)

    async def _find_queue(self, cluster: Cluster, topic: str, queue_id: int) -> MessageQueue | None:
        route = await cluster.route(topic)
        queues = [queue for queue in route.readable if queue.queue_id == queue_id]
        if self._broker is not None:
            return next((queue for queue in queues if queue.broker_name == self._broker), None)
        if len(queues) > 1:
            names = ", ".join(sorted(queue.broker_name for queue in queues))
            raise BadValue(f"{topic} has a queue {queue_id} on several brokers: give --broker, one of {names}")
        return queues[0] if queues else None


class _Pages:
    """Look-ups in the index of brokers, page by page until there are no new messages.

    A broker returns the newest messages of a range, `serve` up to 0.2 the oldest: either way, the rest of the range is
    before the oldest or after the newest of them.
    """

    def __init__(self, questions: Questions, warn: Warn, search: Search, *, unique: bool = False) -> None:
        self._questions, self._warn, self._search, self._unique = questions, warn, search, unique

    async def find(self, node: Node, topic: str, key: str, matches: Callable[[Record], bool]) -> list[WireMessage]:
        """The matching messages, in log order.

        Raises:
            Unanswered: the broker does not answer.
        """
        begin, end = self._search.index_begin, min(self._search.end, _MAX_TIME)
        first = await self._fetch(node, topic, key, begin, end)
        records = {record.physical_offset: record for record in first}
        if len(first) >= (_FEW if self._unique else 1):  # an id has few copies
            times = [record.store_timestamp for record in first]
            await self._extend(records, node, topic, key, begin, min(times), older=True)
            if len(first) >= _FEW:
                await self._extend(records, node, topic, key, max(times) - _SECOND, end, older=False)
        matching = [record for record in records.values() if self._search.has_time(record) and matches(record)]
        return [WireMessage(record, node) for record in sorted(matching, key=lambda record: record.physical_offset)]

    async def _extend(
        self, seen: dict[int, Record], node: Node, topic: str, key: str, begin: int, end: int, *, older: bool
    ) -> None:
        """Request older, or newer, messages until a page has nothing new."""
        while begin <= end:
            page = await self._fetch(node, topic, key, begin, end)
            new = [record for record in page if record.physical_offset not in seen]
            seen |= {record.physical_offset: record for record in new}
            times = [record.store_timestamp for record in page]
            if older:
                following = begin, min([end, *times])
            else:
                following = max([begin, *(time - _SECOND for time in times)]), end
            if not new or following == (begin, end):  # the same question has the same answer
                if len(page) >= await self._cap(node, len(page)):
                    self._warn(
                        f"{node.address}: {len(page)} messages of topic {topic} with key {key} are of the same second: "
                        "it does not give the others (maxMsgsNumBatch)"
                    )
                return
            begin, end = following

    async def _cap(self, node: Node, count: int) -> int:
        """The maximum number of messages in a broker's answer, if ``count`` may have reached it."""
        if count < _FEW:
            return _PAGE
        settings = await self._questions.fetch(node, C.GET_BROKER_CONFIG, parse_properties, what="its settings are")
        text = (settings or {}).get("maxMsgsNumBatch", "")
        return min(int(text), _PAGE) if text.isdecimal() and len(text) < 10 else _PAGE

    async def _fetch(self, node: Node, topic: str, key: str, begin: int, end: int) -> list[Record]:
        header = h.Query(
            topic=topic,
            key=key,
            max_num=_PAGE,
            begin_timestamp=max(begin, 0),
            end_timestamp=end,
            unique_key_query=True if self._unique else None,
        )
        read = _records_from(node)
        records = await self._questions.fetch(
            node, C.QUERY_MESSAGE, read, header, what="messages that it may have are", absent=_NOTHING
        )
        return records or []


async def find_by_id(
    questions: Questions, warn: Warn, message_id: str, topics: Sequence[str], search: Search
) -> list[WireMessage]:
    """Messages with an offset id, or every copy with a unique id; see :meth:`LiveMessages.by_id`."""
    chosen = Selection(topics=tuple(topics)).has_topic
    nodes = await questions.masters()
    if is_id(message_id):
        by_offset = await find_by_offset_id(questions, nodes, message_id)
        if by_offset and chosen(by_offset[0].record.topic.decode("utf-8", "surrogateescape")):
            return by_offset[: search.limit]
    tables = await fetch_topics(questions, nodes)
    places = [(node, topic) for node, table in tables.items() for topic in sorted(table) if chosen(topic)]
    pages = _Pages(questions, warn, search, unique=True)

    async def fetch(place: tuple[Node, str]) -> list[WireMessage]:
        node, topic = place
        matches = has_id(topic.encode("utf-8", "surrogateescape"), message_id)
        return await pages.find(node, topic, message_id, matches)

    copies = [message for messages in (await questions.collect(places, fetch)).values() for message in messages]
    return sorted(copies, key=lambda message: message.record.store_timestamp)[: search.limit]


async def find_copies(questions: Questions, warn: Warn, node: Node, topic: str, unique: str) -> list[Record]:
    """Messages of a topic with a unique id, of one broker.

    Raises:
        Unanswered: the broker does not answer.
    """
    pages = _Pages(questions, warn, Search(), unique=True)
    messages = await pages.find(node, topic, unique, has_id(topic.encode("utf-8", "surrogateescape"), unique))
    return [message.record for message in messages]


async def find_keyed(questions: Questions, warn: Warn, node: Node, topic: str, key: str) -> list[Record]:
    """Messages of a topic with a key, of one broker.

    Raises:
        Unanswered: the broker does not answer.
    """
    pages, name = _Pages(questions, warn, Search()), topic.encode("utf-8", "surrogateescape")
    messages = await pages.find(node, topic, key, lambda record: has_key(record, name, key))
    return [message.record for message in messages]


def _records_from(node: Node) -> Callable[[bytes], list[Record]]:
    return lambda data: list(records_in(data, node.address))


async def find_by_offset_id(questions: Questions, nodes: Sequence[Node], message_id: str) -> list[WireMessage]:
    """The message of an offset id: from the broker whose address is in the id, else from any broker that has it."""
    wanted = parse_offset_id(message_id)
    own = [node for node in nodes if node.address == f"{wanted.address}:{wanted.port}"]
    answers = await questions.collect(own or nodes, lambda node: view_record(questions, node, wanted.physical_offset))
    return [
        WireMessage(record, node)
        for node, records in answers.items()
        for record in records
        if offset_id(record.store_address, record.store_port, record.physical_offset) == message_id.upper()
    ]


async def view_record(questions: Questions, node: Node, physical_offset: int) -> list[Record]:
    """The message at a physical offset of a broker, if it has one.

    Raises:
        Unanswered: it gave no answer.
    """
    records = await questions.fetch(
        node, C.VIEW_MESSAGE_BY_ID, _records_from(node), h.Offset(offset=physical_offset),
        what="a message that it may have is", absent=(_NO_MESSAGE,),
    )  # fmt: skip
    return records or []


def _of_route(nodes: Iterable[Node], brokers: Collection[str]) -> list[Node]:
    return [node for node in nodes if node.name in brokers]


async def _read(puller: Puller, queue: MessageQueue, offset: int, count: int) -> WireRead:
    """One pull, never outside the queue's range, because brokers store a message about such a pull."""
    low, high = await puller.offsets(queue)
    nothing: GetResult[WireMessage] | None = nothing_at(offset, low, high)
    if nothing is not None:
        return WireRead(*nothing)
    pulled = await puller.pull(queue, offset, most=count)
    status = GetStatus.FOUND if pulled.messages else GetStatus.NO_MATCHED_MESSAGE
    messages = [WireMessage(message.record) for message in pulled.messages]
    return WireRead(status, pulled.next_offset, pulled.min_offset, pulled.max_offset, messages)
