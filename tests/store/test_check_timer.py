"""Check of the timer of 5.x: silent on healthy stores, exact on each damage."""

from collections.abc import Callable
from pathlib import Path

import pytest

from formats.variants import timer
from rmqtool.store.check.advice.steps import REBUILD_TIMER
from rmqtool.store.check.codes.all import CODES
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.repair.rebuild import rebuild
from tests import timers
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.store.findings import Told, found_in, told, write

LOG = f"timerlog/{0:020d}"
CHECK = "config/timercheck"
# the pending ones of the golden store: position of the unit in the timer log
LATER = {0: 416, 1: 468, 2: 520, 3: 572, 4: 624}
RECALL = 676  # in one slot with later-0
SLOT_OF_0, SLOT_OF_1 = 349_241 * 32, 352_841 * 32
END = 2964


def timer_findings(store: Path) -> list[Finding]:
    kept = (*(code for code in CODES if code.startswith("timer-")), "file-size", "file-foreign", "file-gap")
    return [finding for finding in found_in(store) if finding.code in kept]


def unit_at(store: Path, position: int) -> timer.LogUnit:
    record = timer.read_unit((store / LOG).read_bytes(), position, 1 << 20)
    assert isinstance(record, timer.LogUnit)
    return record


def record_of(store: Path, position: int) -> tuple[Path, int, bytes]:
    """(file, byte in it, length) of the message that a unit points to."""
    unit = unit_at(store, position)
    located = CommitLog(StoreLayout(str(store))).read(unit.physical_offset)
    assert located is not None
    path = Path(located.file.path)
    return path, located.at, path.read_bytes()[located.at : located.at + unit.message_size]


def put_unit(store: Path, position: int, **fields: int) -> None:
    write(store / LOG, position, timer.build_unit(unit_at(store, position)._replace(**fields)))


def put_point(store: Path, **fields: int) -> None:
    point = timer.parse_checkpoint((store / CHECK).read_bytes())
    (store / CHECK).write_bytes(timer.build_checkpoint(point._replace(**fields)))


def in_record(store: Path, position: int, old: bytes, new: bytes) -> tuple[str, int]:
    path, at, record = record_of(store, position)
    assert record.count(old) == 1
    assert len(old) == len(new)
    write(path, at + record.index(old), new)
    return f"commitlog/{path.name}", at


def slot_outside(store: Path) -> list[Told]:
    # the first position too: else the start looks from there on, and mends the slot from the log
    write(store / "timerwheel", SLOT_OF_1 + 8, (1 << 40).to_bytes(8, "big") * 2)
    put_point(store, last_timer_log_flush_position=1 << 30)
    with (store / "timerlog" / f"{52_000:020d}").open("wb") as file:
        file.truncate(52_000)  # an older file is not read again
    return [
        ("timer-checkpoint-ahead", CHECK, 8, 1),
        ("timer-log-damage", LOG, END, 1),
        ("timer-lost", "timerwheel", None, 1),
        ("timer-slot-outside", "timerwheel", SLOT_OF_1, 1),
    ]


def slot_misplaced(store: Path) -> list[Told]:
    data = (store / "timerwheel").read_bytes()[SLOT_OF_1 : SLOT_OF_1 + 32]
    write(store / "timerwheel", SLOT_OF_1 + 320, data)
    return [("timer-slot-misplaced", "timerwheel", SLOT_OF_1 + 320, 1)]


def chain_to_nowhere(store: Path) -> list[Told]:
    put_unit(store, RECALL, previous_position=417)
    return [("timer-chain", LOG, RECALL, 1), ("timer-lost", "timerwheel", None, 1)]


def chain_forward(store: Path) -> list[Told]:
    put_unit(store, RECALL, previous_position=END - 52)
    return [("timer-chain", LOG, RECALL, 1), ("timer-lost", "timerwheel", None, 1)]


def chain_in_a_circle(store: Path) -> list[Told]:
    put_unit(store, LATER[0], previous_position=RECALL)
    return [("timer-chain", LOG, LATER[0], 1)]


def beyond_the_log(store: Path) -> list[Told]:
    put_unit(store, LATER[2], physical_offset=1 << 33)
    return [("timer-lost", "timerwheel", None, 1), ("timer-no-message", LOG, LATER[2], 1)]


def another_message(store: Path) -> list[Told]:
    put_unit(store, LATER[2], physical_offset=0)
    return [("timer-lost", "timerwheel", None, 1), ("timer-other-message", LOG, LATER[2], 1)]


def another_size(store: Path) -> list[Told]:
    put_unit(store, LATER[2], message_size=100)
    return [("timer-other-message", LOG, LATER[2], 1)]


def wrong_magic(store: Path) -> list[Told]:
    put_unit(store, LATER[3], magic=0x77)
    units = (END - LATER[3]) // 52 - 1
    return [
        ("timer-checkpoint-ahead", CHECK, 8, 1),
        ("timer-log-damage", LOG, LATER[3], units),
        # later-3, later-4 and recall-0 too, which a start takes up behind the message of the last unit before
        ("timer-behind", CHECK, 16, units + 1),
        *(("timer-slot-outside", "timerwheel", slot * 32, 1) for slot in (360_041, 363_641)),
    ]


def torn_unit(store: Path) -> list[Told]:
    write(store / LOG, END, (store / LOG).read_bytes()[:30].replace(b"\x34", b"\x33"))
    return [("timer-log-torn", LOG, END, 1)]


def half_a_unit(store: Path) -> list[Told]:
    write(store / LOG, END + 20, b"\1\2\3")
    return [("timer-log-torn", LOG, END, 1)]


def hole_in_the_log(store: Path) -> list[Told]:
    write(store / LOG, END + 52, timer.build_unit(unit_at(store, 0)))
    return [("timer-log-damage", LOG, END, 1)]


def half_written_properties(store: Path) -> list[Told]:
    name, at = in_record(store, LATER[4], b"REAL_TOPIC\1", b"\0\0\0\0\0\0\0\0\0\0\0")
    return [("timer-properties", name, at, 1)]


def no_deliver_time(store: Path) -> list[Told]:
    name, at = in_record(store, LATER[4], b"TIMER_OUT_MS\x011795", b"TIMER_OUT_MS\x01one,")
    return [("timer-properties", name, at, 1)]


def another_deliver_time(store: Path) -> list[Told]:
    in_record(store, LATER[4], b"TIMER_OUT_MS\x011795", b"TIMER_OUT_MS\x011796")
    return [("timer-deliver-time", LOG, LATER[4], 1)]


def twice(store: Path) -> list[Told]:
    again = unit_at(store, LATER[1])._replace(previous_position=LATER[1])
    write(store / LOG, END, timer.build_unit(again))
    return [("timer-twice", LOG, END, 1)]


def checkpoint_gone(store: Path) -> list[Told]:
    (store / CHECK).unlink()
    return [("timer-checkpoint-empty", CHECK, None, 1)]


def checkpoint_zero(store: Path) -> list[Told]:
    (store / CHECK).write_bytes(bytes(4096))
    return [("timer-checkpoint-empty", CHECK, None, 1)]


def checkpoint_ahead(store: Path) -> list[Told]:
    put_point(store, last_timer_queue_offset=99, last_timer_log_flush_position=END + 52)
    return [("timer-checkpoint-ahead", CHECK, 8, 1), ("timer-checkpoint-ahead", CHECK, 16, 1)]


def queue_not_taken(store: Path) -> list[Told]:
    """As after a stop before the timer had read its queue, with later-4 and recall-0 in it."""
    put_point(store, last_timer_queue_offset=56, master_timer_queue_offset=56)
    return [("timer-behind", CHECK, 16, 1)]


def wheel_cut(store: Path) -> list[Told]:
    with (store / "timerwheel").open("r+b") as wheel:
        wheel.truncate(1 << 20)
    return [("timer-wheel-size", "timerwheel", None, 1)]  # the log is short enough to tell the rest


def wheel_gone(store: Path) -> list[Told]:
    (store / "timerwheel").unlink()
    return [("timer-wheel-missing", "timerwheel", None, 1)]


def log_gone(store: Path) -> list[Told]:
    (store / LOG).unlink()
    slots = [349_241, 352_841, 356_441, 360_041, 363_641]
    return [
        ("timer-checkpoint-ahead", CHECK, 8, 1),
        *(("timer-lost", "timerwheel", None, 1) for _ in range(6)),
        *(("timer-slot-outside", "timerwheel", slot * 32, 1) for slot in slots),
    ]


def a_file_that_is_none(store: Path) -> list[Told]:
    (store / "timerlog" / "old.bak").write_bytes(b"?")
    return [("file-foreign", "timerlog/old.bak", None, 1)]


def a_short_file(store: Path) -> list[Told]:
    (store / "timerlog" / f"{52_000:020d}").write_bytes(bytes(1000))
    put_point(store, last_timer_log_flush_position=1000)
    return [("file-size", f"timerlog/{52_000:020d}", None, 1), ("timer-log-damage", LOG, END, 1)]


DAMAGES: list[Callable[[Path], list[Told]]] = [
    slot_outside, slot_misplaced, chain_to_nowhere, chain_forward, chain_in_a_circle, beyond_the_log, another_message,
    another_size, wrong_magic, torn_unit, half_a_unit, hole_in_the_log, half_written_properties, no_deliver_time,
    another_deliver_time, twice, checkpoint_gone, checkpoint_zero, checkpoint_ahead, queue_not_taken, wheel_cut,
    wheel_gone, log_gone, a_file_that_is_none, a_short_file,
]  # fmt: skip


@pytest.mark.parametrize("case", ["broker-5.3.3", "broker-5.3.3-crash", "rocksdb-5.3.3", "rocksdb-5.3.3-crash"])
def test_silent_on_golden_stores(case: str, golden: Unpacked) -> None:
    assert TimerFiles(StoreLayout(str(golden(case)))).present
    findings = found_in(golden(case))
    assert [finding for finding in findings if finding.code.startswith("timer-")] == []
    assert not {"timerwheel", "timerlog"} & {finding.file for finding in findings}


@by_turns(3)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_one_damage(damage: Callable[[Path], list[Told]], golden_copy: Unpacked) -> None:
    store = golden_copy("broker-5.3.3")
    expected = damage(store)
    assert told(timer_findings(store)) == sorted(expected)


def test_a_link_to_a_file_that_has_expired(tmp_path: Path) -> None:
    lab = timers.Timers(file_size=5 * 52 + 20)
    for _ in range(12):
        lab.put(5)
    store = lab.write(tmp_path)
    (store / LOG).unlink()
    codes = [(finding.code, finding.file, finding.offset) for finding in timer_findings(store)]
    assert codes[0] == ("timer-expired", f"timerlog/{280:020d}", 0)
    assert {code for code, _file, _offset in codes[1:]} == {"timer-lost"}


def test_a_message_that_was_moved_on_is_not_lost(tmp_path: Path) -> None:
    lab = timers.Timers()
    lab.put(250_000, UNIQ_KEY="A", enqueue=False)
    lab.put(250_000, UNIQ_KEY="A", TIMER_ROLL_TIMES="1")
    lab.taken = 2
    assert timer_findings(lab.write(tmp_path)) == []


def test_recalled_and_rolled_messages_are_no_fault(tmp_path: Path) -> None:
    lab = timers.Timers()
    lab.put(10, UNIQ_KEY="A")
    lab.put(10, TIMER_DEL_UNIQKEY="A")
    lab.put(200_000)
    lab.put(-3)
    assert timer_findings(lab.write(tmp_path)) == []


def test_before_the_first_timer_message(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    with (store / "timerwheel").open("wb") as wheel:
        wheel.truncate(timer.WHEEL_SIZE)
    (store / CHECK).write_bytes(bytes(4096))
    assert timer_findings(store) == []


def test_a_flood_is_counted(golden_copy: Unpacked) -> None:
    store = golden_copy("broker-5.3.3")
    data = bytearray((store / "timerwheel").read_bytes())
    for slot in range(1000, 3000):
        data[slot * 32 : slot * 32 + 32] = timer.build_slot(timer.Slot(slot + 1, 0, 0, 1))
    (store / "timerwheel").write_bytes(data)
    findings = [finding for finding in timer_findings(store) if finding.code == "timer-slot-misplaced"]
    assert sum(finding.count for finding in findings) == 2000
    assert len(findings) == 21


UNMENDED = [torn_unit, half_a_unit, another_deliver_time, queue_not_taken, a_file_that_is_none]


@by_turns(13)
@pytest.mark.parametrize("damage", [d for d in DAMAGES if d not in UNMENDED], ids=lambda damage: damage.__name__)
def test_what_is_advised_mends(damage: Callable[[Path], list[Told]], golden_copy: Unpacked) -> None:
    store = golden_copy("broker-5.3.3")
    damage(store)
    assert any(REBUILD_TIMER in finding.steps for finding in timer_findings(store))
    rebuild(StoreLayout(str(store)), ("timer",))
    assert timer_findings(store) == []
