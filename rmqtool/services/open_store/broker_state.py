"""The tables that a broker keeps in ``config/``: topics, groups, consumer offsets, delay offsets.

Changes take effect in memory; :meth:`BrokerState.persist` writes them, always after the messages that they refer to. A
file is replaced as by a broker, the old one becoming ``.bak``, but one of the two is always intact.

Source: common.ConfigManager, broker.topic.TopicConfigManager (createTopicInSendMessageBackMethod),
broker.subscription.SubscriptionGroupManager, broker.offset.ConsumerOffsetManager (4.9.8); message-services 1.3, 7.2,
12.1.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar

from formats.config.file import ConfigFile
from formats.config.files import DelayOffsets, SubscriptionGroups, Topics
from formats.model.groups import SubscriptionGroup
from formats.model.topics import DataVersion, TopicConfig
from formats.primitives import java_hash
from rmqtool.errors import NoRoom, RmqError
from rmqtool.rules.releases import Release
from rmqtool.services.lookup.configs import Warn, load_config
from rmqtool.services.offsets.files import BrokerFile, Key
from rmqtool.services.offsets.java_order import JavaOrder
from rmqtool.services.open_store.store import Store
from rmqtool.store.append.appender import system_clock
from rmqtool.store.disk.durable import replace_file
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.releases.rules import batch_topics_of

T = TypeVar("T", bound=ConfigFile)
V = TypeVar("V")
TOPICS, GROUPS, DELAYS = "topics.json", "subscriptionGroup.json", "delayOffset.json"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_SLOTS = 2048  # of the broker's maps of topics and of groups (ConcurrentHashMap of 1024)


class TableFile(Generic[T]):
    """``topics.json`` or ``subscriptionGroup.json``; only changed entries are formatted again.

    Args:
        names: names of the entries in the file.
        attribute: attribute of the model with the table.
        member: the table's name in the file.
        release: the release whose format is written.
    """

    def __init__(self, names: Iterable[str], attribute: str, member: str, release: Release) -> None:
        self._order = JavaOrder(names, java_hash, _SLOTS)
        self._attribute, self._release = attribute, release
        self._mark = f'"{member}":{{}}'.encode()
        self._entries: dict[str, tuple[Any, bytes]] = {}  # the entry, and its text in the file

    def build(self, file: T) -> bytes:
        """The bytes that a broker would write."""
        table: dict[str, Any] = getattr(file, self._attribute)
        self._order.become(table)
        head, mark, tail = self._with(file, {}).partition(self._mark)
        if not table or not mark or self._mark in tail:
            return self._with(file, {name: table[name] for name in self._order})
        head, tail = head + mark[:-1], mark[-1:] + tail
        for name, config in table.items():
            if (known := self._entries.get(name)) is None or known[0] is not config:
                text = self._with(file, {name: config})[len(head) : -len(tail)]
                self._entries[name] = config, text.rstrip(b"\n\t")
        entries = self._entries
        parts = b",".join([entries[name][1] for name in self._order])
        if len(self._entries) > len(table):
            self._entries = {name: self._entries[name] for name in table}
        return b"".join((head, parts, b"\n\t", tail))

    def _with(self, file: T, table: dict[str, Any]) -> bytes:
        return replace(file, **{self._attribute: table}).build(self._release.version)


def setting(conf: BrokerConf, name: str, default: int) -> int:
    """An integer setting of the broker."""
    return conf.number(name, default)


class BrokerState:
    """The tables of one store that is open for writing.

    Attributes:
        changed_topics: names of created, changed or removed topics, in this order, with repetitions.
        at_once: write topics and groups when they change, as a broker does: without its topic an acknowledged message
            would not be found.

    Raises:
        CorruptFile: a file and its ``.bak`` are broken.
        Refused: consumer offsets are in RocksDB.
    """

    def __init__(self, store: Store, warn: Warn) -> None:
        self.store, self.layout, self.warn = store, store.layout, warn
        self.release = store.release
        self.clock = store.live.clock if store.writable else system_clock
        self.at_once = False
        self.changed_topics: list[str] = []
        self._broken: set[str] = set()
        self._dirty: dict[str, Callable[[], bytes]] = {}
        self._topics = self._load(TOPICS, Topics)
        self._groups = self._load(GROUPS, SubscriptionGroups)
        self._topics_file: TableFile[Topics] = TableFile(
            self._topics.topics, "topics", "topicConfigTable", self.release
        )
        self._groups_file: TableFile[SubscriptionGroups] = TableFile(
            self._groups.groups, "groups", "subscriptionGroupTable", self.release
        )
        # changed in place: with thousands of entries, each change must be cheap
        self._topics = replace(self._topics, topics=dict(self._topics.topics))
        self._groups = replace(self._groups, groups=dict(self._groups.groups))
        self._delays = self._load(DELAYS, DelayOffsets)
        self.delay_offsets: dict[int, int] = dict(self._delays.offsets)  # level → next queue offset
        self._offsets_path, self._offsets = self._load_offsets()
        self._consumed: tuple[int, dict[str, set[str]]] = (-1, {})  # number of offsets, and each group's topics
        self._changed: dict[Key, int] = {}
        self._removed: set[tuple[str, str]] = set()  # (topic, group) whose offsets go

    def _load_offsets(self) -> tuple[str, dict[Key, int]]:
        file = BrokerFile(self.layout, self.warn)
        return file.path, file.offsets

    def _load(self, name: str, kind: type[T]) -> T:
        problems: list[str] = []
        config = load_config(self.layout, name, problems.append)
        for text in problems:
            self._broken.add(name)
            self.warn(text)
        return config if isinstance(config, kind) else kind()

    # -- topics and groups --------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicConfig | None:
        """A topic's configuration."""
        return self._topics.topics.get(name)

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """All topics by name."""
        return self._topics.topics

    @property
    def topics_version(self) -> DataVersion:
        """When the topics were last changed."""
        return self._topics.data_version

    def ensure_topic(self, name: str, queues: int = 1, *, later: bool = False) -> TopicConfig:
        """A topic's configuration, created if missing: readable, writable, with this many queues.

        Args:
            later: only write it with the next :meth:`persist`, as no message needs it yet.
        """
        config = self.topic(name)
        if config is None:
            config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
            self.set_topic(config, later=later)
        elif not later and TOPICS in self._dirty:  # it may not be written yet, and now gets a message
            self._save(TOPICS, later)
        return config

    def set_topic(self, config: TopicConfig, *, later: bool = False) -> None:
        """Create or change a topic."""
        self._set_topics({config.topic_name or "": config}, later=later)

    def set_topics(self, configs: Iterable[TopicConfig]) -> None:
        """Create or change topics, all or none; the file is written once."""
        self._set_topics({config.topic_name or "": config for config in configs})

    def suppose_topic(self, config: TopicConfig) -> None:
        """Enter a topic that every broker has; it is written with the next change."""
        _table(self._topics.topics).setdefault(config.topic_name or "", config)

    def remove_topic(self, name: str) -> None:
        """Forget a topic; its messages stay until they expire."""
        if name in self._topics.topics:
            self._set_topics({name: None})

    def _set_topics(self, changes: Mapping[str, TopicConfig | None], *, later: bool = False) -> None:
        before, known = self._topics, {name: self._topics.topics.get(name) for name in changes}
        version = before.data_version
        for name, config in changes.items():
            _put(self._topics.topics, name, config)
            version = self._next(version)
            if self.store.writable and config is not None:  # the queues of a removed topic keep their type
                self.store.live.batch_topics |= batch_topics_of({name: config})
        self._topics = replace(before, data_version=version)
        self._dirty[TOPICS] = self._build_topics
        try:
            self._save(TOPICS, later)
        except BaseException:
            for name, config in known.items():  # topics that could not be written must not take messages
                _put(self._topics.topics, name, config)
            self._topics = before
            raise
        self.changed_topics += changes

    def _build_topics(self) -> bytes:
        return self._topics_file.build(self._topics)

    @property
    def groups(self) -> Mapping[str, SubscriptionGroup]:
        """All configured groups by name."""
        return self._groups.groups

    def groups_file(self) -> bytes:
        """``subscriptionGroup.json`` as it is now."""
        return self._groups_file.build(self._groups)

    def delays_file(self) -> bytes:
        """``delayOffset.json`` as it is now."""
        return self._build_delays()

    def ensure_group(self, name: str) -> SubscriptionGroup | None:
        """A group's configuration, created if missing and automatic creation is on; else None.

        A new group is written with the next :meth:`persist`: after a kill its members create it again, and with
        thousands of groups, writing the file for each would be slow.
        """
        config = self._groups.groups.get(name)
        allowed = self.layout.conf.flag("autoCreateSubscriptionGroup", True) or name.startswith(SYSTEM_GROUP_PREFIX)
        if config is None and allowed:
            config = SubscriptionGroup(group_name=name)
            self.set_group(config, later=True)
        return config

    def save_groups(self) -> None:
        """Write groups created meanwhile: checkpoints of an unknown group would be dropped.

        Raises:
            OSError: the file cannot be written.
        """
        if GROUPS in self._dirty:
            self._replace(GROUPS)

    def set_group(self, config: SubscriptionGroup, *, later: bool = False) -> None:
        """Create or change a group."""
        self._set_group(config.group_name or "", config, later=later)

    def remove_group(self, name: str, *, offsets: bool = False) -> None:
        """Remove a group, and optionally its offsets."""
        if name in self._groups.groups:
            self._set_group(name, None)
        if offsets:
            for key in [key for key in self._offsets if key[1] == name]:
                del self._offsets[key]
                self._changed.pop(key, None)
                self._removed.add(key[:2])
            self._consumed = (-1, {})

    def _set_group(self, name: str, config: SubscriptionGroup | None, *, later: bool = False) -> None:
        before, known = self._groups, self._groups.groups.get(name)
        _put(self._groups.groups, name, config)
        self._groups = replace(before, data_version=self._next(before.data_version))
        self._dirty[GROUPS] = self.groups_file
        try:
            self._save(GROUPS, later)
        except BaseException:
            _put(self._groups.groups, name, known)
            self._groups = before
            raise

    def _save(self, name: str, later: bool) -> None:
        """Write a table that refers to no messages, if ``at_once``."""
        if self.at_once and not later:
            self._replace(name)

    def _next(self, version: DataVersion) -> DataVersion:
        return replace(version, counter=version.counter + 1, timestamp=self.clock())

    # -- offsets ------------------------------------------------------------------------------------------------------

    def set_delay_offset(self, level: int, offset: int) -> None:
        """Set the next offset of a level."""
        if self.delay_offsets.get(level) != offset:
            self.delay_offsets[level] = offset
            self._dirty[DELAYS] = self._build_delays

    def _build_delays(self) -> bytes:
        ordered = dict(sorted(self.delay_offsets.items()))
        return replace(self._delays, offsets=ordered).build(self.release.version)

    def offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Next offset of a group in a queue, or None."""
        return self._offsets.get((topic, group, queue_id))

    @property
    def offsets(self) -> Mapping[Key, int]:
        """Next offset by topic, group and queue id."""
        return self._offsets

    def topics_of(self, group: str) -> Set[str]:
        """Topics in which a group has offsets."""
        if self._consumed[0] != len(self._offsets):  # removals forget it; otherwise offsets are only added
            topics: dict[str, set[str]] = defaultdict(set)
            for topic, name, _queue in self._offsets:
                topics[name].add(topic)
            self._consumed = len(self._offsets), topics
        return self._consumed[1].get(group, frozenset())

    def set_offset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set the next offset of a group in a queue."""
        key = (topic, group, queue_id)
        if self._offsets.get(key) != offset:
            self._offsets[key] = self._changed[key] = offset

    # -- files --------------------------------------------------------------------------------------------------------

    def load(self, name: str, kind: type[T]) -> T:
        """Read another file of ``config/``; an empty one if it is missing.

        Raises:
            CorruptFile: it and its ``.bak`` are broken.
        """
        return self._load(name, kind)

    def keep(self, name: str, build: Callable[[], bytes], *, now: bool = False) -> None:
        """Write another file of ``config/`` with the next :meth:`persist`.

        Args:
            build: gives its bytes when it is written.
            now: write it at once.
        """
        self._dirty[name] = build
        if now:
            self._replace(name)

    def persist(self) -> bool:
        """Make the messages durable, then write changed tables; returns whether there were any.

        Raises:
            OSError: not everything could be written; the rest is retried next time.
        """
        if not (self._dirty or self._changed or self._removed):
            return False
        with suppress(NoRoom):  # the log is durable; a dispatch or the next start completes its queues
            self.store.flush()
        self._write()
        return True

    def persist_what_is_stored(self) -> None:
        """As :meth:`persist`, as far as possible, after an error, which may be one of the disk.

        Offsets refer to messages in the log; the next start completes the queues.
        """
        try:
            self.persist()
            return
        except (OSError, RmqError):
            pass
        try:
            self.store.live.sync_log()
            self._write()
        except (OSError, RmqError) as err:
            self.warn(f"{self.layout.path('config')}: offsets could not be written: what was delivered since they were "
                      f"written last comes once more: {err}")  # fmt: skip

    def _write(self) -> None:
        for name in list(self._dirty):
            self._replace(name)
        if self._changed or self._removed:
            file = BrokerFile(self.layout, lambda _text: None)
            data = file.build(self._changed, without=self._removed)
            replace_file(self._offsets_path, data, keep=file.previous is not None)
            self._changed.clear()
            self._removed.clear()

    def _replace(self, name: str) -> None:
        replace_file(self.layout.path("config", name), self._dirty[name](), keep=name not in self._broken)
        self._broken.discard(name)
        del self._dirty[name]


def _table(table: Mapping[str, V]) -> dict[str, V]:
    """A table that is changed in place."""
    return table if isinstance(table, dict) else dict(table)


def _put(table: Mapping[str, V], name: str, value: V | None) -> None:
    """Set an entry, or remove it."""
    if value is None:
        _table(table).pop(name, None)
    else:
        _table(table)[name] = value
