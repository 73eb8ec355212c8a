"""Helpers for tests of analytics: small handmade logs, and rows to compare."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from formats.message.build import compose, pack
from rmqtool.analytics.source.plan import request_of
from rmqtool.analytics.sql.query import QueryResult, answer
from rmqtool.contract import MESSAGE_FIELDS
from rmqtool.store.layout.paths import StoreLayout
from tests import goldens

TIME = 1_700_000_000_000
GOLDEN_FIELDS = [name for name in MESSAGE_FIELDS if name not in ("msgId", "tags", "keys", "body", "bodyEncoding")]


def record(topic: str | bytes, at: int, *, base: int = 0, number: int = 0, **fields: Any) -> bytes:
    """The record of a message at byte ``at`` of a file."""
    values: dict[str, Any] = {
        "topic": topic.encode() if isinstance(topic, str) else topic,
        "queue_id": number % 4,
        "queue_offset": number,
        "physical_offset": base + at,
        "body": b"body %d" % number,
        "properties": b"TAGS\x01t%d\x02KEYS\x01a b%d" % (number % 3, number),
        "born_timestamp": TIME + number,
        "born_address": b"\x0a\0\0\1",
        "born_port": 1234,
        "store_timestamp": TIME + number * 1000,
        "store_address": b"\x0a\0\0\2",
        "store_port": 10911,
    }
    return pack(compose(**values | fields))


def log_of(topics: list[Any], *, base: int = 0, **fields: Any) -> bytes:
    """A log with one message per topic."""
    data = b""
    for number, topic in enumerate(topics):
        data += record(topic, len(data), base=base, number=number, **fields)
    return data


def store_of(folder: Path, *files: bytes, size: int | None = None, base: int = 0) -> StoreLayout:
    """A store of commit-log files, each padded with zeros to ``size``."""
    directory = folder / "store" / "commitlog"
    directory.mkdir(parents=True)
    for data in files:
        content = data.ljust(size or len(data), b"\0")
        (directory / f"{base:020d}").write_bytes(content)
        base += len(content)
    return StoreLayout(str(folder / "store"))


def rows_of(out: Path) -> list[dict[str, Any]]:
    """Every row, in log order, as read by pyarrow."""
    table = ds.dataset(out, partitioning="hive").to_table()
    return sorted(map(plain, table.to_pylist()), key=lambda row: row["physicalOffset"])


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row with times in ms and properties as a dict, whichever reader it is from."""
    row = dict(row)
    for name in ("bornTimestamp", "storeTimestamp"):
        if row[name] is not None:
            row[name] = round(row[name].timestamp() * 1000)
    row["properties"] = dict(row["properties"])
    row["keys"] = list(row["keys"])
    row["body"] = bytes(row["body"])
    return row


def same_as_golden(row: dict[str, Any], message: dict[str, Any]) -> None:
    """Assert that a row equals the engine's data of the message."""
    expected = {name: message[name] for name in GOLDEN_FIELDS}
    assert {name: row[name] for name in GOLDEN_FIELDS} == expected
    properties = message["properties"]
    assert row["msgId"] == properties.get("UNIQ_KEY", message["offsetMsgId"])
    assert row["tags"] == properties.get("TAGS")
    assert row["keys"] == properties.get("KEYS", "").split()
    assert hashlib.sha256(row["body"]).hexdigest() == message["bodySha256"]
    assert len(row["body"]) == row["bodyLength"]
    assert row["bodyError"] is None
    assert int(row["sourceFile"]) + row["fileOffset"] == row["physicalOffset"]


def engine_messages(case: str) -> dict[int, dict[str, Any]]:
    """The engine's data of each message, by physical offset; several queue entries may point to one."""
    return {row["cqPhysicalOffset"]: row["message"] for row in goldens.messages(case) if row["message"] is not None}


@contextmanager
def asked(root: object, query: str, **options: str) -> Iterator[QueryResult]:
    """The result of ``sql`` on a store."""
    with answer(request_of({"path": str(root), **options}), query) as answered:
        yield answered


def ask(root: object, query: str, **options: str) -> list[tuple[Any, ...]]:
    """The rows of ``sql`` on a store."""
    with asked(root, query, **options) as answered:
        return [tuple(row) for row in answered.rows()]
