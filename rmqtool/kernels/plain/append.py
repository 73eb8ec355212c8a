"""Encoding records one at a time with the codec for single records."""

from ctypes import string_at
from itertools import islice

from formats.errors import FormatError
from formats.layouts.codes import BORN_V6, STORE_V6
from formats.layouts.derived import BATCH_ITEM_HEAD
from formats.message.bodies import batch_items
from formats.message.build import MAX_TOPIC, PROPERTIES_LENGTH_SIZE, compose, fits, pack
from formats.message.properties import INNER
from formats.message.read import Record
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.tables.messages import BatchSize, Cells, MessageColumns, MessageRow, MessageTable

_FLAG, _BODY_AT, _BODY_LENGTH, _PROPERTIES_AT, _PROPERTIES_LENGTH = (
    MessageColumns._fields.index(name)
    for name in ("flag", "body_at", "body_length", "properties_at", "properties_length")
)
_IPV4, _IPV6 = 4, 16  # address sizes, bytes
_END = b"\x02"  # end of a property item
_INNER = INNER.encode()


def encode(
    messages: MessageTable, first: int, stop: int, more: Memory, out: Memory, room: int, physical_offset: int
) -> tuple[int, int]:
    """See :meth:`rmqtool.kernels.append.Append.encode`."""
    at, suffix = 0, bytes(more.view)
    for row in range(first, stop):
        message = MessageRow(*messages.table[:, row].tolist())
        queued = message.sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)
        queue_offset = int(messages.following[message.queue]) if queued else 0
        packed = pack(_record(messages, message, suffix, queue_offset, physical_offset + at))
        if len(packed) > out.length - at or not fits(len(packed), room - at):
            return row, at
        messages.following[message.queue] += queued
        messages.answer[:, row] = physical_offset + at, len(packed), queue_offset
        out.view[at : at + len(packed)] = packed
        at += len(packed)
    return stop, at


def _record(
    messages: MessageTable, message: MessageRow, more: bytes, queue_offset: int, physical_offset: int
) -> Record:
    topic_at, topic_length, _none = messages.topics[message.topic].tolist()
    born_at, _length, born_port = messages.hosts[message.born_host].tolist()
    store_at, _length, store_port = messages.hosts[message.store_host].tolist()
    properties = string_at(message.properties_at, message.properties_length)
    if properties and more and not properties.endswith(_END):
        properties += _END
    return compose(
        topic=string_at(topic_at, topic_length),
        queue_id=message.queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        body=string_at(message.body_at, message.body_length),
        properties=properties + more,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        born_address=string_at(born_at, _IPV6 if message.sys_flag & BORN_V6 else _IPV4),
        born_port=born_port,
        store_timestamp=message.store_timestamp,
        store_address=string_at(store_at, _IPV6 if message.sys_flag & STORE_V6 else _IPV4),
        store_port=store_port,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        version=1 if topic_length <= MAX_TOPIC[1] else 2,
        max_message_size=message.body_length,
    )


def read_batch(body: Memory, more_length: int, table: Cells) -> BatchSize:
    """See :meth:`rmqtool.kernels.append.Append.read_batch`."""
    at = stored = longest = inner = row = 0
    cells = table.array
    try:
        for item in islice(batch_items(bytes(body.view)), table.columns):
            properties_at = at + BATCH_ITEM_HEAD.size + len(item.body) + PROPERTIES_LENGTH_SIZE
            cells[_FLAG, row] = item.flag
            cells[_BODY_AT, row] = body.address + at + BATCH_ITEM_HEAD.size
            cells[_BODY_LENGTH, row] = len(item.body)
            cells[_PROPERTIES_AT, row] = body.address + properties_at
            cells[_PROPERTIES_LENGTH, row] = len(item.properties)
            separated = bool(item.properties and more_length) and not item.properties.endswith(_END)
            stored += len(item.body) + len(item.properties) + separated + more_length
            longest = max(longest, len(item.properties))
            inner += sum(entry.startswith(_INNER) for entry in item.properties.split(_END))
            at = properties_at + len(item.properties)
            row += 1
    except FormatError as err:
        return BatchSize(-1, err.at, 0, 0, 0)
    return BatchSize(row, at, stored, longest, inner)
