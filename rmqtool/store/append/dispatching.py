"""Dispatch in a running store: appended messages go to queues and index, in the foreground or the background.

Source: store.DefaultMessageStore.ReputMessageService; store-engine 3.1.
"""

from collections.abc import Set
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from rmqtool.errors import UnreadableStore
from rmqtool.store.append.live_files import (
    DEFAULT_EXT,
    LiveBatchQueue,
    LiveIndex,
    QueueExtension,
    Touched,
    WritableQueue,
)
from rmqtool.store.disk.directories import is_dir
from rmqtool.store.disk.durable import is_lacking
from rmqtool.store.dispatch.light import is_light
from rmqtool.store.dispatch.reading import reput_batches
from rmqtool.store.layout.paths import BATCH_QUEUES, StoreLayout
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.recovery.dispatcher import Dispatcher, QueueKey
from rmqtool.store.recovery.inputs import StoreInputs


class WritableQueues:
    """Opens existing queues for writing in place.

    Args:
        layout: an uncached layout.
        inputs: the store in the healthy state that recovery found.
        ends: queue offset of each queue's end in that state.
        touched: writes files, and records what is not durable yet.
        batch_topics: topics with batch queues; may change.
    """

    def __init__(
        self,
        layout: StoreLayout,
        inputs: StoreInputs,
        ends: dict[QueueKey, int],
        touched: Touched,
        batch_topics: Set[str],
    ) -> None:
        self._layout, self._inputs, self._ends, self._touched = layout, inputs, ends, touched
        self._batch_topics = batch_topics
        conf = layout.conf
        self._extended = conf.flag("enableConsumeQueueExt", is_dir(layout.path("consumequeue_ext")))
        self._extension_size = conf.sizes.get("mappedFileSizeConsumeQueueExt", DEFAULT_EXT)

    def open(self, topic: str, queue_id: int) -> QueueBuilder:
        """Open a queue before its first dispatch.

        Raises:
            UnreadableStore: its end is not where it was.
        """
        queue = self._open_batch(topic, queue_id) if topic in self._batch_topics else self._open_plain(topic, queue_id)
        # Check again, although recovery has read this queue: that may be hours ago, and a process that ignores the lock
        # may have written to it. Entries must not be put after an end that has moved.
        queue.recover()
        if queue.max_offset != self._ends.get((topic, queue_id), 0):
            raise UnreadableStore(f"{queue.path}: was changed while it was open: another process writes to this store")
        return queue

    def _open_plain(self, topic: str, queue_id: int) -> WritableQueue:
        path = self._layout.queue_path(topic, queue_id)
        queue = WritableQueue(topic, queue_id, path, self._inputs.queue_size, self._touched)
        if self._extended and not is_light(topic):
            folder = self._layout.queue_path(topic, queue_id, "consumequeue_ext")
            queue.extension = QueueExtension(folder, self._extension_size, self._touched)
        return queue

    def _open_batch(self, topic: str, queue_id: int) -> LiveBatchQueue:
        path = self._layout.queue_path(topic, queue_id, BATCH_QUEUES)
        return LiveBatchQueue(topic, queue_id, path, self._inputs.batch_queue_size, self._touched)


class Unflushed(NamedTuple):
    """Files that dispatch has written and that are not durable yet.

    Attributes:
        files: paths of queue files, extensions and index files. Syncing an index file includes what was written through
            its mapping.
        folders: directories with new names.
        full: end time of the last full index file; 0 without one.
    """

    files: list[str]
    folders: set[str]
    full: int


class LiveDispatch:
    """Dispatches appended messages in the order of the log; used by one thread at a time.

    Args:
        layout: an uncached layout, as the log grows.
        inputs: the store in the healthy state that recovery found.
        ends: queue offset of each queue's end in that state.
        end: physical offset up to which everything was dispatched.
        batch_topics: topics with batch queues; may grow.

    Attributes:
        index: the index files.
        asked: physical offset up to which a dispatch was requested.
    """

    def __init__(
        self, layout: StoreLayout, inputs: StoreInputs, ends: dict[QueueKey, int], end: int, batch_topics: Set[str]
    ) -> None:
        self._layout, self._new_builder = layout, inputs.batch_builder
        self._touched = Touched()
        self.index = LiveIndex(layout.path("index"), inputs.layout.index_paths(), inputs.geometry)
        self._ends, self._indexed, self._batch_topics = ends, inputs.indexed, batch_topics
        self._opened = WritableQueues(layout, inputs, ends, self._touched, batch_topics)
        self._dispatcher = self._new_dispatcher()
        self._dispatched = self.requested = end
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[int] | None = None

    def _new_dispatcher(self) -> Dispatcher:
        return Dispatcher({}, self.index, self._opened.open, indexed=self._indexed, batch_topics=self._batch_topics)

    def forget(self, topic: str, queue_id: int) -> None:
        """Begin a queue at its offset 0, whose files are removed; call it only while no dispatch runs."""
        self._ends.pop((topic, queue_id), None)
        self._dispatcher.queues.pop((topic, queue_id), None)

    def end_of(self, topic: str, queue_id: int) -> int:
        """Queue offset after the last dispatched entry of a queue; call it only while no dispatch runs."""
        queue = self._dispatcher.queues.get((topic, queue_id))
        return self._ends.get((topic, queue_id), 0) if queue is None else queue.max_offset

    @property
    def queues(self) -> dict[QueueKey, QueueBuilder]:
        """The queues dispatched to so far, by topic and queue id."""
        return self._dispatcher.queues

    def dispatch(self, end: int) -> int:
        """Dispatch everything up to a physical offset; returns the number of messages.

        Call :meth:`wait` first, so that no other dispatch runs.
        """
        self.requested = end
        return self._dispatch_to(end)

    def begin(self, end: int) -> None:
        """Dispatch in another thread, as a broker does, while more is appended.

        Call :meth:`wait` first, so that no other dispatch runs.
        """
        self.requested = end
        self._running = self._thread().submit(self._dispatch_to, end)

    def begin_to_take(self, end: int) -> "Future[Unflushed]":
        """Like :meth:`begin`; the future returns what the caller then has to sync, all of it before ``end``."""
        taken: Future[Unflushed] = Future()

        def work() -> int:
            try:
                count = self._dispatch_to(end)
                taken.set_result(self._take())
            except BaseException as err:
                taken.set_exception(err)
                raise
            return count

        self.requested = end
        self._running = self._thread().submit(work)
        return taken

    def _thread(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "rmqtool-reput")
        return self._pool

    def wait(self) -> int:
        """Wait for the running dispatch; returns its number of messages, and raises its error."""
        running, self._running = self._running, None
        return 0 if running is None else running.result()

    def _dispatch_to(self, end: int) -> int:
        if self._dispatched >= end:
            return 0
        try:
            return self._dispatch_from(end)
        except BaseException as err:
            if is_lacking(err):
                self._reopen_queues()
            raise

    def _reopen_queues(self) -> None:
        """Reopen the queues after a failure, so that the same messages are dispatched again; existing entries are
        skipped.
        """
        for key, queue in self._dispatcher.queues.items():
            self._ends[key] = queue.written_offset
        self._dispatcher = self._new_dispatcher()

    def _dispatch_from(self, end: int) -> int:
        before = self._dispatcher.messages
        builder = self._new_builder()
        for file in self._layout.commit_log():
            if file.end <= self._dispatched or file.base >= end:
                continue
            at = max(self._dispatched - file.base, 0)
            limit = min(end - file.base, file.size)
            for batch in reput_batches(file.view(), at, limit, builder):
                self._dispatcher.put(batch)
                batch.release()
            file.release()
        self._dispatched = end
        return self._dispatcher.messages - before

    def sync(self) -> int:
        """Make queues and index durable; returns the end time of the last full index file; 0 without one."""
        self._touched.sync()
        return self.index.sync()

    def give_back(self, taken: Unflushed) -> None:
        """Return files that could not be made durable, so that the next sync includes them."""
        self._touched.give_back(taken.files, taken.folders)

    def _take(self) -> Unflushed:
        files, folders = self._touched.take()
        return Unflushed([*files, *self.index.take()], folders, self.index.full_until)

    def stop(self) -> None:
        """Wait for the other thread to end, ignoring its result."""
        if self._pool is not None:
            self._pool.shutdown()
