"""The Spark data source ``rocketmq``: the tables of one or more stores as data frames and streams.

Spark finds it via the module ``pyspark_rocketmq`` or via :func:`register`. Everything except Spark's own base classes
is imported lazily, because every Spark in an environment with rmqtool loads this module.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rmqtool.analytics.spark.python import give_this_python
from rmqtool.errors import RmqError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from rmqtool.analytics.source.plan import Request
    from rmqtool.analytics.source.stream import Tail
    from rmqtool.analytics.source.write import StoreWriter

NAME = "rocketmq"
_PROVIDER = "provider"  # set by Spark for a table that is being created
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"  # see pyspark.util.handle_worker_exception


def register(spark: "SparkSession") -> None:
    """Make ``spark.read.format("rocketmq")`` available if Spark has not found it by itself.

    Workers of a local session then use the running Python, unless another one was set (``PYSPARK_PYTHON``).
    """
    give_this_python(spark)
    spark.dataSource.register(RocketMQSource)


@contextmanager
def _without_traceback() -> Iterator[None]:
    """Show errors of ours to the user as one line, without the traceback that Spark's workers add."""
    try:
        yield
    except RmqError:
        if str(getattr(sys.modules["__main__"].__spec__, "name", "")).startswith("pyspark."):
            os.environ[_HIDE_TRACEBACK] = "1"  # only in this worker, which the error ends
        raise


class RocketMQSource(DataSource):
    """Tables of stores: ``path``, ``table`` and the other options of :mod:`rmqtool.analytics.source.options`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> "StructType":
        from rmqtool.analytics.source.plan import known_options
        from rmqtool.analytics.source.spark_columns import schema_of

        with _without_traceback():
            request = self._request()
            schema = schema_of(request.table, request.columns)
            if _PROVIDER in self.options:
                # CREATE TABLE: Spark stores the options with the table but passes only its columns to the source of a
                # query, so the columns carry the options
                first = schema.fields[0]
                first.metadata = {**first.metadata, NAME: known_options(self.options)}
            return schema

    def reader(self, schema: "StructType") -> DataSourceReader:
        with _without_traceback():
            return Reader(self._request(schema), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "StoreWriter":
        from rmqtool.analytics.source.write import StoreWriter

        with _without_traceback():
            return StoreWriter(self.options, schema.fieldNames(), overwrite=overwrite)

    def streamReader(self, schema: "StructType") -> "Tail":
        from rmqtool.analytics.source.spark_columns import SparkColumns
        from rmqtool.analytics.source.stream import Tail, TailOptions

        with _without_traceback():
            request = self._request(schema)
            return Tail(request, TailOptions.of(self.options), SparkColumns(request.table, schema))

    def _request(self, schema: "StructType | None" = None) -> "Request":
        from rmqtool.analytics.source.plan import request_of

        kept = schema.fields[0].metadata.get(NAME, {}) if schema else {}
        return request_of({**kept, **self.options})


class Reader(DataSourceReader):
    """Plans on the driver and reads on the executors.

    It does not accept filters from Spark (``spark.sql.python.filterPushdown.enabled``): Spark 4.3 reuses a filtered
    reader for later queries of the same frame and for both sides of a self-join, which then lack rows.
    """

    def __init__(self, request: "Request", schema: "StructType") -> None:
        from rmqtool.analytics.source.spark_columns import SparkColumns

        self.request = request
        self.columns = SparkColumns(request.table, schema)

    def partitions(self) -> Sequence[InputPartition]:
        from rmqtool.analytics.source.plan import reads_tier, warn_of_elsewhere
        from rmqtool.analytics.source.read import plan_pieces

        with _without_traceback():
            if self.request.table == "messages":
                warn_of_elsewhere(self.request.stores, reads=reads_tier(self.request.wanted.choice))
            planned, counters = plan_pieces(self.request.suiting(self.columns.names), self.request.wanted)
        if self.request.counters:
            counters.save(self.request.counters)
        return [InputPartition(piece) for piece in planned]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from rmqtool.analytics.source.read import Counters, read_piece

        if partition.value is None:  # Spark adds this if the plan has no pieces
            return
        counters = Counters()
        yield from self.columns.fit(read_piece(partition.value, self.columns.names, counters))
        if self.request.counters:
            counters.save(self.request.counters)
