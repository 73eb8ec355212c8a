"""Retries and dead letters of the golden broker, and of a group in the middle of retrying."""

from collections import Counter
from pathlib import Path

import pytest

from formats.message.ids import parse_offset_id
from formats.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE
from rmqtool.services.retries.retries import Retries
from tests.conftest import Unpacked
from tests.services import lab
from tests.services.build import TIME, Builder, log_of, never

GROUP = "lab-consumer"


@pytest.mark.parametrize("case", ["broker", "broker-crash"])
def test_the_golden_retries(case: str, golden: Unpacked) -> None:
    retries = list(Retries(log_of(golden(case)), TIME, never).retries())
    keys = Counter((row.keys or "").split()[0] for row in retries)
    assert keys == {f"order-{i}": 2 for i in lab.FAILED_THRICE}
    assert Counter((row.group, row.state, row.reconsumeTimes) for row in retries) == {
        (GROUP, "retried", 1): 10,
        (GROUP, "dead", 2): 10,
    }
    assert all(row.originTopic == "Orders" and row.topic == RETRY_PREFIX + GROUP for row in retries)


@pytest.mark.parametrize("case", ["broker", "broker-crash"])
def test_the_golden_dead_letters(case: str, golden: Unpacked) -> None:
    log = log_of(golden(case))
    dead_letters = list(Retries(log, TIME, never).dead_letters())
    died = {(letter.keys or "").split()[0]: letter for letter, _message in dead_letters}
    assert set(died) == {f"order-{i}" for i in (*lab.FAILED_THRICE, *lab.DEAD_AT_ONCE)}
    assert len(dead_letters) == 16
    for letter, message in dead_letters:
        number = int((letter.keys or "").split()[0].removeprefix("order-"))
        retries = 0 if number in lab.DEAD_AT_ONCE else 2
        assert (letter.reconsumeTimes, len(letter.retryTimestamps)) == (retries + 1, retries)
        assert [*letter.retryTimestamps, letter.storeTimestamp] == sorted(
            [*letter.retryTimestamps, letter.storeTimestamp]
        )
        if retries:
            waits = [10_000, 30_000] if lab.FIRST_LEVEL[number] == 3 else [1000, 1000]
            assert letter.retryTimestamps[1] - letter.retryTimestamps[0] >= waits[1]
        assert message.record.topic.decode() == DLQ_PREFIX + GROUP
        assert letter.originMsgId is not None
        origin = log.read(parse_offset_id(letter.originMsgId).physical_offset)
        assert origin is not None
        assert (origin.record.topic, origin.record.body) == (b"Orders", message.record.body)
        assert letter.originTopic == "Orders"


def test_only_some_groups(golden: Unpacked) -> None:
    retries = Retries(log_of(golden("broker")), TIME, never)
    assert len(list(retries.retries([GROUP]))) == 20
    assert list(retries.retries(["lab-orderly"])) == []
    assert list(retries.dead_letters(["lab-orderly", "../nobody"])) == []


def back(builder: Builder, topic: str, queue_id: int, origin: str, times: int, target: str = "") -> None:
    properties = {"ORIGIN_MESSAGE_ID": origin, "RETRY_TOPIC": "T", "KEYS": origin}
    properties |= {"REAL_TOPIC": target, "DELAY": str(queue_id + 1)} if target else {}
    builder.put(topic, queue_id, properties=properties, reconsume_times=times, code=TIME if target else None)


def test_every_state(tmp_path: Path) -> None:
    builder, retry = Builder(), RETRY_PREFIX + "g"
    for origin, times in (("done", 1), ("again", 1), ("gone", 3), ("next", 1), ("again", 2)):
        back(builder, SCHEDULE, 2, origin, times, retry)
        back(builder, retry, 0, origin, times)
    back(builder, DLQ_PREFIX + "g", 0, "gone", 4)
    back(builder, SCHEDULE, 2, "later", 1, retry)
    back(builder, SCHEDULE, 2, "other", 1, RETRY_PREFIX + "h")
    builder.put(SCHEDULE, 2, code=TIME, properties={"REAL_TOPIC": "T", "DELAY": "3"})
    configs = {
        "consumerOffset.json": f'{{"offsetTable":{{"{retry}@g":{{0:3}}}}}}',
        "delayOffset.json": '{"offsetTable":{3:5}}',
    }
    log = log_of(builder.write(tmp_path, configs))
    listed = [(row.group, row.keys, row.reconsumeTimes, row.state) for row in Retries(log, TIME, never).retries()]
    assert listed == [
        ("g", "done", 1, "done"),
        ("g", "again", 1, "retried"),
        ("g", "gone", 3, "dead"),
        ("g", "next", 1, "waiting"),
        ("g", "again", 2, "waiting"),
        ("g", "later", 1, "scheduled"),
        ("h", "other", 1, "scheduled"),
    ]
    assert len(list(Retries(log, TIME, never).retries(["g"]))) == 6


def test_dead_letters_to_come(tmp_path: Path) -> None:
    """Over the limit but with a delay level, as for orderly consumers of 4.9."""
    builder, retry, dead = Builder(), RETRY_PREFIX + "g", DLQ_PREFIX + "g"
    back(builder, SCHEDULE, 2, "old", 3, dead)
    back(builder, dead, 0, "old", 3)
    back(builder, SCHEDULE, 2, "next", 1, retry)
    back(builder, retry, 0, "next", 1)
    back(builder, SCHEDULE, 3, "next", 2, dead)
    back(builder, SCHEDULE, 3, "other", 1, DLQ_PREFIX + "h")
    configs = {
        "consumerOffset.json": f'{{"offsetTable":{{"{retry}@g":{{0:1}}}}}}',
        "delayOffset.json": '{"offsetTable":{3:2}}',
    }
    retries = Retries(log_of(builder.write(tmp_path, configs)), TIME, never)
    result = [
        (row.group, row.keys, row.state, row.topic, row.deliverTimestamp) for row, _found in retries.dead_letters()
    ]
    assert result == [
        ("g", "old", "dead", dead, None),
        ("g", "next", "scheduled", SCHEDULE, TIME),
        ("h", "other", "scheduled", SCHEDULE, TIME),
    ]
    [(letter, message)] = [row for row in retries.dead_letters(["g"]) if row[0].state == "scheduled"]
    assert len(letter.retryTimestamps) == 1
    assert message.record.topic.decode() == SCHEDULE
    assert [(row.keys, row.state) for row in retries.retries()] == [("next", "dead")]
