"""The timer rebuilt from the log: the same messages are waiting, and the store is in order."""

from pathlib import Path

import pytest

from formats import checkpoint
from formats.variants import timer
from rmqtool.errors import BadValue, Refused
from rmqtool.services.delays.delays import DelayedMessage
from rmqtool.services.timers.timers import Timers
from rmqtool.store.changes.undo import undo
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.recovery.command import recover
from rmqtool.store.repair.rebuild import RebuildReport, rebuild
from tests import timers
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.services.build import log_of
from tests.store.helpers import tree
from tests.store.test_check_timer import timer_findings
from tests.timers import NOW, slot_for


def rebuilt(store: Path, **about: bool) -> RebuildReport:
    return rebuild(StoreLayout(str(store)), ("timer",), **about)


def pending(store: Path) -> list[DelayedMessage]:
    return list(Timers(log_of(store), NOW, lambda _words: None).pending())


def damage_wheel(store: Path) -> None:
    (store / "timerwheel").write_bytes(b"?" * 1000)


def damage_log(store: Path) -> None:
    path = store / "timerlog" / f"{0:020d}"
    path.write_bytes(b"\xff" * path.stat().st_size)


def remove_all(store: Path) -> None:
    (store / "timerwheel").unlink()
    for path in (store / "timerlog").iterdir():
        path.unlink()


@by_turns(2)
@pytest.mark.parametrize("damage", [lambda _store: None, damage_wheel, damage_log, remove_all])
def test_the_golden_store(damage: object, golden_copy: Unpacked) -> None:
    store = golden_copy("broker-5.3.3")
    before = pending(store)
    assert callable(damage)
    damage(store)
    report = rebuilt(store)
    sized = ["timerlog: no file shows how long i"] * (damage is remove_all)
    assert (report.messages, report.queueEntries) == (57, 6)
    assert [warning[:34] for warning in report.warnings] == sized
    assert pending(store) == before
    assert timer_findings(store) == []
    # what tells a broker how far the queue was taken: the message of the last unit
    units = [unit for _at, unit in timer.units((store / "timerlog" / f"{0:020d}").read_bytes())][:-1]
    last = log_of(store).read(units[-1].physical_offset)  # type: ignore[union-attr]
    assert last is not None
    assert last.record.queue_offset == 56


def test_nothing_is_lost_and_undo_brings_all_back(golden_copy: Unpacked) -> None:
    store = golden_copy("broker-5.3.3")
    damage_wheel(store)
    before = tree(store)
    plan = rebuilt(store, dry_run=True)
    assert plan.actions == [f"put timerlog/{0:020d}", "put timerwheel", "put config/timercheck"]
    assert tree(store) == before
    assert rebuilt(store).applied
    undo(str(store))
    assert tree(store) == before


def test_files_and_rolled_recalled_and_fired_messages(tmp_path: Path) -> None:
    lab = timers.Timers(file_size=5 * 52 + 20)
    for second in (1, 5, 1, 250_000, 9, 1, 180_000, 1):
        lab.put(second)
    lab.put(9, UNIQ_KEY="A")
    lab.put(9, TIMER_DEL_UNIQKEY="Orders+A")
    lab.put(-3)
    store = lab.write(tmp_path)
    before = pending(store)
    assert len(before) == 9
    damage_wheel(store)
    assert rebuilt(store).queueEntries == 10
    assert pending(store) == before
    assert len(list((store / "timerlog").iterdir())) == 3
    assert timer_findings(store) == []


def test_what_a_broker_of_5_5_recalled_is_left_out(tmp_path: Path) -> None:
    """Its marks have only the unique key, which older brokers ignore."""
    lab = timers.Timers()
    kept = lab.put(9, UNIQ_KEY="A")
    lab.put(10, UNIQ_KEY="B")
    lab.put(10, UNIQ_KEY="B", TIMER_DEL_UNIQKEY="B")
    store = lab.write(tmp_path)
    assert rebuilt(store).queueEntries == 1
    assert [row.physicalOffset for row in pending(store)] == [kept]


def test_a_message_that_was_moved_on_waits_once(tmp_path: Path) -> None:
    lab = timers.Timers()
    lab.put(250_000, UNIQ_KEY="A", enqueue=False)
    at = lab.put(250_000, UNIQ_KEY="A", TIMER_ROLL_TIMES="1")
    store = lab.write(tmp_path)
    rebuilt(store)
    assert [row.physicalOffset for row in pending(store)] == [at]


def test_what_would_stop_a_broker_is_left_out(tmp_path: Path) -> None:
    lab = timers.Timers()
    lab.put(10, REAL_TOPIC="")
    lab.put(10)
    store = lab.write(tmp_path)
    report = rebuilt(store)
    assert report.queueEntries == 1
    assert report.warnings[0].startswith("1 timer messages without a usable deliver time")


def test_what_was_overdue_before_it_was_taken_waits(tmp_path: Path) -> None:
    """A broker that lags behind in the queue delivers such a message as soon as it reads it."""
    lab = timers.Timers()
    lab.put(-5)  # taken, and its slot is over: it was delivered
    late = lab.put(-3, enqueue=False)
    store = lab.write(tmp_path)
    rebuilt(store)
    assert [row.physicalOffset for row in pending(store)] == [late]
    assert slot_for(TimerFiles(StoreLayout(str(store))).wheel_bytes, NOW) is not None


@pytest.mark.parametrize("way", ["rebuild", "recover"])
def test_no_slot_lies_before_the_last_message_of_the_log(way: str, tmp_path: Path) -> None:
    """A broker skips slots that ended a week before its start, and this wheel had stood still for long."""
    lab = timers.Timers()
    offsets = [lab.put(seconds) for seconds in (-5, 5, 600)]
    lab.builder.put("Orders", store_timestamp=NOW + 60_000)
    store = lab.write(tmp_path)
    (store / "config" / "timercheck").write_bytes(timer.build_checkpoint(timer.TimerCheckpoint(NOW - 10_000, 0, 3, 3)))
    if way == "rebuild":
        times = checkpoint.Checkpoint(physic_msg_timestamp=NOW + 60_000)
        (store / "checkpoint").write_bytes(checkpoint.build(times))
        rebuilt(store)
    else:
        (store / "timerwheel").unlink()
        assert recover(StoreLayout(str(store))).applied
    assert [row.physicalOffset for row in pending(store)] == offsets
    wheel = TimerFiles(StoreLayout(str(store))).wheel_bytes
    assert slot_for(wheel, NOW + 60_000) == timer.Slot(NOW // 1000 + 60, 0, 52, 2)
    assert slot_for(wheel, NOW + 600_000) is not None


def test_without_a_checkpoint_a_broker_reads_the_queue_from_its_beginning(tmp_path: Path) -> None:
    lab = timers.Timers()
    lab.put(-5)
    lab.put(5)
    store = lab.write(tmp_path)
    (store / "config" / "timercheck").unlink()
    before = tree(store)
    report = rebuilt(store)
    assert report.warnings[0].startswith("config/timercheck does not say")
    assert report.actions == [f"remove timerlog/{0:020d}", "remove timerwheel"]
    assert not any(path.name.startswith("timer") for path in store.rglob("*") if path.is_file())
    undo(str(store))
    assert {**tree(store), "lock": None} == {**before, "lock": None}


def test_refused(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    with pytest.raises(Refused, match="there is no timer"):
        rebuilt(store)
    with pytest.raises(BadValue, match="rebuilt alone"):
        rebuild(StoreLayout(str(store)), ("timer", "index"))
    with pytest.raises(Refused, match=r"run rmqtool recover .* first"):
        rebuilt(golden_copy("broker-5.3.3-crash"))
