"""Offsets of groups and of queues.

Source: broker.processor.ConsumerManageProcessor, AdminBrokerProcessor (4.9.8, 5.3.3); remoting-protocol 9.5,
message-services 13.1.
"""

from formats.config.files import ConsumerOffsets
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.server.access import rights
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.services.lookup.query_time import offset_by_time, offset_by_time_v4
from rmqtool.store.queues.reader import ConsumeQueue
from rmqtool.store.releases.rules import batch_topics_of


class OffsetRequests:
    """Requests about offsets."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    @handles(C.QUERY_CONSUMER_OFFSET, right=rights.consume)
    def find_consumer_offset(self, call: Call[h.GroupQueue, None]) -> Command:
        """Request 14."""
        header = call.header
        context, topic, queue_id = self._context, header.topic, header.queue_id
        known = context.state.offset(topic, header.consumer_group, queue_id)
        if known is not None:
            return call.answer(h.Offset(offset=known))
        # a new group begins a young queue at its first message
        zero = header.set_zero_if_not_found is not False or not context.release.is_5
        if zero and context.reading.min_offset(topic, queue_id) <= 0 and self._young(topic, queue_id):
            return call.answer(h.Offset(offset=0))
        raise Failed(ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")

    def _young(self, topic: str, queue_id: int) -> bool:
        """Whether a broker would still have the queue's first message in memory."""
        reading = self._context.reading
        queue = reading.queue(topic, queue_id)
        first = queue.entry(0) if queue is not None else None
        return first is None or reading.end - first.physical_offset <= reading.limits.kept

    @handles(C.UPDATE_CONSUMER_OFFSET, right=rights.consume)
    def commit(self, call: Call[h.Commit, None]) -> Command:
        """Request 15."""
        header = call.header
        context = self._context
        if context.release.is_5 and not context.settings.read_only:
            if header.consumer_group not in context.state.groups:
                remark = f"Group {header.consumer_group} not exist!"
                raise Failed(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            if context.state.topic(header.topic) is None:
                raise Failed(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        if (header.topic, header.consumer_group, header.queue_id) in self._context.resets:
            return call.answer(remark="Offset has been previously reset")
        self._context.state.set_offset(header.topic, header.consumer_group, header.queue_id, header.commit_offset)
        return call.answer()

    @handles(C.GET_MAX_OFFSET, right=rights.use_topic)
    def find_highest(self, call: Call[h.Queue, None]) -> Command:
        """Request 30."""
        header = call.header
        return call.answer(h.Offset(offset=self._context.reading.max_offset(header.topic, header.queue_id)))

    @handles(C.GET_MIN_OFFSET, right=rights.use_topic)
    def find_lowest(self, call: Call[h.Queue, None]) -> Command:
        """Request 31. An empty batch queue has no lowest offset."""
        header = call.header
        lowest = self._context.reading.min_offset(header.topic, header.queue_id)
        empty = not self._context.reading.max_offset(header.topic, header.queue_id)
        if empty and header.topic in batch_topics_of(self._context.state.topics):
            lowest = -1
        return call.answer(h.Offset(offset=lowest))

    @handles(C.SEARCH_OFFSET_BY_TIMESTAMP, right=rights.use_topic)
    def find_by_time(self, call: Call[h.QueueTime, None]) -> Command:
        """Request 29."""
        header = call.header
        upper = (header.boundary_type or "LOWER").upper() == "UPPER"
        offset = self.offset_at(header.topic, header.queue_id, header.timestamp, upper=upper)
        return call.answer(h.Offset(offset=offset))

    def offset_at(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """Queue offset for a store time in ms, by the rules of the release."""
        reading = self._context.reading
        queue = reading.queue(topic, queue_id)
        if queue is None:
            return 0
        if not reading.release.finds_time_bounds and isinstance(queue, ConsumeQueue):
            return offset_by_time_v4(reading.log, queue, timestamp)
        return offset_by_time(reading.log, queue, timestamp, upper=upper)

    @handles(C.GET_EARLIEST_MSG_STORETIME, right=rights.use_topic)
    def find_earliest_time(self, call: Call[h.Queue, None]) -> Command:
        """Request 32."""
        header = call.header
        reading = self._context.reading
        lowest = reading.min_offset(header.topic, header.queue_id)
        return call.answer(h.Timestamp(timestamp=reading.store_time(header.topic, header.queue_id, lowest)))

    @handles(C.GET_ALL_CONSUMER_OFFSET)
    def list_offsets(self, call: Call[None, None]) -> Command:
        """Request 43."""
        table: dict[str, dict[int, int]] = {}
        for (topic, group, queue_id), offset in self._context.state.offsets.items():
            table.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        return call.answer(body=ConsumerOffsets(offsets=table).build(self._context.release.version))

    @handles(C.GET_ALL_DELAY_OFFSET)
    def list_delay_offsets(self, call: Call[None, None]) -> Command:
        """Request 45."""
        return call.answer(body=self._context.state.delays_file())
