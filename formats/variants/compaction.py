"""Compaction log, queue and positions of 5.1 and later.

Source: org.apache.rocketmq.store.kv.CompactionLog, CompactionStore, CompactionPositionMgr; store-formats 8.4. The log
holds commit-log records (:mod:`formats.message.read`) whose physical offset is their position in this log, not in the
commit log. Its queue holds one entry of :mod:`formats.queues.batch` per record, in sparse files. A file of the log and
the corresponding file of the queue have the same name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from formats.config.file import ConfigFile
from formats.errors import Truncated
from formats.fastjson.declare import Long, member
from formats.layouts.derived import HEAD_V4_V4
from formats.message import read as message
from formats.queues import batch as batch_consume_queue
from formats.versions import V5_3, Version

_FEWEST = 5  # minimum length of a log file, in queue files
_AT_PHYSICAL_OFFSET = HEAD_V4_V4.offsets["physical_offset"]  # before the first host, so the same in all heads

read_record = message.read  # a closed file may end in zeros instead of a blank, so UNWRITTEN is not damage there
read_entry = batch_consume_queue.read  # a file that was rolled early ends with an end unit (FILLER)


def queue_file_size(configured: int = 10 * 1024 * 1024) -> int:
    """Return the size of a queue file in bytes: the setting rounded down to whole entries."""
    return configured // batch_consume_queue.SIZE * batch_consume_queue.SIZE


def log_file_size(configured: int = 100 * 1024 * 1024, queue_configured: int = 10 * 1024 * 1024) -> int:
    """Return the size of a log file in bytes: a multiple of the queue file size, at least five (getCompactionLogSize).

    The setting is rounded down if it is less than half a queue file above a multiple, and otherwise up to the next
    multiple, even if it is a multiple itself.
    """
    queue_size = queue_file_size(queue_configured)
    if not queue_size:
        return configured
    count, over = divmod(configured, queue_size)
    if count < _FEWEST:
        return queue_size * _FEWEST
    return queue_size * (count if 0 < over < queue_size // 2 else count + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPositions(ConfigFile):
    """``compaction/position-checkpoint``: the queue offset up to which each queue has been compacted."""

    SINCE: ClassVar[Version] = V5_3
    empty: bool = True
    offsets: Mapping[str, Long] = member("queueOffsetMap", dict)  # by position_key

    def of(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the newest message seen by a compaction; -1 before the first compaction."""
        return self.offsets.get(position_key(topic, queue_id), -1)


def position_key(topic: str, queue_id: int) -> str:
    """Return the key of a queue in the positions."""
    return f"{topic}_{queue_id}"


def move_record(record: bytes, position: int) -> bytes:
    """Return a commit-log record as stored at ``position`` of the compaction log; ``__CRC32#`` becomes invalid.

    Raises:
        Truncated: the record ends before its physical offset.
    """
    end = _AT_PHYSICAL_OFFSET + 8
    if len(record) < end:
        raise Truncated(len(record), "record ends before its physical offset")
    return record[:_AT_PHYSICAL_OFFSET] + position.to_bytes(8, "big", signed=True) + record[end:]


def entry_for(record: message.Record, position: int, tags_code: int) -> batch_consume_queue.BatchEntry:
    """Return the queue entry for a record at ``position`` of the log."""
    return batch_consume_queue.BatchEntry(
        position, record.total_size, tags_code, record.store_timestamp, record.queue_offset, 1
    )
