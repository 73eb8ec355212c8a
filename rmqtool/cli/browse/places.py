"""What is looked at: a store directory or a live cluster, with the same lists.

Services are imported by what needs them, as the first list is to appear at once.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from rmqtool.cli.browse.sources import BrowsedGroups, BrowsedStoreTopics, BrowsedTopics, Lags, RecordReader

if TYPE_CHECKING:
    from rmqtool.admin.doctor.run import ClusterFinding
    from rmqtool.admin.target import Target
    from rmqtool.services.consumers.groups import ConsumerGroups
    from rmqtool.store.check.common.findings import Finding
    from rmqtool.store.layout.paths import StoreLayout


class BrowsedPlace(Protocol):
    """A store or a cluster. Its methods raise RmqError or OSError.

    Attributes:
        path: as it is shown.
        root: the store's directory, into which nothing is exported; None for a cluster.
        warnings: what was noted while something was read.
    """

    path: str
    root: str | None
    warnings: list[str]

    def topics(self) -> BrowsedTopics:
        """The topics."""

    def groups(self) -> BrowsedGroups:
        """The consumer groups."""

    def lags(self, group: str) -> Lags:
        """The queues of a group."""

    def reader(self, broker: str | None) -> RecordReader:
        """Reads messages, of this broker if there are several."""

    def check(self) -> "Iterable[Finding | ClusterFinding]":
        """What is wrong."""

    def trace(self, message_id: str, warn: Callable[[str], None]) -> list[str]:
        """What became of a message."""


class StorePlace:
    """A store directory.

    Args:
        path: as it is shown.
    """

    def __init__(self, path: str, layout: "StoreLayout") -> None:
        self.path, self._layout = path, layout
        self.root: str | None = layout.root
        self.warnings: list[str] = []

    def topics(self) -> BrowsedTopics:
        """The topics."""
        return BrowsedStoreTopics(self._layout, self.warnings.append)

    def groups(self) -> BrowsedGroups:
        """The consumer groups."""
        return BrowsedGroups([*self._consumers().infos()])

    def lags(self, group: str) -> Lags:
        """The queues of a group."""
        return Lags(group, [row for row in self._consumers().lag() if row.group == group])

    def _consumers(self) -> "ConsumerGroups":
        from rmqtool.services.consumers.groups import ConsumerGroups
        from rmqtool.store.log.commit_log import CommitLog

        return ConsumerGroups(CommitLog(self._layout), self.warnings.append)

    @cached_property
    def _store(self) -> RecordReader:
        from rmqtool.services.open_store.store import Store

        store = Store(self._layout.root, broker_conf=self._layout.conf.values or None)
        store.warnings = self.warnings
        return store

    def reader(self, _broker: str | None) -> RecordReader:
        """The store."""
        return self._store

    def check(self) -> "Iterator[Finding]":
        """The findings of a check."""
        from rmqtool.store.check.run import check_store

        return check_store(self._layout)

    def trace(self, message_id: str, warn: Callable[[str], None]) -> list[str]:
        """What became of a message."""
        from rmqtool.cli.browse.details import trace_lines
        from rmqtool.services.trace import trace
        from rmqtool.store.log.commit_log import CommitLog

        return trace_lines(trace(CommitLog(self._layout), message_id, _now(), warn, body="none"))


class ClusterPlace:
    """A live cluster.

    Args:
        path: as it is shown.
    """

    def __init__(self, path: str, target: "Target") -> None:
        self.path, self._target = path, target
        self.root: str | None = None
        self.warnings: list[str] = []

    def topics(self) -> BrowsedTopics:
        """The topics."""
        from rmqtool.admin.live.topics import LiveTopics
        from rmqtool.cli.browse.live import ClusterTopics

        return ClusterTopics(LiveTopics(self._target, self.warnings.append, _ignore))

    def groups(self) -> BrowsedGroups:
        """The consumer groups."""
        from rmqtool.admin.live.groups import LiveGroups

        return BrowsedGroups([*LiveGroups(self._target, self.warnings.append, _ignore).infos()])

    def lags(self, group: str) -> Lags:
        """The queues of a group."""
        from rmqtool.admin.live.groups import LiveGroups

        live = LiveGroups(self._target, self.warnings.append, _ignore, lambda name, _topic: name == group)
        return Lags(group, [row for row in live.lag() if row.group == group])

    def reader(self, broker: str | None) -> RecordReader:
        """Reads from the brokers."""
        from rmqtool.admin.live.messages import LiveMessages
        from rmqtool.cli.browse.live import ClusterReader

        return ClusterReader(LiveMessages(self._target, self.warnings.append, broker=broker))

    def check(self) -> "list[ClusterFinding]":
        """What doctor finds."""
        from rmqtool.admin.doctor.run import examine

        return examine(self._target, self.warnings.append)

    def trace(self, message_id: str, warn: Callable[[str], None]) -> list[str]:
        """What became of a message."""
        from rmqtool.admin.live.questions import Session
        from rmqtool.admin.live.queues import LiveQueues
        from rmqtool.admin.live.trace import LiveTracer
        from rmqtool.cli.browse.details import trace_lines

        with Session(self._target, warn) as session:
            return trace_lines(LiveTracer(LiveQueues(session, warn), _now(), warn).trace(message_id, "none"))


def _ignore(_text: str) -> None:
    """What brokers never report is no warning here."""


def _now() -> int:
    return int(time.time() * 1000)
