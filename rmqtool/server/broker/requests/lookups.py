"""Look-ups by key, id and position (broker.processor.QueryMessageProcessor, AdminBrokerProcessor; 4.9.8, 5.3.3)."""

from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.server.access import rights
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.services.lookup.query import Search
from rmqtool.services.open_store.broker_state import setting

_UNIQUE = 32  # most messages for a query by unique id (defaultQueryMaxNum)
_MOST = 64  # most messages for any other query
_ENTRIES = 4096
_BODY = 8 << 20  # most bytes of records in one answer, to fit a frame


class Lookups:
    """Requests that look messages up."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    @handles(C.QUERY_MESSAGE, right=rights.read_topic)
    def find_by_key(self, call: Call[h.Query, None]) -> Command:
        """Request 12."""
        header = call.header
        most = _UNIQUE if header.unique_key_query else max(header.max_num, 0)
        most = min(most, setting(self._context.store.layout.conf, "maxMsgsNumBatch", _MOST))
        begin = max(header.begin_timestamp, 0)
        search = Search(limit=most, begin=begin, end=header.end_timestamp, by_second=True, newest=True)
        records = self._context.reading.by_key(header.topic, header.key, search) if most else []
        parts: list[memoryview] = []
        total = 0
        for message in records:
            record = self._context.reading.record(message.physical_offset)
            if record is not None and (not parts or total + len(record) <= _BODY):
                parts.append(record)
                total += len(record)
        if not parts:
            raise Failed(ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct")
        last = records[-1]
        reply = h.Queried(
            index_last_update_timestamp=last.record.store_timestamp,
            index_last_update_phyoffset=last.physical_offset,
        )
        return call.answer(reply, b"".join(parts))

    @handles(C.VIEW_MESSAGE_BY_ID, right=rights.read_message)
    def find_by_id(self, call: Call[h.Offset, None]) -> Command:
        """Request 33."""
        offset = call.header.offset
        record = self._context.reading.record(offset)
        if record is None:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return call.answer(body=bytes(record))

    @handles(C.QUERY_CONSUME_QUEUE, right=rights.read_topic)
    def list_entries(self, call: Call[h.QueryConsumeQueue, None]) -> Command:
        """Request 321: entries of a queue."""
        header = call.header
        reading = self._context.reading
        queue = reading.queue(header.topic, header.queue_id)
        if queue is None:
            raise Failed(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!")
        low, high = reading.min_offset(header.topic, header.queue_id), queue.max_offset
        start = max(header.index, 0)
        rows = [
            b.ConsumeQueueData(physic_offset=entry.physical_offset, physic_size=entry.size, tags_code=entry.tags_code)
            for entry in queue.entries(start, min(start + max(min(header.count, _ENTRIES), 0), high))
        ]
        group = self._context.clients.consumers.get(header.consumer_group or "")
        subscription = group.subscriptions.get(header.topic) if group is not None else None
        body = b.QueueEntries(
            queue_data=rows,
            min_queue_index=low,
            max_queue_index=high,
            subscription_data=subscription,
            filter_data=None if subscription is None else "null",  # that of a filter other than tags
        )
        return call.answer(body=body)
