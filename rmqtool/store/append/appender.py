"""Append messages to a commit log; assigns positions, times and queue offsets (store.CommitLog.putMessage).

A few messages are packed one by one, many by a compiled kernel; the bytes are the same. This does not dispatch.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from formats.message.build import compose, fits, pack
from formats.message.ids import offset_id
from formats.message.properties import INNER_BASE, MULTI_QUEUE_OFFSET, build, parse
from formats.message.read import End, read
from rmqtool.store.append.answers import Illegal, PutResult, PutStatus
from rmqtool.store.append.inner_batches import as_inner_batch, check_items, gather_batch, is_named
from rmqtool.store.append.outgoing import AppendRules, NewMessage, Ready
from rmqtool.store.dispatch.batch import BULK_MESSAGES
from rmqtool.store.dispatch.light import light_queue_id
from rmqtool.store.log.writer import LogWriter

if TYPE_CHECKING:
    from rmqtool.store.append.bulk import BatchWriter, Prepared

QueueKey = tuple[str, int]
Clock = Callable[[], int]
_BUFFER = 4 << 20


def system_clock() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class EncodedResult(NamedTuple):
    """The place of a batch that was stored as its client sent it."""

    queue_offset: int  # of its first message; the others follow
    physical_offset: int
    size: int  # bytes of all its records
    messages: int
    store_timestamp: int
    offsets: Sequence[int]  # physical offset of each record


class Appender:
    """Puts messages at the end of a log.

    Args:
        writer: positioned at the end of the log.
        rules: which messages are accepted, and how they are stored.
        next_offsets: the next queue offset of each queue that has messages.
        clock: milliseconds since the epoch.

    Attributes:
        last_store_timestamp: of the last message.
        last_record: physical offset of the last message; -1 before the first one.
    """

    def __init__(
        self, writer: LogWriter, rules: AppendRules, next_offsets: dict[QueueKey, int], clock: Clock = system_clock
    ) -> None:
        self.writer, self.rules, self.next_offsets, self.clock = writer, rules, next_offsets, clock
        self.last_store_timestamp, self.last_record = 0, -1
        self._buffer: bytearray | None = None
        self._batches: BatchWriter | None = None
        # before the current put: end of the log, and store timestamp and physical offset of its last message
        self._undo_point = writer.position, 0, -1
        self._numbered: list[
            tuple[QueueKey, int]
        ] = []  # queues that were given offsets, with their previous next offset

    def begin(self) -> None:
        """Start a put that can be undone with :meth:`take_back`."""
        self._undo_point = self.writer.position, self.last_store_timestamp, self.last_record
        self._numbered.clear()

    def take_back(self) -> None:
        """Undo everything put since :meth:`begin`, after an error.

        Raises:
            OSError: the log may contain some of it.
        """
        position, self.last_store_timestamp, self.last_record = self._undo_point
        for key, following in reversed(self._numbered):
            self.next_offsets[key] = following
        self._numbered.clear()
        self.writer.take_back(position)

    def put(self, message: NewMessage) -> PutResult:
        """Append one message; it has been written to the OS when this returns."""
        try:
            ready = self.rules.ready(message)
            result = self._put(ready, self.clock())
        except Illegal as err:
            return PutResult(err.status, message.topic, message.queue_id, reason=err.reason)
        self.writer.hand_over()
        return result

    def put_batch(self, messages: Sequence[NewMessage]) -> Sequence[PutResult]:
        """Append messages of one queue as a batch: contiguous in one file, or not at all.

        For batch queues they become one record, an inner batch.

        Raises:
            Illegal: one of them is rejected, or they are not of one queue.
        """
        if any(message.topic in self.rules.batch_topics for message in messages):
            result, count = self._put_inner(gather_batch(messages, self.rules))
            return [result._replace(queue_offset=result.queue_offset + number) for number in range(count)]
        ready = [self.rules.ready(message, batch=True) for message in messages]
        if len({(message.topic, message.queue_id) for message in ready}) > 1:
            raise Illegal(PutStatus.MESSAGE_ILLEGAL, "a batch goes to one queue")
        size = sum(message.size for message in ready)
        if size > self.rules.room:
            raise Illegal(PutStatus.MESSAGE_ILLEGAL, f"batch of {size} bytes, a file has room for {self.rules.room}")
        if ready and not fits(size, self.writer.room):
            self.writer.roll()
        return self._put_all(ready)

    def put_encoded(self, batch: NewMessage) -> EncodedResult:
        """Append a batch whose body contains its messages as a client sent them; all of them, or none.

        Every message gets the hosts, system flag and born timestamp of the batch, and in older releases its properties.
        For batch queues, a batch with an id of its own becomes one record, an inner batch.

        Raises:
            Illegal: it is rejected.
        """
        from rmqtool.store.append.bulk import BatchWriter

        if batch.topic in self.rules.batch_topics and is_named(batch):
            done, count = self._put_inner(as_inner_batch(batch))
            place = done.physical_offset
            return EncodedResult(done.queue_offset, place, done.size, count, done.store_timestamp, (place,))
        if batch.topic in self.rules.batch_topics:
            check_items(batch)
        ready = self.rules.ready(batch, batch=True)
        if not self.rules.release.shares_batch_properties:
            ready = ready._replace(properties=b"")
        if self._batches is None:
            self._batches = BatchWriter()
        now = self.clock()
        size = self._batches.read(ready, now)
        if size > self.rules.room:
            raise Illegal(PutStatus.MESSAGE_ILLEGAL, f"batch of {size} bytes, a file has room for {self.rules.room}")
        if self._buffer is None or len(self._buffer) < size:
            self._buffer = bytearray(max(_BUFFER, size))
        if not fits(size, self.writer.room):
            self.writer.roll()
        key, physical = (batch.topic, ready.queue_id), self.writer.position
        queue_offset = self.next_offsets.get(key, 0)
        size, offsets = self._batches.write(ready, self._buffer, physical, queue_offset)
        self.writer.append_now(memoryview(self._buffer)[:size])
        self.next_offsets[key] = queue_offset + len(offsets)
        self.last_store_timestamp = now if ready.store_timestamp is None else ready.store_timestamp
        self.last_record = offsets[-1]
        return EncodedResult(queue_offset, physical, size, len(offsets), self.last_store_timestamp, offsets)

    def _put_inner(self, batch: NewMessage) -> tuple[PutResult, int]:
        """(place, number of messages) of an inner batch.

        Raises:
            Illegal: it is rejected.
        """
        ready = self.rules.ready(batch, batch=True)
        result = self._put(ready, self.clock())
        self.writer.hand_over()
        return result, ready.inner_messages

    def put_many(self, messages: Sequence[NewMessage]) -> Sequence[PutResult]:
        """Append messages in order, independently of each other; rejections are in their results."""
        if len(messages) >= BULK_MESSAGES:
            from rmqtool.store.append.bulk import of_messages

            prepared = of_messages(messages, self.rules, self.clock())
            if prepared is not None:
                return self._write(prepared)
        answers: list[PutResult | None] = []
        ready = []
        check = self.rules.ready
        for message in messages:
            try:
                ready.append(check(message))
                answers.append(None)
            except Illegal as err:
                answers.append(PutResult(err.status, message.topic, message.queue_id, reason=err.reason))
        done = iter(self._put_all(ready))
        return [next(done) if answer is None else answer for answer in answers]

    def _put_all(self, ready: list[Ready]) -> Sequence[PutResult]:
        now = self.clock()
        if len(ready) >= BULK_MESSAGES and not any(message.light_queues or message.inner_messages for message in ready):
            from rmqtool.store.append.bulk import of_ready

            return self._write(of_ready(ready, now))
        results = []
        for message in ready:
            try:
                results.append(self._put(message, now))
            except Illegal as err:
                results.append(PutResult(err.status, message.topic.decode(), message.queue_id, reason=err.reason))
        self.writer.hand_over()
        return results

    def _put(self, ready: Ready, now: int) -> PutResult:
        topic = ready.topic.decode()
        key = (topic, ready.queue_id)
        queue_offset = self.next_offsets.get(key, 0) if ready.queued else 0
        properties = ready.properties
        light = [(name, light_queue_id(name, ready.queue_id)) for name in ready.light_queues]
        if light:
            offsets = ",".join(str(self.next_offsets.get(queue, 0)) for queue in light)
            properties = _add_property(
                properties, MULTI_QUEUE_OFFSET, offsets, trailing=self.rules.release.trailing_separator
            )
        if ready.inner_messages:
            properties = _add_property(properties, INNER_BASE, str(queue_offset))
        store_timestamp = now if ready.store_timestamp is None else ready.store_timestamp
        size = ready.size + len(properties) - len(ready.properties)
        physical = self.writer.reserve(size)
        record = compose(
            topic=ready.topic,
            queue_id=ready.queue_id,
            queue_offset=queue_offset,
            physical_offset=physical,
            body=ready.body,
            properties=properties,
            flag=ready.flag,
            sys_flag=ready.sys_flag,
            born_timestamp=now if ready.born_timestamp is None else ready.born_timestamp,
            born_address=ready.born_host[0],
            born_port=ready.born_host[1],
            store_timestamp=store_timestamp,
            store_address=ready.store_host[0],
            store_port=ready.store_host[1],
            reconsume_times=ready.reconsume_times,
            prepared_transaction_offset=ready.prepared_transaction_offset,
            version=ready.version,
            max_message_size=len(ready.body),
        )
        packed = pack(record)
        _read_back(packed)
        self.writer.append(packed)
        if ready.queued:
            self._set_next(key, queue_offset + max(ready.inner_messages, 1))
            for queue in light:
                self._set_next(queue, self.next_offsets.get(queue, 0) + 1)
        self.last_store_timestamp, self.last_record = store_timestamp, physical
        return PutResult(
            PutStatus.PUT_OK,
            topic,
            ready.queue_id,
            queue_offset,
            physical,
            size,
            store_timestamp,
            offset_id(*ready.store_host, physical),
        )

    def _set_next(self, key: QueueKey, following: int) -> None:
        """Set the next offset of a queue."""
        self._numbered.append((key, self.next_offsets.get(key, 0)))
        self.next_offsets[key] = following

    def _write(self, prepared: "Prepared") -> Sequence[PutResult]:
        """Let the kernel write messages that are in columns."""
        prepared.number(self.next_offsets)
        if self._buffer is None:
            self._buffer = bytearray(_BUFFER)
        sizes = prepared.sizes
        row, writer = 0, self.writer
        while row < len(sizes):
            following, size = prepared.encoder.encode(self._buffer, writer.room, writer.position, row)
            if size:
                writer.append(memoryview(self._buffer)[:size])
            elif sizes[row] > len(self._buffer):
                self._buffer = bytearray(int(sizes[row]))
            else:
                writer.roll()
            row = following
        writer.hand_over()
        self.last_store_timestamp = prepared.last_store_timestamp
        self.last_record = writer.position - int(sizes[-1])
        return prepared.finish(self.next_offsets)


def _read_back(packed: bytes) -> None:
    """Read a record as recovery does.

    Raises:
        Illegal: recovery would truncate the log there.
    """
    record = read(packed, 0, len(packed))
    if isinstance(record, End):
        raise Illegal(PutStatus.MESSAGE_ILLEGAL, f"the next start would cut the log here: {record.reason}")


def _add_property(properties: bytes, name: str, value: str, *, trailing: bool = True) -> bytes:
    """Add a property that depends on the message's place."""
    return build(parse(properties) | {name: value}, trailing_separator=trailing)
