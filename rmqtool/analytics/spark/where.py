"""A Spark SQL condition over the columns. Bounds on offsets and times are extracted; Spark evaluates the condition.

Spark receives only the columns named in the condition and returns the physical offsets of matching messages; tasks then
read these messages themselves. Bodies pass through the JVM only if the condition refers to them.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import LongType, StructType

from rmqtool.analytics.ranges.splits import Split
from rmqtool.analytics.remote.files import Folder
from rmqtool.analytics.spark.awaiting import Tell, wait_for
from rmqtool.analytics.spark.failure import failure
from rmqtool.analytics.table.arrow import batches
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.schema import MESSAGE_SCHEMA, schema_of
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.errors import BadValue, RmqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OFFSET, _SPLIT = "physicalOffset", "split"
_SOURCE = "rmqtool-splits"
_MIRRORED = {"GreaterThan": "LessThan", "GreaterThanOrEqual": "LessThanOrEqual"}
_MIRRORED |= {other: name for name, other in _MIRRORED.items()} | {"EqualTo": "EqualTo"}


@dataclass
class _Piece(InputPartition):
    split: Split


class _Reader(DataSourceReader):
    def __init__(self, splits: Sequence[Split], choice: MessageChoice, columns: Sequence[str]) -> None:
        self._splits, self._choice, self._columns = splits, choice, columns

    def partitions(self) -> list[InputPartition]:
        return [_Piece(split) for split in self._splits]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        split: Split = partition.split
        for batch in batches(split, self._choice.of_tier(split.tier), SplitTally(), columns=self._columns):
            number = pa.repeat(pa.scalar(split.number, pa.int64()), batch.num_rows)
            yield batch.append_column(pa.field(_SPLIT, pa.int64(), nullable=False), number)


class _Writer(DataSourceArrowWriter):
    """Each task writes the offsets of its split to a file, on any file system that pyarrow supports (Spark may not)."""

    def __init__(self, location: str) -> None:
        self._location = location

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        rows = (batch for batch in iterator if batch.num_rows)
        first = next(rows, None)
        if first is not None:
            folder, temporary = Folder(self._location), f"_{uuid.uuid4().hex}"
            schema = pa.schema([first.schema.field(_OFFSET)])
            with (
                folder.fs.open_output_stream(folder.full(temporary)) as to,
                pq.ParquetWriter(to, schema, write_page_checksum=True) as writer,
            ):
                for batch in chain([first], rows):
                    writer.write_batch(batch.select([_OFFSET]))
            folder.move(temporary, _name(first.column(_SPLIT)[0].as_py()))
        return WriterCommitMessage()


def _source_of(reader: _Reader, writer: _Writer, schema: StructType) -> type[DataSource]:
    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return _SOURCE

        def schema(self) -> StructType:
            return schema

        def reader(self, schema: StructType) -> DataSourceReader:
            return reader

        def writer(self, schema: StructType, overwrite: bool) -> _Writer:
            return writer

    return Source


class SparkCondition:
    """A condition parsed by Spark.

    Raises:
        BadValue: the text is not a condition, or refers to an unknown column.
    """

    def __init__(self, spark: "SparkSession", text: str) -> None:
        from pyspark.errors import PySparkException

        self._spark, self._text = spark, text
        try:
            frame: Any = spark.createDataFrame(spark.sparkContext.emptyRDD(), spark_schema(MESSAGE_SCHEMA)).where(text)
            plan = frame._jdf.queryExecution().optimizedPlan()
        except PySparkException as err:
            raise BadValue(f"{text!r} is not a condition: {str(err).splitlines()[0]}") from err
        self._filters = [node.condition() for node in _nodes(plan) if _kind(node) == "Filter"]
        names = {name for each in self._filters for name in _names(each)}
        self.columns = [name for name in MESSAGE_SCHEMA.names if name in names or name == _OFFSET]

    def narrow(self, choice: MessageChoice) -> MessageChoice:
        """Exclude messages for which the condition cannot hold."""
        for each in self._filters:
            for part in _conjuncts(each):
                choice = _narrow(choice, part)
        return choice

    def select(self, splits: Sequence[Split], choice: MessageChoice, folder: Folder, tell: Tell | None = None) -> None:
        """Write the offsets of a choice's messages that match the condition, for :func:`read_selected`.

        Raises:
            RmqError: the Spark job failed.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        schema = spark_schema(schema_of(self.columns)).add(_SPLIT, LongType(), False)
        source = _source_of(_Reader(splits, choice, self.columns), _Writer(folder.location), schema)
        self._spark.dataSource.register(source)
        frame = self._spark.read.format(_SOURCE).load().where(self._text).select(_OFFSET, _SPLIT)
        folder.make()

        def save() -> None:
            # makes this session, in which the source is registered, the active one of the thread
            self._spark.createDataFrame([], schema)
            frame.write.format(_SOURCE).mode("append").save()

        try:
            wait_for(self._spark.sparkContext, save, tell)
        except (Py4JError, PySparkException) as err:
            raise RmqError(f"Spark job failed: {failure(err)}") from err


def _name(split: int) -> str:
    return f"split-{split}.parquet"


def read_selected(folder: Folder, split: Split) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return the sorted physical offsets selected in a split."""
    if folder.size(_name(split.number)) is None:
        return np.zeros(0, np.int64)
    with folder.fs.open_input_file(folder.full(_name(split.number))) as file:
        return np.sort(pq.ParquetFile(file, page_checksum_verification=True).read().column(0).to_numpy())


def spark_schema(schema: pa.Schema) -> StructType:
    """Convert an Arrow schema to a Spark schema."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for at in range(children.size()):
        yield from _nodes(children.apply(at))


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _names(condition: Any) -> list[str]:
    references = condition.references().toSeq()
    return [str(references.apply(at).name()) for at in range(references.size())]


def _conjuncts(condition: Any) -> Iterator[Any]:
    if _kind(condition) == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _narrow(choice: MessageChoice, part: Any) -> MessageChoice:
    kind = _kind(part)
    if kind == "In":
        items = [part.list().apply(at) for at in range(part.list().size())]
        if _kind(part.value()) != "AttributeReference" or any(_kind(item) != "Literal" for item in items):
            return choice
        return _among(choice, str(part.value().name()), [item.value() for item in items])
    if kind not in _MIRRORED:
        return choice
    left, right = part.left(), part.right()
    if _kind(left) == "Literal":
        left, right, kind = right, left, _MIRRORED[kind]
    if _kind(left) != "AttributeReference" or _kind(right) != "Literal" or right.value() is None:
        return choice
    name, value = str(left.name()), right.value()
    if kind == "EqualTo":
        choice = _among(choice, name, [value])
    if name == _OFFSET:
        return _between(choice, "start", "stop", kind, value, value + (kind != "LessThan"))
    if name == "storeTimestamp":  # microseconds
        first = value // 1000
        return _between(choice, "since", "until", kind, first, first + (kind != "LessThan" or value % 1000 > 0))
    return choice


def _among(choice: MessageChoice, name: str, values: list[Any]) -> MessageChoice:
    if name == "topic" and not choice.topics:
        return replace(choice, topics=tuple(value.toString() for value in values if value is not None))
    if name == "queueId" and not choice.queues:
        return replace(choice, queues=tuple(value for value in values if value is not None))
    return choice


def _between(choice: MessageChoice, start: str, stop: str, kind: str, first: int, end: int) -> MessageChoice:
    low, high = getattr(choice, start), getattr(choice, stop)
    changes: dict[str, Any] = {}
    if kind in ("EqualTo", "GreaterThan", "GreaterThanOrEqual"):
        changes[start] = first if low is None else max(low, first)
    if kind in ("EqualTo", "LessThan", "LessThanOrEqual"):
        changes[stop] = end if high is None else min(high, end)
    return replace(choice, **changes)
