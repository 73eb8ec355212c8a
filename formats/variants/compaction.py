"""Compaction log, queue and positions of 5.1 and later.

Source: org.apache.rocketmq.store.kv.CompactionLog, CompactionStore, CompactionPositionMgr; store-formats 8.4. The log
holds commit-log records (:mod:`formats.message.read`) that say their position in this log instead of the commit log's;
its queue holds entries of :mod:`formats.queues.batch`, one per record, in sparse files. A file of the log and the file
of the queue that belongs to it have the same name.
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

_FEWEST = 5  # files of the queue that a file of the log is as long as
_AT_PHYSICAL_OFFSET = HEAD_V4_V4.offsets["physical_offset"]  # before the first host: the same in all heads

read_record = message.read  # a closed file may end in zeros instead of a blank: UNWRITTEN there is no damage
read_entry = batch_consume_queue.read  # a file that was rolled early ends with an end unit: FILLER


def queue_file_size(configured: int = 10 * 1024 * 1024) -> int:
    """Bytes of a queue file: the setting rounded down to whole entries."""
    return configured // batch_consume_queue.SIZE * batch_consume_queue.SIZE


def log_file_size(configured: int = 100 * 1024 * 1024, queue_configured: int = 10 * 1024 * 1024) -> int:
    """Bytes of a log file: a multiple of the queue's file size, five at least (getCompactionLogSize).

    The setting is rounded down where it is less than half a queue file over a multiple, and else to the next one: also
    where it is a multiple itself.
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
    """``compaction/position-checkpoint``: up to which queue offset each queue has been compacted."""

    SINCE: ClassVar[Version] = V5_3
    empty: bool = True
    offsets: Mapping[str, Long] = member("queueOffsetMap", dict)  # by position_key

    def of(self, topic: str, queue_id: int) -> int:
        """Queue offset of the newest message that a compaction has looked at; -1 before the first one."""
        return self.offsets.get(position_key(topic, queue_id), -1)


def position_key(topic: str, queue_id: int) -> str:
    """Name of a queue in the positions."""
    return f"{topic}_{queue_id}"


def move_record(record: bytes, position: int) -> bytes:
    """A commit-log record as the compaction log holds it at ``position``; body CRC stays right, ``__CRC32#`` does not.

    Raises:
        Truncated: the record ends before its physical offset.
    """
    end = _AT_PHYSICAL_OFFSET + 8
    if len(record) < end:
        raise Truncated(len(record), "record ends before its physical offset")
    return record[:_AT_PHYSICAL_OFFSET] + position.to_bytes(8, "big", signed=True) + record[end:]


def entry_for(record: message.Record, position: int, tags_code: int) -> batch_consume_queue.BatchEntry:
    """The queue's entry for a record at ``position`` of the log."""
    return batch_consume_queue.BatchEntry(
        position, record.total_size, tags_code, record.store_timestamp, record.queue_offset, 1
    )
