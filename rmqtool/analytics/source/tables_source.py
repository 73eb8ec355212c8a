"""The Spark data source ``rocketmq``: the tables of one or many stores as data frames and streams.

Spark finds it by the module ``pyspark_rocketmq``, or by :func:`register`. Everything but Spark's own base classes is
imported where it is needed: every Spark of an environment that has rmqtool in it loads this module.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from rmqtool.analytics.spark.python import give_this_python
from rmqtool.errors import RmqError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from rmqtool.analytics.source.filter import Condition, Wanted
    from rmqtool.analytics.source.plan import Request
    from rmqtool.analytics.source.stream import Tail
    from rmqtool.analytics.source.write import StoreWriter

NAME = "rocketmq"
_OPS: dict[type[Filter], str] = {
    EqualTo: "=",
    In: "in",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
# Spark refuses a reader that takes filters unless it is set up to hand them on, and does not say whether it is; but
# where it does, it runs this module
_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"  # see pyspark.util.handle_worker_exception


def register(spark: "SparkSession") -> None:
    """Make ``spark.read.format("rocketmq")`` known, where Spark has not found it by itself.

    A local session starts the Python that runs this for it, where no other was named (``PYSPARK_PYTHON``).
    """
    give_this_python(spark)
    spark.dataSource.register(RocketMQSource)


@contextmanager
def _told_in_one_line() -> Iterator[None]:
    """An error of ours reaches the user as its own line, without the traceback that Spark's workers put before it."""
    try:
        yield
    except RmqError:
        if str(getattr(sys.modules["__main__"].__spec__, "name", "")).startswith("pyspark."):
            os.environ[_HIDE_TRACEBACK] = "1"  # of this worker, which ends with the error
        raise


class RocketMQSource(DataSource):
    """Tables of stores: ``path``, ``table`` and the other options of :mod:`rmqtool.analytics.source.options`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> "StructType":
        from pyspark.sql.pandas.types import from_arrow_schema

        from rmqtool.analytics.source.tables import SCHEMAS

        with _told_in_one_line():
            return from_arrow_schema(SCHEMAS[self._request().table])

    def reader(self, schema: "StructType") -> DataSourceReader:
        pushing = _PUSHING in sys.modules or getattr(sys.modules["__main__"].__spec__, "name", None) == _PUSHING
        kind = FilteringReader if pushing else Reader
        with _told_in_one_line():
            return kind(self._request(), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "StoreWriter":
        from rmqtool.analytics.source.write import StoreWriter

        with _told_in_one_line():
            return StoreWriter(self.options, schema.fieldNames(), overwrite=overwrite)

    def streamReader(self, schema: "StructType") -> "Tail":
        from rmqtool.analytics.source.spark_columns import SparkColumns
        from rmqtool.analytics.source.stream import Tail, TailOptions

        with _told_in_one_line():
            request = self._request()
            return Tail(request, TailOptions.of(self.options), SparkColumns(request.table, schema))

    def _request(self) -> "Request":
        from rmqtool.analytics.source.plan import request_of

        return request_of(self.options)


class Reader(DataSourceReader):
    """Plans on the driver, reads on the executors."""

    def __init__(self, request: "Request", schema: "StructType") -> None:
        from rmqtool.analytics.source.spark_columns import SparkColumns

        self.request = request
        self.wanted: Wanted = request.wanted
        self.columns = SparkColumns(request.table, schema)

    def partitions(self) -> Sequence[InputPartition]:
        from rmqtool.analytics.source.read import planned

        with _told_in_one_line():
            found, counters = planned(self.request.suiting(self.columns.names), self.wanted)
        if self.request.counters:
            counters.save(self.request.counters)
        return [InputPartition(piece) for piece in found]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from rmqtool.analytics.source.read import Counters, read_piece

        if partition.value is None:  # what Spark makes of a plan without pieces
            return
        counters = Counters()
        yield from self.columns.fitted(read_piece(partition.value, self.columns.names, counters))
        if self.request.counters:
            counters.save(self.request.counters)


class FilteringReader(Reader):
    """A reader that Spark hands the query's filters. It hands them back: Spark applies them to each row again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.wanted = self.wanted.narrowed(map(condition_of, filters))
        return filters


def condition_of(pushed: Filter) -> "Condition":
    """A filter of Spark's as a condition; one without a meaning here is one that nobody takes up."""
    from rmqtool.analytics.source.filter import Condition

    op = _OPS.get(type(pushed), "")
    value: Any = getattr(pushed, "value", None)
    attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
    return Condition(".".join(attribute), op, value)
