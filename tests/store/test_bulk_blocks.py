"""Large files are read in blocks by several threads: same batches, wherever blocks end."""

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.message.build import pack
from formats.message.read import Record, read
from rmqtool.kernels.scan import Walker
from rmqtool.store.dispatch import bulk as bulk_dispatch
from rmqtool.store.dispatch import reading
from rmqtool.store.dispatch.batch import BatchBuilder, DelayLevels, RecordBatch
from rmqtool.store.dispatch.reading import recovery_batches
from rmqtool.store.log import scan
from tests import goldens
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.formats.strategies import a_record, examples, records
from tests.store.bulk_samples import MAGIC, agree, drained, positioned, rows_of, same_puts

BASE = 1 << 40
SIZES = [1, 64, 333, 5000]


@by_turns(13)
@pytest.mark.parametrize("size", [150, 5000])
@pytest.mark.parametrize("case", goldens.cases())
def test_golden_logs_are_the_same_in_blocks_of_any_size(
    golden: Unpacked, monkeypatch: pytest.MonkeyPatch, case: str, size: int
) -> None:
    monkeypatch.setattr(bulk_dispatch, "BLOCK_BYTES", size)
    folder = golden(case) / "commitlog"
    for path in sorted(folder.iterdir())[:2] if folder.is_dir() else ():
        agree(path.read_bytes()[: 40_000 if size < 1000 else None])


@examples
@given(st.lists(records(), max_size=8), st.integers(1, 700), st.integers(0, 3), st.binary(max_size=90))
def test_any_records_are_the_same_in_blocks_of_any_size(
    made: list[Record], size: int, ending: int, behind: bytes
) -> None:
    raw = positioned(made, BASE)
    tail = [b"", behind, bytes(200), raw][ending]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_dispatch, "BLOCK_BYTES", size)
        agree(raw + tail, light=True)


@pytest.mark.parametrize("size", range(150, 1000, 77))
def test_a_record_in_a_body_is_no_record_in_any_block(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """It has its correct position, and blocks begin before it."""
    monkeypatch.setattr(bulk_dispatch, "BLOCK_BYTES", size)
    before = positioned([a_record(topic=b"T")] * 3)
    hollow = pack(a_record(topic=b"Outer", body=bytes(2000)))
    inner_at = len(before) + hollow.index(bytes(2000)) + 20
    inner = positioned([a_record(topic=b"Inner")] * 12, inner_at)
    outer = a_record(topic=b"Outer", body=bytes(20) + inner + bytes(10), physical_offset=len(before))
    raw = before + pack(outer)
    raw += positioned([a_record(topic=b"T")] * 4, len(raw))
    assert raw.startswith(inner, inner_at)
    assert agree(raw) == 8
    assert agree(raw, crc=False) == 8


@pytest.mark.parametrize("size", SIZES)
def test_blocks_end_where_the_log_does(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Intact records after damage are ignored, whichever block they are in."""
    monkeypatch.setattr(bulk_dispatch, "BLOCK_BYTES", size)
    raw = positioned([a_record(topic=b"T", body=b"body %d" % number * 9) for number in range(20)])
    starts = [at for at in range(len(raw)) if raw.startswith(MAGIC, at + 4)]
    assert len(starts) == 20
    for number in (0, 1, 7, 19):
        broken = bytearray(raw)
        broken[starts[number] + 100] ^= 0xFF  # in the body
        assert agree(bytes(broken)) == number
    assert agree(positioned([a_record()] * 9)[:-1]) == 8


@pytest.mark.parametrize("size", SIZES)
def test_records_that_say_no_position_are_found_in_order(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(bulk_dispatch, "BLOCK_BYTES", size)
    assert agree(b"".join(pack(a_record(physical_offset=5, queue_offset=number)) for number in range(30))) == 30


def test_a_record_may_be_longer_than_blocks_and_than_what_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_dispatch, "BLOCK_BYTES", 600)
    monkeypatch.setattr(bulk_dispatch, "_SEARCHED", 100)
    made = [a_record(body=bytes(size)) for size in (10, 5000, 0, 300, 2999, 1)]
    assert agree(positioned(made, BASE)) == 6


def test_nobody_reads_on_when_no_more_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_dispatch, "BLOCK_BYTES", 200)
    raw = positioned([a_record()] * 500)
    before = threading.active_count()
    read_batches = bulk_dispatch.batches(memoryview(raw), 0, len(raw), BatchBuilder(DelayLevels([])))
    next(read_batches)
    assert threading.active_count() > before
    read_batches.close()
    assert threading.active_count() == before


def test_what_a_batch_lies_in_serves_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_dispatch, "BLOCK_BYTES", 900)
    monkeypatch.setattr(bulk_dispatch, "BATCH_RECORDS", 8)
    made = [a_record(topic=b"T%d" % (n % 3), properties=b"KEYS\x01k%d" % n, queue_offset=n) for n in range(300)]
    view, plain = memoryview(positioned(made)), BatchBuilder(DelayLevels([]))
    expected, _end = drained(recovery_batches(view, 0, len(view), plain))
    rows, rooms = [], []
    for batch in bulk_dispatch.batches(view, 0, len(view), plain):
        rows += rows_of([batch])
        same_puts(batch, RecordBatch(*batch[:-1]))
        rooms.append(batch.room)
        batch.release()
    assert rows == rows_of(expected)
    assert len(set(map(id, rooms))) < len(rooms) / 2


def test_the_next_file_is_begun_with_before_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_dispatch, "BLOCK_BYTES", 700)
    monkeypatch.setattr(reading, "is_bulk", lambda *_args, **_named: True)
    monkeypatch.setattr(bulk_dispatch, "is_bulk", lambda *_args: True)
    files = [memoryview(positioned([a_record(body=bytes(n))] * 30)) for n in (5, 50, 500)]
    plain, before = BatchBuilder(DelayLevels([])), threading.active_count()
    readahead, asked = reading.Readahead(), list[int]()
    for number, view in enumerate(files):

        def following(number: int = number) -> tuple[memoryview, int] | None:
            asked.append(number)
            return (files[number + 1], len(files[number + 1])) if number < 2 else None

        batches = recovery_batches(view, 0, len(view), plain, readahead=readahead, following=following)
        first = next(batches)
        rest, end = drained(batches)
        begun = readahead.reader(plain, crc=True)._next
        assert begun is None if number == 2 else begun is not None and begun.view is files[number + 1] and begun.pending
        expected, expected_end = drained(recovery_batches(view, 0, len(view), plain))
        assert rows_of([first, *rest]) == rows_of(expected)
        assert end == expected_end
    assert asked == [0, 1, 2]
    assert threading.active_count() > before
    readahead.close()
    assert threading.active_count() == before


def test_behind_damage_the_next_file_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_dispatch, "BLOCK_BYTES", 200)
    monkeypatch.setattr(reading, "is_bulk", lambda *_args, **_named: True)
    monkeypatch.setattr(bulk_dispatch, "is_bulk", lambda *_args: True)
    broken = bytearray(positioned([a_record()] * 3))
    broken[len(broken) // 3 + 4] ^= 1  # of the second magic
    views, before = [memoryview(bytes(broken)), memoryview(positioned([a_record()] * 500))], threading.active_count()
    readahead = reading.Readahead()
    plain = BatchBuilder(DelayLevels([]))
    read_batches, end = drained(
        recovery_batches(
            views[0], 0, len(broken), plain, readahead=readahead, following=lambda: (views[1], len(views[1]))
        )
    )
    assert sum(map(len, read_batches)) == end.at // (len(broken) // 3) < 3
    readahead.close()
    assert threading.active_count() == before


def test_what_a_kernel_does_not_take_the_plain_reader_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Like a record being written while it is read; here every one after the third."""
    raw = positioned([a_record(properties=b"KEYS\x01k")] * 9)
    behind = 3 * (len(raw) // 9)
    bounded = Walker.bound
    monkeypatch.setattr(Walker, "bound", lambda self, at, limit, stop=None: min(bounded(self, at, limit, stop), behind))
    assert agree(raw) == 9
    rows, end = drained(scan.scan(memoryview(raw), 0, len(raw)))
    assert sum(part.rows.records for part in rows) == 9
    assert end == read(raw, len(raw), len(raw))


def test_what_fails_in_a_block_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: Any) -> Any:
        raise MemoryError("none left")

    raw = positioned([a_record(properties=b"KEYS\x01\xff")] * 20)
    monkeypatch.setattr(bulk_dispatch.BulkBuilder, "_add_plain", fail)
    with pytest.raises(MemoryError, match="none left"):
        drained(bulk_dispatch.batches(memoryview(raw), 0, len(raw), BatchBuilder(DelayLevels([]))))
