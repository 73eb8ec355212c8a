"""Topics that were deleted: the log has messages of them still, and neither settings nor queues are there."""

from contextlib import suppress
from functools import cached_property

from formats.config.files import Topics
from formats.message.read import SCHEDULE_TOPIC
from formats.topics import LMQ_PREFIX, SYSTEM_PREFIX
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.store.config.files import config_place, read_config
from rmqtool.store.config.sources import FILE, choose
from rmqtool.store.layout.paths import BATCH_QUEUES, StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord

_DELAY_TOPIC = SCHEDULE_TOPIC.decode()


class DeletedTopics:
    """Tells which topics were deleted.

    ``topics.json`` is in order and does not name the topic, it has no queues, and all its messages are older than
    ``topics.json``: one with a newer message is one that a killed process had just made. That a light queue or one of
    the broker's own topics is not named there tells nothing.
    """

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout
        self._gone: dict[str, bool] = {}

    def __contains__(self, topic: str) -> bool:
        return self.is_gone(topic) and topic.encode("utf-8", "surrogateescape") not in self._newer

    def is_gone(self, topic: str) -> bool:
        """Whether there are neither settings nor queues, however new its messages are."""
        if topic not in self._gone:
            self._gone[topic] = self._is_gone(topic)
        return self._gone[topic]

    def _is_gone(self, topic: str) -> bool:
        layout = self._layout
        if topic == _DELAY_TOPIC or topic.lower().startswith(SYSTEM_PREFIX) or topic.startswith(LMQ_PREFIX):
            return False
        if layout.queues_of(topic) or layout.queues_of(topic, BATCH_QUEUES):
            return False
        named, _changed = self._table
        return bool(named) and topic not in named

    @property
    def changed(self) -> int:
        """When ``topics.json`` was changed for the last time, ms."""
        return self._table[1]

    @cached_property
    def _table(self) -> tuple[set[str], int]:
        if config_place(self._layout, "topics.json") is not None:
            return self._table_of_database()
        source = choose(self._layout, "topics.json")
        value = source.value if source.kind == FILE and isinstance(source.value, dict) else {}
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
    def _newer(self) -> set[bytes]:
        """Topics of messages that were stored after ``topics.json`` was changed for the last time."""
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
