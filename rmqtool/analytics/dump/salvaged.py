"""Writing everything readable in a damaged log to one Parquet file, in this process and in bounded memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from rmqtool.analytics.dump.parquet import WRITER_OPTIONS
from rmqtool.analytics.ranges.splits import Split, split_of_tier
from rmqtool.analytics.table.arrow import MessageChoice, SplitTally, batches
from rmqtool.analytics.table.schema import MESSAGE_SCHEMA
from rmqtool.store.log.commit_log import CommitLog, Damage
from rmqtool.store.tier.only_tiered import LogWithTier

_GROUP_BYTES = 64 << 20  # of Arrow memory per row group


@dataclass(slots=True)
class _Telling(SplitTally):
    """Passes every damaged range to a callback."""

    tell: Callable[[Damage], None] = print

    def add_damage(self, item: Damage) -> None:
        self.tell(item)


def write_parquet(log: CommitLog, path: str, tell: Callable[[Damage], None]) -> int:
    """Write every intact message; return their number.

    Args:
        tell: called with each damaged range, in order.
    """
    rows = 0
    with pq.ParquetWriter(path, MESSAGE_SCHEMA, compression="zstd", **WRITER_OPTIONS) as writer:
        for group in _groups(_all_batches(log, tell)):
            writer.write_table(group, row_group_size=group.num_rows)
            rows += group.num_rows
    return rows


def _all_batches(log: CommitLog, tell: Callable[[Damage], None]) -> Iterator[pa.RecordBatch]:
    tier = log.tiered.stretches() if isinstance(log, LogWithTier) else ()
    for number, stretch in enumerate(tier):
        yield from batches(split_of_tier(stretch, number), MessageChoice(), _Telling(tell=tell))
    files = log.segments.files
    for number, file in enumerate(files):
        last = number + 1 == len(files)
        split = Split(number, file.path, file.base, file.size, 0, file.size, last, exact=True, entries=file.entries)
        yield from batches(split, MessageChoice(), _Telling(tell=tell))


def _groups(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine batches to row groups of a useful size."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for part in parts:
        pending.append(part)
        size += part.nbytes
        if size >= _GROUP_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending)
