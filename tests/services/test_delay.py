"""Delayed messages: the golden broker's, custom level tables, impossible offsets."""

from pathlib import Path
from typing import Any

import pytest

from formats.layouts.derived import CQ_ENTRY
from formats.queues.consume import ext_address
from formats.topics import SCHEDULE
from rmqtool.errors import CorruptFile
from rmqtool.services.delays.delays import DelayedMessage, DelayLevel, Delays, number_of
from rmqtool.services.retries.retries import Retries
from rmqtool.store.layout.broker_conf import DEFAULT_DELAY_LEVELS, BrokerConf
from tests import goldens
from tests.conftest import Unpacked
from tests.services import lab
from tests.services.build import TIME, Builder, log_of, never

DEFAULT = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


def levels(store: Path, now: int, warn: Any = never, **settings: str) -> dict[int, DelayLevel]:
    return {row.level: row for row in Delays(log_of(store, **settings), now, warn).levels()}


def test_the_table() -> None:
    assert BrokerConf().delay_levels == [1000 * seconds for seconds in DEFAULT]
    assert len(DEFAULT_DELAY_LEVELS.split()) == 18


@pytest.mark.parametrize("case", ["broker", "broker-crash"])
def test_the_golden_levels(case: str, golden: Unpacked) -> None:
    by_level = levels(golden(case), lab.STOPPED)
    assert list(by_level) == list(range(1, 19))
    for level, row in by_level.items():
        assert row.delay == 1000 * DEFAULT[level - 1]
        assert row.note is None
        if level in lab.SCHEDULED:
            assert (row.maxOffset, row.delivered, row.pending) == (lab.SCHEDULED[level],) * 2 + (0,)
            assert row.deliveredOffset == lab.SCHEDULED[level]
        elif level != lab.FAR_LEVEL:
            assert (row.maxOffset, row.pending, row.deliveredOffset) == (0, 0, None)
    far = by_level[lab.FAR_LEVEL]
    assert (far.pending, far.delivered, far.due, far.deliveredOffset) == (6, 0, 0, None)


def test_the_golden_messages_that_wait(golden: Unpacked) -> None:
    log = log_of(golden("broker"))
    stored = {
        row["message"]["properties"]["KEYS"]: row["message"]
        for row in goldens.messages("broker")
        if row["cqTopic"] == SCHEDULE and row["cqQueueId"] == lab.FAR_LEVEL - 1
    }
    pending_now = list(Delays(log, lab.STOPPED, never).pending())
    assert [message.keys for message in pending_now] == lab.FAR
    for message in pending_now:
        assert message.deliverTimestamp == stored[message.keys]["storeTimestamp"] + lab.TWO_HOURS
        assert (message.topic, message.level, message.due, message.reconsumeTimes) == ("Delayed", 18, False, 0)
    third = pending_now[2].deliverTimestamp
    for now, due in ((third - 1, 2), (third, 3), (third + 10**7, 6)):
        assert levels(golden("broker"), now)[18].due == due
        only = list(Delays(log, now, never).pending(due_only=True))
        assert [message.keys for message in only] == lab.FAR[:due]
        assert sum(message.due for message in Delays(log, now, never).pending()) == due


def waiting(builder: Builder, level: int, code: int, target: str = "T") -> None:
    properties = {"DELAY": str(level), "REAL_TOPIC": target, "REAL_QID": "3", "UNIQ_KEY": f"u{builder.number}"}
    builder.put(SCHEDULE, level - 1, code=code, properties=properties)


def test_a_level_is_delivered_in_its_order(tmp_path: Path) -> None:
    """The broker examines no message after one that is not due, and delivers one with a time too far away at once."""
    builder = Builder()
    for code in (TIME, TIME + 10**9, TIME + 5001, TIME + 4000, TIME):
        waiting(builder, 2, code)
    store = builder.write(tmp_path)
    assert levels(store, TIME)[2].due == 3  # 5001 ms are more than the level's five seconds
    assert levels(store, TIME + 1)[2].due == 2  # now 5000 are not
    assert levels(store, TIME + 5001)[2].due == 5


def test_a_custom_table(tmp_path: Path) -> None:
    builder = Builder()
    waiting(builder, 1, TIME + 2000)
    waiting(builder, 3, TIME)
    store = builder.write(tmp_path)
    table = {"messageDelayLevel": "2s 1d"}
    by_level = levels(store, TIME, **table)
    assert [(row.level, row.delay, row.pending, row.due) for row in by_level.values()] == [
        (1, 2000, 1, 0),
        (2, 86_400_000, 0, 0),
        (3, None, 1, 0),
    ]
    assert by_level[3].note is not None
    assert "never delivered" in by_level[3].note
    with pytest.raises(CorruptFile):
        levels(store, TIME, messageDelayLevel="2x")


@pytest.mark.parametrize(("saved", "start"), [(-5, 0), (0, 0), (2, 2), (3, 3), (99, 3)])
def test_saved_offsets_are_moved_into_the_queue(saved: int, start: int, tmp_path: Path) -> None:
    builder = Builder()
    for _ in range(3):
        waiting(builder, 1, TIME)
    store = builder.write(tmp_path, {"delayOffset.json": f'{{"offsetTable":{{1:{saved},5:4}}}}'})
    by_level = levels(store, TIME)
    assert (by_level[1].delivered, by_level[1].pending, by_level[1].deliveredOffset) == (start, 3 - start, saved)
    assert (by_level[1].note is None) == (saved == start)
    assert by_level[5].note == "saved offset 4, but the queue is not there"


def test_a_broken_offset_file(tmp_path: Path) -> None:
    builder = Builder()
    waiting(builder, 1, TIME)
    store = builder.write(tmp_path, {"delayOffset.json": '{"offsetTable":{1:', "delayOffset.json.bak": "[]"})
    warnings: list[str] = []
    assert levels(store, TIME, warnings.append)[1].pending == 1
    assert len(warnings) == 1
    assert "delayOffset.json" in warnings[0]
    (store / "config" / "delayOffset.json.bak").write_text('{"offsetTable":{1:1}}')
    warnings.clear()
    assert levels(store, TIME, warnings.append)[1].pending == 0
    assert len(warnings) == 1
    assert "as a broker does" in warnings[0]
    (store / "config" / "delayOffset.json").unlink()
    warnings.clear()
    assert levels(store, TIME, warnings.append)[1].pending == 0
    assert len(warnings) == 1


def test_odd_properties(tmp_path: Path) -> None:
    builder = Builder()
    builder.put(SCHEDULE, 0, code=TIME, properties={"DELAY": "1"})
    builder.put(SCHEDULE, 0, code=TIME, properties={"DELAY": "1", "REAL_QID": "9" * 30, "REAL_TOPIC": "T"})
    pending_now: list[DelayedMessage] = list(Delays(log_of(builder.write(tmp_path)), TIME, never).pending())
    assert [(m.topic, m.queueId, m.msgId) for m in pending_now] == [(None, None, None), ("T", None, None)]


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("17", 17), ("-3", -3), ("", None), (None, None), ("-", None), ("--1", None), ("1.0", None), ("١", None),
     ("+1", None), (" 1", None), ("9" * 18, 10**18 - 1), ("9" * 19, None)],
)  # fmt: skip
def test_numbers(text: str | None, number: int | None) -> None:
    assert number_of(text) == number


def test_entries_with_an_extension_do_not_have_the_time_themselves(golden_copy: Unpacked) -> None:
    """With ``enableConsumeQueueExt`` their tag code is the address of a unit."""
    store = golden_copy("broker")
    for path in store.glob("config/delayOffset.json*"):
        path.unlink()  # so that all wait again
    now, log = lab.STOPPED, log_of(store)
    before = levels(store, now), list(Delays(log, now, never).pending()), list(Retries(log, now, never).retries())
    assert any(row.state == "scheduled" for row in before[2])
    for path in store.glob(f"consumequeue/{SCHEDULE}/*/*"):
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), CQ_ENTRY.size):
            if any(data[at : at + CQ_ENTRY.size]):
                data[at + 12 : at + 20] = ext_address(46 * at).to_bytes(8, "big", signed=True)
        path.write_bytes(data)
    log = log_of(store)
    after = levels(store, now), list(Delays(log, now, never).pending()), list(Retries(log, now, never).retries())
    assert after == before
