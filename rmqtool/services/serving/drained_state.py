"""The tables of a store that is served read-only: changes stay in memory, except for consumer offsets.

Offsets go to a separate file, in the format of ``group offsets --output csv``, which ``group reset --from-csv`` reads.
A different store may later be served under the same name; the fingerprint of the message before each offset detects
that.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from formats.config.files import OffsetTable, SubscriptionGroups, Topics
from formats.message.fingerprint import fingerprint
from formats.message.read import Record, read
from formats.model.topics import TopicConfig
from formats.versions import V5_3
from rmqtool.errors import Refused
from rmqtool.services.consumers.offset_plan import LAST, PlanRow, read_rows
from rmqtool.services.lookup.configs import FILES, Warn, known_offsets, look_at_config
from rmqtool.services.offsets.files import Key
from rmqtool.services.open_store.broker_state import GROUPS, TOPICS, BrokerState, T
from rmqtool.services.open_store.following import stamp_of
from rmqtool.services.open_store.opened import read_store
from rmqtool.services.open_store.reading import Reading
from rmqtool.services.open_store.store import Store
from rmqtool.services.open_store.union import UnionStore
from rmqtool.store.disk.directories import read_small
from rmqtool.store.disk.durable import replace_file
from rmqtool.store.disk.ownership import find_closed
from rmqtool.store.salvage.tables_of_copies import add_unknown

_COLUMNS = ("group", "topic", "queueId", "consumerOffset", LAST)
_V = TypeVar("_V")


class DrainedState(BrokerState):
    """As :class:`BrokerState`, for a store that is only read; unreadable config files are reported and ignored.

    Args:
        offsets_path: the file of offsets, which override those of the store.

    Raises:
        CorruptFile: ``offsets_path`` is not such a file.
        Refused: it has the offsets of another store.
    """

    def __init__(self, store: Store, warn: Warn, offsets_path: str) -> None:
        self._own_path = offsets_path
        super().__init__(store, warn)

    def _load(self, name: str, kind: type[T]) -> T:
        config = look_at_config(self.layout, name, self.warn)
        return config if isinstance(config, kind) else kind()

    def _load_offsets(self) -> tuple[str, dict[Key, int]]:
        offsets = _by_queue(known_offsets(self.layout, self.warn))
        self._kept: dict[Key, int] = {}
        self._last: dict[Key, int | None] = {}
        if read_small(self._own_path) is not None:
            reading = read_store(self.store)
            for row in read_rows(self._own_path):
                self._kept[row.key], self._last[row.key] = row.offset, row.last
                if row.last is not None:
                    self._prove(reading, row)
        return self._own_path, offsets | self._kept

    def _prove(self, reading: Reading, row: PlanRow) -> None:
        """Check that an offset belongs to this store, if the file has a fingerprint.

        Raises:
            Refused: it does not.
        """
        topic, group, queue_id = row.key
        fingerprint = _fingerprint(reading, topic, queue_id, row.offset - 1)
        if fingerprint == row.last:
            return
        end = reading.max_offset(topic, queue_id)
        if fingerprint is not None or (reading.queue(topic, queue_id) is not None and end < row.offset):
            other = f"ends at {end}" if fingerprint is None else "has another message before that now"
            raise Refused(
                f"{self._own_path}: says that {group} is at {row.offset} of {topic} queue {queue_id}, which {other}: "
                "these are offsets of another store. Name another file with --offsets, or remove this one, and groups "
                "begin where this store says"
            )

    def persist(self) -> bool:
        """Write the offsets that groups have committed here; returns whether there were new ones."""
        self._dirty.clear()
        if not (self._changed or self._removed):
            return False
        reading = read_store(self.store)
        for key, offset in self._changed.items():
            self._last[key] = _fingerprint(reading, key[0], key[2], offset - 1)
        self._kept |= self._changed
        for key in [key for key in self._kept if key[:2] in self._removed and key not in self._changed]:
            del self._kept[key]
        text = io.StringIO(newline="")
        table = csv.writer(text, lineterminator="\n")
        table.writerow(_COLUMNS)
        for key, offset in sorted(self._kept.items()):
            topic, group, queue = key
            table.writerow((group, topic, queue, offset, self._last.get(key)))
        closed = find_closed(self.layout.root)
        replace_file(self._offsets_path, text.getvalue().encode(), keep=False, closed=closed)
        self._changed.clear()
        self._removed.clear()
        return True


class UnionState(DrainedState):
    """As :class:`DrainedState`, for several copies: what the first one does not know is taken from the others."""

    def __init__(self, store: UnionStore, warn: Warn, offsets_path: str) -> None:
        self._others = store.union.layouts[1:]
        super().__init__(store, warn, offsets_path)

    def _load(self, name: str, kind: type[T]) -> T:
        first = super()._load(name, kind)
        data, added = add_unknown(name, first.build(V5_3), self._others)
        if not added or data is None:
            return first
        self.warn(f"config/{name}: only other copies have {', '.join(sorted(added))}: added")
        merged = kind.parse(data)
        return merged if isinstance(merged, kind) else first

    def _load_offsets(self) -> tuple[str, dict[Key, int]]:
        path, offsets = super()._load_offsets()
        for layout in reversed(self._others):
            offsets = _by_queue(known_offsets(layout, self.warn)) | offsets
        return path, offsets


class FollowedState(DrainedState):
    """As :class:`DrainedState`, for a store that a broker is writing: :meth:`look` adopts the broker's changes.

    Topics, groups and offsets that exist only here are kept.
    """

    def __init__(self, store: Store, warn: Warn, offsets_path: str) -> None:
        self._stamps = {name: stamp_of(store.layout.path("config", name)) for name in (TOPICS, GROUPS, *FILES)}
        super().__init__(store, warn, offsets_path)
        self._read = set(self.topics), set(self.groups)

    def look(self) -> bool:
        """Reload changed files; returns whether topics have changed."""
        changed = {name for name in self._stamps if self._has_changed(name)}
        known_topics, known_groups = self._read
        if TOPICS in changed and (topics := self._again(TOPICS, Topics)) is not None:
            merged: dict[str, TopicConfig] = _merge(self.topics, known_topics, topics.topics)
            self._read = set(topics.topics), self._read[1]
            self._topics = replace(topics, topics=merged)
        if GROUPS in changed and (groups := self._again(GROUPS, SubscriptionGroups)) is not None:
            self._read = self._read[0], set(groups.groups)
            self._groups = replace(groups, groups=_merge(self.groups, known_groups, groups.groups))
        if changed.intersection(FILES):
            for key, offset in _by_queue(known_offsets(self.layout, lambda _text: None)).items():
                if key not in self._kept and key not in self._changed:
                    self._offsets[key] = offset
        return TOPICS in changed

    def _has_changed(self, name: str) -> bool:
        before, self._stamps[name] = self._stamps[name], stamp_of(self.layout.path("config", name))
        return before != self._stamps[name]

    def _again(self, name: str, kind: type[T]) -> T | None:
        """Reload a file; None if it is just being replaced, and will be read next time."""
        config = look_at_config(self.layout, name, lambda _text: None)
        if isinstance(config, kind):
            return config
        self._stamps[name] = ()
        return None


def _by_queue(tables: Iterable[OffsetTable]) -> dict[Key, int]:
    return {(topic, group, queue): offset for topic, group, queues in tables for queue, offset in queues.items()}


def _fingerprint(reading: Reading, topic: str, queue_id: int, offset: int) -> int | None:
    """The fingerprint of the message at a queue offset, or None."""
    if offset < 0 or offset >= reading.max_offset(topic, queue_id):
        return None
    messages = reading.pull(topic, queue_id, offset, 1).messages
    record = read(messages[0], 0, len(messages[0])) if messages else None
    return fingerprint(record) if isinstance(record, Record) else None


def _merge(ours: Mapping[str, _V], read: set[str], current: Mapping[str, _V]) -> dict[str, _V]:
    return {**{name: each for name, each in ours.items() if name not in read}, **current}
