"""The dispatch of a running store: what was appended goes into queues and index, now or beside further appends.

Source: store.DefaultMessageStore.ReputMessageService; store-engine 3.1.
"""

from collections.abc import Set
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from rmqtool.errors import UnreadableStore
from rmqtool.store.append.live_files import DEFAULT_EXT, LiveBatchQueue, LiveIndex, LiveQueue, QueueExtension, Touched
from rmqtool.store.disk.durable import is_lacking
from rmqtool.store.disk.remote import is_dir
from rmqtool.store.dispatch.light import is_light
from rmqtool.store.dispatch.reading import reput_batches
from rmqtool.store.layout.paths import BATCH_QUEUES, StoreLayout
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.recovery.dispatcher import Dispatcher, QueueKey
from rmqtool.store.recovery.inputs import StoreInputs


class LiveQueues:
    """Opens queues that are written where they are.

    Args:
        layout: lists directories whenever it is asked.
        inputs: the store as a recovery found it healthy.
        ends: queue offset at which each queue ended then.
        touched: writes files, and knows what is not durable yet.
        batch_topics: whose queues are batch queues, whenever it is asked.
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
        """A queue that is dispatched to for the first time.

        Raises:
            UnreadableStore: it does not end where it did.
        """
        queue = self._batches(topic, queue_id) if topic in self._batch_topics else self._plain(topic, queue_id)
        # A fresh look, though a recovery has seen this queue: hours may lie between, and a process that does not
        # respect the lock may have written. Entries must not be put behind an end that is none any more.
        queue.recover()
        if queue.max_offset != self._ends.get((topic, queue_id), 0):
            raise UnreadableStore(f"{queue.path}: was changed while it was open: another process writes to this store")
        return queue

    def _plain(self, topic: str, queue_id: int) -> LiveQueue:
        path = self._layout.queue_path(topic, queue_id)
        queue = LiveQueue(topic, queue_id, path, self._inputs.queue_size, self._touched)
        if self._extended and not is_light(topic):
            folder = self._layout.queue_path(topic, queue_id, "consumequeue_ext")
            queue.extension = QueueExtension(folder, self._extension_size, self._touched)
        return queue

    def _batches(self, topic: str, queue_id: int) -> LiveBatchQueue:
        path = self._layout.queue_path(topic, queue_id, BATCH_QUEUES)
        return LiveBatchQueue(topic, queue_id, path, self._inputs.batch_queue_size, self._touched)


class Taken(NamedTuple):
    """What a dispatch, and those before it, have written and nobody has made durable.

    Attributes:
        files: paths of queue files, their extensions and index files. A sync of an index file takes what was written
            through its mapping along.
        folders: in which something was made.
        full: end time of the last full index file, 0 without one.
    """

    files: list[str]
    folders: set[str]
    full: int


class LiveDispatch:
    """Dispatches what was appended, in the order of the log; by one thread at a time.

    Args:
        layout: lists directories whenever it is asked, for the log grows.
        inputs: the store as a recovery found it healthy.
        ends: queue offset at which each queue ended then.
        end: physical offset up to which all was dispatched.
        batch_topics: whose queues are batch queues; more may be added.

    Attributes:
        index: the index files.
        asked: physical offset up to which dispatch was asked for.
    """

    def __init__(
        self, layout: StoreLayout, inputs: StoreInputs, ends: dict[QueueKey, int], end: int, batch_topics: Set[str]
    ) -> None:
        self._layout, self._new_builder = layout, inputs.batch_builder
        self._touched = Touched()
        self.index = LiveIndex(layout.path("index"), inputs.layout.index_paths(), inputs.geometry)
        self._ends, self._indexed, self._batch_topics = ends, inputs.indexed, batch_topics
        self._opened = LiveQueues(layout, inputs, ends, self._touched, batch_topics)
        self._dispatcher = self._new_dispatcher()
        self._dispatched = self.asked = end
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[int] | None = None

    def _new_dispatcher(self) -> Dispatcher:
        return Dispatcher({}, self.index, self._opened.open, indexed=self._indexed, batch_topics=self._batch_topics)

    def end_of(self, topic: str, queue_id: int) -> int:
        """Queue offset after the last entry that was dispatched to a queue, while nothing runs."""
        queue = self._dispatcher.queues.get((topic, queue_id))
        return self._ends.get((topic, queue_id), 0) if queue is None else queue.max_offset

    @property
    def queues(self) -> dict[QueueKey, QueueBuilder]:
        """Queues that were dispatched to, by topic and queue id."""
        return self._dispatcher.queues

    def dispatch(self, end: int) -> int:
        """Dispatch what was appended up to a physical offset; returns the number of messages.

        Only while nothing runs: :meth:`wait` comes first.
        """
        self.asked = end
        return self._dispatch_to(end)

    def begin(self, end: int) -> None:
        """Have another thread do it, as a broker does, while more is appended.

        Only while nothing runs: :meth:`wait` comes first.
        """
        self.asked = end
        self._running = self._thread().submit(self._dispatch_to, end)

    def begin_to_take(self, end: int) -> "Future[Taken]":
        """As :meth:`begin`; what is not durable then, for the caller to sync: all of it lies before ``end``."""
        taken: Future[Taken] = Future()

        def work() -> int:
            try:
                count = self._dispatch_to(end)
                taken.set_result(self._take())
            except BaseException as err:
                taken.set_exception(err)
                raise
            return count

        self.asked = end
        self._running = self._thread().submit(work)
        return taken

    def _thread(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "rmqtool-reput")
        return self._pool

    def wait(self) -> int:
        """Wait until nobody dispatches; returns the number of messages of the run that ended, and raises its error."""
        running, self._running = self._running, None
        return 0 if running is None else running.result()

    def _dispatch_to(self, end: int) -> int:
        if self._dispatched >= end:
            return 0
        try:
            return self._dispatch_from(end)
        except BaseException as err:
            if is_lacking(err):
                self._let_go_of_queues()
            raise

    def _let_go_of_queues(self) -> None:
        """Forget how far queues were thought to be, and open them again: the same messages are dispatched once more,
        and those that got their entries are skipped.
        """
        for key, queue in self._dispatcher.queues.items():
            self._ends[key] = queue.written_offset
        self._dispatcher = self._new_dispatcher()

    def forget(self, topic: str) -> None:
        """Let go of the queues of a topic, whose files will be removed; only while nothing runs."""
        self._let_go_of_queues()
        for key in [key for key in self._ends if key[0] == topic]:
            del self._ends[key]

    def _dispatch_from(self, end: int) -> int:
        before = self._dispatcher.messages
        builder = self._new_builder()
        for file in self._layout.commit_log():
            if file.end <= self._dispatched or file.base >= end:
                continue
            at = max(self._dispatched - file.base, 0)
            limit = min(end - file.base, file.size)
            for batch in reput_batches(file.view(), at, limit, builder, live=True):
                self._dispatcher.put(batch)
                batch.release()
            file.release()
        self._dispatched = end
        return self._dispatcher.messages - before

    def sync(self) -> int:
        """Make queues and index durable; returns the end time of the last full index file, 0 without one."""
        self._touched.sync()
        return self.index.sync()

    def give_back(self, taken: Taken) -> None:
        """What was taken could not be made durable for now; it will be asked for again."""
        self._touched.give_back(taken.files, taken.folders)

    def _take(self) -> Taken:
        files, folders = self._touched.take()
        return Taken([*files, *self.index.take()], folders, self.index.full_until)

    def stop(self) -> None:
        """Wait for the other thread to end, whatever becomes of its work."""
        if self._pool is not None:
            self._pool.shutdown()
