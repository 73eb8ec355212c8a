"""Config files are repaired from their generations, the queues and the log; intact ones are not touched."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formats.config.files import NAMES, ConsumerOffsets, DelayOffsets, SubscriptionGroups, Topics, model_of
from formats.fastjson.read import loads
from formats.fastjson.write import dumps
from rmqtool.errors import BadValue, Refused
from rmqtool.store.builders.config_doctor import ConfigDoctor
from rmqtool.store.builders.config_outcome import ConfigOutcome
from rmqtool.store.changes.undo import undo
from rmqtool.store.check.run import is_problem
from rmqtool.store.disk.lock import StoreLock
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.repair.config_evidence import gather
from rmqtool.store.repair.rebuild import RebuildReport, rebuild
from tests import goldens
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.store.findings import check_store
from tests.store.helpers import conf_of, tree

# what the broker of the golden case left; from its files and scenario.md
DELIVERED = {1: 13, 2: 3, 3: 8, 4: 8}
QUEUES = {"Orders": 4, "Batched": 4, "Payments": 4, "Sequenced": 4, "Delayed": 4, "%DLQ%lab-consumer": 1}
QUEUES |= {"%RETRY%lab-consumer": 1, "TRANS_CHECK_MAX_TIME_TOPIC": 1, "SCHEDULE_TOPIC_XXXX": 18}


@pytest.fixture
def store(golden_copy: Unpacked) -> Path:
    return golden_copy("broker")


def mend(store: Path, *, dry_run: bool = False) -> RebuildReport:
    return rebuild(StoreLayout(str(store), conf_of("broker")), ("config",), dry_run=dry_run)


def outcome(report: RebuildReport, name: str) -> ConfigOutcome:
    (config,) = (config for config in report.configs if config.file == name)
    return config


def raw(store: Path, name: str) -> Any:
    return loads((store / "config" / name).read_bytes())


def edit(store: Path, name: str, change: Callable[[Any], object]) -> None:
    path = store / "config" / name
    value = loads(path.read_bytes())
    change(value)
    path.write_bytes(dumps(value))


def found_in(store: Path) -> set[str]:
    return {f.code for f in check_store(StoreLayout(str(store), conf_of("broker"))) if is_problem(f)}


@pytest.mark.parametrize("case", ["broker", "broker-crash"])
def test_files_in_order_are_not_written(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    before = tree(store)
    report = rebuild(StoreLayout(str(store), conf_of(case)), ("config",))
    assert (report.actions, report.applied, report.backup) == ([], False, None)
    assert [config.source for config in report.configs] == ["file"] * len(report.configs)
    after = tree(store)
    after.pop("lock", None), before.pop("lock", None)
    assert after == before
    assert not Path(f"{store}.rmqtool").exists()


@by_turns(2)
@pytest.mark.parametrize("case", [case for case in goldens.cases() if not case.startswith("broker")])
def test_what_was_mended_is_in_order(case: str, golden_copy: Unpacked) -> None:
    """The engine by itself writes no topics."""
    store = golden_copy(case)
    layout = StoreLayout(str(store), conf_of(case))
    before = tree(store / "config")
    report = rebuild(layout, ("config",))
    assert [config.file for config in report.configs if config.written] == ["topics.json"]
    assert all(topic["readQueueNums"] in (4, 18) for topic in raw(store, "topics.json")["topicConfigTable"].values())
    after = tree(store / "config")
    del after["topics.json"]
    assert after == before
    assert not rebuild(layout, ("config",)).actions
    assert "topic-unknown" not in {finding.code for finding in check_store(layout)}


def test_files_of_5_3_in_order_are_not_written(tmp_path: Path) -> None:
    folder = goldens.STORES.parent / "config" / "5.3-managers"
    shutil.copytree(folder, tmp_path / "config")
    doctor = ConfigDoctor(StoreLayout(str(tmp_path)), None)
    doctor.run()
    assert len(doctor.outcomes) == len(list(folder.iterdir()))
    assert not any(each.written for each in doctor.outcomes)
    assert doctor.warnings == ["the config files are not compared with queues and log: there are none that are read"]


@by_turns(13)
@pytest.mark.parametrize("content", [b"", b"\0" * 500, b"{", b'{"topicConfigTable":5}', None])
@pytest.mark.parametrize("name", [name for name in NAMES if "lmq" not in name])
def test_a_broken_or_missing_file_comes_from_its_bak(name: str, content: bytes | None, store: Path) -> None:
    path = store / "config" / name
    if not path.exists():
        assert str(model_of(name).SINCE) == "5.3"
        (store / "config" / f"{name}.bak").write_bytes(model_of(name)().build())
    before = path.with_name(f"{name}.bak").read_bytes()
    if content == b'{"topicConfigTable":5}' and name != "topics.json":
        content = b"[]"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    if name == "topics.json":  # the generation before had one topic less, which has messages
        report = mend(store)
        assert set(raw(store, name)["topicConfigTable"]) == set(loads(before)["topicConfigTable"]) | {
            "TRANS_CHECK_MAX_TIME_TOPIC"
        }
    else:
        report = mend(store)
        assert path.read_bytes() == before  # byte for byte, its version too
    assert outcome(report, name).source == "bak"
    assert path.with_name(f"{name}.bak").read_bytes() == before
    assert not found_in(store)


def test_a_tmp_that_waits_to_be_renamed(store: Path) -> None:
    """4.9 deletes the file once the .tmp is complete, and then renames it."""
    path = store / "config" / "consumerOffset.json"
    newer = ConsumerOffsets.parse(path.read_bytes()).with_offset("Orders", "lab-consumer", 0, 104).build()
    tmp = path.with_name("consumerOffset.json.tmp")
    tmp.write_bytes(newer)
    path.unlink()
    assert outcome(mend(store), "consumerOffset.json").source == "tmp"
    assert path.read_bytes() == newer
    path.unlink()
    os.utime(tmp, (1, 1))  # of another time
    assert outcome(mend(store), "consumerOffset.json").source == "bak"
    path.unlink()
    path.with_name("consumerOffset.json.bak").unlink()
    assert outcome(mend(store), "consumerOffset.json").source == "tmp"
    tmp.write_bytes(newer[:-5])
    path.unlink()
    assert outcome(mend(store), "consumerOffset.json").source == "saved"


def test_stale_bytes_behind_a_shorter_file_are_cut(store: Path) -> None:
    """apache/rocketmq#9328."""
    path = store / "config" / "consumerOffset.json"
    whole = path.read_bytes()
    path.write_bytes(whole + b'son-consumer":{0:5}\n\t}\n}')
    report = mend(store)
    assert outcome(report, "consumerOffset.json").source == "beginning"
    assert path.read_bytes() == whole


def test_entries_of_two_broken_generations(store: Path) -> None:
    """The newer generation overrides the older one, and impossible offsets are corrected."""
    path = store / "config" / "consumerOffset.json"
    whole = path.read_bytes()
    at = whole.index(b'"Orders@lab-consumer"')
    path.write_bytes(whole[:at] + bytes(len(whole) - at))
    older = whole.replace(b"Payments@lab-consumer", b"Payments@other").replace(b"0:105,1:106", b"0:9999,1:-1")
    path.with_name("consumerOffset.json.bak").write_bytes(older[: older.index(b"%RETRY%lab-consumer@")])
    report = mend(store)
    config = outcome(report, "consumerOffset.json")
    assert config.source == "saved"
    expected = dict(loads(whole)["offsetTable"])
    for lost in (
        "%RETRY%lab-consumer@lab-consumer",
        "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS",
        "Delayed@lab-consumer",
    ):
        del expected[lost]
    expected["Payments@other"] = expected["Payments@lab-consumer"]
    expected["Orders@lab-consumer"] = {0: 105, 1: 0, 2: 104, 3: 105}
    assert raw(store, "consumerOffset.json")["offsetTable"] == expected
    assert [(c.key, c.old, c.new) for c in config.changes] == [
        ("Orders@lab-consumer queue 0", 9999, 105),
        ("Orders@lab-consumer queue 1", -1, 0),
    ]
    assert not found_in(store)


def test_topics_are_what_queues_and_groups_prove(store: Path) -> None:
    golden = raw(store, "topics.json")["topicConfigTable"]
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).unlink()
    report = mend(store)
    assert outcome(report, "topics.json").source == "built"
    made = raw(store, "topics.json")["topicConfigTable"]
    assert {name: topic["readQueueNums"] for name, topic in made.items()} == QUEUES
    assert made == {name: golden[name] for name in QUEUES}  # to the member what the broker had written
    version = Topics.parse((store / "config" / "topics.json").read_bytes()).data_version
    assert version.counter == 1
    assert version.timestamp > 1_700_000_000_000
    assert [w for w in report.warnings if "offsets of topic" in w] == [
        "config/consumerOffset.json: offsets of topic %RETRY%lab-orderly, which does not exist: left as they are"
    ]
    assert "topic-unknown" not in found_in(store)


def test_a_topic_without_entry_is_added_and_the_table_gets_a_new_version(store: Path) -> None:
    def change(value: Any) -> None:
        del value["topicConfigTable"]["Payments"]
        value["topicConfigTable"]["Orders"]["future"] = {"a": [1, 2.50]}
        value["other"] = 1

    edit(store, "topics.json", change)
    before = raw(store, "topics.json")
    report = mend(store, dry_run=True)
    assert report.actions == [
        "config/topics.json: from itself: in order",
        "config/topics.json: topic Payments: nothing -> 4 queues: it has messages and no entry",
    ]
    assert raw(store, "topics.json") == before
    mend(store)
    after = raw(store, "topics.json")
    assert after["dataVersion"]["counter"] == before["dataVersion"]["counter"] + 1
    assert after["dataVersion"]["timestamp"] > before["dataVersion"]["timestamp"]
    assert after["topicConfigTable"].pop("Payments")["writeQueueNums"] == 4
    assert {**after, "dataVersion": 0} == {**before, "dataVersion": 0}
    assert b'"future":' in (store / "config" / "topics.json").read_bytes()


def test_a_queue_id_out_of_a_damaged_record_makes_no_queues(store: Path) -> None:
    edit(store, "topics.json", lambda value: value["topicConfigTable"].pop("Orders"))
    queue = store / "consumequeue" / "Orders"
    shutil.copytree(queue / "0", queue / "1073741824")
    report = mend(store)
    assert raw(store, "topics.json")["topicConfigTable"]["Orders"]["readQueueNums"] == 4
    assert any("queue 1073741824 is left out" in warning for warning in report.warnings)


def test_delay_offsets_are_found_in_the_log(store: Path) -> None:
    for name in ("delayOffset.json", "delayOffset.json.bak"):
        (store / "config" / name).unlink()
    assert outcome(mend(store), "delayOffset.json").source == "built"
    assert DelayOffsets.parse((store / "config" / "delayOffset.json").read_bytes()).offsets == DELIVERED
    assert not found_in(store)


def test_delay_offsets_go_back_into_their_queues(store: Path) -> None:
    edit(store, "delayOffset.json", lambda value: value["offsetTable"].update({1: 500, 2: -3, 9: 7}))
    (config,) = [config for config in mend(store).configs if config.written]
    assert [(c.key, c.old, c.new) for c in config.changes] == [
        ("level 1", 500, 13),
        ("level 2", -3, 0),
        ("level 9", 7, 0),
    ]
    assert raw(store, "delayOffset.json")["offsetTable"] == {1: 13, 2: 0, 3: 8, 4: 8, 9: 0}


def test_offsets_of_strangers_and_of_expired_messages_are_left(store: Path) -> None:
    table = {"Gone@group": {0: 10**12, 1: -7}, "Orders@late": {0: 0}}
    edit(store, "consumerOffset.json", lambda value: value["offsetTable"].update(table))
    report = mend(store)
    assert not report.applied
    assert report.warnings == [
        "config/consumerOffset.json: offsets of topic Gone, which does not exist: left as they are"
    ]


def test_offsets_of_batch_queues_are_left(store: Path) -> None:
    """They count messages, and their queues are in another directory."""
    (store / "batchconsumequeue" / "Bulk" / "0").mkdir(parents=True)
    bulk = {"topicName": "Bulk", "attributes": {"queue.type": "BatchCQ"}}
    edit(store, "topics.json", lambda value: value["topicConfigTable"].update(Bulk=bulk))
    edit(store, "consumerOffset.json", lambda value: value["offsetTable"].update({"Bulk@group": {0: 5000}}))
    assert not mend(store).actions


def test_an_overdue_level_without_offset_gets_it(store: Path) -> None:
    """The state after a kill before the first write."""
    edit(store, "delayOffset.json", lambda value: value["offsetTable"].pop(1))
    (config,) = [config for config in mend(store).configs if config.written]
    assert [(c.key, c.old, c.new) for c in config.changes] == [("level 1", None, 13)]
    assert raw(store, "delayOffset.json")["offsetTable"] == DELIVERED


def test_versions_of_5_3_tables_go_up_with_a_change(store: Path) -> None:
    version = {"counter": 7, "stateVersion": 3, "timestamp": 99}
    path = store / "config" / "consumerOffset.json"
    path.write_bytes(dumps({"dataVersion": version, "offsetTable": {"Orders@g": {0: 10**6}}, "groupTopicMap": {}}))
    layout = StoreLayout(str(store), conf_of("broker"))
    doctor = ConfigDoctor(layout, gather(layout), now=lambda: 1234)
    doctor.run()
    assert doctor._new.keys() == {"consumerOffset.json"}
    new = loads(doctor._new["consumerOffset.json"])
    assert new["dataVersion"] == {"counter": 8, "stateVersion": 3, "timestamp": 1234}
    assert new["offsetTable"] == {"Orders@g": {0: 105}}
    assert new["groupTopicMap"] == {}
    # 4.9 has no version there, and gets none
    path.write_bytes(dumps({"offsetTable": {"Orders@g": {0: 10**6}}}))
    doctor = ConfigDoctor(layout, gather(layout))
    doctor.run()
    assert loads(doctor._new["consumerOffset.json"]) == {"offsetTable": {"Orders@g": {0: 105}}}


def test_shared_objects_are_written_in_full(store: Path) -> None:
    """Brokers write references, but cannot read them."""
    path = store / "config" / "topics.json"
    text = path.read_text()
    text = text.replace('"topicName":"Orders"', '"attributes":{"a":"b"},"topicName":"Orders"')
    text = text.replace(
        '"topicName":"Batched"', '"attributes":{"$ref":"$.topicConfigTable.Orders.attributes"},"topicName":"Batched"'
    )
    path.write_text(text)
    assert not mend(store).applied
    edit(store, "topics.json", lambda value: value["topicConfigTable"].pop("Payments"))
    path.write_text(path.read_text())
    mend(store)
    assert b"$ref" not in path.read_bytes()
    table = raw(store, "topics.json")["topicConfigTable"]
    assert table["Batched"]["attributes"] == table["Orders"]["attributes"] == {"a": "b"}


def test_an_unclean_or_damaged_store_is_mended_too(store: Path) -> None:
    (store / "abort").touch()
    with (store / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(5000)
        log.write(bytes(300))
    groups = store / "config" / "subscriptionGroup.json"
    before = SubscriptionGroups.parse(groups.with_name("subscriptionGroup.json.bak").read_bytes())
    groups.write_bytes(groups.read_bytes()[:700])
    assert mend(store).applied
    assert SubscriptionGroups.parse(groups.read_bytes()) == before


def test_dry_run_undo_and_lock(store: Path) -> None:
    (store / "config" / "topics.json").write_bytes(b"")
    (store / "config" / "delayOffset.json").unlink()
    before = tree(store)
    planned = mend(store, dry_run=True)
    assert tree(store.parent) == {f"store/{name}": value for name, value in before.items()}
    with StoreLock(str(store)), pytest.raises(Refused):
        mend(store)
    done = mend(store)
    assert (done.actions, done.applied, planned.applied) == (planned.actions, True, False)
    assert len(done.actions) > 2
    assert not mend(store).actions
    undo(str(store))
    assert tree(store) == before | {"lock": tree(store)["lock"]}


def test_config_goes_alone(store: Path) -> None:
    with pytest.raises(BadValue, match="is rebuilt alone"):
        rebuild(StoreLayout(str(store)), ("config", "index"))


def test_a_deleted_topic_is_not_brought_back(store: Path) -> None:
    """Its messages are still in the log."""
    edit(store, "topics.json", lambda value: value["topicConfigTable"].pop("Payments"))
    edit(store, "topics.json", lambda value: value["dataVersion"].update(timestamp=2**42))
    shutil.rmtree(store / "consumequeue" / "Payments")
    assert "topic-deleted" in {finding.code for finding in check_store(StoreLayout(str(store), conf_of("broker")))}
    assert not mend(store).applied
    assert "Payments" not in raw(store, "topics.json")["topicConfigTable"]
