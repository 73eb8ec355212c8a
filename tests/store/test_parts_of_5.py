"""Small stores of real 5.3.3 brokers with special settings, intact and damaged, in reading commands."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formats.config.files import ConsumerOffsets, SubscriptionGroups, Topics
from formats.config.rocksdb import ENTRIES, V2
from formats.config.tiered import TieredMetadata
from rmqtool.store.config.files import config_place, read_config
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from tests import goldens, rocks
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.findings import check_store


def rows(*args: object) -> list[dict[str, Any]]:
    result = rmqtool(*args, "-o", "ndjson")
    assert (result.code, result.err) == (0, "" if result.out else "there is nothing to list\n")
    return [json.loads(line) for line in result.out.splitlines()]


def codes(store: Path) -> list[str]:
    """Codes of findings, except the role of the directory."""
    return [finding.code for finding in check_store(StoreLayout(str(store))) if finding.code != "store-role"]


def info(store: Path) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(rmqtool("info", store, "-o", "json").out)
    return shown


@pytest.mark.parametrize("part", [part for part in goldens.parts_of_5() if part != "dledger"])
def test_check_is_silent(part: str, golden: Unpacked) -> None:
    assert codes(golden(part)) == []
    assert info(golden(part))["problems"] == []


# -- what POP groups hold, in kvStore ---------------------------------------------------------------------------------


def test_popped_messages(golden: Unpacked) -> None:
    store, told = golden("pop-store"), goldens.facts("pop-store")
    listed = rows("group", "inflight", store)
    held: dict[str, list[str]] = {}
    for row in listed:
        if row["topic"] == "Popped":
            held.setdefault(row["group"], []).append(row["keys"][0])
    assert {group: sorted(keys) for group, keys in held.items()} == told["held"]
    (retried,) = [row for row in listed if row["topic"] != "Popped"]
    assert (retried["keys"], retried["originTopic"], retried["group"]) == ([told["retried"]], "Popped", "pop-group")
    assert {row["kind"] for row in listed} == {"record"}
    times = {row["keys"][0]: row["invisibleTime"] for row in listed if row["group"] == "pop-group"}
    assert times.pop(told["postponed"]) == 2 * max(times.values()) == 7_200_000
    states = {row["keys"][0]: row["state"] for row in rows("retry", "list", store)}
    assert states == {told["retried"]: "in-flight", told["waiting"]: "waiting"}
    lag = rows("group", "lag", store, "--group", "pop-group", "--topic", "Popped")
    assert (sum(row["lag"] for row in lag), sum(row["inFlight"] for row in lag)) == (0, 8)


def test_the_life_of_a_message_in_flight(golden: Unpacked) -> None:
    listed = {row["keys"][0]: row["msgId"] for row in rows("group", "inflight", golden("pop-store"))}
    (told,) = rows("trace", golden("pop-store"), listed["k9"])
    assert [event["event"] for event in told["events"]] == ["stored", "popped"]


# -- topics, groups and consumer progress in config/rdb ---------------------------------------------------------------


def test_config_v2(golden: Unpacked) -> None:
    store = golden("config-v2")
    layout = StoreLayout(str(store))
    topics, groups = read_config(layout, "topics.json"), read_config(layout, "subscriptionGroup.json")
    offsets = read_config(layout, "consumerOffset.json")
    assert isinstance(topics, Topics)
    assert topics.topics["Orders"].attributes == {"message.type": "NORMAL"}
    assert isinstance(groups, SubscriptionGroups)
    assert groups.groups["billing"].retry_max_times == 5
    assert isinstance(offsets, ConsumerOffsets)
    told = goldens.facts("config-v2")["progress"]
    for group, queues in told.items():
        for place, offset in queues.items():
            topic, _blank, queue_id = place.partition(" ")
            assert (offsets.offset(topic, group, int(queue_id)) or 0) == offset
    assert {row["name"]: row["kind"] for row in rows("config", store)}["rdb"] == (
        "Topics, SubscriptionGroups, ConsumerOffsets"
    )
    assert sum(row["lag"] for row in rows("group", "lag", store, "--group", "audit")) == 14
    assert "config/rdb" in {group["kind"] for group in info(store)["files"]}


def test_which_of_two_tables_counts(golden: Unpacked, golden_copy: Unpacked) -> None:
    store = golden_copy("config-v2")
    file = store / "config" / "topics.json"
    shutil.copy(golden("broker-5.3.3") / "config" / "topics.json", file)
    newest = max(path.stat().st_mtime for path in (store / "config" / "rdb").iterdir())

    def place(age: float, **settings: str) -> str | None:
        os.utime(file, (newest - age, newest - age))
        return config_place(StoreLayout(str(store), BrokerConf(settings)), "topics.json")

    assert [place(60), place(-60)] == [V2, None]  # what was written last
    assert place(-60, configManagerVersion="v2") == V2
    assert place(60, configManagerVersion="v1") is None


def test_values_that_no_broker_wrote(golden_copy: Unpacked) -> None:
    for key, value in ((b"\x01\x00\x03\x02\x00\x06Orders", b"{}"), (b"\x01\x00\x01\x02\x00\x01g", bytes(8))):
        store = golden_copy("config-v2")
        rocks.change(store / V2, lambda families, pair=(key, value): families[ENTRIES].update([pair]))  # type: ignore[misc]
        assert "config-database" in codes(store)
        assert [row["readable"] for row in info(store)["configs"] if row["name"] == "rdb"] == [False]


def test_progress_in_that_database_is_not_written(golden_copy: Unpacked) -> None:
    result = rmqtool("group", "reset", golden_copy("config-v2"), "billing", "--to-earliest", "--yes")
    assert (result.code, result.err.count("\n")) == (4, 1)
    assert V2 in result.err


# -- tiered storage ---------------------------------------------------------------------------------------------------


def segment(store: Path, kind: str, number: int) -> Path:
    return sorted((store / "tieredstore").glob(f"*/lab-a/Orders/0/{kind}/*"), key=lambda path: path.name[8:])[number]


def test_tiered_storage(golden: Unpacked) -> None:
    store = golden("tiered")
    facts = info(store)
    count = goldens.facts("tiered")["messages"]
    queues = [(topic, number) for topic in ("Orders", "Payments") for number in range(4)]
    assert [(row["topic"], row["queueId"]) for row in facts["tiered"]] == queues
    assert {(row["minOffset"], row["maxOffset"], row["segments"]) for row in facts["tiered"]} == {(0, count, 4)}
    assert all(facts["firstStoreTimestamp"] <= row["firstStoreTimestamp"] for row in facts["tiered"])
    assert [row["files"] for row in facts["files"] if row["kind"] == "tieredstore"] == [33]
    metadata = read_config(StoreLayout(str(store)), "tieredStoreMetadata.json")
    assert isinstance(metadata, TieredMetadata)
    assert TieredMetadata.parse(metadata.build()) == metadata
    assert "tiered storage" in rmqtool("info", store, "-o", "table").out


def cut(path: Path, to: int) -> None:
    path.write_bytes(path.read_bytes()[:to])


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def metadata_of(store: Path, change: Callable[[str], str]) -> None:
    path = store / "config" / "tieredStoreMetadata.json"
    text = path.read_text()
    assert change(text) != text
    path.write_text(change(text))


DAMAGES: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "a segment of the log is gone": (lambda s: segment(s, "COMMIT_LOG", 0).unlink(), {"tiered-missing"}),
    "a segment of the queue is gone": (lambda s: segment(s, "CONSUME_QUEUE", 1).unlink(), {"tiered-missing"}),
    "the last segment is short": (lambda s: cut(segment(s, "COMMIT_LOG", 1), 700), {"tiered-short"}),
    "a body is damaged": (lambda s: flip(segment(s, "COMMIT_LOG", 0), 89), {"tiered-message"}),
    "an entry is damaged": (lambda s: flip(segment(s, "CONSUME_QUEUE", 0), 27), {"tiered-message"}),
    "segments of a queue are exchanged": (
        lambda s: shutil.copy(
            segment(s, "COMMIT_LOG", 0), s / "tieredstore" / "24e289d7_LabCluster/lab-a/Orders/1/COMMIT_LOG/"
            "cfcd208400000000000000000000",
        ),
        {"tiered-message"},
    ),
    "a gap between segments": (
        lambda s: metadata_of(s, lambda text: text.replace('"size":100,', '"size":80,', 1)), {"tiered-gap"},
    ),
    "an unknown segment": (
        lambda s: shutil.copy(segment(s, "COMMIT_LOG", 0),
                              segment(s, "COMMIT_LOG", 0).with_name("c4ca423800000000000000000001")),
        {"tiered-unknown"},
    ),
    "a foreign file": (lambda s: (s / "tieredstore" / "notes").write_text("x"), {"file-ignored"}),
    "metadata that are no JSON": (lambda s: metadata_of(s, lambda text: text[:-9]), {"config-broken"}),
}  # fmt: skip


@by_turns(2)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_tiered_storage(damage: str, golden_copy: Unpacked) -> None:
    store = golden_copy("tiered")
    do, expected = DAMAGES[damage]
    do(store)
    assert expected <= {*codes(store)}
    others = {*codes(store)} - expected
    assert all(code.startswith("tiered-") for code in others)


def test_segments_that_are_elsewhere(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("tiered")
    shutil.move(store / "tieredstore", tmp_path / "cold")
    findings = list(check_store(StoreLayout(str(store))))
    assert [finding.code for finding in findings] == ["store-role", "not-checked"]
    layout = StoreLayout(str(store), BrokerConf({"tieredStoreFilePath": str(tmp_path / "cold")}))
    assert [finding.code for finding in check_store(layout)] == ["store-role"]


# -- controller mode --------------------------------------------------------------------------------------------------


def epochs(store: Path, *lines: str) -> None:
    (store / "epochFileCheckpoint").write_text("\n".join([str(len(lines)), "0", *lines, ""]))


def test_epochs_of_masters(golden: Unpacked) -> None:
    facts = info(golden("controller"))
    assert len(facts["epochs"]) == goldens.facts("controller")["epochs"]
    starts = [row["startOffset"] for row in facts["epochs"]]
    assert starts == sorted(set(starts))
    assert starts[-1] <= facts["maxPhyOffset"]
    assert facts["identity"].startswith("LabCluster#lab-a#")
    assert "broker identity" in rmqtool("info", golden("controller")).out


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (lambda store: epochs(store, "2-0", "1-100"), ["epoch-order"]),
        (lambda store: epochs(store, "1-0", "2-99999999"), ["epoch-ahead", "epoch-missing"]),
        (lambda store: epochs(store, "1-0", "2-100"), ["epoch-inside", "epoch-missing"]),
        (lambda store: (store / "epochFileCheckpoint").write_text("1\n99\n1-0\n"), ["epoch-broken"]),
        (lambda store: (store / "epochFileCheckpoint").write_bytes(b"\xff"), ["epoch-broken"]),
        (lambda store: (store / "brokerIdentity").write_text("LabCluster#lab-a"), ["identity-broken"]),
        (lambda store: (store / "brokerIdentity").write_bytes(b"\xff#\xff#1"), ["identity-broken"]),
    ],
)
def test_damage_to_files_of_controller_mode(
    do: Callable[[Path], object], expected: list[str], golden_copy: Unpacked
) -> None:
    store = golden_copy("controller")
    do(store)
    assert [*dict.fromkeys(codes(store))] == expected


# -- DLedger ----------------------------------------------------------------------------------------------------------


def test_a_dledger_log_is_read(golden: Unpacked) -> None:
    store = golden("dledger")
    assert codes(store) == []
    (log,) = [row for row in info(store)["files"] if row["kind"] == "dledger-n0"]
    count = goldens.facts("dledger")["messages"]
    last = count - 1
    assert log["note"] == (
        f"DLedger commit log; entries up to {last} of term 0, committed up to {last}; term 0, voted for n0"
    )
    result = rmqtool("query-offset", store, "Orders", 0, 0)
    assert result.code == 0
    assert len(rows("commitlog", "dump", store)) == count


# -- timers beyond the window, batch queues, compaction, light queues and POP in one store -----------------------------


def test_what_waits_and_what_is_held(golden: Unpacked) -> None:
    store, told = golden("rolled"), goldens.facts("rolled")
    waiting = [row for row in rows("delay", "due", store, "--all") if row["topic"] == "Timed"]
    assert sorted(row["keys"][0] for row in waiting) == [f"far-{number}" for number in range(told["pending"])]
    # each was moved on several times: the queue has a message for each time
    assert min(row["queueOffset"] for row in waiting) > told["pending"]
    assert sorted(row["keys"][0] for row in rows("group", "inflight", store)) == told["held"]
    natures = {row["topic"]: row["nature"] for row in info(store)["topics"]}
    assert natures["Batches"] == ["normal", "batch queue"]
    assert natures["Latest"] == ["normal", "compaction"]
    assert natures["Timed"] == ["normal", "delay"]
    assert natures["%LMQ%device-0"] == ["normal", "light queue"]


def test_check_names_the_kind_of_each_topic(golden_copy: Unpacked) -> None:
    store = golden_copy("rolled")
    for path in (store / "batchconsumequeue").rglob("0" * 20):
        path.write_bytes(bytes(path.stat().st_size))
    findings = list(check_store(StoreLayout(str(store))))
    assert {(finding.topic, finding.topicKind) for finding in findings if finding.topic} == {
        ("Batches", "normal, batch queue")
    }
    assert "normal, batch queue" in rmqtool("check", store, "-o", "csv").out
    assert "Batches (batch queue)" in rmqtool("check", store, "-o", "table").out
