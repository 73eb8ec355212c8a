"""The subjects of a store directory: what the engine's own classes answer. Topics are those of the engine."""

import os
from collections.abc import Callable, Iterable, Iterator

from formats.config.files import QueueOffset
from rmqtool.errors import UnreadableStore
from rmqtool.services.consumers.groups import ConsumerGroups, GroupInfo, GroupLag
from rmqtool.services.lookup.configs import Warn, group_offsets
from rmqtool.services.lookup.offsets import FILES, OffsetRow, StoredOffset, consumer_offsets
from rmqtool.services.offsets.files import ClientFile
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog


class StoreGroups:
    """The groups of a store.

    Args:
        wanted: whether a group's offsets in a topic are asked for.
        client: offsets of a broadcasting client in place of the broker's.
        bak: the previous generation of the broker's.
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

    def infos(self) -> Iterator[GroupInfo]:
        """Every group that has a configuration or an offset, sorted."""
        return ConsumerGroups(CommitLog(self._layout), self._warn).infos()

    def lag(self) -> Iterator[GroupLag]:
        """Every queue of every group, sorted by group, topic and queue."""
        chosen = (entry for entry in self._entries() if self._wanted(entry.group, entry.topic))
        return ConsumerGroups(CommitLog(self._layout), self._warn, chosen, pop=self._client is None).lag()

    def stored(self) -> Iterator[StoredOffset]:
        """Offsets as they are stored, sorted by group, topic and queue.

        Raises:
            UnreadableStore: the store has no offsets file.
        """
        if self._client is None and not any(
            os.path.lexists(self._layout.path("config", name + end)) for name in FILES for end in ("", ".bak")
        ):
            raise UnreadableStore(f"{self._layout.path('config', FILES[0])}: no such file")
        for entry in sorted(self._entries(), key=lambda e: (e.group, e.topic, e.queue_id)):
            if self._wanted(entry.group, entry.topic):
                yield StoredOffset(
                    group=entry.group, topic=entry.topic, queueId=entry.queue_id, consumerOffset=entry.offset
                )

    def positions(self) -> Iterator[OffsetRow]:
        """Offsets beside the queues that they point into, sorted by group, topic and queue.

        Raises:
            UnreadableStore: the store has no offsets file.
        """
        return consumer_offsets(self._layout, bak=self._bak)

    def _entries(self) -> Iterable[QueueOffset]:
        return self._client.entries if self._client is not None else group_offsets(self._layout, self._warn)
