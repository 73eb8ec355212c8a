"""The ``group`` commands behind their options."""

import os
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

from formats.config.files import ConsumerOffsets, OffsetTable, QueueOffset
from formats.errors import FormatError
from rmqtool.cli.framework.choice import matches
from rmqtool.cli.framework.options import GroupChoice
from rmqtool.cli.render.rows import names_of
from rmqtool.errors import BadValue, CorruptFile, UnreadableStore
from rmqtool.services.consumers.groups import (
    PROBLEMS,
    ConsumerGroups,
    GroupLag,
    OffsetChange,
    compare,
)
from rmqtool.services.lookup.configs import FILES, Warn, group_offsets, sort_offsets
from rmqtool.services.offsets.files import ClientFile
from rmqtool.store.config.files import read_config
from rmqtool.store.disk.segments import read_small
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog

OFFSET_FIELDS = ("group", "topic", "queueId", "consumerOffset")
_WORDS = {"diff": "lag", "retryDiff": "retryLag"}  # the broker's, and those of tables


def _tables(
    layout: StoreLayout, choice: GroupChoice, broadcast: str | None, broker: str | None, warn: Warn
) -> Iterator[OffsetTable]:
    """Offsets of the groups and topics that were asked for."""
    tables = ClientFile(broadcast, broker).tables() if broadcast is not None else group_offsets(layout, warn)
    return (table for table in tables if matches(table.group, choice.group) and matches(table.topic, choice.topic))


def _is_chosen(entry: QueueOffset, choice: GroupChoice) -> bool:
    in_queue = not choice.queue or entry.queue_id in choice.queue
    return in_queue and matches(entry.group, choice.group) and matches(entry.topic, choice.topic)


class Lags:
    """The rows of ``group lag``, one at a time: there may be millions.

    Attributes:
        rows: how many came.
        problems: how many of them cannot be right.
        groups: of the rows that came.
        holding: POP consumers hold messages of one that was asked for.
    """

    def __init__(
        self, log: CommitLog, choice: GroupChoice, broadcast: str | None, broker: str | None, warn: Warn
    ) -> None:
        self.rows = self.problems = 0
        self.groups: set[str] = set()
        self._queues = choice.queue
        tables = _tables(log.layout, choice, broadcast, broker, warn)
        self._found = ConsumerGroups(log, warn, tables, pop=broadcast is None)
        chosen = (QueueOffset(*key, 0) for key in self._found.holding())
        self.holding = any(_is_chosen(entry, choice) for entry in chosen)

    def __iter__(self) -> Iterator[GroupLag]:
        for row in self._found.lag():
            if not self._queues or row.queueId in self._queues:
                self.rows += 1
                self.problems += row.state in PROBLEMS
                self.groups.add(row.group)
                yield row


def nobody_behind(groups: Set[str]) -> str:
    """What ``--lagging`` says where nothing is left to show."""
    who = f"group {min(groups)} is not" if len(groups) == 1 else f"none of {len(groups)} groups is"
    return f"{who} behind: no messages to consume, and none in flight"


def columns(kind: type, names: Sequence[str] = (), *, holding: bool) -> tuple[str, ...]:
    """Columns of a table: what POP consumers hold only where there is something."""
    chosen = (_WORDS.get(name, name) for name in names or names_of(kind) if name not in _WORDS.values())
    return tuple(name for name in chosen if holding or name != "inFlight")


def offsets(
    layout: StoreLayout,
    choice: GroupChoice,
    broadcast: str | None,
    broker: str | None,
    warn: Warn,
) -> Iterator[dict[str, Any]]:
    """The rows of ``group offsets``.

    Raises:
        UnreadableStore: the store has no offsets file.
    """
    if broadcast is None and not any(
        os.path.lexists(layout.path("config", name + end)) for name in FILES for end in ("", ".bak")
    ):
        raise UnreadableStore(f"{layout.path('config', FILES[0])}: no such file")
    for entry in sort_offsets(_tables(layout, choice, broadcast, broker, warn)):
        if _is_chosen(entry, choice):
            yield dict(zip(OFFSET_FIELDS, (entry.group, entry.topic, entry.queue_id, entry.offset), strict=True))


def differences(
    layout: StoreLayout,
    other: str | None,
    choice: GroupChoice,
    *,
    bak: bool,
    equal: bool,
    warn: Warn,
) -> tuple[list[OffsetChange], int]:
    """The rows of ``group diff``, and how many offsets of the two were compared.

    Raises:
        BadValue: nothing to compare with, or two things.
    """
    if (other is None) != bak:
        raise BadValue("give either OTHER or --bak")
    tables = [
        sort_offsets(group_offsets(layout, warn)),
        _generation_before(layout) if other is None else _snapshot(other, warn),
    ]
    chosen = [[entry for entry in table if _is_chosen(entry, choice)] for table in tables]
    return list(compare(*chosen, equal=equal)), sum(map(len, chosen))


def _generation_before(layout: StoreLayout) -> list[QueueOffset]:
    tables = [read_config(layout, name, bak=True) for name in FILES]
    if all(table is None for table in tables):
        raise UnreadableStore(f"{layout.path('config', FILES[0])}.bak: no such file")
    return [entry for table in tables if isinstance(table, ConsumerOffsets) for entry in table.entries()]


def _snapshot(path: str, warn: Warn) -> Iterable[QueueOffset]:
    """Offsets of a store, of a ``consumerOffset.json``, or of a CSV file."""
    if os.path.isdir(path):
        return sort_offsets(group_offsets(StoreLayout(path), warn))
    if path.endswith(".csv"):
        from rmqtool.services.consumers.offset_plan import read_rows

        return [QueueOffset(*row.key, row.offset) for row in read_rows(path)]
    data = read_small(path)
    if data is None:
        raise UnreadableStore(f"{path}: no such file")
    try:
        return list(ConsumerOffsets.parse(data).entries())
    except FormatError as err:
        raise CorruptFile(path, err.at, err.reason) from err
