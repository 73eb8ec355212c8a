"""Flush in a thread of its own (FlushRealTimeService, FlushConsumeQueueService).

The writing threads collect what has to be synced: the log's files at one moment, and the files of queues and index once
everything in the log at that moment has been dispatched. Another thread syncs them and writes the checkpoint that
refers to them; its error is raised in the writing thread.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from rmqtool.store.append.dispatching import Unflushed
from rmqtool.store.disk.durable import sync, sync_names
from rmqtool.store.disk.files import File


@dataclass
class Unsynced:
    """Writes up to a point in time that are not durable yet.

    Attributes:
        log: files of the commit log, oldest first; closed by the thread that syncs them.
        taken: files of queues and index, available once the dispatch up to there has ended.
        on_durable: called when all of this is durable, with the end time of the last full index file; writes the
            checkpoint.
        left: files of queues and index that could not be made durable; None if that has not failed.
    """

    log: list[File]
    taken: "Future[Unflushed]"
    on_durable: Callable[[int], None]
    left: Unflushed | None = None

    def sync(self) -> None:
        """Make it durable, then call ``on_durable``. All log files are tried, since they hold acknowledged messages."""
        errors = []
        for file in self.log:
            with file:
                try:
                    file.sync()
                except OSError as err:
                    errors.append(err)
        if errors:
            raise errors[0]
        taken = self.taken.result()
        try:
            for path in taken.files:
                sync(path)
            sync_names(taken.folders)
        except OSError:
            self.left = taken
            raise
        self.on_durable(taken.full)


class FlushBeside:
    """A thread that syncs.

    Attributes:
        what: what it was given last.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None
        self.what: Unsynced | None = None

    @property
    def busy(self) -> bool:
        """Whether it is syncing now."""
        return self._running is not None and not self._running.done()

    def begin(self, what: Unsynced) -> None:
        """Start to sync in the thread. Call :meth:`wait` first, so that it is idle."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "rmqtool-flush")
        self.what = what
        self._running = self._pool.submit(what.sync)

    def wait(self) -> None:
        """Wait until the thread is idle, and raise its error, once."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def stop(self) -> None:
        """Wait for the thread to end, ignoring its result."""
        if self._pool is not None:
            self._pool.shutdown()
