"""Files that only brokers write, for tests of what reads them."""

from collections.abc import Iterable

from formats.errors import BadLength
from formats.layouts.derived import DLEDGER_ENTRY_HEAD
from formats.queues.extension import END_MARK, RESERVE, fits
from formats.variants.dledger import HEAD_SIZE, MAGIC_ENTRY


def extension_file(packed: Iterable[bytes], size: int, *, ended: bool = False) -> bytes:
    """A file beside a consume queue, of built units.

    Args:
        size: of the file, bytes.
        ended: write the end mark, as the broker does before it goes on in the next file.

    Raises:
        BadLength: a unit does not fit by the rule of :func:`fits`, or the end mark does not.
    """
    out = bytearray()
    for unit in packed:
        if not fits(len(out), len(unit), size):
            raise BadLength(len(out), f"unit of {len(unit)} bytes, {size - len(out)} left, {RESERVE} of them reserved")
        out += unit
    if ended:
        if len(out) + len(END_MARK) > size:
            raise BadLength(len(out), "no room for the end mark")
        out += END_MARK
    return bytes(out.ljust(size, b"\0"))


def dledger_entry(body: bytes, *, index: int, term: int, position: int, channel: int = 0) -> bytes:
    """Stored form of one entry. The library leaves both CRCs 0."""
    size = HEAD_SIZE + len(body)
    return DLEDGER_ENTRY_HEAD.pack(MAGIC_ENTRY, size, index, term, position, channel, 0, 0, len(body)) + body
