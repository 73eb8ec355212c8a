"""What :func:`rmqtool.store.log.commit_log.walk_file` finds, many records at once by compiled code."""

from collections.abc import Generator

import numpy as np

from rmqtool.kernels.plain.scan import row_of
from rmqtool.kernels.scan import Rows, Walker
from rmqtool.store.disk.remote import reach
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import Damage, says_position, walk_file
from rmqtool.store.log.scan import ROWS

_WINDOW = 8 << 20  # bytes walked before their pages are given back


def walk_rows(file: Segment, at: int, stop: int, *, last: bool) -> Generator[Rows | Damage, None, int]:
    """As ``walk_file``; rows are arrays that the next step overwrites, at most
    :data:`rmqtool.store.log.scan.ROWS` long."""
    view, size, forgotten = file.map(), file.size, at
    if at >= stop:
        return at
    walker = Walker(view, ROWS)
    while at < size:
        if at >= stop and says_position(view, file.base, at):
            return at
        end = min(at + _WINDOW, stop) if at < stop else at + _WINDOW
        rows, following = walker.walk(at, reach(view, at, end, size), end)
        if at >= stop:
            rows, following = _before_position(rows, file.base, following)
        if rows.records:
            yield rows
            at = following
        else:
            # plain code says what is there instead of a record
            there = walk_file(file, at, at + 1, last=last)
            try:
                item = next(there)
            except StopIteration as end:
                at = end.value
                continue
            if isinstance(item, Damage):
                yield item
                at = item.at + item.length
            else:  # a record that was being written meanwhile, or one that compiled code does not know
                walker.table[:, 0] = row_of(item.record, item.at)
                yield Rows(*walker.table[:, :1])
                at = item.at + item.record.total_size
        if at - forgotten >= _WINDOW:
            file.forget(forgotten, min(at, size))
            forgotten = at
    return at


def _before_position(rows: Rows, base: int, following: int) -> tuple[Rows, int]:
    """Rows up to the first that says its own position, and where that one begins."""
    indices = np.flatnonzero(rows.physical_offset == rows.at + base)
    if not len(indices):
        return rows, following
    return Rows(*(column[: indices[0]] for column in rows)), int(rows.at[indices[0]])
