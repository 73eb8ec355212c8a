"""Bulk work by either code against record by record: same batches, same recovery."""

from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.endings import Ending
from formats.message.build import build_blank, pack
from formats.message.read import SCHEDULE_TOPIC, End, Record
from rmqtool.kernels.load.library import Implementation
from rmqtool.store.disk.segments import Segments
from rmqtool.store.dispatch import batch as dispatch
from rmqtool.store.dispatch import bulk as bulk_dispatch
from rmqtool.store.dispatch import reading
from rmqtool.store.dispatch.batch import BatchBuilder, DelayLevels, RecordBatch
from rmqtool.store.dispatch.reading import recovery_batches, reput_batches
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log import scan
from rmqtool.store.recovery.command import plan, recover
from tests import goldens
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.formats.strategies import a_record, examples, many_examples, records
from tests.store.bulk_samples import LEVELS, agree, drained, positioned, rows_of, same_puts
from tests.store.compiled import compiled_way
from tests.store.helpers import conf_of, content

pytestmark = pytest.mark.slow


@by_turns(3)
@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("case", goldens.cases())
def test_golden_logs_are_dispatched_the_same(golden: Unpacked, case: str, light: bool) -> None:
    folder = golden(case) / "commitlog"
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        agree(path.read_bytes(), light=light, levels=[] if light else None)


NAMES = [
    b"TAGS",
    b"KEYS",
    b"UNIQ_KEY",
    b"DELAY",
    b"INNER_MULTI_DISPATCH",
    b"INNER_MULTI_QUEUE_OFFSET",
    b"INNER_BASE",
    b"INNER_NUM",
    b"TAG",
    b"KEYSX",
]
TEXTS = [
    b"",
    b"a",
    b"TagA",
    b"k1 k2  k3 ",
    b" ",
    b"x\x01y",
    b"3",
    b"-3",
    b"12345678",
    b"%LMQ%a,b",
    b"1,2",
    b"Aa",
    b"BB",
]
TEXTS += ["café".encode(), "订单 退款 付款".encode(), "𝄞x😀 y".encode(), "k\u00fcrzel-\u4e2d\U0001d11e".encode()]
TEXTS += [
    b"\xff",
    b"ab\xc0\xafcd",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xe0\x80\xaf",
    b"\xf0\x8f\xbf\xbf",
    b"abc\xe4\xbd",
]
TEXTS += [b"\x80", b"\xc2", b"polygenelubricants", b"long enough for two words of eight", "ÿ߿ࠀ￿\U0010ffff".encode()]
texts = st.one_of(
    st.sampled_from(TEXTS), st.binary(max_size=20), st.text(max_size=12).map(lambda t: t.encode("utf-8", "replace"))
)
items = st.one_of(
    st.tuples(st.sampled_from(NAMES), texts).map(b"\x01".join),
    st.binary(max_size=8),
    st.sampled_from(NAMES),
)
some_properties = st.lists(items, max_size=7).map(b"\x02".join)
topics = st.one_of(
    st.sampled_from([b"TopicA", b"TopicB", SCHEDULE_TOPIC, "主题".encode(), b"\xff\xfe", b"%LMQ%q"]),
    st.binary(min_size=1, max_size=30),
)


@many_examples
@given(
    st.lists(
        st.builds(
            a_record,
            topic=topics,
            properties=some_properties,
            sys_flag=st.sampled_from([0, 4, 8, 12, 0x400]),
            queue_id=st.integers(-1, 3),
            store_timestamp=st.sampled_from([0, 1_700_000_000_123, -5, 2**63 - 1, -(2**63)]),
        ),
        max_size=8,
    ),
    st.booleans(),
    st.sampled_from([[], LEVELS]),
)
def test_any_properties_are_dispatched_the_same(found: list[Record], light: bool, levels: list[int]) -> None:
    agree(b"".join(map(pack, found)), light=light, levels=levels)


NUMBERS = [b"0", b"7", b"-1", b"+3", b"0032767", b"32768", b"-32768", b"-32769", b"", b"-", b"1 ", b"x"]
NUMBERS += [b"%d" % (sign * 2**63 + more) for sign in (1, -1) for more in (-1, 0, 1)]
NUMBERS += [b"0" * 62 + b"5", b"0" * 63 + b"5", b"9" * 63, b"\xd9\xa3", b"1\x012"]


@pytest.mark.parametrize("base", NUMBERS)
def test_numbers_of_batches_are_read_the_same(base: bytes) -> None:
    both = [b"INNER_NUM\x01" + count + b"\x02INNER_BASE\x01" + base for count in NUMBERS]
    both += [b"INNER_BASE\x01" + base, b"INNER_BASE\x019\x02INNER_NUM\x012\x02INNER_BASE\x01" + base + b"\x02"]
    made = [a_record(topic=b"T%d" % (n % 2), properties=text, queue_offset=n) for n, text in enumerate(both)]
    assert agree(b"".join(map(pack, made))) == len(made)


def test_units_of_batches() -> None:
    text = b"INNER_NUM\x0111\x02INNER_BASE\x0140"
    made = [a_record(queue_offset=n, properties=text if n in (1, 2) else b"INNER_NUM\x013") for n in range(4)]
    raw = positioned(made)
    (batch,), _end = drained(recovery_batches(memoryview(raw), 0, len(raw), BatchBuilder(DelayLevels([]))))
    at = batch.physical_offset.tolist()
    for start, rows in ((0, [0, 1, 2, 3]), (at[1], [1, 2, 3]), (at[3], [3])):
        ((_row, puts),) = batch.since(start).puts()
        expected = [(40, 11) if row in (1, 2) else (row, 1) for row in rows]
        names = ["physical_offset", "base_queue_offset", "batch_size", "compacted_offset", "reserved"]
        units = puts.batch_units()[names].tolist()
        assert units == [(at[row], *numbers, -1, 0) for row, numbers in zip(rows, expected, strict=True)]


@examples
@given(st.lists(records(), max_size=6))
def test_any_records_are_dispatched_the_same(found: list[Record]) -> None:
    agree(b"".join(map(pack, found)), light=True)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", ["TAGS", "KEYS", "UNIQ_KEY"])
def test_each_text_is_hashed_the_same(text: bytes, name: str) -> None:
    for topic in (b"TopicA", "主题".encode(), b"\xff"):
        raw = pack(a_record(topic=topic, properties=name.encode() + b"\x01" + text))
        assert agree(raw + raw) == 2


@pytest.mark.parametrize("name", [b"TAGS", b"KEYS", b"UNIQ_KEY"])
def test_texts_of_every_length_are_found_and_hashed_the_same(name: bytes) -> None:
    """Wherever a text begins and ends, alone or among others, with properties parsed in one pass or several."""
    made: list[Record] = []
    for length in range(140):
        text = bytes(ord("a") + i % 26 for i in range(length))
        alone = name + b"\x01" + text
        among = alone, b"x" * length + b"\x02" + alone + b"\x02\x03", alone + b"\x02" + name + b"\x01\x03z\x02"
        spaces = b" ".join((text, text[length // 2 :], b"", b"k"))
        odd = {text[:at] + "é".encode() + text[at:] for at in (0, length // 3, length - 1) if 0 <= at < length}
        items = *among, *(name + b"\x01" + each for each in (spaces, *sorted(odd)))
        made += [a_record(topic=b"T", body=b"", properties=properties) for properties in items]
    assert agree(b"".join(map(pack, made))) == len(made)


def test_topics_that_differ_anywhere_are_told_apart() -> None:
    names = set()
    for length in range(1, 28):
        name = b"T" * length
        names |= {name, *(name[:at] + b"t" + name[at + 1 :] for at in range(length))}
    made = [a_record(topic=name, body=b"", properties=b"KEYS\x01k") for name in sorted(names)] * 2
    assert agree(b"".join(map(pack, made))) == len(made)


def test_the_hash_without_a_positive_counterpart_is_zero_both_ways() -> None:
    raw = pack(a_record(topic=b"TopicA", properties=b"KEYS\x01arrfujvk"))
    assert agree(raw) == 1
    (batch,), _end = drained(bulk_dispatch.batches(memoryview(raw), 0, len(raw), BatchBuilder(DelayLevels([]))))
    assert batch.key_hash.tolist() == [0]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_batches_may_be_cut_anywhere(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(bulk_dispatch, "BATCH_RECORDS", rows)
    monkeypatch.setattr(scan, "ROWS", 2)
    made = [
        a_record(topic=b"T%d" % (i % 3), properties=b"KEYS\x01a b%d\x02TAGS\x01" % i + b"\xff" * (i % 2))
        for i in range(9)
    ]
    assert agree(b"".join(map(pack, made))) == 9


def test_a_text_is_found_wherever_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_WINDOW", 64)
    for at in range(190):
        data = bytearray(200)
        data[at : at + 10] = b"INNER_BASE"
        assert scan.holds(memoryview(bytes(data[:200])), b"INNER_BASE")
        assert not scan.holds(memoryview(bytes(data[:200])), b"INNER_BASF")
    assert not scan.holds(memoryview(b""), b"INNER_BASE")


def test_very_many_keys_end_a_batch_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_dispatch, "BATCH_RECORDS", 8)
    raw = pack(a_record(properties=b"KEYS\x01" + b"k " * 16380)) * 5
    view = memoryview(raw)
    read_batches, _end = drained(bulk_dispatch.batches(view, 0, len(raw), BatchBuilder(DelayLevels([]))))
    assert [len(batch) for batch in read_batches] == [1] * 5
    assert agree(raw) == 5


def test_many_topics_keep_apart() -> None:
    made = [a_record(topic=b"topic-%d" % (i * 7919 % 997), properties=b"KEYS\x01k") for i in range(2000)]
    assert agree(b"".join(map(pack, made))) == 2000


def test_a_log_goes_the_compiled_way_when_it_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "BULK_BYTES", 1000)
    good = pack(a_record()) * 10
    wrong = pack(a_record()._replace(total_size=150, topic=b"OrderEvents"))
    for raw in (
        good + build_blank(20) + bytes(12),
        good + bytes(5000),
        good + wrong + good + bytes(2000),
        good + pack(a_record())[:-4],
    ):
        results = []
        for bulk in (True, False):

            def large(_view: memoryview, at: int, limit: int, *, bulk: bool = bulk) -> bool:
                return bulk and limit - at > 1000

            monkeypatch.setattr(reading, "is_bulk", large)
            builder = BatchBuilder(DelayLevels(LEVELS))
            batches, end = drained(recovery_batches(memoryview(raw), 0, len(raw), builder))
            two, reached = drained(reput_batches(memoryview(raw), 0, len(raw), builder))
            assert reading.check_records(memoryview(raw), 0, len(raw)) == (end, rows_of(batches)[-1][4])
            results.append((rows_of(batches), end, rows_of(two), reached))
        assert results[0] == results[1]


def test_a_large_unwritten_file_is_not_large() -> None:
    size = dispatch.BULK_BYTES + 5000
    view = memoryview(pack(a_record()) * 100 + bytes(size))
    assert not dispatch.is_bulk(view, 0, len(view))
    assert dispatch.is_bulk(memoryview(b"\x01" * size), 0, size)
    assert not dispatch.is_bulk(memoryview(b"\x01" * size), 10_000, size)


def test_very_many_queues_are_told_apart_all_the_same() -> None:
    def batch_of(ids: list[int]) -> RecordBatch:
        raw = positioned([a_record(queue_id=number, queue_offset=number) for number in ids])
        (batch,), _end = drained(bulk_dispatch.batches(memoryview(raw), 0, len(raw), BatchBuilder(DelayLevels([]))))
        same_puts(batch, RecordBatch(*batch[:-1]))
        return batch

    few, many = batch_of([3, -5, 3, 65_530]), batch_of([3, -5, 3, 65_531])
    assert few.groups is not None
    assert many.groups is None
    assert [len(puts) for _row, puts in few.puts()] == [len(puts) for _row, puts in many.puts()] == [1, 2, 1]


def test_rows_are_told_apart_by_queue() -> None:
    random = np.random.default_rng(5)
    for ids in (3, 2**31 - 1):
        many = [
            a_record(topic=b"T%d" % (i % 4), queue_id=int(random.integers(0, ids)), sys_flag=int(random.choice([0, 4])))
            for i in range(300)
        ]
        raw = b"".join(map(pack, many))
        (batch,), _end = drained(recovery_batches(memoryview(raw), 0, len(raw), BatchBuilder(DelayLevels([]))))
        groups: dict[tuple[int, int], list[int]] = {}
        for row in np.flatnonzero(batch.queued).tolist():
            groups.setdefault((int(batch.topic[row]), int(batch.queue_id[row])), []).append(row)
        assert [rows.tolist() for rows in batch.by_queue()] == [groups[key] for key in sorted(groups)]
    assert (
        RecordBatch(
            *[np.zeros(0, np.int64)] * 6,
            np.zeros(0, bool),
            np.zeros(0, np.int64),
            [],
            *[np.zeros(0)] * 2,
            [],
            dispatch.NO_NUMBERS,
        ).by_queue()
        == []
    )


@by_turns(13)
@pytest.mark.parametrize("case", goldens.cases())
def test_recovery_is_the_same_in_bulk(golden_copy: Unpacked, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for way, code in (
        (nullcontext(Counter[str]()), Implementation.COMPILED),
        (compiled_way(), Implementation.PLAIN),
        (compiled_way(), Implementation.COMPILED),
    ):
        monkeypatch.setenv("RMQTOOL_KERNELS", code.value)
        with way:
            store = golden_copy(case)
            report = recover(StoreLayout(str(store), conf_of(case))).to_dict()
            for name in ("store", "backup", "actions"):
                report.pop(name)
            for name in ("refusals", "nextSteps", "unloaded", "warnings"):
                report[name] = [text.replace(str(store), "") for text in report[name]]
            results.append((report, content(store)))
            assert plan(StoreLayout(str(store), conf_of(case))).actions == []
    assert results[0] == results[1] == results[2]


@by_turns(2)
@pytest.mark.parametrize("case", goldens.cases())
def test_the_compiled_way_dispatches_where_something_is_dispatched(golden_copy: Unpacked, case: str) -> None:
    """Only in a broker's start, which compares nothing with the log."""
    with compiled_way() as gone:
        report = recover(StoreLayout(str(golden_copy(case)), conf_of(case)), exactly=True)
    assert bool(gone["block"]) == bool(report.messagesRedispatched)
    assert bool(gone["keys"]) == bool(report.indexEntriesAdded)


def test_a_scan_gives_all_rows_and_the_end(tmp_path: Path) -> None:
    raw = b"".join(pack(a_record(physical_offset=i)) for i in range(5000))
    (tmp_path / f"{0:020d}").write_bytes(raw + bytes(10_000))
    (file,) = Segments.of([str(tmp_path)])
    rows, end = drained(scan.scan(file.view(), 0, file.size))  # type: ignore[arg-type]
    assert isinstance(end, End)
    assert (end.ending, end.at) == (Ending.UNWRITTEN, len(raw))
    assert sum(part.rows.records for part in rows) == 5000


def test_without_compiled_code_files_are_read_record_by_record(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reading.Readahead().in_columns
    assert reading.Readahead(Implementation.PLAIN).in_columns  # whoever asks for it has a reason
    monkeypatch.setenv("RMQTOOL_KERNELS", "plain")
    assert not reading.Readahead().in_columns
