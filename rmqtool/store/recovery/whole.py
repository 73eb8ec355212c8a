"""Go beyond a broker's start: make queues and index agree with the log.

A broker determines where the log ends, and that is not judged again. Everything before the end is read once more, as by
``check``: each message is compared with its queue entry, each key with the index, and differences are rewritten. A
message with a wrong body checksum counts as a message; a place without a record is skipped.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from formats.arrays import Column, Units
from formats.endings import Ending
from formats.message.properties import TAGS, parse
from formats.message.read import SCHEDULE_TOPIC
from formats.primitives import java_hash
from formats.queues.consume import is_ext_address, real_offset
from rmqtool.progress import stage
from rmqtool.store.disk.segments import Segment
from rmqtool.store.dispatch.batch import BatchBuilder, RecordBatch, entries_of
from rmqtool.store.dispatch.generations import find_remade
from rmqtool.store.dispatch.light import light_queue_id
from rmqtool.store.dispatch.reading import Readahead, recovery_batches
from rmqtool.store.log.records import next_record
from rmqtool.store.log.returning import Returning
from rmqtool.store.queues.batch_builder import BatchQueueBuilder
from rmqtool.store.queues.compaction import compaction_queues_of
from rmqtool.store.recovery.dispatcher import Dispatcher, QueueKey
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.loading import StagedQueues
from rmqtool.store.recovery.report import QueueMended
from rmqtool.store.recovery.verdict import LogVerdict
from rmqtool.store.recovery.whole_extension import Extension
from rmqtool.store.recovery.whole_index import WholeIndex
from rmqtool.store.recovery.whole_log import FittedFile
from rmqtool.store.recovery.whole_queue import SameTags, WholeBatchQueue, WholeQueue
from rmqtool.store.tier.tier import Tier

_DELAY_TOPIC = SCHEDULE_TOPIC.decode()
_MOST_BUFFERED = 1 << 18  # messages buffered for all queues
_HASHES = 2**31  # tag hashes are below this, deliver times are not


class Mended(NamedTuple):
    """Summary of repairs.

    Attributes:
        queues: the changed queues.
        index_files: number of index files that were faulty and rewritten, or added.
        irregular: queues whose contents do not follow from the log.
        deleted: number of messages by topic, for topics with neither settings nor queues.
        remade: for topics that were deleted and created again, number of earlier messages by topic.
        again: for other queues whose numbering started again at 0, number of earlier messages by queue.
        gaps: number of messages missing in the log between others of their queue.
        fillers: how many of them got fillers that are in the way of others.
        compared: bytes of the log that were compared with queues and index.
    """

    queues: list[QueueMended]
    index_files: int
    irregular: list[str]
    deleted: dict[str, int]
    remade: dict[str, int]
    again: dict[str, int]
    gaps: int
    fillers: int
    compared: int


def make_whole(
    inputs: StoreInputs,
    staged: StagedQueues,
    dispatcher: Dispatcher,
    verdict: LogVerdict,
    mended: dict[QueueKey, list[str]],
) -> Mended:
    """Change the queues and the index of a dispatcher, after a broker's start and with the index finished.

    Args:
        mended: queues known to be damaged, since the broker would not load them.
    """
    return _Comparison(inputs, staged, dispatcher, verdict, set(mended)).run()


class _Comparison:
    def __init__(
        self,
        inputs: StoreInputs,
        staged: StagedQueues,
        dispatcher: Dispatcher,
        verdict: LogVerdict,
        damaged: set[QueueKey],
    ) -> None:
        self._inputs, self._staged, self._dispatcher, self._verdict = inputs, staged, dispatcher, verdict
        self._damaged = damaged
        self._tags = _Tags(inputs)
        self._tier = Tier.of(inputs.layout)
        self._queues: dict[QueueKey, WholeQueue | None] = {}
        self._deleted, self._remade, self._again = Counter[str](), Counter[str](), dict[str, int]()
        fitted = (file for file in verdict.files if isinstance(file, FittedFile))
        self._blanks = [file.blank for file in fitted if file.blank is not None]
        self._compared = 0
        self._buffered: dict[WholeQueue, list[tuple[Units, Column, Column]]] = {}
        self._messages_buffered = 0

    # -- all --------------------------------------------------------------------------------------------------------

    def run(self) -> Mended:
        inputs, index = self._inputs, self._dispatcher.index
        whole_index: WholeIndex | None = None
        if self._verdict.files and self._wanted:
            for key, queue in self._dispatcher.queues.items():
                if key in self._damaged or not inputs.quick:
                    self._queues[key] = self._open_queue(key, queue)
            if inputs.indexed and not inputs.quick:
                whole_index = WholeIndex(index, self._verdict.min_offset)
            self._compare(whole_index)
            ends = {} if inputs.quick else self._other_ends()
            self._leave_former_out()
            for key, whole in self._queues.items():
                if whole is not None:
                    whole.finish(ends.get(key, 0))
                    whole.drop_unchanged()
            if whole_index is not None:
                whole_index.finish()
                if not whole_index.complete:
                    self._put_keys(whole_index)
                    index.finish()
        elif not self._verdict.files and not inputs.quick:
            # without a log no entry points anywhere
            index.removed += [file for file in index.files if file.path is not None]
            index.files = []
        return Mended(
            queues=[
                QueueMended(
                    topic=topic,
                    queueId=queue_id,
                    entriesPutIn=whole.put_in,
                    entriesTakenOut=whole.taken_out,
                    endsAt=whole.ends_at,
                )
                for (topic, queue_id), whole in sorted(self._queues.items())
                if whole is not None and (whole.put_in or whole.taken_out or whole.ends_at is not None)
            ],
            index_files=0 if whole_index is None or whole_index.complete else len(index.files) - whole_index.good,
            irregular=[
                _in_words(topic, queue_id)
                for (topic, queue_id), whole in sorted(self._queues.items())
                if whole is not None and whole.irregular
            ],
            deleted=dict(self._deleted),
            remade=dict(self._remade),
            again=self._again,
            gaps=sum(whole.gaps for whole in self._queues.values() if whole is not None),
            fillers=sum(whole.fillers for whole in self._queues.values() if whole is not None),
            compared=self._compared,
        )

    def _leave_former_out(self) -> None:
        """Remove messages from before their topic was deleted and created again."""
        queues = {key: whole for key, whole in self._queues.items() if whole is not None}
        remade = {}
        if not self._inputs.quick:  # quick mode does not read all queues of a topic
            remade = find_remade({key: (whole.generations, whole.is_on_disk) for key, whole in queues.items()})
        for (topic, queue_id), whole in sorted(queues.items()):
            if topic not in remade:
                if whole.generations.former:
                    self._again[_in_words(topic, queue_id)] = whole.generations.former
                continue
            self._remade[topic] += whole.generations.former
            if queue_id in remade[topic]:
                whole.leave_out()
                self._remade[topic] += whole.generations.messages

    @property
    def _wanted(self) -> bool:
        """Whether there is anything that the start has not just built from the whole log."""
        if self._inputs.quick:
            return bool(self._damaged)
        verdict, dispatcher = self._verdict, self._dispatcher
        begun = verdict.dispatched_from
        if begun is None or begun > verdict.min_offset or self._damaged:
            return True
        if self._inputs.rules.compacted_topics or self._tier is not None:
            return True
        if dispatcher.displaced:
            return True
        old = any(file.source is not None for queue in dispatcher.queues.values() for file in queue.files)
        moved = any(queue.misplaced for queue in dispatcher.queues.values())
        old_index = any(file.path is not None for file in dispatcher.index.files)
        return old or moved or old_index

    # -- messages ---------------------------------------------------------------------------------------------------

    def _compare(self, index: WholeIndex | None) -> None:
        for batch, position in self._batches("comparing queues and index with the log", self._verdict.min_offset):
            for row, puts in batch.puts():
                whole = self._queue(batch.topics[int(batch.topic[row])], int(batch.queue_id[row]), len(puts))
                if whole is not None:
                    of_batches = isinstance(whole, WholeBatchQueue)
                    # a copy, since the batch's memory is reused
                    units = puts.batch_units() if of_batches else puts.entries.copy()
                    self._buffer(whole, units, puts.queue_offset, puts.store_timestamp)
            if batch.light:
                self._add_light(batch)
            if index is not None:
                index.take(batch, position)
            self._compared += int(batch.size.sum())
            batch.release()
        self._flush()

    def _buffer(self, whole: WholeQueue, units: Units, ordinals: Column, times: Column) -> None:
        """Buffer messages of a queue: a batch has only a few of each, and comparing them opens the queue's file."""
        self._buffered.setdefault(whole, []).append((units, ordinals, times))
        self._messages_buffered += len(units)
        if self._messages_buffered >= _MOST_BUFFERED:
            self._flush()

    def _flush(self) -> None:
        held, self._buffered, self._messages_buffered = self._buffered, {}, 0
        for whole, parts in held.items():
            units, ordinals, times = zip(*parts, strict=True)
            # a dtype is needed to keep the byte order
            whole.take(np.concatenate(units, dtype=whole.dtype), np.concatenate(ordinals), np.concatenate(times))

    def _add_light(self, batch: RecordBatch) -> None:
        batch_topics = self._inputs.rules.batch_topics
        light: dict[QueueKey, list[tuple[int, int]]] = {}
        for row, name, offset in batch.light:
            if batch.queued[row] and not {name, batch.topics[int(batch.topic[row])]} & batch_topics:
                key = name, light_queue_id(name, int(batch.queue_id[row]))
                light.setdefault(key, []).append((row, offset))
        for key, pairs in light.items():
            whole = self._queue(*key, len(pairs))
            if whole is not None:
                rows, offsets = np.array(pairs, np.int64).T
                units = entries_of(batch.physical_offset[rows], batch.size[rows], batch.tags_code[rows])
                self._buffer(whole, units, offsets, batch.store_timestamp[rows])

    def _queue(self, topic: str, queue_id: int, messages: int) -> WholeQueue | None:
        key = topic, queue_id
        if key not in self._queues:
            queue = self._dispatcher.queues.get(key)
            if queue is None and not self._inputs.quick:
                queue = self._staged.open(topic, queue_id)
                if queue is not None:
                    self._dispatcher.queues[key] = queue
                    self._queues[key] = self._open_queue(key, queue)
            self._queues.setdefault(key, None)
        if self._queues[key] is None and topic in self._staged.deleted:
            self._deleted[topic] += messages
        return self._queues[key]

    def _open_queue(self, key: QueueKey, queue: Any) -> WholeQueue:
        kind = WholeBatchQueue if isinstance(queue, BatchQueueBuilder) else WholeQueue
        tags, unloaded = self._tags.of(*key), key in self._damaged
        whole = kind(queue, self._verdict.min_offset, self._staged.stage, tags, unloaded=unloaded)
        whole.blanks, whole.first_end = self._blanks, self._verdict.files[0].end
        whole.log_end = self._verdict.end
        return whole

    def _other_ends(self) -> dict[QueueKey, int]:
        """Queue offset after the last message that has outlived the log, in compacted topics and in the tier."""
        ends: dict[QueueKey, int] = {}
        if self._inputs.rules.compacted_topics:
            compacted = compaction_queues_of(self._inputs.layout)
            ends |= {(queue.topic, queue.queue_id): queue.max_offset for queue in compacted}
        if self._tier is not None:
            ends |= {key: max(queue.max_offset, ends.get(key, 0)) for key, queue in self._tier.queues.items()}
        for topic, queue_id in ends:
            self._queue(topic, queue_id, 0)
        return ends

    def _put_keys(self, index: WholeIndex) -> None:
        start = max(index.cut(), self._verdict.min_offset)
        for batch, _position in self._batches("writing the index again", start):
            index.put(batch)
            batch.release()

    # -- the log ----------------------------------------------------------------------------------------------------

    def _batches(self, what: str, start: int) -> Iterator[tuple[RecordBatch, Column]]:
        """(batch, position of each record) of all records from an offset on, with their true positions.

        A file that begins inside the previous one is read from its start: the offset may be inside one of its records.
        """
        files = [file for file in self._verdict.files if file.end > start and file.base < self._verdict.end]
        builder = self._inputs.batch_builder(keeps_tags=True)
        readahead = Readahead()
        with stage(what, sum(file.size for file in files)) as going:
            try:
                end_before = 0
                for file in files:
                    first = max(start - file.base, 0) if file.base >= end_before else 0
                    end_before = file.end
                    for batch, at in self._records(file, first, builder, readahead):
                        ends = at + np.cumsum(batch.size)
                        position = file.base + ends - batch.size
                        if (batch.physical_offset != position).any():
                            batch = batch.with_columns(physical_offset=position, groups=None)
                        yield batch, position
                        going.done += int(ends[-1]) - at
                    file.release()
            finally:
                readahead.close()

    def _records(
        self, file: Segment, at: int, builder: BatchBuilder, readahead: Readahead
    ) -> Iterator[tuple[RecordBatch, int]]:
        """(batch, position of its first record in the file) of the records of a file, skipping everything else."""
        view, limit = file.view(), min(self._verdict.end - file.base, file.size)
        while at < limit:
            batches = Returning(recovery_batches(view, at, limit, builder, crc=False, readahead=readahead))
            for batch in batches:
                size = int(batch.size.sum())
                yield batch, at
                at += size
            end = batches.value
            if end.ending is Ending.CLEAN or end.at >= limit:
                return
            if end.ending is Ending.FILLER and int.from_bytes(view[end.at : end.at + 4], "big") == file.size - end.at:
                return
            at = next_record(view, file.base, end.at + 1, limit)


def _in_words(topic: str, queue_id: int) -> str:
    return f"topic {topic!r} queue {queue_id}"


class _Tags:
    """Decides which tags codes are valid although they differ from the log's."""

    def __init__(self, inputs: StoreInputs) -> None:
        self._inputs = inputs

    def of(self, topic: str, queue_id: int) -> SameTags:
        """A function that decides this for one queue."""
        times_of_level = _DeliverTimes(self._inputs) if topic == _DELAY_TOPIC else None
        extended: list[Extension] = []

        def same(has: Units, units: Units, times: Column) -> Column:
            if not extended:
                extended.append(Extension.of(self._inputs.layout, topic, queue_id))
            resolved = _resolve_extension(extended[0], has)
            equal: Column = resolved["tags_code"] == units["tags_code"]
            if times_of_level is not None and not equal.all():
                equal |= times_of_level.same(resolved, units, times)
            return equal

        return same


def _resolve_extension(extension: Extension, has: Units) -> Units:
    """Entries in which addresses of units in the queue's extension are replaced by the units' tags codes."""
    resolved = has.copy()
    for row, code in enumerate(has["tags_code"].tolist()):
        if is_ext_address(code) and (unit := extension.unit_at(real_offset(code))) is not None:
            resolved["tags_code"][row] = unit.tags_code
    return resolved


class _DeliverTimes:
    """Deliver times of a delay level: by another table of delays, or the tag hash that 4.9 writes after a crash."""

    def __init__(self, inputs: StoreInputs) -> None:
        self._inputs = inputs
        self._delay: int | None = None  # delay of this level, if it differs from the settings

    def same(self, has: Units, units: Units, times: Column) -> Column:
        codes = has["tags_code"].astype(np.int64)
        same = np.zeros(len(codes), bool)
        if not self._inputs.fix_delay_times:
            for row in np.flatnonzero(np.abs(codes) <= _HASHES).tolist():
                same[row] = codes[row] == self._hash(int(units["physical_offset"][row]))
        if self._inputs.layout.conf.text("messageDelayLevel") is None:
            delays = codes - times
            if self._delay is None:
                values, counts = np.unique(delays[~same], return_counts=True)
                if len(values) and counts.max() > 1 and values[counts.argmax()] >= 0:
                    self._delay = int(values[counts.argmax()])
            same |= delays == self._delay if self._delay is not None else False
        return same

    def _hash(self, physical: int) -> int:
        message = self._inputs.log.read(physical, crc=False)
        tags = parse(message.record.properties).get(TAGS) if message is not None else None
        return java_hash(tags) if tags else 0
