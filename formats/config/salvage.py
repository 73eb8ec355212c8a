"""Salvage entries of a damaged configuration file, before and after the damage.

An entry counts only if it is complete and fits its model. In a table of numbers (consumer offsets) each number is an
entry of its own.
"""

import re
from typing import Any

from formats.config.file import ConfigFile
from formats.errors import BadText
from formats.fastjson.declare import Kind, Nested, Table, Unfit, members_of
from formats.fastjson.dialects import FILE
from formats.fastjson.read import loads_prefix, loads_torn
from formats.fastjson.values import Key, Value

_ENTRY = re.compile(rb'"((?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*+)"\s*+:\s*+(?=\{)')
_NOISE = re.compile("[\x00-\x1f\x7f\udc80-\udcff]")
_OWN_NAMES = ("topicName", "groupName", "topic")  # members that repeat the key of a bean
_BRACE = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}]', re.DOTALL)
_WINDOW = 1 << 16  # maximum length of an entry, bytes


def tables_of(model: type[ConfigFile]) -> dict[str, Table]:
    """The tables of a file by name, with their kinds."""
    return {name: kind for name, member in members_of(model).items() if isinstance(kind := member.kind, Table)}


def salvage(model: type[ConfigFile], data: bytes) -> dict[Key, Value]:
    """Build an object, perhaps an empty one, that the model can read from a damaged file."""
    torn = loads_torn(data)  # None if it is well-formed but does not fit the model
    salvaged = (
        _keep_fitting(model, loads_prefix(data)[0], []) if torn is None else _keep_fitting(model, torn.value, torn.open)
    )
    for name, key, entry in _carve(model, data):
        table = salvaged.setdefault(name, {})
        assert isinstance(table, dict)
        table.setdefault(key, entry)
    return salvaged


def merge(model: type[ConfigFile], older: dict[Key, Value], newer: dict[Key, Value]) -> dict[Key, Value]:
    """Entries of two files; the newer ones win."""
    merged = {**older, **newer}
    for name, kind in tables_of(model).items():
        tables = [table[name] for table in (older, newer) if isinstance(table.get(name), dict)]
        if tables:
            merged[name] = _merge(kind, *tables)
    return merged


def _merge(kind: Kind, *tables: Any) -> Any:
    """Merge tables by key, including nested ones; anything else is replaced as a whole."""
    merged: dict[Key, Value] = {}
    for table in tables:
        for key, item in table.items():
            old = merged.get(key)
            inner = kind.item if isinstance(kind, Table) else kind
            nested = isinstance(inner, Table) and isinstance(old, dict) and isinstance(item, dict)
            merged[key] = _merge(inner, old, item) if nested else item
    return merged


def _keep_fitting(model: type[ConfigFile], value: Value, open_path: list[Key]) -> dict[Key, Value]:
    """The complete members and entries that the model accepts."""
    if not isinstance(value, dict):
        return {}
    fitting: dict[Key, Value] = {}
    # an unknown member may belong to a lost entry, moved up to this level
    for name, member in members_of(model).items():
        kind = member.kind
        item, inside = value.get(name), open_path[1:] if open_path[:1] == [name] else None
        if isinstance(kind, Table) and isinstance(item, dict):
            fitting[name] = _keep_complete(kind, item, inside or [])
        elif item is not None and inside is None and _plain(item) and _reads(kind, item):
            fitting[name] = item
    return fitting


def _reads(kind: Kind, item: Value) -> bool:
    try:
        kind.read(item, FILE)
    except Unfit:
        return False
    return True


def _keep_complete(table: Table, raw: dict[Key, Value], open_path: list[Key]) -> dict[Key, Value]:
    """The entries of a table that are complete and fit."""
    complete: dict[Key, Value] = {}
    for key, item in raw.items():
        is_open = bool(open_path) and open_path[0] == key
        if not _plain(key):
            continue
        try:
            table.read_key(key, FILE)
            if isinstance(table.item, Table) and isinstance(item, dict):
                complete[key] = _keep_complete(table.item, item, open_path[1:] if is_open else [])
            elif not is_open and _plain(item) and _reads(table.item, item):
                complete[key] = item
        except Unfit:
            continue
    return complete


def _plain(value: Value | Key) -> bool:
    """Whether all names and texts could be a broker's; in strings the dialect accepts any noise."""
    pending: list[Value | Key] = [value]
    seen: set[int] = set()  # with references an object can occur many times, in a damaged file even within itself
    while pending:
        item = pending.pop()
        if isinstance(item, dict | list):
            if id(item) in seen:
                continue
            seen.add(id(item))
        if isinstance(item, str):
            if _NOISE.search(item):
                return False
        elif isinstance(item, dict):
            pending += [*item, *item.values()]
        elif isinstance(item, list):
            pending += item
    return True


def _carve(model: type[ConfigFile], data: bytes) -> list[tuple[str, Key, Value]]:
    """(table, key, entry) of text anywhere that parses as an entry and identifies itself as one."""
    entries: list[tuple[str, Key, Value]] = []
    tables, at = tables_of(model), 0
    budget = 8 * len(data) + _WINDOW  # bytes to scan: no broker's file is nested deeper
    while budget > 0 and (match := _ENTRY.search(data, at)) is not None:
        at = match.end()
        end = _end_of(data, at)
        budget -= (end or at + _WINDOW) - at
        try:
            key = loads_prefix(b'"' + match[1] + b'"')[0]
            item, length = loads_prefix(data[at:end], cycles=False)
        except BadText:
            continue
        for name, table in tables.items():
            if isinstance(key, str) and _identifies_itself(table, key, item):
                entries.append((name, key, item))
                at += length
                break
    return entries


def _end_of(data: bytes, at: int) -> int:
    """Return where the object at a position ends, by counting braces; 0 if that is too far."""
    depth = 0
    for match in _BRACE.finditer(data, at, at + _WINDOW):
        depth += {b"{": 1, b"}": -1}.get(match[0], 0)
        if not depth:
            return match.end()
    return 0


def _identifies_itself(table: Table, key: str, item: Value) -> bool:
    if not isinstance(item, dict) or not item or not _plain(key) or not _plain(item):
        return False
    if not _reads(table, {key: item}):
        return False
    if isinstance(table.item, Nested):
        return any(item.get(name) == key for name in _OWN_NAMES)
    # topic@group with a number for each queue
    return isinstance(table.item, Table) and key.count("@") == 1 and all(isinstance(number, int) for number in item)
