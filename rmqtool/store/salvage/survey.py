"""What salvage must know of a log before it writes: where its files truly lie, and which queue offsets are wrong."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqtool.store.check.common.context import Context
from rmqtool.store.check.common.findings import Collector
from rmqtool.store.check.log.log import LogCheck, Stretch
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.true_names import MisnamedFile, stated_base
from rmqtool.store.repair.lengths import lone_length

_MOST_WRONG = 1_000_000  # numbers that are remembered as wrong; a log with more has no order to follow


def true_files(log: CommitLog) -> tuple[Segments, list[MisnamedFile], list[MisnamedFile]]:
    """The log's files where their records say that they lie; those that had moved; and those that are passed over.

    Of several files for one place, the one with records under their own name counts, else any with records: the
    others are copies.
    """
    chosen: dict[int, tuple[int, Segment, MisnamedFile]] = {}
    skipped: list[MisnamedFile] = []
    for file in log.segments:
        told = stated_base(file, log.file_size)
        base = file.base if told is None else told
        rank = 2 if told is None else int(base != file.base)
        true_file = Segment(file.path, base, file.size, file.mtime_ns, entries=file.entries)
        candidate = rank, true_file, MisnamedFile(file.path, file.base, base)
        other = chosen.get(base)
        if other is not None:
            candidate, other = (candidate, other) if rank < other[0] else (other, candidate)
            skipped.append(other[2])
        chosen[base] = candidate
    kept = [chosen[base] for base in sorted(chosen)]
    moved = [place for _rank, _file, place in kept if place.said != place.told]
    return Segments([file for _rank, file, _place in kept], log.segments.foreign), moved, skipped


def moved_words(moved: list[MisnamedFile], passed: list[MisnamedFile], name: Callable[[str], str] = str) -> list[str]:
    """What :func:`true_files` has found, for people.

    Args:
        name: the file that a path stands for.
    """
    texts = [f"{name(file.path)}: its records say that it begins at {file.told}: read there" for file in moved]
    return texts + [f"{name(file.path)}: another file holds what is at {file.told}: skipped" for file in passed]


def true_length(log: CommitLog) -> list[str]:
    """Take the length that brokers give to files, where the log's only file was cut short; says so, for people."""
    if (length := lone_length(log)) is None:
        return []
    files, log.file_size = log.segments.files, length
    reason = (
        f"{files[0].path}: is shorter than it was. The new store has files of {length} bytes, as brokers have unless "
        "mappedFileSizeCommitLog names another length (then give --broker-conf)"
    )
    return [reason]


class _Waiting(NamedTuple):
    """A message whose offset is not what was expected; the next one of its queue will tell."""

    position: int  # -1 for old messages that came back to life, of which there are several in a row
    offset: int
    above: bool


@dataclass(slots=True)
class _Numbers:
    """A queue's offsets so far.

    Attributes:
        next: expected next; None before the first.
        begin: the first offset that is believed; None without any.
        floating: messages with a wrong offset before that.
    """

    next: int | None
    waiting: _Waiting | None = None
    begin: int | None = None
    floating: int = 0


@dataclass(slots=True)
class Survey:
    """Reads the log once.

    Queue offsets count up by one, and no checksum covers them. An offset is wrong where the ones after it go on from
    those before it.

    Attributes:
        wrong: physical offsets of messages whose queue offset is not believed.
    """

    wrong: set[int] = field(default_factory=set)
    _queues: dict[tuple[str, int], _Numbers] = field(default_factory=dict)
    _whole: bool = True  # whether the log begins at 0, so that queues do

    @classmethod
    def of(cls, layout: StoreLayout, files: Segments) -> "Survey":
        """Of a log with these files."""
        survey = cls(_whole=not files.files or files.files[0].base == 0)
        ctx = Context(layout, Collector(0))
        ctx.log.segments = files
        for _ in LogCheck(ctx, survey._take).run():
            pass
        return survey

    def begin(self, topic: str, queue_id: int) -> int:
        """The queue offset with which a queue begins: 0 in a log that begins at 0, even if messages are missing."""
        return 0 if self._whole else self.first((topic, queue_id)) or 0

    def first(self, key: tuple[str, int]) -> int | None:
        """The queue offset that a queue's first message in the log has; None without one."""
        if (queue := self._queues.get(key)) is None:
            return None
        begin = queue.begin
        if begin is None:
            begin = queue.waiting.offset if queue.waiting else 0
        return max(begin - queue.floating, 0)

    def _take(self, stretch: Stretch) -> None:
        batch = stretch.batch
        for rows in batch.by_queue():
            first = int(rows[0])
            key = batch.topics[int(batch.topic[first])], int(batch.queue_id[first])
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = _Numbers(0 if self._whole else None)
            offsets = batch.queue_offset[rows]
            # nearly always all is in order
            if queue.waiting is None and queue.next == offsets[0] and bool(np.all(np.diff(offsets) == 1)):
                queue.next = int(offsets[-1]) + 1
                queue.begin = int(offsets[0]) if queue.begin is None else queue.begin
                continue
            for position, offset in zip(stretch.position[rows].tolist(), offsets.tolist(), strict=True):
                self._number(queue, position, offset)

    def _number(self, queue: _Numbers, position: int, offset: int) -> None:
        low, waiting = queue.next or 0, queue.waiting
        if waiting is not None:
            if waiting.above and offset > waiting.offset:
                self._believe(queue, waiting.offset)
            elif offset >= low:
                self._disbelieve(queue, waiting)
            else:
                if not waiting.above:
                    queue.waiting = _Waiting(-1, offset, above=False)
                return
        if offset == queue.next:
            self._believe(queue, offset)
        else:
            queue.waiting = _Waiting(position, offset, above=queue.next is None or offset > queue.next)

    def _believe(self, queue: _Numbers, offset: int) -> None:
        queue.begin = offset if queue.begin is None else queue.begin
        queue.next, queue.waiting = offset + 1, None

    def _disbelieve(self, queue: _Numbers, waiting: _Waiting) -> None:
        queue.waiting = None
        if waiting.position >= 0 and len(self.wrong) < _MOST_WRONG:
            self.wrong.add(waiting.position)
            queue.floating += queue.begin is None
