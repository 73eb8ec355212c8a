"""Compaction log and queue."""

import pytest

from formats.endings import Ending
from formats.errors import Truncated
from formats.message.build import append_crc, pack, verify_crc
from formats.message.read import End, Record
from formats.queues import batch
from formats.variants import compaction
from formats.versions import V5_3
from tests.formats.strategies import a_record


def test_file_sizes_are_those_of_the_defaults() -> None:
    assert compaction.queue_file_size() == 10_485_746
    assert compaction.log_file_size() == 104_857_460


@pytest.mark.parametrize(
    ("log", "queue", "expected"),
    [
        (131_072, 4_600, 128_800),  # of the golden stores: a little over a multiple
        (4_600, 460, 5_060),  # of the compacted one: a multiple itself
        (4_600 + 229, 460, 4_600),
        (4_600 + 230, 460, 5_060),
        (1_000, 460, 2_300),
    ],
)
def test_a_log_file_is_as_long_as_some_files_of_its_queue(log: int, queue: int, expected: int) -> None:
    assert compaction.log_file_size(log, queue) == expected


def test_a_queue_size_below_one_entry_does_not_divide() -> None:
    assert compaction.log_file_size(1000, 45) == 1000


@pytest.mark.parametrize("address", [bytes(4), bytes(16)])
def test_a_record_moves_with_its_body_checksum_but_not_with_the_whole_records(address: bytes) -> None:
    record = a_record(born_address=address)
    raw = compaction.move_record(append_crc(pack(record)), 12345)
    unit = compaction.read_record(raw, 0, len(raw))

    assert isinstance(unit, Record)
    assert unit.physical_offset == 12345
    assert compaction.move_record(pack(record), record.physical_offset) == pack(record)
    assert verify_crc(raw) is False
    assert compaction.entry_for(unit, 12345, 7) == (12345, unit.total_size, 7, 1700000000123, 41, 1, -1, 0)


def test_what_is_shorter_than_a_head_does_not_move() -> None:
    with pytest.raises(Truncated):
        compaction.move_record(bytes(35), 0)


def test_a_log_that_was_closed_without_a_blank_ends_unwritten() -> None:
    raw = pack(a_record()) + bytes(100)
    end = compaction.read_record(raw, 176, len(raw))

    assert isinstance(end, End)
    assert end.ending is Ending.UNWRITTEN


def test_a_queue_that_was_rolled_early_ends_with_an_end_unit() -> None:
    entry = compaction.entry_for(a_record(), 0, 0)
    raw = batch.build([entry, batch.END_UNIT]) + bytes(92)

    assert compaction.read_entry(raw, 0, len(raw)) == entry
    end = compaction.read_entry(raw, 46, len(raw))
    assert not isinstance(end, batch.BatchEntry)
    assert end.ending is Ending.FILLER


def test_positions_as_a_broker_writes_them() -> None:
    raw = b'{\n\t"empty":false,\n\t"queueOffsetMap":{\n\t\t"A_b_0":53\n\t}\n}'
    body = compaction.CompactionPositions.parse(raw)

    assert body.of("A_b", 0) == 53
    assert body.of("A_b", 1) == -1
    assert body.build(V5_3) == raw
