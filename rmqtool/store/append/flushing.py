"""What is made durable beside a thread that goes on writing (FlushRealTimeService, FlushConsumeQueueService).

What is to be synced is gathered by the threads that write: of the log at one moment, of queues and index behind all
that was in the log then. The syncs and the checkpoint that speaks of them are left to another thread, whose error the
first one takes.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from rmqtool.store.append.dispatching import Taken
from rmqtool.store.disk.durable import sync, sync_names
from rmqtool.store.disk.files import File


@dataclass
class Unsynced:
    """What was written up to a moment, and is not durable yet.

    Attributes:
        log: files of the commit log, oldest first; they are closed by the thread that syncs them.
        taken: queues and index, once the dispatch up to there has ended.
        told: writes the checkpoint which says that all of this is durable; takes the end time of the last full index
            file.
        left: of queues and index what could not be made durable, once that has failed.
    """

    log: list[File]
    taken: "Future[Taken]"
    told: Callable[[int], None]
    left: Taken | None = None

    def sync(self) -> None:
        """Make it durable, then say so. Of the log all is synced that can be: messages in it were acknowledged."""
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
        self.told(taken.full)


class FlushBeside:
    """One thread that syncs, and what it is doing.

    Attributes:
        what: it was given last.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None
        self.what: Unsynced | None = None

    @property
    def busy(self) -> bool:
        """Whether it syncs just now."""
        return self._running is not None and not self._running.done()

    def begin(self, what: Unsynced) -> None:
        """Have it synced; only while nothing else is: :meth:`wait` comes first."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "rmqtool-flush")
        self.what = what
        self._running = self._pool.submit(what.sync)

    def wait(self) -> None:
        """Until nothing is being synced. The error of what was is raised here, once."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def stop(self) -> None:
        """Wait for the thread to end, whatever became of its work."""
        if self._pool is not None:
            self._pool.shutdown()
