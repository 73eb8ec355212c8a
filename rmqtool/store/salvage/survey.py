"""Survey a log before a salvage: the true places of its files, and the wrong queue offsets in it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqtool.store.check.common.context import Context
from rmqtool.store.check.common.findings import FindingCollector
from rmqtool.store.check.log.log import LogCheck, RecordRun
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.true_names import MisnamedFile, stated_base
from rmqtool.store.repair.lengths import lone_length

_MOST_WRONG = 1_000_000  # wrong offsets remembered; a log with more of them has no order to restore


def true_files(log: CommitLog) -> tuple[Segments, list[MisnamedFile], list[MisnamedFile]]:
    """The log's files at the places that their records state; the misnamed ones; and the skipped ones.

    If several files claim one place, a file whose name agrees with its records wins, then any file with records; the
    others are copies.
    """
    chosen: dict[int, tuple[int, Segment, MisnamedFile]] = {}
    skipped: list[MisnamedFile] = []
    for file in log.segments:
        stated = stated_base(file, log.file_size)
        base = file.base if stated is None else stated
        rank = 2 if stated is None else int(base != file.base)
        true_file = Segment(
            file.path, base, file.size, file.mtime_ns, entries=file.entries, whole_pages=file.whole_pages
        )
        candidate = rank, true_file, MisnamedFile(file.path, file.base, base)
        other = chosen.get(base)
        if other is not None:
            candidate, other = (candidate, other) if rank < other[0] else (other, candidate)
            skipped.append(other[2])
        chosen[base] = candidate
    kept = [chosen[base] for base in sorted(chosen)]
    moved = [place for _rank, _file, place in kept if place.named_base != place.stated_base]
    return Segments([file for _rank, file, _place in kept], log.segments.foreign), moved, skipped


def describe_misnamed(
    moved: list[MisnamedFile], passed: list[MisnamedFile], name: Callable[[str], str] = str
) -> list[str]:
    """The results of :func:`true_files`, one sentence per file.

    Args:
        name: returns the original path of a file that may be a partial copy.
    """
    texts = [f"{name(file.path)}: its records say that it begins at {file.stated_base}: read there" for file in moved]
    return texts + [f"{name(file.path)}: another file holds what is at {file.stated_base}: skipped" for file in passed]


def true_length(log: CommitLog) -> list[str]:
    """Use the most likely file size if the log's only file was truncated; returns a sentence that says so."""
    if (length := lone_length(log)) is None:
        return []
    files, log.file_size = log.segments.files, length
    reason = (
        f"{files[0].path}: is shorter than it was. The new store has files of {length} bytes, as brokers have unless "
        "mappedFileSizeCommitLog names another length (then give --broker-conf)"
    )
    return [reason]


class _Doubtful(NamedTuple):
    """A message with an unexpected offset; the next one of its queue decides."""

    position: int  # -1 for a run of stale messages
    offset: int
    above: bool


@dataclass(slots=True)
class _Numbers:
    """The offsets of a queue so far.

    Attributes:
        next: the next expected offset; None before the first.
        begin: the first trusted offset; None without one.
        floating: number of messages with a wrong offset before that.
    """

    next: int | None
    doubtful: _Doubtful | None = None
    begin: int | None = None
    floating: int = 0


@dataclass(slots=True)
class Survey:
    """Reads the log once to find wrong queue offsets.

    Queue offsets count up by one, and are not covered by a checksum. An offset is wrong if the ones after it continue
    from those before it.

    Attributes:
        wrong: physical offsets of messages with a wrong queue offset.
    """

    wrong: set[int] = field(default_factory=set)
    _queues: dict[tuple[str, int], _Numbers] = field(default_factory=dict)
    _whole: bool = True  # whether the log begins at 0, so that queues do

    @classmethod
    def of(cls, layout: StoreLayout, files: Segments) -> "Survey":
        """Survey a log with these files."""
        survey = cls(_whole=not files.files or files.files[0].base == 0)
        ctx = Context(layout, FindingCollector(0))
        ctx.log.segments = files
        for _ in LogCheck(ctx, survey._add_stretch).run():
            pass
        return survey

    def begin(self, topic: str, queue_id: int) -> int:
        """The queue offset of a queue's beginning: 0 in a log that begins at 0, even if messages are missing."""
        return 0 if self._whole else self.first((topic, queue_id)) or 0

    def first(self, key: tuple[str, int]) -> int | None:
        """The queue offset of a queue's first message in the log; None without one."""
        if (queue := self._queues.get(key)) is None:
            return None
        begin = queue.begin
        if begin is None:
            begin = queue.doubtful.offset if queue.doubtful else 0
        return max(begin - queue.floating, 0)

    def _add_stretch(self, stretch: RecordRun) -> None:
        batch = stretch.batch
        for rows in batch.by_queue():
            first = int(rows[0])
            key = batch.topics[int(batch.topic[first])], int(batch.queue_id[first])
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = _Numbers(0 if self._whole else None)
            offsets = batch.queue_offset[rows]
            # the usual case: everything in order
            if queue.doubtful is None and queue.next == offsets[0] and bool(np.all(np.diff(offsets) == 1)):
                queue.next = int(offsets[-1]) + 1
                queue.begin = int(offsets[0]) if queue.begin is None else queue.begin
                continue
            for position, offset in zip(stretch.position[rows].tolist(), offsets.tolist(), strict=True):
                self._add(queue, position, offset)

    def _add(self, queue: _Numbers, position: int, offset: int) -> None:
        low, doubtful = queue.next or 0, queue.doubtful
        if doubtful is not None:
            if doubtful.above and offset > doubtful.offset:
                self._trust(queue, doubtful.offset)
            elif offset >= low:
                self._distrust(queue, doubtful)
            else:
                if not doubtful.above:
                    queue.doubtful = _Doubtful(-1, offset, above=False)
                return
        if offset == queue.next:
            self._trust(queue, offset)
        else:
            queue.doubtful = _Doubtful(position, offset, above=queue.next is None or offset > queue.next)

    def _trust(self, queue: _Numbers, offset: int) -> None:
        queue.begin = offset if queue.begin is None else queue.begin
        queue.next, queue.doubtful = offset + 1, None

    def _distrust(self, queue: _Numbers, doubtful: _Doubtful) -> None:
        queue.doubtful = None
        if doubtful.position >= 0 and len(self.wrong) < _MOST_WRONG:
            self.wrong.add(doubtful.position)
            queue.floating += queue.begin is None
