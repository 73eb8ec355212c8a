"""Check the commit log against the consume queues: every message has its entry in the right place.

Messages are compared by position: entry ``q`` of a queue must be that of message ``q``. So nothing needs to be kept for
messages that are in order, and entries that match no message are examined in a second pass
(:mod:`rmqtool.store.check.queues.entries`).
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from formats.arrays import Column
from formats.message.read import SCHEDULE_TOPIC
from rmqtool.errors import UnreadableStore
from rmqtool.store.check.advice.steps import by_hand
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.common.files import check_files
from rmqtool.store.check.log.log import RecordRun
from rmqtool.store.check.queues.batches import BatchQueueCheck
from rmqtool.store.check.queues.entries import finish_queue
from rmqtool.store.check.queues.ordinals import check_ordinals
from rmqtool.store.check.queues.removed import add_deleted, settle
from rmqtool.store.check.queues.state import (
    BEFORE,
    BEHIND,
    EMPTY,
    FILLER,
    LAG,
    NEVER,
    OTHER,
    SOON,
    CheckedQueue,
    Masks,
    masks,
)
from rmqtool.store.check.queues.tags import TagCheck
from rmqtool.store.dispatch.light import light_queue_id
from rmqtool.store.layout.mending import describe_shared_queue, find_shared_queues, is_in_the_way
from rmqtool.store.layout.paths import UNIT, is_path_name
from rmqtool.store.queues.reader import SCANNED_FILES
from rmqtool.store.recovery.deleted import DeletedTopics
from rmqtool.words import counted

_DELAY_TOPIC = SCHEDULE_TOPIC.decode()
_ALWAYS = 2**63 - 1  # ms


class QueueCheck:
    """Checks all consume queues: call :meth:`load`, :meth:`take` for every stretch, then :meth:`finish`."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.queues: dict[tuple[str, int], CheckedQueue] = {}
        self._file_size = ctx.inputs.queue_size
        self._tags = TagCheck(ctx)
        self._unnamed: Counter[str] = Counter()
        self.batches = BatchQueueCheck(ctx)
        self._is_settled = False
        self._in_the_way: set[str] = set()  # paths that were reported

    def load(self) -> Iterator[None]:
        """Summarize every file of every queue."""
        ctx = self.ctx
        for link, other in find_shared_queues(ctx.layout).items():
            ctx.found.situation.stuck = True
            ctx.found.add(
                "file-foreign",
                ctx.name(link),
                consequence="The broker writes two queues into the same files: each destroys entries of the other.",
                steps=by_hand(describe_shared_queue(link, other)),
            )
        for topic, queue_id, path in ctx.layout.queue_dirs():
            queue = self.queues[topic, queue_id] = CheckedQueue(topic, queue_id, path, self._file_size)
            try:
                segments = ctx.layout.files_in(path)
                check_files(ctx, segments, self._file_size, topic, queue_id)
                queue.load(segments, ctx.log.min_offset)
            except UnreadableStore as err:
                ctx.found.add("file-unreadable", ctx.name(path), actual=str(err), **queue.about)
            yield
        yield from self.batches.load()

    @property
    def entries(self) -> int:
        """Number of entries of all queues that should point to a message."""
        return sum(file.live for queue in self.queues.values() for file in queue.files) + self.batches.entries

    @property
    def damaged(self) -> bool:
        """Whether more than the tail of a queue is wrong, which a start may worsen; known after the log is read."""
        self._settle()
        return any(queue.damaged for queue in self.queues.values() if queue.topic not in self._deleted)

    @cached_property
    def _deleted(self) -> dict[str, list[CheckedQueue]]:
        """Deleted topics with the queues in their messages; known after the log is read."""
        topics, deleted = DeletedTopics(self.ctx.layout), defaultdict[str, list[CheckedQueue]](list)
        for queue in self.queues.values():
            if not queue.files and queue.next_ordinal is not None and topics.is_gone(queue.topic):
                deleted[queue.topic].append(queue)
        return {
            topic: queues
            for topic, queues in deleted.items()
            if all(queue.newest <= topics.changed for queue in queues)
        }

    def _settle(self) -> None:
        """Report messages of former generations of their queues."""
        if not self._is_settled:
            self._is_settled = True
            settle(self.ctx, self.queues, self._deleted)
            self.batches.settle()

    @property
    def known(self) -> int:
        """End of the last message in any queue, as in the broker's recovery; -1 without one."""
        return max((self.batches.known, *map(_max_physical, self.queues.values())))

    def _queue(self, topic: str, queue_id: int, messages: int) -> CheckedQueue | None:
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            if not is_path_name(topic) or "," in topic:  # at which a broker splits the path
                self._unnamed[topic] += messages
                return None
            path = self.ctx.layout.queue_path(topic, queue_id)
            self._check_place(path)
            queue = self.queues[topic, queue_id] = CheckedQueue(topic, queue_id, path, self._file_size)
        return queue

    def _check_place(self, path: str) -> None:
        """Report what is in the way of a queue without a directory."""
        topic = os.path.dirname(path)
        for place in (topic, path):
            if place not in self._in_the_way and is_in_the_way(place):
                self._in_the_way.add(place)
                self.ctx.found.situation.stuck = True
                self.ctx.found.add(
                    "file-foreign",
                    self.ctx.name(place),
                    consequence="The broker cannot create the queue's directory: its messages get no entries.",
                    steps=by_hand(f"move {place} out of the store: a directory belongs there"),
                )

    def take(self, stretch: RecordRun) -> None:
        """Compare consecutive records with their entries."""
        batch, position = stretch.batch, stretch.position
        for rows in batch.by_queue():
            name, number = batch.topics[int(batch.topic[rows[0]])], int(batch.queue_id[rows[0]])
            if name in self.ctx.batch_topics:
                self.batches.take(stretch, rows, name, number)
                continue
            if len(stretch.inner):
                rows = rows[~np.isin(position[rows], stretch.inner)]
                if not len(rows):
                    continue
            queue = self._queue(name, number, len(rows))
            if queue is None:
                continue
            if not queue.files:
                queue.newest = max(queue.newest, int(batch.store_timestamp[rows].max()))
            self._take(queue, stretch, rows, batch.queue_offset[rows])
        if batch.light and not self.ctx.light_in_database:
            self._take_light(stretch)

    def _take_light(self, stretch: RecordRun) -> None:
        batch = stretch.batch
        puts: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for row, name, ordinal in batch.light:
            if batch.queued[row]:
                puts[name, light_queue_id(name, int(batch.queue_id[row]))].append((row, ordinal))
        for (name, queue_id), pairs in puts.items():
            queue = self._queue(name, queue_id, len(pairs))
            if queue is None:
                continue
            rows, ordinals = np.array(pairs, np.int64).T
            queue.newest = _ALWAYS  # additional queues need not be in topics.json
            self._take(queue, stretch, rows, ordinals)

    def _take(self, queue: CheckedQueue, stretch: RecordRun, rows: Column, ordinals: Column) -> None:
        """Compare messages of one queue, in the order of the log."""
        batch, position, file = stretch.batch, stretch.position[rows], stretch.file
        for part, begins in queue.generations.take(ordinals, position, batch.store_timestamp[rows]):
            if begins:
                queue.begin_again(self.ctx.name(file.path), int(position[part.start]) - file.base)
            check_ordinals(self.ctx, queue, file, ordinals[part], position[part], stretch.epoch)
            columns = (batch.size, batch.tags_code, batch.store_timestamp)
            self._compare(queue, position[part], ordinals[part], *(column[rows[part]] for column in columns))

    def _compare(
        self, queue: CheckedQueue, position: Column, ordinals: Column, size: Column, tags: Column, times: Column
    ) -> None:
        """Compare messages of one queue with the entries at their queue offsets."""
        which = np.searchsorted(queue.firsts, ordinals, side="right") - 1
        own = np.zeros(len(position), bool)
        reasons = np.full(len(position), BEHIND, object)
        if queue.files:
            reasons[which < 0] = BEFORE
        for number in np.flatnonzero(np.bincount(which[which >= 0])).tolist():  # np.unique would load numpy.ma
            file = queue.files[number]
            rows = np.flatnonzero((which == number) & (ordinals - file.first < file.capacity))
            if not len(rows):
                continue
            at = ordinals[rows] - file.first
            units = file.at(at)
            kind = masks(units)
            same = kind.valid & (units["physical_offset"] == position[rows])
            own[rows] = same
            file.matched += int(same.sum())
            if same.any():
                file.last_matched = max(file.last_matched, int(ordinals[rows[same]].max()))
            if not same.all():
                reasons[rows] = _reasons(kind)
            name = self.ctx.name(file.segment.path)
            wrong = np.flatnonzero(same & (units["size"] != size[rows]))
            if len(wrong):
                self._report_sizes(queue, name, at[wrong], units["size"][wrong], size[rows[wrong]], file.first)
            wrong = np.flatnonzero(same & (units["tags_code"] != tags[rows]))
            self._tags.count(queue, int(same.sum()) - len(wrong))
            if len(wrong):
                actual = rows[wrong]
                self._tags.differ(
                    queue, file, at[wrong], units["tags_code"][wrong], tags[actual], times[actual], position[actual]
                )
        if not own.all():
            self._add_missing(queue, np.flatnonzero(~own), ordinals, position, times, reasons)

    def _report_sizes(
        self, queue: CheckedQueue, name: str, at: Column, actual: Column, expected: Column, first: int
    ) -> None:
        self.ctx.found.many(
            "cq-size",
            name,
            len(at),
            lambda i: {
                "offset": int(at[i]) * UNIT,
                "queueOffset": first + int(at[i]),
                "expected": str(int(expected[i])),
                "actual": str(int(actual[i])),
            },
            **queue.about,
        )

    def _add_missing(
        self, queue: CheckedQueue, rows: Column, ordinals: Column, position: Column, times: Column, reasons: Column
    ) -> None:
        """Record messages without an entry in their place, except those with an entry elsewhere in the queue."""
        offsets = position[rows]
        low, high = int(offsets[0]), int(offsets[-1])
        misplaced = np.zeros(len(rows), bool)
        for file in queue.files:
            if file.live and file.low <= high and file.high >= low:
                for _first, units in file.runs(0, file.used):
                    kind = masks(units)
                    there = units["physical_offset"][kind.valid & ~kind.filler]
                    misplaced |= np.isin(offsets, there.astype(np.int64))
                file.segment.release()
        rows = rows[~misplaced]
        if not len(rows):
            return
        start, flushed = self.ctx.start.redispatch_from, self.ctx.checkpoint.min_timestamp
        soon = np.full(len(rows), NEVER)
        if start is not None:
            soon[position[rows] >= start] = SOON
            soon[(position[rows] >= start) & (times[rows] > flushed)] = LAG
        kinds = reasons[rows]
        cuts = np.flatnonzero((kinds[1:] != kinds[:-1]) | (soon[1:] != soon[:-1])) + 1
        for part in np.split(np.arange(len(rows)), cuts):
            chosen = rows[part]
            queue.add_missing(str(kinds[part[0]]), int(soon[part[0]]), ordinals[chosen], position[chosen])

    def finish(self) -> Iterator[None]:
        """Report what is only known after the whole log has been read."""
        ctx = self.ctx
        for queue in self.queues.values():
            key = queue.topic, queue.queue_id
            ctx.queues_seen.ends[key] = max(queue.end, queue.next_ordinal or 0)
            ctx.queues_seen.begins[key] = queue.begin
            if queue.topic == _DELAY_TOPIC and (first := queue.first_entry) is not None:
                ctx.queues_seen.first_due[queue.queue_id + 1] = first.tags_code
                ctx.queues_seen.first_delayed[queue.queue_id + 1] = first.physical_offset
        yield from self.batches.finish()
        if ctx.log_seen.absent:
            return
        for topic, queues in sorted(self._deleted.items()):
            self._report_deleted(topic, queues)
            ctx.queues_seen.deleted.add(topic)
        for key in sorted(self.queues):
            queue = self.queues[key]
            if queue.topic in self._deleted:
                continue
            self._tags.finish(queue)
            yield from finish_queue(ctx, queue)
        for topic, messages in sorted(self._unnamed.items()):
            consequence = f"{counted(messages, 'message')} of this topic {'has' if messages == 1 else 'have'} no queue"
            ctx.found.add("log-topic", "commitlog", topic=topic, count=messages, consequence=consequence)

    def _report_deleted(self, topic: str, queues: list[CheckedQueue]) -> None:
        lost = [(run.soon, run.messages) for queue in queues for run in queue.runs]
        lost += [(soon, count) for queue in queues for (_reason, soon), count in queue.overflow.items()]
        again = sum(messages for soon, messages in lost if soon)
        add_deleted(self.ctx.found, topic, sum(count for _, count in lost), again)


def _reasons(kind: Masks) -> Column:
    return np.where(kind.filler, FILLER, np.where(kind.valid, OTHER, EMPTY)).astype(object)


def _max_physical(queue: CheckedQueue) -> int:
    """End of the last entry's message: in the last files, before the first invalid unit."""
    last = -1
    for file in queue.files[-SCANNED_FILES:]:
        if file.prefix:
            entry = file.entry(file.prefix - 1)
            last = entry.physical_offset + entry.size
        if file.prefix < file.capacity:
            break
    return last
