"""Waiting timer messages of 5.x: the golden stores, chains across files, rolled, recalled and unread messages."""

import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.variants import timer
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import V5_3
from rmqtool.services.delays.delays import DelayedMessage
from rmqtool.services.timers.plain import PlainTimers
from rmqtool.services.timers.timers import Timers
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.queues.timer.messages import in_the_wheel, number_of
from rmqtool.store.queues.timer.waiting import find_waiting
from rmqtool.store.repair.rebuild import rebuild
from tests import timers
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.services.build import log_of, never
from tests.store.findings import write
from tests.timers import NOW

GOLDEN_STOP = 1_795_392_300_000  # 2026-11-23T00:05:00Z: after the clients, before the first of them is due
HOUR = 3_600_000


def pending(store: Path, now: int = NOW, warn: Any = never, **settings: str) -> list[DelayedMessage]:
    return list(Timers(log_of(store, **settings), now, warn).pending())


@pytest.mark.parametrize("case", ["broker-5.3.3", "broker-5.3.3-crash"])
def test_the_timers_of_the_golden_scenario(case: str, golden: Unpacked) -> None:
    pending_messages = pending(golden(case), GOLDEN_STOP)

    assert {row.keys for row in pending_messages} == {*(f"later-{number}" for number in range(5)), "recall-0"}
    assert all(
        row.topic == "Timers" and not row.due and not row.recalled and not row.rolled for row in pending_messages
    )
    first = min(row.deliverTimestamp for row in pending_messages)
    for number in range(5):
        (row,) = (row for row in pending_messages if row.keys == f"later-{number}")
        assert row.deliverTimestamp == first + number * HOUR == row.fireTimestamp
        assert row.queueId == number % 2
    assert sum(row.due for row in pending(golden(case), first + HOUR + 1000)) == 3
    assert sum(row.due for row in pending(golden(case), first + HOUR)) == 2  # a slot fires when its second is over


def test_the_command_shows_levels_and_timer(golden: Unpacked) -> None:
    store = str(golden("broker-5.3.3"))
    every = rmqtool("delay", "due", store, "--all", "--at", str(GOLDEN_STOP), "-o", "ndjson")
    rows = [json.loads(line) for line in every.out.splitlines()]
    assert [row["keys"] for row in rows if row["kind"] == "level"] == [["far-0"], ["far-1"], ["far-2"]]
    assert len([row for row in rows if row["kind"] == "timer" and row["level"] == 0]) == 6

    only = rmqtool("delay", "due", store, "--all", "--level", "0", "-o", "ndjson")
    assert [json.loads(line)["kind"] for line in only.out.splitlines()] == ["timer"] * 6
    assert len(rmqtool("delay", "due", store, "--all", "--level", "18", "-o", "ndjson").out.splitlines()) == 3

    levels = rmqtool("delay", "list", store, "--at", str(GOLDEN_STOP), "-o", "ndjson")
    row = json.loads(levels.out.splitlines()[-1])
    assert (row["level"], row["kind"], row["pending"], row["due"], row["maxOffset"]) == (0, "timer", 6, 0, 57)


def test_chains_go_through_files(tmp_path: Path) -> None:
    chosen = random.Random(7)
    lab = timers.Timers(file_size=5 * 52 + 20)  # five units and a blank in each
    seconds = [chosen.randrange(1, 9) for _ in range(60)]
    offsets = [lab.put(second) for second in seconds]
    store = lab.write(tmp_path)
    assert len(list((store / "timerlog").iterdir())) == 12

    pending_messages = pending(store)
    assert [(row.fireTimestamp, row.physicalOffset) for row in pending_messages] == sorted(
        (NOW + 1000 * second, offset) for second, offset in zip(seconds, offsets, strict=True)
    )


def test_the_head_of_a_long_chain(tmp_path: Path) -> None:
    lab = timers.Timers()
    for _ in range(700):
        lab.put(5)
    files = TimerFiles(log_of(lab.write(tmp_path, file_size=1 << 19)).layout)
    assert np.array_equal(find_waiting(files).position, 52 * np.arange(700))


def test_a_rolled_message_fires_before_it_is_due(tmp_path: Path) -> None:
    lab = timers.Timers()
    lab.put(250_000)
    lab.put(172_801)
    (near, far) = pending(lab.write(tmp_path), NOW + 200_000_000)
    assert (far.rolled, far.deliverTimestamp, far.fireTimestamp) == (True, NOW + 250_000_000, NOW + 172_800_000)
    assert (near.rolled, near.deliverTimestamp, near.fireTimestamp) == (True, NOW + 172_801_000, NOW + 86_400_000)
    assert (near.due, far.due) == (True, False)


def test_a_mark_recalls_a_message_of_its_slot(tmp_path: Path) -> None:
    lab = timers.Timers()
    lab.put(10, UNIQ_KEY="A")
    lab.put(10, UNIQ_KEY="B")
    lab.put(20, UNIQ_KEY="C")
    lab.put(10, TIMER_DEL_UNIQKEY="Orders+A")
    lab.put(10, TIMER_DEL_UNIQKEY="Orders+C")  # of another slot: it recalls nothing
    lab.put(20, TIMER_DEL_UNIQKEY="Orders+C", enqueue=False)
    store = lab.write(tmp_path)

    pending_messages = pending(store, NOW + 60_000)
    assert {(row.msgId, row.recalled, row.due) for row in pending_messages} == {
        ("A", True, False), ("B", False, True), ("C", True, False),
    }  # fmt: skip
    row = Timers(log_of(store), NOW + 60_000, never).row()
    assert (row.pending, row.recalled, row.due, row.delivered) == (1, 2, 1, 3)
    assert row.note == "timer wheel; 2 recalled"


def test_messages_that_the_wheel_does_not_have_yet(tmp_path: Path) -> None:
    lab = timers.Timers()
    lab.put(10)
    lab.put(11, enqueue=False)
    lab.put(-5, enqueue=False)
    pending_messages = pending(lab.write(tmp_path))
    assert [(row.fireTimestamp, row.due) for row in pending_messages] == [
        (NOW + 10_000, False), (NOW + 11_000, False), (NOW - 5000, True),
    ]  # fmt: skip


def test_a_wheel_that_was_not_flushed(tmp_path: Path) -> None:
    """After a crash, only the end of the log has the last messages."""
    lab = timers.Timers()
    for second in (10, 10, 12):
        lab.put(second)
    store = lab.write(tmp_path)
    expected = pending(store)
    with (store / "timerwheel").open("wb") as wheel:
        wheel.truncate(timer.WHEEL_SIZE)
    assert pending(store) == expected


def test_what_has_fired_is_not_told(tmp_path: Path) -> None:
    lab = timers.Timers()
    lab.put(-1)
    lab.put(0)
    assert [row.fireTimestamp for row in pending(lab.write(tmp_path))] == [NOW]


def test_another_precision(tmp_path: Path) -> None:
    lab = timers.Timers()
    lab.put(10)
    store = lab.write(tmp_path)
    (row,) = pending(store, timerPrecisionMs="100")  # the wheel is made anew from the log, in slots of 100 ms
    assert row.fireTimestamp == NOW + 10_000


def test_without_a_checkpoint_a_warning(tmp_path: Path) -> None:
    lab = timers.Timers()
    lab.put(10)
    store = lab.write(tmp_path)
    (store / "config" / "timercheck").write_bytes(b"")
    warnings: list[str] = []
    assert len(pending(store, warn=warnings.append)) == 1
    assert len(warnings) == 1
    assert warnings[0].startswith("config/timercheck: missing or too short")


def test_links_to_nowhere_are_warned_of(tmp_path: Path) -> None:
    lab = timers.Timers()
    for second in (10, 10, 20):
        lab.put(second)
    store = lab.write(tmp_path)
    write(store / "timerlog" / f"{0:020d}", 52 + 4, (77).to_bytes(8, "big"))
    warnings: list[str] = []
    assert len(pending(store, warn=warnings.append)) == 2
    assert warnings == ["timer wheel: 1 links lead to no unit of the timer log (see check)"]


@by_turns(13)
@pytest.mark.parametrize("seed", range(20))
def test_hostile_bytes(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    lab = timers.Timers(file_size=10 * 52 + 16)
    for _ in range(30):
        lab.put(chosen.randrange(1, 5))
    store = lab.write(tmp_path)
    paths = [store / "timerwheel", store / "config" / "timercheck", *sorted((store / "timerlog").iterdir())]
    for _ in range(40):
        path = chosen.choice(paths)
        size = path.stat().st_size
        at = (NOW // 1000 + chosen.randrange(6)) % timer.SLOTS * 32 if path.name == "timerwheel" else 0
        at += chosen.randrange(min(size, 32 if at else size))
        value = chosen.choice([b"\0", b"\xff", bytes([chosen.randrange(256)])])
        write(path, at, value * chosen.choice([1, 8]))
        path.write_bytes(path.read_bytes()[:size])
    pending_messages = pending(store, warn=lambda _words: None)
    assert len(pending_messages) <= 2 * 30
    files = TimerFiles(log_of(store).layout)
    assert len(np.unique(find_waiting(files).position)) == len(find_waiting(files).position)


@pytest.mark.parametrize(
    ("text", "number"),
    [("12", 12), ("-3", -3), ("+4", 4), ("", None), (None, None), ("1 2", None), ("٣", None), ("1_0", None),
     ("9" * 19, None), (str(2**63 - 1), 2**63 - 1)],
)  # fmt: skip
def test_numbers_as_java_reads_them(text: str | None, number: int | None) -> None:
    assert number_of(text) == number


def of_all_kinds() -> timers.Timers:
    """A store with ordinary messages among others, one recalled and one rolled."""
    made = timers.Timers()
    odd: list[dict[str, str]] = [
        {}, {"KEYS": "a b"}, {"KEYS": "\u00e9 \u2028"}, {"KEYS": "x" * 300}, {"UNIQ_KEY": ""}, {"REAL_TOPIC": ""},
        {"REAL_QID": "-1"}, {"REAL_QID": "1e3"}, {"REAL_QID": str(2**40)}, {"TIMER_OUT_MS": "soon"},
        {"TIMER_OUT_MS": "+1700000000000"}, {"TIMER_OUT_MS": ""}, {"TIMER_OUT_MSX": "1"}, {"TAGS": "TIMER_OUT_MS"},
    ]  # fmt: skip
    for number, properties in enumerate(odd * 3):
        made.put(100 + number % 7, **properties)  # type: ignore[arg-type]
    made.put(300_000, KEYS="rolled")
    made.put(101, TIMER_DEL_UNIQKEY="Orders+KEY")
    return made


@pytest.mark.parametrize("form", ["ndjson", "json", "csv", "table"])
def test_rows_that_come_as_columns_are_written_as_others(form: str, tmp_path: Path) -> None:
    store = of_all_kinds().write(tmp_path)
    asked = ["delay", "due", str(store), "--all", "--at", str(NOW), "--output", form]
    many, each = rmqtool(*asked), rmqtool(*asked, "--level", "0")  # what is chosen comes row by row
    assert many.code == each.code
    assert many.out == each.out
    assert len(many.out.splitlines()) >= 43


def test_messages_in_many_files_of_the_log_come_in_the_order_of_their_slots(tmp_path: Path) -> None:
    config = {"timerWheelEnable": "true", "mappedFileSizeCommitLog": "16384"}
    begin = int(time.time()) * 1000 + HOUR
    with Store.create(tmp_path / "s", broker_conf=config, release=V5_3) as made:
        for n in range(200):
            properties = {"UNIQ_KEY": f"{n:032X}", "TIMER_DELIVER_MS": str(begin + n * 7919 % 50_000)}
            made.append(
                NewMessage(topic="Timed", body=b"x", properties=properties | ({"KEYS": f"k{n}"} if n % 3 else {}))
            )
    point = timer.TimerCheckpoint(begin - 2 * HOUR, 0, 0, 0)
    (tmp_path / "s" / "config" / "timercheck").write_bytes(timer.build_checkpoint(point))
    rebuild(StoreLayout(str(tmp_path / "s"), BrokerConf(config)), ("timer",))
    log = log_of(tmp_path / "s", **config)
    lister = Timers(log, begin - HOUR, never)
    assert len(log.segments) > 3
    (block,) = lister.blocks()
    assert isinstance(block, PlainTimers)
    expected = [lister._row(message) for _number, message in in_the_wheel(log, lister._wheel)]
    assert list(block.rows()) == list(lister.pending()) == expected
    assert len(expected) == 200


def test_messages_that_are_read_many_at_once_are_told_as_one_by_one(tmp_path: Path) -> None:
    log = log_of(of_all_kinds().write(tmp_path))
    lister = Timers(log, NOW, never)
    read = in_the_wheel(log, lister._wheel)
    expected = [row for _number, message in read if (row := lister._row(message)) is not None]
    assert list(lister.pending()) == expected
    assert len(expected) == 3 * 14 + 1
    assert sum(len(block) for block in lister.blocks() if isinstance(block, PlainTimers)) >= 12
