"""Topics, groups and consumer progress that a 5.x broker keeps in RocksDB: one key and one JSON value for each.

Source: broker.config.v1.RocksDBTopicConfigManager, RocksDBSubscriptionGroupManager, RocksDBConsumerOffsetManager of
5.3.3 (configManagerVersion v1); store-formats 7.12.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from formats.config.json import Key, Value, loads
from formats.errors import BadText, FormatError

ENTRIES, VERSIONS, FORBIDDEN = "default", "kvDataVersion", "forbidden"  # column families
VERSION_KEY = b"kvDataVersionKey"
Pairs = Iterable[tuple[bytes, bytes]]


class Table(NamedTuple):
    """Which table of which file a database holds."""

    place: str  # below the store
    member: str
    inner: str | None  # what a value wraps its map in


TABLES = {
    "topics.json": Table("config/topics", "topicConfigTable", None),
    "subscriptionGroup.json": Table("config/subscriptionGroups", "subscriptionGroupTable", None),
    "consumerOffset.json": Table("config/consumerOffsets", "offsetTable", "offsetTable"),
}
"""File name below ``config/`` → the database in its place."""


def as_file(name: str, families: Mapping[str, Pairs]) -> dict[Key, Value]:
    """The content of a database as the file of that name would have it.

    Args:
        name: one of :data:`TABLES`.
        families: column family to its keys and values; one that is missing is empty.

    Raises:
        FormatError: a value is not JSON as brokers write it; the reason has its key.
    """
    table = TABLES[name]
    entries: dict[Key, Value] = {}
    for key, value in families.get(ENTRIES, ()):
        parsed = _parsed(key, value)
        if table.inner is not None:
            if not isinstance(parsed, dict) or not isinstance(parsed.get(table.inner), dict):
                raise BadText(0, f"key {_text(key)!r}: no {table.inner} in its value")
            parsed = parsed[table.inner]
        entries[_text(key)] = parsed
    made: dict[Key, Value] = {table.member: entries}
    for key, value in families.get(VERSIONS, ()):
        if key == VERSION_KEY:
            made["dataVersion"] = _parsed(key, value)
    forbidden: dict[Key, Value] = {_text(key): _parsed(key, value) for key, value in families.get(FORBIDDEN, ())}
    if forbidden:
        made["forbiddenTable"] = forbidden
    return made


def _text(key: bytes) -> str:
    return key.decode("utf-8", "replace")  # as Java reads it


def _parsed(key: bytes, value: bytes) -> Value:
    try:
        return loads(value, cycles=False)
    except FormatError as err:
        raise BadText(err.at, f"key {_text(key)!r}: {err.reason}") from err
