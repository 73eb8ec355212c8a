"""Messages of batches as rows: in the plain and compiled reader, in a dump, and with conditions."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from formats.message.bodies import BatchItem, build_batch
from formats.message.inner import messages_in
from formats.primitives import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from rmqtool.analytics.ranges.splits import plan
from rmqtool.analytics.source.filter import Condition
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.column_reader import ColumnReader
from rmqtool.analytics.table.inner import MOST
from rmqtool.analytics.table.row_reader import BatchLimits, RowReader
from rmqtool.analytics.table.schema import MESSAGE_SCHEMA
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.analytics.table.views import VIEW_SCHEMA
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests import goldens
from tests.amounts import by_turns, some
from tests.analytics.helpers import record, store_of
from tests.analytics.reading import read
from tests.conftest import Unpacked

INNER = INNER_BATCH | NEED_UNWRAP
BATCH = build_batch([BatchItem(n, b"body %d" % n, b"KEYS\1k%d\2TAGS\1t" % n) for n in range(5)])
_TWICE, _NO_TEXT = b"KEYS\1a\2KEYS\1b", b"TAGS\1\xff"
ODD = build_batch([BatchItem(0, b"\0", _TWICE), BatchItem(-1, b"", _NO_TEXT), BatchItem(7, b"x" * 999, b"")])
MANY = build_batch([BatchItem(0, b"", b"")] * (MOST + 10))
BODIES = [
    (b"plain", 0), (BATCH, INNER), (b"plain too", 0), (ODD, INNER), (BATCH, INNER), (BATCH, INNER_BATCH), (b"", INNER),
    (BATCH[:-1], INNER), (BATCH, INNER | COMPRESSED), (BATCH, NEED_UNWRAP), (MANY, INNER), (b"last", 0),
]  # fmt: skip
CHOICES = [
    MessageChoice(),
    MessageChoice(keys=("k3", "b")),
    MessageChoice(tags=("t",), queue_start=3, queue_stop=9),
    MessageChoice(queues=(1,), start=1000),
    MessageChoice(topics=("Nothing",)),
]


def log_with(folder: Path) -> CommitLog:
    """A log with these bodies."""
    data = b""
    for number, (body, sys_flag) in enumerate(BODIES):
        data += record("T", len(data), number=number, body=body, sys_flag=sys_flag, queue_offset=10 * number)
    return CommitLog(store_of(folder, data))


def by(
    reader: Any, schema: pa.Schema, log: CommitLog, choice: MessageChoice, size: int
) -> tuple[list[dict[str, Any]], SplitTally]:
    tally = SplitTally()
    rows = []
    for split in plan(log)[0]:
        for batch in reader(schema, choice, tally, BatchLimits(size)).read(
            split.segment(), split.start, split.stop, last=split.last
        ):
            rows += pa.Table.from_batches([batch]).cast(MESSAGE_SCHEMA).to_pylist()
    return rows, tally


def same_by_all(log: CommitLog, choice: MessageChoice, size: int) -> list[dict[str, Any]]:
    """Check that all readers give the same rows; returns them."""
    rows, tally = by(RowReader, MESSAGE_SCHEMA, log, choice, size)
    for schema in (MESSAGE_SCHEMA, VIEW_SCHEMA):
        others, other = by(ColumnReader, schema, log, choice, size)
        assert others == rows
        assert other == tally
    assert tally.rows == len(rows)
    return rows


@by_turns(13)
@pytest.mark.parametrize("choice", CHOICES, ids=range(len(CHOICES)))
@pytest.mark.parametrize("size", [8 << 20, some(3000, 300)])
def test_readers_divide_alike(choice: MessageChoice, size: int, tmp_path: Path) -> None:
    log = log_with(tmp_path)
    rows = same_by_all(log, choice, size)
    expected = [
        (message.queue_offset, message.flag, message.body, message.sys_flag, message.body_crc)
        for item in log.walk()
        if isinstance(item, LocatedRecord)
        for message in messages_in(item.record)
        if choice.has(message, item.physical_offset)
    ]
    names = ("queueOffset", "flag", "body", "sysFlag", "bodyCrc")
    assert [tuple(row[name] for name in names) for row in rows if row["bodyError"] is None] == [
        row for row in expected if not row[3] & COMPRESSED
    ]
    assert sum(row["bodyError"] is not None for row in rows) == sum(bool(row[3] & COMPRESSED) for row in expected)


def test_how_many_there_are(tmp_path: Path) -> None:
    rows = same_by_all(log_with(tmp_path), MessageChoice(), 8 << 20)
    per_record: dict[int, int] = {}
    for row in rows:
        per_record[row["physicalOffset"]] = per_record.get(row["physicalOffset"], 0) + 1
    assert list(per_record.values()) == [1, 5, 1, 3, 5, 5, 1, 1, 1, 1, MOST + 10, 1]


@pytest.mark.parametrize("case", ["broker-5.3.3", "broker-5.3.3-crash"])
def test_every_way_has_the_messages_of_batches(case: str, golden: Unpacked, tmp_path: Path) -> None:
    root = golden(case)
    rows = same_by_all(CommitLog(StoreLayout(str(root))), MessageChoice(topics=("BatchQueue",)), 4000)
    assert len(rows) == 43
    names = ["queueId", "queueOffset", "physicalOffset", "keys", "tags", "body"]
    expected = [{name: row[name] for name in names} for row in rows]
    conditions: list[dict[str, Any]] = [
        {},
        {"topic": "BatchQueue"},
        {"topic": "BatchQueue", "queueId": 0},
        {"topic": "BatchQueue", "key": "bq-2-7"},
    ]
    for condition in conditions:
        options = {name: str(value) for name, value in condition.items()}
        got, _counters = read(root, columns=["topic", *names], **options)
        asked = [{name: row[name] for name in names} for row in got if row["topic"] == "BatchQueue"]
        key = condition.get("key")
        assert asked == [
            row
            for row in expected
            if condition.get("queueId") in (None, row["queueId"]) and (key is None or key in row["keys"])
        ]
    by_id, _counters = read(root, [Condition("msgId", "in", [rows[5]["msgId"]])])
    assert rows[5]["keys"] in [row["keys"] for row in by_id]  # others go once the condition is looked at
    units, _counters = read(root, table="queues", splitBytes="1")
    assert [(row["queueId"], row["queueOffset"], row["batchNum"]) for row in units if row["topic"] == "BatchQueue"] == [
        (row["cqQueueId"], row["cqOffset"], row["batchNum"])
        for row in goldens.messages("broker-5.3.3")
        if row["cqType"] == "BatchCQ"
    ]
