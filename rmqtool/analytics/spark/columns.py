"""Converts the columns that Spark asks for to its types."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqtool.errors import BadValue

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def schema_of(schema: pa.Schema, columns: "Sequence[str] | None") -> "StructType":
    """Return the columns of a table, or the given ones in order, as a Spark schema.

    Raises:
        BadValue: a column does not exist or is named twice.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    if columns is not None:
        by_name = {name.lower(): name for name in schema.names}
        names = [by_name.get(column.lower(), "") for column in columns]
        if "" in names or len(set(names)) < len(names):
            known = ", ".join(schema.names)
            raise BadValue(f"option columns: {', '.join(columns)}: give some of {known}, each once")
        schema = pa.schema([schema.field(name) for name in names])
    return from_arrow_schema(schema)


class SparkColumns:
    """The columns that Spark asked for, and conversion of batches to its types.

    Args:
        table: name of the table, for errors.
        columns: of the table.
        schema: what Spark asked for.

    Raises:
        BadValue: a column does not exist or has another type.
    """

    def __init__(self, table: str, columns: pa.Schema, schema: "StructType") -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        known = {field.name.lower(): field for field in from_arrow_schema(columns)}
        self.names: list[str] = []
        for field in schema:
            column = known.get(field.name.lower())  # Spark's names have no case
            if column is None:
                raise BadValue(f"table {table} has no column {field.name}; it has {', '.join(columns.names)}")
            if field.dataType.simpleString() != column.dataType.simpleString():
                kinds = column.dataType.simpleString(), field.dataType.simpleString()
                raise BadValue(f"column {field.name} of table {table} is {kinds[0]}, not {kinds[1]}")
            self.names.append(column.name)
        self._schema = schema

    def fit(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Cast batches to exactly the types that Spark expects, including nullability."""
        from pyspark.sql.pandas.types import to_arrow_schema

        wanted = to_arrow_schema(self._schema, timezone="UTC")
        for batch in batches:
            arrays = [
                column if column.type.equals(kind) else column.cast(kind)
                for column, kind in zip(batch.columns, wanted.types, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


def limit_rows(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield batches up to a number of rows; None for all."""
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return
