"""Units of a queue in RocksDB as columns; units of consecutive messages are read as a range."""

import numpy as np

from formats.arrays import Column
from formats.queues.rocks import RocksUnit
from rmqtool.store.queues.rocks import RocksQueue

UNIT_TYPE = np.dtype([("offset", "i8"), ("physical", "i8"), ("size", "i8"), ("tags", "i8"), ("time", "i8")])
_SPARSE = 8  # up to this many queue offsets per wanted unit, the range is read as a whole


def units_at(queue: RocksQueue, offsets: Column) -> Column:
    """The existing units at some queue offsets, ascending, of ``UNIT_TYPE``; may include others in between.

    Raises:
        CorruptFile: a part of the database cannot be read.
    """
    low, high = int(offsets.min()), int(offsets.max())
    units: list[tuple[int, RocksUnit]]
    if high - low < _SPARSE * len(offsets):
        units = list(queue.units(low, high + 1, beyond=True))
    else:
        wanted = np.unique(offsets).tolist()
        units = [(offset, unit) for offset in wanted if (unit := queue.unit(offset)) is not None]
    return np.array([(offset, *unit) for offset, unit in units], UNIT_TYPE)
