"""A protocol for each subject. Unknown values are None; a warning names what is missing.

Implementations take ``warn``, which is called with each reason why an answer is incomplete.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from rmqtool.contract import PlainRows
from rmqtool.services.consumers.groups import GroupInfo, GroupLag
from rmqtool.services.consumers.watch import Place
from rmqtool.services.lookup.offsets import OffsetRow, StoredOffset
from rmqtool.services.lookup.query import Search
from rmqtool.services.lookup.stored import LogMessage
from rmqtool.services.lookup.topics import QueueInfo, TopicDetails, TopicRow, UnusedTopic


class TopicSubject(Protocol):
    """Topics and their queues."""

    @property
    def queue_row(self) -> type[QueueInfo]:
        """The class of the rows of :meth:`details`."""

    def summaries(self) -> Iterable[TopicRow]:
        """Every topic, sorted."""

    def details(self, topic: str) -> TopicDetails | None:
        """One topic with its queues; None if there is no such topic."""

    def find_unused(self) -> Iterable[UnusedTopic]:
        """Topics that could be deleted, sorted."""


class GroupSubject(Protocol):
    """Consumer groups and their offsets."""

    @property
    def lag_row(self) -> type[GroupLag]:
        """The class of the rows of :meth:`lag`."""

    @property
    def stored_row(self) -> type[StoredOffset]:
        """The class of the rows of :meth:`stored`."""

    @property
    def offset_row(self) -> type[OffsetRow]:
        """The class of the rows of :meth:`positions`."""

    @property
    def clusters(self) -> Mapping[str, str]:
        """The cluster of each broker whose lag was asked for, by name; a store's own broker is ``""``."""

    def holds_messages(self, queue_ids: Collection[int] = ()) -> bool:
        """Whether it is known that POP consumers hold messages, of all queues or those with an id."""

    def infos(self) -> Iterable[GroupInfo]:
        """Every group that has a configuration or an offset, sorted."""

    def lag(self) -> Iterable[GroupLag]:
        """Every queue of every group, sorted by group, topic and queue."""

    def lag_rows(self) -> Iterable[PlainRows]:
        """As :meth:`lag`, by the thousand, with their values in the order of the fields of `GroupLag`."""

    def oldest(self, rows: Sequence[GroupLag]) -> Mapping[Place, int]:
        """The store time (ms) of the oldest unread message of each row, as far as it is known."""

    def offsets(self) -> Iterable[StoredOffset | PlainRows]:
        """Offsets as they are stored, sorted by group, topic and queue."""

    def positions(self) -> Iterable[OffsetRow | PlainRows]:
        """Offsets with the ranges of their queues, sorted by group, topic and queue."""


class MessageSubject(Protocol):
    """Single messages."""

    def by_key(self, topic: str, key: str, search: Search) -> Sequence[LogMessage]:
        """Messages of a topic with a key, oldest first."""

    def by_id(self, message_id: str, topics: Sequence[str], search: Search) -> Sequence[LogMessage]:
        """Messages with an offset id or a unique id."""
