"""Units of a queue in RocksDB as columns; units of consecutive messages are read as a range."""

import numpy as np

from formats.arrays import Column
from formats.layouts.derived import ROCKS_UNIT
from rmqtool.store.queues.rocks import RocksQueue

UNIT_TYPE = np.dtype([("offset", "i8"), ("physical", "i8"), ("size", "i8"), ("tags", "i8"), ("time", "i8")])
_SPARSE = 8  # up to this many queue offsets per wanted unit, the range is read as a whole


def units_at(queue: RocksQueue, offsets: Column) -> Column:
    """The existing units at some queue offsets, ascending, of ``UNIT_TYPE``; may include others in between.

    Raises:
        CorruptFile: a part of the database cannot be read.
    """
    low, high = int(offsets.min()), int(offsets.max())
    if high - low < _SPARSE * len(offsets):
        return _columns(*queue.raw_units(low, high + 1))
    wanted = np.unique(offsets).tolist()
    units = [(offset, *unit) for offset in wanted if (unit := queue.unit(offset)) is not None]
    return np.array(units, UNIT_TYPE)


def _columns(offsets: bytes, units: bytes) -> Column:
    """Units of ``UNIT_TYPE`` from their queue offsets, as stored in keys, and their stored forms."""
    stored = np.frombuffer(units, ROCKS_UNIT.dtype)
    columns = np.empty(len(stored), UNIT_TYPE)
    columns["offset"] = np.frombuffer(offsets, ">i8")
    for name, field in zip(UNIT_TYPE.names or (), ("", *ROCKS_UNIT.names), strict=True):
        if field:
            columns[name] = stored[field]
    return columns
