"""Queues of static topics (5.x): their leader translates ids and offsets, and forwards what other brokers hold.

Source: broker.topic.TopicQueueMappingManager (buildTopicQueueMappingContext, rewriteRequestForStaticTopic),
remoting.rpc.RpcClientImpl (5.3.3, 5.5.0).
"""

from dataclasses import dataclass, replace

from formats.config.files_of_5 import LogicQueueMapping, TopicQueueMapping
from formats.errors import FormatError
from formats.fastjson.declare import Declared, T
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.static_topics import find_range, is_ended, known_end, next_range, static_offset
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext

_NEWEST = (1 << 63) - 1
_REMARK = "{}-{} does not exit in request process of current broker {}"  # as brokers spell it


@dataclass(frozen=True, slots=True)
class StaticQueue:
    """A queue of a static topic that this broker leads.

    Attributes:
        queue_id: in the topic.
        ranges: oldest first.
    """

    mapping: TopicQueueMapping
    queue_id: int
    ranges: tuple[LogicQueueMapping, ...]

    @property
    def leader(self) -> LogicQueueMapping:
        """The range that takes messages."""
        return self.ranges[-1]

    @property
    def oldest(self) -> LogicQueueMapping:
        """The first range."""
        return self.range_of(0)

    @property
    def newest(self) -> LogicQueueMapping:
        """The last range whose first offset is known."""
        return self.range_of(_NEWEST)

    def range_of(self, offset: int) -> LogicQueueMapping:
        """The range of an offset in the topic's queue.

        Raises:
            Failed: the first offset of no range is known.
        """
        item = find_range(self.ranges, offset)
        if item is None:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"{self.mapping.topic}-{self.queue_id} has no offsets yet")
        return item

    def is_here(self, item: LogicQueueMapping) -> bool:
        """Whether this broker holds a range."""
        return item.broker_name == self.mapping.broker_name


class StaticQueues:
    """Finds queues of static topics, and asks other brokers for their parts of them."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def find(
        self, topic: str, queue_id: int, logical: bool | None, *, remark: str = _REMARK, any_queue: bool = False
    ) -> StaticQueue | None:
        """A queue of a static topic; None if the topic is not static, or its physical queue is meant.

        Args:
            logical: ``lo`` of the request: False for the physical queue.
            remark: of the error: topic, queue id and broker are put in.
            any_queue: whether a negative queue id means any queue.

        Raises:
            Failed: another broker leads it.
        """
        mapping = None if logical is False else self._context.static_topics.mappings.get(topic)
        if mapping is None:
            return None
        if queue_id < 0 and any_queue:
            queue_id = min(mapping.hosted_queues, default=queue_id)
        ranges = mapping.hosted_queues.get(queue_id, ())
        if not ranges or ranges[-1].broker_name != mapping.broker_name:
            raise Failed(ResponseCode.NOT_LEADER_FOR_QUEUE, remark.format(topic, queue_id, self._context.settings.name))
        return StaticQueue(mapping, queue_id, ranges)

    async def ask(self, broker: str | None, code: RequestCode, header: Declared, *also: int) -> Command:
        """The answer of another broker.

        Args:
            also: codes that are no failure.

        Raises:
            Failed: it cannot be reached, or refuses.
        """
        context, name = self._context, broker or ""
        if context.ask_broker is None:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"cannot find addr for broker {name}")
        try:
            answer = await context.ask_broker(name, Command(code, fields=to_fields(header)))
        except RemotingError as err:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"broker {name}, which holds a part of the queue: {err}") from None
        if answer.code not in (ResponseCode.SUCCESS, *also):
            remark = f"broker {name}, which holds a part of the queue, answers {answer.code}: {answer.remark}"
            raise Failed(ResponseCode.SYSTEM_ERROR, remark)
        return answer

    async def ask_for(self, declared: type[T], broker: str | None, code: RequestCode, header: Declared) -> T:
        """The header of another broker's answer.

        Raises:
            Failed: as :meth:`ask`, or the answer is not one.
        """
        return read_header(declared, await self.ask(broker, code, header))


def read_header(declared: type[T], answer: Command) -> T:
    """The header of an answer.

    Raises:
        Failed: it is not one.
    """
    try:
        return from_fields(declared, answer.fields)
    except FormatError as err:
        raise Failed(ResponseCode.SYSTEM_ERROR, f"answer of another broker: {err}") from None


def translate_pull(
    static: StaticQueue, item: LogicQueueMapping, asked: int, code: int, pulled: h.PullResponse
) -> tuple[int, h.PullResponse]:
    """(code, offsets) of the answer to a pull, for the queue of the topic.

    Behind the last message of an earlier range, consumers go on in the next one. A broker also answers that there is
    no message to an offset far behind the end of a topic that was never moved, and its consumer waits forever.

    Args:
        item: the range that was read.
        asked: the offset in its physical queue.
        code, pulled: the answer for that queue.
    """
    low, high = pulled.min_offset, pulled.max_offset
    if code == ResponseCode.SUCCESS:
        return code, translate_offsets(static, item, pulled)
    if asked < low:
        code = ResponseCode.PULL_OFFSET_MOVED if item.gen == static.oldest.gen else ResponseCode.PULL_RETRY_IMMEDIATELY
        pulled = replace(pulled, next_begin_offset=low)
    elif item.gen == static.leader.gen:
        if asked > high and code == ResponseCode.PULL_OFFSET_MOVED:
            pulled = replace(pulled, next_begin_offset=high)
    elif asked >= high:
        following = next_range(static.ranges, item)
        code = ResponseCode.PULL_NOT_FOUND if following is None else ResponseCode.PULL_RETRY_IMMEDIATELY
        if following is not None:
            start, item = following.start_offset, following
            pulled = replace(pulled, next_begin_offset=start, min_offset=start, max_offset=start)
    return code, translate_offsets(static, item, pulled)


def translate_offsets(static: StaticQueue, item: LogicQueueMapping, pulled: h.PullResponse) -> h.PullResponse:
    """The offsets of an answer, for the queue of the topic."""
    following = min(pulled.next_begin_offset, item.end_offset) if is_ended(item) else pulled.next_begin_offset
    return replace(
        pulled,
        next_begin_offset=static_offset(item, following),
        min_offset=static_offset(item, pulled.min_offset),
        max_offset=max(static_offset(item, pulled.max_offset), known_end(static.leader)),
        offset_delta=item.logic_offset - item.start_offset,
    )
