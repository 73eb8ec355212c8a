"""Paths and sizes of files: from the broker's properties file, from the files, or by default."""

import shutil
from pathlib import Path

import pytest

from formats.config.properties import parse_properties
from rmqtool.errors import CorruptFile, Refused, UnreadableStore
from rmqtool.store.append.create import create
from rmqtool.store.check.run import check_store
from rmqtool.store.disk.segments import Segment, common_size
from rmqtool.store.index.reader import geometry_of
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout, is_path_name
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.recovery.command import plan
from rmqtool.store.roles.table import heed
from tests import goldens
from tests.conftest import Unpacked


def test_properties_follow_javas_grammar() -> None:
    text = "# comment\n! other\na=1\n b : 2\nc 3\nd=one\\\n   two\ne\\=f=g\\u0041\\t\nempty\n  \n=odd\n"
    assert parse_properties(text) == {
        "a": "1", "b": "2", "c": "3", "d": "onetwo", "e=f": "gA\t", "empty": "", "": "odd",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("65536", 65536),
        ("+65536", 65536),
        ("\u0661\u0662", 12),
        ("65536 ", None),
        ("1GiB", None),
        ("65_536", None),
        ("99999999999", None),
    ],
)
def test_sizes_are_read_as_a_broker_reads_them(text: str, size: int | None, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"mappedFileSizeCommitLog={text}\n", encoding="utf-8")
    loaded = load(str(conf))
    assert loaded.sizes.get("mappedFileSizeCommitLog") == size
    assert loaded.number("mappedFileSizeCommitLog", 7) == (99999999999 if text[0] == "9" else size or 7)
    if size is None:
        assert loaded.ignored == {"mappedFileSizeCommitLog": text}
        with pytest.raises(Refused, match="a broker ignores it"):
            create(str(tmp_path / "new"), loaded)


@pytest.mark.parametrize("text", ["0", "-5"])
def test_sizes_that_no_file_can_have(text: str, golden: Unpacked, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"mappedFileSizeCommitLog={text}\n", encoding="utf-8")
    with pytest.raises(Refused, match=f"={text}: no file can have this length"):
        create(str(tmp_path / "new"), load(str(conf)))
    create(str(tmp_path / "empty"))
    (tmp_path / "empty/commitlog/00000000000000000000").unlink()
    for store in (golden("clean"), tmp_path / "empty"):
        layout = StoreLayout(str(store), load(str(conf)))
        actual = [finding.actual for finding in check_store(layout) if finding.code == "conf-size"]
        assert actual.count(f"mappedFileSizeCommitLog: {text}" + (" bytes" if store.name != "empty" else "")) == 1
        with pytest.raises(Refused, match="no file can have this length"):
            heed(layout, "append")


def test_a_properties_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UnreadableStore, match="No such file"):
        load(str(tmp_path / "missing"))


def test_delay_levels() -> None:
    assert BrokerConf().delay_levels[:2] == [1000, 5000]
    assert len(BrokerConf().delay_levels) == 18
    assert BrokerConf({"messageDelayLevel": "2m 1d"}).delay_levels == [120_000, 86_400_000]
    with pytest.raises(CorruptFile, match="'5x'"):
        _ = BrokerConf({"messageDelayLevel": "5x"}).delay_levels


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ([(0, 100), (100, 100), (200, 100)], 100),
        ([(0, 100), (100, 100), (200, 60)], 100),  # a short last file
        ([(0, 100), (100, 40)], 100),
        ([(0, 100), (300, 100)], 100),  # a gap
        ([(0, 100)], 100),
        ([(500, 100), (600, 0)], 100),
        ([], None),
    ],
)
def test_files_tell_their_size(files: list[tuple[int, int]], size: int | None) -> None:
    segments = [Segment(f"{base:020d}", base, length, 0) for base, length in files]
    assert common_size(segments) == size


@pytest.mark.parametrize("case", goldens.cases())
def test_sizes_of_golden_stores_are_found(case: str, golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(case)))
    config = goldens.about(case)["config"]
    if layout.commit_log().files:
        assert CommitLog(layout).file_size == config["mappedFileSizeCommitLog"]
    if layout.queue_dirs():
        assert layout.queue_size() == config["mappedFileSizeConsumeQueue"]
    if layout.index_paths():
        assert geometry_of(layout) == (config["maxHashSlotNum"], config["maxIndexNum"])


def test_several_commit_log_paths_are_one_log(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("crash")
    whole = [i for i in CommitLog(StoreLayout(str(store))).walk() if isinstance(i, LocatedRecord)]
    expected = plan(StoreLayout(str(store)))
    second = tmp_path / "disk2"
    second.mkdir()
    for number, file in enumerate(sorted((store / "commitlog").iterdir())):
        if number % 2:
            shutil.move(str(file), second / file.name)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\nstorePathCommitLog={store}/commitlog,{second}\n")
    layout = StoreLayout(str(store), load(str(conf)))
    items = list(CommitLog(layout).walk())
    assert not [item for item in items if isinstance(item, Damage)]
    assert [(i.physical_offset, i.record) for i in items if isinstance(i, LocatedRecord)] == [
        (i.physical_offset, i.record) for i in whole
    ]
    assert plan(layout).afterStart == expected.afterStart


def test_paths_of_the_conf_move_with_a_copied_store(tmp_path: Path, golden: Unpacked) -> None:
    conf = BrokerConf({"storePathRootDir": "/data/mq", "storePathCommitLog": "/data/mq/commitlog,/disk2/log"})
    layout = StoreLayout(str(golden("clean")), conf)
    assert layout.commit_log_paths == [str(golden("clean") / "commitlog"), "/disk2/log"]


def test_read_only_paths_are_read(golden: Unpacked) -> None:
    conf = BrokerConf({"readOnlyCommitLogStorePaths": "/cold/a, /cold/b"})
    store = golden("clean")
    assert StoreLayout(str(store), conf).commit_log_paths == [str(store / "commitlog"), "/cold/a", "/cold/b"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\0b", "x" * 256, "题" * 86])
def test_hostile_topics_are_no_directories(name: str) -> None:
    assert not is_path_name(name)


def test_a_directory_that_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(UnreadableStore, match="no such directory"):
        StoreLayout(str(tmp_path / "missing"))
    with pytest.raises(UnreadableStore, match="not a store directory"):
        StoreLayout(str(tmp_path))
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnreadableStore, match="Not a directory"):
        StoreLayout(str(tmp_path / "file"))
