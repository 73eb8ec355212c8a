"""Detect misnamed log files: each record states its own offset, and from that follows where its file begins."""

from collections import Counter
from collections.abc import Sequence
from mmap import mmap
from typing import NamedTuple

from formats.layouts.codes import MAGIC_V1
from formats.message.read import Record, read
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.records import record_start

_MAGIC_PREFIX = MAGIC_V1.to_bytes(4, "big", signed=True)[:3]  # shared by both versions
_WITNESSES = 8  # records consulted per file
_SEARCHED = 64 << 20


class MisnamedFile(NamedTuple):
    """A file whose name disagrees with its records."""

    path: str
    named_base: int  # offset in the file's name
    stated_base: int  # offset of the file's first byte according to its records


def find_misnamed(files: Sequence[Segment], file_size: int) -> list[MisnamedFile]:
    """Renamed or swapped files: those whose true place is not held by another file. Copies do not count."""
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
    return [file for file in wrong if file.stated_base not in right]


def stated_base(file: Segment, file_size: int) -> int | None:
    """The offset of a file's first byte according to most of its first records; None without records."""
    view = file.view()
    mapped: mmap | bytes = view.obj  # type: ignore[assignment]
    bases: Counter[int] = Counter()
    at = 4
    while bases.total() < _WITNESSES:
        at = mapped.find(_MAGIC_PREFIX, at, min(file.size, _SEARCHED))
        if at < 0:
            break
        record = read(view, at - 4, file.size)
        if isinstance(record, Record):
            base = record.physical_offset - (at - 4)
            if base >= 0 and base % file_size == 0 and base < 2**62:
                bases[base] += 1
            at += record.total_size
        else:
            at += 1
    file.release()
    if not bases:
        return None
    ((base, votes),) = bases.most_common(1)
    return base if 2 * votes > bases.total() else None
