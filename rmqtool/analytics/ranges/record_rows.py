"""Bulk version of :func:`rmqtool.store.log.commit_log.walk_file`, using compiled code."""

from collections.abc import Generator
from typing import TYPE_CHECKING

import numpy as np

from rmqtool.kernels.plain.scan import row_of
from rmqtool.kernels.scan import Rows, Walker
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import Damage, walk_file
from rmqtool.store.log.records import reach, says_position
from rmqtool.store.log.scan import ROWS

if TYPE_CHECKING:
    from rmqtool.store.tier.tier import Stretch

_WINDOW = 8 << 20  # bytes walked before their pages are released


def walk_rows(
    file: Segment, at: int, stop: int, *, last: bool, stretch: "Stretch | None" = None
) -> Generator[Rows | Damage, None, int]:
    """As ``walk_file``; yields arrays of up to :data:`~rmqtool.store.log.scan.ROWS` rows, valid until the next step.

    Args:
        stretch: what is walked, if the file is a tiered segment: as its ``walk``.
    """
    view, size, forgotten, offset = file.map(), file.size, at, 0
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
            offset = int(rows.queue_offset[-1]) + 1
            yield rows
            at = following
        else:
            # the plain code determines what is there instead of a record
            walk = walk_file(file, at, at + 1, last=last)
            try:
                item = next(walk)
            except StopIteration as end:
                at = end.value
                continue
            inside = stretch.read_inside(item, offset) if stretch is not None and isinstance(item, Damage) else (item,)
            for part in inside:
                if isinstance(part, Damage):
                    yield part
                    at = part.at + part.length
                else:  # a record completed in the meantime, or one that compiled code does not support
                    walker.table[:, 0] = row_of(part.record, part.at)
                    offset = part.record.queue_offset + 1
                    yield Rows(*walker.table[:, :1])
                    at = part.at + part.record.total_size
        if at - forgotten >= _WINDOW:
            file.forget(forgotten, min(at, size))
            forgotten = at
    return at


def _before_position(rows: Rows, base: int, following: int) -> tuple[Rows, int]:
    """Return the rows before the first one with a matching physical offset, and the position of that one."""
    indices = np.flatnonzero(rows.physical_offset == rows.at + base)
    if not len(indices):
        return rows, following
    return Rows(*(column[: indices[0]] for column in rows)), int(rows.at[indices[0]])
