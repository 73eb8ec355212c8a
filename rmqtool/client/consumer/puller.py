"""Pulls, and other requests about a queue (impl.consumer.PullAPIWrapper)."""

from collections.abc import Sequence
from dataclasses import dataclass

from formats.fastjson.declare import body_of
from formats.message.read import Record
from formats.model.topics import TopicConfig
from formats.remoting import headers as h
from formats.remoting.bodies import CheckClient
from formats.remoting.codes import MASTER_ID, PullFlag, RequestCode, ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue, SubscriptionData
from formats.topics import LMQ_PREFIX
from rmqtool.client.cluster.answers import body_from, header_from, require_success
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, NoRoute, NotThere
from rmqtool.client.consumer.received import Received, make_received, records_in
from rmqtool.rules.statuses import GetStatus

LOOKING = "TOOLS_CONSUMER"
"""A group that every broker has, for tools that read without consuming."""
_RESET = GetStatus.OFFSET_RESET  # an admin has reset the group's offset
_EMPTY = {
    ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED,
}  # fmt: skip


def _records_of(queue: MessageQueue, offset: int, body: bytes, answer: h.PullResponse, address: str) -> list[Record]:
    """The records of an answer at or after an offset.

    Raises:
        BadAnswer: they are not messages of the queue in order, up to the answer's next offset.
    """
    topic, queue_id, delta = queue.topic.encode(), queue.queue_id, answer.offset_delta or 0
    # a light queue refers to messages of other queues, and a static topic has queues of other brokers (5.x)
    elsewhere = queue.topic.startswith(LMQ_PREFIX) or answer.offset_delta is not None
    messages, last = [], -1
    for record in records_in(body, address):
        if delta:
            record = record._replace(queue_offset=record.queue_offset + delta)
        if not elsewhere and (record.queue_id != queue_id or record.topic != topic):
            name = record.topic.decode("utf-8", "replace")[:100]
            raise BadAnswer(f"{address}: a message of {name} queue {record.queue_id} where {queue} was asked for")
        at = record.queue_offset
        if at <= last:
            raise BadAnswer(f"{address}: a message at offset {at} of {queue} behind the one at {last}")
        last = at
        if at >= offset:  # a batch stored as one record may begin before
            messages.append(record)
    if not messages or last >= answer.next_begin_offset:
        raise BadAnswer(f"{address}: no messages from offset {offset} to {answer.next_begin_offset} of {queue}")
    return messages


def _check_moved(offset: int, answer: h.PullResponse, response: Command, address: str) -> None:
    """Validate an answer that redirects to another offset: the offset is out of range, or was reset by an admin.

    Raises:
        BadAnswer: the answer contradicts itself.
    """
    following, low, high = answer.next_begin_offset, answer.min_offset, answer.max_offset
    if response.remark == _RESET and following >= 0:
        return
    if low <= offset <= high or not max(low, 0) <= following <= max(high, 0):
        raise BadAnswer(f"{address}: sends offset {offset} to {following}, of a queue from {low} to {high}")


@dataclass(frozen=True)
class Pulled:
    """The answer to a pull.

    Attributes:
        messages: messages in order of their queue offsets.
        next_offset: the offset to continue at.
        moved: the offset was out of range; ``next_offset`` is within.
        reset: an admin has reset the group to ``next_offset``; ``moved`` is set, too.
        body: the answer itself, if it has these messages and no others; else None.
    """

    messages: Sequence[Received]
    next_offset: int
    min_offset: int
    max_offset: int
    moved: bool = False
    reset: bool = False
    body: bytes | None = None


class Puller:
    """Requests messages and offsets of queues from brokers.

    Args:
        group: the group in requests; brokers must know it, or create groups automatically.
        tags: only messages with one of these tags; empty for all.
        sql: only messages for which this SQL92 expression is true; brokers must have ``enablePropertyFilter``.
        masters: ask only masters, as slaves may lack messages; the topic need not exist yet.
        address: ask the broker there, whatever routes say: not every topic of a broker has one.

    Raises:
        ValueError: both tags and an expression.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str = LOOKING,
        tags: Sequence[str] = (),
        sql: str | None = None,
        *,
        masters: bool = False,
        address: str | None = None,
    ) -> None:
        if tags and sql is not None:
            raise ValueError("tags or an SQL expression, not both")
        self._masters, self._fixed = masters, address
        self.cluster, self.group, self._tags = cluster, group, frozenset(tags)
        self._expression = sql if sql is not None else " || ".join(tags) or "*"
        self._kind = "TAG" if sql is None else "SQL92"
        self._selects = bool(tags) or sql is not None
        self._suggested: dict[MessageQueue, int] = {}
        self._compacting: dict[str, bool] = {}
        self._checked: set[tuple[str, str]] = set()

    async def _check(self, queue: MessageQueue, address: str) -> None:
        """Let a broker validate an expression before its first use: with an invalid one it returns all messages."""
        if self._kind == "TAG" or (queue.topic, address) in self._checked:
            return
        subscription = SubscriptionData(queue.topic, self._expression, expression_type=self._kind)
        body = body_of(CheckClient(self.cluster.client_id, self.group, subscription))
        await self.cluster.ask(address, self.cluster.request(RequestCode.CHECK_CLIENT_CONFIG, body=body))
        self._checked.add((queue.topic, address))

    async def pull(
        self, queue: MessageQueue, offset: int, *, most: int = 32, wait: float = 0, commit: int = 0
    ) -> Pulled:
        """Pull messages of a queue from an offset.

        Args:
            most: maximum number of messages.
            wait: seconds that the broker may wait for the first message.
            commit: offset to commit with the pull; 0 commits nothing. Not sent to slaves.

        Raises:
            NoRoute, RemotingError: the broker is not reached, or its answer is invalid.
            NotThere: the broker skips the message at the offset, though there is no filter and it has not expired.
            BrokerError: the broker refuses.
        """
        broker_id = MASTER_ID if self._masters else self._suggested.get(queue, MASTER_ID)
        if broker_id != MASTER_ID:
            commit = 0
        address = await self._address(queue, broker_id)
        await self._check(queue, address)
        request = self._pull_request(queue, offset, most, wait, commit)
        # a broker examines held pulls every five seconds
        timeout = self.cluster.options.timeout + (wait + 6 if wait else 0)
        with self.cluster.answers_of(address):
            pulled = await self._pull_at(queue, offset, request, address, timeout)
            if pulled.messages or pulled.next_offset == offset or pulled.reset:
                return pulled
            # nothing proves that messages are gone, or that none matches the filter: accept it only if said twice
            again = await self._pull_at(queue, offset, request, address, timeout)
            if again.messages or again.next_offset == offset:
                return again
            if again.moved is not pulled.moved or (again.moved and again.next_offset != pulled.next_offset):
                raise BadAnswer(f"{address}: sends {offset} to {pulled.next_offset}, and then to {again.next_offset}")
            return min(pulled, again, key=lambda pull: pull.next_offset)

    def _pull_request(self, queue: MessageQueue, offset: int, most: int, wait: float = 0, commit: int = 0) -> Command:
        flags: int = PullFlag.SUBSCRIPTION
        if wait:
            flags |= PullFlag.SUSPEND
        if commit:
            flags |= PullFlag.COMMIT_OFFSET
        header = h.Pull(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=most,
            sys_flag=flags,
            commit_offset=commit,
            suspend_timeout_millis=round(wait * 1000),
            sub_version=0,
            subscription=self._expression,
            expression_type=self._kind,
            bname=queue.broker_name,
        )
        return self.cluster.request(RequestCode.PULL_MESSAGE, header)

    async def _pull_at(
        self, queue: MessageQueue, offset: int, request: Command, address: str, timeout: float
    ) -> Pulled:
        response = await self.cluster.call(address, request, timeout)
        if response.code != ResponseCode.SUCCESS and response.code not in _EMPTY:
            raise BrokerError(response, address)
        answer = header_from(h.PullResponse, response, address)
        self._suggested[queue] = answer.suggest_which_broker_id
        following = answer.next_begin_offset
        if response.code == ResponseCode.PULL_OFFSET_MOVED:
            _check_moved(offset, answer, response, address)
            reset = response.remark == _RESET
            return Pulled([], following, answer.min_offset, answer.max_offset, moved=True, reset=reset)
        if following < offset:
            raise BadAnswer(f"{address}: after offset {offset} goes on at {following}")
        if response.code != ResponseCode.SUCCESS:
            # behind a range of a static topic, offsets go on at the beginning of the next one
            next_range = answer.offset_delta is not None and following == answer.min_offset
            if following > offset and not (next_range or self._selects or await self._compacts(queue, address)):
                raise NotThere(f"{queue}: its broker gives no message at offset {offset}, and goes on", following)
            return Pulled([], following, answer.min_offset, answer.max_offset)
        return await self._take(queue, offset, response.body, answer, address)

    async def _take(
        self, queue: MessageQueue, offset: int, answered: bytes, answer: h.PullResponse, address: str
    ) -> Pulled:
        """The messages of an answer."""
        following = answer.next_begin_offset
        records = _records_of(queue, offset, answered, answer, address)
        count = len(records)
        if not self._selects:
            records = await self._without_gap(queue, offset, records, address)
            following = records[-1].queue_offset + 1
        messages = [make_received(queue, record) for record in records]
        if self._tags:
            messages = [message for message in messages if message.tags in self._tags]
        whole = not answer.offset_delta and len(messages) == count
        body = answered if whole and sum(record.total_size for record in records) == len(answered) else None
        return Pulled(messages, following, answer.min_offset, answer.max_offset, body=body)

    async def _without_gap(self, queue: MessageQueue, offset: int, records: list[Record], address: str) -> list[Record]:
        """The contiguous records from the offset on; messages after a gap are requested again.

        Raises:
            NotThere: the first is not at the offset, in a queue that has all of its messages.
        """
        if records and records[-1].queue_offset - offset == len(records) - 1:
            return records
        if records and await self._compacts(queue, address):
            return records
        contiguous = sum(1 for at, record in enumerate(records, offset) if record.queue_offset == at)
        if not contiguous:
            first = records[0].queue_offset if records else offset + 1
            raise NotThere(f"{queue}: its broker gives no message at offset {offset}, but those from {first} on", first)
        return records[:contiguous]

    async def _compacts(self, queue: MessageQueue, address: str) -> bool:
        """Whether the topic is compacted (5.x), so that offsets may be missing."""
        if (compacted := self._compacting.get(queue.topic)) is None:
            request = self.cluster.request(RequestCode.GET_TOPIC_CONFIG, h.Topic(topic=queue.topic))
            try:
                response = await self.cluster.ask(address, request)
                attributes = body_from(TopicConfig, response, address).attributes or {}
            except BrokerError:  # a 4.9 broker, or not permitted
                attributes = {}
            compacted = self._compacting[queue.topic] = attributes.get("cleanup.policy") == "COMPACTION"
        return compacted

    async def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset of a queue, and the offset after its last message.

        Raises:
            NoRoute, RemotingError, BrokerError: the broker does not answer.
        """
        header = h.Queue(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        low, high = await self._offset(queue, RequestCode.GET_MIN_OFFSET, header), await self.end(queue)
        if low > high:
            raise BadAnswer(f"{queue}: begins at offset {low} and ends at {high}, says its broker")
        return low, high

    async def end(self, queue: MessageQueue) -> int:
        """The offset after the last message of a queue.

        Raises:
            NoRoute, RemotingError, BrokerError: the broker does not answer.
        """
        header = h.Queue(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, header)

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset of the first message stored at or after a time (ms); brokers of 4.9 may return an earlier one.

        Raises:
            NoRoute, RemotingError, BrokerError: the broker does not answer.
        """
        header = h.QueueTime(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp, bname=queue.broker_name)
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset of the group, or None. Brokers return 0 for a queue that still has its first message.

        Raises:
            NoRoute, RemotingError, BrokerError: the broker does not answer.
        """
        header = h.GroupQueue(
            consumer_group=self.group, topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        try:
            return await self._offset(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except BrokerError as err:
            if err.code == ResponseCode.QUERY_NOT_FOUND and self._master_of(queue) == err.address:
                return None
            raise  # a slave may not know it yet

    def is_master(self, queue: MessageQueue) -> bool:
        """Whether a queue's master is known; otherwise a slave answers, which may lack messages."""
        return self._master_of(queue) is not None

    def _master_of(self, queue: MessageQueue) -> str | None:
        try:
            return self.cluster.address(queue.broker_name)
        except NoRoute:
            return None

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit the group's offset; the broker has it when this returns.

        Raises:
            NoRoute, RemotingError, BrokerError: the offset was not committed.
        """
        await self.cluster.ask(await self._address(queue), self._commit_request(queue, offset))

    def _commit_request(self, queue: MessageQueue, offset: int) -> Command:
        header = h.Commit(
            consumer_group=self.group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset,
            bname=queue.broker_name,
        )  # fmt: skip
        return self.cluster.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def _offset(
        self, queue: MessageQueue, code: RequestCode, header: h.Queue | h.QueueTime | h.GroupQueue
    ) -> int:
        address = await self._address(queue)
        response = await self.cluster.call(address, self.cluster.request(code, header))
        with self.cluster.answers_of(address):
            offset = header_from(h.Offset, require_success(response, address), address).offset
            if offset < 0:
                raise BadAnswer(f"{address}: an offset of {offset}")
        return offset

    async def _address(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
        if self._fixed is not None:
            return self._fixed
        if self._masters:
            await self.cluster.publish_route(queue.topic)
            return self.cluster.address(queue.broker_name)
        await self.cluster.route(queue.topic)
        return self.cluster.reading_address(queue.broker_name, broker_id)
