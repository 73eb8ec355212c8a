"""Bodies as views into the mapped file, copied only when a Parquet file is written.

Bodies are most of a message log, and a dump would copy each body into new memory only to copy it from there into a
Parquet page. Arrow's kernels hardly support views, so the necessary operations are implemented here. Batches with views
are created by :mod:`rmqtool.analytics.table.body_views`, which this module does not import: small stores do not need
it.
"""

import numpy as np
import pyarrow as pa

from formats.arrays import Units
from rmqtool.analytics.table.schema import MESSAGE_SCHEMA

_BODY = MESSAGE_SCHEMA.get_field_index("body")
_OFFSET = 4  # bytes per row for offsets, which views do not need
_INLINE = 12  # maximum size of a body stored in the view itself, bytes
VIEW_SCHEMA = MESSAGE_SCHEMA.set(_BODY, MESSAGE_SCHEMA.field(_BODY).with_type(pa.binary_view()))


def array_of(views: Units, buffers: list[pa.Buffer]) -> pa.Array:
    """Return a column of views into buffers."""
    return pa.Array.from_buffers(pa.binary_view(), len(views), [None, pa.py_buffer(views), *buffers])


def has_views(schema: pa.Schema) -> bool:
    """Return whether a schema of messages is :data:`VIEW_SCHEMA`."""
    return bool(schema.field(_BODY).type == pa.binary_view())


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of messages with bodies copied if they are views."""
    if not has_views(batch.schema):
        return batch
    columns = batch.columns
    columns[_BODY] = columns[_BODY].cast(pa.binary())
    return pa.RecordBatch.from_arrays(columns, schema=MESSAGE_SCHEMA)


def take(batch: pa.RecordBatch, rows: Units) -> pa.RecordBatch:
    """Return the given rows of a batch of messages."""
    picked = pa.array(rows)
    if not has_views(batch.schema):
        return batch.take(picked)
    body = batch.column(_BODY)
    _valid, views, *buffers = body.buffers()
    views = np.frombuffer(views, np.int32).reshape(-1, 4)[body.offset :][rows]
    columns = [column.take(picked) if at != _BODY else array_of(views, buffers) for at, column in enumerate(batch)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def join_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches of messages; empties the list, so that at most one column exists twice at a time."""
    schema = batches[0].schema
    if len(batches) == 1:
        return batches.pop()
    columns = [[batch.column(at) for batch in batches] for at in range(len(schema))]
    batches.clear()
    joined = []
    for at in range(len(schema)):
        parts, columns[at] = columns[at], []
        joined.append(_joined_views(parts) if schema.field(at).type == pa.binary_view() else pa.concat_arrays(parts))
    return pa.RecordBatch.from_arrays(joined, schema=schema)


def _joined_views(parts: list[pa.Array]) -> pa.Array:
    buffers: list[pa.Buffer] = []
    every = []
    for part in parts:
        _valid, own, *others = part.buffers()
        views = np.frombuffer(own, np.int32).reshape(-1, 4)[part.offset : part.offset + len(part)].copy()
        views[views[:, 0] > _INLINE, 2] += len(buffers)
        buffers += others
        every.append(views)
    return array_of(np.concatenate(every), buffers)


def memory_of(batch: pa.RecordBatch) -> int:
    """Return the Arrow memory in bytes that a batch of messages takes, or would take with its bodies copied."""
    if not has_views(batch.schema):
        return int(batch.nbytes)
    import pyarrow.compute as pc  # a report does without

    others = sum(int(column.nbytes) for at, column in enumerate(batch) if at != _BODY)
    bodies: int = pc.sum(batch.column("bodyLength"), min_count=0).as_py()
    return others + bodies + _OFFSET * int(batch.num_rows)
