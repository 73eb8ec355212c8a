"""Selection of messages."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Any

from formats.message.properties import KEYS, TAGS, parse, split_keys
from formats.message.read import Record
from rmqtool.analytics.ranges.splits import TieredPart


@dataclass(frozen=True)
class MessageChoice:
    """Selects messages. Times are store times in ms since the epoch; ``until`` and every ``stop`` are exclusive.

    Attributes:
        topics: exact names, or patterns with ``*``, ``?`` and ``[...]``; empty for all.
        start, stop: physical offsets.
        queues: queue ids; empty for all.
        queue_start, queue_stop: queue offsets.
        tags: values of the property TAGS; empty for all.
        keys: keys of which a message must have at least one; empty for all.
    """

    topics: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    start: int | None = None
    stop: int | None = None
    queues: tuple[int, ...] = ()
    queue_start: int | None = None
    queue_stop: int | None = None
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def of_tier(self, tier: TieredPart | None) -> "MessageChoice":
        """The part of it that applies to a split: a range of the log says nothing of positions in tiered storage.

        Args:
            tier: of the split; None for one of the log.
        """
        return self if tier is None else replace(self, start=None, stop=None)

    def in_range(self, physical_offset: int) -> bool:
        """Return whether a physical offset is selected."""
        return _within(physical_offset, self.start, self.stop)

    def has(self, record: Record, physical_offset: int) -> bool:
        """Return whether a message is selected."""
        return (
            _within(record.store_timestamp, self.since, self.until)
            and self.in_range(physical_offset)
            and (not self.queues or record.queue_id in self.queues)
            and _within(record.queue_offset, self.queue_start, self.queue_stop)
            and (not self.topics or self.has_topic(record.topic))
            and (not (self.tags or self.keys) or self._has_text(parse(record.properties)))
        )

    def _has_text(self, properties: dict[str, str]) -> bool:
        return (not self.tags or properties.get(TAGS) in self.tags) and (
            not self.keys or any(key in self.keys for key in split_keys(properties.get(KEYS, "")))
        )

    @cached_property
    def has_topic(self) -> Callable[[bytes], bool]:
        """Return whether a stored topic is one of :attr:`topics`."""
        names = frozenset(self.topics)
        patterns = [re.compile(translate(name)) for name in names if any(c in name for c in "*?[")]

        @lru_cache(4096)
        def has(topic: bytes) -> bool:
            text = topic.decode("utf-8", "replace")
            return text in names or any(pattern.match(text) for pattern in patterns)

        return has

    def __getstate__(self) -> dict[str, Any]:
        # cached functions cannot be pickled
        return {name: value for name, value in self.__dict__.items() if name != "has_topic"}


def _within(value: int, start: int | None, stop: int | None) -> bool:
    return (start is None or value >= start) and (stop is None or value < stop)
