"""Queues in RocksDB in the state after a broker's next start: the database plus the rest of the log.

A killed broker loses what its databases had in memory, often everything; a start dispatches the log again from where
the database ends. This does the same in memory, and writes nothing.

Source: store.queue.RocksDBConsumeQueueStore (5.3.3, 5.5.0); releases-5.4-5.5 4.
"""

from collections.abc import Iterator
from functools import cached_property
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from formats.endings import Ending
from formats.layouts.derived import ROCKS_UNIT
from formats.queues.rocks import RocksOffset, RocksUnit
from rmqtool.store.config.release import release_of
from rmqtool.store.dispatch.light import light_queue_id
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.rocksdb import Database
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.returning import Returning
from rmqtool.store.queues.rocks import RocksQueue, built_up_to, is_name, queue_database, queue_names

if TYPE_CHECKING:
    from formats.arrays import Units
    from rmqtool.store.dispatch.batch import QueuePuts, RecordBatch


Key = tuple[str, int]  # topic, queue id
_UNBUILT: "WeakKeyDictionary[StoreLayout, dict[Key, Units]]" = WeakKeyDictionary()


def rocks_queues_of(layout: StoreLayout) -> list[RocksQueue]:
    """Every queue of the database, sorted by topic and queue id; empty if queues are files.

    Raises:
        MissingRuntime: the library to read the database is not installed.
        CorruptFile: it cannot be read.
    """
    database = queue_database(layout)
    if database is None:
        return []
    unbuilt = unbuilt_units(layout)
    return [_queue(layout, database, key, unbuilt) for key in sorted({*queue_names(database), *unbuilt})]


def open_rocks_queue(layout: StoreLayout, topic: str, queue_id: int) -> RocksQueue | None:
    """A queue of the database; None if it has none of that name, or queues are files.

    Raises:
        MissingRuntime, CorruptFile: see :func:`rocks_queues_of`.
    """
    database = queue_database(layout)
    if database is None or not -(2**31) <= queue_id < 2**31 or not is_name(topic):
        return None
    queue = _queue(layout, database, (topic, queue_id), unbuilt_units(layout))
    return queue if queue.there else None


def built_only_to(log: CommitLog) -> int | None:
    """Physical offset from which on messages of the log are missing in the RocksDB queues; None if none is.

    Raises:
        MissingRuntime: the library to read the database is not installed.
        CorruptFile: it cannot be read.
    """
    database = queue_database(log.layout)
    if database is None:
        return None
    built = max(built_up_to(database), log.min_offset)
    return built if log.read(built, crc=False) is not None else None


def unbuilt_units(layout: StoreLayout) -> "dict[Key, Units]":
    """The units that the log has for each queue beyond the end of the database, by queue offset; cached per layout.

    Returns:
        By topic and queue id, a record array with the columns offset, physical, size, tags and time, all int64.
    """
    if layout not in _UNBUILT:
        log = CommitLog(layout)
        built = built_only_to(log)
        _UNBUILT[layout] = _dispatch(log, built) if built is not None else {}
    return _UNBUILT[layout]


def _queue(layout: StoreLayout, database: Database, key: Key, unbuilt: "dict[Key, Units]") -> RocksQueue:
    if (units := unbuilt.get(key)) is not None:
        return _GrownQueue(layout, database, *key, units)
    return RocksQueue(layout, database, *key)


def _dispatch(log: CommitLog, built: int) -> "dict[Key, Units]":
    """The units of the records from a physical offset on, up to the first damage, where a start truncates the log.

    Light queues are included for messages that have their offsets, as only a broker that dispatches to them writes
    those.
    """
    import numpy as np

    from rmqtool.store.dispatch.batch import BatchBuilder, DelayLevels
    from rmqtool.store.dispatch.reading import Readahead, recovery_batches

    builder = BatchBuilder(DelayLevels(log.layout.conf.delay_levels), light_queues=release_of(log.layout))
    parts: dict[Key, list[Units]] = {}
    readahead = Readahead()
    try:
        for file in log.segments.files:
            if file.end <= built:
                continue
            batches = Returning(
                recovery_batches(file.view(), max(built - file.base, 0), file.size, builder, readahead=readahead)
            )
            for batch in batches:
                for key, puts in _puts(batch):
                    parts.setdefault(key, []).append(_units(puts))
                batch.release()
            file.release()
            if batches.value.ending is not Ending.FILLER:
                break
    finally:
        readahead.close()
    return {key: _latest(np.concatenate(units)) for key, units in parts.items()}


def _puts(batch: "RecordBatch") -> "Iterator[tuple[Key, QueuePuts]]":
    for row, puts in batch.puts():
        yield (batch.topics[int(batch.topic[row])], int(batch.queue_id[row])), puts
    for put in batch.light:
        yield (put.queue, light_queue_id(put.queue, int(batch.queue_id[put.row]))), batch.light_puts(put)


def _units(puts: "QueuePuts") -> "Units":
    import numpy as np

    from rmqtool.store.queues.rocks_columns import UNIT_TYPE

    units = np.empty(len(puts), UNIT_TYPE)
    units["offset"], units["time"] = puts.queue_offset, puts.store_timestamp
    for name, field in (("physical", "physical_offset"), ("size", "size"), ("tags", "tags_code")):
        units[name] = puts.entries[field]
    return units


def _latest(units: "Units") -> "Units":
    """Sort by queue offset; of units with the same offset keep the last, which overwrites the others in a broker."""
    import numpy as np

    ordered = units[np.argsort(units["offset"], kind="stable")]
    last = np.append(ordered["offset"][1:] != ordered["offset"][:-1], True)
    latest: Units = ordered[last]
    return latest


class _GrownQueue(RocksQueue):
    """A queue extended by what the log has beyond the database."""

    def __init__(self, layout: StoreLayout, database: Database, topic: str, queue_id: int, unbuilt: "Units") -> None:
        super().__init__(layout, database, topic, queue_id)
        self._unbuilt = unbuilt

    @cached_property
    def last(self) -> RocksOffset | None:
        unit = self._unbuilt[-1]
        return RocksOffset(int(unit["physical"]), int(unit["offset"]))

    def unit(self, queue_offset: int) -> RocksUnit | None:
        at = int(self._unbuilt["offset"].searchsorted(queue_offset))
        if at < len(self._unbuilt) and self._unbuilt["offset"][at] == queue_offset:
            return _unit(self._unbuilt[at])
        return super().unit(queue_offset)

    def units(
        self, start: int = 0, stop: int | None = None, *, beyond: bool = False
    ) -> Iterator[tuple[int, RocksUnit]]:
        end = self.max_offset if stop is None else stop if beyond else min(stop, self.max_offset)
        low, high = self._unbuilt["offset"].searchsorted([start, max(start, end)])
        new = ((int(row["offset"]), _unit(row)) for row in self._unbuilt[low:high])
        before: int | None = None
        for queue_offset, unit in merge(new, super().units(start, end, beyond=True), key=itemgetter(0)):
            if queue_offset != before:
                yield queue_offset, unit
            before = queue_offset

    def raw_units(self, start: int, stop: int) -> tuple[bytes, bytes]:
        units = list(self.units(start, stop, beyond=True))
        offsets = b"".join(offset.to_bytes(8, "big") for offset, _unit in units)
        return offsets, b"".join(ROCKS_UNIT.pack(*unit) for _offset, unit in units)


def _unit(row: "Units") -> RocksUnit:
    return RocksUnit(int(row["physical"]), int(row["size"]), int(row["tags"]), int(row["time"]))
