"""Stores of 5.5 with everything in RocksDB: queues, topics, groups, offsets, index, timers and half messages.

Expected are what the broker's clients and admin tool saw, and every queue entry as read by the real engine after
starting on a copy.
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from formats.config.files import ConsumerOffsets, SubscriptionGroups, Topics
from formats.config.rocksdb import SINGLE
from formats.queues.rocks import MIN, OFFSETS, offset_key
from formats.topics import SCHEDULE
from formats.variants.message_store import DELIVERED, END, HALVES, INDEX, LAST_STORED, PLACE, SCANNED, TIMELINE
from rmqtool.services.lookup.query import KeyReader
from rmqtool.store.check.codes.code import INFO
from rmqtool.store.config.files import config_place, read_config
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import AnyQueue, every_queue
from rmqtool.store.queues.rocks_open import rocks_queues_of
from rmqtool.store.queues.timer.files import TimerFiles
from tests import goldens, rocks
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.findings import check_store
from tests.store.helpers import tree

WHOLE, KILLED, OLD_HALVES = "rocksdb-5.5.0", "rocksdb-5.5.0-crash", "rocksdb-5.5.0-default-halves"
CASES = [WHOLE, KILLED, OLD_HALVES]
WAITING = {f"far-{number}" for number in range(3)} | {f"later-{number}" for number in range(5)} | {"recall-1"}
COMMITTED = {f"tx-{number}" for number in (0, 2, 3, 6, 8, 9, 12, 14, 15)}


def conf_file(case: str) -> Path:
    return goldens.STORES_OF_5_5 / case / "broker.conf"


def layout_of(store: Path, case: str) -> StoreLayout:
    return StoreLayout(str(store), load(str(conf_file(case))))


def rows(case: str, store: Path, *args: object) -> list[dict[str, Any]]:
    """Rows of a command; for the killed store it warns that it took queues from the log."""
    result = rmqtool(*args[:2], store, *args[2:], "--broker-conf", conf_file(case), "-o", "ndjson")
    assert result.code == (1 if case == KILLED else 0), result.err
    return [json.loads(line) for line in result.out.splitlines()]


def ends(queues: Iterable[AnyQueue]) -> dict[tuple[str, int], int]:
    """Where each queue that has messages ends."""
    return {(queue.topic, queue.queue_id): queue.max_offset for queue in queues if queue.max_offset}


def codes(store: Path, case: str) -> Counter[str]:
    """Codes of findings other than infos."""
    return Counter(finding.code for finding in check_store(layout_of(store, case)) if finding.severity != INFO)


@pytest.mark.parametrize("case", CASES)
def test_check_finds_nothing_but_the_kill(case: str, golden: Unpacked) -> None:
    assert codes(golden(case), case) == Counter(["abort-present"] if case == KILLED else [])


@pytest.mark.parametrize("case", CASES)
def test_every_queue_entry_is_read_also_where_the_kill_took_them(case: str, golden: Unpacked) -> None:
    result = {
        (queue.topic, queue.queue_id, offset): (unit.physical_offset, unit.size, unit.tags_code)
        for queue in rocks_queues_of(layout_of(golden(case), case))
        for offset, unit in queue.units()
    }
    wanted = {(entry["cqTopic"], entry["cqQueueId"], entry["cqOffset"]): entry for entry in goldens.messages(case)}
    assert len(wanted) > 400
    assert result.keys() == wanted.keys()
    for key, (physical, size, tags_code) in result.items():
        entry = wanted[key]
        assert (physical, size) == (entry["cqPhysicalOffset"], entry["cqSize"])
        if key[0] != SCHEDULE:  # deliver times: the start on a copy had the default levels
            assert tags_code == entry["cqTagsCode"]


def test_what_the_kill_took_is_said(golden: Unpacked) -> None:
    result = rmqtool("topic", "list", golden(KILLED))
    assert "up to physical offset 0 only: the rest is taken from the log here" in result.err
    assert rmqtool("topic", "list", golden(WHOLE)).err.count("physical offset") == 0


@by_turns(3)
@pytest.mark.parametrize("case", CASES)
def test_each_message_is_found_by_its_keys(case: str, golden: Unpacked) -> None:
    wanted: dict[tuple[str, str], set[int]] = {}
    for entry in goldens.messages(case):
        message = entry["message"]
        names = [message["properties"].get("UNIQ_KEY"), *message["properties"].get("KEYS", "").split()]
        for name in filter(None, names):
            wanted.setdefault((message["topic"], name), set()).add(message["physicalOffset"])
    reader = KeyReader(layout_of(golden(case), case), lambda _text: None)
    assert len(wanted) > 700
    for key, offsets in wanted.items():
        assert {located.physical_offset for located in reader.query(*key)} == offsets, key


@pytest.mark.parametrize("case", CASES)
def test_topics_groups_and_progress_are_those_of_the_single_database(case: str, golden: Unpacked) -> None:
    store = golden(case)
    layout = StoreLayout(str(store))
    assert config_place(layout, "topics.json") == SINGLE
    topics, groups = read_config(layout, "topics.json"), read_config(layout, "subscriptionGroup.json")
    offsets = read_config(layout, "consumerOffset.json")
    assert isinstance(topics, Topics)
    assert topics.topics["Lites"].attributes["message.type"] == "LITE"
    assert topics.data_version.counter > 0
    assert isinstance(groups, SubscriptionGroups)
    assert {"hold-group", "lite-group", "pop-group"} <= groups.groups.keys()
    assert isinstance(offsets, ConsumerOffsets)
    lag = Counter[str]()
    for row in rows(case, store, "group", "lag"):
        assert row["state"] in ("ok", "behind")
        lag[row["group"]] += row["lag"]
    assert lag["pull-group"] == lag["orderly-group"] == lag["priority-group"] == 0
    assert lag["pop-group"] == (3 if case == OLD_HALVES else 0)  # they came back just before the stop
    assert lag["hold-group"] == 20


@pytest.mark.parametrize("case", CASES)
def test_a_message_is_found_by_its_unique_id_alone(case: str, golden: Unpacked) -> None:
    """There are no directories that name the topics."""
    store = golden(case)
    result = rmqtool("commitlog", "dump", store, "--topic", "Orders", "--limit", "1", "-o", "ndjson")
    message = json.loads(result.out)
    found = rmqtool("query-id", store, message["msgId"], "-o", "ndjson")
    assert message["physicalOffset"] in [json.loads(line)["physicalOffset"] for line in found.out.splitlines()], found


def test_what_a_kill_took_is_no_sign_that_topics_were_deleted(golden_copy: Unpacked, tmp_path: Path) -> None:
    """Neither the queues nor the newest topics are in the databases; the log has the messages."""
    store = golden_copy(KILLED)
    whole = ends(rocks_queues_of(layout_of(store, KILLED)))

    def lose(families: rocks.Families) -> None:
        families["topic"] = {key: value for key, value in families["topic"].items() if key.startswith(b"Lites")}

    rocks.change(store / "config" / "metadata", lose)
    found = {finding.code for finding in check_store(layout_of(store, KILLED))}
    assert "topic-unknown" in found
    assert "topic-deleted" not in found
    new = tmp_path / "new"
    result = rmqtool("export", store, new, "--broker-conf", conf_file(KILLED))
    assert result.code == 0, result.err
    assert "config/topics.json lacks topics that have messages" in result.err
    assert ends(every_queue(StoreLayout(str(new)))) == whole
    assert not [finding for finding in check_store(StoreLayout(str(new))) if finding.severity != INFO]


def test_a_look_up_makes_no_queue(golden_copy: Unpacked) -> None:
    """A broker that is asked for the first message of a queue notes the answer, also if there never was one."""
    store = golden_copy(WHOLE)
    before = rows(WHOLE, store, "topic", "list", "--system")
    looked = offset_key("Orders", 1000, MIN)
    rocks.change(store / "consumequeue", lambda families: families[OFFSETS].update({looked: bytes(16)}))
    assert rows(WHOLE, store, "topic", "list", "--system") == before
    assert codes(store, WHOLE) == Counter()


def test_the_progress_of_groups_is_listed_without_a_file(golden: Unpacked) -> None:
    stored = {
        (row["group"], row["topic"], row["queueId"]): row["consumerOffset"]
        for row in rows(WHOLE, golden(WHOLE), "group", "offsets")
    }
    shown = rows(WHOLE, golden(WHOLE), "group", "lag")
    assert stored == {(row["group"], row["topic"], row["queueId"]): row["consumerOffset"] for row in shown}


def test_progress_in_the_single_database_is_not_written(golden: Unpacked) -> None:
    result = rmqtool("group", "reset", golden(WHOLE), "hold-group", "--to-latest", "--yes")
    assert result.code == 4
    assert "RocksDB" in result.err


@pytest.mark.parametrize("case", [WHOLE, OLD_HALVES])
def test_what_waits_is_told_from_what_was_delivered_and_recalled(case: str, golden: Unpacked) -> None:
    listed = rows(case, golden(case), "delay", "due", "--all")
    assert {row["keys"][0] for row in listed} == WAITING
    assert not any(row["recalled"] for row in listed)
    (timer,) = [row for row in rows(case, golden(case), "delay", "list") if row["kind"] == "timer"]
    assert (timer["pending"], timer["note"]) == (6, "timeline in RocksDB")


def test_after_the_kill_all_timer_messages_of_the_log_wait_again(golden: Unpacked) -> None:
    result = rmqtool("delay", "due", golden(KILLED), "--all", "--broker-conf", conf_file(KILLED), "-o", "ndjson")
    listed = [json.loads(line) for line in result.out.splitlines()]
    assert {row["keys"][0] for row in listed} > WAITING
    assert [row["keys"][0] for row in listed if row["recalled"]] == ["recall-0"]
    assert "what was delivered is not known" in result.err


@pytest.mark.parametrize(("case", "extra", "last"), [(WHOLE, set(), "given-up"), (KILLED, {"tx-18"}, "pending")])
def test_transactions_ended_as_their_producer_saw_it(case: str, extra: set[str], last: str, golden: Unpacked) -> None:
    listed = rows(case, golden(case), "transaction", "list")
    assert {row["keys"][0] for row in listed if row["state"] == "committed"} == COMMITTED | extra
    # after the kill nothing says how often it was checked
    assert [(row["keys"][0], row["state"]) for row in listed if row["state"] not in ("committed", "rolled-back")] == [
        ("tx-5", last)
    ]


@by_turns(3)
@pytest.mark.parametrize("command", ["salvage", "export"])
@pytest.mark.parametrize("case", [WHOLE, OLD_HALVES])
def test_a_store_in_files_has_all_of_it(command: str, case: str, golden: Unpacked, tmp_path: Path) -> None:
    store, new = golden(case), tmp_path / "new"
    result = rmqtool(command, store, new, "--broker-conf", conf_file(case))
    assert result.code == 0, result.err
    before = tree(new)
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        assert read_config(StoreLayout(str(new)), name) == read_config(StoreLayout(str(store)), name)
    assert Counter(finding.severity for finding in check_store(StoreLayout(str(new)))) == Counter()
    due = [json.loads(line) for line in rmqtool("delay", "due", new, "--all", "-o", "ndjson").out.splitlines()]
    assert {row["keys"][0] for row in due} == WAITING
    assert tree(new) == before


def test_a_new_wheel_does_not_begin_after_the_log(golden_copy: Unpacked, tmp_path: Path) -> None:
    """A message whose time came before the database had it would wait as long as the next one that it has."""
    store = golden_copy(WHOLE)

    def forget(families: rocks.Families) -> None:
        timeline = families[TIMELINE]
        delivered = int.from_bytes(timeline.pop(DELIVERED))
        families[TIMELINE] = {
            key: value for key, value in timeline.items() if key == SCANNED or int.from_bytes(key[:8]) > delivered
        }

    rocks.change(store / PLACE, forget)
    last = CommitLog(layout_of(store, WHOLE)).last()
    assert last is not None
    for command in ("export", "salvage"):
        new = tmp_path / command
        assert rmqtool(command, store, new, "--broker-conf", conf_file(WHOLE)).code == 0
        layout = StoreLayout(str(new))
        assert TimerFiles(layout).point.last_read_time <= last.record.store_timestamp + layout.conf.timer_precision
        assert Counter(finding.severity for finding in check_store(layout)) == Counter()
        due = [json.loads(line) for line in rmqtool("delay", "due", new, "--all", "-o", "ndjson").out.splitlines()]
        assert {row["keys"][0] for row in due} == WAITING


def test_a_salvage_says_that_all_timer_messages_come_again(golden: Unpacked, tmp_path: Path) -> None:
    result = rmqtool("salvage", golden(KILLED), tmp_path / "new", "--broker-conf", conf_file(KILLED))
    assert result.code == 0
    assert "does not say which timer messages were delivered" in result.err


def test_queues_in_a_folder_of_their_own(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy(WHOLE)
    wanted = rows(WHOLE, store, "topic", "list")
    (store / "consumequeue").rename(store / "consumequeue_rocksdb")
    assert rows(WHOLE, store, "topic", "list") == wanted
    assert codes(store, WHOLE) == Counter()
    lines = tmp_path / "lines"
    lines.write_text('{"topic": "Orders", "body": "x"}')
    result = rmqtool("append", store, lines)
    assert (result.code, "RocksDB" in result.err) == (4, True)


def test_entries_that_lead_nowhere(golden_copy: Unpacked) -> None:
    store = golden_copy(WHOLE)

    def far(families: rocks.Families) -> None:
        timeline, halves, index = families[TIMELINE], families[HALVES], families[INDEX]
        key = max(key for key in timeline if key not in (SCANNED, DELIVERED))
        timeline[key] = timeline[key][:4] + (1 << 40).to_bytes(8, "big")
        timeline[b"short"] = b""
        halves[(1 << 40).to_bytes(8, "big") + b"@Payments@key"] = bytes(8)
        key = next(key for key in index if key not in (END, LAST_STORED))
        index[key[:-8] + (1 << 40).to_bytes(8, "big")] = index[key]

    rocks.change(store / PLACE, far)
    assert codes(store, WHOLE) == Counter(
        ["timeline-no-message", "store-database-entry", "half-no-message", "store-index-no-message"]
    )
    result = rmqtool("delay", "due", store, "--all", "-o", "ndjson")
    assert "timer log: 1 unit without a message" in result.err


def test_a_database_that_cannot_be_read(golden_copy: Unpacked) -> None:
    store = golden_copy(WHOLE)
    for table in (store / PLACE).glob("MANIFEST-*"):
        table.write_bytes(table.read_bytes()[:40])
    assert codes(store, WHOLE)["store-database"] == 1
    for arguments in (("delay", "list"), ("transaction", "list"), ("query-key",)):
        result = rmqtool(*arguments, store, *(["Orders", "order-1"] if arguments[0] == "query-key" else []))
        assert PLACE in result.err
        assert "Traceback" not in result.err


def test_queues_of_a_killed_store_end_at_the_first_damage(golden_copy: Unpacked) -> None:
    """A start ends the log there, whatever follows."""
    store = golden_copy(KILLED)
    layout = layout_of(store, KILLED)
    offsets = sorted(unit.physical_offset for queue in rocks_queues_of(layout) for _at, unit in queue.units())
    cut = offsets[len(offsets) // 2]
    log = store / "commitlog" / "00000000000000000000"
    whole = log.read_bytes()
    data = bytearray(whole)
    data[cut + 4 : cut + 8] = bytes(4)
    log.write_bytes(data)
    (store / "commitlog" / "00000000000001048576").write_bytes(whole)  # records behind it, which a start drops
    left = [unit for queue in rocks_queues_of(layout_of(store, KILLED)) for _at, unit in queue.units()]
    assert sorted(unit.physical_offset for unit in left) == [at for at in offsets if at < cut]


def test_a_broker_that_refuses_is_one_of_the_release_of_the_store(golden_copy: Unpacked) -> None:
    store = golden_copy(WHOLE)
    table = max((store / "consumequeue").glob("*.sst"), key=lambda path: path.stat().st_size)
    table.write_bytes(table.read_bytes()[:-20])
    answer = rmqtool("recover", store, "--broker-conf", conf_file(WHOLE), "--dry-run", "-o", "json")
    report = json.loads(answer.out)
    assert (report["loadOk"], report["engine"]) == (False, "5.5")
    assert any("Sst file size mismatch" in reason for reason in report["refusals"])
