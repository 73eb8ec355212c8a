"""Rebuild wheel, timer log and checkpoint of the timer of 5.x from the messages of its topic.

The messages contain everything except how far the wheel had turned and how far the queue had been read. These two are
in ``config/timercheck``. Without it nothing shows which messages were delivered: the timer's files are removed, and a
broker reads the timer's queue from its beginning. Messages may be delivered twice, but none is lost.

Source: store.timer.TimerMessageStore (doEnqueue, recover, reviseQueueOffset), TimerLog.append.
"""

import os
import time
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple, Protocol

from formats import checkpoint
from formats.message.properties import REAL_TOPIC, parse
from formats.message.read import Record
from formats.primitives import java_hash
from formats.variants import timer
from rmqtool.errors import Refused
from rmqtool.store.changes.change import Change
from rmqtool.store.disk import files as disk
from rmqtool.store.disk.directories import exists
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import PlainQueue
from rmqtool.store.queues.reader import open_queue
from rmqtool.store.queues.rocks import RocksQueue, built_up_to, queue_database
from rmqtool.store.queues.rocks_open import open_rocks_queue
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.queues.timer.messages import TimerMessage, records_at

_TOPIC = timer.TOPIC.encode()
_BUFFER = 1 << 20


class TimerQueue(Protocol):
    """The part of the interface of the timer topic's queue needed here."""

    @property
    def max_offset(self) -> int:
        """Queue offset after the last entry."""

    def min_offset(self, min_physical_offset: int) -> int:
        """Lowest queue offset, for a log that begins at a physical offset."""

    def runs(self, start: int) -> Generator[tuple[int, Any], None, None]:
        """(queue offset of the first entry, entries) in runs, from a queue offset on."""


class _Waiting(NamedTuple):
    """A message that gets a unit in the timer log."""

    physical_offset: int
    size: int
    out: int  # ms, from the message
    topic_hash: int
    delete: bool


class TimerBuilder:
    """Rebuilds the timer's files.

    Args:
        queue: the timer's queue; by default as it is on disk.
        last_store_time: store time of the log's last message, ms; by default from the store's checkpoint.

    Attributes:
        messages: number of messages of the timer topic read.
        units: number of units made for waiting messages.
        warnings: for the user.

    Raises:
        Refused: the queue of the timer does not exist, or its database lacks messages of the log.
        CorruptFile, MissingRuntime: the queue is in a database that cannot be read.
    """

    def __init__(
        self, layout: StoreLayout, queue: TimerQueue | None = None, last_store_time: int | None = None
    ) -> None:
        self.layout, self.log, self.files = layout, CommitLog(layout), TimerFiles(layout)
        if queue is None:
            queue = self._on_disk()
        if queue is None:
            raise Refused(f"{layout.root}: no consume queue of {timer.TOPIC}: there is no timer to build")
        self.queue = queue
        self.messages = self.units = 0
        self.warnings: list[str] = []
        self._window = layout.conf.timer_window * self.files.precision
        self._slots: dict[int, timer.Slot] = {}  # by slot time, ms
        self._last: _Waiting | None = None  # the queue's last message, waiting or not
        point = self.files.point
        self._read = self._slot(point.last_read_time)  # time of the slot to be read next, ms
        # messages from this queue offset on had not been taken over, even if overdue
        self._taken = min(point.last_timer_queue_offset, point.master_timer_queue_offset)
        # the next slot to read; at its start a broker skips slots that are more than a week old
        if last_store_time is None:
            last_store_time = checkpoint.parse(layout.checkpoint() or b"").physic_msg_timestamp
        # a time in the future, caused by damage, is ignored
        stored = self._slot(last_store_time) if last_store_time <= time.time_ns() // 1_000_000 else 0
        self._begin = max(self._read, stored)

    def _on_disk(self) -> PlainQueue | None:
        return open_queue(self.layout, timer.TOPIC, timer.QUEUE_ID) or self._in_database()

    def _in_database(self) -> RocksQueue | None:
        database = queue_database(self.layout)
        if database is not None and (built := built_up_to(database)) < self.log.end()[0]:
            raise Refused(
                f"{self.layout.root}: the database of queues has the log up to physical offset {built} only: start a "
                "broker, which builds the rest, and stop it again"
            )
        return open_rocks_queue(self.layout, timer.TOPIC, timer.QUEUE_ID)

    def _slot(self, time: int) -> int:
        return time // self.files.precision * self.files.precision

    def _slot_of(self, wait: _Waiting | None) -> int | None:
        return self._slot(wait.out) if wait is not None else None

    def _waiting_messages(self) -> Iterator[_Waiting]:
        """Waiting messages in the order of the queue; of a message that was rolled, only its last version.

        Later messages can replace or recall earlier ones, so all that may be waiting are collected first.
        """
        waits: dict[object, _Waiting] = {}
        skipped = 0
        for first, units in self.queue.runs(self.queue.min_offset(self.log.min_offset)):
            offsets = units["physical_offset"].tolist()
            for number, record in records_at(self.log, offsets):
                if record.topic != _TOPIC:
                    continue
                self.messages += 1
                message = TimerMessage(offsets[number], record, parse(record.properties), 0, 0)
                wait = self._last = _wait_of(message, record)
                if message.unusable is not None:
                    skipped += 1
                elif wait.out >= self._read or first + number >= self._taken:
                    # a recall may have the unique key of the message that it recalls as its own
                    key: object = (message.key or message.physical_offset, message.mark)
                    waits.pop(key, None)
                    # from 5.4 on a recall contains only the unique key; older brokers ignore such recalls
                    recalled = (message.mark, None)
                    if message.mark is not None and self._slot_of(waits.get(recalled)) == self._slot(wait.out):
                        del waits[recalled]
                    else:
                        waits[key] = wait
        if skipped:
            self.warnings.append(
                f"{skipped} timer messages without a usable deliver time, topic or queue are left out: a broker would "
                "stop at them (see check)"
            )
        yield from waits.values()

    def prepare(self, change: Change) -> list[str]:
        """Build the files aside and add the swap to a change; returns descriptions of the steps."""
        if self._read <= 0:
            steps, warning = remove_timer(self.files, change)
            self.warnings.append(warning)
            return steps
        steps = []
        end = self._build_log(change, steps)
        self._build_wheel(change, steps)
        self._build_checkpoint(change, steps, end)
        change.expect_log([(file.path, file.size) for file in self.log.segments], None, 0)
        return steps

    def _build_log(self, change: Change, steps: list[str]) -> int:
        """Build the timer log; returns the position after its last unit."""
        if not (self.files.log.files or "mappedFileSizeTimerLog" in self.layout.conf.sizes):
            self.warnings.append(
                "timerlog: no file shows how long its files should be: they get the broker's default length "
                f"({self.files.file_size} bytes; --broker-conf changes that); a broker loads no file of another length"
            )
        log = _LogWriter(self.layout, change, self.files.file_size)
        for wait in self._waiting_messages():
            self._enqueue(log, wait)
            self.units += 1
        if self._last is not None:
            # A broker takes the message of the last unit for the last one that it read from the queue. This unit goes
            # to a slot that the wheel has passed.
            log.append(self._unit(self._last, timer.NOWHERE, timer.MAGIC_DEFAULT, -self.files.precision))
        log.close()
        for file in self.files.log:
            if file.path not in log.paths:
                change.remove(file.path)
                steps.append(f"remove {os.path.relpath(file.path, self.layout.root)}")
        steps += [f"put {os.path.relpath(path, self.layout.root)}" for path in log.paths]
        return log.position

    def _enqueue(self, log: "_LogWriter", wait: _Waiting) -> None:
        fires, magic = max(self._slot(wait.out), self._begin), timer.MAGIC_DEFAULT
        ahead = fires - self._begin
        if ahead >= self._window:
            magic |= timer.MAGIC_ROLL
            near = ahead - self._window < self._window // 3
            fires = self._slot(self._begin + (self._window // 2 if near else self._window))
        if wait.delete:
            magic |= timer.MAGIC_DELETE
        before = self._slots.get(fires)
        last = before.last_position if before is not None else timer.NOWHERE
        position = log.append(self._unit(wait, last, magic, fires - self._begin))
        first = before.first_position if before is not None else position
        count = (before.count if before is not None else 0) + (-1 if wait.delete else 1)
        self._slots[fires] = timer.Slot(fires // self.files.precision, first, position, count)

    def _unit(self, wait: _Waiting, previous: int, magic: int, delay: int) -> bytes:
        unit = timer.LogUnit(
            timer.UNIT_SIZE, previous, magic, self._begin, delay, wait.physical_offset, wait.size, wait.topic_hash
        )
        return timer.build_unit(unit)

    def _build_wheel(self, change: Change, steps: list[str]) -> None:
        staged = change.staging()
        with disk.make_file(staged) as file:
            file.cut(timer.WHEEL_SIZE)
            for time, slot in self._slots.items():
                file.write(timer.slot_index(time, self.files.precision) * timer.SLOT_SIZE, timer.build_slot(slot))
        change.put(self.files.plain_path, staged)
        steps.append("put timerwheel")
        for _flag, path in self.files.snapshots:  # a start would load the newest of them
            change.remove(path)
            steps.append(f"remove {os.path.relpath(path, self.files.layout.root)}")

    def _build_checkpoint(self, change: Change, steps: list[str], end: int) -> None:
        taken = self.queue.max_offset
        before = self.files.checkpoint or timer.TimerCheckpoint()
        point = before._replace(
            last_read_time=self._begin,
            last_timer_log_flush_position=end,
            last_timer_queue_offset=taken,
            master_timer_queue_offset=taken,
            version_counter=before.version_counter + 1,
        )
        change.put_content(self.files.checkpoint_path, timer.build_checkpoint(point))
        steps.append("put config/timercheck")


def remove_timer(files: TimerFiles, change: Change) -> tuple[list[str], str]:
    """Remove wheel, log and checkpoint, so that a broker reads the timer's queue from its beginning.

    Returns:
        Descriptions of the steps, and a warning for the user.
    """
    paths = [*(file.path for file in files.log), *(path for path in files.log.foreign if os.path.isfile(path))]
    paths += [path for path in (files.plain_path, files.checkpoint_path) if exists(path)]
    paths += [path for _flag, path in files.snapshots]
    for path in paths:
        change.remove(path)
    if files.point.last_read_time <= 0:
        why = "config/timercheck does not say how far the wheel had turned"
    else:
        why = f"no queue of {timer.TOPIC} leads to the messages of the wheel"
    warning = (
        f"{why}: the timer's files are removed, and a broker reads the timer's queue from its beginning: messages that "
        "it has delivered and the log still has are delivered once more, none is lost"
    )
    return [f"remove {os.path.relpath(path, files.layout.root)}" for path in paths], warning


def _wait_of(message: TimerMessage, record: Record) -> _Waiting:
    topic = message.properties.get(REAL_TOPIC)
    hashed = java_hash(topic) if topic else 0
    return _Waiting(
        message.physical_offset, record.total_size, message.deliver_time or 0, hashed, message.mark is not None
    )


class _LogWriter:
    """Writes the files of a new timer log, staging one after the other.

    Attributes:
        position: position after the last unit.
        paths: target paths of the files.
    """

    def __init__(self, layout: StoreLayout, change: Change, file_size: int) -> None:
        self._layout, self._change, self._file_size = layout, change, file_size
        self._buffer = bytearray()
        self._file: disk.File | None = None
        self._at = 0  # byte of the file at which the buffer goes
        self.position = 0
        self.paths: list[str] = []

    def append(self, unit: bytes) -> int:
        """Add a unit; returns its position."""
        left = self._file_size - self.position % self._file_size
        if left < len(unit) + timer.BLANK_SIZE and self._file is not None:
            self._buffer += timer.build_blank(left)
            self.close()
            self.position += left
        if self._file is None:
            self._open()
        at = self.position
        self._buffer += unit
        self.position += len(unit)
        if len(self._buffer) >= _BUFFER:
            self._flush()
        return at

    def _open(self) -> None:
        staged = self._change.staging()
        path = self._layout.path("timerlog", f"{self.position:020d}")
        self._file, self._at = disk.make_file(staged), 0
        self._file.cut(self._file_size)
        self._change.put(path, staged)
        self.paths.append(path)

    def _flush(self) -> None:
        assert self._file is not None
        self._file.write(self._at, bytes(self._buffer))
        self._at += len(self._buffer)
        self._buffer.clear()

    def close(self) -> None:
        """Write the buffer and close the file."""
        if self._file is not None:
            self._flush()
            self._file.__exit__()
            self._file = None
