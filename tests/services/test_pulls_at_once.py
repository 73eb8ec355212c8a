"""A pull whose records are read at once is the pull whose records are read one by one."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from rmqtool.services.lookup.get_message import physical_memory, select
from rmqtool.services.opened.engine import Store
from rmqtool.services.serving.reading import Reading
from rmqtool.store.append.create import create
from rmqtool.store.append.outgoing import Message
from rmqtool.store.disk.segments import Segments
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.queues.reader import ConsumeQueue

_LOG_FILE, _QUEUE_FILE = 1 << 18, 20 * 50
_SIZES = [0, 1, 100, 2_000, 9_000, 60_000, 130_000]  # of bodies: answers end for their number, and for their bytes
_MESSAGES = 400


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Two queues whose messages take several files of the log, and several of each queue."""
    conf = {"mappedFileSizeCommitLog": str(_LOG_FILE), "mappedFileSizeConsumeQueue": str(_QUEUE_FILE)}
    create(str(tmp_path / "store"), BrokerConf(conf))
    random = Random(1)
    with Store(str(tmp_path / "store"), write=True, broker_conf=conf, engine="4.9") as opened:
        for number in range(_MESSAGES):
            size = random.choice(_SIZES) if number % 100 > 60 else 90
            opened.append(Message(topic="T", queue_id=number % 2, body=bytes(size)))
        opened.dispatch()
        yield opened


def _agree(reading: Reading) -> set[tuple[str, int]]:
    """Compare the pulls of all offsets; what they gave: status and number of messages."""
    seen = set()
    memory = physical_memory() * 40 // 100
    for queue_id in (0, 1):
        queue = reading.queue("T", queue_id)
        assert isinstance(queue, ConsumeQueue)
        for offset in [*range(-1, 80), *range(queue.max_offset - 80, queue.max_offset + 2)]:
            for most in (1, 5, 32, 1_000):
                # all messages in memory, none, and some
                for log_end in (reading.end, reading.end + memory, reading.end // 2 + memory):
                    asked = reading.log, queue, offset, most, reading.record
                    one_by_one = select(*asked, log_end=log_end)
                    assert select(*asked, log_end=log_end, read_all=reading.records) == one_by_one
                    seen.add((one_by_one.status, len(one_by_one.messages)))
    return seen


def test_a_healthy_store(store: Store) -> None:
    seen = _agree(Reading(store))

    assert {count for status, count in seen if status == "FOUND"} >= {1, 2, 5, 8, 32}
    assert {status for status, _count in seen} >= {"OFFSET_OVERFLOW_ONE", "OFFSET_TOO_SMALL"}


@pytest.mark.parametrize("seed", range(6))
def test_records_that_are_not_what_their_entries_say(store: Store, seed: int) -> None:
    random = Random(seed)
    reading = Reading(store)
    for queue_id in (0, 1):
        queue = reading.queue("T", queue_id)
        assert isinstance(queue, ConsumeQueue)
        for offset in random.sample(range(queue.max_offset), 8):
            entry = queue.entry(offset)
            assert entry is not None
            file = reading.log.segments.find(entry.physical_offset)
            assert file is not None
            at = entry.physical_offset - file.base + random.choice([0, 3, 4, 7, 28, 35])
            with open(file.path, "r+b") as damaged:  # size, magic, or the offset that it says of itself
                damaged.seek(at)
                damaged.write(bytes([file.mapped()[at] ^ 0x55]))
            assert reading.record(entry.physical_offset, entry.size) is None
            assert reading.records([entry[1:4]]) is None

    assert ("FOUND", 32) in _agree(reading)


def test_a_file_of_the_log_that_is_missing(store: Store) -> None:
    reading = Reading(store)
    segments = reading.log.segments
    reading.log.segments = Segments([segments.files[0], *segments.files[2:]], [])

    assert ("FOUND", 32) in _agree(reading)
