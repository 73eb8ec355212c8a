"""The subjects of a store directory, implemented by classes of the services."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property

from formats.config.files import OffsetTable
from rmqtool.contract import PlainRows
from rmqtool.errors import UnreadableStore
from rmqtool.services.consumers.groups import ConsumerGroups, GroupInfo, GroupLag, oldest_unread
from rmqtool.services.consumers.watch import Place, place_of
from rmqtool.services.lookup.configs import FILES, Warn, group_offsets, sort_tables
from rmqtool.services.lookup.offsets import OffsetRow, StoredOffset, consumer_offsets
from rmqtool.services.lookup.queue_messages import TopicQueues
from rmqtool.services.offsets.files import ClientFile
from rmqtool.store.config.files import read_config
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog


class StoreGroups:
    """The groups of a store.

    Args:
        wanted: selects offsets by group and topic.
        client: offsets of a broadcasting client, instead of the broker's.
        bak: read the broker's previous file.
    """

    lag_row, stored_row, offset_row = GroupLag, StoredOffset, OffsetRow

    def __init__(
        self,
        layout: StoreLayout,
        warn: Warn,
        wanted: Callable[[str, str], bool] = lambda _group, _topic: True,
        *,
        client: ClientFile | None = None,
        bak: bool = False,
    ) -> None:
        self._layout, self._warn, self._wanted, self._client, self._bak = layout, warn, wanted, client, bak

    @property
    def clusters(self) -> dict[str, str]:
        """The cluster that the broker's settings name, by ``""``."""
        return {"": self._layout.conf.text("brokerClusterName") or ""}

    @cached_property
    def _consumers(self) -> ConsumerGroups:
        log, client = CommitLog(self._layout), self._client
        if client is None:
            return ConsumerGroups(log, self._warn, wanted=self._wanted)
        return ConsumerGroups(log, self._warn, client.tables(), wanted=self._wanted, pop=False)

    def holds_messages(self, queue_ids: Collection[int] = ()) -> bool:
        """Whether POP consumers hold messages, of all queues or those with an id."""
        return any(
            self._wanted(group, topic) and (not queue_ids or queue_id in queue_ids)
            for topic, group, queue_id in self._consumers.held_queues()
        )

    def infos(self) -> Iterator[GroupInfo]:
        """Every group that has a configuration or an offset, sorted."""
        return self._consumers.infos()

    def lag(self) -> Iterator[GroupLag]:
        """Every queue of every group, sorted by group, topic and queue."""
        return self._consumers.lag()

    def lag_rows(self) -> Iterator[PlainRows]:
        """As :meth:`lag`, by the thousand."""
        return self._consumers.lag_rows()

    def oldest(self, rows: Sequence[GroupLag]) -> dict[Place, int]:
        """The store time (ms) of the oldest unread message of each row whose message is there."""
        log, queues = CommitLog(self._layout), TopicQueues(self._layout)
        times = ((place_of(row), oldest_unread(log, queues, row)) for row in rows)
        return {place: time for place, time in times if time is not None}

    def offsets(self) -> Iterator[PlainRows]:
        """Offsets as they are stored, `StoredOffset` rows, sorted by group, topic and queue.

        Raises:
            UnreadableStore: the store has no offsets file.
        """
        if self._client is None and not self._has_offsets():
            raise UnreadableStore(f"{self._layout.path('config', FILES[0])}: no such file")
        for table in sort_tables(self._tables()):
            start = table.group, table.topic
            yield PlainRows(StoredOffset, [(*start, *entry) for entry in sorted(table.queues.items())])

    def _has_offsets(self) -> bool:
        paths = (self._layout.path("config", name + end) for name in FILES for end in ("", ".bak"))
        return any(map(os.path.lexists, paths)) or any(read_config(self._layout, name) is not None for name in FILES)

    def positions(self) -> Iterator[PlainRows]:
        """Offsets with the ranges of their queues, `OffsetRow` rows, sorted by group, topic and queue.

        Raises:
            UnreadableStore: the store has no offsets file.
        """
        return consumer_offsets(self._layout, bak=self._bak, wanted=self._wanted)

    def _tables(self) -> Iterator[OffsetTable]:
        tables = self._client.tables() if self._client is not None else group_offsets(self._layout, self._warn)
        return (table for table in tables if self._wanted(table.group, table.topic))
