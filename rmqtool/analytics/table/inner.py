"""Divides rows of inner batches: one row per message, whose body and properties are inside the record's body.

Equivalent to :func:`formats.message.inner.messages_in` for each record.
"""

from collections.abc import Iterator

import numpy as np

from formats.message.bodies import BatchSpan
from formats.message.inner import BATCH_BITS, is_inner_batch, spans_of
from formats.primitives import INNER_BATCH, crc31
from rmqtool.kernels.scan import Rows

MOST = 1 << 14  # maximum number of rows created at a time; one record can hold a million messages
_NAMES = BatchSpan._fields


def divide_batches(view: memoryview, rows: Rows) -> Iterator[Rows]:
    """Yield rows with one row per message, in the same order.

    Args:
        view: the file that contains them.
    """
    batches = np.flatnonzero(rows.sys_flag & INNER_BATCH)
    start = 0
    for row in batches.tolist():
        at, length = int(rows.body_at[row]), int(rows.body_length[row])
        spans = spans_of(view, at, at + length) if is_inner_batch(int(rows.sys_flag[row])) else None
        if spans is None:
            continue
        if row > start:
            yield Rows(*(column[start:row] for column in rows))
        start = row + 1
        yield from _messages(view, rows, row, spans)
    if start == 0:
        yield rows
    elif start < rows.records:
        yield Rows(*(column[start:] for column in rows))


def _messages(view: memoryview, rows: Rows, row: int, spans: Iterator[BatchSpan]) -> Iterator[Rows]:
    first = 0
    pending: list[BatchSpan] = []
    for span in spans:
        pending.append(span)
        if len(pending) == MOST:
            yield _make_rows(view, rows, row, first, pending)
            first, pending = first + len(pending), []
    if pending:
        yield _make_rows(view, rows, row, first, pending)


def _make_rows(view: memoryview, rows: Rows, row: int, first: int, spans: list[BatchSpan]) -> Rows:
    count = len(spans)
    expanded = Rows(*(np.repeat(column[row : row + 1], count) for column in rows))
    own = dict(zip(_NAMES, np.array(spans, np.int64).T, strict=True))
    checksums = [crc31(view[at : at + length]) for _flag, at, length, *_rest in spans]
    return expanded._replace(
        **own,
        queue_offset=expanded.queue_offset + np.arange(first, first + count),
        sys_flag=expanded.sys_flag & ~BATCH_BITS,
        body_crc=np.array(checksums, np.int64),
    )
