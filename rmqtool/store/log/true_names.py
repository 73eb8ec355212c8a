"""Files of the log under names that are not theirs: each record states its position, and so where its file begins."""

from collections import Counter
from collections.abc import Sequence
from mmap import mmap
from typing import NamedTuple

from formats.layouts.codes import MAGIC_V1
from formats.message.read import Record, read
from rmqtool.store.disk.remote import record_start
from rmqtool.store.disk.segments import Segment

_MAGIC_PREFIX = MAGIC_V1.to_bytes(4, "big", signed=True)[:3]  # of both versions
_WITNESSES = 8  # records that tell where their file lies
_SEARCHED = 64 << 20


class MisnamedFile(NamedTuple):
    """A file whose name is not what its records say."""

    path: str
    said: int  # by the name
    told: int  # by the records


def misnamed(files: Sequence[Segment], file_size: int) -> list[MisnamedFile]:
    """Files whose true place no other file holds: they were renamed, or swapped. Copies of files are none of these."""
    wrong, right = [], set[int]()
    for file in files:
        start = record_start(file.view(), 0)
        first = read(file.view(), start, file.size, crc=False)
        if isinstance(first, Record) and first.physical_offset == file.base + start:
            right.add(file.base)
        elif isinstance(first, Record) and (base := stated_base(file, file_size)) is not None:
            if base == file.base:
                right.add(base)
            else:
                wrong.append(MisnamedFile(file.path, file.base, base))
        del first
        file.release()
    return [place for place in wrong if place.told not in right]


def stated_base(file: Segment, file_size: int) -> int | None:
    """The offset of a file's first byte that most of its first records state; None without records."""
    view = file.view()
    mapped: mmap | bytes = view.obj  # type: ignore[assignment]
    told: Counter[int] = Counter()
    at = 4
    while told.total() < _WITNESSES:
        at = mapped.find(_MAGIC_PREFIX, at, min(file.size, _SEARCHED))
        if at < 0:
            break
        record = read(view, at - 4, file.size)
        if isinstance(record, Record):
            base = record.physical_offset - (at - 4)
            if base >= 0 and base % file_size == 0 and base < 2**62:
                told[base] += 1
            at += record.total_size
        else:
            at += 1
    file.release()
    if not told:
        return None
    ((base, votes),) = told.most_common(1)
    return base if 2 * votes > told.total() else None
