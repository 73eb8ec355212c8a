"""A store as a stream of Arrow record batches, for DuckDB, Polars, pandas and whatever else takes one."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa

from rmqtool.analytics.bodies.schema import TableSchema, body_schema_of
from rmqtool.analytics.source.filter import Condition, Wanted
from rmqtool.analytics.source.plan import Piece, ReadRequest, pieces, reads_tier, stores_of, warn_of_elsewhere
from rmqtool.analytics.source.read import Counters, read_piece
from rmqtool.analytics.source.sample import sample_store
from rmqtool.analytics.source.tables import SCHEMAS, TABLES
from rmqtool.errors import BadValue
from rmqtool.words import counted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_arrow(
    store: str | list[str],
    table: str = "messages",
    *,
    columns: Sequence[str] | None = None,
    topic: str | Iterable[str] = (),
    queue_id: int | Iterable[int] = (),
    tag: str | Iterable[str] = (),
    key: str | Iterable[str] = (),
    since: int | datetime | None = None,
    until: int | datetime | None = None,
    body_schema: str | None = None,
    broker_conf: str | None = None,
) -> pa.RecordBatchReader:
    """A table of one or more stores, read batch by batch in bounded memory, without Spark or a JVM.

    The reader has ``__arrow_c_stream__``: other libraries read it without copying. Damaged ranges of a commit log are
    skipped, with a warning at the end of the stream.

    Args:
        store: path or URI; several with commas between them, as a list, or by pattern.
        table: ``messages``, ``queues``, ``index``, ``offsets``, ``topics``, ``compacted`` or ``findings``.
        columns: in the order wanted; all by default. Others are not decoded.
        topic: name or pattern, or several; this and the following select messages, so they go with that table alone.
        since, until: store time in [since, until): ms since the epoch, or a datetime with a time zone.
        body_schema: what bodies hold: a file with a JSON Schema (``.json``), an Avro schema (``.avsc``) or Protobuf
            (``.proto``, or a descriptor set), with ``:TYPE`` if it has several; or ``json``, with one from a sample.
            Adds the columns ``decoded`` and ``decodeError``.
        broker_conf: the broker's properties file.

    Raises:
        BadValue: no such table or column, or a selection that the table does not take.
        UnreadableStore: a path leads to no store.
    """
    if table not in SCHEMAS:
        raise BadValue(f"table {table!r} is none of {', '.join(TABLES)}")
    if table != "messages" and body_schema is not None:
        raise BadValue(f"{table}: only messages have bodies")
    conditions = [
        *(
            Condition(column, "in", chosen)
            for column, given in (("topic", topic), ("queueId", queue_id), ("tags", tag), ("key", key))
            if (chosen := [given] if isinstance(given, str | int) else list(given))
        ),
        *(
            Condition("storeTimestamp", op, _moment(time))
            for op, time in ((">=", since), ("<", until))
            if time is not None
        ),
    ]
    if conditions and table != "messages":
        raise BadValue(f"{table}: only messages can be selected")
    request = ReadRequest(stores_of(store, broker_conf), table, Wanted().narrow(conditions))
    request = replace(request, bodies=body_schema_of(body_schema, partial(sample_store, request)))
    schema = request.schema
    names = list(schema.names if columns is None else columns)
    if unknown := [name for name in names if name not in schema.names]:
        raise BadValue(f"{table} has no column {', '.join(unknown)}: it has {', '.join(schema.names)}")
    warn_of_elsewhere(request.stores, reads=reads_tier(request.wanted.choice))
    planned, _bytes_read = pieces(replace(request, columns=tuple(names)), request.wanted)
    return pa.RecordBatchReader.from_batches(
        pa.schema([schema.field(name) for name in names]), _read(planned, names, request.bodies)
    )


def _moment(time: int | datetime) -> datetime:
    if isinstance(time, int):
        return _EPOCH + timedelta(milliseconds=time)
    if time.tzinfo is None:
        raise BadValue(f"{time}: give a datetime with a time zone")
    return time


def _read(planned: list[Piece], names: list[str], bodies: TableSchema | None) -> Iterator[pa.RecordBatch]:
    counters = Counters()
    for piece in planned:
        yield from read_piece(piece, names, counters, bodies)
    if counters.damaged:
        ranges = counted(counters.damaged, "damaged range")
        warnings.warn(f"{ranges} with {counted(counters.damagedBytes, 'byte')} skipped", stacklevel=2)
