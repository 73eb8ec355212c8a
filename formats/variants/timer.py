"""Timer wheel, timer log and timer checkpoint of 5.x.

Source: org.apache.rocketmq.store.timer.TimerWheel, Slot, TimerLog, TimerCheckpoint; store-formats 8.1 to 8.3.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from formats.endings import Ending, UnitEnd, read_units, short_tail
from formats.errors import BadLength, Truncated
from formats.layouts.codes import MAGIC_BLANK
from formats.layouts.derived import TIMER_CHECKPOINT, TIMER_LOG_BLANK, TIMER_LOG_UNIT, TIMER_SLOT
from formats.topics import TIMER

if TYPE_CHECKING:
    from formats.arrays import Array


SLOTS = 604_800 * 2  # twice the seconds of seven days, whatever the precision
SLOT_SIZE = TIMER_SLOT.size
WHEEL_SIZE = SLOTS * SLOT_SIZE
LOG_FILE_SIZE = 100 * 1024 * 1024
UNIT_SIZE = TIMER_LOG_UNIT.size
BLANK_SIZE = TIMER_LOG_BLANK.size
CHECKPOINT_FILE_SIZE = 4096
MAGIC_DEFAULT, MAGIC_ROLL, MAGIC_DELETE = 1, 2, 4
NOWHERE = -1  # position meaning "no unit"
TOPIC, QUEUE_ID = TIMER, 0  # queue that holds waiting messages
OUT_MS, DELETE_KEY = "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY"
DELIVER_MS, DELAY_SEC, DELAY_MS = "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"
REQUESTS = DELIVER_MS, DELAY_SEC, DELAY_MS  # properties that a sender may set
ENQUEUE_MS, DEQUEUE_MS, ROLL_TIMES = "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"
WHEEL = "timerwheel"  # its file
_SNAPSHOT = re.compile(rf"{WHEEL}\.([0-9]{{1,19}})")
_CHUNK = 1 << 16  # units checked at a time


def snapshot_flag(name: str) -> int:
    """End of the timer log when a snapshot of the wheel was taken, by its file's name; -1 for another file.

    Source: TimerWheel.getMaxSnapshotFlag of 5.4 and 5.5.
    """
    match = _SNAPSHOT.fullmatch(name)
    return int(match[1]) if match is not None else -1


class Slot(NamedTuple):
    """One slot of the wheel as stored."""

    time: int  # t // precision, not milliseconds
    first_position: int  # in the timer log, bytes
    last_position: int  # the newest unit: head of the backward chain
    count: int  # type: ignore[assignment]  # messages; may be stale after recovery
    magic: int = 0


class LogUnit(NamedTuple):
    """One unit of the timer log as stored."""

    size: int
    previous_position: int  # of the unit before it in the same slot, -1 for none
    magic: int
    write_time: int  # ms
    delay: int  # ms after write_time; negative if the message was late
    physical_offset: int  # of the waiting message in the commit log
    message_size: int
    topic_hash: int  # of the real topic
    reserved: int = 0

    @property
    def deliver_time(self) -> int:
        """Time at which the unit fires, ms; with the roll bit set the message is only moved on then."""
        return self.write_time + self.delay


class TimerCheckpoint(NamedTuple):
    """Fields of ``config/timercheck``, and the bytes that follow them."""

    last_read_time: int = 0  # ms
    last_timer_log_flush_position: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    version_timestamp: int = 0  # ms
    version_counter: int = 0
    rest: bytes = bytes(CHECKPOINT_FILE_SIZE - TIMER_CHECKPOINT.size)


def slot_index(time: int, precision: int = 1000) -> int:
    """Return the number of the slot for a delivery time in ms."""
    return time // precision % SLOTS


def read_slot(buf: bytes | memoryview, index: int) -> Slot:
    """Read one slot by number.

    Raises:
        Truncated: the wheel ends before it.
    """
    at = index * TIMER_SLOT.size
    if index < 0 or at + TIMER_SLOT.size > len(buf):
        raise Truncated(max(at, 0), f"timer wheel has no slot {index}")
    return Slot._make(TIMER_SLOT.unpack_from(buf, at))


def slots(buf: bytes | memoryview) -> Iterator[tuple[int, Slot]]:
    """Yield (number, slot) for every slot that was ever used; a partial last slot is omitted."""
    whole = memoryview(buf)[: len(buf) // TIMER_SLOT.size * TIMER_SLOT.size]
    for index, fields in enumerate(TIMER_SLOT.iter_unpack(whole)):
        if any(fields):
            yield index, Slot._make(fields)


def slot_array(buf: bytes | memoryview) -> "Array":
    """Return the complete slots as a record array of shape (n,) with the fields of :class:`Slot`, without copying."""
    import numpy as np

    return np.frombuffer(buf, TIMER_SLOT.dtype, count=len(buf) // TIMER_SLOT.size)


def unit_array(buf: bytes | memoryview) -> "Array":
    """Return the units at multiples of 52 bytes as a record array of shape (n,) with the fields of :class:`LogUnit`.

    Nothing is copied or validated; :func:`valid_prefix` returns how many of the elements are units.
    """
    import numpy as np

    return np.frombuffer(buf, TIMER_LOG_UNIT.dtype, count=len(buf) // UNIT_SIZE)


def valid_units(array: "Array") -> "Array":
    """Return which elements have the size and magic of a unit, as recovery checks them: bool array of shape (n,)."""
    valid: Array = (array["size"] == UNIT_SIZE) & (array["magic"] | 0xF == 0xF)
    return valid


def slot_times(array: "Array", precision: int = 1000) -> "Array":
    """Return the slot times of units, i.e. delivery times divided by the precision: int64 array of shape (n,)."""
    import numpy as np

    times: Array = array["write_time"].astype(np.int64) + array["delay"]
    slots: Array = times // precision
    return slots


def have_slots(array: "Array", precision: int = 1000) -> "Array":
    """Return which units have a slot, i.e. do not fire before 1970: bool array of shape (n,)."""
    valid: Array = slot_times(array, precision) >= 0
    return valid


def valid_prefix(array: "Array", precision: int = 1000) -> int:
    """Return the number of units before the first element that is not a unit or has no slot, where recovery fails."""
    import numpy as np

    for start in range(0, len(array), _CHUNK):
        chunk = array[start : start + _CHUNK]
        other = np.flatnonzero(~(valid_units(chunk) & have_slots(chunk, precision)))
        if len(other):
            return start + int(other[0])
    return len(array)


def misplaced_slots(times: "Array") -> "Array":
    """Return the numbers of the slots that have the time of another slot, from the times of all: int64 array (n,)."""
    import numpy as np

    numbers: Array = np.flatnonzero((times != 0) & (times != -1) & (times % SLOTS != np.arange(len(times))))
    return numbers


def is_magic(magic: int) -> bool:
    """Return whether the broker accepts a unit's magic: only the low four bits may be set."""
    return magic | 0xF == 0xF


def read_unit(buf: bytes | memoryview, at: int, limit: int) -> LogUnit | UnitEnd:
    """Read the unit at ``at`` of a timer-log file whose readable part ends at ``limit``."""
    room = limit - at
    if room < BLANK_SIZE:
        return short_tail(buf, at, limit, "timer-log unit")
    size, zero, magic = TIMER_LOG_BLANK.unpack_from(buf, at)
    if magic == MAGIC_BLANK:
        return UnitEnd(Ending.FILLER, at, f"end-of-file blank of {size} bytes")
    if size == 0 and zero == 0 and magic == 0:
        return UnitEnd(Ending.UNWRITTEN, at, "not written")
    if size != UNIT_SIZE or not is_magic(magic):
        return UnitEnd(Ending.DAMAGED, at, f"unit of size {size} with magic 0x{magic & 0xFFFFFFFF:X}")
    if room < UNIT_SIZE:
        return UnitEnd(Ending.CUT, at, f"unit of {size} bytes, {room} left")
    return LogUnit._make(TIMER_LOG_UNIT.unpack_from(buf, at))


def units(buf: bytes | memoryview, at: int = 0) -> Iterator[tuple[int, LogUnit | UnitEnd]]:
    """Yield (byte offset, unit) in order from ``at``; the last item is the :class:`UnitEnd`."""
    return read_units(read_unit, buf, at, lambda _unit: UNIT_SIZE)


def build_slot(slot: Slot) -> bytes:
    """Return the stored form of a slot."""
    return TIMER_SLOT.pack(*slot)


def build_unit(unit: LogUnit) -> bytes:
    """Return the stored form of a unit."""
    return TIMER_LOG_UNIT.pack(*unit)


def build_blank(room: int) -> bytes:
    """Return the 16 bytes that end a file with ``room`` bytes left: too few for another unit and a blank.

    Raises:
        BadLength: a blank does not fit, or the writer would have placed a unit.
    """
    if not BLANK_SIZE <= room < UNIT_SIZE + BLANK_SIZE:
        raise BadLength(0, f"no blank ends a timer log {room} bytes before its end")
    return TIMER_LOG_BLANK.pack(room, 0, MAGIC_BLANK)


def parse_checkpoint(data: bytes | memoryview) -> TimerCheckpoint:
    """Parse ``timercheck`` of any length; a short file is padded with zeros, as in :mod:`formats.checkpoint`."""
    padded = bytes(data).ljust(CHECKPOINT_FILE_SIZE, b"\0")
    return TimerCheckpoint._make((*TIMER_CHECKPOINT.unpack_from(padded), padded[TIMER_CHECKPOINT.size :]))


def build_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """Return the stored form of ``timercheck``: 4096 bytes, or more if ``rest`` is longer."""
    head = TIMER_CHECKPOINT.pack(*checkpoint[:-1])
    return (head + checkpoint.rest).ljust(CHECKPOINT_FILE_SIZE, b"\0")
