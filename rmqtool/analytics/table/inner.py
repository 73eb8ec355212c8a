"""Rows of inner batches divided: a row for each message, whose body and properties lie inside the record's own body.

Equal to :func:`formats.message.inner.messages_in`, record by record.
"""

from collections.abc import Iterator

import numpy as np

from formats.message.bodies import BatchSpan
from formats.message.inner import BATCH_BITS, is_inner_batch, spans_of
from formats.primitives import INNER_BATCH, crc31
from rmqtool.kernels.scan import Rows

MOST = 1 << 14  # rows that are made of batches at once: of one record there may be a million
_NAMES = BatchSpan._fields


def divide_batches(view: memoryview, rows: Rows) -> Iterator[Rows]:
    """Rows with a row for each message, in the same order.

    Args:
        view: the file that they lie in.
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
    some: list[BatchSpan] = []
    for span in spans:
        some.append(span)
        if len(some) == MOST:
            yield _make_rows(view, rows, row, first, some)
            first, some = first + len(some), []
    if some:
        yield _make_rows(view, rows, row, first, some)


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
