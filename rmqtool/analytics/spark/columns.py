"""Converts the columns that Spark asks for to its types."""

from collections.abc import Iterator, Sequence
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
        if set(columns) - set(schema.names) or len(set(columns)) < len(columns):
            known = ", ".join(schema.names)
            raise BadValue(f"option columns: {', '.join(columns)}: give some of {known}, each once")
        schema = pa.schema([schema.field(name) for name in columns])
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

        known = {field.name: field.dataType for field in from_arrow_schema(columns)}
        for field in schema:
            if field.name not in known:
                raise BadValue(f"table {table} has no column {field.name}; it has {', '.join(known)}")
            if field.dataType.simpleString() != known[field.name].simpleString():
                kinds = known[field.name].simpleString(), field.dataType.simpleString()
                raise BadValue(f"column {field.name} of table {table} is {kinds[0]}, not {kinds[1]}")
        self.names, self._schema = schema.fieldNames(), schema

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
