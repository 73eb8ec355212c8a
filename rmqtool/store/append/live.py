"""A store open for writing: opened like a broker's, appended to, dispatched, flushed and closed (DefaultMessageStore).

Only a healthy store is opened. Anything that a broker would repair at its start is left to
:mod:`rmqtool.store.recovery.command`, which shows it first. While a store is open, the broker's lock is held and its
``abort`` file exists, so that after a kill a broker recovers the store as after its own death.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Self, TypeVar

from formats.message.build import BLANK_SIZE, MAX_MESSAGE_SIZE
from rmqtool.errors import NoRoom, RanOut, Refused, RmqError, UnreadableStore
from rmqtool.rules.releases import Release
from rmqtool.store.append.answers import Illegal, PutResult
from rmqtool.store.append.appender import Appender, Clock, EncodedResult, system_clock
from rmqtool.store.append.delayed import TimerRules
from rmqtool.store.append.dispatching import LiveDispatch
from rmqtool.store.append.flushing import FlushBeside, Unsynced
from rmqtool.store.append.live_files import CheckpointFile
from rmqtool.store.append.outgoing import AppendRules, NewMessage
from rmqtool.store.append.space import WritePlaces
from rmqtool.store.changes.outside import refuse_parts_of_another, refuse_shared_files
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.writing import pending_runs, refuse_pending
from rmqtool.store.disk.durable import is_lacking, remove_durably, remove_in_order
from rmqtool.store.disk.files import remove_folder
from rmqtool.store.disk.lock import Disturbed, StoreLock, holder
from rmqtool.store.disk.new_files import make_file
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import BATCH_QUEUES, StoreLayout
from rmqtool.store.log.writer import LogWriter
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.recovery.command import Examined, examine, plan, recover
from rmqtool.store.recovery.dispatcher import QueueKey
from rmqtool.store.recovery.report import RecoveryReport
from rmqtool.store.roles.elsewhere import need_log_of_checkpoint
from rmqtool.store.roles.table import heed, warn_of_unsaid_role
from rmqtool.store.tier.tier import refuse_dangers, tier_dangers

T = TypeVar("T")
_DISPATCH_BYTES = 32 << 20  # appended before a dispatch starts by itself
_FLUSH_SECONDS = 10.0  # the flush interval of a broker
_CHECK_SECONDS = 1.0


class _NotMended(Exception):
    """A recovery would lose messages, or is not possible."""


def _refuse_loss(report: RecoveryReport) -> None:
    """Allow a recovery only if it loses no message.

    Raises:
        _NotMended: it loses one, or no broker would load the store.
    """
    if not report.loadOk or report.destroys or report.pending:
        raise _NotMended


class LiveStore:
    """A store open for writing. Use it as a context manager, or call :meth:`close`.

    Args:
        root: the store directory.
        conf: the broker's settings; above all the file sizes, which an empty store does not show.
        release: whose rules messages are checked and written by; None for the store's own release.
        sync_flush: make messages durable before they are acknowledged (``flushDiskType=SYNC_FLUSH``).
        mend: recover from a killed writer first, if no message is lost by that.
        command: the purpose of opening, as in the table of roles (:mod:`rmqtool.store.roles.table`).
        clock: milliseconds since the epoch.

    Attributes:
        warnings: the warnings of that table.
        batch_topics: topics with batch consume queues; add a new one before its first message.

    Raises:
        Refused: the store is in use, its role forbids it, or a broker would repair it first.
        UnreadableStore: not a store.
    """

    def __init__(
        self,
        root: str,
        conf: BrokerConf | None = None,
        *,
        release: Release | None = None,
        sync_flush: bool | None = None,
        mend: bool = False,
        command: str = "append",
        clock: Clock = system_clock,
    ) -> None:
        self.layout = StoreLayout(root, conf)  # not cached, since the store changes
        self.warnings = heed(self.layout, command)
        if not any(os.path.isdir(path) for path in self.layout.commit_log_paths):
            raise UnreadableStore(f"{self.layout.root}: no commit log in it")
        self.clock = clock
        self.mended: RecoveryReport | None = None
        if mend and self.layout.aborted and holder(self.layout.root) is None:
            self._mend()
        refuse_parts_of_another(self.layout)
        self._lock = StoreLock(self.layout.root)
        self._lock.__enter__()
        try:
            refuse_shared_files(Places.of(self.layout))
            self._open(self._healthy(), release, sync_flush)
        except BaseException:
            self._lock.__exit__()
            raise

    def _mend(self) -> None:
        """Recover the store if no message is lost by that, reading it only once.

        Raises:
            NoRoom: the disk is full.
        """
        try:
            with suppress(_NotMended):
                if pending_runs(Places.of(self.layout)):
                    _refuse_loss(plan(self.layout))  # before the interrupted run is completed
                self.mended = recover(self.layout, guard=_refuse_loss)
        except (OSError, RmqError) as err:
            if not is_lacking(err):
                raise
            reading = self.layout.command("serve", "--read-only")
            raise NoRoom(
                f"{self.layout.root}: was not closed, and there is no room to bring it in order: make some; meanwhile "
                f"{reading} serves what is there"
            ) from err
        self.layout = StoreLayout(self.layout.root, self.layout.conf)

    def _healthy(self) -> Examined:
        """Examine the store as a recovery does; called under the lock, so that the result is still valid when writing.

        Raises:
            Refused: a broker would not take the store as it is.
        """
        refuse_pending(Places.of(self.layout))
        need_log_of_checkpoint(self.layout)
        examined = examine(self.layout)
        report = examined.report
        if not report.clean or report.afterStart is None:
            first = (*report.refusals, *report.pending, *report.destroys, *report.actions)[0]
            raise Refused(
                f"{self.layout.root}: not healthy ({first}): see {self.layout.command('recover', '--dry-run')}"
            )
        refuse_dangers(self.layout, tier_dangers(self.layout, report.afterStart.ranges))
        warning = warn_of_unsaid_role(self.layout)
        if warning is not None and report.afterStart.maxPhyOffset > max(report.afterStart.minPhyOffset, 0):
            self.warnings.append(warning)  # an empty store is not a replica
        return examined

    def _open(self, examined: Examined, release: Release | None, sync_flush: bool | None) -> None:
        """Continue from what the recovery has read: files of log, queues and index are not read again."""
        layout, conf, inputs = self.layout, self.layout.conf, examined.inputs
        assert examined.report.afterStart is not None  # it is healthy
        end = examined.report.afterStart.maxPhyOffset
        self.release = release or inputs.rules.release
        self.sync_flush = (conf.text("flushDiskType") == "SYNC_FLUSH") if sync_flush is None else sync_flush
        self.batch_topics = set(inputs.rules.batch_topics)
        file_size = inputs.log.file_size
        logs = layout.commit_log_paths[: len(conf.paths("storePathCommitLog")) or 1]
        rules = AppendRules(
            release=self.release,
            levels=len(inputs.levels.millis),
            room=file_size - BLANK_SIZE,
            max_message_size=conf.number("maxMessageSize", MAX_MESSAGE_SIZE),
            timer=TimerRules.of(conf, self.clock) if self.release.has_timer else None,
            light_queues=inputs.light_queues,
            batch_topics=self.batch_topics if self.release.has_attributes else set(),
        )
        self.appender = Appender(LogWriter(logs, file_size, end), rules, dict(examined.ends), self.clock)
        self._reput = LiveDispatch(layout, inputs, examined.ends, end, self.batch_topics)
        self._places = WritePlaces(layout, logs)
        self._checkpoint = CheckpointFile(layout.path("checkpoint"), inputs.checkpoint)
        self._flushing = FlushBeside()
        self._open_for_writing = False
        self._broken = False
        self._disturbed: Disturbed | None = None
        self._short: NoRoom | None = None  # why a part of the log is not dispatched
        self._flushed_to = end
        self._flushed_at = self._checked_at = time.monotonic()

    # -- life cycle ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def end(self) -> int:
        """Physical offset of the next message."""
        return self.appender.writer.position

    @property
    def timer_rules(self) -> TimerRules | None:
        """Conditions of the timer; None for a release without one."""
        return self.appender.rules.timer

    @property
    def broken(self) -> bool:
        """Whether an error has stopped all writing."""
        return self._broken

    @property
    def queues(self) -> dict[QueueKey, QueueBuilder]:
        """The queues dispatched to so far, by topic and queue id."""
        return self._reput.queues

    def _check_alone(self) -> None:
        """Check that no broker has started to load the store.

        Raises:
            Disturbed: one has.
        """
        self._lock.check()
        self._checked_at = time.monotonic()

    def _start_writing(self) -> None:
        """Prepare for the first change: create the abort file, which shows a broker that the store was not closed."""
        self._places.need_space(self.end)
        self._lock.check()
        self._places.sweep()
        try:
            make_file(self.layout.path("abort"), b"")
        except OSError as err:
            if is_lacking(err):
                raise RanOut(_describe(err, self.layout.root)) from err
            raise
        self._open_for_writing = True

    def abandon(self) -> None:
        """Close without dispatch and sync; for a store that is thrown away, or left to recovery."""
        self._broken = True
        self.close()

    def close(self) -> None:
        """Dispatch, make everything durable, and leave the store in the state of a clean stop."""
        if self._lock.held:
            try:
                if self._open_for_writing and not self._broken:
                    with self._lock.alone():
                        self.flush()
                        self._lock.check()
                        remove_durably(self.layout.path("abort"))
            except Disturbed as err:
                raise self.stop_disturbed(err) from err
            finally:
                self._reput.stop()
                self._flushing.stop()
                self.appender.writer.let_go()
                self._reput.index.close()
                if self._open_for_writing:
                    self._lock.wait()
                self._lock.__exit__()

    def stop_disturbed(self, err: Disturbed) -> Disturbed:
        """Accept no more messages: a broker has started to load the store, and may have truncated or deleted files.

        Later callers get the same error: the first may be a client, and the last the user at the terminal.
        """
        if self._disturbed is not None:
            return self._disturbed
        if self._broken:
            return err
        self._broken = True
        kept = "every message that was is in the log"
        try:
            self._flushing.wait()
            self.appender.writer.sync()
        except (OSError, RmqError) as failed:
            kept = f"not every message that was may be in the log ({failed})"
        self._disturbed = Disturbed(f"{err}. Nothing more is taken; {kept}: run {self.layout.command('recover')}")
        return self._disturbed

    # -- append -------------------------------------------------------------------------------------------------------

    def append(self, message: NewMessage, *, spare: bool = False) -> PutResult:
        """Append one message. If the result is ``ok``, the message survives the death of this process, and a power cut
        after the next flush, or at once with ``sync_flush``.

        Args:
            spare: allow it to use the reserved disk space, for records without which no message could be consumed.

        Raises:
            NoRoom: the disk is full; nothing was appended, and it can be retried.
        """
        return self._append(lambda: [self.appender.put(message)], spare=spare)[0]

    def append_batch(self, messages: Sequence[NewMessage]) -> Sequence[PutResult]:
        """Append messages of one queue as one batch, all or none.

        Raises:
            Illegal: one of them is rejected.
        """
        return self._append(lambda: self.appender.put_batch(messages))

    def append_encoded(self, batch: NewMessage) -> EncodedResult:
        """Append a batch whose body contains its messages as a client sent them, all or none; the fastest method.

        Raises:
            Illegal: it is rejected.
        """
        return self._append(lambda: self.appender.put_encoded(batch))

    def append_many(self, messages: Sequence[NewMessage]) -> Sequence[PutResult]:
        """Append messages of any queues in order, independently of each other; much faster than one by one."""
        return self._append(lambda: self.appender.put_many(messages))

    def _append(self, put: Callable[[], T], *, spare: bool = False) -> T:
        if self._broken or not self._lock.held:
            raise Refused(f"{self.layout.root}: this store is closed")
        if not self._open_for_writing:
            self._start_writing()
        before = self.end
        try:
            if time.monotonic() - self._checked_at >= _CHECK_SECONDS:
                self._check_alone()
            if not spare:
                self._places.need_space(before)
            if before - self._reput.requested >= _DISPATCH_BYTES:
                self._wait()
                self._reput.begin(before)
                if time.monotonic() - self._flushed_at >= _FLUSH_SECONDS:
                    self.flush()
            results = self._put(put)
            if self.sync_flush:
                self.appender.writer.sync()
        except Disturbed as err:
            raise self.stop_disturbed(err) from err
        except BaseException as err:
            if is_lacking(err) and not isinstance(err, NoRoom) and self.end == before:
                raise RanOut(_describe(err, self.layout.root)) from err
            self._fail(err, before)
            raise
        return results

    def _put(self, put: Callable[[], T]) -> T:
        """Append everything, or nothing if there is not enough space.

        Raises:
            NoRoom: there is not.
        """
        self.appender.begin()
        try:
            return put()
        except BaseException as err:
            if not is_lacking(err):
                raise
            self.appender.take_back()
            raise RanOut(_describe(err, self.layout.root)) from err

    def _fail(self, error: BaseException, before: int = -1) -> None:
        """Accept no more messages after an error in the middle of a change: the abort file stays, so that the next
        start checks the store.

        Args:
            before: where the log ended; an error that appended nothing was only due to an argument.

        Raises:
            Disturbed: the error was caused by a broker that loads the store.
            OSError: with a path, instead of one without.
        """
        if isinstance(error, UnreadableStore) and not self._broken and self._lock.held:
            try:
                self._lock.check()
            except Disturbed as disturbed:
                raise self.stop_disturbed(disturbed) from error
        torn = not isinstance(error, Exception) or isinstance(error, (OSError, UnreadableStore, MemoryError))
        self._broken |= not isinstance(error, (Illegal, Refused)) and (torn or self.end != before)
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(error.errno, os.strerror(error.errno or 0), self.layout.root) from error

    # -- dispatch -----------------------------------------------------------------------------------------------------

    def dispatch(self) -> int:
        """Dispatch everything appended to queues and index; returns the number of messages (ReputMessageService)."""
        try:
            count = self._wait() + self._dispatch()
        except BaseException as err:
            self._fail(err)
            raise
        self._short = None
        return count

    def _dispatch(self) -> int:
        try:
            return self._reput.dispatch(self.end)
        except BaseException as err:
            self._raise_if_full(err)
            raise

    def _wait(self) -> int:
        """Wait for the running dispatch and raise its error, which ends all writing unless it was a lack of space."""
        try:
            return self._reput.wait()
        except BaseException as err:
            self._raise_if_full(err)
            self._broken = True
            raise

    def _raise_if_full(self, error: BaseException) -> None:
        """Convert an error for lack of space; the dispatch can be retried, since the log has the messages.

        Raises:
            NoRoom: ``error`` is such an error.
        """
        if is_lacking(error):
            self._short = RanOut(_describe(error, self.layout.root))
            raise self._short from error

    def queue_end(self, topic: str, queue_id: int) -> int:
        """Queue offset after the last message visible to readers; after that of the last message appended while there
        is no space for its entry."""
        if self._short is None:
            return self.appender.next_offsets.get((topic, queue_id), 0)
        return self._reput.end_of(topic, queue_id)

    # -- removal ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Dispatch and flush everything, before files are removed.

        Raises:
            Disturbed: a broker has started to load the store.
            NoRoom: there is no space to dispatch everything.
        """
        try:
            self._check_alone()
        except Disturbed as err:
            raise self.stop_disturbed(err) from err
        self.flush()

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Delete the files of a queue none of whose messages is in the log: its next message has queue offset 0.

        Call :meth:`settle` first.

        Raises:
            OSError: a file cannot be removed; its older ones are, and it ends where it did.
        """
        kind = BATCH_QUEUES if topic in self.batch_topics else "consumequeue"
        self._remove_folder_of_queue(self.layout.queue_path(topic, queue_id, kind))
        self._reput.forget(topic, queue_id)
        self.appender.next_offsets.pop((topic, queue_id), None)
        self._remove_folder_of_queue(self.layout.queue_path(topic, queue_id, "consumequeue_ext"))

    def _remove_folder_of_queue(self, folder: str) -> None:
        remove_in_order([file.path for file in self.layout.files_in(folder).files])
        for path in (folder, os.path.dirname(folder)):
            with suppress(OSError):  # it has something else
                remove_folder(path)

    # -- flush --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Dispatch, make log, queues and index durable, then write the checkpoint.

        Raises:
            NoRoom: there is no space to dispatch everything; the log is durable.
            Refused: an error has stopped all writing. After a failed sync a successful one proves nothing, so no
                checkpoint is written any more.
        """
        if not self._open_for_writing:
            return
        with self._failures():
            self._prepare_flush()
            try:
                self.dispatch()
            finally:
                self.appender.writer.sync()
            full = self._reput.sync()
            if last := self.appender.last_store_timestamp:
                self._checkpoint.write(last, full, self._find_durable_end())
        self._flushed_at, self._flushed_to = time.monotonic(), self.end

    def _find_durable_end(self) -> int | None:
        """Up to which message the queues are durable after a flush, for the checkpoint of a release that says so."""
        return self.appender.last_record if self.release.marks_flushed_queues else None

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """An error in the ``with`` block ends all writing, unless space may become available again."""
        try:
            yield
        except Disturbed as err:
            raise self.stop_disturbed(err) from err
        except BaseException as err:
            if is_lacking(err) and not isinstance(err, NoRoom):
                raise RanOut(_describe(err, self.layout.root)) from err
            self._fail(err)
            raise

    def sync_log(self) -> None:
        """Sync what has been written of the log; usable when further writes fail."""
        self.appender.writer.sync_written()

    def flush_beside(self) -> None:
        """Start a :meth:`flush` in another thread.

        Does nothing while one is running, or if nothing was stored since the last one.

        An error is raised by the next call, or by :meth:`flush` or :meth:`close`, and ends all writing. With
        ``sync_flush`` this flushes synchronously: the kernel reports an error of the medium only once, and no message
        may be acknowledged between the report to that thread and to this one.

        Raises:
            Refused: as in :meth:`flush`.
        """
        if not self._open_for_writing or self._flushing.busy:
            return
        new = self.end != self._flushed_to
        if self._broken or (new and self.sync_flush):
            self.flush()
            return
        with self._failures():
            self._end_flush()
            if new:
                self._prepare_flush()
                self._wait()
                self._flushing.begin(self._collect_unsynced())
                self._flushed_at, self._flushed_to = time.monotonic(), self.end

    def _prepare_flush(self) -> None:
        """Check that no broker loads the store and no error has occurred, and wait for the flushing thread."""
        self._check_alone()
        if self._broken:
            raise Refused(f"{self.layout.root}: an error has ended all writing; the next start looks at the store")
        self._end_flush()

    def _end_flush(self) -> None:
        try:
            self._flushing.wait()
        except BaseException as err:
            if is_lacking(err):
                self._flushed_to = -1  # flush again
                if self._flushing.what is not None and self._flushing.what.left is not None:
                    self._wait()
                    self._reput.give_back(self._flushing.what.left)
                raise RanOut(_describe(err, self.layout.root)) from err
            self._broken = True
            raise

    def _collect_unsynced(self) -> Unsynced:
        # of everything in the log; all of it will be dispatched by then
        last, marked = self.appender.last_store_timestamp, self._find_durable_end()

        def write_checkpoint(full: int) -> None:
            if last and not self._broken:  # otherwise a broker may have started to load the store
                self._checkpoint.write(last, full, marked)

        return Unsynced(self.appender.writer.take_unsynced(), self._reput.begin_to_take(self.end), write_checkpoint)


def _describe(error: BaseException, root: str) -> str:
    """The text of an error, with a path if it has none."""
    if isinstance(error, OSError):
        return f"{error.filename or root}: {os.strerror(error.errno or 0)}"
    return str(error)
