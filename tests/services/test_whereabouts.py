"""Where a message is and is not: on stores of real brokers, against what their engines and scenarios say."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from formats.message.ids import offset_id
from formats.message.properties import parse
from formats.message.trace import SubAfter, parse_sub_after
from formats.topics import SCHEDULE, TIMER, TRACE
from rmqtool.services.popping.in_flight import MessagesInFlight
from rmqtool.services.timers.timers import open_timers
from rmqtool.services.whereabouts import Answer, Explainer, Whereabouts
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import LocatedRecord
from rmqtool.store.repair.rebuild import rebuild
from tests import goldens
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.services import lab
from tests.services.build import HOST, TIME, Builder, log_of, never
from tests.services.test_popped import REVIVE, ack, checkpoint
from tests.services.test_trace import unique_ids
from tests.timers import NOW, Timers


def explainer(store: Path, warn: Any = never, now: int = lab.STOPPED) -> Explainer:
    return Explainer(log_of(store), now, warn)


def one(answer: Answer) -> Whereabouts:
    assert len(answer.messages) == 1
    return answer.messages[0]


def states(answer: Whereabouts) -> set[tuple[str, str]]:
    return {(finding.place, finding.state) for finding in answer.findings}


def expected_verdict(key: str) -> str:
    """The verdict by the scenario of the golden broker."""
    kind, _, number = key.rpartition("-")
    i = int(number)
    if kind == "order" and (i in lab.FAILED_THRICE or i in lab.DEAD_AT_ONCE):
        return "dead-letter"
    if kind == "tx":
        state = lab.TRANSACTIONS[key][0]
        return "passed" if state == "committed" else state
    return "waiting" if kind == "far" else "passed"


@by_turns(3)
@pytest.mark.parametrize("number", range(6))
def test_every_message_of_the_scenario(number: int, golden: Unpacked) -> None:
    explain, ids = explainer(golden("broker")), unique_ids("broker")
    keys = [key for key in ids if not key.startswith("order-") or int(key[6:]) % 10 == 0][number::6]
    assert len(keys) > 15
    for key in keys:
        answer = one(explain.by_id(ids[key]))
        assert (key, answer.msgId, answer.verdict) == (key, ids[key], expected_verdict(key))
        for place in ("log", "queue"):
            assert {finding.state for finding in answer.findings if finding.place == place} == {"present"}, key
        assert not any(finding.place == "index" for finding in answer.findings), key


@pytest.mark.parametrize("case", ["broker", "broker-crash", "ipv6"])
def test_all_three_ways_to_name_a_message_agree(case: str, golden: Unpacked) -> None:
    explain = explainer(golden(case), lambda _text: None)
    rows = [row["message"] for row in goldens.messages(case) if "UNIQ_KEY" in row["message"]["properties"]][::37]
    assert len(rows) > 5
    for row in rows:
        properties = row["properties"]
        by_offset = one(explain.by_offset(row["topic"], row["queueId"], row["queueOffset"]))
        by_id = one(explain.by_id(properties["UNIQ_KEY"]))
        by_key = one(explain.by_key(row["topic"], properties["UNIQ_KEY"], 10))
        assert by_offset.findings == by_id.findings == by_key.findings
        assert by_offset.verdict == by_id.verdict == by_key.verdict
        assert {by_offset.msgId, by_id.msgId, by_key.msgId} == {properties["UNIQ_KEY"]}


def test_what_a_deleted_file_had_is_expired(golden: Unpacked) -> None:
    whole, store = golden("clean"), golden("head-file-deleted")
    low = log_of(store).min_offset
    assert low > 0
    explain, gone, left = explainer(store), 0, 0
    for item in list(log_of(whole).walk())[::23]:
        assert isinstance(item, LocatedRecord)
        record = item.record
        topic = record.topic.decode()
        message_id = offset_id(record.store_address, record.store_port, item.physical_offset)
        answer = one(explain.by_id(message_id)), one(explain.by_offset(topic, record.queue_id, record.queue_offset))
        if item.physical_offset < low:
            gone += 1
            assert {each.verdict for each in answer} == {"expired"}
            assert all(str(low) in each.words for each in answer)
        else:
            left += 1
            assert {each.verdict for each in answer} == {"stored"}
    assert gone > 3 < left


def test_an_expired_key_is_known_from_the_index(golden: Unpacked) -> None:
    store = golden("head-file-deleted")
    low = log_of(store).min_offset
    rows = [row["message"] for row in goldens.messages("clean")]
    row = next(row for row in rows if row["physicalOffset"] < low and "KEYS" in row["properties"])
    key = row["properties"]["KEYS"].split()[0]
    answer = one(explainer(store).by_key(row["topic"], key, 10))
    assert (answer.verdict, states(answer)) == ("expired", {("index", "expired")})
    assert answer.findings[0].physicalOffset == row["physicalOffset"]


def test_without_queues_it_is_in_the_log_alone(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    shutil.rmtree(store / "consumequeue" / "Orders" / "1")
    for answer in (
        one(explainer(store).by_offset("Orders", 1, 0)),
        one(explainer(store, lambda _text: None).by_id(unique_ids("broker")["order-1"])),
    ):
        queue = [finding for finding in answer.findings if finding.place == "queue"]
        if answer.verdict == "not-in-queue":
            assert "no-queue" in {finding.state for finding in queue}
            assert any("dispatch" in step for step in answer.nextSteps)
        else:
            assert all(finding.queueId != 1 or finding.topic != "Orders" for finding in queue)
    assert one(explainer(store).by_offset("Orders", 1, 0)).verdict == "not-in-queue"


def test_a_queue_that_is_behind_the_log(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    path = store / "consumequeue" / "Orders" / "1" / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(data[: 20 * 50].ljust(len(data), b"\0"))
    answer = one(explainer(store).by_offset("Orders", 1, 60))
    assert answer.verdict == "not-in-queue"
    assert ("queue", "behind") in states(answer)
    assert one(explainer(store).by_offset("Orders", 1, 49)).verdict != "not-in-queue"


def test_without_an_index_it_is_not_under_its_keys(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    shutil.rmtree(store / "index")
    answer = one(explainer(store).by_key("Orders", "order-65", 10))
    assert answer.verdict == "passed"
    finding = next(finding for finding in answer.findings if finding.place == "index")
    assert finding.state == "absent"
    assert "order-65" in finding.words
    assert any("rebuild" in step and "index" in step for step in answer.nextSteps)


@pytest.mark.parametrize("case", ["body-bit-flip-last-file", "magic-broken-last-file"])
def test_a_damaged_record_is_named(case: str, golden: Unpacked) -> None:
    explain = explainer(golden(case), lambda _text: None)
    damaged = next(item for item in log_of(golden(case)).walk() if not isinstance(item, LocatedRecord))
    row = next(
        row["message"] for row in goldens.messages("clean")
        if row["message"]["physicalOffset"] == damaged.physical_offset
    )  # fmt: skip
    answer = one(explain.by_offset(row["topic"], row["queueId"], row["queueOffset"]))
    assert answer.verdict == "damaged"
    assert any("check" in step for step in answer.nextSteps)


def test_a_place_that_was_cut_and_written_again_is_overwritten(tmp_path: Path) -> None:
    before, after = Builder(), Builder()
    places = [before.put("T", body=b"x" * 100) for _number in range(10)]
    for _number in range(10):
        after.put("T", body=b"y" * 130)
    store = after.write(tmp_path)
    answer = one(explainer(store).by_id(offset_id(HOST, 10911, places[5])))
    assert answer.verdict == "overwritten"
    assert "inside message" in answer.words


def test_what_was_cut_is_beyond_the_end(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    items = [item for item in log_of(store).walk() if isinstance(item, LocatedRecord)]
    last = items[-1]
    assert rmqtool("truncate", store, items[-20].physical_offset, "--yes").code == 0
    record = last.record
    answer = one(explainer(store).by_id(offset_id(record.store_address, record.store_port, last.physical_offset)))
    assert answer.verdict == "beyond-end"
    assert any("undo" in step for step in answer.nextSteps)


def test_a_retry_whose_copy_was_cut_off(golden_copy: Unpacked) -> None:
    store, name = golden_copy("broker"), unique_ids("broker")["order-40"]
    (trace,) = explainer(store).by_id(name).messages
    retry = next(f for f in trace.findings if f.topic == "%RETRY%lab-consumer" and f.place == "log")
    delayed = next(f for f in trace.findings if f.topic == SCHEDULE and f.place == "log")
    assert rmqtool("truncate", store, retry.physicalOffset, "--yes").code == 0
    answer = one(explainer(store).by_id(name))
    assert answer.verdict == "delay-gone"
    assert ("waiting", "delay-gone") in states(answer)
    offsets = store / "config" / "delayOffset.json"
    assert delayed.queueId is not None
    offsets.write_text(json.dumps({"offsetTable": {delayed.queueId + 1: delayed.queueOffset}}))
    answer = one(explainer(store).by_id(name))
    assert answer.verdict == "waiting"
    assert ("waiting", "retry") in states(answer)


def test_an_id_of_another_broker(golden: Unpacked) -> None:
    answer = one(explainer(golden("broker")).by_id(offset_id(b"\xc0\xa8\x07\x01", 10911, 0)))
    assert (answer.verdict, "192.168.7.1:10911" in answer.words) == ("other-broker", True)


def test_ids_that_nobody_stored(golden: Unpacked) -> None:
    explain = explainer(golden("broker"))
    ids = unique_ids("broker")
    made = ids["order-1"]
    assert one(explain.by_id(made[:-8] + "FFFFFFFF")).verdict in ("not-found", "newer", "expired")
    assert one(explain.by_id("nothing")).verdict == "not-found"
    assert one(explain.by_id("")).verdict == "not-found"
    answer = one(explain.by_id("order-65"))
    assert answer.verdict == "is-key"
    assert any("why" in step and "Orders" in step for step in answer.nextSteps)


@pytest.mark.parametrize(
    ("question", "verdict"),
    [
        (("Orders", 0, 10**15), "not-yet"), (("Orders", 99, 0), "no-queue"), (("Nowhere", 0, 0), "unknown-topic"),
        (("Orders", "nosuch"), "not-found"), (("Nowhere", "k"), "unknown-topic"),
    ],
)  # fmt: skip
def test_places_without_a_message(question: tuple[Any, ...], verdict: str, golden: Unpacked) -> None:
    explain = explainer(golden("broker"))
    match question:
        case (topic, int(queue_id), int(queue_offset)):
            answer = one(explain.by_offset(topic, queue_id, queue_offset))
        case (topic, key):
            answer = one(explain.by_key(topic, key, 10))
    assert answer.verdict == verdict
    assert answer.nextSteps


def test_a_group_that_has_not_come_to_it(tmp_path: Path) -> None:
    builder = Builder()
    for number in range(4):
        builder.put("T", properties={"UNIQ_KEY": f"id{number}"})
    store = builder.write(
        tmp_path,
        {
            "consumerOffset.json": '{"offsetTable":{"T@slow":{0:1},"T@fast":{0:4},"T@off":{0:0}}}',
            "subscriptionGroup.json": '{"subscriptionGroupTable":{"off":{"groupName":"off","consumeEnable":false}}}',
        },
    )
    os.utime(store / "config" / "consumerOffset.json", (TIME // 1000 + 60, TIME // 1000 + 60))
    answer = one(explainer(store, lambda _text: None).by_offset("T", 0, 2))
    groups = {finding.group: finding for finding in answer.findings if finding.place == "group"}
    assert {name: finding.state for name, finding in groups.items()} == {
        "slow": "not-yet", "fast": "passed", "off": "group-disabled",
    }  # fmt: skip
    assert "1 message before it" in groups["slow"].words
    assert groups["fast"].timestamp == TIME + 60_000
    assert answer.verdict == "not-consumed"


def test_message_traces_say_when_a_group_processed_it(tmp_path: Path) -> None:
    builder = Builder()
    builder.put("T", properties={"UNIQ_KEY": "id0"})
    attempts = [(TIME + 500, 2, "g"), (TIME + 900, 0, "g"), (TIME + 700, 4, "h")]
    for number, (time, outcome, group) in enumerate(attempts):
        record = SubAfter(
            request_id=f"r{number}", message_id="id0", took=1, success=outcome == 0, keys=None, outcome=outcome,
            time=time, group=group,
        )  # fmt: skip
        builder.put(TRACE, body=record.text().encode(), properties={"KEYS": "id0"})
    store = builder.write(tmp_path, {"consumerOffset.json": '{"offsetTable":{"T@g":{0:1},"T@h":{0:1},"T@i":{0:1}}}'})
    rebuild(StoreLayout(str(store), BrokerConf()), ("index",))
    answer = one(explainer(store, lambda _text: None).by_id("id0"))
    groups = {finding.group: finding for finding in answer.findings if finding.place == "group"}
    assert {name: (finding.state, finding.timestamp) for name, finding in groups.items() if name != "i"} == {
        "g": ("consumed", TIME + 900), "h": ("consumed", TIME + 700),
    }  # fmt: skip
    assert "SUCCESS" in groups["g"].words
    assert "FAILED" in groups["h"].words
    assert groups["i"].state == "passed"


def test_trace_records_are_read_as_clients_write_them() -> None:
    record = SubAfter(
        request_id="r", message_id="m", took=7, success=False, keys=None, outcome=2, time=TIME, group="g"
    )  # fmt: skip
    assert parse_sub_after(record.text() * 2) == [record, record]
    for text in ("", "SubAfter", "SubAfter\x01r\x01m\x01x\x01true\x01k\x010\x015\x01g\x02", "Pub\x01" * 12):
        assert parse_sub_after(text) == []


def test_the_limit_of_a_key_is_said(golden: Unpacked) -> None:
    answer = explainer(golden("broker")).by_key("Orders", "user-7", 2)
    assert len(answer.messages) == 2
    assert answer.more > 5
    result = rmqtool("why", golden("broker"), "Orders", "user-7", "--limit", "2")
    assert f"{answer.more} older messages" in result.err


def test_words_that_name_no_message(golden: Unpacked) -> None:
    for args in (["a", "b", "c"], ["a", "0", "1", "2"], ["a", "-1", "0"]):
        assert rmqtool("why", golden("broker"), *args).code == 2


def test_a_delayed_message_says_until_when(golden: Unpacked) -> None:
    answer = one(explainer(golden("broker")).by_id(unique_ids("broker")["far-0"]))
    finding = next(finding for finding in answer.findings if finding.place == "waiting")
    assert (finding.state, finding.topic) == ("delay", SCHEDULE)
    assert finding.timestamp is not None
    assert finding.words.startswith("waiting for its time")
    assert one(explainer(golden("broker")).by_key("Delayed", "far-0", 10)).findings == answer.findings


def test_what_waits_in_the_timer(golden: Unpacked) -> None:
    log = log_of(golden("broker-5.3.3"))
    now = 1_795_000_000_000
    timers = [message for message in open_timers(log, now, never).pending() if not message.recalled]
    assert timers
    for message in timers[:5]:
        item = log.read(message.physicalOffset)
        assert item is not None
        record = item.record
        explain = Explainer(log, now, never)
        answer = one(explain.by_id(offset_id(record.store_address, record.store_port, item.physical_offset)))
        finding = next(finding for finding in answer.findings if finding.place == "waiting")
        assert (answer.verdict, finding.state, finding.timestamp) == ("waiting", "timer", message.deliverTimestamp)


@pytest.mark.parametrize(("case", "now"), [("broker-5.5.0", 1_795_000_000_000), ("rocksdb-5.5.0", 1_795_788_000_000)])
def test_a_recalled_message_does_not_wait(case: str, now: int, golden: Unpacked) -> None:
    """In files a timer keeps it until its time; in RocksDB it is gone at once."""
    log = log_of(golden(case))
    (properties,) = [
        properties
        for item in log.walk()
        if isinstance(item, LocatedRecord) and item.record.topic == TIMER.encode()
        if (properties := parse(item.record.properties)).get("KEYS") == "recall-0"
    ]
    answer = one(Explainer(log, now, never).by_id(properties["UNIQ_KEY"]))
    assert (answer.verdict, [f.state for f in answer.findings if f.place == "waiting"]) == ("recalled", ["recalled"])


def test_what_pop_consumers_hold(tmp_path: Path) -> None:
    timers = Timers()
    for number in range(4):
        timers.builder.put("T", properties={"UNIQ_KEY": f"id{number}"}, store_timestamp=NOW - 1000)
    timers.put(59, topic=REVIVE, body=checkpoint(d=[0, 1], n=2), TAGS="ck")
    timers.put(60, topic=REVIVE, body=ack(ao=1), TAGS="ack")
    log = log_of(timers.write(tmp_path))
    assert [row.queueOffset for row in MessagesInFlight(log, NOW, never).in_flight()] == [0]
    explain = Explainer(log, NOW, lambda _text: None)
    popped, acked = one(explain.by_offset("T", 0, 0)), one(explain.by_offset("T", 0, 1))
    waiting = [finding for finding in popped.findings if finding.place == "waiting"]
    assert [(finding.state, finding.group) for finding in waiting] == [("pop", "G")]
    assert (popped.verdict, acked.verdict) == ("waiting", "stored")
