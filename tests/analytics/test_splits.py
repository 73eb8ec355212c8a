"""Wherever a log is split, the parts add up to the whole, including hostile content and damage."""

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from formats.message.build import build_blank
from rmqtool.analytics.dump.tasks import reconcile
from rmqtool.analytics.ranges.splits import Split, plan
from rmqtool.analytics.table.arrow import batches
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, walk_file
from rmqtool.store.log.records import next_record
from tests.amounts import by_turns
from tests.analytics.helpers import log_of, record, store_of
from tests.conftest import Unpacked

Item = tuple[int, bool]
CASES = ["crash", "magic-broken-last-file", "size-field-negative", "torn-header", "body-bit-flip-last-file"]


def items_of(file: Any, start: int, stop: int, last: bool) -> list[Item]:
    return [(item.at, isinstance(item, Damage)) for item in walk_file(file, start, stop, last=last)]


@by_turns(13)
@pytest.mark.parametrize(
    ("case", "step"),
    [
        ("torn-header", 1),
        *((case, 17) for case in CASES),
        *(pytest.param(case, 1, marks=pytest.mark.slow) for case in CASES if case != "torn-header"),
    ],
)
def test_a_walk_cut_anywhere_is_the_whole_walk(case: str, step: int, golden: Unpacked) -> None:
    log = CommitLog(StoreLayout(str(golden(case))))
    file = log.segments.files[3]
    last = file is log.segments.files[-1]
    view = file.view()
    whole = items_of(file, 0, file.size, last)
    behind: dict[int, list[Item]] = {}
    # a walk up to a cut is one up to the cut before it and a little more: only its end is walked each time
    for cut in range(1, file.size, step):
        begun = [at for at, _damaged in whole if at < cut]
        sure = begun[max(len(begun) - 3, 0)]
        first = next_record(view, file.base, cut, file.size)
        if first not in behind:
            behind[first] = items_of(file, first, file.size, last)
        before = [item for item in whole if item[0] < sure] + items_of(file, sure, cut, last)
        assert before + behind[first] == whole, cut


@pytest.mark.parametrize("case", CASES)
def test_ranges_of_a_log_meet_without_loss(case: str, golden: Unpacked) -> None:
    log = CommitLog(StoreLayout(str(golden(case))))
    end = log.segments.files[-1].end
    whole = [(item.physical_offset, type(item)) for item in log.walk()]
    for step in (7919, 30_011, 49_152):
        parts = [log.walk(at, min(at + step, end)) for at in range(0, end, step)]
        assert [(item.physical_offset, type(item)) for part in parts for item in part] == whole


def read_split(split: Split) -> tuple[list[tuple[str, int]], SplitTally]:
    tally = SplitTally()
    rows = [
        (row["sourceFile"], row["fileOffset"])
        for batch in batches(split, MessageChoice(), tally)
        for row in batch.select(["sourceFile", "fileOffset"]).to_pylist()
    ]
    return rows, tally


def read_in_splits(layout: StoreLayout, size: int) -> tuple[list[tuple[str, int]], list[Damage], int]:
    """Rows and damage of a log read in splits, reconciled as by a dump, and the number of splits read again."""
    splits, _unusable = plan(CommitLog(layout), split_bytes=size)
    done = {split.number: read_split(split) for split in splits}
    count = 0
    while True:
        again, empty = reconcile(splits, lambda split: done[split.number][1])
        if not again and not empty:
            break
        for split in empty:
            done[split.number] = [], SplitTally(first=split.stop, next=split.stop)
        for split in again:
            count += 1
            splits[split.number] = split
            done[split.number] = read_split(split)
    tallies = [tally for _rows, tally in done.values()]
    return [row for rows, _tally in done.values() for row in rows], [d for t in tallies for d in t.damage], count


def body_with_a_record() -> bytes:
    """A message whose body is a record with the right position, between two others."""
    first = record("A", 0)
    outer_at = len(first)
    inner_at = outer_at + 88
    inner = record("inner", inner_at, body=b"i" * 50)
    outer = record("outer", outer_at, body=inner)
    return first + outer + record("B", outer_at + len(outer))


def old_records_behind_a_blank() -> bytes:
    """A file whose end was rewritten after a crash, with old records still after its blank."""
    old = log_of(["old"] * 10)
    new = log_of(["new", "new"], body=b"x" * 40)
    return new + build_blank(len(old) - len(new)) + old[len(new) + 8 :]


def moved() -> bytes:
    """A renamed file: all records have wrong positions."""
    return log_of(["T"] * 6, base=5_000_000)


def holes() -> bytes:
    """Damage of every kind: broken magic, zeros, broken body, and two of them in a row."""
    data = bytearray(log_of(["T"] * 12))
    size = len(data) // 12
    data[size + 4] ^= 1
    data[3 * size : 4 * size] = bytes(size)
    data[5 * size + 90] ^= 1
    data[7 * size + 90] ^= 1
    data[8 * size + 4] ^= 1
    data[11 * size + 5] ^= 1
    return bytes(data)


@by_turns(3)
@pytest.mark.parametrize("build", [body_with_a_record, old_records_behind_a_blank, moved, holes])
def test_splits_of_hostile_logs_are_the_whole_log(build: Callable[[], bytes], tmp_path: Path) -> None:
    layout = store_of(tmp_path, build(), log_of(["last"], base=len(build())), size=len(build()) + 30)
    whole, damage, count = read_in_splits(layout, 1 << 30)
    assert count == 0
    assert [item for item in CommitLog(layout).walk() if isinstance(item, Damage)] == damage
    repaired = 0
    for size in [*range(9, 200), 300, 511, 1000]:
        rows, result, count = read_in_splits(layout, size)
        assert rows == whole, size
        assert result == damage, size
        repaired += count
    if build is body_with_a_record:
        assert repaired


def test_plan(tmp_path: Path) -> None:
    log = CommitLog(store_of(tmp_path, bytes(100), bytes(100), bytes(30)))

    def ranges(*args: Any) -> list[tuple[int, int, int, bool, bool]]:
        splits, unusable = plan(log, *args)
        assert not unusable
        assert [split.number for split in splits] == list(range(len(splits)))
        return [(s.base, s.start, s.stop, s.exact, s.last) for s in splits]

    assert ranges() == [(0, 0, 100, True, False), (100, 0, 100, True, False), (200, 0, 30, True, True)]
    assert ranges(None, None, 64)[:2] == [(0, 0, 64, True, False), (0, 64, 100, False, False)]
    assert ranges(50, 110) == [(0, 50, 100, False, False), (100, 0, 10, True, False)]
    assert ranges(100, 200) == [(100, 0, 100, True, False)]
    assert ranges(230, None) == ranges(0, 0) == []


def test_a_file_beyond_any_offset_is_damage(tmp_path: Path) -> None:
    layout = store_of(tmp_path, log_of(["T"]))
    (Path(layout.root) / "commitlog" / "99999999999999999999").write_bytes(bytes(10))
    splits, unusable = plan(CommitLog(layout))
    assert len(splits) == 1
    assert [(item.at, item.length) for item in unusable] == [(0, 10)]


@pytest.mark.parametrize("behind", [0, 1])
def test_what_was_never_written_is_no_task_of_its_own(tmp_path: Path, behind: int) -> None:
    layout = store_of(tmp_path, log_of(["A"] * 300))
    (path,) = (tmp_path / "store").rglob("00000000000000000000")
    written = path.stat().st_size
    os.truncate(path, 1 << 20)
    if behind:
        with path.open("r+b") as file:
            file.seek((1 << 20) - 1)
            file.write(b"x")
    splits, _unusable = plan(CommitLog(layout), split_bytes=10_000)
    assert [split.start for split in splits] == list(range(0, 1 << 20 if behind else written, 10_000))[: len(splits)]
    assert all(first.stop == second.start for first, second in pairwise(splits))
    assert splits[-1].stop == 1 << 20
    assert len(splits) == 105 if behind else -(-written // 10_000) <= len(splits) <= -(-(written + 4096) // 10_000)
    assert len(read_in_splits(layout, 10_000)[0]) == 300
