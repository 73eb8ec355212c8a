"""The Python door to a store: ``from rmqtool import Store``."""

import os
from collections.abc import Iterator, Sequence
from typing import Self

from rmqtool.errors import Refused
from rmqtool.services.lookup.get_message import GetResult, get_message
from rmqtool.services.lookup.query import KeyReader, Search, query_id
from rmqtool.store.append.answers import PutResult
from rmqtool.store.append.appender import Clock, system_clock
from rmqtool.store.append.create import create
from rmqtool.store.append.live import LiveStore
from rmqtool.store.append.outgoing import Message
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.version import release_of
from rmqtool.store.log.commit_log import CommitLog, Damage, Found
from rmqtool.store.queues.batch import every_queue, open_any_queue
from rmqtool.store.recovery.report import QueueRange


def _conf(broker_conf: str | os.PathLike[str] | dict[str, str] | None) -> BrokerConf:
    if broker_conf is None or isinstance(broker_conf, dict):
        return BrokerConf(broker_conf)
    return load(os.fspath(broker_conf))


class Store:
    """A store directory: read as it lies there, or opened like a broker's to be appended to.

    Reading takes no lock and writes nothing. Writing holds the broker's own lock until :meth:`close`:

        with Store("store", write=True) as store:
            store.append(Message(topic="Orders", body=b"...", tags="paid", keys="42"))

    Args:
        path: the store directory.
        write: open it for appending.
        broker_conf: the broker's properties file, or its settings by name.
        engine: "4.9" or "5.3"; None for what the store shows.
        sync_flush: make messages durable before they are acknowledged; None for what the settings say.
        mend: finish what a killed writer of this kind left, where that loses no message.
        command: for what it is opened for writing: a slave's or a tiered store is not open to everything.
        clock: milliseconds since the epoch.

    Raises:
        UnreadableStore: no store is there.
        Refused: opened for writing, and it is in use, or a broker would repair it first (see ``rmqtool recover``).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        write: bool = False,
        broker_conf: str | os.PathLike[str] | dict[str, str] | None = None,
        engine: str | None = None,
        sync_flush: bool | None = None,
        mend: bool = False,
        command: str = "append",
        clock: Clock = system_clock,
    ) -> None:
        conf = _conf(broker_conf)
        self.warnings: list[str] = []
        self._live: LiveStore | None = None
        if write:
            self._live = LiveStore(
                os.fspath(path), conf, engine=engine, sync_flush=sync_flush, mend=mend, command=command, clock=clock
            )
            self.warnings += self._live.warnings
        self.layout = self._live.layout if self._live is not None else StoreLayout(os.fspath(path), conf)
        self._engine = engine or (self._live.engine if self._live else release_of(self.layout))
        self._reader: KeyReader | None = None
        self._seen = -1

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        broker_conf: str | os.PathLike[str] | dict[str, str] | None = None,
        engine: str | None = None,
        sync_flush: bool | None = None,
        clock: Clock = system_clock,
    ) -> Self:
        """Make an empty store and open it for writing.

        Raises:
            Refused: something is there already.
        """
        create(os.fspath(path), _conf(broker_conf))
        return cls(path, write=True, broker_conf=broker_conf, engine=engine, sync_flush=sync_flush, clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave a store that was opened for writing as a broker that stopped cleanly does."""
        if self._live is not None:
            self._live.close()

    @property
    def writable(self) -> bool:
        """Whether it was opened for writing."""
        return self._live is not None

    @property
    def live(self) -> LiveStore:
        """The engine under an open store.

        Raises:
            Refused: opened for reading only.
        """
        if self._live is None:
            raise Refused(f"{self.layout.root}: opened for reading only: open it with write=True")
        return self._live

    # -- write --------------------------------------------------------------------------------------------------------

    def append(self, message: Message) -> PutResult:
        """Append one message; see :meth:`LiveStore.append`."""
        return self.live.append(message)

    def append_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append messages of one queue as one batch: all, behind each other in one file, or none."""
        return self.live.append_batch(messages)

    def append_many(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append messages of any queues, in order; much faster than one by one."""
        return self.live.append_many(messages)

    def dispatch(self) -> int:
        """Put what was appended into queues and index; reading does so by itself. Returns the number of messages."""
        return self.live.dispatch()

    def flush(self) -> None:
        """Make everything durable, checkpoint included."""
        self.live.flush()

    # -- read ---------------------------------------------------------------------------------------------------------

    def _fresh(self) -> KeyReader:
        """Log and index as they are now; a store that others write is looked at once."""
        if self._live is not None and self._live.end != self._seen:
            self._live.dispatch()
            self._seen, self._reader = self._live.end, None
        if self._reader is None:
            self._reader = KeyReader(self.layout, self.warnings.append)
        return self._reader

    def query_key(self, topic: str, key: str, *, limit: int | None = None) -> list[Found]:
        """Messages of a topic with a key or unique id, in log order, through the index."""
        return self._fresh().query(topic, key, Search(limit=limit) if limit else Search())

    def query_id(self, message_id: str, *, topic: str | None = None) -> list[Found]:
        """Messages with an offset id or unique id."""
        self._fresh()
        return query_id(self.layout, message_id, Search(), self.warnings.append, (topic,) if topic else ())

    def message_at(self, physical_offset: int) -> Found | None:
        """The message at a physical offset, or None where there is none."""
        return self._fresh().log.read(physical_offset)

    def get(self, topic: str, queue_id: int, queue_offset: int, limit: int = 32) -> GetResult[Found]:
        """One pull as a broker answers it: status, next offset, messages."""
        log = self._fresh().log
        return get_message(log, open_any_queue(self.layout, topic, queue_id), queue_offset, limit, engine=self._engine)

    def queues(self) -> list[QueueRange]:
        """Every queue with its offsets."""
        low = self._fresh().log.min_offset
        return [
            QueueRange(
                topic=queue.topic,
                queueId=queue.queue_id,
                minOffset=queue.min_offset(low, self._engine),
                maxOffset=queue.max_offset,
            )
            for queue in every_queue(self.layout)
        ]

    def messages(self, start: int | None = None, stop: int | None = None) -> Iterator[Found | Damage]:
        """Messages of the log that begin in [start, stop), and every damaged range between them."""
        self._fresh()
        for item in CommitLog(self.layout).walk(start, stop):
            if isinstance(item, Damage):
                yield item
            else:
                yield from item.messages()
