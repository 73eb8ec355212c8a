"""Narrowed reads miss nothing in stores whose times, queues or index cannot be trusted."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.analytics.source.filter import Condition
from rmqtool.analytics.source.read import Counters
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.repair.rebuild import rebuild
from tests.amounts import by_turns, every, some
from tests.analytics.reading import moment, read
from tests.analytics.stores import CONF, MESSAGES, time_of

COLUMNS = ["topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "msgId", "keys"]
_AT_TIME = 56  # of the store time in a record whose born host is IPv4


def records(root: Path) -> list[Any]:
    return [item for item in CommitLog(StoreLayout(str(root))).walk() if isinstance(item, LocatedRecord)]


def set_times(root: Path, times: list[int]) -> None:
    """Set the store times of the messages, in log order."""
    changed: dict[str, bytearray] = {}
    for item, time in zip(records(root), times, strict=True):
        data = changed.setdefault(item.file.path, bytearray(Path(item.file.path).read_bytes()))
        data[item.at + _AT_TIME : item.at + _AT_TIME + 8] = time.to_bytes(8, "big")
    for path, data in changed.items():
        Path(path).write_bytes(data)


def two_dumps(root: Path, chance: random.Random) -> None:
    """Store the second half before the first, as after importing two dumps."""
    half = MESSAGES // 2
    set_times(root, [time_of(n) for n in (*range(half, MESSAGES), *range(half))])


def shuffled(root: Path, chance: random.Random) -> None:
    times = [time_of(n) for n in range(MESSAGES)]
    chance.shuffle(times)
    set_times(root, times)


def one_that_strayed(root: Path, chance: random.Random) -> None:
    times = [time_of(n) for n in range(MESSAGES)]
    times[chance.randrange(MESSAGES)] = 5
    times[chance.randrange(MESSAGES)] = time_of(2 * MESSAGES)
    set_times(root, times)


def damaged(root: Path, chance: random.Random) -> None:
    shuffled(root, chance)
    for path in (root / "commitlog").iterdir():
        data = bytearray(path.read_bytes())
        for _flip in range(3):
            data[chance.randrange(len(data) // 2)] ^= 1 << chance.randrange(8)
        path.write_bytes(data)


def queue_deleted(root: Path, chance: random.Random) -> None:
    shutil.rmtree(root / "consumequeue" / f"topic-{chance.randrange(50):02d}" / "1")


def queue_begins_late(root: Path, chance: random.Random) -> None:
    """Delete the first file of each queue before the log's."""
    for queue in (root / "consumequeue").glob("*/*"):
        min(queue.iterdir()).unlink()


def queue_renamed(root: Path, chance: random.Random) -> None:
    (root / "consumequeue" / "topic-07").rename(root / "consumequeue" / "topic-99")


def queue_copied_over_another(root: Path, chance: random.Random) -> None:
    shutil.rmtree(root / "consumequeue" / "topic-07" / "1")
    shutil.copytree(root / "consumequeue" / "topic-07" / "0", root / "consumequeue" / "topic-07" / "1")


def no_queues(root: Path, chance: random.Random) -> None:
    shutil.rmtree(root / "consumequeue")


def no_index(root: Path, chance: random.Random) -> None:
    shutil.rmtree(root / "index")


def index_was_off_for_a_while(root: Path, chance: random.Random) -> None:
    """Use an index that lacks messages in the middle, as with messageIndexEnable=false."""
    from rmqtool.store.index.reader import IndexView, open_index

    bare = root.with_name("bare")
    shutil.copytree(root, bare)
    skipped = records(bare)[4000:16_000]
    changed: dict[str, bytearray] = {}
    for item in skipped:  # without keys, and without an id
        data = changed.get(item.file.path) or bytearray(Path(item.file.path).read_bytes())
        changed[item.file.path] = data
        at = data.index(b"KEYS\x01", item.at)
        end = item.at + item.record.total_size
        data[at:end] = data[at:end].replace(b"KEYS", b"KEYX").replace(b"UNIQ_KEY", b"UNIQ_KEX")
    for path, data in changed.items():
        Path(path).write_bytes(data)
    shutil.rmtree(bare / "index")
    rebuild(StoreLayout(str(bare), CONF), ("index",))
    shutil.rmtree(root / "index")
    shutil.move(bare / "index", root / "index")
    shutil.rmtree(bare)
    assert all(isinstance(file, IndexView) for file in open_index(StoreLayout(str(root), CONF)))


KINDS = [
    two_dumps, shuffled, one_that_strayed, damaged, queue_deleted, queue_begins_late, queue_renamed,
    queue_copied_over_another, no_queues, no_index, index_was_off_for_a_while,
]  # fmt: skip


@by_turns(4)
@pytest.mark.parametrize("change", every(5, list(KINDS)))
def test_a_narrow_read_has_every_row_of_a_whole_one(
    change: Callable[[Path, random.Random], None], day: StoreLayout, tmp_path: Path
) -> None:
    chance = random.Random(change.__name__)
    root = tmp_path / "store"
    shutil.copytree(day.root, root)
    change(root, chance)
    whole, _counters = read(root, columns=COLUMNS, through="log")

    def check(conditions: list[Condition], keep: Callable[[dict[str, Any]], bool]) -> Counters:
        record, counters = read(root, conditions, COLUMNS)
        kept = sorted(row["physicalOffset"] for row in record if keep(row))
        assert kept == [row["physicalOffset"] for row in whole if keep(row)], conditions
        return counters

    for _time in range(some(1, 3)):
        low = time_of(chance.randrange(MESSAGES))
        first, after = moment(low), moment(low + 3_600_000)
        check([Condition("storeTimestamp", "<", first)], lambda row, to=first: row["storeTimestamp"] < to)
        check([Condition("storeTimestamp", ">=", first)], lambda row, at=first: row["storeTimestamp"] >= at)
        check(
            [Condition("storeTimestamp", ">=", first), Condition("storeTimestamp", "<", after)],
            lambda row, at=first, to=after: at <= row["storeTimestamp"] < to,
        )
    for topic in ("topic-07", f"topic-{chance.randrange(50):02d}", "topic-99"):
        check([Condition("topic", "=", topic)], lambda row, topic=topic: row["topic"] == topic)
        check(
            [Condition("topic", "=", topic), Condition("queueId", "=", 1), Condition("queueOffset", ">=", 90)],
            lambda row, topic=topic: row["topic"] == topic and row["queueId"] == 1 and row["queueOffset"] >= 90,
        )
    for number in (chance.randrange(4000, 16_000), 7, 19_907):
        check([Condition("keys", "has", f"k{number}")], lambda row, key=f"k{number}": key in row["keys"])
        check([Condition("msgId", "=", f"U{number}")], lambda row, key=f"U{number}": row["msgId"] == key)
