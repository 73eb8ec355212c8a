"""The ways in which a run of units can end: five results instead of a single -1."""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple, TypeVar

Unit = TypeVar("Unit")


class Ending(Enum):
    """Why a run of units ends."""

    CLEAN = "clean"  # exactly at the end of the buffer
    FILLER = "filler"  # the writer's end-of-file mark: continue in the next file
    UNWRITTEN = "unwritten"  # zero bytes: nothing was ever written here
    CUT = "cut"  # a unit begins and the buffer ends inside it
    DAMAGED = "damaged"  # anything else


class UnitEnd(NamedTuple):
    """End of a run of units, and the reason."""

    ending: Ending
    at: int  # byte in the buffer
    reason: str


def short_tail(buf: bytes | memoryview, at: int, limit: int, unit: str) -> UnitEnd:
    """The end for a tail too short to contain a unit: nothing left, zero bytes, or the beginning of a unit."""
    if at >= limit:
        return UnitEnd(Ending.CLEAN, at, "end of the file")
    if bytes(buf[at:limit]).strip(b"\0"):
        return UnitEnd(Ending.CUT, at, f"{limit - at} bytes left, too few for a {unit}")
    return UnitEnd(Ending.UNWRITTEN, at, "not written")


def read_units(
    read: Callable[[bytes | memoryview, int, int], Unit | UnitEnd],
    buf: bytes | memoryview,
    at: int,
    size_of: Callable[[Unit], int],
) -> Iterator[tuple[int, Unit | UnitEnd]]:
    """Yield (byte offset, unit) in order from ``at``; the last item is the :class:`UnitEnd`.

    Args:
        read: reads the unit at a byte of a buffer, which ends at the last argument.
        size_of: bytes of a unit.
    """
    limit = len(buf)
    while True:
        unit = read(buf, at, limit)
        yield at, unit
        if isinstance(unit, UnitEnd):
            return
        at += size_of(unit)
