"""Collecting the records of one pull."""

from formats.layouts.codes import MAGIC_V1, MAGIC_V2
from formats.layouts.derived import CQ_ENTRY, HEAD_V4_V4
from formats.message.read import MIN_SIZE
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.tables.limit import Limit

_MAGICS = (MAGIC_V1, MAGIC_V2)
_HEAD = HEAD_V4_V4.field("total_size", "magic", "physical_offset")


def pull(
    entries: bytes,
    log: Memory,
    base: int,
    in_memory_from: int,
    near: Limit,
    far: Limit,
    room: int,
) -> tuple[int, bytes] | None:
    """See :meth:`rmqtool.kernels.pull.PullKernel.pull`; ``room`` is the maximum size of the result in bytes."""
    views: list[memoryview] = []
    total = 0
    for physical_offset, size, _tags_code in CQ_ENTRY.iter_unpack(entries):
        most_bytes, most_messages = near if physical_offset >= in_memory_from else far
        if views and (len(views) >= most_messages or total + size > most_bytes):
            break
        at = physical_offset - base
        if not (at >= 0 and MIN_SIZE <= size <= min(log.length - at, room - total)):
            return None
        total_size, magic, own_offset = _HEAD.unpack_from(log.view, at)
        if total_size != size or own_offset != physical_offset or magic not in _MAGICS:
            return None
        views.append(log.view[at : at + size])
        total += size
    return len(views), b"".join(views)
