"""A store written by another process: new entries are seen at the second look, and only if they lead to a message."""

import struct
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from rmqtool.services.open_store.following import Following
from rmqtool.store.append.create import create
from rmqtool.store.layout.broker_conf import BrokerConf

_CONF = {"mappedFileSizeCommitLog": "16384", "mappedFileSizeConsumeQueue": "200"}  # ten entries a file
_ENTRY = struct.Struct(">qiq")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    create(str(tmp_path / "store"), BrokerConf(_CONF))
    return tmp_path / "store"


def write(path: Path, count: int) -> None:
    with Store(path, write=True, broker_conf=_CONF) as store:
        for number in range(count):
            assert store.append(NewMessage(topic="T", queue_id=0, body=b"x" * 1000, properties={"n": str(number)})).ok


def queue_file(path: Path, number: int) -> Path:
    return path / "consumequeue/T/0" / f"{number // 10 * 200:020d}"


def put(path: Path, number: int, entry: bytes) -> None:
    with open(queue_file(path, number), "r+b") as file:
        file.seek(number % 10 * 20)
        file.write(entry)


def get(path: Path, number: int) -> bytes:
    return queue_file(path, number).read_bytes()[number % 10 * 20 :][:20]


def test_what_comes_is_seen_over_files_that_roll(path: Path) -> None:
    with Store(path, broker_conf=_CONF) as reader:
        reading = Following(reader)
        assert reading.max_offset("T", 0) == 0
        for total in (3, 9, 10, 11, 45):
            write(path, total - reading.max_offset("T", 0))
            grown = [reading.look().grown for _ in range(3)]
            assert reading.max_offset("T", 0) == total
            if total > 3:
                assert [("T", 0)] in grown
            assert reading.look().grown == []
            got = reading.pull("T", 0, total - 1, 32)
            assert (got.status, len(got.messages), got.max_offset) == ("FOUND", 1, total)
        every = [reading.pull("T", 0, number, 1).messages[0] for number in range(45)]
        assert len({bytes(record) for record in every}) == 45


def test_an_entry_is_seen_when_it_was_there_twice(path: Path) -> None:
    write(path, 5)
    whole = get(path, 4)
    put(path, 4, bytes(20))
    with Store(path, broker_conf=_CONF) as reader:
        reading = Following(reader)
        assert reading.max_offset("T", 0) == 4
        put(path, 4, whole)
        reading.look()
        assert reading.max_offset("T", 0) == 4  # it may have been half written at the first look
        reading.look()
        assert reading.max_offset("T", 0) == 5


def test_an_entry_without_its_message_is_not_seen(path: Path) -> None:
    write(path, 5)
    physical, size, tags = _ENTRY.unpack(get(path, 4))
    put(path, 5, _ENTRY.pack(physical + size, 400, tags))  # in the log, nothing is there yet
    with Store(path, broker_conf=_CONF) as reader:
        reading = Following(reader)
        assert reading.max_offset("T", 0) == 5
        for _ in range(3):
            reading.look()
        assert reading.max_offset("T", 0) == 5


def test_a_queue_that_was_cut_is_seen_shorter(path: Path) -> None:
    write(path, 9)
    with Store(path, broker_conf=_CONF) as reader:
        reading = Following(reader)
        assert reading.max_offset("T", 0) == 9
        for number in range(5, 9):
            put(path, number, bytes(20))
        assert ("T", 0) in reading.look().grown
        assert reading.max_offset("T", 0) == 5


def test_files_that_are_removed_move_the_beginning(path: Path) -> None:
    write(path, 45)
    with Store(path, broker_conf=_CONF) as reader:
        reading = Following(reader)
        assert reading.min_offset("T", 0) == 0
        sorted((path / "commitlog").iterdir())[0].unlink()
        queue_file(path, 0).unlink()
        assert reading.look().files
        low = reading.min_offset("T", 0)
        assert low > 10
        assert reading.pull("T", 0, 0, 1).status == "OFFSET_TOO_SMALL"
        assert reading.pull("T", 0, low - 1, 1).status == "OFFSET_TOO_SMALL"
        assert reading.pull("T", 0, low, 1).status == "FOUND"
        assert reading.max_offset("T", 0) == 45


def test_a_queue_that_is_gone_is_empty(path: Path) -> None:
    write(path, 5)
    with Store(path, broker_conf=_CONF) as reader:
        reading = Following(reader)
        assert reading.max_offset("T", 0) == 5
        queue_file(path, 0).unlink()
        queue_file(path, 0).parent.rmdir()
        assert ("T", 0) in reading.look().grown
        assert reading.max_offset("T", 0) == 0
