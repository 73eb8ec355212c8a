"""The messages of a split as Arrow record batches of the message schema, in bounded memory.

Large splits are read by compiled code (:mod:`rmqtool.analytics.table.column_reader`), small ones record by record
(:mod:`rmqtool.analytics.table.row_reader`), with the same result.
"""

from collections.abc import Generator, Sequence

import pyarrow as pa

from rmqtool.analytics.ranges.splits import Split
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.row_reader import BatchLimits, RowReader
from rmqtool.analytics.table.schema import schema_of
from rmqtool.analytics.table.tally import SplitTally, crc_of
from rmqtool.analytics.table.views import VIEW_SCHEMA
from rmqtool.store.disk.remote import Partial
from rmqtool.store.disk.segments import Segment
from rmqtool.store.dispatch.batch import is_bulk
from rmqtool.store.log.records import is_entries, next_record

__all__ = ["BATCH_BYTES", "MessageChoice", "SplitTally", "batches"]

BATCH_BYTES = 8 << 20  # size of messages after which a batch is full; the last message may have any size
_VIEWED = 4  # factor for batches whose bodies take no memory


def batches(
    split: Split,
    choice: MessageChoice,
    tally: SplitTally,
    batch_bytes: int = BATCH_BYTES,
    *,
    columns: Sequence[str] | None = None,
    file: Segment | None = None,
    views: bool = False,
    compiled: bool = False,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the messages of a split in log order.

    Args:
        tally: updated while reading; complete when the generator is exhausted.
        columns: columns of MESSAGE_SCHEMA in the desired order; None for all. Only these are decoded, but the checksum
            of every body is verified, so the set of rows does not depend on the columns.
        file: file of the split, if many splits of it are read; it stays mapped.
        views: allow batches in :data:`rmqtool.analytics.table.views.VIEW_SCHEMA`, which keep the file mapped as long as
            they exist. Used only where it is worthwhile.
        compiled: read a small split by compiled code, too, where that can be done: pandas, which the other way imports
            wherever it is installed, takes longer to load.

    Raises:
        UnreadableStore: the file cannot be read.
        BadValue: columns are unknown, named twice, or empty.
    """
    schema, limits = schema_of(columns), BatchLimits(batch_bytes)
    own = file is None
    file = file or split.segment()
    view = file.map()
    tally.first = at = split.start if split.exact else next_record(view, file.base, split.start, split.stop)
    is_partial, bulk = isinstance(view.obj, Partial), is_bulk(view, at, split.stop)
    if bulk or (compiled and not (is_partial or is_entries(view))):
        from rmqtool.analytics.table.column_reader import ColumnReader

        # a file fetched in parts releases what has been decoded, so no views into it
        if views and bulk and not is_partial:
            schema, limits = VIEW_SCHEMA, BatchLimits(_VIEWED * batch_bytes)
        reader: RowReader | ColumnReader = ColumnReader(schema, choice, tally, limits)
    else:
        reader = RowReader(schema, choice, tally, limits)
    tally.next = yield from reader.read(file, at, split.stop, last=split.last, stretch=split.stretch(file))
    if tally.last >= 0:
        tally.last_crc = crc_of(file, tally.last, tally.end)
    if own:
        file.release()
