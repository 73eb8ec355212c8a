"""Deleted topics: the log still has messages of them, but they have neither settings nor queues."""

from contextlib import suppress
from functools import cached_property

from formats.config.files import Topics
from formats.message.read import SCHEDULE_TOPIC
from formats.topics import LMQ_PREFIX, SYSTEM_PREFIX
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.store.config.files import config_place, read_config
from rmqtool.store.config.sources import BAK, FILE, TMP, choose
from rmqtool.store.layout.paths import BATCH_QUEUES, StoreLayout
from rmqtool.store.layout.version import queue_database_place
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.rocks_open import rocks_queues_of

_DELAY_TOPIC = SCHEDULE_TOPIC.decode()


class DeletedTopics:
    """Determines which topics were deleted.

    A topic was deleted if ``topics.json`` does not contain it, it has no queues, and all its messages are older than
    ``topics.json``; with a newer message, it had just been created by a process that was killed. If ``topics.json`` is
    broken, the intact older one that a broker reads instead is decisive. Light queues and the broker's own topics need
    not be in that file. A database of queues that a killed broker left proves nothing of the messages that it lacks.

    A member of a DLedger group may have neither settings nor queues of a topic that is there: it gets settings from its
    leader each 10 s, may have changed its own since it leads itself, and its start may cut queues.
    """

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout
        self._gone: dict[str, bool] = {}

    def __contains__(self, topic: str) -> bool:
        return self.is_gone(topic) and topic.encode("utf-8", "surrogateescape") not in self._newer

    def is_gone(self, topic: str) -> bool:
        """Whether a topic has neither settings nor queues, however new its messages are."""
        if topic not in self._gone:
            self._gone[topic] = self._is_gone(topic)
        return self._gone[topic]

    def _is_gone(self, topic: str) -> bool:
        layout = self._layout
        if layout.dledger_dirs():
            return False
        if topic == _DELAY_TOPIC or topic.lower().startswith(SYSTEM_PREFIX) or topic.startswith(LMQ_PREFIX):
            return False
        if layout.queues_of(topic) or layout.queues_of(topic, BATCH_QUEUES):
            return False
        if topic in self._in_database:
            return False
        named, _changed = self._table
        return bool(named) and topic not in named

    @property
    def changed(self) -> int:
        """Time of the last change of ``topics.json``, ms."""
        return self._table[1]

    @cached_property
    def _table(self) -> tuple[set[str], int]:
        if config_place(self._layout, "topics.json") is not None:
            return self._table_of_database()
        source = choose(self._layout, "topics.json")
        usable = source.kind in (FILE, BAK, TMP) and isinstance(source.value, dict)
        value = source.value if usable else {}
        version = value.get("dataVersion")
        changed = version.get("timestamp") if isinstance(version, dict) else None
        return set(value.get("topicConfigTable") or ()), changed if isinstance(changed, int) else 0

    def _table_of_database(self) -> tuple[set[str], int]:
        with suppress(CorruptFile, MissingRuntime, UnreadableStore):
            table = read_config(self._layout, "topics.json")
            if isinstance(table, Topics):
                return set(table.topics), table.data_version.timestamp or 0
        return set(), 0

    @cached_property
    def _in_database(self) -> set[str]:
        """Topics that a database has queues of, or will have after the next start; none if queues are in files, too."""
        if queue_database_place(self._layout) is None:
            return set()
        with suppress(CorruptFile, MissingRuntime, UnreadableStore):
            return {queue.topic for queue in rocks_queues_of(self._layout)}
        return set()

    @cached_property
    def _newer(self) -> set[bytes]:
        """Topics of the messages stored after the last change of ``topics.json``."""
        log, start = CommitLog(self._layout), None
        for file in log.segments:
            first = log.read(file.base, crc=False)
            if first is not None and first.record.store_timestamp <= self.changed:
                start = file.base
        return {
            item.record.topic
            for item in log.walk(start, crc=False)
            if isinstance(item, LocatedRecord) and item.record.store_timestamp > self.changed
        }
