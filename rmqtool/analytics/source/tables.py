"""The tables of a store: their columns, and the rows of all tables except ``messages``."""

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from formats.errors import FormatError
from formats.index import entries_array, entry_at
from formats.message.bodies import decompress
from formats.primitives import COMPRESSED
from rmqtool.analytics.remote.stores import attach_store
from rmqtool.analytics.table.schema import BROKER, MESSAGE_TABLE, micros
from rmqtool.contract import message_row
from rmqtool.errors import UnreadableStore
from rmqtool.store.config.files import config_database
from rmqtool.store.disk.directories import exists
from rmqtool.store.disk.mapping import need
from rmqtool.store.index.reader import IndexView, open_index
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import BATCH_QUEUES, QUEUE_KINDS, UNIT, StoreLayout
from rmqtool.store.queues.batch import AnyQueue, BatchQueue
from rmqtool.store.queues.compaction import compaction_queues_of, key_of
from rmqtool.store.queues.reader import ConsumeQueue
from rmqtool.store.queues.rocks_open import open_rocks_queue, rocks_queues_of

_ROCKSDB = "rocksdb"  # used instead of a directory for queues in RocksDB
_ROWS = 1 << 16  # rows per batch
_TEXT, _INT, _LONG, _FLAG = pa.string(), pa.int32(), pa.int64(), pa.bool_()
_TIME = pa.timestamp("us", tz="UTC")


def _schema(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema([*(pa.field(name, kind) for name, kind in kinds.items()), BROKER])


SCHEMAS = {
    "messages": MESSAGE_TABLE,
    "queues": _schema(
        topic=_TEXT, queueId=_INT, queueOffset=_LONG, physicalOffset=_LONG, size=_INT, tagsCode=_LONG,
        batchNum=_INT,
    ),
    "index": _schema(
        indexFile=_TEXT, number=_INT, slot=_INT, keyHash=_INT, physicalOffset=_LONG, timeDiff=_INT,
        storeTimestamp=_TIME, previous=_INT,
    ),
    "offsets": _schema(
        topic=_TEXT, group=_TEXT, queueId=_INT, consumerOffset=_LONG, minOffset=_LONG, brokerOffset=_LONG, diff=_LONG,
        lag=_LONG,
    ),
    "topics": _schema(topic=_TEXT, queues=_INT, messages=_LONG, configured=_FLAG),
    "compacted": _schema(
        topic=_TEXT, queueId=_INT, queueOffset=_LONG, key=_TEXT, latest=_FLAG, tags=_TEXT, msgId=_TEXT, position=_LONG,
        storeSize=_INT, bornTimestamp=_TIME, storeTimestamp=_TIME, body=pa.binary(),
    ),
    "findings": _schema(
        code=_TEXT, severity=_TEXT, file=_TEXT, offset=_LONG, topic=_TEXT, queueId=_INT, queueOffset=_LONG,
        count=_LONG, expected=_TEXT, actual=_TEXT, consequence=_TEXT, fix=_TEXT, topicKind=_TEXT,
    ),
}  # fmt: skip
TABLES = tuple(SCHEMAS)


@dataclass(frozen=True, slots=True)
class NamedStore:
    """One of several stores.

    Attributes:
        broker: name that distinguishes it from the others; the column ``broker``.
        broker_conf: the broker's properties file.
        uri: complete URI of a remote store, including credentials.
        listing: the listing that a plan is based on, see :class:`rmqtool.analytics.remote.stores.Remote`.
        skips_unreadable: skip directories and small files that cannot be read, for callers that name them.
    """

    root: str
    broker: str
    broker_conf: str | None = None
    uri: str | None = None
    listing: str = ""
    skips_unreadable: bool = False

    def layout(self) -> StoreLayout:
        """Open the store."""
        if self.uri is not None:
            attach_store(self.uri, self.listing)
        layout = StoreLayout(self.root, load(self.broker_conf) if self.broker_conf else None)
        return layout.passing_over() if self.skips_unreadable else layout


def rows_of(table: str, store: NamedStore, part: tuple[str, ...] = ()) -> Iterator[pa.RecordBatch]:
    """Yield batches of a table other than ``messages``, with the table's schema except ``broker``.

    Args:
        part: one of the results of :func:`pieces_of`.
    """
    layout = store.layout()
    if table == "queues":
        yield from _queues(layout, part)
    elif table == "index":
        yield from _index(layout, part)
    else:
        yield from _from_rows(table, _PLAIN[table](layout))


def pieces_of(table: str, store: NamedStore, limit: int) -> list[tuple[str, ...]]:
    """Divide the rows of a table other than ``messages`` into parts.

    Args:
        limit: size of a part in bytes of file.
    """
    layout = store.layout()
    if table == "index":
        return [(path,) for path in layout.index_paths()]
    if table != "queues":
        return [()]
    parts: list[list[str]] = [[]]
    size = 0
    for kind in QUEUE_KINDS:
        for topic, queue_id, path in layout.queue_dirs(kind):
            parts[-1].append(f"{kind}/{topic}/{queue_id}")
            size += layout.files_in(path).bytes
            if size >= limit:
                parts.append([])
                size = 0
    for queue in rocks_queues_of(layout):
        parts[-1].append(f"{_ROCKSDB}/{queue.topic}/{queue.queue_id}")
        size += queue.max_offset * UNIT
        if size >= limit:
            parts.append([])
            size = 0
    return [tuple(part) for part in parts if part]


def _queues(layout: StoreLayout, part: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield all entries up to the end of each queue, including those with expired messages."""
    for name in part:
        kind, _slash, name = name.partition("/")
        topic, _slash, queue_id = name.rpartition("/")
        batches = kind == BATCH_QUEUES
        queue = _queue(layout, kind, topic, int(queue_id))
        for first, units in queue.runs():
            for at in range(0, len(units), _ROWS):
                chunk = units[at : at + _ROWS]
                count = len(chunk)
                ordinals = pa.array(np.arange(first + at, first + at + count))
                yield pa.record_batch(
                    [
                        pa.repeat(pa.scalar(topic.encode("utf-8", "replace").decode(), _TEXT), count),
                        pa.repeat(pa.scalar(int(queue_id), _INT), count),
                        _native(chunk["base_queue_offset"]) if batches else ordinals,
                        _native(chunk["physical_offset"]),
                        _native(chunk["size"]),
                        _native(chunk["tags_code"]),
                        _native(chunk["batch_size"].astype(np.int32) if batches else np.ones(count, np.int32)),
                    ],
                    schema=_without_broker("queues"),
                )


def _queue(layout: StoreLayout, kind: str, topic: str, queue_id: int) -> AnyQueue:
    if kind == _ROCKSDB:
        queue = open_rocks_queue(layout, topic, queue_id)
        if queue is None:
            raise UnreadableStore(f"{layout.root}: its queues are no longer in RocksDB")
        return queue
    return (BatchQueue if kind == BATCH_QUEUES else ConsumeQueue)(layout, topic, queue_id)


def _native(column: "np.ndarray[Any, Any]") -> pa.Array:
    return pa.array(column.astype(column.dtype.newbyteorder("=")))


def _index(layout: StoreLayout, part: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield the entries of readable index files; unreadable ones are reported as findings."""
    files = [file for file in open_index(layout, part, whole=False) if isinstance(file, IndexView)]
    yield from _from_rows("index", (row for file in files for row in _entries(file)))


def _entries(file: IndexView) -> Iterator[dict[str, Any]]:
    name = os.path.basename(file.path)
    table = entries_array(file.view, file.slots)[: max(file.header.index_count, 1)]
    for base in range(1, len(table), 4096):
        need(file.view, entry_at(file.slots, base), entry_at(file.slots, min(base + 4096, len(table))))
        for number, (key_hash, physical, seconds, previous) in enumerate(table[base : base + 4096].tolist(), base):
            yield {
                "indexFile": name,
                "number": number,
                "slot": key_hash % file.slots,
                "keyHash": key_hash,
                "physicalOffset": physical,
                "timeDiff": seconds,
                "storeTimestamp": micros(file.header.begin_timestamp + 1000 * seconds),
                "previous": previous,
            }


def _offsets(layout: StoreLayout) -> Iterable[dict[str, Any]]:
    from rmqtool.services.lookup.configs import FILES
    from rmqtool.services.lookup.offsets import consumer_offsets

    kept = (layout.path("config", name + suffix) for name in FILES for suffix in ("", ".bak"))
    if not any(map(exists, kept)) and not any(config_database(layout, name) for name in FILES):
        return []
    # where this is asked from, a note says so
    return (row for rows in consumer_offsets(layout, warn=lambda _text: None) for row in rows.dicts())


def _topics(layout: StoreLayout) -> Iterable[dict[str, Any]]:
    from rmqtool.services.lookup.info import store_info

    return store_info(layout).to_dict()["topics"]  # type: ignore[no-any-return]


def _compacted_rows(layout: StoreLayout) -> Iterator[dict[str, Any]]:
    """Yield the rows of compacted topics; ``latest`` marks the newest message of a key unless it deletes the key."""
    for queue in compaction_queues_of(layout):
        newest = {message.record.queue_offset for message in queue.latest().values()}
        for message in queue.read():
            row = message_row(message.record, message.physical_offset)
            body = message.record.body
            with suppress(FormatError):
                body = decompress(body, message.record.sys_flag) if message.record.sys_flag & COMPRESSED else body
            yield {
                **{name: row[name] for name in ("topic", "queueId", "queueOffset", "tags", "msgId", "storeSize")},
                "key": key_of(message),
                "latest": message.record.queue_offset in newest,
                "position": message.physical_offset,
                "bornTimestamp": micros(message.record.born_timestamp),
                "storeTimestamp": micros(message.record.store_timestamp),
                "body": body,
            }


def _findings(layout: StoreLayout) -> Iterable[dict[str, Any]]:
    from rmqtool.store.check.run import check_store

    return (finding.to_dict() for finding in check_store(layout))


_PLAIN = {"offsets": _offsets, "topics": _topics, "compacted": _compacted_rows, "findings": _findings}


def _without_broker(table: str) -> pa.Schema:
    schema = SCHEMAS[table]
    return schema.remove(schema.get_field_index(BROKER.name))


def _from_rows(table: str, rows: Iterable[dict[str, Any]]) -> Generator[pa.RecordBatch, None, None]:
    schema = _without_broker(table)
    pending: list[dict[str, Any]] = []
    for row in rows:
        pending.append({name: _plain(value) for name, value in row.items()})
        if len(pending) == _ROWS:
            yield pa.RecordBatch.from_pylist(pending, schema)
            pending = []
    if pending:
        yield pa.RecordBatch.from_pylist(pending, schema)


def _plain(value: Any) -> Any:
    """File names need not be UTF-8, but text columns must be."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
