"""Offsets of groups and of queues.

Source: broker.processor.ConsumerManageProcessor, AdminBrokerProcessor (4.9.8, 5.3.3); remoting-protocol 9.5,
message-services 13.1.
"""

from collections.abc import Awaitable
from dataclasses import replace

from formats.config.files import ConsumerOffsets
from formats.config.files_of_5 import LogicQueueMapping
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.rules.static_topics import is_decided, physical_offset, static_offset, static_offset_within
from rmqtool.server.access import rights
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.broker.context.static_queues import StaticQueue, StaticQueues, read_header
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.services.lookup.query_time import offset_by_time, offset_by_time_v4
from rmqtool.store.queues.reader import ConsumeQueue
from rmqtool.store.releases.rules import batch_topics_of

_NOT_FOUND = "Not found, maybe this group consumer boot first"
_NOT_LEADER = "{}-{} is not leader in broker {}, request code 31"


class OffsetRequests:
    """Requests about offsets."""

    def __init__(self, context: BrokerContext) -> None:
        self._context, self._static = context, StaticQueues(context)

    @handles(C.QUERY_CONSUMER_OFFSET, right=rights.consume)
    def find_consumer_offset(self, call: Call[h.GroupQueue, None]) -> Command | Awaitable[Command]:
        """Request 14."""
        header = call.header
        if (static := self._static.find(header.topic, header.queue_id, header.lo)) is not None:
            if len(static.ranges) > 1 or static.leader.logic_offset != 0:
                return self._find_in_ranges(call, static)
            header = replace(header, queue_id=static.leader.queue_id)  # offsets are the same
        context, topic, queue_id = self._context, header.topic, header.queue_id
        known = context.state.offset(topic, header.consumer_group, queue_id)
        if known is not None:
            return call.answer(h.Offset(offset=known))
        # a new group begins a young queue at its first message
        zero = header.set_zero_if_not_found is not False or not context.release.is_5
        if zero and context.reading.min_offset(topic, queue_id) <= 0 and self._young(topic, queue_id):
            return call.answer(h.Offset(offset=0))
        raise Failed(ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")

    async def _find_in_ranges(self, call: Call[h.GroupQueue, None], static: StaticQueue) -> Command:
        """The offset in the newest range that has one."""
        header = call.header
        for item in reversed(static.ranges):
            place = replace(header, queue_id=item.queue_id, bname=item.broker_name, lo=False)
            if static.is_here(item):
                known = self._context.state.offset(header.topic, header.consumer_group, item.queue_id)
            else:
                asked = replace(place, set_zero_if_not_found=False)
                missing = ResponseCode.QUERY_NOT_FOUND
                answer = await self._static.ask(item.broker_name, C.QUERY_CONSUMER_OFFSET, asked, missing)
                known = None if answer.code == missing else read_header(h.Offset, answer).offset
            if known is not None:
                return call.answer(h.Offset(offset=static_offset(item, known)))
        raise Failed(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND)

    def _young(self, topic: str, queue_id: int) -> bool:
        """Whether a broker would still have the queue's first message in memory."""
        reading = self._context.reading
        queue = reading.queue(topic, queue_id)
        first = queue.entry(0) if queue is not None else None
        return first is None or reading.end - first.physical_offset <= reading.limits.kept

    @handles(C.UPDATE_CONSUMER_OFFSET, right=rights.consume)
    def commit(self, call: Call[h.Commit, None]) -> Command | Awaitable[Command]:
        """Request 15."""
        header = call.header
        if (static := self._static.find(header.topic, header.queue_id, header.lo)) is not None:
            item = static.range_of(header.commit_offset)
            offset = max(physical_offset(item, header.commit_offset), 0)
            header = replace(header, queue_id=item.queue_id, commit_offset=offset)
            if not static.is_here(item):
                return self._commit_elsewhere(call, replace(header, bname=item.broker_name, lo=False))
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

    async def _commit_elsewhere(self, call: Call[h.Commit, None], header: h.Commit) -> Command:
        answer = await self._static.ask(header.bname, C.UPDATE_CONSUMER_OFFSET, header)
        return call.answer(remark=answer.remark)

    @handles(C.GET_MAX_OFFSET, right=rights.use_topic)
    def find_highest(self, call: Call[h.Queue, None]) -> Command | Awaitable[Command]:
        """Request 30."""
        header = call.header
        if (static := self._static.find(header.topic, header.queue_id, header.lo)) is not None:
            return self._find_highest(call, static)
        return call.answer(h.Offset(offset=self._context.reading.max_offset(header.topic, header.queue_id)))

    async def _find_highest(self, call: Call[h.Queue, None], static: StaticQueue) -> Command:
        item = static.newest
        return call.answer(h.Offset(offset=static_offset(item, await self._highest_of(call.header, static, item))))

    async def _highest_of(self, header: h.Queue, static: StaticQueue, item: LogicQueueMapping) -> int:
        """The physical end of a range's queue."""
        if static.is_here(item):
            return self._context.reading.max_offset(header.topic, item.queue_id)
        return (await self._static.ask_for(h.Offset, item.broker_name, C.GET_MAX_OFFSET, _at(header, item))).offset

    @handles(C.GET_MIN_OFFSET, right=rights.use_topic)
    def find_lowest(self, call: Call[h.Queue, None]) -> Command | Awaitable[Command]:
        """Request 31. An empty batch queue has no lowest offset."""
        header = call.header
        static = self._static.find(header.topic, header.queue_id, header.lo, remark=_NOT_LEADER)
        if static is not None:
            return self._find_lowest(call, static)
        lowest = self._context.reading.min_offset(header.topic, header.queue_id)
        empty = not self._context.reading.max_offset(header.topic, header.queue_id)
        if empty and header.topic in batch_topics_of(self._context.state.topics):
            lowest = -1
        return call.answer(h.Offset(offset=lowest))

    async def _find_lowest(self, call: Call[h.Queue, None], static: StaticQueue) -> Command:
        header, item = call.header, static.oldest
        if static.is_here(item):
            lowest = self._context.reading.min_offset(header.topic, item.queue_id)
        else:
            lowest = (
                await self._static.ask_for(h.Offset, item.broker_name, C.GET_MIN_OFFSET, _at(header, item))
            ).offset
        return call.answer(h.Offset(offset=static_offset_within(item, lowest)))

    @handles(C.SEARCH_OFFSET_BY_TIMESTAMP, right=rights.use_topic)
    def find_by_time(self, call: Call[h.QueueTime, None]) -> Command | Awaitable[Command]:
        """Request 29."""
        header = call.header
        if (static := self._static.find(header.topic, header.queue_id, header.lo)) is not None:
            return self._find_by_time(call, static)
        upper = (header.boundary_type or "LOWER").upper() == "UPPER"
        offset = self.offset_at(header.topic, header.queue_id, header.timestamp, upper=upper)
        return call.answer(h.Offset(offset=offset))

    async def _find_by_time(self, call: Call[h.QueueTime, None], static: StaticQueue) -> Command:
        """The offset in the oldest range that has a message of this time or later.

        A broker takes the newest range whose queue has messages, and passes over the earlier ones.
        """
        header, offset = call.header, -1
        for item in filter(is_decided, static.ranges):
            if static.is_here(item):
                upper = (header.boundary_type or "LOWER").upper() == "UPPER"
                physical = self.offset_at(header.topic, item.queue_id, header.timestamp, upper=upper)
            else:
                asked = replace(header, queue_id=item.queue_id, bname=item.broker_name, lo=False)
                physical = (
                    await self._static.ask_for(h.Offset, item.broker_name, C.SEARCH_OFFSET_BY_TIMESTAMP, asked)
                ).offset
            offset = static_offset(item, physical)
            queue = h.Queue(topic=header.topic, queue_id=header.queue_id)
            if 0 <= physical < await self._highest_of(queue, static, item):
                break
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
    def find_earliest_time(self, call: Call[h.Queue, None]) -> Command | Awaitable[Command]:
        """Request 32."""
        header = call.header
        if (static := self._static.find(header.topic, header.queue_id, header.lo)) is not None:
            item = static.oldest
            header = _at(header, item)
            if not static.is_here(item):
                return self._find_time_elsewhere(call, header)
        reading = self._context.reading
        lowest = reading.min_offset(header.topic, header.queue_id)
        return call.answer(h.Timestamp(timestamp=reading.store_time(header.topic, header.queue_id, lowest)))

    async def _find_time_elsewhere(self, call: Call[h.Queue, None], header: h.Queue) -> Command:
        return call.answer(await self._static.ask_for(h.Timestamp, header.bname, C.GET_EARLIEST_MSG_STORETIME, header))

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


def _at(header: h.Queue, item: LogicQueueMapping) -> h.Queue:
    """The same request for the physical queue of a range."""
    return replace(header, queue_id=item.queue_id, bname=item.broker_name, lo=False)
