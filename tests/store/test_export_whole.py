"""``export``: a complete store in files if there is no damage, otherwise nothing."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from formats.layouts.derived import CQ_ENTRY, HEAD_V4_V4
from rmqtool import Store
from rmqtool.store.check.run import is_problem
from rmqtool.store.config.files import read_config
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.reader import ConsumeQueue
from rmqtool.store.salvage import compacted
from tests import goldens, rocks, roles
from tests.amounts import by_turns
from tests.cli.running import Result, rmqtool
from tests.conftest import Unpacked
from tests.store.findings import check_store, flip
from tests.store.helpers import conf_of, tree

pytestmark = pytest.mark.slow

ROCKS = ["rocksdb-5.3.3", "rocksdb-5.3.3-crash"]
IN_FILES = ["clean", "broker", "head-file-deleted", "delay", "broker-5.3.3", "compaction-5.3.3"]
TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
WORDS = "nothing is exported; rmqtool salvage keeps every intact message"


def rows(store: Path, *args: str) -> list[dict[str, object]]:
    output = rmqtool(*args[:2], store, *args[2:], "-o", "ndjson")
    return [json.loads(line) for line in output.out.splitlines()]


def test_topics_that_an_older_table_lacks_are_added(golden_copy: Unpacked, tmp_path: Path) -> None:
    """A 5.x broker deletes queues of topics that its table does not have."""
    store, new = golden_copy("broker-5.3.3-crash"), tmp_path / "new"
    (store / "config" / "topics.json").unlink()
    result = rmqtool("salvage", store, new)
    assert "config/topics.json lacks topics that have messages: %DLQ%pull-group: added" in result.err
    assert [finding.code for finding in check_store(StoreLayout(str(new))) if is_problem(finding)] == []


def test_only_what_the_new_store_has_elsewhere_is_to_be_set_otherwise(tmp_path: Path) -> None:
    """Queues in files, and timers in RocksDB, of which the broker has delivered none."""
    store, conf = goldens.unpack("stopped-at-once-5.5.0", tmp_path), tmp_path / "broker.conf"
    settings = goldens.STORES_OF_5_5 / "stopped-at-once-5.5.0" / "broker.conf"
    conf.write_text(f"{settings.read_text()}timerWheelEnable=true\ntimerRocksDBEnable=true\n")
    result = rmqtool("export", store, tmp_path / "new", "--broker-conf", conf)
    assert result.code == 0, result.err
    assert "storeType" not in result.err
    assert "start a broker on it without timerRocksDBEnable" in result.err


@by_turns(13)
@pytest.mark.parametrize("case", ROCKS + IN_FILES)
def test_every_offset_is_as_it_was(case: str, golden: Unpacked, tmp_path: Path) -> None:
    store, new = golden(case), tmp_path / "new"
    before = tree(store)
    result = rmqtool("export", store, new)
    assert (result.code, result.out) == (0, ""), result.err
    assert tree(store) == before
    assert "at the offsets that they had" in result.err.splitlines()[-1]
    assert (case in ROCKS) == ("start a broker on it without storeType=defaultRocksDB" in result.err)
    assert rows(new, "commitlog", "dump") == rows(store, "commitlog", "dump") != []
    if case != ROCKS[1]:  # of which the database of the queues has nothing
        units = [
            {name: value for name, value in row.items() if name != "batchNum" or value != 1}
            for row in rows(store, "consumequeue", "dump")
        ]
        assert [row for row in units if row["size"]] == [
            {name: value for name, value in row.items() if name != "batchNum" or value != 1}
            for row in rows(new, "consumequeue", "dump")
        ]
    layouts = StoreLayout(str(store), conf_of(case)), StoreLayout(str(new))
    for name in TABLES:
        assert read_config(layouts[0], name) == read_config(layouts[1], name), name
    assert [finding.code for finding in check_store(layouts[1]) if is_problem(finding)] == []


def refused(store: Path, new: Path) -> Result:
    before = tree(store)
    result = rmqtool("export", store, new)
    assert (result.code, result.out, result.err.count("\n")) == (5, "", 1), result
    assert WORDS in result.err
    assert tree(store) == before
    assert not new.exists()
    assert list(new.parent.glob("new*")) == []
    return result


def test_a_damaged_record_is_named(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy(ROCKS[0])
    record = rows(store, "commitlog", "dump", "--topic", "Orders")[7]
    flip(store / "commitlog" / f"{0:020d}", int(str(record["physicalOffset"])) + HEAD_V4_V4.size)  # of its body
    assert f"{store}/commitlog/{0:020d}: byte " in refused(store, tmp_path / "new").err
    assert rmqtool("salvage", store, tmp_path / "new").code == 1


@by_turns(2)
@pytest.mark.parametrize(
    "case", [case for case in goldens.cases() if case.startswith(("torn", "magic", "size", "body"))]
)
def test_damaged_golden_stores(case: str, golden: Unpacked, tmp_path: Path) -> None:
    assert "/commitlog/" in refused(golden(case), tmp_path / "new").err


def test_a_message_that_is_gone_moves_no_offset(golden_copy: Unpacked, tmp_path: Path) -> None:
    """A log file in the middle is missing: nothing is damaged, and yet offsets would change."""
    store = golden_copy("clean")
    sorted((store / "commitlog").iterdir())[1].unlink()
    refused(store, tmp_path / "new")


def test_a_table_that_cannot_be_read_is_named(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy(ROCKS[0])
    rocks.change(store / "config" / "topics", lambda families: families["default"].update({b"Orders": b"{"}))
    assert f"{store}/config/topics.json: cannot be read" in refused(store, tmp_path / "new").err
    salvaged = json.loads(rmqtool("salvage", store, tmp_path / "new", "-o", "json").out)
    assert salvaged["leftOut"] == ["config/topics.json"]


def test_a_library_that_is_missing(golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    result = rmqtool("export", golden(ROCKS[0]), tmp_path / "new")
    assert (result.code, result.out, result.err.count("\n")) == (6, "", 1)
    assert "pip install rocksdict" in result.err
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_queues_that_cannot_be_opened(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy(ROCKS[0])
    (store / "consumequeue" / "CURRENT").write_text("none\n")
    result = rmqtool("export", store, tmp_path / "new")
    assert (result.code, result.out) == (5, "")
    assert f"{store}/consumequeue" in result.err
    assert not (tmp_path / "new").exists()


def test_a_config_file_without_a_good_one_before_it(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("clean")
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (store / "config" / name).write_text("{")
    assert f"{store}/config/consumerOffset.json: cannot be read" in refused(store, tmp_path / "new").err


def test_a_replacement_that_was_cut_short_is_nothing(golden_copy: Unpacked, tmp_path: Path) -> None:
    """A kill leaves it empty or torn; brokers never read it."""
    store = golden_copy("broker")
    (store / "config" / "topics.json.tmp").touch()
    done = rmqtool("export", store, tmp_path / "new")
    assert done.code == 0, done.err
    assert not (tmp_path / "new/config/topics.json.tmp").exists()
    assert (tmp_path / "new/config/topics.json").read_bytes() == (store / "config/topics.json").read_bytes()


def test_progress_of_a_generation_ago_is_not_what_was(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    good = store / "config" / "consumerOffset.json"
    good.with_name("consumerOffset.json.bak").write_bytes(good.read_bytes())
    good.write_text("{")
    assert f"{good}: cannot be read" in refused(store, tmp_path / "new").err


def test_a_file_under_the_name_of_another(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("clean")
    first, second, *_ = sorted((store / "commitlog").iterdir())
    first.rename(second.with_name("aside"))
    second.rename(first)
    second.with_name("aside").rename(second)
    refused(store, tmp_path / "new")


def test_a_compaction_log_that_cannot_be_read(
    golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_copy("broker-5.3.3")
    monkeypatch.setattr(compacted, "_copy", lambda file, _folder: [f"{file.path}: Input/output error"])
    assert f"{store}/compaction: cannot be read" in refused(store, tmp_path / "new").err


def test_what_pop_consumers_hold_that_cannot_be_read(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy(ROCKS[0])
    shutil.copytree(store / "consumequeue", store / "kvStore")
    (store / "kvStore" / "CURRENT").write_text("none\n")
    assert f"{store}/kvStore: cannot be read" in refused(store, tmp_path / "new").err


def test_delay_levels_that_were_changed_in_between(golden_copy: Unpacked, tmp_path: Path) -> None:
    """No table of levels fits the times of all messages."""
    store = golden_copy("delay")
    unit = ConsumeQueue(StoreLayout(str(store), conf_of("delay")), "SCHEDULE_TOPIC_XXXX", 0).segments.files[0]
    raw = bytearray(Path(unit.path).read_bytes())
    physical, size, time = CQ_ENTRY.unpack_from(raw)
    raw[: CQ_ENTRY.size] = CQ_ENTRY.pack(physical, size, time + 7000)
    Path(unit.path).write_bytes(raw)
    assert "1 delayed messages would have another deliver time" in refused(store, tmp_path / "new").err


def test_of_a_broker_that_runs(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("clean")
    with Store(store, write=True, broker_conf=dict(conf_of("clean").values)):
        result = rmqtool("export", store, tmp_path / "new")
    assert (result.code, result.out) == (4, "")
    assert "in use" in result.err
    assert not (tmp_path / "new").exists()


def test_the_report_is_that_of_salvage(golden: Unpacked, tmp_path: Path) -> None:
    answer = [
        json.loads(rmqtool(name, golden("clean"), tmp_path / name, "-o", "json").out) for name in ("export", "salvage")
    ]
    for text, name in zip(answer, ("export", "salvage"), strict=True):
        assert text.pop("store") == str(tmp_path / name)
    assert answer[0] == answer[1]
    assert answer[0]["lostRanges"] == answer[0]["leftOut"] == []


def test_what_is_in_the_way_stays(golden: Unpacked, tmp_path: Path) -> None:
    store = golden("clean")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").touch()
    for place in (tmp_path / "new", store, store / "inside"):
        result = rmqtool("export", store, place)
        assert (result.code, result.out) == (4, "")
        assert str(place) in result.err
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["mine"]


@by_turns(3)
def test_deliver_times_stay_without_the_settings_of_the_broker(golden_copy: Unpacked, tmp_path: Path) -> None:
    """A store with non-default delay levels: queues show them, and settings override that."""
    store = golden_copy("broker-5.3.3")

    def deliver_times(of: Path) -> list[object]:
        return [row["tagsCode"] for row in rows(of, "consumequeue", "dump", "--topic", "SCHEDULE_TOPIC_XXXX")]

    assert rmqtool("salvage", store, tmp_path / "salvaged").code == 0
    assert deliver_times(tmp_path / "salvaged") == deliver_times(store)
    conf = tmp_path / "broker.conf"
    conf.write_text("messageDelayLevel=1s 9s\n")
    assert rmqtool("salvage", store, tmp_path / "told", "--broker-conf", conf).code == 0
    assert deliver_times(tmp_path / "told") != deliver_times(store)
    shutil.rmtree(store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "1")  # nothing tells of level 2
    assert rmqtool("salvage", store, tmp_path / "less").code == 0
    less, stored = rows(tmp_path / "less", "consumequeue", "dump"), rows(store, "commitlog", "dump")
    times = {row["physicalOffset"]: int(str(row["storeTimestamp"])) for row in stored}
    waits = {
        int(str(row["tagsCode"])) - times[row["physicalOffset"]]
        for row in less
        if (row["topic"], row["queueId"]) == ("SCHEDULE_TOPIC_XXXX", 1)
    }
    assert waits == {5000}


def test_a_log_in_several_directories_becomes_one(tmp_path: Path) -> None:
    node, new = roles.unpack(roles.MULTI_PATH, "a", tmp_path), tmp_path / "new"
    sizes = [f"{name}={value}" for name, value in node.settings.items() if name != "storePathCommitLog"]
    conf = tmp_path / "one.conf"
    conf.write_text("\n".join(sizes) + "\n")
    before = [path.name for folder in ("disk1", "disk2") for path in (tmp_path / folder / "log").iterdir()]
    assert rmqtool("export", node.store, new, *node.options()).code == 0
    for args in (("commitlog", "dump"), ("group", "offsets"), ("consumequeue", "dump")):
        had = rmqtool(*args, node.store, *node.options(), "-o", "ndjson").out
        has = rmqtool(*args, new, "--broker-conf", conf, "-o", "ndjson").out
        assert sorted(had.splitlines()) == sorted(has.splitlines()) != []
    files = sorted(path.name for path in (new / "commitlog").iterdir())
    assert files == sorted(before)[: len(files)]  # the last one was created in advance
    assert len(files) == 5


@pytest.mark.parametrize("case", ["broker-5.5.0", "rocksdb-5.5.0"])
def test_a_tier_that_has_nothing_alone_is_left_behind(case: str, tmp_path: Path) -> None:
    """All its messages are still in the log, so nothing is missing without its list of segments."""
    store, new, conf = goldens.unpack(case, tmp_path), tmp_path / "new", tmp_path / "broker.conf"
    (store / "config" / "tieredStoreMetadata.json").write_text('{"topicMetadataTable":{},"queueMetadataTable":{}}')
    settings = (goldens.STORES_OF_5_5 / case / "broker.conf").read_text()
    plugin = "org.apache.rocketmq.tieredstore.TieredMessageStore"
    conf.write_text(f"{settings}\nmessageStorePlugIn={plugin}\ntieredStoreFilePath={tmp_path / 'tier'}\n")
    result = rmqtool("export", store, new, "--broker-conf", conf)
    assert result.code == 0, result.err
    assert "config/tieredStoreMetadata.json is left out: start a broker on the new store without tiered" in result.err
    assert not (new / "config" / "tieredStoreMetadata.json").exists()


@pytest.mark.parametrize("case", ["rocksdb-5.5.0", "broker-5.5.0"])
def test_tables_without_a_log(case: str, tmp_path: Path) -> None:
    """Salvage takes them and says that no message is there; export refuses, as it keeps all or nothing."""
    store = goldens.unpack(case, tmp_path)
    want = {name: rmqtool(name, kind, store, "-o", "json").out for name, kind in (("topic", "list"), ("group", "list"))}
    shutil.rmtree(store / "commitlog")
    refused = rmqtool("export", store, tmp_path / "new")
    assert (refused.code, (tmp_path / "new").exists()) == (5, False)
    assert "storePathCommitLog" in refused.err
    taken = rmqtool("salvage", store, tmp_path / "new", "-o", "json")
    assert (taken.code, json.loads(taken.out)["messages"]) == (1, 0)
    assert "there is no commit log in it: they are not taken" in json.loads(taken.out)["logMissing"]
    for name, key in (("topic", "topic"), ("group", "group")):
        names = [row[key] for row in json.loads(want[name]) if row["configured"]]
        here = {row[key] for row in json.loads(rmqtool(name, "list", tmp_path / "new", "-o", "json").out)}
        assert not set(names) - here, name


def test_tables_of_a_store_that_never_had_a_message(tmp_path: Path) -> None:
    store = goldens.unpack("rocksdb-5.5.0", tmp_path)
    for path in store.iterdir():
        if path.name != "config":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    result = rmqtool("export", store, tmp_path / "new")
    assert (result.code, "its tables are taken, and no message" in result.err) == (0, True)
    assert "Sequenced" in rmqtool("topic", "list", tmp_path / "new").out
