"""Check each record by itself: position, properties, body, transaction, store time."""

import re
from typing import Any, NamedTuple

import numpy as np

from formats.arrays import Column
from formats.errors import FormatError
from formats.message.bodies import decompress
from formats.message.properties import UNIQ_KEY, parse
from formats.message.read import HEADS, HOSTS_V6, Record
from formats.primitives import COMPRESSED, INNER_BATCH, TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_PREPARED
from formats.topics import DLQ_PREFIX, HALVES, RETRY_PREFIX, SCHEDULE
from rmqtool.store.check.common.context import Context
from rmqtool.store.disk.segments import Segment

HALF_TOPICS = {topic.encode() for topic in HALVES}
# names and separators as written by Java; readers ignore an item without a value
PROPERTIES = re.compile(rb"(?:[^\x00-\x02]+\x01[^\x02]*)?(?:\x02(?:[^\x00-\x02]+\x01[^\x02]*)?)*")


class RecordColumns(NamedTuple):
    """The fields checked, as int64 columns; ``_at`` are positions in the file (:class:`rmqtool.kernels.scan.Rows`)."""

    at: Column
    total_size: Column
    physical_offset: Column
    sys_flag: Column
    store_timestamp: Column
    prepared_transaction_offset: Column
    body_at: Column
    body_length: Column
    topic_at: Column
    topic_length: Column
    properties_at: Column
    properties_length: Column


def columns_of(rows: list[tuple[int, Record]]) -> RecordColumns:
    """Columns of (position in the file, record) pairs."""
    table = []
    for at, record in rows:
        body_at = at + HEADS[record.sys_flag & HOSTS_V6].size
        topic_at = body_at + len(record.body) + record.version
        properties_at = topic_at + len(record.topic) + 2
        table.append(
            (
                at,
                record.total_size,
                record.physical_offset,
                record.sys_flag,
                record.store_timestamp,
                record.prepared_transaction_offset,
                body_at,
                len(record.body),
                topic_at,
                len(record.topic),
                properties_at,
                len(record.properties),
            )
        )
    return RecordColumns(*np.array(table, np.int64).reshape(-1, len(RecordColumns._fields)).T)


class RecordCheck:
    """Checks everything that needs no other file.

    Attributes:
        bulk: whether compiled code is loaded, and may check plain properties.
        first_timestamp: lowest store timestamp so far; None before the first record.
        last_timestamp: highest store timestamp so far; None before the first record.
    """

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.first_timestamp: int | None = None
        self.last_timestamp: int | None = None
        self.bulk = False
        self._before: int | None = None

    def check(self, file: Segment, rows: RecordColumns) -> Column:
        """Check records of one file; returns the physical offsets of the inner batches among them."""
        name, findings = self.ctx.name(file.path), self.ctx.found
        real = file.base + rows.at
        wrong = np.flatnonzero(rows.physical_offset != real)
        if len(wrong):
            findings.many(
                "log-position",
                name,
                len(wrong),
                lambda i: {
                    "offset": int(rows.at[wrong[i]]),
                    "expected": int(real[wrong[i]]),
                    "actual": int(rows.physical_offset[wrong[i]]),
                },
            )
        self._check_times(name, rows)
        self._check_hosts(file, name, rows)
        self._check_properties(file, name, rows)
        for i in np.flatnonzero(rows.sys_flag & COMPRESSED):
            self._check_body(file, name, rows, int(i))
        for i in np.flatnonzero(rows.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT):
            self._check_transaction(file, name, rows, int(i))
        inner: Column = real[(rows.sys_flag & INNER_BATCH) != 0]
        return inner

    def _check_times(self, name: str, rows: RecordColumns) -> None:
        times = rows.store_timestamp
        before = np.empty_like(times)
        before[1:] = times[:-1]
        before[0] = times[0] if self._before is None else self._before
        back = np.flatnonzero(times < before)
        if len(back):
            self.ctx.found.many(
                "log-time-backwards",
                name,
                len(back),
                lambda i: {
                    "offset": int(rows.at[back[i]]),
                    "expected": f"{int(before[back[i]])} or later",
                    "actual": int(times[back[i]]),
                },
            )
        self._before = int(times[-1])
        lowest, highest = int(times.min()), int(times.max())
        self.first_timestamp = lowest if self.first_timestamp is None else min(self.first_timestamp, lowest)
        self.last_timestamp = highest if self.last_timestamp is None else max(self.last_timestamp, highest)

    def _check_hosts(self, file: Segment, name: str, rows: RecordColumns) -> None:
        """Check that ports, which are stored in 32 bits, fit in 16 bits."""
        data = np.frombuffer(file.view(), np.uint8)
        versions = rows.sys_flag & HOSTS_V6
        for version in HEADS:
            if not (versions == version).any():
                continue
            offsets = HEADS[version].offsets
            for port, of in (("born_port", "bornHost"), ("store_port", "storeHost")):
                places = np.where(versions == version, rows.at + offsets[port], -1)
                for i in np.flatnonzero((places >= 0) & (data[places] | data[places + 1] != 0)).tolist():
                    at = int(places[i])
                    actual = f"port {int.from_bytes(data[at : at + 4].tobytes(), 'big', signed=True)} in {of}"
                    self.ctx.found.add(
                        "log-port", name, offset=at, actual=actual, **self._message_fields(file, rows, i)
                    )

    def _check_properties(self, file: Segment, name: str, rows: RecordColumns) -> None:
        view = file.view()
        fits = PROPERTIES.fullmatch
        chosen = np.arange(len(rows.at))
        if self.bulk:
            from rmqtool.kernels.search import odd_properties

            chosen = odd_properties(view, rows.properties_at, rows.properties_length)
        for i in chosen.tolist():
            at, length = int(rows.properties_at[i]), int(rows.properties_length[i])
            if not length:
                continue
            data = bytes(view[at : at + length])
            why = None
            if fits(data) is None:
                why = "an item without name or separator"
            elif data[-1] == 0:
                why = "zero bytes at the end"
            elif not data.isascii():
                try:
                    data.decode()
                except UnicodeDecodeError as err:
                    why = f"not UTF-8 from byte {at + err.start}"
            if why:
                self.ctx.found.add("log-properties", name, offset=at, actual=why, **self._message_fields(file, rows, i))

    def _check_body(self, file: Segment, name: str, rows: RecordColumns, i: int) -> None:
        at, length = int(rows.body_at[i]), int(rows.body_length[i])
        try:
            decompress(bytes(file.view()[at : at + length]), int(rows.sys_flag[i]))
        except FormatError as err:
            self.ctx.found.add("log-body", name, offset=at, actual=err.reason, **self._message_fields(file, rows, i))

    def _check_transaction(self, file: Segment, name: str, rows: RecordColumns, i: int) -> None:
        """Look up the half message, which precedes its commit; one before the log's beginning has expired.

        The copy that a consumer sent back is still marked as committed, and does not say where the half message is.
        """
        log, half_at = self.ctx.log, int(rows.prepared_transaction_offset[i])
        fields = self._message_fields(file, rows, i)
        if half_at < log.min_offset or (not half_at and _may_be_sent_back(fields["topic"])):
            return
        half = log.read(half_at, crc=False)
        at, length = int(rows.properties_at[i]), int(rows.properties_length[i])
        key = parse(bytes(file.view()[at : at + length])).get(UNIQ_KEY)
        # brokers before 4.3 kept half messages in the topic itself, with the flag
        if half is None or (
            half.record.topic not in HALF_TOPICS and half.record.sys_flag & TRANSACTION_MASK != TRANSACTION_PREPARED
        ):
            actual = "no half message"
        elif parse(half.record.properties).get(UNIQ_KEY) != key:
            actual = "a half message with another UNIQ_KEY"
        else:
            return
        self.ctx.found.add(
            "log-prepared",
            name,
            offset=int(rows.at[i]),
            expected=f"the half message at {half_at}",
            actual=actual,
            **fields,
        )

    @staticmethod
    def _message_fields(file: Segment, rows: RecordColumns, i: int) -> dict[str, Any]:
        view, at = file.view(), int(rows.at[i])
        topic_at, length = int(rows.topic_at[i]), int(rows.topic_length[i])
        return {
            "topic": str(view[topic_at : topic_at + length], "utf-8", "replace"),
            "queueId": int.from_bytes(view[at + 12 : at + 16], "big", signed=True),
            "queueOffset": int.from_bytes(view[at + 20 : at + 28], "big", signed=True),
        }


def _may_be_sent_back(topic: str) -> bool:
    return topic == SCHEDULE or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
