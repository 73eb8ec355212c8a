"""Delivery of delayed messages: order, times, offsets, dropped messages, blocked levels."""

import json
from pathlib import Path

import pytest

from formats.message.properties import REAL_QID, REAL_TOPIC
from formats.message.read import SCHEDULE_TOPIC
from formats.topics import HALF, SCHEDULE
from rmqtool import NewMessage, Store
from rmqtool.errors import CorruptFile
from rmqtool.services.delays.delivery import Delivered, Delivery, deliver_due
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.store.layout.broker_conf import BrokerConf
from tests.conftest import Unpacked
from tests.services import lab as golden_lab
from tests.services.build import TIME, Builder, never
from tests.services.live import Lab

SECONDS = [delay // 1000 for delay in BrokerConf().delay_levels]


def delivery(lab: Lab) -> Delivery:
    return Delivery(lab.store, lab.state, lab.warnings.append)


def test_every_level_at_its_second(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    for level in range(18, 0, -1):
        lab.send(f"l{level}", queue_id=level, DELAY=str(level))
    delivering = delivery(lab)
    for number, seconds in enumerate(SECONDS):
        due = TIME + 1000 * seconds
        assert delivering.next_time(TIME) == due
        lab.now = due - 1
        assert delivering.deliver_due(lab.now) == Delivered()
        lab.now = due
        assert delivering.deliver_due(lab.now) == Delivered(delivered=1)
        assert len(lab.bodies()) == number + 1
    assert delivering.next_time(lab.now) is None
    assert sorted(lab.bodies()) == sorted(f"l{level}" for level in range(1, 19))
    for record, properties in zip(lab.records("T"), lab.properties("T"), strict=True):
        level = record.queue_id
        assert properties == {
            "UNIQ_KEY": f"l{level}", "DELAY": str(level), REAL_TOPIC: "T", REAL_QID: str(level)
        }  # fmt: skip
        assert (record.born_timestamp, record.store_timestamp) == (TIME, TIME + 1000 * SECONDS[level - 1])
    assert lab.state.delay_offsets == dict.fromkeys(range(1, 19), 1)
    assert lab.warnings == []


def test_offsets_are_written_as_the_broker_does(tmp_path: Path, golden_copy: Unpacked) -> None:
    lab = Lab(tmp_path)
    config = lab.path / "config"
    for n in range(3):
        lab.send(str(n), DELAY=str(2 - n % 2))
    lab.now += 5000
    delivery(lab).deliver_due(lab.now)
    assert not (config / "delayOffset.json").exists()
    assert lab.state.persist()
    assert not lab.state.persist()
    assert (config / "delayOffset.json").read_text() == '{\n\t"offsetTable":{1:1,2:2\n\t}\n}'
    assert not (config / "delayOffset.json.bak").exists()
    lab.send("x", DELAY="1")
    lab.now += 1000
    assert deliver_due(lab.store, lab.now, never).delivered == 1
    assert (config / "delayOffset.json").read_text() == '{\n\t"offsetTable":{1:2,2:2\n\t}\n}'
    assert (config / "delayOffset.json.bak").read_text() == '{\n\t"offsetTable":{1:1,2:2\n\t}\n}'
    assert sorted(path.name for path in config.iterdir()) == ["delayOffset.json", "delayOffset.json.bak"]

    # the far ones of the golden broker: nothing but their level is added
    store = golden_copy("broker")
    before = (store / "config" / "delayOffset.json").read_text()
    with Store(store, write=True, broker_conf={"mappedFileSizeConsumeQueue": 4000}) as opened:
        assert deliver_due(opened, golden_lab.STOPPED, never) == Delivered()
        assert (store / "config" / "delayOffset.json").read_text() == before
        assert deliver_due(opened, golden_lab.STOPPED + golden_lab.TWO_HOURS, never).delivered == 6
    assert (store / "config" / "delayOffset.json").read_text() == before.replace("4:8", "4:8,18:6")


def test_a_file_of_5_3_keeps_its_version(tmp_path: Path) -> None:
    lab = Lab(tmp_path, engine="5.3")
    version = {"counter": 7, "stateVersion": 2, "timestamp": 9}
    (lab.path / "config" / "delayOffset.json").write_text(json.dumps({"dataVersion": version, "offsetTable": {}}))
    lab.send("a", DELAY="1")
    lab.now += 1000
    assert deliver_due(lab.store, lab.now, never).delivered == 1
    written = (lab.path / "config" / "delayOffset.json").read_text()
    assert written.replace("\t", "").replace("\n", "") == (
        '{"dataVersion":{"counter":7,"stateVersion":2,"timestamp":9},"offsetTable":{1:1}}'
    )


def test_a_level_keeps_its_order_and_a_time_too_far_away_is_now(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.now = TIME + 10**9
    lab.send("from the future", DELAY="2")
    lab.now = TIME
    lab.send("behind it", DELAY="2")
    assert delivery(lab).next_time(TIME) == TIME
    assert delivery(lab).deliver_due(TIME).delivered == 1
    assert lab.bodies() == ["from the future"]
    lab.now = TIME + 5000
    assert delivery(lab).deliver_due(lab.now).delivered == 1
    assert lab.bodies() == ["from the future", "behind it"]


@pytest.mark.parametrize(("saved", "start"), [(-5, 0), (1, 1), (3, 3), (99, 3)])
def test_offsets_outside_the_queue_are_moved(saved: int, start: int, tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    for n in range(3):
        lab.send(str(n), DELAY="1")
    lab.state.set_delay_offset(1, saved)
    lab.state.set_delay_offset(7, 5)  # of a level without a queue
    lab.now += 1000
    assert delivery(lab).deliver_due(lab.now).delivered == 3 - start
    assert lab.bodies() == ["0", "1", "2"][start:]
    assert lab.state.delay_offsets == {1: 3, 7: 5}


def test_what_is_gone_is_passed_over(tmp_path: Path) -> None:
    """Entries whose message is gone, in the middle and at the end of the due ones."""
    builder = Builder()
    for n in range(5):
        properties = {"DELAY": "1", REAL_TOPIC: "T", REAL_QID: "0", "UNIQ_KEY": str(n)}
        builder.put(SCHEDULE, 0, code=TIME, properties=properties, body=b"%d" % n)
    entries = builder.queues[SCHEDULE, 0]
    entries[1] = (1 << 17, *entries[1][1:])
    entries[4] = (1 << 17, *entries[4][1:])
    # no healthy store holds such entries: they come from below the log's first file, or from damage that 4.9 keeps
    store = builder.write(tmp_path)
    from rmqtool.services.delays.delays import Delays
    from tests.services.build import log_of

    warnings: list[str] = []
    delays = Delays(log_of(store), TIME, warnings.append)
    lab = Lab(tmp_path / "target")
    done = Delivered()
    Delivery(lab.store, lab.state, warnings.append)._deliver(delays, 1, delays.due(1), done, lambda: False)
    assert (done.delivered, done.skipped) == (3, 2)
    assert lab.bodies() == ["0", "2", "3"]
    assert lab.state.delay_offsets == {1: 5}
    assert len(warnings) == 1


def test_half_messages_are_dropped_as_in_a_broker(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.send("half", topic=HALF, DELAY="1")
    lab.send("whole", DELAY="1")
    lab.now += 1000
    done = delivery(lab).deliver_due(lab.now)
    assert (done.delivered, done.discarded, lab.bodies(), lab.records(HALF)) == (1, 1, ["whole"], [])
    assert "half message" in lab.warnings[0]


@pytest.mark.parametrize("broken", [{REAL_TOPIC: "a/b"}, {REAL_QID: "x"}, {REAL_QID: "-1"}, {REAL_TOPIC: ""}])
def test_what_cannot_be_delivered_holds_up_its_level_only(broken: dict[str, str], tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.send("first", DELAY="1")
    properties = {"DELAY": "1", REAL_TOPIC: "T", REAL_QID: "0", "UNIQ_KEY": "u"} | broken
    stored = NewMessage(topic=SCHEDULE_TOPIC.decode(), body=b"bad", properties=properties, was_stored=True)
    assert lab.store.append(stored).ok
    lab.send("behind", DELAY="1")
    lab.send("other", DELAY="2")
    lab.now += 5000
    for delivered in (2, 0):
        done = delivery(lab).deliver_due(lab.now)
        assert (done.delivered, done.stuck) == (delivered, [1])
        assert lab.bodies() == ["first", "other"]
    assert lab.state.delay_offsets == {1: 1, 2: 1}
    assert "queue offset 1 cannot be delivered" in lab.warnings[0]


def test_a_level_that_the_table_has_not_is_left(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.send("a", DELAY="3")
    lab.settings["messageDelayLevel"] = "1s 2s"
    lab.again()
    lab.now += 10**9
    assert delivery(lab).deliver_due(lab.now) == Delivered()
    assert delivery(lab).next_time(lab.now) is None


def test_a_pass_can_be_stopped(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    for n in range(10):
        lab.send(str(n), DELAY="1")
    lab.now += 1000
    answers = iter([False] * 4 + [True] * 10)
    assert delivery(lab).deliver_due(lab.now, lambda: next(answers)).delivered == 4
    assert lab.state.delay_offsets == {1: 4}
    assert delivery(lab).deliver_due(lab.now).delivered == 6
    assert lab.bodies() == [str(n) for n in range(10)]


def test_a_broken_offset_file_stops_everything(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    path = lab.path / "config" / "delayOffset.json"
    path.write_text('{"offsetTable":{1:')
    with pytest.raises(CorruptFile):
        BrokerState(lab.store, never)
    path.with_suffix(".json.bak").write_text('{"offsetTable":{1:1}}')
    lab.send("a", DELAY="1")
    lab.send("b", DELAY="1")
    lab.now += 1000
    warnings: list[str] = []
    assert deliver_due(lab.store, lab.now, warnings.append).delivered == 1
    assert lab.bodies() == ["b"]
    assert len(warnings) == 1
    # the good one before must not be lost to the broken one
    assert path.with_suffix(".json.bak").read_text() == '{"offsetTable":{1:1}}'
    assert "1:2" in path.read_text()


def test_ten_thousand(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.store.append_many(
        [NewMessage(topic="T", queue_id=n % 4, body=b"%d" % n, properties={"DELAY": "1"}) for n in range(10_000)]
    )
    lab.now += 1000
    assert delivery(lab).deliver_due(lab.now).delivered == 10_000
    assert sorted(map(int, lab.bodies())) == list(range(10_000))
