"""The config files of the new store: readable ones, with consumer offsets that follow their messages."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from formats.config.files import ConsumerOffsets, DelayOffsets, LmqConsumerOffsets, kind_of, model_of
from formats.config.rocksdb import TABLES
from formats.errors import FormatError
from formats.fastjson.read import loads
from formats.fastjson.write import dumps
from formats.topics import SCHEDULE
from formats.versions import V4_9, V5_3
from rmqtool.errors import CorruptFile, MissingRuntime, RmqError, UnreadableStore
from rmqtool.store.config.files import config_database, read_config
from rmqtool.store.config.sources import choose
from rmqtool.store.config.topic_entries import ProvedQueues, add_topics, now_ms, raise_version
from rmqtool.store.disk.directories import exists, read_small
from rmqtool.store.disk.files import make_file
from rmqtool.store.disk.ownership import make_folders
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tier_signs import METADATA
from rmqtool.store.layout.version import queue_database_place
from rmqtool.store.recovery.deleted import DeletedTopics
from rmqtool.store.releases.rules import attributes_shown
from rmqtool.store.salvage.message_store import timer_checkpoint
from rmqtool.store.salvage.numbering import Key, Numbering, move_delays, move_offsets
from rmqtool.store.salvage.selection import TopicSelection
from rmqtool.store.salvage.tables_of_copies import TABLES as TABLES_OF_COPIES
from rmqtool.store.salvage.tables_of_copies import add_unknown
from rmqtool.store.tier.only_tiered import find_only_tiered

_NO_TOPICS = b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"topicConfigTable":{}}'  # of 5.x
_TOPICS, _LIGHT_OFFSETS, _DELAYS = "topics.json", "lmqConsumerOffset.json", "delayOffset.json"


class ConfigCopies:
    """Copies the files below ``config/``.

    Args:
        others: further copies of the store; topics and groups that only they know are added.
        target: directory of the new store.
        numbers: the numbering of every queue in it.
        moved: the first old queue offset that has changed, by queue.
        left_out, warnings: take what cannot be read.
        selection: the topics in the new store; all by default.
    """

    def __init__(
        self,
        layout: StoreLayout,
        others: Sequence[StoreLayout],
        target: str,
        numbers: Mapping[Key, Numbering],
        moved: dict[tuple[str, int], int],
        left_out: list[str],
        warnings: list[str],
        selection: TopicSelection | None = None,
    ) -> None:
        self._selection = selection
        self._layout, self._others, self._target = layout, others, target
        self._numbers, self._moved, self._left_out, self._warnings = numbers, moved, left_out, warnings
        self._older: set[str] = set()  # files of which only the .bak can be read

    def copy(self, *, in_tier: bool) -> list[str]:
        """Copy each file from a readable generation; returns their names.

        Args:
            in_tier: whether messages of a tier are in the new store.
        """
        copied: list[str] = []
        listed = self._layout.entries("config")
        for entry in listed:
            if not entry.is_file() and kind_of(entry.name) is not None:
                self._left_out.append(f"config/{entry.name}")
                self._warnings.append(f"{entry.path}: not a regular file: left out, or taken from its .bak")
        names = {
            # a .bak is only the previous generation of files known to brokers
            entry.name.removesuffix(".bak") if kind_of(entry.name.removesuffix(".bak")) is not None else entry.name
            for entry in listed
            if entry.is_file()
        }
        tables, shown = self._tables(), attributes_shown(self._layout)
        needed = {_TOPICS} if shown else set()  # without it, queues of these topics would have another form
        for name in sorted(names | needed | tables.keys() | (TABLES_OF_COPIES.keys() if self._others else set())):
            data = tables[name] if name in tables else self._readable(name) if name in names else None
            if self._others:
                data, added = add_unknown(name, data, self._others)
                if added:
                    self._warnings.append(f"config/{name}: only other copies have {', '.join(sorted(added))}: added")
            if data is None and name == _TOPICS and shown:
                data = self._with_new_topics(_NO_TOPICS)
            if data is None:
                continue
            if name == _TOPICS and (name in self._older or name in tables or self._layout.dledger_dirs()):
                data = self._with_new_topics(data)
            if name == METADATA:  # two brokers sharing a tier would delete each other's segments
                if not in_tier and self._has_only_tiered():
                    self._left_out.append(f"config/{name}")
                self._warnings.append(
                    f"config/{name} is left out: start a broker on the new store without tiered storage "
                    "(messageStorePlugIn), or with another tieredStoreFilePath"
                )
                continue
            if name in ("consumerOffset.json", _LIGHT_OFFSETS):
                data = self._moved_offsets(name, data)
            elif name == _DELAYS:
                data = self._moved_delays(data)
            if self._selection is not None:
                data = self._selection.narrow(name, data)
                if data is None:
                    continue
            path = os.path.join(self._target, "config", name)
            make_folders(os.path.dirname(path))
            with make_file(path) as file:
                file.write(0, data)
                file.sync()
            copied.append(name)
        return copied

    def _with_new_topics(self, data: bytes) -> bytes:
        """``topics.json`` with the topics that have messages and were created after this generation was written.

        A database may lack its newest topics, too, if its broker was killed, and so may a member of a DLedger group.
        """
        value, deleted = loads(data), DeletedTopics(self._layout)
        if not isinstance(value, dict):
            return data
        queues = [(topic.decode("utf-8", "surrogateescape"), queue_id) for topic, queue_id in self._numbers]
        counts = ProvedQueues.of(key for key in queues if key[0] not in deleted).counts
        offsets = choose(self._layout, "consumerOffset.json").value or {}
        levels, attributes = len(self._layout.conf.delay_levels), attributes_shown(self._layout)
        added = [topic for topic, _queues in add_topics(value, counts, counts.keys(), offsets, levels, attributes)]
        if not added:
            return data
        self._warnings.append(f"config/{_TOPICS} lacks topics that have messages: {', '.join(sorted(added))}: added")
        raise_version(_TOPICS, value, now_ms())
        return dumps(value, model_of(_TOPICS).DIALECT)

    def _has_only_tiered(self) -> bool:
        """Whether messages are in the tier alone; True if that cannot be told."""
        try:
            return bool(find_only_tiered(self._layout))
        except RmqError:
            return True

    def _tables(self) -> dict[str, bytes | None]:
        """Contents by file name of the tables that a broker keeps in RocksDB; None if a table cannot be read."""
        tables: dict[str, bytes | None] = {}
        for name in TABLES:
            try:
                if config_database(self._layout, name) is None:
                    continue
                tables[name] = None
                table = read_config(self._layout, name)
                tables[name] = table.build(V5_3) if table is not None else None
            except (CorruptFile, MissingRuntime, UnreadableStore) as err:
                tables[name] = None
                self._left_out.append(f"config/{name}")
                self._warnings.append(f"{err}: config/{name} is left out")
        if tables or queue_database_place(self._layout) is not None:
            self._warnings.append("the new store has its queues and tables in files: start a broker on it without "
                                 "storeType=defaultRocksDB")  # fmt: skip
        if (point := timer_checkpoint(self._layout, self._moved, self._left_out, self._warnings)) is not None:
            self._warnings.append("the new store has its timer in files: start a broker on it without "
                                 "timerRocksDBEnable")  # fmt: skip
            tables["timercheck"] = point
        if not self._layout.conf.writes_index_files and self._layout.conf.flag("messageIndexEnable", True):
            self._warnings.append("the new store has its index in files: start a broker on it without "
                                 "indexFileReadEnable=false and indexFileWriteEnable=false")  # fmt: skip
        return tables

    def _readable(self, name: str) -> bytes | None:
        """The contents of a config file; None, with a warning, if it is left out."""
        model = kind_of(name)
        if model is None:
            try:
                return read_small(self._layout.path("config", name))
            except RmqError as err:
                self._left_out.append(f"config/{name}")
                self._warnings.append(f"{err}: left out")
                return None
        for candidate in (name, name + ".bak"):
            try:
                data = read_small(self._layout.path("config", candidate))
                if data is not None:
                    model.parse(data)
                    if candidate != name:
                        if exists(self._layout.path("config", name)):
                            self._left_out.append(f"config/{name}")
                        self._warnings.append(f"config/{name} cannot be read: {candidate} is taken")
                        self._older.add(name)
                    return data
            except (FormatError, RmqError):
                continue
        if name.endswith(".tmp"):  # left by a write that was cut short: the file itself has what it was to replace
            return None
        self._left_out.append(f"config/{name}")
        self._warnings.append(f"config/{name} cannot be read and has no good .bak: left out")
        return None

    def _moved_delays(self, data: bytes) -> bytes:
        table = DelayOffsets.parse(data)
        moved = move_delays(table, self._numbers)
        if self._selection is not None:  # levels without a waiting message begin at 0 again
            kept = {level: at for level, at in moved.offsets.items() if (SCHEDULE.encode(), level - 1) in self._numbers}
            moved = replace(moved, offsets=kept)
        return data if moved is table else moved.build(V5_3 if b'"dataVersion"' in data else V4_9)

    def _moved_offsets(self, name: str, data: bytes) -> bytes:
        model = LmqConsumerOffsets if name == _LIGHT_OFFSETS else ConsumerOffsets
        table = model.parse(data)
        moved = move_offsets(table, self._numbers)
        return data if moved is table else moved.build(V5_3 if b'"dataVersion"' in data else V4_9)
