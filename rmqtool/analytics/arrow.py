"""Records as Arrow record batches of :data:`rmqtool.analytics.schema.MESSAGE_SCHEMA`, in bounded memory."""

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa

from formats.bodies import decompress
from formats.errors import FormatError
from formats.ids import offset_id
from formats.message import Record
from formats.primitives import host_text
from formats.properties import KEYS, TAGS, UNIQ_KEY, parse, split_keys
from rmqtool.analytics.schema import BODY_ENCODING, MESSAGE_SCHEMA, micros
from rmqtool.analytics.splits import Split, name_of
from rmqtool.store.commit_log import Damage, Found, next_record, walk_file

BATCH_BYTES = 8 << 20  # of message after which a batch is full; the message that fills it may be any size
_BATCH_ROWS = 1 << 16
_HUGE = 1 << 30  # two bodies of this size must not meet in one column, whose offsets have 32 bits
MAX_DETAILS = 1000  # damaged ranges that are told one by one; the rest is only counted


@dataclass(frozen=True)
class Choice:
    """Which messages. Times are store times in ms since the epoch, offsets are physical; ``until``/``stop`` exclusive.

    Attributes:
        topics: exact names, or patterns with ``*``, ``?`` and ``[...]``; empty for all.
    """

    topics: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    start: int | None = None
    stop: int | None = None

    def in_range(self, physical_offset: int) -> bool:
        """Whether a physical offset is asked for."""
        return (self.start is None or physical_offset >= self.start) and (
            self.stop is None or physical_offset < self.stop
        )

    def has(self, found: Found) -> bool:
        """Whether a message is asked for."""
        time = found.record.store_timestamp
        return (
            (self.since is None or time >= self.since)
            and (self.until is None or time < self.until)
            and self.in_range(found.physical_offset)
            and (not self.topics or self._has_topic(found.record.topic))
        )

    @cached_property
    def _has_topic(self) -> Callable[[bytes], bool]:
        names = frozenset(self.topics)
        patterns = [re.compile(translate(name)) for name in names if any(c in name for c in "*?[")]

        @lru_cache(4096)
        def has(topic: bytes) -> bool:
            text = topic.decode("utf-8", "replace")
            return text in names or any(pattern.match(text) for pattern in patterns)

        return has

    def __getstate__(self) -> dict[str, Any]:
        # what is cached cannot be pickled
        return {name: value for name, value in self.__dict__.items() if name != "_has_topic"}


@dataclass(slots=True)
class Tally:
    """What reading a split has shown besides its rows.

    Attributes:
        first: byte of the file where reading began.
        next: byte where the next split must begin.
        records: all that were read, also those that were not asked for.
        bytes: of these records and of the damaged ranges.
        damaged: number of damaged ranges.
        damage: the first of them.
        not_decompressed: bodies in the rows that are given as stored.
        times_out_of_range: timestamps in the rows that became null.
    """

    first: int = 0
    next: int = 0
    records: int = 0
    rows: int = 0
    bytes: int = 0
    damaged: int = 0
    damaged_bytes: int = 0
    not_decompressed: int = 0
    times_out_of_range: int = 0
    damage: list[Damage] = field(default_factory=list)

    def add_damage(self, item: Damage) -> None:
        """Count a damaged range."""
        self.bytes += item.length
        self.damaged += 1
        self.damaged_bytes += item.length
        if len(self.damage) < MAX_DETAILS:
            self.damage.append(item)


def batches(
    split: Split, choice: Choice, tally: Tally, batch_bytes: int = BATCH_BYTES
) -> Generator[pa.RecordBatch, None, None]:
    """The messages of a split, in the order of the log.

    Args:
        tally: filled along the way; complete when the generator is exhausted.

    Raises:
        UnreadableStore: the file cannot be read.
    """
    file = split.segment()
    at = split.start if split.exact else next_record(file.view(), file.base, split.start, split.stop)
    tally.first = at
    walk = walk_file(file, at, split.stop, last=split.last)
    builder = _Builder(name_of(split.path), tally)
    while True:
        try:
            item = next(walk)
        except StopIteration as stop:
            tally.next = stop.value
            break
        if isinstance(item, Damage):
            if choice.in_range(item.physical_offset):
                tally.add_damage(item)
            continue
        tally.records += 1
        tally.bytes += item.record.total_size
        if choice.has(item):
            if builder.size and builder.size + item.record.total_size > _HUGE:
                yield builder.finish()
            builder.add(item.record, item.at, item.physical_offset)
            if builder.size >= batch_bytes or builder.rows >= _BATCH_ROWS:
                yield builder.finish()
    if builder.rows:
        yield builder.finish()
    file.release()


class _Builder:
    """Collects columns until a batch is full."""

    def __init__(self, source: str, tally: Tally) -> None:
        self._source, self._tally = source, tally
        self._rows: list[tuple[Any, ...]] = []
        self.size = 0

    @property
    def rows(self) -> int:
        return len(self._rows)

    def add(self, record: Record, at: int, physical_offset: int) -> None:
        properties = parse(record.properties)
        message_id = offset_id(record.store_address, record.store_port, physical_offset)
        error = None
        try:
            body = decompress(record.body, record.sys_flag)
        except FormatError as err:
            body, error = record.body, str(err)
            self._tally.not_decompressed += 1
        born, stored = micros(record.born_timestamp), micros(record.store_timestamp)
        self._tally.times_out_of_range += (born is None) + (stored is None)
        self.size += record.total_size - len(record.body) + len(body)
        self._rows.append(
            (
                record.topic.decode("utf-8", "replace"),
                record.queue_id,
                record.queue_offset,
                physical_offset,
                record.total_size,
                record.sys_flag,
                record.flag,
                record.body_crc,
                born,
                stored,
                host_text(record.born_address, record.born_port),
                host_text(record.store_address, record.store_port),
                record.reconsume_times,
                record.prepared_transaction_offset,
                message_id,
                properties.get(UNIQ_KEY, message_id),
                properties.get(TAGS),
                split_keys(properties.get(KEYS, "")),
                list(properties.items()),
                len(body),
                body,
                BODY_ENCODING,
                self._source,
                at,
                error,
            )
        )

    def finish(self) -> pa.RecordBatch:
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, MESSAGE_SCHEMA.types, strict=True)]
        self._tally.rows += len(self._rows)
        self._rows, self.size = [], 0
        return pa.RecordBatch.from_arrays(arrays, schema=MESSAGE_SCHEMA)
