"""Messages of a split as Arrow record batches of :data:`rmqtool.analytics.schema.MESSAGE_SCHEMA`, in bounded memory.

Large splits are read by compiled code (:mod:`rmqtool.analytics.columns`), small ones record by record
(:mod:`rmqtool.analytics.rows`); both give the same.
"""

import sys
from collections.abc import Generator, Sequence
from zlib import crc32

import pyarrow as pa

from rmqtool.analytics.choice import Choice
from rmqtool.analytics.rows import Limits, Rows
from rmqtool.analytics.schema import schema_of
from rmqtool.analytics.splits import Split
from rmqtool.analytics.tally import Tally
from rmqtool.store.commit_log import next_record
from rmqtool.store.dispatch import is_bulk

__all__ = ["BATCH_BYTES", "Choice", "Tally", "batches"]

BATCH_BYTES = 8 << 20  # of message after which a batch is full; the message that fills it may be any size


def batches(
    split: Split,
    choice: Choice,
    tally: Tally,
    batch_bytes: int = BATCH_BYTES,
    *,
    columns: Sequence[str] | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """The messages of a split, in the order of the log.

    Args:
        tally: filled along the way; complete when the generator is exhausted.
        columns: of MESSAGE_SCHEMA, in the order wanted; all when None. Nothing else is decoded, but every body's
            checksum is compared: which rows there are does not depend on the columns.

    Raises:
        UnreadableStore: the file cannot be read.
        BadValue: columns that are unknown, named twice, or none.
    """
    schema, limits = schema_of(columns), Limits(batch_bytes)
    file = split.segment()
    view = file.view()
    tally.first = at = split.start if split.exact else next_record(view, file.base, split.start, split.stop)
    if "numba" in sys.modules or is_bulk(view, at, split.stop):
        from rmqtool.analytics.columns import Columns

        reader: Rows | Columns = Columns(schema, choice, tally, limits)
    else:
        reader = Rows(schema, choice, tally, limits)
    tally.next = yield from reader.read(file, at, split.stop, last=split.last)
    if tally.last >= 0:
        tally.last_crc = crc32(view[tally.last : tally.end])
    file.release()
