"""Build files that only brokers write, for tests of readers."""

from collections.abc import Iterable

from formats.errors import BadLength
from formats.layouts.derived import DLEDGER_ENTRY_HEAD
from formats.queues.extension import END_MARK, RESERVE, fits
from formats.variants.dledger import HEAD_SIZE, MAGIC_ENTRY


def extension_file(packed: Iterable[bytes], size: int, *, ended: bool = False) -> bytes:
    """A queue-extension file with these units.

    Args:
        size: size of the file in bytes.
        ended: write the end mark, as a broker does before it continues in the next file.

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
    """Encode one entry. The library leaves both CRCs 0."""
    size = HEAD_SIZE + len(body)
    return DLEDGER_ENTRY_HEAD.pack(MAGIC_ENTRY, size, index, term, position, channel, 0, 0, len(body)) + body
