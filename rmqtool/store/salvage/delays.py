"""Infer the delay levels that a store was written with from its queues, if its broker's settings are not known."""

from formats.message.read import SCHEDULE_TOPIC
from rmqtool.errors import RmqError
from rmqtool.store.disk.readable import need_readable
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.reader import ConsumeQueue, open_queue
from rmqtool.store.queues.rocks import RocksQueue
from rmqtool.store.queues.rocks_open import open_rocks_queue

_TOPIC = SCHEDULE_TOPIC.decode()
_LOOKED_AT = 64  # number of newest units examined per level
_MOST_LEVELS = 64
_NO_HASH = 1 << 31  # tags codes below this are hashes (the broker did not know the delays), not deliver times


def seen_levels(layout: StoreLayout, log: CommitLog) -> str | None:
    """A value of ``messageDelayLevel`` that gives each message the deliver time that is in its queue.

    None if that is the broker's default, or if the settings contain a value.
    """
    if layout.conf.text("messageDelayLevel"):
        return None
    levels = layout.conf.delay_levels
    seen = list(levels)
    for number in range(_MOST_LEVELS):
        delay = _delay(layout, number, log)
        if delay is not None:
            seen += seen[-1:] * (number + 1 - len(seen))
            seen[number] = delay
    return " ".join(f"{millis // 1000}s" for millis in seen) if seen != levels else None


def other_deliver_times(old: StoreLayout, new: StoreLayout) -> int:
    """Number of delayed messages whose deliver time differs between a store and a copy of it.

    Raises:
        RmqError: a queue cannot be read.
    """
    logs, others = (CommitLog(old), CommitLog(new)), 0
    for number in range(_MOST_LEVELS):
        before, after = _queue(old, number), open_queue(new, _TOPIC, number)
        if before is None or after is None:
            continue
        later = after.entries()
        now = next(later, None)
        for entry in before.entries():
            while now is not None and now.queue_offset < entry.queue_offset:
                now = next(later, None)
            if now is None:
                break
            if entry.queue_offset == now.queue_offset and _NO_HASH <= entry.tags_code != now.tags_code:
                others += _is_same(
                    *(log.read(entry.physical_offset, crc=False) for log, entry in zip(logs, (entry, now), strict=True))
                )
    return others


def _is_same(before: LocatedRecord | None, after: LocatedRecord | None) -> bool:
    """Whether two records are the same message except for its place."""
    if before is None or after is None:
        return False
    moved = before.record._replace(
        physical_offset=after.record.physical_offset,
        prepared_transaction_offset=after.record.prepared_transaction_offset,
    )
    return moved == after.record


def _queue(layout: StoreLayout, number: int) -> ConsumeQueue | RocksQueue | None:
    return open_queue(layout, _TOPIC, number) or open_rocks_queue(layout, _TOPIC, number)


def _delay(layout: StoreLayout, queue_id: int, log: CommitLog) -> int | None:
    """Milliseconds between storing and delivery, if the same for all examined messages; else None."""
    seen = set()
    try:
        need_readable(layout.files_in(layout.queue_path(_TOPIC, queue_id)))
        queue = _queue(layout, queue_id)
        if queue is None:
            return None
        for entry in queue.entries(max(queue.max_offset - _LOOKED_AT, 0)):
            message = log.read(entry.physical_offset, crc=False)
            if message is not None and message.record.topic == SCHEDULE_TOPIC and entry.tags_code >= _NO_HASH:
                seen.add(entry.tags_code - message.record.store_timestamp)
    except RmqError:  # reported elsewhere
        return None
    delay = seen.pop() if len(seen) == 1 else -1
    return delay if delay >= 0 and delay % 1000 == 0 else None
