"""A queue whose messages have all expired continues at its end in the salvaged store, or is named."""

import shutil
from pathlib import Path

from formats.variants import timer
from rmqtool import NewMessage, Store
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.reader import open_queue
from rmqtool.store.recovery.command import plan
from rmqtool.store.salvage.carve import Salvage
from tests.cli.running import rmqtool
from tests.store.findings import check_store

SIZES = {
    "mappedFileSizeCommitLog": "4096",
    "mappedFileSizeConsumeQueue": "200",
    "maxHashSlotNum": "7",
    "maxIndexNum": "40",
}
OLD, NEW = 23, 60  # messages of either topic


def layout_of(path: Path) -> StoreLayout:
    return StoreLayout(str(path), BrokerConf(SIZES))


def made(path: Path) -> Path:
    """A store with messages of one topic, followed by those of another."""
    with Store.create(path, broker_conf=SIZES) as store:
        for topic, count in (("old", OLD), ("new", NEW)):
            store.append_many([NewMessage(topic=topic, queue_id=0, body=b"x" * 100) for _ in range(count)])
    return path


def expire(store: Path) -> None:
    """Remove the log files with messages of the first topic."""
    last = open_queue(layout_of(store), "new", 0)
    assert last is not None
    first = next(last.entries()).physical_offset
    for file in (store / "commitlog").iterdir():
        if int(file.name) <= first:
            file.unlink()


def test_its_end_is_kept(tmp_path: Path) -> None:
    store = made(tmp_path / "s")
    expire(store)
    report = Salvage(layout_of(store), str(tmp_path / "n")).run()
    assert [(q.topic, q.endedAt, q.endsAt, q.kept) for q in report.emptyQueues] == [("old", OLD, OLD, True)]
    assert [finding.code for finding in check_store(layout_of(tmp_path / "n"))] == []
    assert plan(layout_of(tmp_path / "n")).clean
    with Store(tmp_path / "n", write=True, broker_conf=SIZES) as again:
        assert again.append(NewMessage(topic="old", queue_id=0, body=b"y")).queue_offset == OLD
    assert plan(layout_of(tmp_path / "n")).clean


def test_entries_of_lost_messages_are_not_counted(tmp_path: Path) -> None:
    """For a queue with both, the expired messages determine where it continues."""
    store = made(tmp_path / "s")
    expire(store)
    for file in (store / "commitlog").iterdir():
        shutil.copy2(file, tmp_path)
    queue = store / "consumequeue" / "old" / "0"
    last = max(queue.iterdir())
    low = min(int(file.name) for file in (store / "commitlog").iterdir())
    with last.open("r+b") as file:
        file.seek(2 * 20)
        file.write((low + 7).to_bytes(8, "big"))
    report = Salvage(layout_of(store), str(tmp_path / "n")).run()
    assert [(q.endedAt, q.endsAt, q.kept) for q in report.emptyQueues] == [(OLD, OLD - 1, False)]


def test_one_that_cannot_be_kept_is_named(tmp_path: Path) -> None:
    """In a log that begins at 0 nothing has expired, so no entry can stand for lost messages."""
    store = made(tmp_path / "s")
    last = open_queue(layout_of(store), "new", 0)
    assert last is not None
    first = next(last.entries()).physical_offset
    for path in (store / "commitlog").iterdir():
        with path.open("r+b") as file:
            file.write(bytes(max(min(first - int(path.name), path.stat().st_size), 0)))
    result = rmqtool("salvage", store, tmp_path / "n")
    assert result.code == 1
    warning = (
        f"not kept: old queue 0: ended at queue offset {OLD}, and none of its messages is in the log: it begins at 0"
    )
    assert warning in result.err
    assert rmqtool("export", store, tmp_path / "e").code == 5


def test_export_keeps_it_too(tmp_path: Path) -> None:
    store = made(tmp_path / "s")
    expire(store)
    assert rmqtool("export", store, tmp_path / "n").code == 0
    queue = open_queue(layout_of(tmp_path / "n"), "old", 0)
    assert queue is not None
    assert queue.max_offset == OLD


def test_a_timer_whose_messages_have_expired(tmp_path: Path) -> None:
    """Its checkpoint has the position in its queue: new timer messages must not get lower queue offsets."""
    store = made(tmp_path / "s")
    expire(store)
    (store / "consumequeue" / "old").rename(store / "consumequeue" / timer.TOPIC)
    report = Salvage(layout_of(store), str(tmp_path / "n")).run()
    assert [(q.topic, q.endsAt) for q in report.emptyQueues] == [(timer.TOPIC, OLD)]
    assert plan(layout_of(tmp_path / "n")).clean
