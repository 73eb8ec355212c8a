"""A locally mapped file that is fetched in parts."""

import os

import pytest

from rmqtool.analytics.remote.mirror import BLOCK, Mirror
from rmqtool.errors import RmqError, UnreadableStore


class Fetched:
    """A file, and the fetched ranges."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.ranges: list[tuple[int, int]] = []

    def fetch(self, start: int, stop: int) -> bytes:
        self.ranges.append((start, stop))
        return self.data[start:stop]


def test_parts_are_fetched_when_they_are_needed() -> None:
    file = Fetched(os.urandom(BLOCK * 100 + 7))
    mirror = Mirror(len(file.data), file.fetch)
    assert mirror[:] == bytes(len(file.data))
    mirror.need(BLOCK + 5, BLOCK + 6)
    mirror.need(BLOCK, 2 * BLOCK)
    assert file.ranges == [(BLOCK, 2 * BLOCK)]
    assert mirror[BLOCK : 2 * BLOCK] == file.data[BLOCK : 2 * BLOCK]
    # a reader that goes on gets twice as much each time
    mirror.need(2 * BLOCK, 2 * BLOCK + 1)
    mirror.need(4 * BLOCK, 4 * BLOCK + 1)
    assert file.ranges[1:] == [(2 * BLOCK, 4 * BLOCK), (4 * BLOCK, 8 * BLOCK)]
    mirror.need(99 * BLOCK, 1 << 40)
    assert file.ranges[3:] == [(99 * BLOCK, len(file.data))]
    for nothing in ((5, 5), (1 << 40, 1 << 41), (-9, -3), (9, 3)):
        mirror.need(*nothing)
    assert len(file.ranges) == 4
    # what was dropped behind a reader is fetched again when it is needed
    mirror.forget(BLOCK + 1, 5 * BLOCK)
    assert mirror[BLOCK : 2 * BLOCK] == file.data[BLOCK : 2 * BLOCK]
    assert mirror[2 * BLOCK : 5 * BLOCK] == bytes(3 * BLOCK)
    mirror.need_all([(2 * BLOCK, 2 * BLOCK + 1), (4 * BLOCK, 4 * BLOCK + 1), (50 * BLOCK, 50 * BLOCK + 1)])
    assert sorted(file.ranges[4:]) == [(2 * BLOCK, 5 * BLOCK), (50 * BLOCK, 51 * BLOCK)]
    mirror.need_whole()
    mirror.forget(0, len(file.data))
    assert mirror[:] == file.data


def test_zeros_take_no_room_and_are_fetched_once() -> None:
    file = Fetched(bytes(BLOCK * 64) + b"x" * BLOCK + bytes(BLOCK * 64))
    mirror = Mirror(len(file.data), file.fetch)
    mirror.need(0, len(file.data))
    assert os.fstat(mirror._fd).st_blocks * 512 <= 2 * BLOCK
    mirror.forget(0, len(file.data))
    mirror.need(0, len(file.data))
    assert file.ranges == [(0, len(file.data)), (64 * BLOCK, 65 * BLOCK)]
    assert mirror[:] == file.data


def test_what_fails_is_told_of_all_that_are_fetched_together() -> None:
    def fetch(start: int, stop: int) -> bytes:
        raise UnreadableStore(f"bytes {start} to {stop}")

    with pytest.raises(RmqError, match=r"^bytes 0 to"):
        Mirror(BLOCK * 5000, fetch).need_whole()
