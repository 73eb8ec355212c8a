"""Timer messages cut off with the end of the commit log, by recover and truncate."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.variants import timer
from rmqtool import Store
from rmqtool.rules.releases import V5_3
from rmqtool.services.serving.run_loop import RunLoop
from rmqtool.services.timers.timers import Timers
from rmqtool.store.changes.undo import undo
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.recovery.command import plan, recover, truncate
from tests.amounts import by_turns
from tests.services.build import log_of, never
from tests.store.findings import check_store
from tests.store.helpers import tree
from tests.timers import NOW, slot_for
from tests.timers import Timers as Lab

CONF = {"mappedFileSizeCommitLog": str(1 << 20), "messageIndexEnable": "false"}


def laid(tmp_path: Path) -> tuple[Path, list[int]]:
    """A store with forty timer messages in many files of the timer log, and their positions."""
    lab = Lab(file_size=5 * 52 + 20)
    offsets = [lab.put(10 + n % 7) for n in range(40)]
    store = lab.write(tmp_path, file_size=1 << 20)
    recover(layout_of(store))  # gives it a checkpoint
    return store, offsets


def layout_of(store: Path) -> StoreLayout:
    return StoreLayout(str(store), BrokerConf(CONF))


def problems(store: Path) -> list[str]:
    result = [finding.code for finding in check_store(layout_of(store)) if is_problem(finding)]
    return [code for code in result if not code.startswith("index-")]  # it was laid without one


def waiting(store: Path) -> list[int]:
    return sorted(row.physicalOffset for row in Timers(log_of(store, **CONF), NOW, never).pending())


def will_wait(store: Path) -> list[int]:
    """The same if a broker has to read the queue again, as a warning says."""
    warnings: list[str] = []
    pending_now = Timers(log_of(store, **CONF), NOW, warnings.append).pending()
    return sorted(row.physicalOffset for row in pending_now)


def test_truncate_takes_their_units_along(tmp_path: Path) -> None:
    store, offsets = laid(tmp_path)
    report = truncate(layout_of(store), offsets[23])
    assert any("timerwheel" in action for action in report.actions)
    assert waiting(store) == offsets[:23]
    files = TimerFiles(layout_of(store))
    assert files.checkpoint is not None
    assert files.checkpoint.last_timer_queue_offset == 23
    assert files.end == files.checkpoint.last_timer_log_flush_position == files.log.files[-1].base + 3 * 52
    assert problems(store) == []
    assert plan(layout_of(store)).clean


def test_recover_takes_their_units_along_and_the_rest_goes_on(tmp_path: Path) -> None:
    store, offsets = laid(tmp_path)
    log = store / "commitlog" / f"{0:020d}"
    data = log.read_bytes()
    log.write_bytes(data[: offsets[31] + 20].ljust(1 << 20, b"\0"))
    report = recover(layout_of(store), guard=None)
    assert report.applied
    assert waiting(store) == offsets[:31]
    assert plan(layout_of(store)).clean

    now = [NOW + 1]
    with Store(store, write=True, broker_conf=CONF, release=V5_3, clock=lambda: now[0]) as opened:

        def wait(millis: int) -> None:
            now[0] += millis

        assert RunLoop(opened, never).run(wait, until_delivered=True).delivered == 31
    assert problems(store) == []


def test_slots_that_lose_all_lead_nowhere(tmp_path: Path) -> None:
    lab = Lab()
    first = lab.put(10)
    second = lab.put(11)
    store = lab.write(tmp_path, file_size=1 << 20)
    truncate(layout_of(store), second)
    assert waiting(store) == [first]
    wheel = TimerFiles(layout_of(store)).wheel_bytes
    assert slot_for(wheel, NOW + 11_000) is None
    assert slot_for(wheel, NOW + 10_000) == timer.Slot(NOW // 1000 + 10, 0, 0, 1)


def test_a_store_without_such_units_is_left_alone(tmp_path: Path) -> None:
    store, _offsets = laid(tmp_path)
    before = {path: path.read_bytes() for path in sorted((store / "timerlog").iterdir())}
    assert plan(layout_of(store)).clean
    assert {path: path.read_bytes() for path in sorted((store / "timerlog").iterdir())} == before


def unit_bytes(store: Path, number: int) -> tuple[Path, int]:
    """File and byte of a unit; five per file."""
    return store / "timerlog" / f"{number // 5 * 280:020d}", number % 5 * 52


def test_a_torn_end_is_cut_and_its_message_is_taken_up_again(tmp_path: Path) -> None:
    """A broker's slot then points to the position of the next unit, and that unit to itself; ours is empty."""
    store, offsets = laid(tmp_path)
    path, at = unit_bytes(store, 39)
    data = bytearray(path.read_bytes())
    data[at + 20 : at + 60] = bytes(40)
    data[at + 1] ^= 1
    path.write_bytes(data)
    report = recover(layout_of(store))
    assert any(f"zero bytes {at} to 280 of timerlog/{path.name}" in action for action in report.actions)
    assert any("rebuild" in warning and "timer finds all that wait" in warning for warning in report.warnings)
    files = TimerFiles(layout_of(store))
    assert files.checkpoint is not None
    assert files.checkpoint.last_timer_queue_offset == 39
    assert waiting(store) == offsets
    assert problems(store) == []
    assert plan(layout_of(store)).clean


def test_a_slot_falls_back_to_its_last_unit_before_the_damage(tmp_path: Path) -> None:
    store, offsets = laid(tmp_path)
    path, at = unit_bytes(store, 36)
    data = bytearray(path.read_bytes())
    data[at] = 0xFF
    path.write_bytes(data)
    report = recover(layout_of(store))
    assert sum(action.startswith("remove timerlog/") for action in report.actions) == 0
    wheel = TimerFiles(layout_of(store)).wheel_bytes
    # of the slot in 11 s: messages 1, 8, 15, 22, 29 and 36
    assert slot_for(wheel, NOW + 11_000) == timer.Slot(NOW // 1000 + 11, 52, 29 // 5 * 280 + 29 % 5 * 52, 5)
    assert waiting(store) == offsets
    assert plan(layout_of(store)).clean


def test_what_a_kill_left_is_the_brokers_to_do(tmp_path: Path) -> None:
    """The start fixes a wheel older than the log, so the store is not changed for it."""
    store, offsets = laid(tmp_path)
    with (store / "timerwheel").open("r+b") as wheel:
        for second in range(10, 17):
            wheel.seek((NOW // 1000 + second) % timer.SLOTS * 32)
            wheel.write(bytes(32))
    point = timer.TimerCheckpoint(NOW, 0, 0, 0)
    (store / "config" / "timercheck").write_bytes(timer.build_checkpoint(point))
    assert plan(layout_of(store)).clean
    assert waiting(store) == offsets


def shorter_wheel(store: Path) -> None:
    with (store / "timerwheel").open("r+b") as wheel:
        wheel.truncate(1 << 20)


def no_wheel(store: Path) -> None:
    (store / "timerwheel").unlink()


def no_log(store: Path) -> None:
    shutil.rmtree(store / "timerlog")


def shorter_log(store: Path) -> None:
    path = sorted((store / "timerlog").iterdir())[2]
    path.write_bytes(path.read_bytes()[:100])


def foreign(store: Path) -> None:
    (store / "timerlog/x").write_bytes(b"?")


def no_checkpoint(store: Path) -> None:
    (store / "config/timercheck").unlink()


def zero_checkpoint(store: Path) -> None:
    (store / "config/timercheck").write_bytes(bytes(4096))


@by_turns(2)
@pytest.mark.parametrize(
    "damage", [shorter_wheel, no_wheel, no_log, shorter_log, foreign, no_checkpoint, zero_checkpoint]
)
def test_all_that_wait_do_so_after_a_recovery(damage: Callable[[Path], None], tmp_path: Path) -> None:
    store, offsets = laid(tmp_path)
    damage(store)
    before = tree(store)
    assert recover(layout_of(store)).applied
    assert (will_wait if damage in (no_checkpoint, zero_checkpoint) else waiting)(store) == offsets
    assert problems(store) == []
    assert plan(layout_of(store)).clean
    undo(str(store))
    assert tree(store) == before


def test_a_wheel_that_lagged_behind_its_log_loses_nothing_with_its_checkpoint(tmp_path: Path) -> None:
    """Slots that had ended when the last unit was written may not have been read yet."""
    lab = Lab(file_size=5 * 52 + 20)
    offsets = [lab.put(n - 20) for n in range(40)]
    store = lab.write(tmp_path, file_size=1 << 20)
    recover(layout_of(store))
    no_checkpoint(store)
    report = recover(layout_of(store))
    assert any("reads the timer's queue from its beginning" in warning for warning in report.warnings)
    assert will_wait(store) == offsets
    assert plan(layout_of(store)).clean


def test_where_nothing_tells_how_far_the_wheel_turned_a_broker_begins_anew(tmp_path: Path) -> None:
    store, _offsets = laid(tmp_path)
    zero_checkpoint(store)
    shorter_wheel(store)
    report = recover(layout_of(store))
    assert any("reads the timer's queue from its beginning" in warning for warning in report.warnings)
    assert not (store / "timerwheel").exists()
    assert plan(layout_of(store)).clean


def test_a_timer_that_no_broker_starts_on_is_told(tmp_path: Path) -> None:
    store, _offsets = laid(tmp_path)
    shorter_wheel(store)
    report = recover(layout_of(store), exactly=True)
    assert report.loadOk
    assert not report.applied
    (warning,) = [warning for warning in report.warnings if "a broker does not start" in warning]
    assert "timerwheel: 1048576 bytes long, not 38707200" in warning


def test_an_empty_last_file_of_the_timer_log_is_not_there_for_a_start(tmp_path: Path) -> None:
    """A broker deletes it first, and moves the flush position back by the length of the previous file."""
    store, _offsets = laid(tmp_path)
    expected = TimerFiles(layout_of(store)).recovery
    last = TimerFiles(layout_of(store)).log.files[-1]
    (store / "timerlog" / f"{last.end:020d}").write_bytes(b"")
    assert TimerFiles(layout_of(store)).recovery == expected
    assert expected[0] < len(TimerFiles(layout_of(store)).log.files) - 2


def test_what_a_lost_checkpoint_leaves_is_delivered_by_run_as_a_broker_does_it(tmp_path: Path) -> None:
    store, offsets = laid(tmp_path)
    no_checkpoint(store)
    assert recover(layout_of(store), guard=None).applied
    now = [NOW + 1]
    with Store(store, write=True, broker_conf=CONF, release=V5_3, clock=lambda: now[0]) as opened:

        def wait(millis: int) -> None:
            now[0] += millis

        assert RunLoop(opened, never).run(wait, until_delivered=True).delivered == len(offsets)
    assert problems(store) == []


def copy_slot(store: Path, source: int, target: int) -> None:
    wheel = bytearray((store / "timerwheel").read_bytes())
    size = timer.SLOT_SIZE
    wheel[target * size : (target + 1) * size] = wheel[source * size : (source + 1) * size]
    (store / "timerwheel").write_bytes(wheel)


def used_slots(store: Path) -> list[int]:
    return [number for number, slot in timer.slots((store / "timerwheel").read_bytes()) if slot.time > 0]


@pytest.mark.parametrize("over_another", [False, True])
def test_a_slot_with_the_time_of_another_is_put_right(tmp_path: Path, *, over_another: bool) -> None:
    """The units in the other slots prove how times and slots belong together."""
    lab = Lab(file_size=5 * 52 + 20)
    offsets = [lab.put(100)]  # its unit is in a file that a start does not read
    offsets += [lab.put(10 + n % 7) for n in range(40)]
    store = lab.write(tmp_path, file_size=1 << 20)
    recover(layout_of(store))
    slots = used_slots(store)
    copy_slot(store, slots[0], slots[-1] if over_another else slots[-1] + 100)
    assert "timer-slot-misplaced" in problems(store)
    before = tree(store)
    assert recover(layout_of(store)).applied
    assert problems(store) == []
    assert waiting(store) == offsets
    assert plan(layout_of(store)).clean
    undo(str(store))
    assert tree(store) == before


@pytest.mark.parametrize(("precision", "proved"), [(None, False), ("1000", True)])
def test_a_misplaced_slot_alone_proves_nothing(precision: str | None, proved: bool, tmp_path: Path) -> None:
    store, _offsets = laid(tmp_path)
    first, second, *_ = used_slots(store)
    copy_slot(store, first, second + 100)
    path = store / "config" / "timercheck"
    point = timer.parse_checkpoint(path.read_bytes())  # all have fired, so no unit shows its slot
    path.write_bytes(timer.build_checkpoint(point._replace(last_read_time=point.last_read_time + 3_600_000)))
    conf = CONF | ({} if precision is None else {"timerPrecisionMs": precision})
    layout = StoreLayout(str(store), BrokerConf(conf))
    report = recover(layout)
    assert any("put timerPrecisionMs into the file of --broker-conf" in text for text in report.warnings) != proved
    assert ("timer-slot-misplaced" in problems(store)) != proved
    assert report.applied == proved


def test_exactly_leaves_a_misplaced_slot(tmp_path: Path) -> None:
    store, _offsets = laid(tmp_path)
    first, second, *_ = used_slots(store)
    copy_slot(store, first, second + 100)
    assert plan(layout_of(store), exactly=True).clean
