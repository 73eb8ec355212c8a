"""The records of a pull by compiled and plain code are equal, and never from outside the file."""

from random import Random

import pytest

from formats.layouts.codes import MAGIC_V1, MAGIC_V2
from formats.layouts.derived import CQ_ENTRY, HEAD_V4_V4
from formats.message.read import MIN_SIZE
from rmqtool.kernels.load.library import Implementation
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.pull import puller
from rmqtool.kernels.tables.limit import Limit
from tests.kernels.codes import both

BASE, ROOM = 5_000_000_000, 1 << 14
NEAR, FAR = Limit(ROOM, 32), Limit(2_000, 8)
_HEAD = HEAD_V4_V4.field("total_size", "magic", "physical_offset")


def log_of(random: Random, count: int) -> tuple[bytearray, list[tuple[int, int, int]]]:
    """Bytes with a number of record heads at some distance, and their entries."""
    data, entries = bytearray(), []
    for number in range(count):
        data += random.randbytes(random.choice([0, 0, 7]))
        size = MIN_SIZE + random.choice([0, 50, 150, 700])
        at = len(data)
        data += random.randbytes(size)
        _HEAD.pack_into(data, at, size, random.choice([MAGIC_V1, MAGIC_V2]), BASE + at)
        entries.append((BASE + at, size, number))
    return data, entries


def packed(entries: list[tuple[int, int, int]]) -> bytes:
    return b"".join(CQ_ENTRY.pack(*entry) for entry in entries)


@both
def test_records_of_consecutive_entries(code: Implementation) -> None:
    data, entries = log_of(Random(1), 6)
    count, records = puller(ROOM, code=code).pull(packed(entries[1:5]), Memory(data), BASE, BASE, NEAR, FAR) or (0, b"")
    assert count == 4
    assert records == b"".join(data[at - BASE : at - BASE + size] for at, size, _ in entries[1:5])


@both
def test_the_limits(code: Implementation) -> None:
    data, entries = log_of(Random(2), 40)
    memory, read = Memory(data), puller(1 << 20, code=code)

    def taken(near: Limit, far: Limit, in_memory_from: int) -> int | None:
        result = read.pull(packed(entries), memory, BASE, in_memory_from, near, far)
        return None if result is None else result[0]

    sizes = [size for _at, size, _ in entries]
    assert taken(Limit(1 << 20, 32), FAR, 0) == 32
    assert taken(Limit(1 << 20, 100), FAR, 0) == 40
    assert taken(Limit(sum(sizes[:5]), 32), FAR, 0) == 5
    assert taken(Limit(sum(sizes[:5]) - 1, 32), FAR, 0) == 4
    assert taken(Limit(0, 0), FAR, 0) == 1  # the first goes whatever it is
    assert taken(NEAR, Limit(1 << 20, 8), BASE + len(data)) == 8
    assert taken(Limit(1 << 20, 3), Limit(1 << 20, 8), entries[5][0]) == 5  # there those begin that are in memory


@both
def test_no_more_than_was_thought(code: Implementation) -> None:
    data, entries = log_of(Random(3), 10)
    size = sum(size for _at, size, _ in entries)
    asked = packed(entries), Memory(data), BASE, 0, Limit(1 << 20, 32), FAR
    assert puller(size, code=code).pull(*asked) == (10, b"".join(data[at - BASE :][:n] for at, n, _ in entries))
    assert puller(size - 1, code=code).pull(*asked) is None


_LONGS = [-(1 << 63), -1, 0, BASE - 1, BASE, BASE + 1, (1 << 63) - 1]
_INTS = [-(1 << 31), -1, 0, MIN_SIZE - 1, MIN_SIZE, (1 << 31) - 1]


@both
@pytest.mark.parametrize("at", _LONGS)
@pytest.mark.parametrize("size", _INTS)
def test_an_entry_that_leads_nowhere(code: Implementation, at: int, size: int) -> None:
    data, entries = log_of(Random(4), 3)
    read = puller(ROOM, code=code)
    for place in range(3):
        forged = [*entries[:place], (at, size, 0), *entries[place:]]
        result = read.pull(packed(forged), Memory(data), BASE, 0, NEAR, FAR)
        if place and size > ROOM:  # as large as that, it would not be in this answer anyhow
            assert result is not None
            assert result[0] == place
        else:
            assert result is None
    assert read.pull(CQ_ENTRY.pack(at, size, 0), Memory(b""), BASE, 0, NEAR, FAR) is None


def test_both_say_the_same() -> None:
    """For intact, cut and damaged files, and wrong entries."""
    random = Random(5)
    compiled, plain = puller(ROOM, code=Implementation.COMPILED), puller(ROOM, code=Implementation.PLAIN)
    outcomes = {True: 0, False: 0}
    for _case in range(600):
        data, entries = log_of(random, random.randrange(1, 20))
        if random.random() < 0.3:
            del data[random.randrange(len(data)) :]
        if data and random.random() < 0.3:
            data[random.randrange(len(data))] ^= 0x55
        if random.random() < 0.3:
            wrong = random.randrange(len(entries))
            entries[wrong] = (entries[wrong][0] + random.choice(_LONGS) % 3, random.choice([*_INTS, 200]), 0)
        limits = [Limit(random.choice([0, 500, ROOM, 1 << 40]), random.choice([0, 1, 8, 32])) for _ in range(2)]
        memory = Memory(bytes(data))
        near, far = limits
        begin = random.choice([0, entries[len(entries) // 2][0], 1 << 62])
        outcome = compiled.pull(packed(entries), memory, BASE, begin, near, far)
        assert outcome == plain.pull(packed(entries), memory, BASE, begin, near, far)
        outcomes[outcome is None] += 1
    assert min(outcomes.values()) > 50
