"""Check the database ``rocksdbstore``: its timer messages, half messages and keys must refer to existing messages.

Source: store.timer.rocksdb.Timeline, store.transaction.TransMessageRocksDBStore, store.index.rocksdb.IndexRocksDBStore
(5.5.0).
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from formats.errors import FormatError
from formats.message.properties import UNIQ_KEY, parse
from formats.message.read import Record
from formats.topics import HALVES, TIMER
from formats.variants.message_store import (
    DELIVERED,
    END,
    INDEX,
    LAST_STORED,
    PLACE,
    SCANNED,
    TIMELINE,
    parse_half,
    parse_index,
    parse_timeline,
)
from formats.variants.message_store import HALVES as HALF_FAMILY
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.store.check.codes.code import WARNING
from rmqtool.store.check.common.context import Context
from rmqtool.store.layout.rocksdb import Database
from rmqtool.store.queues.message_store import SETTINGS, message_store

Entry = TypeVar("Entry")
_POSITIONS = (DELIVERED, END, LAST_STORED, SCANNED)
_HALF_TOPICS = {topic.encode() for topic in HALVES}


def check_message_store(ctx: Context) -> None:
    """Check every entry of the database."""
    if ctx.log_seen.absent:
        return
    try:
        if (database := message_store(ctx.layout)) is not None:
            _check_timeline(ctx, database)
            _check_halves(ctx, database)
            _check_index(ctx, database)
    except MissingRuntime as err:
        ctx.found.add("not-checked", PLACE, actual=f"index, timers and half messages in a RocksDB database: {err}")
    except CorruptFile as err:
        conf = ctx.layout.conf
        unused = bool(conf.values) and not any(conf.flag(name, False) for name in SETTINGS.values())
        ctx.found.add("store-database", PLACE, actual=err.reason, **({"severity": WARNING} if unused else {}))
    except UnreadableStore as err:
        ctx.found.add("file-unreadable", PLACE, actual=str(err))


def _entries(database: Database, family: str) -> Iterator[tuple[bytes, bytes]]:
    return ((key, value) for key, value in database.items(family) if key not in _POSITIONS)


def _parsed(ctx: Context, database: Database, family: str, parse: Callable[[bytes, bytes], Entry]) -> Iterator[Entry]:
    """The entries of a family; those that cannot be read are reported."""
    for key, value in _entries(database, family):
        try:
            yield parse(key, value)
        except FormatError as err:
            ctx.found.add("store-database-entry", PLACE, actual=err.reason)


def _record(ctx: Context, physical_offset: int) -> Record | None:
    """The record at an offset; None if it has expired, or there is no record."""
    message = ctx.log.read(physical_offset, crc=False)
    return message.record if message is not None else None


def _check_timeline(ctx: Context, database: Database) -> None:
    for unit in _parsed(ctx, database, TIMELINE, parse_timeline):
        if unit.physical_offset < ctx.log.min_offset:
            continue  # delivered long ago, or the message has expired
        record = _record(ctx, unit.physical_offset)
        if record is None or (record.topic, record.total_size) != (TIMER.encode(), unit.size):
            actual = f"key {unit.unique_key}, due at {unit.deliver_time}"
            ctx.found.add("timeline-no-message", PLACE, expected=f"a message at {unit.physical_offset}", actual=actual)


def _check_halves(ctx: Context, database: Database) -> None:
    for half in _parsed(ctx, database, HALF_FAMILY, parse_half):
        if half.physical_offset < ctx.log.min_offset:
            continue
        record = _record(ctx, half.physical_offset)
        if (
            record is None
            or record.topic not in _HALF_TOPICS
            or parse(record.properties).get(UNIQ_KEY) != half.unique_key
        ):
            actual = f"key {half.unique_key} of {half.topic}"
            ctx.found.add("half-no-message", PLACE, expected=f"a message at {half.physical_offset}", actual=actual)


def _check_index(ctx: Context, database: Database) -> None:
    """Check the message of each entry, once per message: hundreds of thousands of entries may share one."""
    offsets = set[int]()
    for key, value in _entries(database, INDEX):
        with suppress(FormatError):  # a broker looks up complete keys, so it never sees others
            offsets.add(parse_index(key, value).physical_offset)
    lost = [at for at in sorted(offsets) if at >= ctx.log.min_offset and _record(ctx, at) is None]
    if lost:
        ctx.found.add(
            "store-index-no-message", PLACE, count=len(lost), actual=f"the first at physical offset {lost[0]}"
        )
