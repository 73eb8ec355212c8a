"""A pull read by one call equals one read record by record, in compiled and in plain code."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from rmqtool.kernels.load.library import Implementation
from rmqtool.rules.releases import V4_9
from rmqtool.services.lookup.get_message import GetResult, PulledRecords, physical_memory, select
from rmqtool.services.lookup.pull_at_once import PullAtOnce
from rmqtool.services.open_store.opened import read_store
from rmqtool.services.open_store.reading import Reading
from rmqtool.services.open_store.store import Store
from rmqtool.store.append.create import create
from rmqtool.store.append.outgoing import NewMessage
from rmqtool.store.disk.segments import Segments
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.queues.reader import ConsumeQueue
from tests.amounts import by_turns

_LOG_FILE, _QUEUE_FILE = 1 << 18, 20 * 50
_SIZES = [0, 1, 100, 2_000, 9_000, 60_000, 130_000]  # of bodies: answers end for their number, and for their bytes
_MESSAGES = 400


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with two queues that span several log files and several queue files."""
    conf = {"mappedFileSizeCommitLog": str(_LOG_FILE), "mappedFileSizeConsumeQueue": str(_QUEUE_FILE)}
    create(str(tmp_path / "store"), BrokerConf(conf))
    random = Random(1)
    with Store(str(tmp_path / "store"), write=True, broker_conf=conf, release=V4_9) as opened:
        for number in range(_MESSAGES):
            size = random.choice(_SIZES) if number % 100 > 60 else 90
            opened.append(NewMessage(topic="T", queue_id=number % 2, body=bytes(size)))
        opened.dispatch()
        yield opened


@pytest.fixture(params=list(Implementation), ids=lambda code: str(code.value))
def at_once(request: pytest.FixtureRequest) -> PullAtOnce:
    return PullAtOnce(code=request.param)


def joined(result: GetResult[memoryview]) -> PulledRecords:
    """A pull with its records joined."""
    return PulledRecords(*result[:4], len(result.messages), b"".join(result.messages))


def _agree(reading: Reading, at_once: PullAtOnce) -> set[tuple[str, int]]:
    """Compare the pulls at all offsets; returns status and number of messages of those read at once."""
    seen: set[tuple[str, int]] = set()
    memory = physical_memory() * 40 // 100
    for queue_id in (0, 1):
        queue = reading.queue("T", queue_id)
        assert isinstance(queue, ConsumeQueue)
        for offset in [*range(-1, 80), *range(queue.max_offset - 80, queue.max_offset + 2)]:
            for most in (1, 5, 32, 1_000):
                # all messages in memory, none, and some
                for log_end in (reading.end, reading.end + memory, reading.end // 2 + memory):
                    one_by_one = select(reading.log, queue, offset, most, reading.record, log_end=log_end)
                    outcome = at_once.pull(reading.log, queue, offset, most, log_end=log_end, release=None)
                    if outcome is not None:
                        assert outcome == joined(one_by_one)
                        seen.add((outcome.status, outcome.number))
    return seen


def test_a_healthy_store(store: Store, at_once: PullAtOnce) -> None:
    seen = _agree(read_store(store), at_once)

    assert {status for status, _count in seen} == {"FOUND"}
    assert {count for _status, count in seen} >= {1, 2, 5, 8, 32}


@by_turns(3)
@pytest.mark.parametrize("seed", range(6))
def test_records_that_are_not_what_their_entries_say(store: Store, at_once: PullAtOnce, seed: int) -> None:
    random = Random(seed)
    reading = read_store(store)
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
                damaged.write(bytes([file.map()[at] ^ 0x55]))
            assert reading.record(entry.physical_offset, entry.size) is None
            asked = reading.log, queue, offset, 32
            assert at_once.pull(*asked, log_end=reading.end, release=None) is None

    assert ("FOUND", 32) in _agree(reading, at_once)


def test_a_file_of_the_log_that_is_missing(store: Store, at_once: PullAtOnce) -> None:
    reading = read_store(store)
    segments = reading.log.segments
    reading.log.segments = Segments([segments.files[0], *segments.files[2:]], [])

    assert ("FOUND", 32) in _agree(reading, at_once)


def test_what_is_not_read_at_once_is_read_one_by_one(store: Store) -> None:
    reading = read_store(store)
    queue = reading.queue("T", 0)
    assert isinstance(queue, ConsumeQueue)
    outcomes = set()
    for offset in range(-1, queue.max_offset + 2):
        assert reading.pull_records("T", 0, offset, 32) == joined(reading.pull("T", 0, offset, 32))
        filtered = reading.pull_records("T", 0, offset, 32, lambda entry: entry.queue_offset % 3 == 0)
        one_by_one = reading.pull("T", 0, offset, 32, lambda entry: entry.queue_offset % 3 == 0)
        assert filtered == joined(one_by_one)
        outcomes.add(one_by_one.status)
    assert outcomes >= {"FOUND", "OFFSET_OVERFLOW_ONE", "OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY"}


def test_the_settings_limit_an_answer(tmp_path: Path) -> None:
    """MessageStoreConfig.maxTransfer...; RocketMQ's own tests set 1024 messages."""
    sizes = {"mappedFileSizeCommitLog": str(_LOG_FILE), "mappedFileSizeConsumeQueue": str(_QUEUE_FILE)}
    with Store.create(tmp_path / "store", broker_conf=sizes) as opened:
        for _ in range(50):
            opened.append(NewMessage(topic="T", body=bytes(100)))

    def pulled(**settings: str) -> set[int]:
        """How many messages both ways give."""
        with Store(tmp_path / "store", broker_conf=sizes | settings) as store:
            reading = read_store(store)
            at_once = reading.pull_records("T", 0, 0, 1000)
            one_by_one = reading.pull("T", 0, 0, 1000, lambda _entry: True)
            return {at_once.number, len(one_by_one.messages), len(store.get("T", 0, 0, 1000).messages)}

    assert pulled() == {32}
    assert pulled(maxTransferCountOnMessageInMemory="45") == {45}
    assert pulled(maxTransferBytesOnMessageInMemory="1000") == {5}  # of less than 200 bytes
    assert pulled(accessMessageInMemoryMaxRatio="0") == {8}
    assert pulled(accessMessageInMemoryMaxRatio="0", maxTransferCountOnMessageInDisk="9") == {9}
