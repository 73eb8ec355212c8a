"""Read a queue as a consumer would: status, next offset, messages.

Source: store.DefaultMessageStore.getMessage; store-engine 5.1.
"""

import os
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from rmqtool.kernels.tables.limit import Limit
from rmqtool.rules.releases import Release
from rmqtool.rules.statuses import GetStatus
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import UNIT
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.batch import AnyQueue, BatchQueue, PlainQueue
from rmqtool.store.queues.reader import QueueEntry
from rmqtool.store.queues.rocks import RocksQueue

M = TypeVar("M")
ReadRecord: TypeAlias = Callable[[int, int], M | None]
"""Reads the message at a physical offset with a size; None if it is gone."""
_SCAN_BYTES = 16_000  # bytes of queue entries that 4.9 examines in one call, or 20 per requested message


class Limits(NamedTuple):
    """Limits of the answer to one pull (MessageStoreConfig).

    Attributes:
        in_memory: of messages that a broker assumes to be in memory.
        on_disk: of older ones.
        kept: bytes at the end of the log that are assumed to be in memory.
    """

    in_memory: Limit
    on_disk: Limit
    kept: int

    @classmethod
    def of(cls, conf: BrokerConf) -> "Limits":
        """Those of a broker's settings."""
        in_memory, on_disk = (
            Limit(conf.number(f"maxTransferBytes{where}", size), conf.number(f"maxTransferCount{where}", count))
            for where, size, count in (("OnMessageInMemory", 256 << 10, 32), ("OnMessageInDisk", 64 << 10, 8))
        )
        return cls(in_memory, on_disk, physical_memory() * conf.number("accessMessageInMemoryMaxRatio", 40) // 100)

    def within(self, messages: int) -> "Limits":
        """Those of an answer of at most this many messages."""
        near, far = (limit._replace(messages=min(limit.messages, messages)) for limit in self[:2])
        return Limits(near, far, self.kept)

    def at(self, physical_offset: int, log_end: int) -> Limit:
        """That of an answer with the message at an offset."""
        return self.on_disk if log_end - physical_offset > self.kept else self.in_memory


class GetResult(NamedTuple, Generic[M]):
    """The broker's answer to one pull."""

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[M]


class PulledRecords(NamedTuple):
    """As :class:`GetResult`, with the records of the messages in one buffer."""

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    number: int
    records: bytes


@cache
def physical_memory() -> int:
    """Bytes of RAM; a broker assumes that only the end of the log, of a part of this size, is in memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def get_message(
    log: CommitLog, queue: AnyQueue | None, offset: int, max_msg_nums: int, *, release: Release | None = None
) -> GetResult[LocatedRecord]:
    """One pull of up to ``max_msg_nums`` messages from ``offset``, without a filter, as a master answers it.

    Args:
        release: whose rule gives the queue's lowest offset; when None, that of the store.
    """
    if isinstance(queue, BatchQueue):
        low = queue.min_offset(log.min_offset, release)
        nothing: GetResult[LocatedRecord] | None = nothing_at(offset, low, queue.max_offset)
        if nothing is not None:
            return nothing
        end = log.segments.files[-1].end if log.segments.files else 0
        limits = Limits.of(log.layout.conf)
        result = select_batches(
            queue, offset, max_msg_nums, lambda at, _size: log.read(at, crc=False), low, end, limits
        )
        messages = [message for record in result.messages for message in record.messages()]
        return result._replace(messages=messages)
    return select(
        log,
        queue,
        offset,
        max_msg_nums,
        lambda at, _size: log.read(at, crc=False),
        log_end=log.segments.files[-1].end if log.segments.files else 0,
        release=release,
    )


def select(
    log: CommitLog,
    queue: PlainQueue | None,
    offset: int,
    max_msg_nums: int,
    read: ReadRecord[M],
    *,
    log_end: int,
    release: Release | None = None,
    accept: Callable[[QueueEntry], bool] | None = None,
) -> GetResult[M]:
    """Answer one pull.

    Args:
        log_end: physical offset after the newest message.
        release: as in :func:`get_message`.
        accept: the filter of the subscription, applied to the entry before the message is read.
    """
    if queue is None:
        # a look-up creates the queue in the broker's memory, so a missing queue looks like an empty one
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, [])
    low, high = queue.min_offset(log.min_offset, release), queue.max_offset
    if (nothing := nothing_at(offset, low, high)) is not None:
        return nothing
    stop, following = _pull_range(queue, offset, max_msg_nums)
    if stop is None:
        return GetResult(GetStatus.OFFSET_FOUND_NULL, following, low, high, [])
    near, far, kept = Limits.of(log.layout.conf).within(max_msg_nums)
    in_memory_from = log_end - kept
    stop = min(high, stop)
    messages: list[M] = []
    total, skip_to = 0, -1
    status, following = GetStatus.NO_MATCHED_MESSAGE, offset
    for queue_offset, unit in queue.units(offset, stop):
        physical_offset, size = unit[0], unit[1]
        if physical_offset < skip_to:
            following = queue_offset + 1
            continue
        most_bytes, most_messages = near if physical_offset >= in_memory_from else far
        if messages and (len(messages) >= most_messages or total + size > most_bytes):
            break
        following = queue_offset + 1
        if accept is not None and not accept(QueueEntry(queue_offset, *unit[:3])):
            continue
        message = read(physical_offset, size)
        if message is None:
            if not messages:
                status = GetStatus.MESSAGE_WAS_REMOVING
            skip_to = (physical_offset // log.file_size + 1) * log.file_size
            continue
        messages.append(message)
        total += size
        status, skip_to = GetStatus.FOUND, -1
    return GetResult(status, following, low, high, messages)


def _pull_range(queue: PlainQueue, offset: int, max_msg_nums: int) -> tuple[int | None, int]:
    """(queue offset up to which a pull reads, or None without an entry; the next offset in that case)."""
    if isinstance(queue, RocksQueue):
        # a broker reads as many units as messages, and does not continue in the next file
        return (offset + max(max_msg_nums, 1), 0) if queue.unit(offset) is not None else (None, 0)
    file = queue.segments.find(offset * UNIT)
    if file is None:
        return None, (offset * UNIT // queue.file_size + 1) * queue.file_size // UNIT
    return min(file.end // UNIT, offset + -(-max(_SCAN_BYTES, max_msg_nums * UNIT) // UNIT)), offset


def nothing_at(offset: int, low: int, high: int) -> GetResult[Any] | None:
    """The empty answer to a pull outside [low, high), or None."""
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high, [])
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high, [])
    if offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high, [])
    if offset > high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high, [])
    return None


def select_batches(
    queue: BatchQueue,
    offset: int,
    max_msg_nums: int,
    read: ReadRecord[M],
    low: int,
    log_end: int,
    limits: Limits,
    accept: Callable[[QueueEntry], bool] | None = None,
) -> GetResult[M]:
    """A pull from a batch queue (5.x only): whole records, at least one.

    A broker sends the whole first batch even if the offset is inside it, so the messages may begin before the offset:
    see :func:`first_messages`. The next offset is the one after the last batch.

    Args:
        offset: an existing offset.
        log_end, accept: as in :func:`select`.
        low: the queue's lowest offset.
    """
    high = queue.max_offset
    records: list[M] = []
    total, count, following = 0, 0, offset
    first = queue.entry(offset)
    if first is None:
        return GetResult(GetStatus.OFFSET_FOUND_NULL, high, low, high, [])
    status = GetStatus.NO_MATCHED_MESSAGE
    for entry in queue.entries(first.queue_offset):
        most_bytes, most_messages = limits.at(entry.physical_offset, log_end)
        if count and (
            count + entry.batch_num > max_msg_nums or total + entry.size > most_bytes or count >= most_messages
        ):
            break
        following = entry.queue_offset + entry.batch_num
        if accept is not None and not accept(entry):
            continue
        message = read(entry.physical_offset, entry.size)
        if message is None:
            status = status if records else GetStatus.MESSAGE_WAS_REMOVING
            continue
        records.append(message)
        total, count, status = total + entry.size, count + entry.batch_num, GetStatus.FOUND
    return GetResult(status, following, low, high, records)


def first_messages(
    result: GetResult[LocatedRecord], queue: AnyQueue | None, offset: int, count: int
) -> list[LocatedRecord]:
    """The first ``count`` messages of an answer at or after the offset."""
    if not isinstance(queue, BatchQueue):
        return result.messages
    return [message for message in result.messages if message.record.queue_offset >= offset][:count]
