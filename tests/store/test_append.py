"""The write path by itself; tests/interop/test_append.py compares it with the engines."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from formats.message.bodies import BatchItem, build_batch
from rmqtool import NewMessage, Store
from rmqtool.errors import NoRoom, Refused, UnreadableStore
from rmqtool.rules.releases import RELEASES, V4_9, V5_3, Release
from rmqtool.store.append import dispatching, live, live_files
from rmqtool.store.append.answers import Illegal, PutStatus
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery import command
from rmqtool.store.recovery.command import plan
from rmqtool.store.recovery.plan import Recovery, run_recovery
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.store.findings import check_store
from tests.store.helpers import conf_of, content, tree

SIZES = {
    "mappedFileSizeCommitLog": "16384",
    "mappedFileSizeConsumeQueue": "1280",
    "maxHashSlotNum": "61",
    "maxIndexNum": "300",
}
CONF = BrokerConf(SIZES)


def layout_of(store: Path) -> StoreLayout:
    return StoreLayout(str(store), CONF)


def new(path: Path, **options: object) -> Store:
    return Store.create(path, broker_conf=SIZES, **{"release": V4_9, **options})  # type: ignore[arg-type]


@by_turns(2)
@pytest.mark.parametrize("way", ["one by one", "batches", "many", "bulk", "bulk, stored properties"])
def test_every_way_gives_the_same_store(way: str, tmp_path: Path) -> None:
    """Appending one by one is compared with the engine elsewhere; here the other ways are compared with it."""
    messages = [
        NewMessage(
            topic="abc"[n % 3 if way != "batches" else n // 40 % 3],
            queue_id=0 if way == "batches" else n % 2,
            body=b"%d" % n * (n % 70),
            tags="t" * (n % 3) or None,
            keys=f"k{n} ü{n % 9}",
            properties={"UNIQ_KEY": f"{n:08d}"} if way == "bulk" or n % 2 else b"a\x01b\x02UNIQ_KEY\x01%d" % n,
            flag=n,
            sys_flag=(0, 0, 0, 4, 8, 12)[n % 6] if way != "batches" else 0,
            born_host="[::1]:7" if n % 5 else "1.2.3.4:5",
            born_timestamp=1_000 + n,
            store_timestamp=1_700_000_000_000 + n,
            reconsume_times=n % 4,
        )
        for n in range(720)
    ]
    with new(tmp_path / "one") as store:
        expected = [store.append(message) for message in messages]
    with new(tmp_path / "other") as store:
        if way == "batches":
            results = [r for i in range(0, 720, 40) for r in store.append_batch(messages[i : i + 40])]
        elif way == "many":
            results = [r for i in range(0, 720, 100) for r in store.append_many(messages[i : i + 100])]
        elif way.startswith("bulk"):
            results = list(store.append_many(messages))
        else:
            results = [store.append(message) for message in messages]
    if way != "batches":  # which roll to the next file as a whole
        assert results == expected
        assert content(tmp_path / "one") == content(tmp_path / "other")
    assert {finding.code for finding in check_store(layout_of(tmp_path / "other"))} <= {"log-prepared"}
    with Store(tmp_path / "other", broker_conf=SIZES) as store:
        result = [item.record for item in store.messages()]
    assert [(r.body, r.flag, r.sys_flag & 0xC) for r in result] == [
        (m.body, m.flag, m.sys_flag & 0xC) for m in messages
    ]


def test_a_batch_stays_in_one_file(tmp_path: Path) -> None:
    with new(tmp_path / "s") as store:
        store.append(NewMessage(topic="t", body=bytes(10_000)))
        results = store.append_batch([NewMessage(topic="t", body=bytes(3_000)) for _ in range(3)])
    assert [result.physical_offset // 16384 for result in results] == [1, 1, 1]
    assert results[0].physical_offset == 16384


def test_what_a_batch_may_not_have(tmp_path: Path) -> None:
    with new(tmp_path / "s") as store:
        for wrong, reason in (
            ([NewMessage(topic="a"), NewMessage(topic="b")], "one queue"),
            ([NewMessage(topic="a", properties={"DELAY": "1"})], "delayed"),
            ([NewMessage(topic="a", sys_flag=4)], "transactional"),
            (
                [NewMessage(topic="a", body=bytes(9_000)), NewMessage(topic="a", body=bytes(9_000))],
                "has room for 16376",
            ),
        ):
            with pytest.raises(Illegal, match=reason):
                store.append_batch(wrong)
    assert plan(layout_of(tmp_path / "s")).afterStart.maxPhyOffset == 0  # type: ignore[union-attr]


REFUSED = [
    (NewMessage(topic=""), PutStatus.MESSAGE_ILLEGAL, "topic of 0 bytes"),
    (NewMessage(topic="x" * 128), PutStatus.MESSAGE_ILLEGAL, "topic of 128 bytes"),
    (NewMessage(topic="字" * 43), PutStatus.MESSAGE_ILLEGAL, "topic of 129 bytes"),
    (NewMessage(topic="../up"), PutStatus.MESSAGE_ILLEGAL, "directory"),
    (NewMessage(topic="a,b"), PutStatus.MESSAGE_ILLEGAL, "directory"),
    (NewMessage(topic="a\udcff"), PutStatus.MESSAGE_ILLEGAL, "no text"),
    (NewMessage(topic="a", queue_id=-1), PutStatus.MESSAGE_ILLEGAL, "negative"),
    (NewMessage(topic="a", queue_id=2**31), PutStatus.MESSAGE_ILLEGAL, "32-bit"),
    (NewMessage(topic="a", born_timestamp=2**63), PutStatus.MESSAGE_ILLEGAL, "64-bit"),
    (NewMessage(topic="a", born_host="here"), PutStatus.MESSAGE_ILLEGAL, "address:port"),
    (NewMessage(topic="a", properties={"x": "y" * 32766}), PutStatus.PROPERTIES_SIZE_EXCEEDED, "32768"),
    (NewMessage(topic="a", properties={"DELAY": "soon"}), PutStatus.MESSAGE_ILLEGAL, "not a number"),
    (NewMessage(topic="a", properties={"a": "\udcff"}), PutStatus.MESSAGE_ILLEGAL, "no text"),
    # 4.9.8 answers PUT_OK to this one, and loses it
    (NewMessage(topic="a", body=bytes(16_300)), PutStatus.MESSAGE_ILLEGAL, "does not fit"),
]


@pytest.mark.parametrize("many", [1, 300])
def test_what_is_not_taken_changes_nothing(many: int, tmp_path: Path) -> None:
    """One by one, and in a batch large enough to be validated at once."""
    good = [NewMessage(topic="a", body=b"%d" % n) for n in range(many)]
    with new(tmp_path / "s") as store:
        for message, status, reason in REFUSED:
            results = store.append_many([*good, message, *good])
            assert [result.ok for result in results] == [True] * many + [False] + [True] * many
            assert results[many].status is status
            assert reason in results[many].reason
            assert store.append(message)[:1] == (status,)
    after = plan(layout_of(tmp_path / "s"))
    assert after.clean
    assert after.afterStart is not None
    assert [q.maxOffset for q in after.afterStart.queues] == [2 * many * len(REFUSED)]


def test_5_3_takes_longer_retry_topics(tmp_path: Path) -> None:
    long = NewMessage(topic="%RETRY%" + "g" * 200, body=b"x")
    with new(tmp_path / "s", release=V5_3) as store:
        assert store.append(long).ok
        assert all(result.ok for result in store.append_many([long] * 300))
        assert not store.append(NewMessage(topic="g" * 200)).ok
        record = store.message_at(0)
    assert record is not None
    assert record.record.version == 2
    assert not list(check_store(layout_of(tmp_path / "s")))
    with Store(tmp_path / "s", write=True, broker_conf=SIZES, release=V4_9) as store:
        assert not store.append(long).ok


def test_delayed_messages_wait_in_their_level(tmp_path: Path) -> None:
    with new(tmp_path / "s", clock=lambda: 1_000_000) as store:
        for level in ("1", "18", "99", "0", "-1"):
            store.append(NewMessage(topic="t", queue_id=2, properties={"DELAY": level}))
        ranges = {(q.topic, q.queueId): q.maxOffset for q in store.queues()}
        entry = store.get("SCHEDULE_TOPIC_XXXX", 0, 0).messages[0].record
    assert ranges == {("SCHEDULE_TOPIC_XXXX", 0): 1, ("SCHEDULE_TOPIC_XXXX", 17): 2, ("t", 2): 2}
    assert entry.properties == b"DELAY\x011\x02REAL_TOPIC\x01t\x02REAL_QID\x012"


def test_the_life_of_a_store(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with new(path) as store:
        assert not (path / "abort").exists()  # nothing written yet
        store.append(NewMessage(topic="t"))
        assert (path / "abort").exists()
        with pytest.raises(Refused, match="held by this process"), Store(path, write=True, broker_conf=SIZES):
            pass
        assert (path / "abort").exists()
    assert not (path / "abort").exists()
    before = tree(path)
    with Store(path, write=True, broker_conf=SIZES):
        pass
    with Store(path, broker_conf=SIZES) as reading, pytest.raises(Refused, match="opened for reading"):
        reading.append(NewMessage(topic="t"))
    assert tree(path) == before
    with pytest.raises(Refused, match="closed"):
        store.append(NewMessage(topic="t"))
    with pytest.raises(Refused, match="not empty"):
        Store.create(path)
    with pytest.raises(UnreadableStore):
        Store(tmp_path / "nothing", write=True)


@pytest.mark.parametrize("case", ["crash", "torn-last-record", "short-last-file", "consumequeue-deleted"])
def test_what_a_broker_would_repair_is_not_opened(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    before = tree(store)
    with pytest.raises(Refused, match="not healthy"):
        Store(store, write=True, broker_conf=conf_of(case).values)
    assert tree(store) == before


def test_mending_stops_where_messages_would_be_lost(golden_copy: Unpacked) -> None:
    crashed, damaged = golden_copy("crash"), golden_copy("size-field-negative")
    with Store(crashed, write=True, broker_conf=conf_of("crash").values, mend=True) as store:
        assert store.live.mended is not None
        assert store.append(NewMessage(topic="t")).ok
    (damaged / "abort").touch()
    before = tree(damaged)
    with pytest.raises(Refused, match="not healthy"):
        Store(damaged, write=True, broker_conf=conf_of("size-field-negative").values, mend=True)
    assert tree(damaged) == before


def test_a_store_is_looked_through_once_to_mend_it_and_once_to_open_it(
    golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, runs = golden_copy("torn-header"), []

    def run(*given: Any) -> Recovery:
        runs.append(given)
        return run_recovery(*given)

    monkeypatch.setattr(command, "run_recovery", run)
    with Store(store, write=True, mend=True) as opened:
        assert opened.live.mended is not None
        assert opened.live.mended.applied
    assert len(runs) == 2


def test_a_full_disk_takes_nothing_and_a_store_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"

    def full(*_args: object) -> int:
        raise OSError(28, "No space left on device")

    with new(path) as store:
        store.append(NewMessage(topic="t", body=b"before", keys="k"))
        store.flush()
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", full)
            for _ in range(2):
                with pytest.raises(NoRoom, match="No space"):
                    store.append(NewMessage(topic="t", body=b"refused"))
            assert [m.record.body for m in store.query_key("t", "k")] == [b"before"]
        assert store.append(NewMessage(topic="t", body=b"again")).queue_offset == 1
    assert not (path / "abort").exists()
    with Store(path, write=True, broker_conf=SIZES) as store:
        assert [m.record.body for m in store.messages()] == [b"before", b"again"]


def test_dispatch_beside_appends_gives_the_same_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [
        NewMessage(topic="ab"[n % 2], queue_id=n % 3, body=b"x", keys=f"k{n % 9}", born_timestamp=1, store_timestamp=n)
        for n in range(1, 600)
    ]
    with new(tmp_path / "one") as store:
        store.append_many(messages)
    monkeypatch.setattr(live, "_DISPATCH_BYTES", 700)
    threads = set()
    real = dispatching.LiveDispatch._dispatch_to

    def dispatch_to(self: dispatching.LiveDispatch, end: int) -> int:
        threads.add(threading.current_thread())
        return real(self, end)

    monkeypatch.setattr(dispatching.LiveDispatch, "_dispatch_to", dispatch_to)
    with new(tmp_path / "other") as store:
        for n, message in enumerate(messages):
            store.append(message)
            if n % 100 == 50:
                store.dispatch()
                assert sum(queue.maxOffset for queue in store.queues()) == n + 1
    assert len(threads) == 2
    assert content(tmp_path / "one") == content(tmp_path / "other")


def test_an_error_of_the_dispatch_beside_is_told_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    monkeypatch.setattr(live, "_DISPATCH_BYTES", 700)
    done = 0
    with new(path) as store:
        store.append(NewMessage(topic="t", body=b"before"))
        store.dispatch()

        def full(*_args: object) -> None:
            raise UnreadableStore("a queue file: No space left on device")

        def until_full() -> None:
            nonlocal done
            while done < 1000:
                done += store.append(NewMessage(topic="t", body=b"more")).ok

        with monkeypatch.context() as patch:
            patch.setattr(live_files.WritableQueue, "put", full)
            with pytest.raises(UnreadableStore, match="No space"):
                until_full()
        with pytest.raises(Refused):
            store.append(NewMessage(topic="t", body=b"after"))
    assert (path / "abort").exists()
    with Store(path, write=True, broker_conf=SIZES, mend=True) as store:
        assert store.append(NewMessage(topic="t", body=b"again")).queue_offset >= done + 1
    assert [f.code for f in check_store(layout_of(path)) if f.severity == "error"] == []


@pytest.mark.parametrize("size", [300, 9_000])
def test_no_room_for_the_next_file(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The append is undone, including the blank at the end of the previous file."""
    path = tmp_path / "s"
    real = os.ftruncate
    sizes = SIZES | {"mappedFileSizeCommitLog": "1048576"}
    with Store.create(path, broker_conf=sizes) as store:
        before = [store.append(NewMessage(topic="t", body=bytes(size))) for _ in range(100)]

        def full(*_args: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "ftruncate", full)

        def until_full() -> None:
            while True:
                before.extend(store.append_many([NewMessage(topic="t", body=bytes(size))] * 300))

        with pytest.raises(NoRoom, match="No space"):
            until_full()
        monkeypatch.setattr(os, "ftruncate", real)
        assert store.append(NewMessage(topic="t", body=b"after")).queue_offset == len(before)
    assert not (path / "abort").exists()
    with Store(path, write=True, broker_conf=sizes) as store:
        assert store.append(NewMessage(topic="t", body=b"again")).queue_offset == len(before) + 1
    assert [f.code for f in check_store(StoreLayout(str(path), BrokerConf(sizes)))] == []


def test_too_little_room_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    with new(path) as store:
        before = tree(path)
        real = os.statvfs(path)
        values = list(real)
        values[4] = 1  # f_bavail
        monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(values))
        with pytest.raises(Refused, match="left on its file system"):
            store.append(NewMessage(topic="t"))
    assert tree(path) == before


@pytest.mark.parametrize("count", [1, 40])
def test_the_limit_of_bodies_is_for_new_messages(count: int, tmp_path: Path) -> None:
    """Messages already in a store are delivered, whatever the limit is now."""
    with new(tmp_path / "store") as store:
        store.append(NewMessage(topic="a", body=bytes(2_000)))
    with Store(tmp_path / "store", write=True, broker_conf=SIZES | {"maxMessageSize": "1000"}) as store:
        bodies = [bytes(1_000)] * (count - 1) + [bytes(1_001)]
        results = store.append_many([NewMessage(topic="a", body=body) for body in bodies])
        assert [result.ok for result in results] == [True] * (count - 1) + [False]
        assert results[-1].status == PutStatus.MESSAGE_ILLEGAL
        assert results[-1].reason == "body of 1001 bytes, the broker takes 1000"
        assert store.append(NewMessage(topic="a", body=bytes(2_000), was_stored=True)).ok
    assert list(check_store(layout_of(tmp_path / "store"))) == []


@pytest.mark.parametrize("release", RELEASES.values(), ids=str)
def test_a_batch_shares_its_properties_up_to_5_3(release: Release, tmp_path: Path) -> None:
    items = build_batch([BatchItem(0, b"body", b"KEYS\x01k%d" % n) for n in range(2)])
    with new(tmp_path / "s", release=release) as store:
        batch = NewMessage(topic="t", body=items, properties={"MSG_REGION": "R"})
        assert store.live.append_encoded(batch).messages == 2
        stored = [message.record.properties for message in store.messages()]
    own = [b"KEYS\x01k%d" % n for n in range(2)]
    if release.shares_batch_properties:
        end = b"\x02" if release.trailing_separator else b""
        own = [text + b"\x02MSG_REGION\x01R" + end for text in own]
    assert stored == own
