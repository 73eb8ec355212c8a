"""Offsets of groups and of queues.

Source: broker.processor.ConsumerManageProcessor, AdminBrokerProcessor (4.9.8, 5.3.3); remoting-protocol 9.5,
message-services 13.1.
"""

from formats.config.files import ConsumerOffsets
from formats.remoting import headers as h
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.remoting.connection import Connection
from rmqtool.server.broker.context.answers import Failed, answer, header_of
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.services.lookup.get_message import physical_memory
from rmqtool.services.lookup.query_time import offset_by_time, offset_by_time_v4
from rmqtool.store.queues.reader import ConsumeQueue
from rmqtool.store.releases.rules import batch_topics_of


class Positions:
    """The jobs of a broker around offsets."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def consumer_offset(self, _connection: Connection, request: Command) -> Command:
        """Request 14."""
        header = header_of(h.GroupQueue, request)
        context, topic, queue_id = self._context, header.topic, header.queue_id
        known = context.state.offset(topic, header.consumer_group, queue_id)
        if known is not None:
            return answer(request, h.Offset(offset=known))
        # a group that is new to a young queue begins at its first message
        zero = header.set_zero_if_not_found is not False or not context.release.is_5
        if zero and context.reading.min_offset(topic, queue_id) <= 0 and self._young(topic, queue_id):
            return answer(request, h.Offset(offset=0))
        raise Failed(ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")

    def _young(self, topic: str, queue_id: int) -> bool:
        """Whether the first message of a queue would still be in memory."""
        queue = self._context.reading.queue(topic, queue_id)
        first = queue.entry(0) if queue is not None else None
        return first is None or self._context.reading.end - first.physical_offset <= physical_memory() * 40 // 100

    def commit(self, _connection: Connection, request: Command) -> Command:
        """Request 15."""
        header = header_of(h.Commit, request)
        context = self._context
        if context.release.is_5 and not context.settings.read_only:
            if header.consumer_group not in context.state.groups:
                words = f"Group {header.consumer_group} not exist!"
                raise Failed(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, words)
            if context.state.topic(header.topic) is None:
                raise Failed(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        if (header.topic, header.consumer_group, header.queue_id) in self._context.resets:
            return answer(request, remark="Offset has been previously reset")
        self._context.state.set_offset(header.topic, header.consumer_group, header.queue_id, header.commit_offset)
        return answer(request)

    def highest(self, _connection: Connection, request: Command) -> Command:
        """Request 30."""
        header = header_of(h.Queue, request)
        return answer(request, h.Offset(offset=self._context.reading.max_offset(header.topic, header.queue_id)))

    def lowest(self, _connection: Connection, request: Command) -> Command:
        """Request 31. A batch queue that has no message yet has no lowest one either."""
        header = header_of(h.Queue, request)
        lowest = self._context.reading.min_offset(header.topic, header.queue_id)
        empty = not self._context.reading.max_offset(header.topic, header.queue_id)
        if empty and header.topic in batch_topics_of(self._context.state.topics):
            lowest = -1
        return answer(request, h.Offset(offset=lowest))

    def by_time(self, _connection: Connection, request: Command) -> Command:
        """Request 29."""
        header = header_of(h.QueueTime, request)
        upper = (header.boundary_type or "LOWER").upper() == "UPPER"
        offset = self.offset_at(header.topic, header.queue_id, header.timestamp, upper=upper)
        return answer(request, h.Offset(offset=offset))

    def offset_at(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """Queue offset for a store time in ms, by the rules of the release."""
        reading = self._context.reading
        queue = reading.queue(topic, queue_id)
        if queue is None:
            return 0
        if not reading.release.finds_time_bounds and isinstance(queue, ConsumeQueue):
            return offset_by_time_v4(reading.log, queue, timestamp)
        return offset_by_time(reading.log, queue, timestamp, upper=upper)

    def earliest_time(self, _connection: Connection, request: Command) -> Command:
        """Request 32."""
        header = header_of(h.Queue, request)
        reading = self._context.reading
        lowest = reading.min_offset(header.topic, header.queue_id)
        return answer(request, h.Timestamp(timestamp=reading.store_time(header.topic, header.queue_id, lowest)))

    def all_offsets(self, _connection: Connection, request: Command) -> Command:
        """Request 43."""
        table: dict[str, dict[int, int]] = {}
        for (topic, group, queue_id), offset in self._context.state.offsets.items():
            table.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        return answer(request, body=ConsumerOffsets(offsets=table).build(self._context.release.version))

    def delay_offsets(self, _connection: Connection, request: Command) -> Command:
        """Request 45."""
        return answer(request, body=self._context.state.delays_file())
