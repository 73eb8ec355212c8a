"""Check a broker's properties file against a store before a broker is started."""

from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import CorruptFile, Refused
from rmqtool.rules.releases import RELEASES, V4_9, V5_3
from rmqtool.store.config.fit import find_ignored_lines, misfits
from rmqtool.store.config.settings import Setting, nearest, settings_of
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.repair.rebuild import rebuild
from rmqtool.store.roles.table import COMMANDS, TAKING_OUT, heed
from tests import goldens
from tests.conftest import Unpacked
from tests.store.findings import check_store
from tests.store.helpers import tree

CASE = "clean"  # several files of the log, and of queues


def sizes(**changed: str | None) -> str:
    """The case's settings with changes; None removes a setting."""
    answer = {name: str(value) for name, value in goldens.about(CASE)["config"].items()} | changed
    return "".join(f"{name}={value}\n" for name, value in answer.items() if value is not None)


def opened(store: Path, text: str) -> StoreLayout:
    """The store with a properties file."""
    conf = store.parent / "broker.conf"
    conf.write_text(text)
    return StoreLayout(str(store), load(str(conf)))


def codes(layout: StoreLayout, **more: Any) -> dict[str, list[str]]:
    """Findings about the configuration: code → actual values."""
    result: dict[str, list[str]] = {}
    for finding in check_store(layout, **more):
        result.setdefault(finding.code, []).append(f"{finding.actual} ({finding.severity})")
    return result


def test_the_right_file_is_no_finding(golden_copy: Unpacked) -> None:
    layout = opened(golden_copy(CASE), sizes())
    assert not misfits(layout)
    assert codes(layout) == codes(StoreLayout(layout.root))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (sizes(mappedFileSizeCommitLog=None), "mappedFileSizeCommitLog not set: 1073741824 bytes"),
        (sizes(mappedFileSizeCommitLog=None) + "mapedFileSizeCommitLog=65536\n", "mappedFileSizeCommitLog not set"),
        (sizes() + "mappedFileSizeCommitLog=65536 \n", "mappedFileSizeCommitLog: 1073741824"),
        (sizes(mappedFileSizeCommitLog="1048576"), "mappedFileSizeCommitLog: 1048576"),
        (sizes(mappedFileSizeConsumeQueue=None), "mappedFileSizeConsumeQueue not set: 6000000"),
        (sizes(mappedFileSizeConsumeQueue="3600"), "mappedFileSizeConsumeQueue: 3600"),
        (sizes(maxIndexNum=None), "maxHashSlotNum, maxIndexNum: "),
    ],
)
def test_another_length_is_an_error(golden_copy: Unpacked, text: str, message: str) -> None:
    store = golden_copy(CASE)
    layout = opened(store, text)
    by_code = codes(layout)
    (sentence,) = by_code.pop("conf-size")
    assert sentence.startswith(message)
    assert sentence.endswith("(error)")
    for code in ("conf-unknown", "conf-value"):
        by_code.pop(code, None)
    assert by_code == codes(StoreLayout(str(store)))  # the rest goes by the files


def test_a_queue_length_is_rounded_as_brokers_round_it(golden_copy: Unpacked) -> None:
    length = goldens.about(CASE)["config"]["mappedFileSizeConsumeQueue"]
    assert not misfits(opened(golden_copy(CASE), sizes(mappedFileSizeConsumeQueue=str(length - 3))))


def test_names_and_values_that_a_broker_passes_over(golden_copy: Unpacked) -> None:
    text = sizes() + "autoCreateTopicEnabel=true\nenableTimerWheel=1\nflushIntervalCommitLog=5s\ntraceOn=yes\n"
    store = golden_copy(CASE)
    by_code = codes(opened(store, text + "timerWheelEnable=false\nhaSlaveFallbehindMax=1\n"), release=V5_3)
    assert by_code["conf-unknown"] == ["autoCreateTopicEnabel (warning)", "enableTimerWheel (warning)"]
    assert by_code["conf-value"] == ["flushIntervalCommitLog='5s' (warning)", "traceOn='yes' (warning)"]
    assert by_code["conf-release"] == ["haSlaveFallbehindMax, which 4.9 has and 5.3 has not (warning)"]
    by_code = codes(opened(store, "timerWheelEnable=false\n" + sizes()))
    assert by_code["conf-release"] == ["timerWheelEnable, which 5.3 has and 4.9 has not (info)"]
    # a plug-in reads what it likes
    by_code = codes(opened(store, sizes() + "messageStorePlugIn=my.Store\nquiteAnotherThing=1\nbrokerNmae=a\n"))
    assert by_code["conf-unknown"] == ["quiteAnotherThing (info)", "brokerNmae (warning)"]


def test_no_value_of_an_unknown_name_is_shown(golden_copy: Unpacked) -> None:
    layout = opened(golden_copy(CASE), sizes() + "secretKye=hush\n")
    assert not [finding for finding in check_store(layout) if "hush" in str(finding)]


def test_writing_refuses_a_length_that_no_file_has(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    layout = opened(store, sizes(mappedFileSizeConsumeQueue="3600"))
    before = tree(store)
    for act in (recover, plan, lambda layout: rebuild(layout, ["consumequeue"])):
        with pytest.raises(Refused, match="mappedFileSizeConsumeQueue"):
            act(layout)
    for command in COMMANDS:
        if command in (*TAKING_OUT, "undo", "undo --force", "rebuild config", "rebuild tiered-metadata", "apply"):
            assert heed(layout, command)
        else:
            with pytest.raises(Refused, match="mappedFileSizeConsumeQueue=2140 in it"):
                heed(layout, command)
    assert tree(store) == before


def test_an_index_of_another_length_is_built_again(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    before = {path.stat().st_size for path in (store / "index").iterdir()}
    report = recover(opened(store, sizes(maxIndexNum=str(goldens.about(CASE)["config"]["maxIndexNum"] + 100))))
    assert any("maxIndexNum" in text for text in report.warnings)
    assert {path.stat().st_size for path in (store / "index").iterdir()} == {before.pop() + 2000}
    assert not codes(opened(store, sizes(maxIndexNum=str(goldens.about(CASE)["config"]["maxIndexNum"] + 100))))


def test_a_log_of_one_file_is_not_cut_to_a_setting_that_is_too_small(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    (file,) = (store / "commitlog").iterdir()
    settings = goldens.about("broker")["config"] | {"mappedFileSizeCommitLog": 65536}
    layout = opened(store, "".join(f"{name}={value}\n" for name, value in settings.items()))
    assert CommitLog(StoreLayout(str(store))).end()[0] > 65536
    before = tree(store)
    assert not recover(layout).loadOk
    with pytest.raises((Refused, CorruptFile), match=file.name):
        rebuild(layout, ["consumequeue"])
    assert tree(store) == before


def test_one_queue_file_that_is_too_long_is_no_fault_of_the_configuration(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    files = sorted((store / "consumequeue").rglob("0*"))
    files = [path for path in files if path.is_file()]
    for path in files[1:]:
        path.unlink()
    files[0].write_bytes(files[0].read_bytes() + bytes(40))
    layout = opened(store, sizes())
    assert not misfits(layout)
    assert recover(layout).applied
    assert not codes(StoreLayout(layout.root, layout.conf))


def test_writing_goes_by_the_files_and_says_so(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    before = tree(store)
    report = recover(opened(store, "brokerName=a\n"))
    assert report.clean
    assert len(report.unfit) == 3
    assert "does not start on this store. Set mappedFileSizeCommitLog=" in report.unfit[0]
    assert set(report.unfit) <= set(report.warnings)
    assert tree(store) == before
    # settings of a program are no file that a broker is started with
    assert not recover(StoreLayout(str(store), BrokerConf({"brokerName": "a"}))).unfit


def test_a_file_that_was_cut_short_is_no_fault_of_the_configuration(golden_copy: Unpacked) -> None:
    by_code = codes(opened(golden_copy("short-last-file"), sizes_of("short-last-file")))
    assert "file-size" in by_code
    assert "conf-size" not in by_code


def test_the_one_file_of_a_timer_log(golden_copy: Unpacked) -> None:
    """Whether it or the setting is wrong cannot be known, so no message is given up before the setting is looked at."""
    case = "broker-5.3.3"
    store = golden_copy(case)
    (file,) = (store / "timerlog").iterdir()
    size = file.stat().st_size
    conf = sizes_of(case)
    assert f"mappedFileSizeTimerLog={size}\n" in conf
    layout = opened(store, conf.replace(f"mappedFileSizeTimerLog={size}", "mappedFileSizeTimerLog=104"))
    (finding,) = (each for each in check_store(layout) if each.code == "file-size")
    assert finding.fix.startswith(f"set mappedFileSizeTimerLog={size} in ")
    assert "; otherwise stop the broker and move the file out of timerlog" in finding.fix


@pytest.mark.parametrize("line", ["", "compactionMappedFileSize=128800\n", "compactionCqMappedFileSize=9200\n"])
def test_the_lengths_of_compacted_topics(line: str, golden_copy: Unpacked) -> None:
    """Brokers round the setting, and a multiple of the queue files' length up to the next one."""
    case = "broker-5.3.3"
    store = golden_copy(case)
    kept = [each for each in sizes_of(case).splitlines() if "ompaction" not in each]
    kept += [each for each in line.splitlines() if each]
    wrong = misfits(opened(store, "".join(f"{each}\n" for each in kept)))
    assert {misfit.place for misfit in wrong} == {"compaction/compactionLog", "compaction/compactionCq"}
    set_to = [misfit.set for misfit in wrong]
    assert all(set_to)
    names = {text.split("=")[0] for text in set_to if text}
    kept = [each for each in kept if each.split("=")[0] not in names] + [text for text in set_to if text]
    assert misfits(opened(store, "".join(f"{each}\n" for each in kept))) == []


def sizes_of(case: str) -> str:
    """The settings that a case was written with."""
    return "".join(f"{name}={value}\n" for name, value in goldens.about(case)["config"].items())


@pytest.mark.parametrize(
    ("kind", "text", "takes"),
    [
        ("int", "12", 12), ("int", "+12", 12), ("int", "12 ", None), ("int", "2147483648", None), ("int", "", None),
        ("long", "2147483648", 2147483648), ("int", "1_000", None), ("boolean", "TRUE", True), ("boolean", "1", False),
        ("boolean", "true ", False), ("double", "0.5", 0.5), ("double", "half", None), ("String", " a ", " a "),
    ],
)  # fmt: skip
def test_values_are_taken_as_java_takes_them(kind: str, text: str, takes: object) -> None:
    assert Setting(kind, 0).takes(text) == takes


def test_names_of_ours_are_known() -> None:
    known = {name for release in RELEASES.values() for name in settings_of(release)}
    asked = set()
    for path in (Path(__file__).parents[2] / "rmqtool").rglob("*.py"):
        asked |= _asked(path.read_text(encoding="utf-8"))
    assert len(asked) > 60
    assert asked - known == set()


def _asked(source: str) -> set[str]:
    import re

    call = r'(?:conf\.(?:text|flag|number|paths)\(\s*|configured\(|sizes\.get\(|setting\([\w.]*conf, )"(\w+)"'
    return set(re.findall(call, source))


def test_near_names() -> None:
    assert nearest("mapedFileSizeCommitLog", V4_9) == "mappedFileSizeCommitLog"
    assert nearest("MappedFileSizeCommitLog", V5_3) == "mappedFileSizeCommitLog"
    assert nearest("mappedFileSizeBatchConsumeQueue", V5_3) == "mapperFileSizeBatchConsumeQueue"
    assert nearest("somethingElse", V5_3) is None
    assert not list(find_ignored_lines(BrokerConf({"mappedFileSizeCommitLog": "1024"}), V4_9))


def test_roles_and_ways_to_flush_that_do_not_exist(golden_copy: Unpacked) -> None:
    text = "brokerRole=SLAV\nflushDiskType=async_flush\n"
    by_code = codes(opened(golden_copy(CASE), sizes() + text))
    assert by_code["conf-value"] == ["brokerRole='SLAV' (warning)", "flushDiskType='async_flush' (warning)"]
    by_code = codes(opened(golden_copy(CASE), sizes() + "brokerRole=SYNC_MASTER\nflushDiskType=SYNC_FLUSH\n"))
    assert "conf-value" not in by_code


@pytest.mark.parametrize("case", ["broker-5.3.3", "rocksdb-5.3.3"])
def test_queues_elsewhere_than_the_configuration_says(case: str, golden_copy: Unpacked) -> None:
    """In RocksDB by the one and in files by the other; a broker reads only what its configuration names."""
    layout = StoreLayout(str(golden_copy(case)))
    rocks = case.startswith("rocksdb")
    right = "storeType=defaultRocksDB\n" if rocks else "storeType=default\n"
    wrong = "brokerName=a\n" if rocks else "storeType=defaultRocksDB\n"
    assert "conf-store-type" not in codes(opened(Path(layout.root), right))
    (row,) = codes(opened(Path(layout.root), wrong))["conf-store-type"]
    assert row.startswith("storeType=default, for want" if rocks else "storeType=defaultRocksDB")
    assert "conf-store-type" not in codes(layout)


def test_delays_with_which_no_broker_starts_do_not_end_the_check(golden_copy: Unpacked) -> None:
    layout = opened(golden_copy("delay"), "messageDelayLevel=1s 5x\n")
    before = {code: rows for code, rows in codes(StoreLayout(layout.root)).items() if not code.startswith("conf-")}
    after = codes(layout)
    assert after["conf-value"] == ["messageDelayLevel='1s 5x' (error)"]
    assert {code: rows for code, rows in after.items() if not code.startswith("conf-")} == before
