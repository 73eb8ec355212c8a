"""Reading records one at a time with the reference reader."""

from typing import NamedTuple

from formats.layouts.codes import BORN_V6, MAGIC_V1, MAGIC_V2, STORE_V6
from formats.layouts.derived import HEAD_V4_V4
from formats.message.read import HEADS, Record, read
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.tables.shapes import Table

_UNWRITTEN = bytes(1 << 16)
_AT_MAGIC = HEAD_V4_V4.offsets["magic"]
_AT_PHYSICAL_OFFSET = HEAD_V4_V4.offsets["physical_offset"]
_MAGICS = {magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2)}
_MAGIC_PREFIX = MAGIC_V1.to_bytes(4, "big", signed=True)[:3]
_LONG = 1 << 64


def walk(memory: Memory, at: int, limit: int, stop: int, crc: bool, tables: bool, table: Table) -> tuple[int, int]:
    """See :meth:`rmqtool.kernels.scan.Scan.walk`."""
    count, capacity = 0, table.shape[1]
    while count < capacity and at < stop and isinstance(record := read(memory.view, at, limit, crc=crc), Record):
        table[:, count] = row_of(record, at)
        count += 1
        at += record.total_size
    return count, at


class Row(NamedTuple):
    """One row of :class:`rmqtool.kernels.scan.Rows`, with the same fields."""

    at: int
    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_at: int
    body_length: int
    topic_at: int
    topic_length: int
    properties_at: int
    properties_length: int


def row_of(record: Record, at: int) -> Row:
    """Return the row of a record that begins at ``at``."""
    body_at = at + HEADS[record.sys_flag & (BORN_V6 | STORE_V6)].size
    topic_at = body_at + len(record.body) + record.version
    return Row(
        at,
        record.total_size,
        record.magic,
        record.body_crc,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        record.sys_flag,
        record.born_timestamp,
        record.store_timestamp,
        record.reconsume_times,
        record.prepared_transaction_offset,
        body_at,
        len(record.body),
        topic_at,
        len(record.topic),
        topic_at + len(record.topic) + 2,
        len(record.properties),
    )


def seek(memory: Memory, at: int, stop: int, physical_offset: int) -> int:
    """See :meth:`rmqtool.kernels.scan.Scan.seek`."""
    if at >= stop:
        return stop
    data = bytes(memory.view[at + _AT_MAGIC : stop + _AT_PHYSICAL_OFFSET + 8])
    zeros = data.find(_UNWRITTEN)
    hit = data.find(_MAGIC_PREFIX)
    while 0 <= hit < stop - at and not 0 <= zeros < hit:
        position = at + hit
        start = position + _AT_PHYSICAL_OFFSET
        claim = int.from_bytes(memory.view[start : start + 8], "big")
        if data[hit : hit + 4] in _MAGICS and claim == (physical_offset + position) % _LONG:
            return position
        hit = data.find(_MAGIC_PREFIX, hit + 1)
    return stop
