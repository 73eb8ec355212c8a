"""Flushing in parallel with a thread that appends."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path

import pytest

from formats.checkpoint import parse
from rmqtool import NewMessage, Store
from rmqtool.errors import Refused, UnreadableStore
from rmqtool.store.append.live import LiveStore
from rmqtool.store.disk.files import File
from rmqtool.store.disk.lock import Disturbed
from rmqtool.store.dispatch.batch import RecordBatch
from rmqtool.store.recovery.dispatcher import Dispatcher
from tests.store.helpers import content

SIZES = {
    "mappedFileSizeCommitLog": "4096",
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "11",
    "maxIndexNum": "30",
}
pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="asks the system for names of open files")


def appended(store: Store, first: int, stop: int) -> None:
    for n in range(first, stop):
        message = NewMessage(
            topic="ab"[n % 2], body=b"%d" % n, keys=f"k{n}", born_timestamp=1, store_timestamp=1000 + n
        )
        assert store.append(message).ok


def told(path: Path) -> int:
    """Store timestamp up to which everything is durable according to the checkpoint."""
    file = path / "checkpoint"
    return parse(file.read_bytes()).physic_msg_timestamp if file.exists() else 0


class Syncs:
    """Replaces ``os.fsync``: records the flushing thread's syncs, and can wait or fail on request."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.reached = threading.Event()
        self.error: OSError | None = None
        self._real = os.fsync

    def __call__(self, fd: int) -> None:
        if threading.current_thread().name.startswith("rmqtool-flush"):
            self.reached.set()
            assert self.go_on.wait(30)
            if self.error is not None:
                raise self.error
            self.seen.append(os.readlink(f"/proc/self/fd/{fd}"))
        self._real(fd)


@contextmanager
def syncing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Syncs]:
    syncs = Syncs()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", syncs)
        yield syncs


def test_all_that_was_written_is_synced_and_then_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.create(tmp_path / "s", broker_conf=SIZES) as store, syncing(monkeypatch) as syncs:
        appended(store, 0, 90)  # several files of the log, of each queue and of the index
        store.live.flush_beside()
        store.live._flushing.wait()
        names = [os.path.relpath(name, tmp_path / "s") for name in syncs.seen]
        files = {str(path.relative_to(tmp_path / "s")) for path in (tmp_path / "s").rglob("0*") if path.is_file()}
        index = {str(path.relative_to(tmp_path / "s")) for path in (tmp_path / "s" / "index").iterdir()}
        assert len(index) > 1
        assert {*files, *index} - set(names) == set()
        logs = [name for name in names if name.startswith("commitlog/")]
        assert len(logs) > 2
        assert logs == sorted(logs) == names[: len(logs)]
        assert {"consumequeue", "consumequeue/a", "consumequeue/a/0"} <= set(names)
        assert told(tmp_path / "s") == 1089

        syncs.seen.clear()
        store.live.flush_beside()
        store.live._flushing.wait()
        assert syncs.seen == []  # nothing is new
        appended(store, 90, 91)
        store.live.flush_beside()
        store.live._flushing.wait()
        assert logs[-1] in {os.path.relpath(name, tmp_path / "s") for name in syncs.seen}
        assert not set(logs[:-1]) & {os.path.relpath(name, tmp_path / "s") for name in syncs.seen}
        assert told(tmp_path / "s") == 1090


def test_what_comes_meanwhile_is_taken_and_is_told_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.create(tmp_path / "one", broker_conf=SIZES) as store:
        appended(store, 0, 300)
    with Store.create(tmp_path / "s", broker_conf=SIZES) as store, syncing(monkeypatch) as syncs:
        appended(store, 0, 30)
        syncs.go_on.clear()
        store.live.flush_beside()
        assert syncs.reached.wait(30)
        appended(store, 30, 200)
        store.live.flush_beside()  # one still runs
        assert [item.queue_offset for item in store.messages()][-1] == 99
        assert told(tmp_path / "s") == 0
        syncs.go_on.set()
        store.live._flushing._running.result()  # type: ignore[union-attr]
        assert told(tmp_path / "s") == 1029
        appended(store, 200, 300)
        store.live.flush_beside()
    assert told(tmp_path / "s") == 1299
    assert content(tmp_path / "s") == content(tmp_path / "one")


@pytest.mark.parametrize("after", ["another", "a flush", "the end"])
def test_what_went_wrong_is_told_and_ends_all_writing(
    after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.create(tmp_path / "s", broker_conf=SIZES)
    appended(store, 0, 30)
    store.flush()
    with syncing(monkeypatch) as syncs:
        appended(store, 30, 40)
        syncs.error = OSError(5, "Input/output error")
        store.live.flush_beside()
        assert syncs.reached.wait(30)
        wait([store.live._flushing._running])  # type: ignore[list-item]
        with pytest.raises(OSError, match="Input/output error"):
            {"another": store.live.flush_beside, "a flush": store.flush, "the end": store.close}[after]()
        if after != "the end":
            assert store.live.broken
            with pytest.raises(Refused, match="closed"):
                appended(store, 40, 41)
            with pytest.raises(Refused, match="ended all writing"):
                store.live.flush_beside()
            store.close()
    assert (tmp_path / "s" / "abort").exists()
    assert told(tmp_path / "s") == 1029
    with Store(tmp_path / "s", write=True, broker_conf=SIZES, mend=True) as again:
        assert sum(1 for _message in again.messages()) == 40


def test_a_file_that_cannot_be_synced_leaves_none_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def sync(file: File) -> None:
        asked.append(os.path.basename(file.path))
        if len(asked) == 1:
            raise OSError(5, "Input/output error", file.path)

    with Store.create(tmp_path / "s", broker_conf=SIZES) as store:
        appended(store, 0, 90)
        files = sorted(path.name for path in (tmp_path / "s" / "commitlog").iterdir())
        with monkeypatch.context() as patch:
            patch.setattr(File, "sync", sync)
            store.live.flush_beside()
            with pytest.raises(OSError, match="Input/output error"):
                store.live._flushing.wait()
        assert asked == files
        store.live.abandon()
    assert told(tmp_path / "s") == 0


def test_no_checkpoint_is_written_once_a_broker_loads_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disturbed(_store: object) -> None:
        raise Disturbed("a broker loads it")

    with Store.create(tmp_path / "s", broker_conf=SIZES) as store, syncing(monkeypatch) as syncs:
        appended(store, 0, 30)
        syncs.go_on.clear()
        store.live.flush_beside()
        assert syncs.reached.wait(30)
        threading.Timer(0.2, syncs.go_on.set).start()
        with monkeypatch.context() as patch:
            patch.setattr(LiveStore, "_check_alone", disturbed)
            with pytest.raises(Disturbed, match="every message that was is in the log") as first:
                store.flush()
        assert (
            store.live.stop_disturbed(Disturbed("seen by another part")) is first.value
        )  # each part ends with the advice
    assert told(tmp_path / "s") == 0


def test_with_sync_flush_nothing_is_left_to_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        Store.create(tmp_path / "s", broker_conf=SIZES, sync_flush=True) as store,
        syncing(monkeypatch) as syncs,
    ):
        appended(store, 0, 30)
        store.live.flush_beside()
        assert told(tmp_path / "s") == 1029
        assert not syncs.reached.is_set()


def test_who_flushes_beside_does_not_wait_for_the_dispatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, real = threading.Event(), Dispatcher.put

    def put(self: Dispatcher, batch: RecordBatch) -> None:
        assert go_on.wait(30)
        real(self, batch)

    monkeypatch.setattr(Dispatcher, "put", put)
    with Store.create(tmp_path / "s", broker_conf=SIZES) as store:
        appended(store, 0, 30)
        store.live.flush_beside()
        appended(store, 30, 60)
        assert told(tmp_path / "s") == 0
        go_on.set()
        store.live._flushing._running.result()  # type: ignore[union-attr]
        assert told(tmp_path / "s") == 1029  # of what had come before; the rest is in the log alone
        assert {key: queue.max_offset for key, queue in store.live.queues.items()} == {("a", 0): 15, ("b", 0): 15}
        assert store.live.dispatch() == 60  # with those of the other thread


def test_a_dispatch_that_fails_beside_ends_all_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(_self: Dispatcher, _batch: RecordBatch) -> None:
        raise UnreadableStore("a queue: No space left on device")

    with Store.create(tmp_path / "s", broker_conf=SIZES) as store:
        appended(store, 0, 30)
        with monkeypatch.context() as patch:
            patch.setattr(Dispatcher, "put", put)
            store.live.flush_beside()
            wait([store.live._flushing._running])  # type: ignore[list-item]
        with pytest.raises(UnreadableStore, match="No space left"):
            store.live.flush_beside()
        assert store.live.broken
        assert told(tmp_path / "s") == 0
    with Store(tmp_path / "s", write=True, broker_conf=SIZES, mend=True) as again:
        assert sum(1 for _message in again.messages()) == 30
