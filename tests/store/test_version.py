"""Stores in other forms than plain 4.x files are reported, and not written."""

import shutil
from pathlib import Path

import pytest

from formats import checkpoint
from formats.layouts.derived import CHECKPOINT_HEAD
from rmqtool.errors import Refused
from rmqtool.rules.releases import V4_9
from rmqtool.services.lookup.info import store_info
from rmqtool.store.config.release import release_of, version_of
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.repair.rebuild import rebuild
from tests.conftest import Unpacked
from tests.store.helpers import tree

ROCKSDB = ("CURRENT", "MANIFEST-000004", "OPTIONS-000007", "000009.sst", "LOCK", "LOG")


def forget_queue_files(store: Path) -> None:
    """Write to the checkpoint that no queue file was flushed, as a broker with queues in RocksDB leaves it."""
    at = CHECKPOINT_HEAD.offsets["logics_msg_timestamp"]
    with open(store / "checkpoint", "r+b") as file:
        file.seek(at)
        file.write(bytes(8))


def rocksdb(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ROCKSDB:
        (folder / name).write_bytes(b"x")


@pytest.fixture(params=["queues", "dledger"])
def foreign(request: pytest.FixtureRequest, golden_copy: Unpacked) -> Path:
    """A crashed store with queues or log in a form that rmqtool does not write."""
    store = golden_copy("crash")
    if request.param == "queues":
        rocksdb(store / "consumequeue")
        forget_queue_files(store)
    else:
        (store / "dledger-n0" / "data").mkdir(parents=True)
        (store / "commitlog").rename(store / "old")
    return store


def test_writers_refuse_them(foreign: Path) -> None:
    before = tree(foreign.parent)
    layout = StoreLayout(str(foreign))
    for run in (plan, recover, lambda layout: rebuild(layout, ("index",))):
        with pytest.raises(Refused, match=r"which rmqtool does not (write|modify)|does not have a committed index"):
            run(layout)
    assert tree(foreign.parent) == before


def test_info_names_rocksdb_forms(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    rocksdb(store / "consumequeue")
    rocksdb(store / "config" / "topics")
    info = store_info(StoreLayout(str(store)))
    assert info.version == "5.x"
    notes = {group.kind: group.note for group in info.files}
    assert notes["consumequeue"] is not None
    assert notes["consumequeue"].startswith("RocksDB, since 5")
    assert notes["config/topics"] is not None


@pytest.mark.parametrize(
    ("name", "content"),
    [("abort", b"4711"), ("abort.bak", b""), ("timerwheel", b""), ("checkpoint", bytes(24) + b"\1" * 8 + bytes(4064))],
)
def test_what_shows_a_5_x_store(name: str, content: bytes, golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    assert version_of(StoreLayout(str(store)))[0] == "4.x"
    (store / name).write_bytes(content)
    assert version_of(StoreLayout(str(store)))[0] == "5.x"
    assert plan(StoreLayout(str(store))).engine == "5.3"
    assert any("5.x broker" in warning for warning in plan(StoreLayout(str(store)), release=V4_9).warnings)


def test_a_lone_file_that_was_cut_is_not_taken_for_whole(golden_copy: Unpacked) -> None:

    store = golden_copy("broker")
    (log,) = (store / "commitlog").iterdir()
    log.write_bytes(log.read_bytes()[:100_000])
    before = tree(store)
    with pytest.raises(Refused, match="it seems to have been cut short"):
        recover(StoreLayout(str(store)))
    assert tree(store) == before
    # told the true length, it is what a broker would say
    told = plan(StoreLayout(str(store), BrokerConf({"mappedFileSizeCommitLog": "262144"})), exactly=True)
    assert not told.loadOk
    # told that the file is as long as it should be, it is cut
    assert plan(StoreLayout(str(store), BrokerConf({"mappedFileSizeCommitLog": "100000"}))).bytesCut == 68


def keep(store: Path, *parts: str) -> StoreLayout:
    """Remove everything from a store but these parts."""
    for path in store.iterdir():
        if path.name not in {part.partition("/")[0] for part in parts}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (store / "config").glob("*") if "config" not in parts else ():
        if f"config/{path.name}" not in parts:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return StoreLayout(str(store))


@pytest.mark.parametrize(
    ("case", "parts", "release", "sign"),
    [
        ("broker-5.5.0", ["commitlog"], "4.9", "it lacks the files that would show the release"),
        ("broker-5.5.0", ["commitlog", "index"], "5.5", "the index has entries for tags, of 5.4 or later"),
        ("broker-5.5.0", ["commitlog", "index", "abort.bak"], "5.5", "the index has entries for tags, of 5.4 or later"),
        ("broker-5.5.0", ["config"], "5.5", "topics.json has RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC, of 5.4 or later"),
        ("broker-5.5.0", ["commitlog", "consumequeue"], "5.3", "it has queues of rmq_sys_"),
        (
            "broker-5.5.0",
            ["commitlog", "config/subscriptionGroup.json"],
            "5.3",
            "subscriptionGroup.json has a stateVersion",
        ),
        ("broker-5.5.0", ["commitlog", "config/timercheck"], "5.3", "it has config/timercheck"),
        ("broker-5.3.3", ["commitlog", "index"], "4.9", "it lacks the files that would show the release"),
        ("broker-5.3.3", ["config"], "5.3", "topics.json has a stateVersion"),
        ("broker", ["commitlog", "consumequeue", "index"], "4.9", "it lacks the files that would show the release"),
        ("broker", ["commitlog", "config"], "4.9", "it has nothing of 5.x"),
        ("broker", ["commitlog", "lock"], "4.9", "it has nothing of 5.x"),
        ("broker", ["commitlog", "checkpoint"], "4.9", "it lacks the files that would show the release"),
    ],
)
def test_what_parts_of_a_store_show(
    case: str, parts: list[str], release: str, sign: str, golden_copy: Unpacked
) -> None:
    layout = keep(golden_copy(case), *parts)
    assert release_of(layout).name == release
    assert version_of(layout)[1].startswith(sign)


@pytest.mark.parametrize(("later", "release"), [(0, "5.5"), (1, "5.4")])
def test_queues_flushed_with_the_first_message_show_no_5_4(later: int, release: str, golden_copy: Unpacked) -> None:
    """Its physical offset, which the field of 5.5 has then, is 0."""
    store = golden_copy("broker-5.5.0-crash")
    first = CommitLog(StoreLayout(str(store))).first()
    assert first is not None
    assert first.physical_offset == 0
    point = checkpoint.parse((store / "checkpoint").read_bytes())
    flushed = first.record.store_timestamp + later
    point = point._replace(logics_msg_timestamp=flushed, logics_physical_offset=0)
    (store / "checkpoint").write_bytes(checkpoint.build(point))
    assert release_of(StoreLayout(str(store))).name == release
