"""The Python API of a store: ``from rmqtool import Store``."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from rmqtool.errors import BadValue, CorruptFile, Refused
from rmqtool.rules.releases import NEWEST, Release
from rmqtool.services.lookup.get_message import GetResult, get_message
from rmqtool.services.lookup.query import KeyReader, Search, query_id, query_key
from rmqtool.services.lookup.queue_messages import messages_of
from rmqtool.services.lookup.selection import Selection
from rmqtool.services.lookup.tiered import get_tiered, only_tiered
from rmqtool.services.open_store.message import StoredMessage
from rmqtool.store.append.answers import PutResult
from rmqtool.store.append.appender import Clock, system_clock
from rmqtool.store.append.create import create
from rmqtool.store.append.live import LiveStore
from rmqtool.store.append.outgoing import NewMessage
from rmqtool.store.config.release import release_of
from rmqtool.store.index.reader import MAX_TIME
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.queues.batch import BatchQueue, PlainQueue, every_queue, open_any_queue
from rmqtool.store.recovery.report import QueueRange
from rmqtool.store.roles.elsewhere import messages_elsewhere, need_readable_log
from rmqtool.words import counted

if TYPE_CHECKING:
    from rmqtool.store.tier.only_tiered import OnlyTiered

Time = int | datetime


def _conf(broker_conf: str | os.PathLike[str] | dict[str, Any] | None) -> BrokerConf:
    if isinstance(broker_conf, dict | None):
        return BrokerConf({name: str(value) for name, value in (broker_conf or {}).items()})  # numbers, too
    return load(os.fspath(broker_conf))


def _millis(time: Time | None, default: int) -> int:
    """A time as ms since the epoch.

    Raises:
        ValueError: a datetime without a time zone, which means something else on each machine.
    """
    if time is None:
        return default
    if isinstance(time, int):
        return time
    if time.tzinfo is None:
        raise ValueError(f"{time!r} has no time zone: pass datetime(..., tzinfo=UTC), or ms since the epoch")
    return round(time.timestamp() * 1000)


def _raise_damage(damage: Damage) -> None:
    raise CorruptFile(damage.path, damage.at, f"{damage.reason}: {damage.length} bytes cannot be read")


class Store:
    """A store directory, opened for reading or, as by a broker, for appending.

    Reading takes no lock and writes nothing. Writing holds the broker's own lock until :meth:`close`:

        with Store("store", write=True) as store:
            store.append(NewMessage(topic="Orders", body=b"...", tags="paid", keys="42"))

    Messages are read as :class:`StoredMessage`, including those that only the tier has, if its segments are files on
    this machine. ``warnings`` lists reasons why answers are incomplete, such as an unreadable index file or a remote
    tier.

    Args:
        path: the store directory.
        write: open it for appending.
        broker_conf: path of the broker's properties file, or a dict of settings.
        release: the release whose rules apply; None to detect it from the store.
        sync_flush: make messages durable before they are acknowledged; None for the broker's setting.
        mend: finish the work of a killed writer, if no message is lost by that.
        command: the purpose of writing: a slave's or a tiered store does not allow every purpose.
        clock: milliseconds since the epoch.

    Raises:
        UnreadableStore: there is no store.
        Refused: it cannot be opened for writing: it is in use, or a broker would repair it first (see ``rmqtool
            recover``).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        write: bool = False,
        broker_conf: str | os.PathLike[str] | dict[str, Any] | None = None,
        release: Release | None = None,
        sync_flush: bool | None = None,
        mend: bool = False,
        command: str = "append",
        clock: Clock = system_clock,
    ) -> None:
        conf = _conf(broker_conf)
        self._conf_file = None if isinstance(broker_conf, dict | None) else os.fspath(broker_conf)
        self._conf_given = bool(broker_conf)
        self.warnings: list[str] = []
        self._live: LiveStore | None = None
        if write:
            self._live = LiveStore(
                os.fspath(path), conf, release=release, sync_flush=sync_flush, mend=mend, command=command, clock=clock
            )
            self.warnings += self._live.warnings
        self.layout = self._live.layout if self._live is not None else StoreLayout(os.fspath(path), conf)
        self.release = release or (self._live.release if self._live else release_of(self.layout))
        self._reader: KeyReader | None = None
        self._seen = -1
        self._looked_elsewhere = False

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        broker_conf: str | os.PathLike[str] | dict[str, Any] | None = None,
        release: Release | None = None,
        sync_flush: bool | None = None,
        clock: Clock = system_clock,
    ) -> Self:
        """Create an empty store, of the newest release if none is given, and open it for writing.

        Raises:
            Refused: the path already exists.
        """
        create(os.fspath(path), _conf(broker_conf), release or NEWEST)
        return cls(path, write=True, broker_conf=broker_conf, release=release, sync_flush=sync_flush, clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store; if it was opened for writing, leave it like a broker that stopped cleanly."""
        if self._live is not None:
            self._live.close()

    @property
    def writable(self) -> bool:
        """Whether it was opened for writing."""
        return self._live is not None

    @property
    def live(self) -> LiveStore:
        """The writer under an open store.

        Raises:
            Refused: opened for reading only.
        """
        if self._live is None:
            raise Refused(f"{self.layout.root}: opened for reading only: open it with write=True")
        return self._live

    # -- write --------------------------------------------------------------------------------------------------------

    def append(self, message: NewMessage, *, spare: bool = False) -> PutResult:
        """Append one message; see :meth:`LiveStore.append`."""
        return self.live.append(message, spare=spare)

    def append_batch(self, messages: Sequence[NewMessage]) -> Sequence[PutResult]:
        """Append messages of one queue as one batch: all of them, one after another in one file, or none."""
        return self.live.append_batch(messages)

    def append_many(self, messages: Sequence[NewMessage]) -> Sequence[PutResult]:
        """Append messages of any queues, in order; much faster than one by one."""
        return self.live.append_many(messages)

    def dispatch(self) -> int:
        """Put what was appended into queues and index; reading does so by itself. Returns the number of messages."""
        return self.live.dispatch()

    def flush(self) -> None:
        """Make everything durable, checkpoint included."""
        self.live.flush()

    # -- read ---------------------------------------------------------------------------------------------------------

    def _fresh(self, *, messages: bool = True) -> KeyReader:
        """Current log and index; a store that others write is read as of the first call.

        Args:
            messages: messages will be read; ``warnings`` names those stored elsewhere.

        Raises:
            CorruptFile: they are in a DLedger log that cannot be read.
        """
        if messages and not self._looked_elsewhere:
            need_readable_log(self.layout)
            self.warnings += messages_elsewhere(self.layout, what="not read", reads=True)
            self._looked_elsewhere = True
        if self._live is not None and self._live.end != self._seen:
            self._live.dispatch()
            self._seen, self._reader = self._live.end, None
        if self._reader is None:
            self._reader = KeyReader(self.layout, self.warnings.append)
        return self._reader

    @property
    def log(self) -> CommitLog:
        """The current commit log."""
        return self._fresh().log

    def messages(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        topic: str | Iterable[str] = (),
        queue_id: int | None = None,
        tag: str | None = None,
        key: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        on_damage: Callable[[Damage], None] = _raise_damage,
    ) -> Iterator[StoredMessage]:
        """Messages of the store, in the order in which they were stored. All conditions must hold.

        Without a range of physical offsets, messages that only the tier has come first; their physical offset is the
        position in the tier. The whole range is read: for one queue :meth:`queue_messages` reads less, for a key
        :meth:`query_key`.

        Args:
            start, stop: physical offsets; messages that begin in [start, stop).
            topic: a name or glob, or several of them.
            key: one of the application's keys, or the unique id.
            since, until: store time in [since, until): ms since the epoch, or a datetime with a time zone.
            on_damage: called with each unreadable range of the log; reading continues after it. By default the first
                such range raises an error.

        Raises:
            CorruptFile: a range of the log cannot be read, and no ``on_damage`` was given.
            ValueError: a datetime without a time zone.
        """
        wanted = Selection(
            topics=(topic,) if isinstance(topic, str) else tuple(topic),
            queue_ids=() if queue_id is None else (queue_id,),
            tags=() if tag is None else (tag,),
            keys=() if key is None else (key,),
            since=_millis(since, -MAX_TIME),
            until=_millis(until, MAX_TIME),
        )
        self._fresh()
        return self._walk(start, stop, wanted, on_damage)

    def _walk(
        self, start: int | None, stop: int | None, wanted: Selection, on_damage: Callable[[Damage], None]
    ) -> Iterator[StoredMessage]:
        everything = wanted == Selection()
        items: Iterator[LocatedRecord | Damage] = CommitLog(self.layout).walk(start, stop)
        if start is None and stop is None and self._tiered is not None:
            items = chain(self._tiered.by_time(), items)
        for item in items:
            if isinstance(item, Damage):
                on_damage(item)
                continue
            for message in item.messages():
                if everything or wanted.has(message.record, message.physical_offset):
                    yield StoredMessage(message)

    def to_arrow(self, table: str = "messages", **selection: Any) -> Any:
        """A table as a ``pyarrow.RecordBatchReader``, in bounded memory; see :func:`rmqtool.read_arrow`.

        DuckDB, Polars and others also read the store itself, as the stream of all messages (``__arrow_c_stream__``).

        Args:
            table: ``messages``, ``queues``, ``offsets`` and others.
            selection: columns and conditions, as for :func:`rmqtool.read_arrow`.

        Raises:
            BadValue: no such table or column, or the broker's settings were given as a dict instead of a file.
        """
        package: Any = import_module("rmqtool")  # what is built on this; it is found by the name that users have for it
        if self._conf_given and self._conf_file is None:
            raise BadValue(f"{self.layout.root}: Arrow needs the broker's settings as a file, not as a dict")
        self._fresh(messages=False)
        return package.read_arrow(self.layout.root, table, broker_conf=self._conf_file, **selection)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """All messages as an Arrow stream, for libraries that take one."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def queue_messages(
        self, topic: str, queue_id: int, start: int | None = None, stop: int | None = None
    ) -> Iterator[StoredMessage]:
        """Messages of one queue in order, found through its consume queue: only they are read.

        Messages that only the tier has come first. Entries without a message are skipped, and counted in ``warnings``.

        Args:
            start, stop: queue offsets; messages in [start, stop), by default all that the store still has.
        """
        log = self.log
        queue = open_any_queue(self.layout, topic, queue_id)
        tiered = self._tiered
        alone = tiered.offsets.get((topic, queue_id), range(0)) if tiered is not None else range(0)
        in_tier = range(max(alone.start, start or 0), alone.stop if stop is None else min(alone.stop, stop))
        before = self._in_tier(tiered, topic, queue_id, in_tier) if tiered is not None else iter(())
        start = max(start, alone.stop) if start is not None else alone.stop or None
        if queue is None:
            return before
        if isinstance(queue, BatchQueue):
            low = queue.min_offset(log.min_offset, self.release) if start is None else start
            return chain(before, self._batches(topic, queue_id, low, queue.max_offset if stop is None else stop))
        return chain(before, self._entries(log, queue, start, stop))

    @cached_property
    def _tiered(self) -> "OnlyTiered | None":
        """Messages that only the tier has, listed once; None if there are none, or the tier cannot be read here."""
        return only_tiered(self.layout, lambda _topic, _queue_id: True)

    def _in_tier(self, tiered: "OnlyTiered", topic: str, queue_id: int, offsets: range) -> Iterator[StoredMessage]:
        count = 0
        for item in tiered.walk_queue(topic, queue_id, offsets):
            if isinstance(item, LocatedRecord):
                count += 1
                yield StoredMessage(item)
        if count < len(offsets):
            missing = counted(len(offsets) - count, "message")
            self.warnings.append(f"{topic} queue {queue_id}: {missing} in the tier cannot be read: skipped")

    def _entries(
        self, log: CommitLog, queue: PlainQueue, start: int | None, stop: int | None
    ) -> Iterator[StoredMessage]:
        for message in messages_of(log, queue, self.warnings.append, start, stop):
            position = message.entry.physical_offset
            file = log.segments.find(position)
            if file is not None:
                yield StoredMessage(LocatedRecord(file, position - file.base, message.record))

    def _batches(self, topic: str, queue_id: int, start: int, stop: int) -> Iterator[StoredMessage]:
        while start < stop:
            pulled = self.get(topic, queue_id, start)
            if not pulled.messages:
                return
            yield from (message for message in pulled.messages if start <= message.queue_offset < stop)
            start = pulled.next_begin_offset

    def query_key(
        self,
        topic: str,
        key: str,
        *,
        limit: int | None = None,
        since: Time | None = None,
        until: Time | None = None,
    ) -> list[StoredMessage]:
        """Messages of a topic with a key or unique id, in log order, through the index.

        Args:
            since, until: store time in [since, until), as in :meth:`messages`.
        """
        search = Search(limit=limit, begin=_millis(since, 0), end=_millis(until, MAX_TIME + 1) - 1)
        reader = self._fresh()
        if self._tiered is not None:
            messages = query_key(self.layout, topic, key, search, self.warnings.append)
        else:
            messages = reader.query(topic, key, search)
        return [StoredMessage(message) for message in messages]

    def query_id(self, message_id: str, *, topic: str | None = None) -> list[StoredMessage]:
        """Messages with an offset id or unique id."""
        self._fresh()
        messages = query_id(self.layout, message_id, Search(), self.warnings.append, (topic,) if topic else ())
        return [StoredMessage(message) for message in messages]

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """The message at a physical offset, or None where there is none."""
        message = self._fresh().log.read(physical_offset)
        return StoredMessage(message) if message is not None else None

    def get(self, topic: str, queue_id: int, queue_offset: int, limit: int = 32) -> GetResult[StoredMessage]:
        """One pull as a broker answers it: status, next offset, messages."""
        log, queue = self._fresh().log, open_any_queue(self.layout, topic, queue_id)
        high = queue.max_offset if queue is not None else 0
        result = get_tiered(self._tiered, topic, queue_id, queue_offset, limit, high) or get_message(
            log, queue, queue_offset, limit, release=self.release
        )
        return GetResult(*result[:-1], messages=[StoredMessage(message) for message in result.messages])

    def topics(self) -> list[str]:
        """Topics that have queues on disk, sorted."""
        return sorted({queue.topic for queue in self.queues()})

    def queues(self, topic: str | None = None) -> list[QueueRange]:
        """Every queue, or those of one topic, with its offsets."""
        low = self._fresh(messages=False).log.min_offset
        alone = self._tiered.offsets if self._tiered is not None else {}
        return [
            QueueRange(
                topic=queue.topic,
                queueId=queue.queue_id,
                minOffset=alone[key].start
                if (key := (queue.topic, queue.queue_id)) in alone
                else queue.min_offset(low, self.release),
                maxOffset=queue.max_offset,
            )
            for queue in every_queue(self.layout)
            if topic is None or queue.topic == topic
        ]
