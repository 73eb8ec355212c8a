"""Batch consume queue of 5.x: a plain array of 46-byte entries, one per inner batch.

Source: org.apache.rocketmq.store.queue.BatchConsumeQueue and SparseConsumeQueue (the compaction queue, whose files may
end early with an end unit); store-formats 4.3. The position of an entry does not imply its queue offset: search by
``base_queue_offset``, which increases.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from formats.endings import Ending, UnitEnd, read_units, short_tail
from formats.layouts.derived import BATCH_CQ_ENTRY

if TYPE_CHECKING:
    from formats.arrays import Units


SIZE = BATCH_CQ_ENTRY.size
_CHUNK = 1 << 16


class BatchEntry(NamedTuple):
    """One entry as stored."""

    physical_offset: int  # of the inner-batch record
    size: int  # of that record, bytes
    tags_code: int
    store_timestamp: int  # ms
    base_queue_offset: int  # of the batch's first message
    batch_size: int  # messages
    compacted_offset: int = -1
    reserved: int = 0

    @property
    def next_queue_offset(self) -> int:
        """Queue offset after the batch's last message."""
        return self.base_queue_offset + self.batch_size


END_UNIT = BatchEntry(-1, 0, 0, 0, 0, 0, -1, 0)


def is_valid(entry: BatchEntry) -> bool:
    """Return whether the broker accepts an entry as valid."""
    return entry.physical_offset >= 0 and entry.size > 0 and entry.base_queue_offset >= 0 and entry.batch_size > 0


def read(buf: bytes | memoryview, at: int, limit: int) -> BatchEntry | UnitEnd:
    """Read the entry at ``at`` of a buffer whose readable part ends at ``limit``; an end unit ends a sparse file."""
    if limit - at < SIZE:
        return short_tail(buf, at, limit, "batch-consume-queue entry")
    entry = BatchEntry._make(BATCH_CQ_ENTRY.unpack_from(buf, at))
    if is_valid(entry):
        return entry
    if entry == END_UNIT:
        return UnitEnd(Ending.FILLER, at, "end unit")
    if not any(entry):
        return UnitEnd(Ending.UNWRITTEN, at, "not written")
    return UnitEnd(Ending.DAMAGED, at, "neither an entry nor an end unit")


def entries(buf: bytes | memoryview, at: int = 0) -> Iterator[tuple[int, BatchEntry | UnitEnd]]:
    """Yield (byte offset, entry) in order from ``at``; the last item is the :class:`UnitEnd`."""
    return read_units(read, buf, at, lambda _entry: SIZE)


def as_array(buf: bytes | memoryview) -> "Units":
    """Return the complete entries as a record array of shape (n,), without copying; a partial last entry is omitted."""
    import numpy as np

    return np.frombuffer(buf, BATCH_CQ_ENTRY.dtype, count=len(buf) // SIZE)


def valid_prefix(array: "Units") -> int:
    """Return the number of entries before the first invalid one."""
    import numpy as np

    for start in range(0, len(array), _CHUNK):
        part = array[start : start + _CHUNK]
        bad = (part["physical_offset"] < 0) | (part["size"] <= 0)
        bad |= (part["base_queue_offset"] < 0) | (part["batch_size"] <= 0)
        bad_units = np.flatnonzero(bad)
        if len(bad_units):
            return start + int(bad_units[0])
    return len(array)


def build(rows: Iterable[tuple[int, int, int, int, int, int, int, int]]) -> bytes:
    """Return the stored form of consecutive entries."""
    return b"".join(BATCH_CQ_ENTRY.pack(*row) for row in rows)
