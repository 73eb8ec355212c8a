"""Consume queue: a plain array of 20-byte entries, one per message.

Source: org.apache.rocketmq.store.ConsumeQueue, and ConsumeQueueExt for the addresses; store-formats 3, 4.1, 4.4. Entry
``q`` of the queue is at byte ``20 * q`` of the queue's own offset space; files are named by byte offset.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from formats.errors import BadLength, Truncated
from formats.layouts.derived import CQ_ENTRY

if TYPE_CHECKING:
    from formats.arrays import Units


SIZE = CQ_ENTRY.size
FILLER_SIZE = 2**31 - 1
EXT_BOUND = -(2**31) - 1  # tags codes up to this value are addresses; tag hashes and message times are larger
_CHUNK = 1 << 16


class ConsumeEntry(NamedTuple):
    """One entry as stored."""

    physical_offset: int  # of the record's first byte in the commit log
    size: int  # of the record, bytes
    tags_code: int  # tag hash, or deliver time (ms) in the delay topic, or an extension address


FILLER = ConsumeEntry(0, FILLER_SIZE, 0)  # fills the file before the first entry if a queue begins inside a file


def is_valid(physical_offset: int, size: int) -> bool:
    """Return whether the broker accepts an entry as valid; it accepts a filler too."""
    return physical_offset >= 0 and size > 0


def read(buf: bytes | memoryview, at: int = 0) -> ConsumeEntry:
    """Read the entry at byte offset ``at``.

    Raises:
        Truncated: the buffer ends inside the entry.
    """
    if not 0 <= at <= len(buf) - SIZE:
        raise Truncated(at, "consume-queue entry ends outside its file")
    return ConsumeEntry._make(CQ_ENTRY.unpack_from(buf, at))


def entries(buf: bytes | memoryview) -> Iterator[ConsumeEntry]:
    """Iterate over the complete entries, valid or not; a partial last entry is omitted."""
    whole = memoryview(buf)[: len(buf) // SIZE * SIZE]
    return map(ConsumeEntry._make, CQ_ENTRY.iter_unpack(whole))


def as_array(buf: bytes | memoryview) -> "Units":
    """Return the complete entries as a record array of shape (n,), without copying; a partial last entry is omitted.

    Fields are those of :class:`ConsumeEntry`, big-endian as stored. The array is read-only if the buffer is.
    """
    import numpy as np

    return np.frombuffer(buf, CQ_ENTRY.dtype, count=len(buf) // SIZE)


def valid_prefix(array: "Units") -> int:
    """Return the number of entries before the first invalid one."""
    import numpy as np

    # in chunks: most files are either full or end early
    for start in range(0, len(array), _CHUNK):
        part = array[start : start + _CHUNK]
        bad = np.flatnonzero((part["physical_offset"] < 0) | (part["size"] <= 0))
        if len(bad):
            return start + int(bad[0])
    return len(array)


def is_ext_address(tags_code: int) -> bool:
    """Return whether the tags code of an entry is the address of an extension unit."""
    return tags_code <= EXT_BOUND


def ext_address(offset: int) -> int:
    """Return the tags code that points to byte ``offset`` of the queue's extension.

    Raises:
        BadLength: the offset is outside the address range.
    """
    if not 0 <= offset <= EXT_BOUND + 2**63:
        raise BadLength(0, f"extension offset {offset} has no address")
    return offset - 2**63


def real_offset(address: int) -> int:
    """Return the byte offset in the queue's extension that an address points to.

    Raises:
        BadLength: the value is not an address.
    """
    if not -(2**63) <= address <= EXT_BOUND:
        raise BadLength(0, f"{address} is not an extension address")
    return address + 2**63


def build(rows: Iterable[tuple[int, int, int]]) -> bytes:
    """Return the stored form of consecutive (physical offset, size, tags code) rows."""
    return b"".join(CQ_ENTRY.pack(*row) for row in rows)
