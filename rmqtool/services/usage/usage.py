"""Bytes and number of messages in a commit log by topic, queue, tag, group, host, store time or size.

An inner batch of 5.x counts as several messages; its bytes count once, as they cannot be split.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from formats.layouts.derived import HEAD_V4_V4
from formats.message.properties import TAGS, parse_raw
from formats.primitives import BORN_V6, address_text
from formats.topics import DLQ_PREFIX, RETRY_PREFIX
from rmqtool.kernels.scan import Rows
from rmqtool.kernels.tables.shapes import Column
from rmqtool.progress import stage
from rmqtool.rules.retention import HOUR
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.lookup.retry_names import RetryNames, retry_names
from rmqtool.services.lookup.selection import Selection
from rmqtool.services.usage.counting import Names, Sums, batches_of, count_messages, texts_of
from rmqtool.services.usage.purpose import purpose_of
from rmqtool.store.log.commit_log import CommitLog, Damage
from rmqtool.store.log.scan import FileRows, scan_log

_BORN_ADDRESS = HEAD_V4_V4.offsets["born_address"]
_QUEUE_BITS, _ANY_QUEUE = 32, 0xFFFFFFFF

Row = dict[str, Any]


@dataclass(slots=True)
class Usage:
    """Usage of a log.

    Attributes:
        rows: largest first; each has its key fields (``topic``, ``queueId``, ...), ``messages``, ``bytes`` of their
            records, and ``share``: its fraction of the bytes of all records in the log.
        messages: total of all rows; so is ``bytes``.
        log_bytes: bytes of all records, selected or not.
        damaged: number of damaged ranges.
        damaged_bytes: their length in bytes.
    """

    rows: list[Row] = field(default_factory=list)
    messages: int = 0
    bytes: int = 0
    log_bytes: int = 0
    damaged: int = 0
    damaged_bytes: int = 0


def measure(log: CommitLog, by: str, selection: Selection, warn: Warn) -> Usage:
    """Read a log once and add up messages and bytes.

    Args:
        by: one of `KINDS`.
        selection: only its topics and times are used.
        warn: called for each config file that cannot be read.
    """
    usage, names = Usage(), Names()
    kind, sums = KINDS[by](names), Sums()
    chosen = _Chosen(selection, names)
    with stage("reading the log", log.segments.bytes) as reading:
        for item in scan_log(log, crc=False):
            if isinstance(item, Damage):
                usage.damaged += 1
                usage.damaged_bytes += item.length
                continue
            rows = item.rows
            topics = names.number_at(item.view, rows.topic_at, rows.topic_length)
            usage.log_bytes += int(rows.total_size.sum())
            mask = chosen.mask(rows, topics)
            codes, counts = kind.codes(item, topics), count_messages(item)
            for further in kind.split_batches(item, topics, mask, codes, counts):
                sums.add_messages(*further)
            sums.add(codes[mask], counts[mask], rows.total_size[mask])
            reading.done = item.file.base + int(rows.at[-1]) - max(log.min_offset, 0)
    retries = retry_names(log.layout, warn)
    merged: dict[tuple[tuple[str, Any], ...], list[int]] = {}
    for code, (messages, size) in sums.by_code.items():
        fields = tuple(kind.fields(code, retries).items())
        total = merged.setdefault(fields, [0, 0])  # merges the topics of one group
        total[0] += messages
        total[1] += size
    for fields, (messages, size) in merged.items():
        share = size / usage.log_bytes if usage.log_bytes else 0.0
        usage.rows.append({**dict(fields), "messages": messages, "bytes": size, "share": round(share, 6)})
        usage.messages += messages
        usage.bytes += size
    usage.rows.sort(key=lambda row: (-row["bytes"], *(str(value) for value in row.values())))
    return usage


class _Chosen:
    """Selects records by topic and time."""

    def __init__(self, selection: Selection, names: Names) -> None:
        self._selection, self._names = selection, names
        self._topics = np.zeros(0, np.bool_)  # by number

    def mask(self, rows: Rows, topics: Column) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        selection = self._selection
        mask = (rows.store_timestamp >= selection.since) & (rows.store_timestamp < selection.until)
        if selection.topics:
            fresh = range(len(self._topics), len(self._names.numbers))
            has = [selection.has_topic(self._names.text(number)) for number in fresh]
            self._topics = np.append(self._topics, np.array(has, np.bool_))
            mask &= self._topics[topics]
        return mask


# -- keys of records -----------------------------------------------------------------------------------


class _Kind(ABC):
    """A key of records, encoded as a number.

    Args:
        names: numbers of the topics.
    """

    def __init__(self, names: Names) -> None:
        self.topics = names
        self.others = Names()

    @abstractmethod
    def codes(self, scanned: FileRows, topics: Column) -> Column:
        """The code of each record, given the numbers of their topics."""

    def split_batches(
        self, _scanned: FileRows, _topics: Column, _mask: "np.ndarray[Any, Any]", _codes: Column, _counts: Column
    ) -> Iterator[tuple[int, int]]:
        """If messages of one inner batch have different codes: leave those of the first in the columns, whose bytes
        are the batch's, and yield the codes and numbers of the others.
        """
        return iter(())

    @abstractmethod
    def fields(self, code: int, names: RetryNames) -> Row:
        """The key fields of a code."""

    def both(self, topics: Column, others: Column) -> Column:
        """Combine two numbers, the second of 32 bits, into one code."""
        return topics << _QUEUE_BITS | others & _ANY_QUEUE


class _Topic(_Kind):
    def codes(self, scanned: FileRows, topics: Column) -> Column:
        return topics

    def fields(self, code: int, names: RetryNames) -> Row:
        topic = self.topics.text(code)
        return {"topic": topic, "purpose": purpose_of(topic, names)}


class _Queue(_Kind):
    def codes(self, scanned: FileRows, topics: Column) -> Column:
        return self.both(topics, scanned.rows.queue_id)

    def fields(self, code: int, names: RetryNames) -> Row:
        queue_id = code & _ANY_QUEUE
        queue_id -= (queue_id >> 31) << 32  # a damaged record may have a negative one
        return {"topic": self.topics.text(code >> _QUEUE_BITS), "queueId": queue_id}


class _Tag(_Kind):
    def codes(self, scanned: FileRows, topics: Column) -> Column:
        rows = scanned.rows
        tags = (
            parse_raw(properties).get(TAGS.encode(), b"")
            for properties in texts_of(scanned.view, rows.properties_at, rows.properties_length)
        )
        return self.both(topics, self.others.number(tags))

    def split_batches(
        self, scanned: FileRows, topics: Column, mask: "np.ndarray[Any, Any]", codes: Column, counts: Column
    ) -> Iterator[tuple[int, int]]:
        for row, messages in batches_of(scanned, mask):
            tags = Counter(parse_raw(message.properties).get(TAGS.encode(), b"") for message in messages)
            numbers = self.both(topics[row], self.others.number(tags)).tolist()
            if numbers:
                (codes[row], counts[row]), *others = zip(numbers, tags.values(), strict=True)
                yield from others

    def fields(self, code: int, names: RetryNames) -> Row:
        tag = self.others.text(code & _ANY_QUEUE)
        return {"topic": self.topics.text(code >> _QUEUE_BITS), "tag": tag or None}


class _Group(_Topic):
    def fields(self, code: int, names: RetryNames) -> Row:
        topic = self.topics.text(code)
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return {"group": names.of(topic).group, "kind": "retry" if topic.startswith(RETRY_PREFIX) else "dlq"}
        return {"group": None, "kind": None}


class _Host(_Kind):
    def codes(self, scanned: FileRows, topics: Column) -> Column:
        rows = scanned.rows
        length = np.where(rows.sys_flag & BORN_V6, 16, 4)
        return self.others.number_at(scanned.view, rows.at + _BORN_ADDRESS, length)

    def fields(self, code: int, names: RetryNames) -> Row:
        return {"host": address_text(self.others.raw(code))}


class _Time(_Kind):
    span = HOUR

    def codes(self, scanned: FileRows, topics: Column) -> Column:
        return scanned.rows.store_timestamp // self.span * self.span

    def fields(self, code: int, names: RetryNames) -> Row:
        return {"beginTimestamp": code}


class _Day(_Time):
    span = 24 * HOUR


class _Size(_Kind):
    def codes(self, scanned: FileRows, topics: Column) -> Column:
        _fraction, bits = np.frexp((scanned.rows.total_size - 1).astype(np.float64))
        return np.left_shift(np.int64(1), bits.astype(np.int64))

    def fields(self, code: int, names: RetryNames) -> Row:
        return {"atMost": code}


KINDS: dict[str, type[_Kind]] = {
    "topic": _Topic,
    "queue": _Queue,
    "tag": _Tag,
    "group": _Group,
    "host": _Host,
    "day": _Day,
    "hour": _Time,
    "size": _Size,
}
"""Keys by which usage can be grouped; day and hour are UTC, sizes are rounded up to a power of two."""
