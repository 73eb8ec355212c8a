"""Records as rows: the schema matches the contract, every value the other forms of output."""

import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from formats.layouts.derived import HEAD_V4_V4
from formats.primitives import COMPRESSED
from rmqtool.analytics.ranges.splits import plan
from rmqtool.analytics.table.arrow import batches
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.schema import MAX_TIME, MESSAGE_SCHEMA, MIN_TIME, micros
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.contract import MESSAGE_FIELDS, message_row
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from tests import goldens
from tests.analytics.helpers import TIME, engine_messages, log_of, plain, record, same_as_golden, store_of
from tests.conftest import Unpacked

LONG = 2**63 - 1


def read(
    layout: StoreLayout, choice: MessageChoice | None = None, size: int = 8 << 20
) -> tuple[list[dict[str, Any]], SplitTally]:
    """All rows of a store and the tally of its last split."""
    rows, tally = [], SplitTally()
    for split in plan(CommitLog(layout))[0]:
        for batch in batches(split, choice or MessageChoice(), tally, size):
            assert batch.schema.equals(MESSAGE_SCHEMA)
            batch.validate(full=True)
            rows += map(plain, batch.to_pylist())
    return rows, tally


def test_names_are_the_contracts() -> None:
    own = ["sourceFile", "fileOffset", "bodyError"]
    assert MESSAGE_SCHEMA.names == [*MESSAGE_FIELDS, *own]


def test_integers_have_the_width_of_the_layout() -> None:
    codes = dict(HEAD_V4_V4.fields)
    for name, stored in {"queueId": "queue_id", "queueOffset": "queue_offset", "storeSize": "total_size"}.items():
        assert MESSAGE_SCHEMA.field(name).type.bit_width == {"i": 32, "q": 64}[codes[stored]]


@pytest.mark.parametrize("case", goldens.cases())
def test_rows_say_what_json_says(case: str, golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(case)))
    rows, tally = read(layout)
    items = list(CommitLog(layout).walk())
    records = [item for item in items if isinstance(item, LocatedRecord)]
    assert len(rows) == len(records) == tally.rows == tally.records
    for row, item in zip(rows, records, strict=True):
        expected = message_row(item.record, item.physical_offset, "hex")
        expected["body"] = bytes.fromhex(expected["body"])
        expected["bodyEncoding"] = "binary"
        own = {"sourceFile": Path(item.file.path).name, "fileOffset": item.at}
        assert row == {"bodyError": None} | expected | own
    assert tally.damage == [item for item in items if isinstance(item, Damage)]


@pytest.mark.parametrize("case", ["clean", "broker", "ipv6", "delay", "large-bodies", "lmq"])
def test_rows_say_what_the_engine_says(case: str, golden: Unpacked) -> None:
    rows = {row["physicalOffset"]: row for row in read(StoreLayout(str(golden(case))))[0]}
    messages = engine_messages(case)
    assert messages.keys() <= rows.keys()
    for offset, message in messages.items():
        same_as_golden(rows[offset], message)


def test_messages_that_no_queue_points_at_are_there(golden: Unpacked) -> None:
    rows, _tally = read(StoreLayout(str(golden("one-queue-deleted"))))
    assert len(rows) > 0
    layout = StoreLayout(str(golden("consumequeue-deleted")))
    assert not layout.queue_dirs()
    assert len(read(layout)[0]) > 0


@pytest.mark.parametrize(
    ("born", "stored"),
    [(-1, 0), (LONG, -LONG - 1), (MAX_TIME, MIN_TIME - 1), (MAX_TIME - 1, MIN_TIME), (2**53, 253402300800000)],
)
def test_hostile_times_become_null(born: int, stored: int, tmp_path: Path) -> None:
    layout = store_of(tmp_path, record("T", 0, born_timestamp=born, store_timestamp=stored))
    rows, tally = read(layout)
    expected = [time if MIN_TIME <= time < MAX_TIME else None for time in (born, stored)]
    assert [rows[0]["bornTimestamp"], rows[0]["storeTimestamp"]] == expected
    assert tally.times_out_of_range == expected.count(None)


def test_limits_of_time() -> None:
    assert micros(MAX_TIME) is micros(MIN_TIME - 1) is None
    assert micros(MIN_TIME) == MIN_TIME * 1000


def test_hostile_fields_have_columns_wide_enough(tmp_path: Path) -> None:
    small, large = -(2**31), 2**31 - 1
    data = record(
        "T", 0, queue_id=small, queue_offset=LONG, flag=small, reconsume_times=large,
        prepared_transaction_offset=-LONG - 1, born_port=small, store_port=large,
        properties=b"\xff\x01\xfe\x02KEYS\x01 \x02TAGS\x01\0\x02=", body=bytes(range(256)),
    )  # fmt: skip
    (row,), _tally = read(store_of(tmp_path, data))
    assert (row["queueId"], row["queueOffset"], row["flag"]) == (small, LONG, small)
    assert (row["bornHost"], row["storeHost"]) == (f"10.0.0.1:{small}", f"10.0.0.2:{large}")
    assert row["properties"] == {"�": "�", "KEYS": " ", "TAGS": "\0"}
    assert (row["keys"], row["tags"]) == ([], "\0")
    assert row["body"] == bytes(range(256))


def test_a_body_that_does_not_inflate_is_given_as_stored(tmp_path: Path) -> None:
    good, cut = zlib.compress(b"x" * 1000), zlib.compress(b"x" * 1000)[:-3]
    first = record("T", 0, sys_flag=COMPRESSED, body=good)
    layout = store_of(tmp_path, first + record("T", len(first), sys_flag=COMPRESSED, body=cut))
    (left, right), tally = read(layout)
    assert (left["body"], left["bodyLength"], left["bodyError"]) == (b"x" * 1000, 1000, None)
    assert (right["body"], right["bodyLength"]) == (cut, len(cut))
    assert "zlib" in right["bodyError"]
    assert tally.not_decompressed == 1


def test_batches_are_bounded_by_what_bodies_become(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(1 << 20))
    data = b""
    for number in range(8):
        data += record("T", len(data), number=number, sys_flag=COMPRESSED, body=bomb)
    (split,), _none = plan(CommitLog(store_of(tmp_path, data)))
    sizes = [batch.num_rows for batch in batches(split, MessageChoice(), SplitTally(), 2 << 20)]
    assert sizes == [2, 2, 2, 2]


def test_choice(tmp_path: Path) -> None:
    layout = store_of(tmp_path, log_of(["A", "B", "%RETRY%A", "AB", "a", "[A]"]))
    offsets = [row["physicalOffset"] for row in read(layout)[0]]

    def topics(**choice: Any) -> list[str]:
        rows, tally = read(layout, MessageChoice(**choice))
        assert tally.records == 6
        assert tally.rows == len(rows)
        return [row["topic"] for row in rows]

    assert topics(topics=("A",)) == ["A"]
    assert topics(topics=("A*", "[A]")) == ["A", "AB", "[A]"]
    assert topics(topics=("%RETRY%?",)) == ["%RETRY%A"]
    assert topics(topics=("none",)) == []
    assert topics(since=TIME + 1000, until=TIME + 3000) == ["B", "%RETRY%A"]
    assert topics(start=offsets[1], stop=offsets[2] + 1) == ["B", "%RETRY%A"]
    assert topics(topics=("A*",), since=TIME + 1) == ["AB"]


def test_an_empty_log(tmp_path: Path) -> None:
    assert read(store_of(tmp_path, b"", bytes(100)))[0] == []


def test_a_type_for_every_reader() -> None:
    kinds = {str(field.type) for field in MESSAGE_SCHEMA}
    assert kinds == {
        "string", "int32", "int64", "binary", "timestamp[us, tz=UTC]",
        "list<element: string not null>", "map<string, string>",
    }  # fmt: skip
    assert pa.types.is_map(MESSAGE_SCHEMA.field("properties").type)
