"""The queue offset for a time, by the rules of 4.9 and 5.3 (ConsumeQueue.getOffsetInQueueByTime; store-engine 5.3).

4.9 selects the file by modification time and returns the nearest entry; 5.3 selects it by message times and returns a
true lower (or upper) bound.
"""

from rmqtool.rules.releases import V4_9, V5_3
from rmqtool.store.layout.paths import UNIT
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import AnyQueue, BatchQueue
from rmqtool.store.queues.reader import ConsumeQueue
from rmqtool.store.queues.rocks import RocksQueue


def _store_time(log: CommitLog, queue: ConsumeQueue, queue_offset: int) -> int:
    """Store timestamp of an entry's message; -1 if the message has expired."""
    entry = queue.entry(queue_offset)
    message = log.read(entry.physical_offset, crc=False) if entry else None
    return message.record.store_timestamp if message else -1


def offset_by_time_v4(log: CommitLog, queue: ConsumeQueue, timestamp: int) -> int:
    """The entry whose store time is nearest to ``timestamp``, within the file that 4.9 would look in."""
    files = queue.segments.files
    if not files or not queue.max_offset:
        return 0
    file = next((f for f in files if f.mtime_ns // 1_000_000 >= timestamp), files[-1])
    min_offset = queue.min_offset(log.min_offset, V4_9)
    low = max(min_offset - file.base // UNIT, 0) if min_offset > file.base // UNIT else 0
    high = (min(queue.recovered.end, file.end) - file.base) // UNIT - 1
    base = file.base // UNIT
    left = right = middle = -1
    left_time = right_time = -1
    while high >= low:
        middle = (low + high) // 2
        entry = queue.entry(base + middle)
        if entry is None or entry.physical_offset < log.min_offset:
            low, left = middle + 1, middle
            continue
        time = _store_time(log, queue, base + middle)
        if time < 0:
            return 0
        if time == timestamp:
            return base + middle
        if time > timestamp:
            high, right, right_time = middle - 1, middle, time
        else:
            low, left, left_time = middle + 1, middle, time
    if left_time == -1:
        chosen = right
    elif right_time == -1:
        chosen = left
    else:
        chosen = right if abs(timestamp - left_time) > abs(timestamp - right_time) else left
    # no entry has a time: the broker's arithmetic ends at the byte before the file
    return base + chosen if chosen >= 0 else max(file.base - 1, 0) // UNIT


def offset_by_time_batches(queue: BatchQueue, timestamp: int) -> int:
    """First queue offset of the first batch at or after ``timestamp``, within the last file that begins before it.

    If all batches are earlier, that of the last batch. A batch queue's units have the times themselves, and lower and
    upper bound are the same (BatchConsumeQueue.getOffsetInQueueByTime). 0 without units, where a broker answers -1.
    """
    offset = 0
    for number, (_base, units) in enumerate(queue.runs()):
        times = units["store_timestamp"]
        if number and int(times[0]) > timestamp:
            break
        row = -1 if timestamp >= times[-1] else int((times >= timestamp).argmax())
        offset = int(units[row]["base_queue_offset"])
    return offset


def offset_by_time_rocks(queue: RocksQueue, min_physical_offset: int, timestamp: int, *, upper: bool = False) -> int:
    """As :func:`offset_by_time_v5`, by the times in the units (RocksDBConsumeQueueTable.binarySearchInCQByTime).

    Missing units count as too early.

    Args:
        min_physical_offset: where the log begins.
    """
    if queue.last is None:
        return 0
    floor, ceiling = queue.min_offset(min_physical_offset), queue.last.queue_offset
    newest, oldest = queue.unit(ceiling), queue.unit(floor)
    if newest is not None and newest.store_timestamp < timestamp:
        return ceiling if upper else ceiling + 1
    if oldest is not None and oldest.store_timestamp > timestamp:
        return 0 if upper else floor
    low, high, left, right = floor, ceiling, -1, -1
    while high >= low:
        middle = low + (high - low) // 2
        unit = queue.unit(middle)
        if unit is None or unit.physical_offset < min_physical_offset:
            low, left = middle + 1, middle if unit is not None else left
        elif unit.store_timestamp < 0:
            return 0
        elif unit.store_timestamp == timestamp:
            return _end_of_equals(queue, middle, ceiling, timestamp, upper=upper, floor=floor)
        elif unit.store_timestamp > timestamp:
            high, right = middle - 1, middle
        else:
            low, left = middle + 1, middle
    return left if upper else right


def _end_of_equals(queue: RocksQueue, at: int, ceiling: int, timestamp: int, *, upper: bool, floor: int) -> int:
    """The first, or with ``upper`` the last, of the units around ``at`` that have the same time."""
    step = 1 if upper else -1
    while floor <= at + step <= ceiling:
        unit = queue.unit(at + step)
        if unit is None or unit.store_timestamp != timestamp:
            break
        at += step
    return at


def offset_by_time(log: CommitLog, queue: AnyQueue, timestamp: int, *, upper: bool = False) -> int:
    """The offset by the rules of 5.3, for any form of queue."""
    if isinstance(queue, BatchQueue):
        return offset_by_time_batches(queue, timestamp)
    if isinstance(queue, RocksQueue):
        return offset_by_time_rocks(queue, log.min_offset, timestamp, upper=upper)
    return offset_by_time_v5(log, queue, timestamp, upper=upper)


def offset_by_time_v5(log: CommitLog, queue: ConsumeQueue, timestamp: int, *, upper: bool = False) -> int:
    """First entry at or after ``timestamp`` (lower bound), or last at or before it (upper bound).

    Later than everything: the queue's end for the lower bound, its last entry for the upper one.
    """
    low, high = queue.min_offset(log.min_offset, V5_3), queue.max_offset
    if low >= high:
        return low if high else 0
    first, last = low, high - 1
    if _store_time(log, queue, last) < timestamp:
        return last if upper else high
    if _store_time(log, queue, first) > timestamp:
        return 0 if upper and low == 0 else first
    # times ascend along a queue unless the clock was set back; a plain bisection, like the broker's
    lower, higher = first, last
    while lower <= higher:
        middle = (lower + higher) // 2
        time = _store_time(log, queue, middle)
        if time < timestamp or (upper and time == timestamp):
            lower = middle + 1
        else:
            higher = middle - 1
    return max(higher, first) if upper else min(lower, high)
