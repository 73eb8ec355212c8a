"""What a broker's start makes of the timer's wheel and log: where each slot leads, and where the queue goes on.

A start reads the end of the timer log and lets slots lead to the last units that it finds there. A slot that leads
behind the end of the log is looked for once more, from its first unit on; one that still leads there after that is left
as it is.

Source: store.timer.TimerMessageStore (recover, recoverAndRevise, reviseQueueOffset), TimerWheel (reviseSlot,
checkPhyPos).
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from formats.layouts.codes import MAGIC_BLANK
from formats.layouts.derived import TIMER_SLOT
from formats.variants import timer
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.timer.files import TimerFiles

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

_BEFORE_END = 24  # of the last unit: what leads to its message, and what is behind that


class Started(NamedTuple):
    """The wheel in a broker's memory.

    Attributes:
        slots: record array of shape (SLOTS,) with the fields of :class:`formats.variants.timer.Slot`.
        dangling: numbers of slots whose time is to come and that lead behind the end of the log; of shape (slots,).
    """

    slots: "Array"
    dangling: "Array"


def read_timer(files: TimerFiles, end: int | None = None, *, exactly: bool = False) -> Started:
    """Read wheel and log as a start does it.

    Args:
        end: of the timer log, where it is to be cut shorter than a start does it.
        exactly: a slot that leads just to the end is not looked for, as a broker takes it for sound.
    """
    end = files.end if end is None else end
    wheel = files.wheel
    slots = wheel.copy() if wheel is not None else np.zeros(timer.SLOTS, TIMER_SLOT.dtype)
    for file in files.log.files[files.recovery[0] :]:
        count = min(files.count(file), max(end - file.base, 0) // timer.UNIT_SIZE)
        _revise(slots, files, file, timer.unit_array(file.view())[:count])
        file.release()
    dangling = leading_behind(files, slots, end, exactly=exactly)
    if len(dangling) and (low := int(slots["first_position"][dangling].min())) < end:
        _read_again(files, slots, low, end)
        dangling = leading_behind(files, slots, end, exactly=exactly)
    return Started(slots, dangling)


def _read_again(files: TimerFiles, slots: "Array", low: int, end: int) -> None:
    """Read the log from the file of a position on, past whatever is no unit."""
    first = max((number for number, file in enumerate(files.log.files) if file.base <= low), default=0)
    for file in files.log.files[first:]:
        table = timer.unit_array(file.view())[: max(end - file.base, 0) // timer.UNIT_SIZE]
        blanks = np.flatnonzero(table["magic"] == MAGIC_BLANK)
        table = table[: blanks[0]] if len(blanks) else table
        valid = timer.valid_units(table)
        early = np.flatnonzero(valid & ~timer.have_slots(table, files.precision))
        if len(early):  # a broker stops at it
            table, valid = table[: early[0]], valid[: early[0]]
        _revise(slots, files, file, table, np.flatnonzero(valid))
        file.release()
        if len(early):
            return


def _revise(slots: "Array", files: TimerFiles, file: Segment, table: "Array", chosen: "Array | None" = None) -> None:
    """Let slots lead to the last of these units.

    Args:
        table: units of the file from its beginning on.
        chosen: numbers of those that count; all by default.
    """
    chosen = np.arange(len(table)) if chosen is None else chosen
    if not len(chosen):
        return
    units = table[chosen]
    time = timer.slot_times(units, files.precision)
    number = time % timer.SLOTS
    order = np.argsort(number, kind="stable")
    number, time, position = number[order], time[order], file.base + timer.UNIT_SIZE * chosen[order]
    # runs of units with one time in one slot; the last run of a slot is what it holds in the end
    other_slot = number[1:] != number[:-1]
    begins = np.concatenate(([0], np.flatnonzero(other_slot | (time[1:] != time[:-1])) + 1))
    ends = np.append(begins[1:], len(number)) - 1
    change = number[begins][1:] != number[begins][:-1]
    last, first = np.append(change, True), np.append(True, change)
    slot, new = number[begins[last]], time[begins[last]]
    goes_on = first[last] & (slots["time"][slot] == new)
    slots["first_position"][slot[~goes_on]] = position[begins[last]][~goes_on]
    slots["time"][slot] = new
    slots["last_position"][slot] = position[ends[last]]


def leading_behind(files: TimerFiles, slots: "Array", end: int, *, exactly: bool = False) -> "Array":
    """Numbers of slots whose time is to come by the checkpoint, and that lead behind the end of the log.

    Args:
        exactly: not those that lead just to the end.
    """
    read = files.point.last_read_time // files.precision
    beyond = np.flatnonzero(slots["last_position"] > end if exactly else slots["last_position"] >= end)
    time = slots["time"][beyond].astype(np.int64)
    coming = (time > 0) & (time % timer.SLOTS == beyond) & (time >= read)
    if read > 0:
        coming &= time - read < timer.SLOTS
    leading: Array = beyond[coming]
    return leading


def units_are_gone(files: TimerFiles) -> bool:
    """Whether wheel or checkpoint tell of units behind the end of the log."""
    if files.end < files.point.last_timer_log_flush_position:
        return True
    return files.wheel is not None and len(leading_behind(files, files.wheel, files.end)) > 0


def message_of_last_unit(files: TimerFiles, log: CommitLog, end: int, log_end: int) -> tuple[int, int, int, int] | None:
    """(queue id, queue offset, physical offset, size) of the message by which a start finds its place in the queue.

    It is what lies a fixed number of bytes before the end of the timer log, whatever that is.

    Args:
        end: of the timer log.
        log_end: of the commit log.
    """
    file = files.log.find(end - _BEFORE_END)
    if file is None:
        return None
    data = file.read(end - _BEFORE_END - file.base, 12)
    offset, size = int.from_bytes(data[:8], "big", signed=True), int.from_bytes(data[8:], "big", signed=True)
    if offset < 0 or size <= 0 or offset + size > log_end:
        return None
    message = log.read(offset, crc=False)
    if message is None or message.record.total_size > size:
        return None
    return message.record.queue_id, message.record.queue_offset, offset, size
