"""Cutting the log at a given message."""

import re
import shutil
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from rmqtool.errors import BadValue, CorruptFile, Refused
from rmqtool.rules.releases import RELEASES
from rmqtool.store.changes.undo import undo
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.reader import queues_of
from rmqtool.store.recovery.command import plan, recover, truncate
from rmqtool.store.repair.rebuild import rebuild
from tests.conftest import Unpacked
from tests.store.findings import check_store
from tests.store.helpers import conf_of, content, entries_of, key_hits, tree

SIZES = {
    "mappedFileSizeCommitLog": "4096",
    "mappedFileSizeConsumeQueue": "200",
    "maxHashSlotNum": "7",
    "maxIndexNum": "40",
}


def layout_of(path: Path) -> StoreLayout:
    return StoreLayout(str(path), BrokerConf(SIZES))


def messages(count: int) -> list[NewMessage]:
    return [
        NewMessage(
            topic="ab"[n % 2],
            queue_id=n % 3,
            body=b"x" * (n % 50),
            keys=f"k{n % 9} u{n}",
            born_timestamp=n,
            store_timestamp=10**12 + n * 1000,
        )
        for n in range(count)
    ]


def made(path: Path, count: int) -> Path:
    with Store.create(path, broker_conf=SIZES) as store:
        store.append_many(messages(count))
    return path


def test_what_is_left_is_what_was_there_before(tmp_path: Path) -> None:
    """Cut at any message, the store equals one in which the rest was never written, and appending works."""
    whole = made(tmp_path / "whole", 60)
    offsets = [located.physical_offset for located in CommitLog(layout_of(whole)).walk()]
    complete = content(whole)
    for count in range(0, 60, 7):
        store = tmp_path / f"s{count}"
        shutil.copytree(whole, store)
        planned = truncate(layout_of(store), offsets[count], dry_run=True)
        done = truncate(layout_of(store), offsets[count])
        assert planned.lost == done.lost
        assert [re.sub(r"index/\d+", "", a) for a in planned.actions] == [
            re.sub(r"index/\d+", "", a) for a in done.actions
        ]
        assert sum(loss.messages for loss in done.lost) == 60 - count
        assert plan(layout_of(store)).clean
        assert [f.code for f in check_store(layout_of(store))] == []
        if count:
            expected = made(tmp_path / f"e{count}", count)
            assert entries_of(layout_of(store)) == entries_of(layout_of(expected))
            for key in ("k3", "u5", "u59"):
                for topic in "ab":
                    assert key_hits(layout_of(store), topic, key) == key_hits(layout_of(expected), topic, key)
        with Store(store, write=True, broker_conf=SIZES) as again:
            results = again.append_many(messages(60)[count:])
        assert [result.physical_offset for result in results] == offsets[count:]
        log_and_queues = [name for name in complete if name.startswith(("commitlog", "consumequeue"))]
        assert {n: content(store)[n] for n in log_and_queues} == {n: complete[n] for n in log_and_queues}


def expired(path: Path, count: int) -> Path:
    """A store whose first log files have expired, with rebuilt queues: fillers stand for missing messages."""
    store = made(path, count)
    for file in sorted((store / "commitlog").iterdir())[:1]:
        file.unlink()
    rebuild(layout_of(store), ("consumequeue", "index", "checkpoint"))
    return store


def test_a_queue_of_which_no_message_is_left_keeps_its_end(tmp_path: Path) -> None:
    """With fillers as the last entries, brokers would take new messages for existing ones."""
    store = expired(tmp_path / "s", 60)
    located = [item for item in CommitLog(layout_of(store)).walk() if isinstance(item, LocatedRecord)]
    cut = located[2].physical_offset
    firsts: dict[tuple[str, int], int] = {}
    for item in located[2:]:
        firsts.setdefault((item.record.topic.decode(), item.record.queue_id), item.record.queue_offset)
    assert all(firsts.values())
    report = truncate(layout_of(store), cut)
    assert report.afterStart is not None
    assert {(q.topic, q.queueId): q.maxOffset for q in report.afterStart.queues} == firsts
    assert {(q.topic, q.queue_id): q.max_offset for q in queues_of(layout_of(store))} == firsts
    assert plan(layout_of(store)).clean
    assert [f.code for f in check_store(layout_of(store))] == []
    assert truncate(layout_of(store), cut).clean
    with Store(store, write=True, broker_conf=SIZES) as again:
        results = again.append_many([NewMessage(topic=topic, queue_id=id, body=b"x") for topic, id in firsts])
    assert [result.queue_offset for result in results] == list(firsts.values())
    assert plan(layout_of(store)).clean


def test_a_queue_that_cannot_keep_its_end_is_named(tmp_path: Path) -> None:
    """Nothing has expired, so no entry can stand for messages missing from the log."""
    store = made(tmp_path / "s", 60)
    for file in (store / "consumequeue").glob("*/*/*"):
        file.unlink()
    located = [item for item in CommitLog(layout_of(store)).walk() if isinstance(item, LocatedRecord)]
    (store / "abort").touch()
    recover(layout_of(store), release=RELEASES["4.9"], exactly=True)  # which leaves out what is before the last files
    report = truncate(layout_of(store), located[2].physical_offset)
    assert len([warning for warning in report.warnings if "and its queue offsets begin at 0 again" in warning]) == 6
    assert not any(queue.max_offset for queue in queues_of(layout_of(store)))


def test_undo_brings_all_back(tmp_path: Path) -> None:
    store = made(tmp_path / "s", 60)
    before = tree(store)
    offset = [located.physical_offset for located in CommitLog(layout_of(store)).walk()][31]
    assert truncate(layout_of(store), offset).applied
    assert tree(store) != before
    undo(str(store))
    assert tree(store) == before


def test_only_at_a_message(tmp_path: Path) -> None:
    store = made(tmp_path / "s", 60)
    located = [item for item in CommitLog(layout_of(store)).walk() if isinstance(item, LocatedRecord)]
    second, last = located[1], located[-1]
    before = tree(store)
    for offset, text in (
        (second.physical_offset + 1, f"the nearest before it begins at {second.physical_offset}"),
        (last.physical_offset + last.record.total_size + 1, "they end at byte"),
        (located[-1].file.end + 5, "not in the log"),
    ):
        with pytest.raises(BadValue, match=text):
            truncate(layout_of(store), offset)
    with open(located[0].file.path, "r+b") as file:
        file.seek(second.at + 4)
        file.write(b"\xff")
    with pytest.raises(CorruptFile, match=f"byte {second.at}.*run rmqtool recover .* first"):
        truncate(layout_of(store), located[5].physical_offset)
    with open(located[0].file.path, "r+b") as file:
        file.seek(second.at + 4)
        file.write(b"\xda")
    assert {name: digest for name, (_mtime, digest) in tree(store).items()} == {
        name: digest for name, (_mtime, digest) in before.items()
    }


def test_at_the_end_there_is_nothing_to_cut(tmp_path: Path) -> None:
    """So a run that was killed at its end can be repeated."""
    store = made(tmp_path / "s", 60)
    offsets = [located.physical_offset for located in CommitLog(layout_of(store)).walk()]
    files = [int(path.name) for path in sorted((store / "commitlog").iterdir())]
    end, _ending = CommitLog(layout_of(store)).end()
    assert truncate(layout_of(store), end).clean
    first_of_a_file = next(offset for offset in reversed(offsets) if offset in files)
    for offset in (offsets[50], first_of_a_file, 0):
        assert truncate(layout_of(store), offset).applied
        before = content(store)
        assert truncate(layout_of(store), offset).clean
        assert content(store) == before


def test_a_store_that_was_not_closed_is_recovered_first(golden_copy: Unpacked) -> None:
    store = golden_copy("crash")
    before = tree(store)
    layout = StoreLayout(str(store), conf_of("crash"))
    with pytest.raises(Refused, match=r"run rmqtool recover .* first"):
        truncate(layout, 0)
    assert tree(store) == before
