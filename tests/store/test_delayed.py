"""Messages with a delivery time, accepted as by a 5.x broker."""

from pathlib import Path
from random import Random

import pytest

from formats.message.properties import parse
from formats.variants import timer
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import RELEASES
from rmqtool.store.append.answers import Illegal, PutResult, PutStatus
from rmqtool.store.append.delayed import TimerRules
from tests.amounts import by_turns

NOW = 1_700_000_000_500
SIZES = {"mappedFileSizeCommitLog": str(1 << 20), "mappedFileSizeConsumeQueue": "4000"}


def new(path: Path, engine: str = "5.3", **settings: str) -> Store:
    return Store.create(path, broker_conf=SIZES | settings, release=RELEASES[engine], clock=lambda: NOW)


def put(
    path: Path, properties: dict[str, str], *, engine: str = "5.3", sys_flag: int = 0, **settings: str
) -> tuple[PutResult, dict[str, str]]:
    """Append a message to Orders, queue 3; returns (result, stored properties)."""
    with new(path, engine, **settings) as store:
        result = store.append(
            NewMessage(topic="Orders", queue_id=3, body=b"x", properties=properties, sys_flag=sys_flag)
        )
        located = store.message_at(result.physical_offset) if result.ok else None
    return result, parse(located.record.properties) if located is not None else {}


@by_turns(2)
@pytest.mark.parametrize(
    ("asked", "out"),
    [
        ({timer.DELIVER_MS: str(NOW + 10_000)}, NOW + 9_500),
        ({timer.DELIVER_MS: str(NOW + 9_500)}, NOW + 8_500),  # a whole second: the one before
        ({timer.DELIVER_MS: str(NOW + 1)}, NOW - 500),
        ({timer.DELAY_SEC: "10"}, NOW + 9_500),
        ({timer.DELAY_MS: "1500"}, NOW + 500),
        ({timer.DELAY_MS: "+1501"}, NOW + 1_500),
        ({timer.DELAY_MS: "7000", timer.DELAY_SEC: "10", timer.DELIVER_MS: "x"}, NOW + 9_500),
        ({timer.DELAY_MS: "7000", timer.DELIVER_MS: "x"}, NOW + 6_500),
        ({timer.DELAY_SEC: "259200"}, NOW + 259_199_500),  # as far away as may be
    ],
)
def test_a_message_waits_under_the_topic_of_the_timer(asked: dict[str, str], out: int, tmp_path: Path) -> None:
    result, stored = put(tmp_path / "s", {"A": "b"} | asked)
    assert (result.topic, result.queue_id, result.queue_offset) == (timer.TOPIC, 0, 0)
    assert stored == {"A": "b"} | asked | {timer.OUT_MS: str(out), "REAL_TOPIC": "Orders", "REAL_QID": "3"}


@pytest.mark.parametrize(
    "asked",
    [
        {timer.DELIVER_MS: str(NOW)},
        {timer.DELAY_SEC: "0"},
        {timer.DELAY_MS: "-7"},
        {timer.DELAY_SEC: str(2**63 // 1000)},  # it goes round to before now
        {timer.DELIVER_MS: str(NOW + 5_000), timer.OUT_MS: str(NOW + 5_000)},  # the timer has let go of it
    ],
)
def test_what_is_due_goes_on_at_once(asked: dict[str, str], tmp_path: Path) -> None:
    result, stored = put(tmp_path / "s", asked)
    assert (result.topic, result.queue_id) == ("Orders", 3)
    assert stored == asked


@pytest.mark.parametrize(
    "asked",
    [
        {timer.DELIVER_MS: "soon"},
        {timer.DELIVER_MS: ""},
        {timer.DELAY_SEC: "1.5"},
        {timer.DELAY_SEC: "259201"},
        {timer.DELAY_MS: str(2**63)},
        {timer.DELIVER_MS: str(NOW), timer.DELETE_KEY: "Orders+A"},  # what it recalls has gone on
    ],
)
def test_a_time_that_is_not_taken(asked: dict[str, str], tmp_path: Path) -> None:
    result, _stored = put(tmp_path / "s", asked)
    assert result.status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    assert "max delay 259200000ms" in result.reason


def test_a_mark_that_recalls_waits_too(tmp_path: Path) -> None:
    asked = {timer.DELIVER_MS: str(NOW + 5_000), timer.DELETE_KEY: "Orders+A"}
    result, stored = put(tmp_path / "s", asked)
    assert result.topic == timer.TOPIC
    assert stored[timer.DELETE_KEY] == "Orders+A"


def test_of_a_delay_level_the_time_is_left_out(tmp_path: Path) -> None:
    asked = {"DELAY": "3", timer.DELIVER_MS: "x", timer.DELAY_SEC: "5", timer.DELAY_MS: "7", "A": "b"}
    result, stored = put(tmp_path / "s", asked)
    assert (result.topic, result.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert stored == {"DELAY": "3", "A": "b", "REAL_TOPIC": "Orders", "REAL_QID": "3"}


def test_half_messages_wait_when_they_are_committed(tmp_path: Path) -> None:
    asked = {timer.DELAY_SEC: "5"}
    assert put(tmp_path / "half", asked, sys_flag=4)[0].topic == "Orders"
    assert put(tmp_path / "committed", asked, sys_flag=8)[0].topic == timer.TOPIC


def test_a_broker_without_a_timer(tmp_path: Path) -> None:
    asked = {timer.DELAY_SEC: "5"}
    assert put(tmp_path / "4.9", asked, engine="4.9")[0].topic == "Orders"
    result, _stored = put(tmp_path / "off", asked, timerWheelEnable="false")
    assert result.status is PutStatus.WHEEL_TIMER_NOT_ENABLE
    # what is no number is the default for a broker
    assert put(tmp_path / "x", asked, timerMaxDelaySec="x")[0].topic == timer.TOPIC


def test_settings_of_the_timer(tmp_path: Path) -> None:
    result, stored = put(tmp_path / "fine", {timer.DELIVER_MS: str(NOW + 1_250)}, timerPrecisionMs="100")
    assert stored[timer.OUT_MS] == str(NOW + 1_200)
    result, _stored = put(tmp_path / "short", {timer.DELAY_SEC: "11"}, timerMaxDelaySec="10")
    assert result.status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL


@pytest.mark.parametrize(("count", "taken"), [(10, True), (20, False), (30, False)])
def test_slots_that_are_full(count: int, taken: bool) -> None:
    rules = TimerRules(clock=lambda: NOW, most=10, count=lambda _time: count)
    for _ in range(100):
        if taken:
            assert rules.out_time({timer.DELAY_SEC: "5"}) == NOW + 4_500
        else:
            with pytest.raises(Illegal, match="under flow control, max num limit is 20"):
                rules.out_time({timer.DELAY_SEC: "5"})


def test_some_of_a_slot_that_fills(tmp_path: Path) -> None:
    conf = {"timerCongestNumEachSlot": "10"}
    with new(tmp_path / "s", **conf) as store:
        timer_rules = store.live.timer_rules
        assert timer_rules is not None
        timer_rules.count, timer_rules.random = lambda _time: 15, Random(1)
        messages = [NewMessage(topic="Orders", body=b"x", properties={timer.DELAY_SEC: "5"}) for _ in range(200)]
        matching = [result.status for result in store.append_many(messages)]
    assert set(matching) == {PutStatus.PUT_OK, PutStatus.WHEEL_TIMER_FLOW_CONTROL}
    assert 60 < matching.count(PutStatus.PUT_OK) < 140


def test_bulk_and_batches(tmp_path: Path) -> None:
    messages = [
        NewMessage(topic="Orders", body=b"x", properties={timer.DELAY_SEC: "5"} if n == 700 else {})
        for n in range(1000)
    ]
    with new(tmp_path / "s") as store:
        results = store.append_many(messages)
        assert [n for n, result in enumerate(results) if result.topic == timer.TOPIC] == [700]
        with pytest.raises(Illegal, match="no delayed message"):
            store.append_batch(messages[699:702])


def test_a_message_without_a_body_would_be_dropped(tmp_path: Path) -> None:
    with new(tmp_path / "s") as store:
        result = store.append(NewMessage(topic="Orders", properties={timer.DELAY_SEC: "5"}))
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert "without a body" in result.reason


def test_the_topic_of_the_timer_itself(tmp_path: Path) -> None:
    usable = {timer.OUT_MS: str(NOW + 5000), "REAL_TOPIC": "Orders", "REAL_QID": "0"}
    with new(tmp_path / "s") as store:
        assert store.append(NewMessage(topic=timer.TOPIC, properties=usable)).ok
        for name in usable:
            other = {key: value for key, value in usable.items() if key != name}
            for many in (1, 600):
                for result in store.append_many([NewMessage(topic=timer.TOPIC, properties=other)] * many):
                    assert result.status is PutStatus.MESSAGE_ILLEGAL
