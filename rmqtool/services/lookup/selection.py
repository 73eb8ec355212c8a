"""Selections of messages, the same for all commands."""

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from formats.message.properties import KEYS, TAGS, UNIQ_KEY, parse, split_keys
from formats.message.read import Record
from rmqtool.store.index.reader import MAX_TIME

if TYPE_CHECKING:
    from rmqtool.services.lookup.where import FieldCondition

Range = tuple[int, int | None]
ALL: Range = (0, None)


class Selection(NamedTuple):
    """Conditions that must all hold; an empty tuple is always true. Ranges exclude their end."""

    topics: tuple[str, ...] = ()  # globs
    queue_ids: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()  # application keys or unique ids
    physical: Range = ALL
    queue_offsets: Range = ALL
    since: int = -MAX_TIME  # store time, ms
    until: int = MAX_TIME
    properties: tuple[tuple[str, str], ...] = ()  # name and value; each must be there
    where: "FieldCondition | None" = None

    def has_topic(self, topic: str) -> bool:
        """Whether a topic is selected."""
        return not self.topics or any(topic == glob or fnmatchcase(topic, glob) for glob in self.topics)

    def has_queue(self, queue_id: int) -> bool:
        """Whether a queue id is selected."""
        return not self.queue_ids or queue_id in self.queue_ids

    def has_queue_of(self, topic: str, queue_id: int) -> bool:
        """Whether a queue of a topic is."""
        return self.has_topic(topic) and self.has_queue(queue_id)

    def has(self, record: Record, physical_offset: int) -> bool:
        """Whether a record is selected.

        Args:
            physical_offset: its actual position; the caller checks that this is in the range.
        """
        low, high = self.queue_offsets
        if not (
            self.since <= record.store_timestamp < self.until
            and self.has_queue(record.queue_id)
            and low <= record.queue_offset
            and (high is None or record.queue_offset < high)
            and (not self.topics or self.has_topic(record.topic.decode("utf-8", "replace")))
        ):
            return False
        if self.tags or self.keys or self.properties:
            properties = parse(record.properties)
            if self.tags and properties.get(TAGS) not in self.tags:
                return False
            keys = {properties.get(UNIQ_KEY), *split_keys(properties.get(KEYS, ""))}
            if self.keys and keys.isdisjoint(self.keys):
                return False
            if any(properties.get(name) != value for name, value in self.properties):
                return False
        if self.where is None:
            return True
        from rmqtool.services.lookup.where import RecordFields  # look-ups by id have no use for it

        return self.where.has(RecordFields(record, physical_offset, self.where.read_body))
