"""Consume-queue extension: variable-size units with the real tags code, the store timestamp and a filter bit map.

Source: org.apache.rocketmq.store.ConsumeQueueExt; store-formats 4.4. Queue entries point here by
:func:`formats.queues.consume.ext_address`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from formats.endings import Ending, UnitEnd, read_units, short_tail
from formats.errors import BadLength
from formats.layouts.derived import CQ_EXT_HEAD

HEAD_SIZE = CQ_EXT_HEAD.size
MAX_SIZE = 2**15 - 1
RESERVE = 4  # bytes kept free after every unit, so that the end mark always fits
END_MARK = b"\xff\xff"  # -1 in place of a unit size: the rest of the file is unused


class ExtensionUnit(NamedTuple):
    """One unit as stored."""

    unit_size: int
    tags_code: int
    store_timestamp: int  # ms
    bit_map_size: int  # bytes; below 1 means no bit map
    bit_map: bytes


def read(buf: bytes | memoryview, at: int, limit: int) -> ExtensionUnit | UnitEnd:
    """Read the unit at ``at`` of a buffer whose readable part ends at ``limit``.

    The broker ends a file at any size below 1. Here -1 is the writer's end mark, 0 is unwritten, and other values are
    damage. A size that disagrees with the bit map's is damage too, because the broker's two readers would diverge
    there.
    """
    room = limit - at
    if room < 2:
        return short_tail(buf, at, limit, "unit")
    size = int.from_bytes(buf[at : at + 2], "big", signed=True)
    if size == -1:
        return UnitEnd(Ending.FILLER, at, "end mark")
    if size == 0:
        return UnitEnd(Ending.UNWRITTEN, at, "not written")
    if size < HEAD_SIZE:
        return UnitEnd(Ending.DAMAGED, at, f"unit size {size}")
    if size > room:
        return UnitEnd(Ending.CUT, at, f"unit of {size} bytes, {room} left")
    head = CQ_EXT_HEAD.unpack_from(buf, at)
    map_size = max(head[3], 0)
    if size != HEAD_SIZE + map_size:
        return UnitEnd(Ending.DAMAGED, at, f"unit size {size} with a bit map of {head[3]} bytes")
    return ExtensionUnit._make((*head, bytes(buf[at + HEAD_SIZE : at + size])))


def units(buf: bytes | memoryview, at: int = 0) -> Iterator[tuple[int, ExtensionUnit | UnitEnd]]:
    """Yield (byte offset, unit) in order from ``at``; the last item is the :class:`UnitEnd`."""
    return read_units(read, buf, at, lambda unit: unit.unit_size)


def build_unit(tags_code: int, store_timestamp: int, bit_map: bytes = b"") -> bytes:
    """Return the stored form of one unit.

    Raises:
        BadLength: the bit map does not fit the two-byte size field.
    """
    size = HEAD_SIZE + len(bit_map)
    if size > MAX_SIZE:
        raise BadLength(0, f"bit map of {len(bit_map)} bytes, at most {MAX_SIZE - HEAD_SIZE} fit")
    return CQ_EXT_HEAD.pack(size, tags_code, store_timestamp, len(bit_map)) + bit_map


def fits(position: int, unit_size: int, file_size: int) -> bool:
    """Return whether the broker would place a unit at ``position`` of a file; if not, it ends the file there."""
    return unit_size <= file_size - position - RESERVE
