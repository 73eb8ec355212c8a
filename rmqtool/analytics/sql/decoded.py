"""Write the tables of stores, or the parts that a query needs, to Parquet files that an SQL engine reads."""

import os
from collections.abc import Sequence

import pyarrow as pa

from rmqtool.analytics.bodies.schema import TableSchema
from rmqtool.analytics.source.plan import Piece
from rmqtool.analytics.source.read import Counters, read_piece
from rmqtool.errors import UnreadableStore

_FEW_VALUES = ["topic", "tags", "bornHost", "storeHost", "bodyEncoding", "sourceFile", "broker"]


def readable(schema: pa.Schema) -> pa.Schema:
    """Make all fields nullable, since columns that are not decoded are null."""
    return pa.schema([field.with_nullable(True) for field in schema])


def write_piece(
    folder: str, schema: pa.Schema, bodies: TableSchema | None, numbered: tuple[int, Piece]
) -> Counters | str:
    """Decode one piece to a file; return the counters, or the reason if a file cannot be read or written.

    Args:
        schema: the columns to write.
        bodies: see :attr:`ReadRequest.bodies`.
    """
    import pyarrow.parquet as pq

    number, piece = numbered
    counters = Counters()
    schema = readable(schema)
    path = os.path.join(folder, f"part-{number:05d}.parquet")
    few = [name for name in _FEW_VALUES if name in schema.names]
    try:
        with pq.ParquetWriter(
            path, schema, compression="lz4", use_dictionary=few, write_statistics=False, write_page_checksum=True
        ) as writer:
            for batch in read_piece(piece, schema.names, counters, bodies):
                writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    except UnreadableStore as err:
        return str(err)
    except OSError as err:
        return f"{folder}: {os.strerror(err.errno or 0)}"
    return counters


def number_names(columns: Sequence[str]) -> list[str]:
    """The names of columns, duplicates numbered."""
    names: list[str] = []
    for name in columns:
        number = 1 + sum(other == name or other.rpartition("_")[0] == name for other in names)
        names.append(name if number == 1 else f"{name}_{number}")
    return names
