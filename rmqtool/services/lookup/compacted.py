"""Compacted topics of 5.x: pulls from the compaction log, and the newest message of each key.

Source: store.DefaultMessageStore.getMessage, store.kv.CompactionLog.getMessage.
"""

from collections.abc import Collection, Iterator

from rmqtool.rules.statuses import GetStatus
from rmqtool.services.lookup.configs import Warn, topics_of
from rmqtool.services.lookup.get_message import GetResult, Limits
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.batch import open_any_queue
from rmqtool.store.queues.compaction import CompactionQueue, compaction_queues, key_of
from rmqtool.store.releases.rules import COMPACTED, topics_with


def is_compacted(layout: StoreLayout, topic: str, warn: Warn) -> bool:
    """Whether a broker answers consumers of a topic from a compaction log."""
    if not layout.conf.flag("enableCompaction", True):
        return False
    table = topics_of(layout, warn)
    return table is not None and topic in topics_with(table.topics, *COMPACTED)


def compacted_queue(layout: StoreLayout, topic: str, queue_id: int, warn: Warn) -> CompactionQueue | None:
    """The compaction log of a queue, from which its consumers are served; None if it is not compacted.

    A compacted queue without files is empty.
    """
    return CompactionQueue(layout, topic, queue_id) if is_compacted(layout, topic, warn) else None


def get_compacted(queue: CompactionQueue, offset: int, max_msg_nums: int) -> GetResult[LocatedRecord]:
    """One pull of at most ``max_msg_nums`` messages, as a master answers it: from one file, starting with the first
    message at or after the offset.
    """
    low, high = queue.min_offset, queue.max_offset
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high, [])
    if offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high, [])
    if offset > high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high if low else low, low, high, [])
    messages: list[LocatedRecord] = []
    total, following, status = 0, offset, GetStatus.NO_MATCHED_MESSAGE
    end = queue.log.files[-1].end if queue.log.files else 0
    limits = Limits.of(queue.conf)
    for _base, units in queue.runs(queue.file_of(offset)):
        rows = units[units["base_queue_offset"] >= offset].tolist()
        for position, size, _tags, _time, base, count, *_rest in rows:
            most_bytes, most = limits.at(position, end)
            if messages and (len(messages) >= max_msg_nums or total + size > most_bytes or len(messages) >= most):
                return GetResult(status, following, low, high, messages)
            following = base + count
            message = queue.at(position, size)
            if message is None:
                status = status if messages else GetStatus.MESSAGE_WAS_REMOVING
                continue
            messages.append(message)
            total, status = total + size, GetStatus.FOUND
        if rows:
            return GetResult(status, following, low, high, messages)
    return GetResult(GetStatus.OFFSET_FOUND_NULL, 0, low, high, [])


def latest(layout: StoreLayout, topic: str, keys: Collection[str] = ()) -> list[LocatedRecord]:
    """The newest message of each key of a topic, or of some keys; queue by queue, oldest first.

    Clients normally send a key to one queue. Otherwise each queue has its own newest message.
    """
    messages: list[LocatedRecord] = []
    for queue in compaction_queues(layout, topic):
        messages += [message for message in queue.latest().values() if not keys or key_of(message) in keys]
    return messages


def only_compacted(layout: StoreLayout, topic: str) -> Iterator[LocatedRecord]:
    """Messages of a topic that only its compaction log still has."""
    log = CommitLog(layout)
    for queue in compaction_queues(layout, topic):
        plain = open_any_queue(layout, topic, queue.queue_id)
        low = plain.min_offset(log.min_offset) if plain is not None else 1 << 62
        for message in queue.read():
            if message.record.queue_offset >= low:
                break
            yield message
