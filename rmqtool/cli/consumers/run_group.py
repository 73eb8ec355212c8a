"""The ``group`` commands behind their options."""

import os
from collections.abc import Iterable, Sequence

from formats.config.files import ConsumerOffsets, QueueOffset
from formats.errors import FormatError
from rmqtool.cli.framework.choice import matches
from rmqtool.cli.framework.options import GroupChoice
from rmqtool.cli.render.rows import names_of
from rmqtool.errors import BadValue, CorruptFile, UnreadableStore
from rmqtool.services.consumers.groups import (
    GroupInfo,
    GroupLag,
    LagSum,
    OffsetChange,
    compare,
)
from rmqtool.services.lookup.configs import Warn, group_offsets
from rmqtool.services.lookup.offsets import FILES
from rmqtool.services.offsets.files import ClientFile
from rmqtool.store.config.files import read_config
from rmqtool.store.disk.segments import read_small
from rmqtool.store.layout.paths import StoreLayout

_WORDS = {"diff": "lag", "retryDiff": "retryLag"}  # the broker's, and those of tables


def client_file(broadcast: str | None, broker: str | None) -> ClientFile | None:
    """The offsets of a broadcasting client, where they are asked for."""
    return ClientFile(broadcast, broker) if broadcast is not None else None


def _is_chosen(entry: QueueOffset, choice: GroupChoice) -> bool:
    in_queue = not choice.queue or entry.queue_id in choice.queue
    return in_queue and matches(entry.group, choice.group) and matches(entry.topic, choice.topic)


def nobody_behind(rows: Sequence[GroupLag]) -> str:
    """What ``--lagging`` says where nothing is left to show."""
    groups = {row.group for row in rows}
    who = f"group {groups.pop()} is not" if len(groups) == 1 else f"none of {len(groups)} groups is"
    return f"{who} behind: no messages to consume, and none in flight"


def columns(kind: type, rows: Sequence[GroupLag | LagSum | GroupInfo], names: Sequence[str] = ()) -> tuple[str, ...]:
    """Columns of a table: what POP consumers hold only where there is something."""
    shown = any(row.inFlight for row in rows)
    chosen = (_WORDS.get(name, name) for name in names or names_of(kind) if name not in _WORDS.values())
    return tuple(name for name in chosen if shown or name != "inFlight")


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
    tables = [group_offsets(layout, warn), _generation_before(layout) if other is None else _snapshot(other, warn)]
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
        return group_offsets(StoreLayout(path), warn)
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
