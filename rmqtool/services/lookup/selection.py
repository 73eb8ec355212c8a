"""Selections of messages, the same for all commands."""

from fnmatch import fnmatchcase
from typing import NamedTuple

from formats.message.properties import KEYS, TAGS, UNIQ_KEY, parse, split_keys
from formats.message.read import Record
from rmqtool.store.index.reader import MAX_TIME

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

    def has_topic(self, topic: str) -> bool:
        """Whether a topic is selected."""
        return not self.topics or any(topic == glob or fnmatchcase(topic, glob) for glob in self.topics)

    def has_queue(self, queue_id: int) -> bool:
        """Whether a queue id is selected."""
        return not self.queue_ids or queue_id in self.queue_ids

    def has_queue_of(self, topic: str, queue_id: int) -> bool:
        """Whether a queue of a topic is."""
        return self.has_topic(topic) and self.has_queue(queue_id)

    def has(self, record: Record) -> bool:
        """Whether a record is selected; the caller checks its physical offset."""
        low, high = self.queue_offsets
        if not (
            self.since <= record.store_timestamp < self.until
            and self.has_queue(record.queue_id)
            and low <= record.queue_offset
            and (high is None or record.queue_offset < high)
            and (not self.topics or self.has_topic(record.topic.decode("utf-8", "replace")))
        ):
            return False
        if not self.tags and not self.keys:
            return True
        properties = parse(record.properties)
        if self.tags and properties.get(TAGS) not in self.tags:
            return False
        keys = {properties.get(UNIQ_KEY), *split_keys(properties.get(KEYS, ""))}
        return not self.keys or not keys.isdisjoint(self.keys)
