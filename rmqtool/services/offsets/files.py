"""Files with consumer offsets: the broker's ``consumerOffset.json``, or a broadcasting client's file.

Both are read as their owner reads them, and written as it would write them, with only the intended changes.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from formats.config.files import ConsumerOffsets, LmqConsumerOffsets, OffsetTable, QueueOffset
from formats.config.rocksdb import SINGLE, TABLES, V2
from formats.errors import FormatError
from formats.primitives import java_hash
from formats.topics import LMQ_PREFIX
from formats.versions import V4_9, V5_3, Version
from rmqtool.errors import BadValue, CorruptFile, Refused, UnreadableStore
from rmqtool.rules.broadcast import QueueName, brokers
from rmqtool.rules.broadcast import build as build_broadcast
from rmqtool.rules.broadcast import parse as parse_broadcast
from rmqtool.services.lookup.configs import FILES, Warn, load_config
from rmqtool.services.offsets.java_order import JavaOrder
from rmqtool.store.config.release import release_of
from rmqtool.store.disk.directories import read_small
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.version import rocksdb_forms

Key = tuple[str, str, int]  # topic, group, queue id
K = TypeVar("K", str, int)
V = TypeVar("V")
_GROUPS_TABLE, _QUEUES_TABLE = 1024, 64  # slots of the broker's maps (ConcurrentHashMap of 512, and of 32)


class OffsetFile(ABC):
    """One file of offsets.

    Attributes:
        path: the file.
        entries: what it says.
        previous: its bytes, which a writer keeps as ``.bak``; None if it is missing, or if a good ``.bak`` was read
            instead, which must be kept.
    """

    def __init__(self, path: str, entries: list[QueueOffset], previous: bytes | None) -> None:
        self.path, self.entries, self.previous = path, entries, previous
        self.offsets: dict[Key, int] = {(e.topic, e.group, e.queue_id): e.offset for e in entries}

    def one_offset(self, group: str) -> bool:
        """Whether a group has a single offset in a topic, for all queues."""
        return False

    @abstractmethod
    def build(self, changes: Mapping[Key, int]) -> bytes:
        """The file with some offsets set."""


class BrokerFile(OffsetFile):
    """``consumerOffset.json``, or ``lmqConsumerOffset.json`` of a broker with light queues.

    Raises:
        CorruptFile: broken, and no good ``.bak``.
        Refused: the offsets are in RocksDB.
    """

    def __init__(self, layout: StoreLayout, warn: Warn) -> None:
        forms = rocksdb_forms(layout)
        databases = (TABLES["consumerOffset.json"].place, SINGLE, V2)
        if place := next((place for place in databases if place in forms), None):
            raise Refused(f"{layout.path(place)}: offsets are in a RocksDB database, which this version cannot write")
        plain, light = FILES
        paths = {name: layout.path("config", name) for name in FILES}
        is_light = layout.conf.flag("enableLmq", not os.path.lexists(paths[plain]) and os.path.lexists(paths[light]))
        name = light if is_light else plain
        broken: list[str] = []
        table = load_config(layout, name, broken.append)
        for text in broken:
            warn(text)
        empty: ConsumerOffsets = LmqConsumerOffsets() if is_light else ConsumerOffsets()
        self._table = table if isinstance(table, ConsumerOffsets) else empty
        data = read_small(paths[name])
        super().__init__(paths[name], list(self._table.entries()), None if broken else data)
        self._form = _form_of(layout, data)

    def one_offset(self, group: str) -> bool:
        return isinstance(self._table, LmqConsumerOffsets) and group.startswith(LMQ_PREFIX)

    def build(self, changes: Mapping[Key, int], *, without: Collection[tuple[str, str]] = ()) -> bytes:
        """The file with some offsets set.

        Args:
            without: topics and groups to leave out.
        """
        gone = {f"{topic}@{group}" for topic, group in without}
        offsets = {key: dict(queues.items()) for key, queues in self._table.offsets.items() if key not in gone}
        light = dict(self._table.lmq_offsets) if isinstance(self._table, LmqConsumerOffsets) else None
        for (topic, group, queue_id), offset in changes.items():
            key = f"{topic}@{group}"
            if light is not None and group.startswith(LMQ_PREFIX):
                light[key] = offset
            else:
                offsets.setdefault(key, {})[queue_id] = offset
        known = self._table.offsets
        ordered = {
            key: place_keys(offsets[key], known.get(key, {}), int, _QUEUES_TABLE)
            for key in place_keys(offsets, known, java_hash, _GROUPS_TABLE)
        }
        if isinstance(self._table, LmqConsumerOffsets):
            return replace(self._table, offsets=ordered, lmq_offsets=light or {}).build(self._form)
        return replace(self._table, offsets=ordered).build(self._form)


def group_of(path: str) -> str:
    """The group of a client's file: the name of its directory."""
    return os.path.basename(os.path.dirname(os.path.abspath(path)))


class ClientFile(OffsetFile):
    """``offsets.json`` of a broadcasting client, as far as it is about one broker.

    Args:
        broker_name: may be omitted if the file has only one broker.
        may_be_new: the file is to be made where it is missing; then the broker must be named.

    Raises:
        UnreadableStore: there is no such file.
        CorruptFile: it is not such a file.
        BadValue: the file knows several brokers, or none, and none was named.
    """

    def __init__(self, path: str, broker_name: str | None, *, may_be_new: bool = False) -> None:
        data = read_small(path)
        if data is None and not may_be_new:
            raise UnreadableStore(f"{path}: no such file")
        try:
            self._table = parse_broadcast(data) if data is not None else {}
        except FormatError as err:
            raise CorruptFile(path, err.at, err.reason) from err
        names = list(brokers(self._table))
        if may_be_new and broker_name is None and not names:
            raise BadValue(f"{path}: has no offsets yet: name this store's broker with --broker")
        if broker_name is None and len(names) > 1:
            raise BadValue(f"{path}: has offsets of {', '.join(names)}: name this store's broker with --broker")
        self._broker = broker_name or (names[0] if names else "")
        group = group_of(path)
        entries = [
            QueueOffset(queue.topic, group, queue.queue_id, offset)
            for queue, offset in self._table.items()
            if queue.broker_name == self._broker
        ]
        super().__init__(os.path.abspath(path), entries, data)
        self.group = group

    def tables(self) -> Iterator[OffsetTable]:
        """As those of a broker's file."""
        topics: dict[str, dict[int, int]] = {}
        for entry in self.entries:
            topics.setdefault(entry.topic, {})[entry.queue_id] = entry.offset
        return (OffsetTable(topic, self.group, queues) for topic, queues in topics.items())

    def build(self, changes: Mapping[Key, int]) -> bytes:
        new = {QueueName(topic, self._broker, number): offset for (topic, _group, number), offset in changes.items()}
        return build_broadcast({**self._table, **new})


def _form_of(layout: StoreLayout, data: bytes | None) -> Version:
    """The release whose form the file has: only 5.x writes a version into it."""
    if data:
        return V5_3 if b'"dataVersion"' in data else V4_9
    return release_of(layout).version


def place_keys(keys: Mapping[K, V], known: Mapping[K, object], hash_of: Callable[[K], int], slots: int) -> dict[K, V]:
    """``keys`` in the order of ``known``, with new ones where Java's map puts them."""
    order = JavaOrder((key for key in known if key in keys), hash_of, slots)
    for key in keys:
        if key not in known:
            order.add(key)
    return {key: keys[key] for key in order}
