"""Adds to the messages of a table what their bodies hold: the column ``decoded``, and why one has nothing there."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from rmqtool.analytics.bodies.schema import Decode, TableSchema
from rmqtool.services.bodies.schemas import UndecodableBody

DECODED, ERROR = "decoded", "decodeError"
ADDED = (DECODED, ERROR)
_UNDECOMPRESSED = "bodyError"


def add_fields(schema: pa.Schema, bodies: TableSchema | None) -> pa.Schema:
    """Return the schema of messages with the two columns; the same without a schema of bodies."""
    if bodies is None:
        return schema
    return schema.append(pa.field(DECODED, bodies.type)).append(pa.field(ERROR, pa.string()))


class BodyColumns:
    """Decodes bodies for batches of messages.

    Args:
        bodies: None if the columns are never asked for.
        columns: those that are asked for, in their order.
    """

    def __init__(self, bodies: TableSchema | None, columns: Sequence[str]) -> None:
        self._bodies = bodies if bodies is not None and not set(ADDED).isdisjoint(columns) else None
        self._columns = list(columns)
        self._decode: Decode | None = None

    @property
    def needed(self) -> list[str]:
        """The columns of messages that must be read."""
        if self._bodies is None:
            return self._columns
        own = [name for name in self._columns if name not in ADDED]
        return own + [name for name in ("body", _UNDECOMPRESSED) if name not in own]

    def add(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the columns that are asked for, of batches with those that are needed."""
        if self._bodies is None:
            yield from batches
            return
        decode, kind = self._bodies.decoder(), self._bodies.type
        for batch in batches:
            values, errors = decode_column(batch.column("body"), batch.column(_UNDECOMPRESSED), decode, kind)
            added = {DECODED: values, ERROR: errors}
            arrays = [added[name] if name in added else batch.column(name) for name in self._columns]
            fields = [
                pa.field(name, added[name].type) if name in added else batch.schema.field(name)
                for name in self._columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def decode_column(
    bodies: pa.Array, undecompressed: pa.Array, decode: Decode, kind: pa.DataType
) -> tuple[pa.Array, pa.Array]:
    """Return (values, reasons why there is none) of bodies.

    Args:
        undecompressed: the reason why a body is as stored; else null.
    """
    values: list[object] = []
    errors: list[str | None] = []
    for body, reason in zip(bodies.to_pylist(), undecompressed.to_pylist(), strict=True):
        try:
            if reason is not None:
                raise UndecodableBody(reason)
            values.append(decode(body))
            errors.append(None)
        except UndecodableBody as err:
            values.append(None)
            errors.append(str(err))
    return _array(values, errors, kind), pa.array(errors, pa.string())


def _array(values: list[object], errors: list[str | None], kind: pa.DataType) -> pa.Array:
    """Return values as a column; those that the type cannot hold, for example a date, become null with a reason."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        for at, value in enumerate(values):
            try:
                pa.array([value], kind)
            except (pa.ArrowException, OverflowError, ValueError, TypeError) as err:
                values[at], errors[at] = None, str(err).splitlines()[0]
        return pa.array(values, kind)
