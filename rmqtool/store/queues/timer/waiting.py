"""The units waiting in the wheel, found by following the chains of its slots.

A slot points to its newest unit, and each unit to the previous one of the same slot. All chains are followed at once,
file by file from the newest to the oldest, doubling the step in each round. This takes log2 of the longest chain
rounds, and memory for the units of one file plus the waiting ones.

Source: store.timer.TimerMessageStore (recoverAndRevise, dequeue), TimerWheel.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from formats.layouts.derived import TIMER_LOG_UNIT
from formats.variants import timer
from rmqtool.store.disk.segments import Segment
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.queues.timer.start import read_timer

if TYPE_CHECKING:
    from formats.arrays import Array

_NONE = np.empty(0, np.int64)


class Waiting(NamedTuple):
    """Units that have not fired, sorted by slot and position. Columns have shape (units,) unless noted.

    Attributes:
        position: position in the timer log.
        slot_time: time of the unit's slot, ms.
        units: record array with the fields of :class:`formats.variants.timer.LogUnit`, as stored.
        outside: numbers of the slots that point to no unit; of shape (slots,).
        expired: numbers of the slots that point before the first file of the log; of shape (slots,).
        broken: positions of units whose link points to no unit; of shape (links,).
        gone: positions of units whose link points before the first file of the log; of shape (links,).
        misplaced: numbers of slots that contain a time of another slot; of shape (slots,).
    """

    position: "Array"
    slot_time: "Array"
    units: "Array"
    outside: "Array"
    expired: "Array"
    broken: "Array"
    gone: "Array"
    misplaced: "Array"

    @property
    def rolled(self) -> "Array":
        """Which units are rolled when they fire, because their time is beyond the reach of the wheel."""
        marked: Array = (self.units["magic"] & timer.MAGIC_ROLL) != 0
        return marked

    @property
    def deletes(self) -> "Array":
        """Which units are recalls of another message of the same slot."""
        marked: Array = (self.units["magic"] & timer.MAGIC_DELETE) != 0
        return marked


def heads(files: TimerFiles) -> tuple["Array", "Array"]:
    """(time, position of the newest unit) of every slot after the next start: two int64 arrays (SLOTS,).

    The time is in units of the precision, 0 if the slot was never used. Units at the end of the log that are missing in
    the wheel, as after a crash, count as for a broker.
    """
    slots = read_timer(files).slots
    return slots["time"].astype(np.int64), slots["last_position"].astype(np.int64)


def find_waiting(files: TimerFiles) -> Waiting:
    """Everything that has not fired by the checkpoint; without a checkpoint, everything in the wheel.

    Raises:
        UnreadableStore: a file cannot be read.
    """
    time, last = heads(files)
    used = (time > 0) & (last >= 0)
    misplaced = timer.misplaced_slots(time)
    used[misplaced] = False
    point = files.checkpoint
    if point is not None and point.last_read_time > 0:
        read = point.last_read_time // files.precision
        used &= (time >= read) & (time - read < timer.SLOTS)
    slots = np.flatnonzero(used)
    return _follow(files, slots, last[slots], time[slots] * files.precision, misplaced)


def _follow(files: TimerFiles, slots: "Array", wanted: "Array", label: "Array", misplaced: "Array") -> Waiting:
    end = files.end
    inside = (wanted < end) & (wanted >= 0)
    outside, broken, gone = [slots[~inside]], [], []
    origin = np.where(inside, -1 - slots, 0)[inside]  # source of the link: -1 - slot, or a unit's position
    wanted, label = wanted[inside], label[inside]
    chains: list[tuple[Array, Array, Array]] = []
    for file in reversed(files.log.files):
        in_file = wanted >= file.base
        if in_file.any():
            step = _in_file(files, file, wanted[in_file], label[in_file], origin[in_file])
            chains.append((step.position, step.label, step.units))
            outside.append(-1 - step.lost[step.lost < 0])
            broken.append(step.lost[step.lost >= 0])
            keep = ~in_file
            wanted = np.concatenate((wanted[keep], step.wanted))
            label = np.concatenate((label[keep], step.wanted_label))
            origin = np.concatenate((origin[keep], step.origin))
            file.release()
    early = -1 - origin[origin < 0]
    if not files.log.files or files.log.files[0].base == 0:
        outside.append(early)
        early = _NONE
    gone.append(origin[origin >= 0])
    position = np.concatenate([part[0] for part in chains] or [_NONE])
    fires = np.concatenate([part[1] for part in chains] or [_NONE])
    units = np.concatenate([part[2] for part in chains] or [np.empty(0, TIMER_LOG_UNIT.dtype)])
    order = np.lexsort((position, fires))
    return Waiting(
        position[order],
        fires[order],
        units[order],
        np.sort(np.concatenate(outside)),
        np.sort(early),
        np.sort(np.concatenate(broken or [_NONE])),
        np.sort(np.concatenate(gone)),
        misplaced,
    )


class _Step(NamedTuple):
    """The result for one file: its units, links to older files, and sources of invalid links."""

    position: "Array"
    label: "Array"
    units: "Array"
    wanted: "Array"
    wanted_label: "Array"
    origin: "Array"
    lost: "Array"


def _in_file(files: TimerFiles, file: Segment, wanted: "Array", label: "Array", origin: "Array") -> _Step:
    table = timer.unit_array(file.view())
    end = min(len(table), max(files.end - file.base, 0) // timer.UNIT_SIZE)
    table = table[:end]
    number, rest = np.divmod(wanted - file.base, timer.UNIT_SIZE)
    good = (rest == 0) & (number < end)
    valid = timer.valid_units(table)
    good[good] = valid[number[good]]
    lost = [origin[~good]]
    number, label = number[good], label[good]

    previous = table["previous_position"].astype(np.int64)
    link, skew = np.divmod(previous - file.base, timer.UNIT_SIZE)
    own = np.arange(end)
    stays = (previous >= file.base) & (skew == 0) & (link < own)
    stays[stays] = valid[link[stays]]
    jump = np.where(stays, link, -1)
    mark = np.full(end, -1, np.int64)
    mark[number] = label
    while True:
        at = np.flatnonzero(mark >= 0)
        to = jump[at]
        at, to = at[to >= 0], to[to >= 0]
        fresh = mark[to] < 0
        if not fresh.any():
            break
        mark[to[fresh]] = mark[at[fresh]]
        more = jump >= 0
        jump[more] = jump[jump[more]]
    reached = np.flatnonzero(mark >= 0)
    before = previous[reached]
    leaves = (before >= 0) & (before < file.base)
    bad = ~stays[reached] & ~leaves & (before != timer.NOWHERE)
    lost.append(file.base + timer.UNIT_SIZE * reached[bad])
    return _Step(
        file.base + timer.UNIT_SIZE * reached,
        mark[reached],
        table[reached],
        before[leaves],
        mark[reached[leaves]],
        file.base + timer.UNIT_SIZE * reached[leaves],
        np.concatenate(lost),
    )
