"""Every golden store of a complete 5.3.3 broker, compared with what clients, the admin tool and the engine reported."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from rmqtool.contract import message_row
from rmqtool.services.lookup.get_message import get_message
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import every_queue, open_any_queue
from tests import goldens
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.findings import check_store

# of a killed broker in RocksDB form the queues are behind its log until its next start
WHOLE = ["broker-5.3.3", "broker-5.3.3-crash", "rocksdb-5.3.3"]
EVERY = [*WHOLE, "rocksdb-5.3.3-crash"]  # those that this is known of; the others are about compaction alone
RETRY = "%RETRY%pop-group_Popped"
STANDARD = {
    "topic",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "keys",
    "storeTimestamp",
    "bornTimestamp",
    "properties",
}


def rows(*args: object) -> list[dict[str, Any]]:
    result = rmqtool(*args, "-o", "ndjson")
    assert result.code in (0, 1), result.err
    return [json.loads(line) for line in result.out.splitlines()]


@cache
def said(case: str, file: str) -> str:
    place = goldens.STORES_OF_5 / case.removesuffix("-crash")  # one broker, copied while it ran and after it stopped
    return (place / "facts" / file).read_text()


def numbers(text: str) -> Iterator[tuple[str, list[str]]]:
    """(title, fields) of each line about a queue."""
    title = ""
    for line in text.splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif "lab-a" in line and line.split():
            yield title, line.split()


@pytest.mark.parametrize("case", WHOLE)
def test_lag(case: str, golden: Unpacked) -> None:
    told = {
        (group, fields[0], int(fields[2])): tuple(map(int, fields[3:7]))
        for group, fields in numbers(said(case, "consumer-progress.txt"))
    }
    listed = {
        (row["group"], row["topic"], row["queueId"]): (
            row["brokerOffset"], row["consumerOffset"], row["lag"], row["inFlight"],
        )
        for row in rows("group", "lag", golden(case))
        if not row["group"].startswith("CID_RMQ_SYS_")
    }  # fmt: skip
    assert len(told) == 20
    assert listed == told


@pytest.mark.parametrize("case", WHOLE)
def test_ends_of_queues(case: str, golden: Unpacked) -> None:
    told = {
        (topic, int(fields[1])): (int(fields[2]), int(fields[3]))
        for topic, fields in numbers(said(case, "topic-status.txt"))
        if fields[0] == "lab-a"
    }
    layout = StoreLayout(str(golden(case)))
    low = CommitLog(layout).min_offset
    result = {(queue.topic, queue.queue_id): (queue.min_offset(low), queue.max_offset) for queue in every_queue(layout)}
    assert len(told) > 15
    # the tool also tells of queues that no message ever came to; what came after it was asked waits in POP's own topics
    later = {place for place in told if place[0].startswith(("rmq_sys_", RETRY))}
    assert {key: result.get(key, (0, 0)) for key in told if key not in later} == {
        key: ends for key, ends in told.items() if key not in later
    }
    assert all(result.get(key, (0, 0))[1] >= told[key][1] for key in later)


@pytest.mark.parametrize("case", EVERY)
def test_every_entry_of_every_queue(case: str, golden: Unpacked) -> None:
    """As the engine reads the directory; for a killed broker, after it has dispatched the rest of the log."""
    layout = StoreLayout(str(golden(case)))
    log = CommitLog(layout)
    built = {(queue.topic, queue.queue_id): queue.max_offset for queue in every_queue(layout)}
    seen: Counter[tuple[str, int]] = Counter()
    same = case if case.startswith("rocksdb") else WHOLE[0]  # of a broker with files it had all, killed or not
    for row in goldens.messages(same):
        place = (row["cqTopic"], row["cqQueueId"])
        seen[place] = max(seen[place], row["cqOffset"] + (row.get("batchNum") or 1))
        located = log.read(row["cqPhysicalOffset"])
        assert located is not None
        expected = row["message"]
        got = message_row(located.record, located.physical_offset, "none")
        assert {name: got[name] for name in STANDARD & expected.keys() & got.keys()} == {
            name: expected[name] for name in STANDARD & expected.keys() & got.keys()
        }
        assert located.record.total_size == row["cqSize"]
        if row["cqOffset"] >= built.get(place, 0):
            assert case == "rocksdb-5.3.3-crash"
            continue
        queue = open_any_queue(layout, *place)
        entry = queue.entry(row["cqOffset"]) if queue is not None else None
        assert entry is not None
        assert entry.physical_offset == row["cqPhysicalOffset"]
        if "batchNum" not in row or row["batchNum"] in (None, 1):
            assert entry.tags_code == row["cqTagsCode"]
            result = get_message(log, queue, row["cqOffset"], 1)
            assert [message.physical_offset for message in result.messages] == [row["cqPhysicalOffset"]]
    assert sum(seen.values()) > 100
    # light queues and those of delay levels that had no message are there too, and are empty
    assert {place: end for place, end in built.items() if end} == dict(seen)


@pytest.mark.parametrize("case", EVERY)
def test_pending_timers(case: str, golden: Unpacked) -> None:
    waiting = rows("delay", "due", golden(case), "--all")
    keys = Counter(key for row in waiting for key in row["keys"] if row["topic"] == "Timers")
    expected = {*(f"later-{n}" for n in range(5)), *(f"far-{n}" for n in range(3)), "recall-0"}
    assert {row["level"] for row in waiting if "far-0" in row["keys"]} == {18}
    assert keys == Counter(dict.fromkeys(expected, 1))


@by_turns(2)
@pytest.mark.parametrize("case", EVERY)
def test_in_flight_and_retries(case: str, golden: Unpacked) -> None:
    """The POP consumer was gone for longer than the invisible time: all messages were revived and are waiting."""
    assert [row for row in rows("group", "inflight", golden(case)) if row["group"] == "pop-group"] == []
    states = Counter((*row["keys"], row["state"]) for row in rows("retry", "list", golden(case), "-g", "pop-group"))
    keys = ("pop-3", "pop-13", "pop-23")
    assert states == Counter({(key, state): 1 for key in keys for state in ("retried", "waiting")})
    clients = said(case, "clients.txt")
    for group, count in re.findall(r"(\S+-group): distinct (\d+) deliveries", clients):
        taken = sum(row["consumerOffset"] or 0 for row in rows("group", "lag", golden(case), "-g", group))
        assert taken >= int(count)
    dead = {row["keys"][0] for row in rows("dlq", "list", golden(case))}
    thrice = set(re.findall(r"(order-\d+) user-\d+ x3", clients))
    assert dead == thrice


@pytest.mark.parametrize("case", [case for case in goldens.cases_of_5() if not case.endswith("crash")])
def test_check_is_silent(case: str, golden: Unpacked) -> None:
    assert [finding for finding in check_store(StoreLayout(str(golden(case)))) if finding.code != "store-role"] == []


@pytest.mark.parametrize("case", [case for case in goldens.cases_of_5() if case.endswith("crash")])
def test_of_a_killed_broker_check_tells_that_alone(case: str, golden: Unpacked) -> None:
    findings = list(check_store(StoreLayout(str(golden(case)))))
    assert [finding.code for finding in findings if is_problem(finding)] == ["abort-present"]
