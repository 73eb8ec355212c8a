"""A topic deleted by a broker: check says so, and no advice brings it back."""

import json
import shutil
from pathlib import Path

import pytest

from formats.queues.rocks import MAX, MIN, OFFSETS, UNITS, offset_key, unit_key
from tests import rocks
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.rocks import Families

TOPIC = "Orders"


def delete(store: Path, *, later: int = 1000, folder: bool = True) -> None:
    """Delete a topic as DELETE_TOPIC_IN_BROKER does: 4.9 leaves the topic's directory without queues.

    Args:
        later: ms between the newest message and the deletion.
    """
    rows = rmqtool("commitlog", "dump", store, "-o", "ndjson", "--body", "none").out.splitlines()
    newest = max(json.loads(row)["storeTimestamp"] for row in rows if json.loads(row)["topic"] == TOPIC)
    path = store / "config" / "topics.json"
    table = json.loads(path.read_text())
    del table["topicConfigTable"][TOPIC]
    version = table["dataVersion"]
    version["counter"], version["timestamp"] = version["counter"] + 1, newest + later
    path.write_text(json.dumps(table))
    shutil.rmtree(store / "consumequeue" / TOPIC)
    if folder:
        (store / "consumequeue" / TOPIC).mkdir()


def findings(store: Path, *, code: int = 0) -> list[dict[str, object]]:
    result = rmqtool("check", store, "-o", "ndjson")
    assert result.code == code, result.out
    return [json.loads(line) for line in result.out.splitlines()]


@by_turns(3)
@pytest.mark.parametrize("folder", [True, False])
@pytest.mark.parametrize("case", ["broker", "broker-5.3.3", "broker-5.5.0"])
def test_a_deleted_topic_is_named_as_deleted(case: str, folder: bool, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    before = findings(store)
    messages = rmqtool("commitlog", "dump", store, "--topic", TOPIC, "-o", "ndjson").out.count("\n")
    delete(store, folder=folder)
    told = [finding for finding in findings(store) if finding not in before]
    assert [(row["code"], row["severity"], row["topic"], row["count"]) for row in told] == [
        ("topic-deleted", "info", TOPIC, messages)
    ]
    assert "rebuild" not in str(told)
    report = rmqtool("check", store)
    assert "topic-deleted" in report.out
    assert "rebuild" not in report.out


def test_other_damage_does_not_bring_it_back(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    delete(store)
    shutil.rmtree(store / "consumequeue" / "Sequenced" / "0")
    codes = {finding["code"]: finding for finding in findings(store, code=1)}
    assert codes["cq-missing"]["topic"] == "Sequenced"
    result = rmqtool("rebuild", store, "consumequeue", "--yes")
    assert result.code == 0, result.err
    assert f"topic {TOPIC} was deleted" in result.err
    assert not any((store / "consumequeue" / TOPIC).rglob("0*"))
    assert "cq-missing" not in {finding["code"] for finding in findings(store)}


def test_a_topic_with_newer_messages_was_not_deleted(golden_copy: Unpacked) -> None:
    """topics.json is older than they are: it was restored, or a killed broker had just created the topic."""
    store = golden_copy("broker")
    delete(store, later=-1)
    told = {finding["code"] for finding in findings(store, code=1)}
    assert {"cq-missing", "topic-unknown"} <= told
    assert "topic-deleted" not in told


def test_a_lost_queue_of_a_known_topic_was_not_deleted(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    shutil.rmtree(store / "consumequeue" / TOPIC)
    assert "topic-deleted" not in {finding["code"] for finding in findings(store, code=1)}


def test_what_a_crash_brings_back_is_told(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    delete(store)
    (store / "abort").touch()
    (store / "checkpoint").unlink()
    (told,) = [finding for finding in findings(store, code=1) if finding["code"] == "topic-deleted"]
    assert "into queues again" in str(told["consequence"])


def delete_from_databases(store: Path, *, later: int) -> int:
    """Delete a topic as a broker with queues in RocksDB does; returns the number of its messages."""
    rows = [json.loads(line) for line in rmqtool("commitlog", "dump", store, "-o", "ndjson").out.splitlines()]
    newest = max(row["storeTimestamp"] for row in rows if row["topic"] == TOPIC)

    def without_queues(families: Families) -> None:
        names = [(TOPIC, row["queueId"]) for row in rows if row["topic"] == TOPIC]
        for topic, queue_id in set(names):
            for which in (MIN, MAX):
                families[OFFSETS].pop(offset_key(topic, queue_id, which), None)
        for row in rows:
            if row["topic"] == TOPIC:
                families[UNITS].pop(unit_key(TOPIC, row["queueId"], row["queueOffset"]), None)

    def without_settings(families: Families) -> None:
        for family in families.values():
            for key in [key for key in family if key.endswith(TOPIC.encode())]:
                del family[key]
            for key, value in family.items():
                if b'"stateVersion"' in value and b"kvDataVersionKey" in key:
                    family[key] = json.dumps(json.loads(value) | {"timestamp": newest + later}).encode()

    rocks.change(store / "consumequeue", without_queues)
    rocks.change(store / "config" / "topics", without_settings)
    return sum(row["topic"] == TOPIC for row in rows)


def test_a_deleted_topic_of_a_store_with_queues_in_rocksdb(golden_copy: Unpacked) -> None:
    store = golden_copy("rocksdb-5.3.3")
    before = findings(store)
    messages = delete_from_databases(store, later=1000)
    told = [finding for finding in findings(store) if finding not in before]
    assert [(row["code"], row["severity"], row["topic"], row["count"]) for row in told] == [
        ("topic-deleted", "info", TOPIC, messages)
    ]
    assert "rebuild" not in str(told)


def test_units_that_are_lost_are_no_deletion(golden_copy: Unpacked) -> None:
    store = golden_copy("rocksdb-5.3.3")
    delete_from_databases(store, later=-1)
    told = {finding["code"] for finding in findings(store, code=1)}
    assert "rcq-missing" in told
    assert "topic-deleted" not in told
