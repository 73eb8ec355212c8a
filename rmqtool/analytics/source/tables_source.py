"""The Spark data source ``rocketmq``: the tables of stores, and the messages of clusters, as data frames and streams.

Spark finds it via the module ``pyspark_rocketmq`` or via :func:`register`. Everything except Spark's own base classes
is imported lazily, because every Spark in an environment with rmqtool loads this module.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)  # fmt: skip

from rmqtool.analytics.spark.python import give_this_python
from rmqtool.analytics.spark.worker import RefusedStream, in_worker, without_traceback
from rmqtool.errors import BadValue, RmqError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from rmqtool.analytics.bodies.schema import TableSchema
    from rmqtool.analytics.live.options import LiveRequest
    from rmqtool.analytics.source.plan import ReadRequest
    from rmqtool.analytics.spark.columns import SparkColumns

R = TypeVar("R", "ReadRequest", "LiveRequest")
NAME = "rocketmq"
_BODIES = "bodyschema"  # an option, as Spark passes its name
_PROVIDER = "provider"  # set by Spark for a table that is being created


def register(spark: "SparkSession") -> None:
    """Make a session's ``format("rocketmq")`` read what a query needs: its columns, conditions, limit and size.

    Spark finds the data source by itself, but tells one that is written in Python none of these. This also registers it
    where Spark has not found it, and makes ``SELECT ... FROM rocketmq.`/data/store``` known. Workers of a local session
    then use the running Python, unless another one was set (``PYSPARK_PYTHON``).
    """
    from rmqtool.analytics.source.planner.planner import add_planner

    give_this_python(spark)
    spark.dataSource.register(RocketMQSource)
    add_planner(spark)


class RocketMQSource(DataSource):
    """Tables of stores: ``path``, ``table`` and the other options of :mod:`rmqtool.analytics.source.options`.

    With ``namesrv`` the messages of a live cluster, with the options of :mod:`rmqtool.analytics.live.options`.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> "StructType":
        from rmqtool.analytics.bodies.columns import ADDED, add_fields
        from rmqtool.analytics.live.options import LiveRequest, is_live, known_live_options, live_request_of
        from rmqtool.analytics.source.plan import bytes_of, known_options, request_of
        from rmqtool.analytics.source.pushed import Pushed, size_schema
        from rmqtool.analytics.source.tables import SCHEMAS
        from rmqtool.analytics.spark.columns import schema_of

        with without_traceback():
            options, pushed = Pushed.take(self.options)
            live = is_live(options)
            place = options.pop(_BODIES, None)
            request = live_request_of(options, streaming=None) if live else request_of(options)
            if pushed.asks_size:
                return size_schema(None if isinstance(request, LiveRequest) else bytes_of(request))
            table = "messages" if isinstance(request, LiveRequest) else request.table
            bodies = _bodies_of(place, request)
            schema = schema_of(add_fields(SCHEMAS[table], bodies), request.columns)
            if bodies is not None:
                for field in schema:
                    if field.name in ADDED:  # so that the reader has the same, although more messages may come
                        field.metadata = {**field.metadata, _BODIES: bodies.to_text()}
            if _PROVIDER in self.options:
                # CREATE TABLE: Spark stores the options with the table but passes only its columns to the source of a
                # query, so the columns carry the options
                kept = known_live_options(self.options) if live else known_options(self.options)
                first = schema.fields[0]
                first.metadata = {**first.metadata, NAME: kept}
            return schema

    def reader(self, schema: "StructType") -> DataSourceReader:
        from rmqtool.analytics.live.options import is_live, live_request_of
        from rmqtool.analytics.source.plan import request_of
        from rmqtool.analytics.source.pushed import Pushed

        with without_traceback():
            options, pushed = Pushed.take(self._options_of(schema))
            if is_live(options):
                from rmqtool.analytics.live.reader import LiveReader

                live = _with_bodies(options, schema, live_request_of)
                return LiveReader(live, _columns("messages", schema, live.bodies), pushed.has_queue, pushed.limit)
            request = pushed.narrow(_with_bodies(options, schema, request_of))
            return Reader(request, _columns(request.table, schema, request.bodies), pushed.limit)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        from rmqtool.analytics.live.options import is_live
        from rmqtool.analytics.source.write import StoreWriter

        with without_traceback():
            if is_live(self.options):  # whatever the mode: messages are only ever added
                from rmqtool.analytics.live.writer import ClusterWriter, SinkOptions

                return ClusterWriter(SinkOptions.of(self.options, schema))
            return StoreWriter(self.options, schema.fieldNames(), overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:
        from rmqtool.analytics.live.options import is_live
        from rmqtool.analytics.live.writer import ClusterStreamWriter, SinkOptions
        from rmqtool.analytics.source.write import StoreStreamWriter

        with without_traceback():
            if is_live(self.options):
                return ClusterStreamWriter(SinkOptions.of(self.options, schema, streaming=True))
            if overwrite:
                raise BadValue("a store is not overwritten: give the stream the output mode append")
            return StoreStreamWriter(self.options, schema.fieldNames())

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        try:
            return self._stream_reader(schema)
        except RmqError as err:
            if not in_worker():
                raise
            return RefusedStream(err)

    def _stream_reader(self, schema: "StructType") -> DataSourceStreamReader:
        from rmqtool.analytics.live.options import is_live, live_request_of
        from rmqtool.analytics.source.plan import request_of

        options = self._options_of(schema)
        if is_live(options):
            from rmqtool.analytics.live.reader import LiveStream

            live = _with_bodies(options, schema, partial(live_request_of, streaming=True))
            return LiveStream(live, _columns("messages", schema, live.bodies))
        from rmqtool.analytics.source.stream import Tail, TailOptions

        request = _with_bodies(options, schema, request_of)
        return Tail(request, TailOptions.of(self.options), _columns(request.table, schema, request.bodies))

    def _options_of(self, schema: "StructType") -> dict[str, str]:
        """The options, with those of the table that the columns carry; names are in lower case."""
        return {**schema.fields[0].metadata.get(NAME, {}), **self.options}


def _columns(table: str, schema: "StructType", bodies: "TableSchema | None") -> "SparkColumns":
    from rmqtool.analytics.bodies.columns import add_fields
    from rmqtool.analytics.source.tables import SCHEMAS
    from rmqtool.analytics.spark.columns import SparkColumns

    return SparkColumns(table, add_fields(SCHEMAS[table], bodies), schema)


def _bodies_of(place: str | None, request: "ReadRequest | LiveRequest") -> "TableSchema | None":
    """The schema of bodies that the option names."""
    if place is None:
        return None
    from rmqtool.analytics.bodies.schema import body_schema_of
    from rmqtool.analytics.live.options import LiveRequest
    from rmqtool.analytics.live.sample import sample_cluster
    from rmqtool.analytics.source.sample import sample_store

    if isinstance(request, LiveRequest):
        return body_schema_of(place, partial(sample_cluster, request))
    if request.table != "messages":
        raise BadValue(f"option bodySchema goes with the table messages, not with {request.table}")
    return body_schema_of(place, partial(sample_store, request))


def _with_bodies(options: dict[str, str], schema: "StructType", request_of: Callable[[dict[str, str]], R]) -> R:
    """The request of options, with the schema of bodies by which the columns were made."""
    from rmqtool.analytics.bodies.columns import ADDED
    from rmqtool.analytics.bodies.schema import TableSchema

    place = {name.lower(): value for name, value in options.items()}.get(_BODIES)
    request = request_of({name: value for name, value in options.items() if name.lower() != _BODIES})
    added = [field for field in schema if field.name.lower() in map(str.lower, ADDED)]
    if not added:
        return request
    text = next((field.metadata[_BODIES] for field in added if _BODIES in field.metadata), None)
    bodies = _bodies_of(place, request) if text is None else TableSchema.from_text(text)
    return replace(request, bodies=bodies)


class Reader(DataSourceReader):
    """Plans on the driver and reads on the executors.

    It does not accept filters from Spark (``spark.sql.python.filterPushdown.enabled``): Spark 4.3 reuses a filtered
    reader for later queries of the same frame and for both sides of a self-join, which then lack rows. Those of
    :mod:`rmqtool.analytics.source.pushed` belong to one scan.

    Args:
        limit: rows that a task needs to return; None for all.
    """

    def __init__(self, request: "ReadRequest", columns: "SparkColumns", limit: int | None = None) -> None:
        self.request, self.columns, self.limit = request, columns, limit

    def partitions(self) -> Sequence[InputPartition]:
        from rmqtool.analytics.source.plan import reads_tier, warn_of_elsewhere
        from rmqtool.analytics.source.read import plan_pieces

        with without_traceback():
            if self.request.table == "messages":
                warn_of_elsewhere(self.request.stores, reads=reads_tier(self.request.wanted.choice))
            planned, counters = plan_pieces(self.request.with_split_size(self.columns.names), self.request.wanted)
        if self.request.counters:
            counters.save(self.request.counters)
        return [InputPartition(piece) for piece in planned]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from rmqtool.analytics.source.read import Counters, read_piece
        from rmqtool.analytics.spark.columns import limit_rows

        if partition.value is None:  # Spark adds this if the plan has no pieces
            return
        counters = Counters()
        with without_traceback():
            read = read_piece(partition.value, self.columns.names, counters, self.request.bodies)
            batches = self.columns.fit(read)
            yield from limit_rows(batches, self.limit)
        if self.request.counters:
            counters.save(self.request.counters)
