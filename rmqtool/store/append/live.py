"""A store that is written: opened like a broker's, appended to, dispatched, flushed and closed (DefaultMessageStore).

Only a healthy store is opened: what a broker would repair at its start is left to
:mod:`rmqtool.store.recovery.command`, which shows it first. While a store is open
the broker's lock is held and its ``abort`` file lies there, so that a broker that
finds what a killed process left goes the same way as after its own death.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self, TypeVar

from formats import checkpoint
from formats.checkpoint import Checkpoint
from formats.message.build import BLANK_SIZE
from rmqtool.errors import Refused, UnreadableStore
from rmqtool.store.append.appender import Appender, Clock, EncodedResult, system_clock
from rmqtool.store.append.live_files import DEFAULT_EXT, LiveIndex, LiveQueue, QueueExtension, Touched
from rmqtool.store.append.outgoing import Illegal, Message, PutResult, Rules
from rmqtool.store.changes.pending import refuse_pending
from rmqtool.store.changes.places import Places
from rmqtool.store.disk.durable import sync
from rmqtool.store.disk.lock import Disturbed, StoreLock, holder
from rmqtool.store.disk.new_files import give_away, make_file, sweep
from rmqtool.store.disk.ownership import make_folders
from rmqtool.store.disk.segments import Segments, write_all
from rmqtool.store.dispatch.batch import Batch, BatchBuilder, DelayLevels, reput_batches
from rmqtool.store.index.reader import geometry_of
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout, checked_path
from rmqtool.store.layout.version import unsupported, version_of
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.writer import LogWriter
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.recovery.command import Opened, look, plan, recover
from rmqtool.store.recovery.report import RecoveryReport

T = TypeVar("T")
_LIGHT_PREFIX = "%LMQ%"
_DISPATCH_BYTES = 32 << 20  # appended before it is dispatched without being asked for
_FLUSH_SECONDS = 10.0  # as often as a broker makes everything durable
_LOOK_SECONDS = 1.0
_SPARE = 64 << 20  # bytes that each file system must have left, so that a full one is no matter of half a message,
_SHARE = 8  # or this part of a small one


class LiveStore:
    """An open store. Use as a context manager, or :meth:`close` it.

    Args:
        root: the store directory.
        conf: the broker's settings: file sizes above all, which an empty store does not tell.
        engine: "4.9" or "5.3": whose rules messages are checked and written by; None for what the store shows.
        sync_flush: make messages durable before they are acknowledged (``flushDiskType=SYNC_FLUSH``).
        mend: finish what a killed writer left, where no message is lost by it.
        clock: milliseconds since the epoch.

    Raises:
        Refused: the store is in use, or a broker would repair it before it starts.
        UnreadableStore: not a store.
    """

    def __init__(
        self,
        root: str,
        conf: BrokerConf | None = None,
        *,
        engine: str | None = None,
        sync_flush: bool | None = None,
        mend: bool = False,
        clock: Clock = system_clock,
    ) -> None:
        self.layout = StoreLayout(root, conf)
        if (reason := unsupported(self.layout)) is not None:
            raise Refused(f"{self.layout.root}: {reason}")
        if not any(os.path.isdir(path) for path in self.layout.commit_log_paths):
            raise UnreadableStore(f"{self.layout.root}: no commit log in it")
        self.clock = clock
        self.mended: RecoveryReport | None = None
        if mend and self.layout.aborted and holder(self.layout.root) is None:
            self._mend()
        self._lock = StoreLock(self.layout.root)
        self._lock.__enter__()
        try:
            self._open(self._healthy(), engine, sync_flush)
        except BaseException:
            self._lock.__exit__()
            raise

    def _mend(self) -> None:
        report = plan(self.layout)
        if report.loadOk and not report.destroys and not report.pending:
            self.mended = recover(self.layout)
        self.layout = StoreLayout(self.layout.root, self.layout.conf)

    def _healthy(self) -> Opened:
        """What a look at the store tells; nothing of it is read once more.

        Raises:
            Refused: a broker would not take the store as it is.
        """
        refuse_pending(Places.of(self.layout))
        found = look(self.layout)
        report = found.report
        if not report.clean or report.afterStart is None:
            first = (*report.refusals, *report.pending, *report.destroys, *report.actions)[0]
            raise Refused(f"{self.layout.root}: not healthy ({first}): see rmqtool recover --dry-run")
        return found

    def _open(self, found: Opened, engine: str | None, sync_flush: bool | None) -> None:
        layout, conf = self.layout, self.layout.conf
        log = CommitLog(layout)
        assert found.report.afterStart is not None  # it is healthy
        end = found.report.afterStart.maxPhyOffset
        self.engine = engine or ("4.9" if version_of(layout)[0] == "4.x" else "5.3")
        self.sync_flush = (conf.text("flushDiskType") == "SYNC_FLUSH") if sync_flush is None else sync_flush
        lights = any(topic.startswith(_LIGHT_PREFIX) for topic, _queue_id in found.ends)
        self._light = conf.flag("enableMultiDispatch", conf.flag("enableLmq", lights))
        self._indexed = conf.flag("messageIndexEnable", True)
        self._extended = conf.flag("enableConsumeQueueExt", os.path.isdir(layout.path("consumequeue_ext")))
        self._levels = DelayLevels(conf.delay_levels)
        self._touched = Touched()
        self._queue_size = found.queue_size
        self._ends = found.ends
        self.queues: dict[tuple[str, int], QueueBuilder] = {}  # those that were dispatched to
        self.index = LiveIndex(layout.path("index"), layout.index_paths(), geometry_of(layout))
        self._file_size = log.file_size
        self._dispatched = self._asked = end  # up to where that was done, or begun
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[int] | None = None
        writable = layout.commit_log_paths[: len(conf.paths("storePathCommitLog")) or 1]
        rules = Rules(
            engine=self.engine,
            levels=len(self._levels.millis),
            room=self._file_size - BLANK_SIZE,
            light_queues=self._light,
        )
        self.appender = Appender(LogWriter(writable, self._file_size, end), rules, dict(found.ends), self.clock)
        parts = [layout.path(name) for name in ("consumequeue", "index", "consumequeue_ext")]
        self._places = [layout.root, *writable, *parts]  # each may be a file system of its own
        self._checkpoint = checkpoint.parse(layout.checkpoint() or b"")
        self._open_for_writing = False
        self._broken = False
        self._flushed_at = self._looked_at = time.monotonic()

    def _new_queue(self, topic: str, queue_id: int, path: str) -> LiveQueue:
        queue = LiveQueue(topic, queue_id, path, self._queue_size, self._touched)
        if self._extended and not topic.startswith(_LIGHT_PREFIX):
            size = self.layout.conf.sizes.get("mappedFileSizeConsumeQueueExt", DEFAULT_EXT)
            folder = self.layout.queue_path(topic, queue_id, "consumequeue_ext")
            queue.extension = QueueExtension(folder, size, self._touched)
        return queue

    # -- life cycle ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def end(self) -> int:
        """Physical offset of the next message."""
        return self.appender.writer.position

    def _look(self) -> None:
        """Whether no broker has begun to load the store.

        Raises:
            Disturbed: one has.
        """
        self._lock.check()
        self._looked_at = time.monotonic()

    def _begin(self) -> None:
        """Before the first change: the marker that tells a broker that this store was not closed."""
        self._check_space()
        self._lock.check()
        for place in self._places:
            if place in self.layout.commit_log_paths:
                sweep(os.path.dirname(place), place)
            else:
                sweep(place, place if place == self.layout.root else None)
        make_file(self.layout.path("abort"), b"")
        self._open_for_writing = True

    def _check_space(self) -> None:
        for place in self._places:
            try:
                free = os.statvfs(place)
            except FileNotFoundError:
                continue  # it is made where the others are
            left, spare = free.f_bavail * free.f_frsize, min(_SPARE, free.f_blocks * free.f_frsize // _SHARE)
            if left < spare:
                raise Refused(f"{place}: {left >> 10} KiB left on its file system, {spare >> 10} KiB are needed")

    def abandon(self) -> None:
        """Close without dispatch and sync, for one that is thrown away, or looked at by the next start."""
        self._broken = True
        self.close()

    def close(self) -> None:
        """Dispatch, make durable, and leave the store as a broker that stopped cleanly does."""
        if self._lock.held:
            try:
                if self._open_for_writing and not self._broken:
                    with self._lock.alone():
                        self.flush()
                        self._lock.check()
                        os.unlink(self.layout.path("abort"))
                        sync(self.layout.root)
            except Disturbed as err:
                raise self._disturbed(err) from err
            finally:
                if self._pool is not None:
                    self._pool.shutdown()
                self.appender.writer.let_go()
                self.index.close()
                if self._open_for_writing:
                    self._lock.wait()
                self._lock.__exit__()

    def _disturbed(self, err: Disturbed) -> Disturbed:
        """Stop: a broker's load has cut and deleted what it took for useless among what was being written."""
        if self._broken:
            return err
        self._broken = True
        self.appender.writer.sync()  # every message that was acknowledged is in the log
        return Disturbed(f"{err}. Nothing more is taken; every message that was is in the log: run rmqtool recover")

    # -- append -------------------------------------------------------------------------------------------------------

    def append(self, message: Message) -> PutResult:
        """Append one message. What is answered with ``ok`` survives the death of this process at once, and a power cut
        from the next flush on, or at once with ``sync_flush``."""
        return self._appended(lambda: [self.appender.put(message)])[0]

    def append_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append messages of one queue as one batch, all or none.

        Raises:
            Illegal: one of them is not taken.
        """
        return self._appended(lambda: self.appender.put_batch(messages))

    def append_encoded(self, batch: Message) -> EncodedResult:
        """Append a batch whose body holds its messages as clients send them, all or none; the fastest way.

        Raises:
            Illegal: it is not taken.
        """
        return self._appended(lambda: self.appender.put_encoded(batch))

    def append_many(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append messages of any queues, each by itself, in order; much faster than one by one."""
        return self._appended(lambda: self.appender.put_many(messages))

    def _appended(self, put: Callable[[], T]) -> T:
        if self._broken or not self._lock.held:
            raise Refused(f"{self.layout.root}: this store is closed")
        if not self._open_for_writing:
            self._begin()
        before = self.end
        try:
            if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
                self._look()
            if before - self._asked >= _DISPATCH_BYTES:
                self._check_space()
                self._dispatch_beside()
                if time.monotonic() - self._flushed_at >= _FLUSH_SECONDS:
                    self.flush()
            results = put()
            if self.sync_flush:
                self.appender.writer.sync()
        except Disturbed as err:
            raise self._disturbed(err) from err
        except BaseException as err:
            self._fail(err, before)
            raise
        return results

    def _fail(self, error: BaseException, before: int = -1) -> None:
        """An error that came in the middle leaves nothing to go on from, whatever it is: the abort marker stays, and
        the next start looks at all of the store.

        Args:
            before: where the log ended then; what only was a wrong argument has added nothing to it.

        Raises:
            OSError: instead of one that does not say what it is about.
        """
        torn = not isinstance(error, Exception) or isinstance(error, (OSError, UnreadableStore, MemoryError))
        self._broken |= not isinstance(error, (Illegal, Refused)) and (torn or self.end != before)
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(error.errno, os.strerror(error.errno or 0), self.layout.root) from error

    # -- dispatch -----------------------------------------------------------------------------------------------------

    def dispatch(self) -> int:
        """Put what was appended into queues and index; returns the number of messages (ReputMessageService)."""
        try:
            count = self._wait()
            self._asked = self.end
            return count + self._dispatch_to(self.end)
        except BaseException as err:
            self._fail(err)
            raise

    def _dispatch_beside(self) -> None:
        """Have another thread do it, as a broker does, while more is appended: by one part at a time."""
        self._wait()
        self._asked = self.end
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "rmqtool-reput")
        self._running = self._pool.submit(self._dispatch_to, self.end)

    def _wait(self) -> int:
        """Until nobody dispatches; raises what it has raised."""
        running, self._running = self._running, None
        try:
            return 0 if running is None else running.result()
        except BaseException:
            self._broken = True
            raise

    def _dispatch_to(self, end: int) -> int:
        if self._dispatched >= end:
            return 0
        count = 0
        builder = BatchBuilder(self._levels, light_queues=self._light)
        for file in Segments.of(self.layout.commit_log_paths):
            if file.end <= self._dispatched or file.base >= end:
                continue
            at = max(self._dispatched - file.base, 0)
            limit = min(end - file.base, file.size)
            for batch in reput_batches(file.view(), at, limit, builder):
                self._dispatch(batch)
                count += len(batch)
                batch.release()
            file.release()
        self._dispatched = end
        return count

    def _dispatch(self, batch: Batch) -> None:
        for row, puts in batch.puts():
            self._queue(batch.topics[int(batch.topic[row])], int(batch.queue_id[row])).put(puts)
        for put in batch.light:
            if batch.queued[put.row]:
                queue_id = 0 if put.queue.startswith(_LIGHT_PREFIX) else int(batch.queue_id[put.row])
                self._queue(put.queue, queue_id).put(batch.light_puts(put))
        if self._indexed:
            self.index.put(batch)

    def _queue(self, topic: str, queue_id: int) -> QueueBuilder:
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            queue = self._new_queue(topic, queue_id, self.layout.queue_path(topic, queue_id))
            queue.recover()
            if queue.max_offset != self._ends.get((topic, queue_id), 0):
                raise UnreadableStore(f"{queue.path}: has changed meanwhile: another process writes to this store")
            self.queues[topic, queue_id] = queue
        return queue

    # -- flush --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Dispatch, make log, queues and index durable, then the checkpoint that says so."""
        if not self._open_for_writing:
            return
        try:
            self._look()
            self.dispatch()
            self.appender.writer.sync()
            self._touched.sync()
            full = self.index.sync()
            if last := self.appender.last_store_timestamp:
                self._write_checkpoint(
                    self._checkpoint._replace(
                        physic_msg_timestamp=last,
                        logics_msg_timestamp=last,
                        index_msg_timestamp=max(full, self._checkpoint.index_msg_timestamp),
                    )
                )
        except Disturbed as err:
            raise self._disturbed(err) from err
        except BaseException as err:
            self._fail(err)
            raise
        self._flushed_at = time.monotonic()

    def _write_checkpoint(self, point: Checkpoint) -> None:
        path, data = self.layout.path("checkpoint"), checkpoint.build(point)
        if not make_file(path, data):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                write_all(fd, data, 0)
                os.fsync(fd)
            finally:
                os.close(fd)
        self._checkpoint = point


def create(root: str, conf: BrokerConf | None = None) -> StoreLayout:
    """Make an empty store, as a broker's first start does it; the first commit-log file tells how long all will be.

    Raises:
        Refused: the place is not empty, or cannot be written.
    """
    root = checked_path(root)
    conf = conf or BrokerConf()
    try:
        if os.path.lexists(root) and os.listdir(root):
            raise Refused(f"{root}: is not empty")
        if not os.path.isdir(root):
            os.makedirs(root)
            give_away(root)
        for folder in ("commitlog", "consumequeue", "index", "config"):
            make_folders(os.path.join(root, folder))
        layout = StoreLayout(root, conf)
        for folder in layout.commit_log_paths:
            # settings may name the log of a store that somebody else writes
            if os.path.isdir(folder) and os.listdir(folder):
                raise Refused(f"{folder}: is not empty")
        for path, data in (("checkpoint", checkpoint.build(Checkpoint())), ("lock", b"lock")):
            make_file(layout.path(path), data)
        first = LogWriter(layout.commit_log_paths[:1], layout.commit_log_size(layout.commit_log()))
        first.make_file()
        first.close()
        for folder in (layout.root, os.path.dirname(layout.root)):
            sync(folder)
    except OSError as err:
        raise Refused(f"{err.filename or root}: {os.strerror(err.errno or 0)}") from err
    return layout
