"""The timer's wheel and log in the state after a broker's start: where each slot points, and where the queue continues.

A start reads the end of the timer log and makes slots point to the last units there. A slot that points beyond the end
of the log is searched once more, from its first unit on; if it still points there after that, it is left alone.

Source: store.timer.TimerMessageStore (recover, recoverAndRevise, reviseQueueOffset), TimerWheel (reviseSlot,
checkPhyPos).
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from formats.layouts.codes import MAGIC_BLANK
from formats.layouts.derived import TIMER_SLOT
from formats.variants import timer
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.timer.files import TimerFiles

if TYPE_CHECKING:
    from formats.arrays import Array

_BEFORE_END = 24  # distance from the end to the last unit's reference to its message


class StartedWheel(NamedTuple):
    """The wheel in a broker's memory after a start.

    Attributes:
        slots: record array of shape (SLOTS,) with the fields of :class:`formats.variants.timer.Slot`.
        dangling: numbers of future slots that point beyond the end of the log; of shape (slots,).
    """

    slots: "Array"
    dangling: "Array"


def read_timer(files: TimerFiles, end: int | None = None, *, exactly: bool = False) -> StartedWheel:
    """Read wheel and log like a start.

    Args:
        end: end of the timer log, if it is to be truncated earlier than by a start.
        exactly: do not search for slots that point exactly to the end, which a broker takes for valid.
    """
    end = files.end if end is None else end
    wheel = files.wheel
    slots = wheel.copy() if wheel is not None else np.zeros(timer.SLOTS, TIMER_SLOT.dtype)
    for file in files.log.files[files.recovery[0] :]:
        count = min(files.count(file), max(end - file.base, 0) // timer.UNIT_SIZE)
        _revise(slots, files, file, timer.unit_array(file.view())[:count])
        file.release()
    dangling = find_beyond_end(files, slots, end, exactly=exactly)
    if len(dangling) and (low := int(slots["first_position"][dangling].min())) < end:
        _read_again(files, slots, low, end)
        dangling = find_beyond_end(files, slots, end, exactly=exactly)
    return StartedWheel(slots, dangling)


def _read_again(files: TimerFiles, slots: "Array", low: int, end: int) -> None:
    """Read the log again from the file of a position on, skipping invalid elements."""
    first = max((number for number, file in enumerate(files.log.files) if file.base <= low), default=0)
    for file in files.log.files[first:]:
        table = timer.unit_array(file.view())[: max(end - file.base, 0) // timer.UNIT_SIZE]
        blanks = np.flatnonzero(table["magic"] == MAGIC_BLANK)
        table = table[: blanks[0]] if len(blanks) else table
        valid = timer.valid_units(table)
        early = np.flatnonzero(valid & ~timer.have_slots(table, files.precision))
        if len(early):  # a broker stops here
            table, valid = table[: early[0]], valid[: early[0]]
        _revise(slots, files, file, table, np.flatnonzero(valid))
        file.release()
        if len(early):
            return


def _revise(slots: "Array", files: TimerFiles, file: Segment, table: "Array", chosen: "Array | None" = None) -> None:
    """Make slots point to the last of these units.

    Args:
        table: units of the file from its beginning.
        chosen: numbers of the units to use; by default all.
    """
    chosen = np.arange(len(table)) if chosen is None else chosen
    if not len(chosen):
        return
    units = table[chosen]
    time = timer.slot_times(units, files.precision)
    number = time % timer.SLOTS
    order = np.argsort(number, kind="stable")
    number, time, position = number[order], time[order], file.base + timer.UNIT_SIZE * chosen[order]
    # runs of units with the same time in the same slot; a slot ends up with its last run
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


def find_beyond_end(files: TimerFiles, slots: "Array", end: int, *, exactly: bool = False) -> "Array":
    """Numbers of the slots that are in the future by the checkpoint and point beyond the end of the log.

    Args:
        exactly: exclude those that point exactly to the end.
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
    """Whether wheel or checkpoint refer to units after the end of the log."""
    if files.end < files.point.last_timer_log_flush_position:
        return True
    return files.wheel is not None and len(find_beyond_end(files, files.wheel, files.end)) > 0


def message_of_last_unit(files: TimerFiles, log: CommitLog, end: int, log_end: int) -> tuple[int, int, int, int] | None:
    """(queue id, queue offset, physical offset, size) of the message from which a start finds its queue position.

    Its reference is read at a fixed distance before the end of the timer log, whatever is there.

    Args:
        end: end of the timer log.
        log_end: end of the commit log.
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
