"""Messages of a split as Arrow record batches of the message schema, in bounded memory.

Large splits are read by compiled code (:mod:`rmqtool.analytics.table.column_reader`), small ones record by record
(:mod:`rmqtool.analytics.table.row_reader`); both give the same.
"""

from collections.abc import Generator, Sequence

import pyarrow as pa

from rmqtool.analytics.ranges.large import is_large
from rmqtool.analytics.ranges.splits import Split
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.row_reader import Limits, RowReader
from rmqtool.analytics.table.schema import schema_of
from rmqtool.analytics.table.tally import SplitTally, crc_of
from rmqtool.analytics.table.views import VIEW_SCHEMA
from rmqtool.store.disk.remote import Partial
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import next_record

__all__ = ["BATCH_BYTES", "MessageChoice", "SplitTally", "batches"]

BATCH_BYTES = 8 << 20  # of message after which a batch is full; the message that fills it may be any size
_VIEWED = 4  # times as much, where bodies take no memory


def batches(
    split: Split,
    choice: MessageChoice,
    tally: SplitTally,
    batch_bytes: int = BATCH_BYTES,
    *,
    columns: Sequence[str] | None = None,
    file: Segment | None = None,
    views: bool = False,
) -> Generator[pa.RecordBatch, None, None]:
    """The messages of a split, in the order of the log.

    Args:
        tally: filled along the way; complete when the generator is exhausted.
        columns: of MESSAGE_SCHEMA, in the order wanted; all when None. Nothing else is decoded, but every body's
            checksum is compared: which rows there are does not depend on the columns.
        file: the split's, where many splits of it are read; it stays mapped then.
        views: whether all columns may come in :data:`rmqtool.analytics.table.views.VIEW_SCHEMA`, which keeps the file
            mapped as long as a batch is there. So it is where that is worth it.

    Raises:
        UnreadableStore: the file cannot be read.
        BadValue: columns that are unknown, named twice, or none.
    """
    schema, limits = schema_of(columns), Limits(batch_bytes)
    own = file is None
    file = file or split.segment()
    view = file.map()
    tally.first = at = split.start if split.exact else next_record(view, file.base, split.start, split.stop)
    if is_large(view, at, split.stop):
        from rmqtool.analytics.table.column_reader import ColumnReader

        # of a file that is fetched in parts, what was decoded is given back
        if views and not isinstance(view.obj, Partial):
            schema, limits = VIEW_SCHEMA, Limits(_VIEWED * batch_bytes)
        reader: RowReader | ColumnReader = ColumnReader(schema, choice, tally, limits)
    else:
        reader = RowReader(schema, choice, tally, limits)
    tally.next = yield from reader.read(file, at, split.stop, last=split.last)
    if tally.last >= 0:
        tally.last_crc = crc_of(file, tally.last, tally.end)
    if own:
        file.release()
