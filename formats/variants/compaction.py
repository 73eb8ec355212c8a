"""Compaction log and queue of 5.1 and later.

Source: org.apache.rocketmq.store.kv.CompactionLog, CompactionStore; store-formats 8.4. The log holds commit-log
records (:mod:`formats.message.read`) that say their position in this log instead of the commit log's; its queue holds
entries of :mod:`formats.queues.batch`, one per record, in sparse files.
"""

from formats.errors import Truncated
from formats.layouts.derived import HEAD_V4_V4
from formats.message import read as message
from formats.queues import batch as batch_consume_queue

_AT_PHYSICAL_OFFSET = HEAD_V4_V4.offsets["physical_offset"]  # before the first host: the same in all heads

read_record = message.read  # a closed file may end in zeros instead of a blank: UNWRITTEN there is no damage
read_entry = batch_consume_queue.read  # a file that was rolled early ends with an end unit: FILLER


def queue_file_size(configured: int = 10 * 1024 * 1024) -> int:
    """Bytes of a queue file: the setting rounded down to whole entries."""
    return configured // batch_consume_queue.SIZE * batch_consume_queue.SIZE


def log_file_size(configured: int = 100 * 1024 * 1024, queue_configured: int = 10 * 1024 * 1024) -> int:
    """Bytes of a log file: the setting rounded down to a multiple of the queue's file size."""
    queue_size = queue_file_size(queue_configured)
    return configured // queue_size * queue_size if queue_size else configured


def moved(record: bytes, position: int) -> bytes:
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
