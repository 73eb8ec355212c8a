"""Compiled and plain decoding give the same batches, tallies and positions, whatever is in the log."""

import subprocess
import sys
import zlib
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.message.build import build_blank, pack
from formats.message.read import Record
from formats.primitives import COMPRESSED
from rmqtool.analytics.ranges.splits import plan
from rmqtool.analytics.table import arrow
from rmqtool.analytics.table.arrow import batches
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.column_reader import ColumnReader
from rmqtool.analytics.table.row_reader import BatchLimits, RowReader
from rmqtool.analytics.table.schema import MESSAGE_SCHEMA, schema_of
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.analytics.table.views import VIEW_SCHEMA, has_views, memory_of
from rmqtool.errors import BadValue
from rmqtool.kernels.arrow import gather, offset_ids
from rmqtool.kernels.tables.messages import ID_SPACE, Texts
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.records import next_record
from rmqtool.store.log.returning import Returning
from tests import goldens
from tests.amounts import by_turns, every
from tests.analytics.helpers import TIME, log_of, record, store_of
from tests.analytics.test_splits import body_with_a_record, holes, moved, old_records_behind_a_blank
from tests.conftest import Unpacked
from tests.formats.strategies import a_record, many_examples, records

ALL = MessageChoice()
LARGE = BatchLimits(8 << 20)


def read(
    kind: type[RowReader] | type[ColumnReader],
    file: Segment,
    start: int,
    stop: int,
    *,
    last: bool = True,
    choice: MessageChoice = ALL,
    columns: list[str] | None = None,
    limits: BatchLimits = LARGE,
    schema: pa.Schema | None = None,
) -> tuple[list[pa.RecordBatch], SplitTally]:
    tally = SplitTally(first=start)
    reader = Returning(kind(schema or schema_of(columns), choice, tally, limits).read(file, start, stop, last=last))
    result, tally.next = [*reader], reader.value
    return result, tally


def agree(file: Segment, start: int = 0, stop: int | None = None, **options: Any) -> int:
    """Compare both decoders; returns the number of rows."""
    stop = file.size if stop is None else stop
    plain, expected = read(RowReader, file, start, stop, **options)
    fast, tally = read(ColumnReader, file, start, stop, **options)
    assert [batch.num_rows for batch in fast] == [batch.num_rows for batch in plain]
    for first, second in zip(fast, plain, strict=True):
        first.validate(full=True)
        assert first.schema.equals(second.schema)
        if not first.equals(second):
            for name in first.schema.names:
                assert first.column(name).to_pylist() == second.column(name).to_pylist(), name
            raise AssertionError("equal values in unequal columns")
    assert tally == expected
    if options.get("columns") is None:
        viewed, tally = read(ColumnReader, file, start, stop, schema=VIEW_SCHEMA, **options)
        assert tally == expected
        for first, second in zip(viewed, fast, strict=True):
            first.validate(full=True)
            assert has_views(first.schema)
            assert memory_of(first) == second.nbytes
            assert copied(first).equals(second)
    return tally.rows


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with body views copied."""
    columns = [column.cast(kind) for column, kind in zip(batch, MESSAGE_SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=MESSAGE_SCHEMA)


@pytest.fixture(scope="module")
def file_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], Segment]:
    """Creates a file with bytes."""
    folder = tmp_path_factory.mktemp("files")
    numbers = count()

    def make(data: bytes) -> Segment:
        path = folder / str(next(numbers))
        path.write_bytes(data)
        return Segment(str(path), 0, len(data), 0)

    return make


File = Callable[[bytes], Segment]


@by_turns(13)
@pytest.mark.parametrize("case", every(4, goldens.cases()))
def test_every_golden_log(case: str, golden: Unpacked) -> None:
    log = CommitLog(StoreLayout(str(golden(case))))
    rows = 0
    for file in log.segments.files:
        last = file is log.segments.files[-1]
        rows += agree(file, last=last)
        agree(file, last=last, limits=BatchLimits(1000, 7))
        for start in range(5000, file.size, 20_011):
            at = next_record(file.view(), file.base, start, min(start + 20_011, file.size))
            agree(file, at, min(start + 20_011, file.size), last=last)
    assert rows or not any(any(file.view()) for file in log.segments.files)


@pytest.mark.parametrize("name", MESSAGE_SCHEMA.names)
def test_each_column_alone(name: str, golden: Unpacked) -> None:
    for case in ("broker", "body-bit-flip-last-file", "ipv6"):
        for file in CommitLog(StoreLayout(str(golden(case)))).segments.files:
            assert agree(file, last=True, columns=[name]) or not any(file.view())


@pytest.mark.parametrize(
    "choice",
    [
        MessageChoice(topics=("Order*", "none")),
        MessageChoice(tags=("paid", "\udcff", "created")),
        MessageChoice(keys=("order-10", "user-3")),
        MessageChoice(keys=("user-3",), tags=("created",), topics=("*",)),
        MessageChoice(queues=(1, 2), queue_start=1, queue_stop=5),
        MessageChoice(since=0, until=2**62),
        MessageChoice(start=4000, stop=30_000),
        MessageChoice(since=2**70),
    ],
)
def test_choices(choice: MessageChoice, golden: Unpacked) -> None:
    files = CommitLog(StoreLayout(str(golden("broker")))).segments.files
    rows = sum(agree(file, choice=choice, columns=["physicalOffset", "tags"]) for file in files)
    if choice.since != 2**70:
        assert 0 < rows < sum(agree(file) for file in files) or choice.since == 0


def test_a_choice_by_text(file_of: File) -> None:
    properties = b"TAGS\x01x\x02TAGS\x01y\x02KEYS\x01 a  b \x02\xff\x01z"
    file = file_of(record("T", 0, properties=properties))
    for choice, number in (
        (MessageChoice(tags=("y",)), 1),
        (MessageChoice(tags=("x",)), 0),
        (MessageChoice(keys=("b",)), 1),
        (MessageChoice(keys=("",)), 0),
        (MessageChoice(keys=("z",)), 0),
    ):
        assert agree(file, choice=choice) == number


def half_moved() -> bytes:
    """Records with wrong positions, followed by records with right ones."""
    data = log_of(["T"] * 6, base=5_000_000)
    for number in range(4):
        data += record("U", len(data), number=number)
    return data


@pytest.mark.parametrize("build", [body_with_a_record, old_records_behind_a_blank, moved, half_moved, holes])
def test_hostile_logs_cut_anywhere(build: Callable[[], bytes], file_of: File) -> None:
    data = build() + bytes(40)
    file = file_of(data)
    for size in (61, 97, 130, 301, 5000):
        for start in range(0, len(data), size):
            stop = min(start + size, len(data))
            at = start and next_record(file.view(), 0, start, stop)
            for last in (True, False):
                agree(file, at, stop, last=last)


names = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"b", b"\xe9", b"\xff", "名".encode(), b""])
values = st.one_of(
    st.sampled_from([b"", b"v", b"a b", b" ", b"\xff", "标签 二".encode(), b"x\x01y"]), st.binary(max_size=20)
)
items = st.lists(st.tuples(names, st.sampled_from([b"\x01", b""]), values), max_size=8)
properties = st.builds(
    lambda parts, end: b"\x02".join(b"".join(part) for part in parts) + end, items, st.sampled_from([b"", b"\x02"])
)


@many_examples
@given(drawn=st.lists(st.tuples(records(), st.none() | properties, st.booleans()), min_size=1, max_size=6))
def test_any_records(file_of: File, drawn: list[tuple[Any, bytes | None, bool]]) -> None:
    data = b""
    for made, own, squeezed in drawn:
        changes: dict[str, Any] = {} if own is None else {"properties": own}
        if squeezed:
            body = zlib.compress(made.body)
            changes |= {"body": body, "sys_flag": made.sys_flag | COMPRESSED}
        fields = {name: getattr(made, name) for name in _COMPOSED} | changes
        data += pack(a_record(**fields, version=made.version))
    file = file_of(data + build_blank(64))
    assert agree(file) == len(drawn)
    agree(file, limits=BatchLimits(200, 3, 150))
    agree(file, columns=["msgId", "properties", "bodyLength"])


_COMPOSED = [name for name in Record._fields if name not in ("total_size", "magic", "body_crc", "body_length")]


@many_examples
@given(drawn=st.lists(properties, min_size=1, max_size=4))
def test_any_properties(file_of: File, drawn: list[bytes]) -> None:
    file = file_of(b"".join(record("T", 0, properties=each) for each in drawn))
    assert agree(file, columns=["msgId", "tags", "keys", "properties"]) == len(drawn)


def test_very_many_properties(file_of: File) -> None:
    many = b"\x02".join(b"%d\x01x" % (number % 300) for number in range(3000))
    short = b"\x02".join(b"%c\x01x" % (33 + number % 90) for number in range(8000))
    file = file_of(b"".join(record("T", 0, properties=each) for each in (many, short, b"a\x01b")))
    assert agree(file) == 3


def test_bodies_that_grow_fill_batches(file_of: File) -> None:
    bomb, odd = zlib.compress(bytes(1 << 16)), b"not zlib"
    data, bodies = b"", [bomb, b"plain", odd, bomb, b"", bomb, b"x" * 70_000, b"y"]
    for number, body in enumerate(bodies * 3):
        data += record("T", len(data), number=number, body=body, sys_flag=COMPRESSED * (body in (bomb, odd, b"")))
    file = file_of(data)
    for limits in (
        BatchLimits(1 << 16),
        BatchLimits(1 << 17),
        BatchLimits(1, 1),
        BatchLimits(1 << 20, 5),
        BatchLimits(1 << 20, 9, 60_000),
    ):
        agree(file, limits=limits)
        agree(file, limits=limits, columns=["bodyError"])
        agree(file, limits=limits, columns=["tags"])
    fast, tally = read(ColumnReader, file, 0, file.size, columns=["topic"], limits=BatchLimits(1 << 20))
    assert (len(fast), tally.not_decompressed) == (1, 0)


def test_more_rows_than_one_step_or_one_batch_has(file_of: File) -> None:
    data = log_of(["A", "B"] * 20)
    file = file_of(data * 100)
    assert agree(file) == 4000
    assert agree(file, limits=BatchLimits(8 << 20, 1000)) == 4000


def test_times_out_of_range_count_where_they_show(file_of: File) -> None:
    file = file_of(record("T", 0, born_timestamp=-1 << 63, store_timestamp=TIME))
    for columns, number in ((None, 1), (["bornTimestamp"], 1), (["storeTimestamp"], 0), (["topic"], 0)):
        agree(file, columns=columns)
        assert read(ColumnReader, file, 0, file.size, columns=columns)[1].times_out_of_range == number


def test_a_split_is_read_either_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (split,), _none = plan(CommitLog(store_of(tmp_path, log_of(["A", "B"]))))
    told = []
    for in_pieces in (True, False):
        monkeypatch.setattr(arrow, "is_entries", lambda _view, in_pieces=in_pieces: in_pieces)
        monkeypatch.setattr(RowReader, "read", lambda self, *args, **options: told.append("plain") or iter(()))
        tally = SplitTally()
        rows = sum(batch.num_rows for batch in batches(split, ALL, tally, compiled=True))
        told.append(rows)
    assert told == ["plain", 0, 2]


def test_a_worker_does_not_load_pandas(tmp_path: Path) -> None:
    """It would take longer than all else at the start of a Spark worker."""
    store_of(tmp_path, log_of(["A", "B"]))
    code = (
        "import sys, pyspark.worker; from rmqtool.analytics.source.tables_source import RocketMQSource as Source; "
        "from pyspark.sql.datasource import CaseInsensitiveDict as Options; "
        f"source = Source(Options({{'path': {str(tmp_path / 'store')!r}}})); reader = source.reader(source.schema()); "
        "count = sum(rows.num_rows for part in reader.partitions() for rows in reader.read(part)); "
        "print(count, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2 False\n"


@pytest.mark.parametrize("columns", [[], ["topic", "topic"], ["Topic"]])
def test_columns_that_there_are_not(columns: list[str], tmp_path: Path) -> None:
    (split,), _none = plan(CommitLog(store_of(tmp_path, log_of(["A"]))))
    with pytest.raises(BadValue, match="each once"):
        list(batches(split, ALL, SplitTally(), columns=columns))


def test_kernels_check_the_room_they_are_given() -> None:
    texts = Texts(np.array([1], np.int64), np.array([5], np.int64))
    with pytest.raises(ValueError, match="do not fit"):
        gather(texts, np.empty(4, np.uint8), np.empty(1, np.int32), 0)
    with pytest.raises(ValueError, match="do not fit"):
        gather(texts, np.empty(9, np.uint8), np.empty(2, np.int32), 0)
    with pytest.raises(ValueError, match="hosts"):
        offset_ids(texts, np.array([0]), np.empty((1, ID_SPACE), np.uint8))
