"""POP messages recorded in kvStore: reading, checking, serving, salvaging."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from formats.variants.pop_store import FAMILY, PopStoreKey, PopStoreRecord
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.pop_store import warn_of_unserved
from tests import rocks
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.rocks import build_key
from tests.services.build import TIME, Builder
from tests.store.findings import check_store

POPPED, HOUR = TIME + 100, 3_600_000


def record(offset: int = 0, **more: Any) -> PopStoreRecord:
    standard = {"group": "g", "topic": "T", "queue_id": 0, "pop_time": POPPED, "invisible_time": HOUR}
    return PopStoreRecord(**{**standard, "queue_offset": offset, **more})


def with_records(store: Path, *records: PopStoreRecord, raw: dict[bytes, bytes] | None = None) -> Path:
    pairs = {build_key(popped.key): popped.value() for popped in records} | (raw or {})
    rocks.write(store / "kvStore", {"default": {}, FAMILY: pairs})
    return store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    builder = Builder()
    for number in range(8):
        builder.put("T", properties={"KEYS": f"k{number}", "UNIQ_KEY": f"{number:032X}"})
    offsets = {"offsetTable": {"T@g": {"0": 6}}}
    return builder.write(tmp_path, {"consumerOffset.json": json.dumps(offsets)})


def rows(*args: object) -> list[dict[str, Any]]:
    result = rmqtool(*args, "-o", "ndjson")
    assert (result.code, result.err) == (0, "")
    return [json.loads(line) for line in result.out.splitlines()]


def codes(store: Path) -> list[str]:
    return [finding.code for finding in check_store(StoreLayout(str(store))) if finding.file == "kvStore"]


def test_in_flight(store: Path) -> None:
    with_records(store, record(2), record(5, attempts=3, attempt_id="a", invisible_time=HOUR << 20))
    listed = rows("group", "inflight", store)
    assert [(row["queueOffset"], row["state"], row["kind"], row["keys"], row["putAgain"]) for row in listed] == [
        (2, "due", "record", ["k2"], 0), (5, "invisible", "record", ["k5"], 3),
    ]  # fmt: skip
    (lag,) = rows("group", "lag", store, "--group", "g")
    assert (lag["lag"], lag["inFlight"]) == (2, 2)
    (told,) = rows("trace", store, f"{2:032X}")
    assert [(event["event"], event["group"]) for event in told["events"]] == [("stored", None), ("popped", "g")]
    assert codes(store) == []


@pytest.mark.parametrize(
    ("records", "raw", "expected"),
    [
        ([record(8)], {}, ["pop-ahead"]),
        ([record(0, topic="Unknown")], {}, ["pop-ahead"]),
        ([], {b"key": b"{}"}, ["pop-record-key"]),
        ([], {build_key(record(1).key): record(2).value()}, ["pop-record-key"]),
        ([record(3)], {build_key(PopStoreKey(1, "g", "T", 0, 1)): b"{"}, ["pop-record"]),
        ([], {b"key": b'{"offset":"x"}'}, ["pop-record"]),
    ],
)
def test_damage(store: Path, records: list[PopStoreRecord], raw: dict[bytes, bytes], expected: list[str]) -> None:
    with_records(store, *records, raw=raw)
    assert codes(store) == expected


def test_a_database_that_is_no_more(store: Path) -> None:
    with_records(store, record(2))
    for table in (store / "kvStore").glob("*.sst"):
        table.write_bytes(b"")
    assert codes(store) == ["pop-database"]
    result = rmqtool("group", "inflight", store)
    assert result.code == 1
    assert "kvStore" in result.err
    assert "kvStore" in warn_of_unserved(StoreLayout(str(store)))[0]


def test_without_the_library(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_records(store, record(2))
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    assert codes(store) == ["not-checked"]
    result = rmqtool("group", "lag", store, "-o", "table")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "pip install rocksdict" in result.err


def test_whoever_serves_the_store_is_told(store: Path) -> None:
    assert warn_of_unserved(StoreLayout(str(store))) == []
    with_records(store, record(2), record(3))
    (text,) = warn_of_unserved(StoreLayout(str(store)))
    assert "2 messages that POP groups hold" in text


def test_salvage_takes_it_along(store: Path, tmp_path: Path) -> None:
    with_records(store, record(2), record(5))
    new = tmp_path / "new"
    result = rmqtool("salvage", store, new)
    assert "popConsumerKVServiceEnable=true" in result.err
    assert [row["queueOffset"] for row in rows("group", "inflight", new)] == [2, 5]
    assert codes(new) == []


def test_salvage_says_what_has_other_offsets_now(store: Path, tmp_path: Path) -> None:
    with_records(store, record(2), record(5))
    log = store / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    at = data.index(b"k3")
    data[at - 30 : at] = bytes(30)
    log.write_bytes(data)
    result = rmqtool("salvage", store, tmp_path / "new")
    assert "kvStore: 1 of them have another queue offset now" in result.err


def test_an_empty_folder_says_nothing(golden_copy: Unpacked) -> None:
    store = golden_copy("broker-5.3.3")
    (store / "kvStore").mkdir()
    assert rmqtool("group", "lag", store, "-o", "table").err == ""
    shutil.rmtree(store / "kvStore")
