"""Topics, groups and consumer offsets that a 5.x broker keeps in RocksDB, each under a key with a JSON value.

Source: broker.config.v1.RocksDBTopicConfigManager, RocksDBSubscriptionGroupManager, RocksDBConsumerOffsetManager of
5.3.3 (configManagerVersion v1: a database per table) and of 5.5.0 (useSingleRocksDBForAllConfigs: one database with
column families per table); broker.config.v2.ConfigHelper, ConsumerOffsetManagerV2 (v2: one database for all, with a
prefix of keys per table); store-formats 7.12, releases-5.4-5.5 6.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from formats.errors import BadLength, BadText, FormatError
from formats.fastjson.read import loads
from formats.fastjson.values import Key, Value
from formats.layouts.derived import CONFIG_HEAD, CONFIG_NAME, CONFIG_OFFSET, CONFIG_QUEUE, CONFIG_VERSION

ENTRIES, VERSIONS, FORBIDDEN = "default", "kvDataVersion", "forbidden"  # column families of a database with one table
VERSION_KEY = b"kvDataVersionKey"
Pairs = Iterable[tuple[bytes, bytes]]

SINGLE = "config/metadata"  # relative to the store; since 5.4
V2 = "config/rdb"
HIDDEN = "(hidden)"  # in place of a password
_PREFIX, _VERSION, _ENTRY, _MARK = 1, 1, 2, 1
_JSON = 1  # first byte of a value
_NUMBERS = {"consumerOffset.json": 1, "topics.json": 3, "subscriptionGroup.json": 4}


class DatabaseTable(NamedTuple):
    """A table of a file that is in a database."""

    place: str  # path relative to the store
    member: str
    inner: str | None  # member that wraps the map in a value
    family: str  # family of its entries in the single database; the one of its version has "Version" appended


ACCOUNTS = {"users": "User", "acls": "Acl"}
"""Databases below ``config/`` of the auth module (5.3 and later): a JSON value for each name or subject."""

TABLES = {
    "topics.json": DatabaseTable("config/topics", "topicConfigTable", None, "topic"),
    "subscriptionGroup.json": DatabaseTable(
        "config/subscriptionGroups", "subscriptionGroupTable", None, "subscriptionGroup"
    ),
    "consumerOffset.json": DatabaseTable("config/consumerOffsets", "offsetTable", "offsetTable", "consumerOffset"),
}
"""By file name below ``config/``, the table in the database that replaces the file."""


def as_file(name: str, families: Mapping[str, Pairs], *, single: bool = False) -> dict[Key, Value]:
    """The contents of a database in the form of the file that it replaces.

    Args:
        name: one of :data:`TABLES`.
        families: keys and values by column family; a missing one is empty.
        single: whether the database holds all tables (:data:`SINGLE`).

    Raises:
        FormatError: a value is not JSON as written by brokers; the reason contains its key.
    """
    table = TABLES[name]
    entries_in, versions_in = (table.family, f"{table.family}Version") if single else (ENTRIES, VERSIONS)
    entries: dict[Key, Value] = {}
    for key, value in families.get(entries_in, ()):
        parsed = _parse_value(key, value)
        if table.inner is not None:
            if not isinstance(parsed, dict) or not isinstance(parsed.get(table.inner), dict):
                raise BadText(0, f"key {_text(key)!r}: no {table.inner} in its value")
            parsed = parsed[table.inner]
        entries[_text(key)] = parsed
    content: dict[Key, Value] = {table.member: entries}
    for key, value in families.get(versions_in, ()):
        if key == VERSION_KEY:
            content["dataVersion"] = _parse_value(key, value)
    if name == "subscriptionGroup.json":
        forbidden: dict[Key, Value] = {
            _text(key): _parse_value(key, value) for key, value in families.get(FORBIDDEN, ())
        }
        if forbidden:
            content["forbiddenTable"] = forbidden
    return content


def accounts(pairs: Pairs) -> dict[Key, Value]:
    """Users by name, or access lists by subject; passwords are left out.

    Source: auth.authentication.model.User, auth.authorization.model.Acl; LocalAuthenticationMetadataProvider.

    Raises:
        FormatError: a value is not JSON as brokers write it; the reason has its key.
    """
    entries: dict[Key, Value] = {}
    for key, value in pairs:
        account = _parse_value(key, value)
        if isinstance(account, dict) and "password" in account:
            account["password"] = HIDDEN
        entries[_text(key)] = account
    return entries


def bounds_of(name: str) -> tuple[bytes, bytes]:
    """First key of a table in a v2 database, and the end of its key range."""
    number = _NUMBERS[name]
    return CONFIG_HEAD.pack(_PREFIX, number, 0), CONFIG_HEAD.pack(_PREFIX, number + 1, 0)


def as_file_v2(name: str, pairs: Pairs) -> dict[Key, Value]:
    """A table of a v2 database in the form of the file that it replaces.

    Args:
        name: one of :data:`TABLES`.
        pairs: keys and values within the table's bounds.

    Raises:
        FormatError: a key or value is not as written by brokers; the reason contains the key.
    """
    content: dict[Key, Value] = {}
    entries: dict[Key, Value] = {}
    for key, value in pairs:
        _prefix, _table, record = CONFIG_HEAD.unpack_from(key.ljust(CONFIG_HEAD.size, b"\0"), 0)
        rest = key[CONFIG_HEAD.size :]
        if record == _VERSION:
            if len(value) == CONFIG_VERSION.size:  # brokers ignore any other
                state, timestamp, counter = CONFIG_VERSION.unpack_from(value, 0)
                content["dataVersion"] = {"counter": counter, "stateVersion": state, "timestamp": timestamp}
        elif record == _ENTRY and name == "consumerOffset.json":
            group, topic, queue_id = _progress_key(rest)
            if len(value) != CONFIG_OFFSET.size:
                raise BadLength(0, f"key {key.hex()}: an offset of {len(value)} bytes")
            queues = entries.setdefault(f"{topic}@{group}", {})
            assert isinstance(queues, dict)
            (queues[queue_id],) = CONFIG_OFFSET.unpack_from(value, 0)
        elif record == _ENTRY:
            entry, behind = _name(rest)
            if behind or value[:1] != bytes([_JSON]):
                raise BadText(0, f"key {key.hex()}: not a name and JSON")
            entries[entry] = _parse_value(entry.encode("utf-8", "replace"), value[1:])
    return {TABLES[name].member: entries, **content}


def _name(rest: bytes) -> tuple[str, bytes]:
    """(length-prefixed name, remaining bytes)."""
    if len(rest) >= CONFIG_NAME.size:
        (length,) = CONFIG_NAME.unpack_from(rest, 0)
        end = CONFIG_NAME.size + length
        if 0 <= length <= len(rest) - CONFIG_NAME.size:
            return _text(rest[CONFIG_NAME.size : end]), rest[end:]
    raise BadLength(0, f"key ...{rest.hex()}: no name in it")


def _progress_key(rest: bytes) -> tuple[str, str, int]:
    """(group, topic, queue id)."""
    group, behind = _name(rest)
    if behind[:1] == bytes([_MARK]):
        topic, behind = _name(behind[1:])
        if len(behind) == CONFIG_QUEUE.size:
            mark, queue_id = CONFIG_QUEUE.unpack_from(behind, 0)
            if mark == _MARK:
                return group, topic, queue_id
    raise BadText(0, f"key ...{rest.hex()}: not a group, a topic and a queue")


def _text(key: bytes) -> str:
    return key.decode("utf-8", "replace")  # like Java


def _parse_value(key: bytes, value: bytes) -> Value:
    try:
        return loads(value, cycles=False)
    except FormatError as err:
        raise BadText(err.at, f"key {_text(key)!r}: {err.reason}") from err
