"""What a log holds by place, time, topic, queue and size: each number equals that of a plain walk."""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from rmqtool.services.usage import contents as module
from rmqtool.services.usage.contents import CELLS, INTERVALS, ROWS, Contents, measure_contents
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from tests import damage
from tests.amounts import some
from tests.conftest import Unpacked
from tests.services.build import TIME, Builder, log_of

STORES = ("broker", "ipv6", "broker-5.3.3", "broker-5.5.0", "size-field-negative", "head-file-deleted", "large-bodies")
DAY = 86_400_000


def walked(log: CommitLog) -> list[LocatedRecord]:
    return [item for item in log.walk(crc=False) if isinstance(item, LocatedRecord)]


def name_of(item: LocatedRecord) -> str:
    return item.record.topic.decode("utf-8", "surrogateescape")


def same_as_a_walk(log: CommitLog, contents: Contents) -> None:
    """Compare every number with a plain walk of the log."""
    items = walked(log)
    messages, sizes, queues, by_time = Counter[str](), Counter[str](), Counter[Any](), Counter[Any]()
    by_size: dict[int, list[int]] = {}
    outside = 0
    for item in items:
        count, topic = sum(1 for _message in item.messages()), name_of(item)
        messages[topic] += count
        sizes[topic] += item.record.total_size
        queues[topic, item.record.queue_id] += count
        interval = (item.record.store_timestamp - (contents.begin or 0)) // contents.span
        if 0 <= interval < contents.messages_by_time.shape[1]:
            by_time[topic, interval] += count
        else:
            outside += count
        at_most = min(1 << bits for bits in range(32) if 1 << bits >= item.record.total_size)
        by_size.setdefault(at_most, [0, 0])
        by_size[at_most][0] += count
        by_size[at_most][1] += item.record.total_size
    names = [topic for topic, *_sums in contents.topics]
    assert {topic: sums for topic, *sums in contents.topics} == {
        topic: [messages[topic], sizes[topic]] for topic in sizes
    }
    assert {(names[number], queue): count for (number, queue), count in contents.queues.items()} == queues
    assert {key: [*sums] for key, sums in contents.sizes.items()} == by_size
    assert contents.outside == outside
    rows, columns = np.nonzero(contents.messages_by_time)
    assert {
        (names[row], column): int(contents.messages_by_time[row, column])
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
    } == by_time
    assert contents.bytes_by_time.sum() == sum(
        item.record.total_size
        for item in items
        if 0 <= (item.record.store_timestamp - (contents.begin or 0)) // contents.span < contents.bytes_by_time.shape[1]
    )
    same_map(log, contents, items)


def same_map(log: CommitLog, contents: Contents, items: list[LocatedRecord]) -> None:
    """Each byte of each record is in the cell that its offset is in."""
    names = [topic for topic, *_sums in contents.topics]
    damages = [item for item in log.walk(crc=False) if isinstance(item, Damage)]
    assert contents.damaged == len(damages)
    assert sum(row.files for row in contents.rows) == len(log.segments.files)
    assert sum(row.damaged for row in contents.rows) == sum(item.length for item in damages)
    for row in contents.rows:
        inside = [item for item in items if row.begin <= item.physical_offset < row.end]
        assert row.messages == sum(1 for item in inside for _message in item.messages())
        assert row.bytes == sum(item.record.total_size for item in inside)
        times = [item.record.store_timestamp for item in inside]
        assert [row.first_time, row.last_time] == ([times[0], times[-1]] if times else [None, None])
        length = -(-(row.end - row.begin) // CELLS)
        used = Counter[tuple[int, str]]()
        for item in inside:
            for at in range(item.physical_offset - row.begin, item.end - row.begin):
                used[min(at // length, CELLS - 1), name_of(item)] += 1
        for number, cell in enumerate(row.cells):
            wanted = {topic: size for (at, topic), size in used.items() if at == number}
            assert sum(size for _topic, size in cell.topics) + cell.others == sum(wanted.values())
            assert all(wanted[names[topic]] == size for topic, size in cell.topics)
            first = [item for item in inside if (item.physical_offset - row.begin) // length == number]
            assert cell.time == (first[0].record.store_timestamp if first else None)


@pytest.mark.parametrize("case", STORES)
def test_real_stores(case: str, golden: Unpacked) -> None:
    log = log_of(golden(case))
    contents = measure_contents(log)
    assert contents.topics
    same_as_a_walk(log, contents)


@pytest.mark.parametrize("seed", range(some(6, 40)))
def test_damaged_stores(seed: int, golden_copy: Unpacked) -> None:
    rng = Random(seed)
    store = golden_copy(rng.choice(("clean", "broker-5.3.3")))
    for _ in range(rng.randint(1, 3)):
        verb = rng.choice((damage.zero_log_range, damage.garbage_in_log, damage.zero_record, damage.other_size,
                           damage.tear_last_record, damage.lose_blank))  # fmt: skip
        verb(rng, store)
    log = log_of(store)
    same_as_a_walk(log, measure_contents(log))


def built(tmp_path: Path, times: list[int]) -> CommitLog:
    builder = Builder()
    for number, time in enumerate(times):
        builder.put(f"T{number % 3}", store_timestamp=time)
    return log_of(builder.write(tmp_path))


@pytest.mark.parametrize("span", [1, 700, 40_000, 3_600_000, 9 * DAY, 250 * DAY, 400 * DAY])
def test_intervals_grow_with_the_log(span: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a block of few records at a time: intervals are merged while the log is read
    rng = Random(span)
    times = sorted(TIME + rng.randrange(100 * span) for _ in range(300))
    log = built(tmp_path, times)
    monkeypatch.setattr(module, "_find_newest_time", lambda _files: times[-1])
    contents = measure_contents(log)
    assert (contents.outside > 0) == (span == 400 * DAY)  # longer than the longest intervals reach
    assert 0 < contents.messages_by_time.shape[1] <= INTERVALS
    same_as_a_walk(log, contents)


def test_times_that_cannot_be_are_outside(tmp_path: Path) -> None:
    log = built(tmp_path, [TIME, TIME + 5000, 1 << 61, 0, -5, TIME + 9000])
    contents = measure_contents(log)
    assert (contents.outside, contents.span, contents.begin) == (3, 1000, TIME)
    same_as_a_walk(log, contents)


def test_many_files_share_rows(tmp_path: Path) -> None:
    builder = Builder()
    for number in range(500):
        builder.put(f"T{number % 3}", body=bytes(400))
    store = builder.write(tmp_path)
    log = store / "commitlog"
    whole = (log / f"{0:020d}").read_bytes()
    (log / f"{0:020d}").unlink()
    size = 2500
    for at in range(0, len(whole), size):  # records cross files, which is damage; files are what is counted here
        (log / f"{at:020d}").write_bytes(whole[at : at + size])
    contents = measure_contents(log_of(store))
    assert len(contents.rows) <= ROWS
    assert max(row.files for row in contents.rows) == 3
    assert sum(row.files for row in contents.rows) == len([*log.iterdir()])
    same_as_a_walk(log_of(store), contents)


def test_an_empty_log(tmp_path: Path) -> None:
    contents = measure_contents(log_of(Builder().write(tmp_path)))
    assert (contents.topics, contents.begin, contents.messages_by_time.shape[1]) == ([], None, 0)
    assert [row.messages for row in contents.rows] == [0]
