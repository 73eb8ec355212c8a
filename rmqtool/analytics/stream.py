"""``spark.readStream.format("rocketmq")``: the messages of live stores, each once per checkpoint.

An offset is a physical offset for each store, by its path, always where a record ends. What lies between two offsets is
the same whenever it is read, so a batch that Spark repeats after a failure has the same rows.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rmqtool.analytics.source_options import number_of
from rmqtool.errors import BadValue, UnreadableStore

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtool.analytics.source import Columns
    from rmqtool.analytics.source_plan import Request
    from rmqtool.analytics.source_tables import Store
    from rmqtool.store.commit_log import CommitLog

Offsets = dict[str, int]
_NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class TailOptions:
    """Options of the stream alone.

    Attributes:
        begin: ``earliest``, ``latest``, or a physical offset for each store by its path.
        max_bytes, max_records: of log in one batch; None for no limit.
        skip_expired: go on behind what retention has taken away, instead of failing.
    """

    begin: str | Offsets = "earliest"
    max_bytes: int | None = None
    max_records: int | None = None
    skip_expired: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "TailOptions":
        """From the options of a data source.

        Raises:
            BadValue: a value that an option cannot have.
        """
        begin: str | Offsets = options.get("startingPosition", "earliest")
        if begin not in ("earliest", "latest"):
            try:
                begin = {os.path.abspath(path): int(offset) for path, offset in json.loads(str(begin)).items()}
            except (ValueError, TypeError, AttributeError):
                raise BadValue(
                    f'option startingPosition: {begin!r} is neither earliest, latest nor JSON like {{"/store": 1024}}'
                ) from None
        expired = options.get("onExpired", "fail")
        if expired not in ("fail", "skip"):
            raise BadValue(f"option onExpired: {expired!r} is neither fail nor skip")
        return cls(
            begin,
            number_of(options, "maxBytesPerTrigger", _NO_LIMIT) if "maxBytesPerTrigger" in options else None,
            number_of(options, "maxRecordsPerTrigger", _NO_LIMIT) if "maxRecordsPerTrigger" in options else None,
            expired == "skip",
        )


@dataclass
class Tail(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader. Only the table ``messages`` grows, so no other can be streamed."""

    request: "Request"
    options: TailOptions
    columns: "Columns"
    target: Offsets | None = field(default=None)

    def __post_init__(self) -> None:
        if self.request.table != "messages":
            raise BadValue(f"table {self.request.table} cannot be streamed, only messages")
        if far := [store.root for store in self.request.stores if store.uri is not None]:
            raise BadValue(f"{', '.join(far)}: a store at a URI cannot be streamed, only read")

    def initialOffset(self) -> Offsets:
        return {store.root: self._begin(store) for store in self.request.stores}

    def _begin(self, store: "Store") -> int:
        if isinstance(self.options.begin, dict):
            if store.root in self.options.begin:
                return self.options.begin[store.root]
            raise BadValue(f"option startingPosition names no position in {store.root}")
        return _end(store) if self.options.begin == "latest" else _first(store)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        if self.options.max_records is not None:
            return ReadMaxRows(self.options.max_records)
        return ReadAllAvailable()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        from rmqtool.analytics.stream_tail import Budget, frontier

        budget = Budget()
        if not isinstance(limit, ReadAllAvailable):
            budget = Budget(self.options.max_bytes, self.options.max_records)
        if isinstance(limit, ReadMaxBytes):
            budget.bytes = limit.max_bytes
        elif isinstance(limit, ReadMaxRows):
            budget.records = limit.max_rows
        stores = self.request.stores
        # with a limit not every store may have its turn: another one begins each time
        turn = sum(start.values()) % len(stores)
        found = dict(start)
        for store in (*stores[turn:], *stores[:turn]):
            log = _log(store)
            begin = start.get(store.root)
            begin = _first(store) if begin is None else begin
            if self.options.skip_expired:
                begin = max(begin, log.min_offset)
            if self.target is not None and begin >= self.target.get(store.root, 0):
                found[store.root] = begin
                continue
            reached = frontier(log, begin, budget)
            found[store.root] = reached if self.target is None else min(reached, self.target[store.root])
        return found

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = {store.root: _end(store) for store in self.request.stores}

    def reportLatestOffset(self) -> Offsets:
        return {store.root: _end(store) for store in self.request.stores}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        from rmqtool.analytics.source_plan import Piece
        from rmqtool.analytics.splits import SPLIT_BYTES, plan

        found = []
        for store in self.request.stores:
            stop = end.get(store.root, 0)
            log = _log(store)
            begin = start.get(store.root, log.min_offset)
            if begin >= stop:
                continue
            if begin < log.min_offset and not self.options.skip_expired:
                raise UnreadableStore(f"{store.root}: what lies between {begin} and {log.min_offset} has expired")
            choice = replace(self.request.wanted.choice, start=begin, stop=stop)
            for split in plan(log, begin, stop, self.request.split_bytes or SPLIT_BYTES)[0]:
                exact = replace(split, exact=split.exact or split.base + split.start == begin)
                found.append(InputPartition(Piece(store, "messages", choice, (exact,), (None,))))
        return found

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from rmqtool.analytics.source_read import Counters, read_piece

        if partition.value is None:
            return
        try:
            yield from self.columns.fitted(read_piece(partition.value, self.columns.names, Counters()))
        except UnreadableStore:
            (split,) = partition.value.splits
            if not self.options.skip_expired or os.path.exists(split.path):
                raise


def _log(store: "Store") -> "CommitLog":
    from rmqtool.store.commit_log import CommitLog

    return CommitLog(store.layout())


def _first(store: "Store") -> int:
    return max(_log(store).min_offset, 0)


def _end(store: "Store") -> int:
    from rmqtool.analytics.stream_tail import Budget, frontier

    log = _log(store)
    return frontier(log, log.segments.files[-1].base, Budget()) if log.segments.files else 0
