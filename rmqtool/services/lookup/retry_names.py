"""Names of retry topics: ``%RETRY%GROUP``, and of POP groups ``%RETRY%GROUP_TOPIC`` or ``%RETRY%GROUP+TOPIC``.

Names of groups and topics may contain underscores, so the second form is ambiguous: known groups, topics and offsets
decide.

Source: common.KeyBuilder (buildPopRetryTopicV1, buildPopRetryTopicV2, parseNormalTopic, parseGroup).
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from formats.topics import DLQ_PREFIX, RETRY_PREFIX
from rmqtool.services.lookup.configs import Warn, groups_of, known_offsets, topics_of
from rmqtool.store.layout.paths import StoreLayout


class RetryName(NamedTuple):
    """The meaning of a retry topic's name.

    Attributes:
        origin: the topic that a POP group's messages came from; None for the retry topic of all topics.
    """

    group: str
    origin: str | None


class RetryNames:
    """Parses the names of retry topics.

    Args:
        groups: names that the store knows.
        topics: names that the store knows.
        offsets: (topic, group) of each offset.
    """

    def __init__(self, groups: Collection[str], topics: Collection[str], offsets: Iterable[tuple[str, str]]) -> None:
        self._groups = {*groups}
        self._topics = set(topics)
        self._consumers: dict[str, set[str]] = {}  # topic to the groups that have an offset in it
        for topic, group in offsets:  # not copied as pairs, as there may be a million
            self._groups.add(group)
            self._consumers.setdefault(topic, set()).add(group)

    def of(self, topic: str) -> RetryName:
        """The group of a retry topic or of a dead-letter topic."""
        if topic.startswith(DLQ_PREFIX):
            return RetryName(topic.removeprefix(DLQ_PREFIX), None)
        name = topic.removeprefix(RETRY_PREFIX)
        if "+" in name:  # not allowed in group names
            group, origin = name.split("+", 1)
            return RetryName(group, origin)
        splits = [(name[:at], name[at + 1 :]) for at, letter in enumerate(name) if letter == "_" and at]
        for reader in sorted(self._consumers.get(topic, ())):
            if reader == name:
                return RetryName(name, None)
            if any(group == reader for group, _origin in splits):
                return RetryName(reader, name[len(reader) + 1 :])
        if name in self._groups:
            return RetryName(name, None)
        known = [(group, origin) for group, origin in splits if group in self._groups and origin in self._topics]
        consumed = [(group, origin) for group, origin in known if group in self._consumers.get(origin, ())]
        for group, origin in reversed(consumed or known):  # longest group name first
            return RetryName(group, origin)
        return RetryName(name, None)


def retry_names(layout: StoreLayout, warn: Warn) -> RetryNames:
    """The names known to one store's config files."""
    topics, groups = topics_of(layout, warn), groups_of(layout, warn)
    return RetryNames(
        set(groups.groups) if groups is not None else set(),
        set(topics.topics) if topics is not None else set(),
        ((table.topic, table.group) for table in known_offsets(layout, warn)),
    )
