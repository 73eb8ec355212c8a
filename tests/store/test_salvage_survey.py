"""What salvage detects before it writes: swapped files, wrong queue offsets, blanks over messages."""

import shutil
from pathlib import Path
from random import Random

import pytest

from rmqtool import NewMessage, Store
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.recovery.command import plan
from rmqtool.store.salvage.carve import Salvage
from rmqtool.store.salvage.report import SalvageReport
from rmqtool.store.salvage.survey import Survey, true_files
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.damage import log_files, swap_log_files
from tests.store.helpers import conf_of, rewrite

FILE = 49152


def messages_of(store: Path) -> list[LocatedRecord]:
    return [
        item for item in CommitLog(StoreLayout(str(store), conf_of("clean"))).walk() if isinstance(item, LocatedRecord)
    ]


def order_of(store: Path) -> list[tuple[bytes, int, bytes]]:
    """Bodies queue by queue, in log order."""
    return sorted(
        ((m.record.topic, m.record.queue_id, m.record.body) for m in messages_of(store)), key=lambda row: row[:2]
    )


def set_number(located: LocatedRecord, number: int) -> None:
    with open(located.file.path, "r+b") as file:
        file.seek(located.at + 20)
        file.write(number.to_bytes(8, "big", signed=True))


def salvage(store: Path, target: Path) -> SalvageReport:
    return Salvage(StoreLayout(str(store), conf_of("clean")), str(target)).run()


@by_turns(3)
@pytest.mark.parametrize("number", [0, 1, 7, 10**6, 2**62, -1, -(2**63)])
@pytest.mark.parametrize("which", [0, 1, 250])
def test_a_wrong_queue_offset_costs_no_message(number: int, which: int, golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("clean")
    expected = order_of(store)
    victim = messages_of(store)[which]
    set_number(victim, number)
    report = salvage(store, tmp_path / "new")
    wrong = int(number != victim.record.queue_offset)
    assert (report.messages, report.wrongOffsets, report.lostRangeCount) == (500, wrong, 0)
    assert order_of(tmp_path / "new") == expected
    assert not report.renumbered
    numbers: dict[tuple[bytes, int], int] = {}
    for item in messages_of(tmp_path / "new"):
        key = item.record.topic, item.record.queue_id
        assert item.record.queue_offset == numbers.get(key, 0)
        numbers[key] = item.record.queue_offset + 1


def test_the_last_of_a_queue_has_none_behind_it_to_tell(golden_copy: Unpacked, tmp_path: Path) -> None:
    """A lower offset there is an old message left by a cut, if it was stored before its predecessors."""
    for number, age, kept in ((0, 1, 499), (0, 0, 500), (10**6, 0, 500)):
        store = golden_copy("clean")
        last = messages_of(store)[-1]
        rewrite(last, queue_offset=number, store_timestamp=last.record.store_timestamp - age * 3_600_000)
        target = tmp_path / f"{number}-{age}"
        report = salvage(store, target)
        assert (report.messages, report.wrongOffsets, report.duplicates) == (kept, 0, 500 - kept)
        assert report.restarted == int(number == 0 and not age)
        assert len(messages_of(target)) == kept


def test_a_queue_that_began_anew(tmp_path: Path) -> None:
    """A broker that lost a queue begins it at 0 again; messages acknowledged since count as well."""
    store, sizes = tmp_path / "store", {"mappedFileSizeCommitLog": str(FILE), "mappedFileSizeConsumeQueue": "2000"}
    bodies = []
    for generation, count in enumerate((30, 5, 50, 1)):
        with Store(store, broker_conf=sizes, write=True) if bodies else Store.create(store, broker_conf=sizes) as into:
            for number in range(count):
                bodies.append(f"{generation}-{number}".encode())
                into.append(NewMessage(topic="t", queue_id=0, body=bodies[-1]))
            into.append(NewMessage(topic="other", queue_id=0, body=b""))  # a queue that leads to the log's end
        shutil.rmtree(store / "consumequeue" / "t")
    report = Salvage(StoreLayout(str(store), BrokerConf(sizes)), str(tmp_path / "new")).run()
    assert (report.messages, report.lostRangeCount, report.duplicates) == (90, 0, 0)
    assert report.restarted == 5 + 30 + 1
    there = [
        item.record
        for item in CommitLog(StoreLayout(str(tmp_path / "new"), BrokerConf(sizes))).walk()
        if isinstance(item, LocatedRecord) and item.record.topic == b"t"
    ]
    assert [record.body for record in there] == bodies
    assert [record.queue_offset for record in there] == list(range(86))
    assert plan(StoreLayout(str(tmp_path / "new"), BrokerConf(sizes))).clean


def test_lost_messages_are_no_wrong_offsets(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("clean")
    for victim in messages_of(store)[100:140]:
        with open(victim.file.path, "r+b") as file:
            file.seek(victim.at + 4)
            file.write(bytes(4))
    report = salvage(store, tmp_path / "new")
    assert (report.messages, report.wrongOffsets) == (460, 0)
    assert sum(queue.lost for queue in report.renumbered) == 40


def test_queues_of_a_log_without_its_head_keep_their_offsets(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("clean")
    (store / "commitlog" / f"{0:020d}").unlink()
    messages = messages_of(store)
    expected = {(m.record.topic, m.record.queue_id, m.record.queue_offset) for m in messages}
    set_number(messages[0], 2**40)
    report = salvage(store, tmp_path / "new")
    assert (report.messages, report.wrongOffsets) == (len(messages), 1)
    assert {
        (m.record.topic, m.record.queue_id, m.record.queue_offset) for m in messages_of(tmp_path / "new")
    } == expected


@by_turns(2)
@pytest.mark.parametrize("seed", range(4))
def test_swapped_files_go_back_to_their_places(seed: int, golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("clean")
    before = [(m.physical_offset, m.record) for m in messages_of(store)]
    assert swap_log_files(Random(seed), store)
    report = salvage(store, tmp_path / "new")
    assert [(m.physical_offset, m.record) for m in messages_of(tmp_path / "new")] == before
    assert len(report.warnings) == 2
    assert all("read there" in warning for warning in report.warnings)


def test_a_copy_of_a_file_is_passed_over(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("clean")
    files = log_files(store)
    count = len(messages_of(store))
    shutil.copy2(files[0], store / "commitlog" / f"{len(files) * FILE:020d}")
    log = CommitLog(StoreLayout(str(store), conf_of("clean")))
    kept, moved, passed = true_files(log)
    assert [file.path for file in kept] == [str(path) for path in files]
    assert not moved
    assert [(file.named_base, file.stated_base) for file in passed] == [(len(files) * FILE, 0)]
    assert salvage(store, tmp_path / "new").messages == count
    # where it is the only one, it counts
    files[0].unlink()
    report = salvage(store, tmp_path / "again")
    assert (report.messages, report.lostRangeCount) == (count, 0)
    assert "begins at 0: read there" in report.warnings[0]


def test_a_blank_that_came_over_a_message_hides_only_that(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    messages = messages_of(store)
    victim = messages[20]
    with open(victim.file.path, "r+b") as file:
        file.seek(victim.at)
        file.write(victim.record.total_size.to_bytes(4, "big") + bytes.fromhex("cbd43194"))
    log = CommitLog(StoreLayout(str(store), conf_of("clean")))
    items = list(log.walk())
    (damage,) = [item for item in items if isinstance(item, Damage)]
    assert (damage.at, damage.length) == (victim.at, victim.record.total_size)
    assert len(items) == len(messages)
    # behind a true one nothing is looked for: there lie old bytes at most
    end = [m for m in messages if m.file.base == 0][-1]
    at = end.at + end.record.total_size
    with open(victim.file.path, "r+b") as file:
        file.seek(at)
        assert int.from_bytes(file.read(4), "big") == FILE - at
    assert not [item for item in items if isinstance(item, LocatedRecord) and at < item.physical_offset < FILE]


def test_a_sound_log_is_believed(golden: Unpacked) -> None:
    for case in ("clean", "broker", "delay", "lmq", "large-bodies"):
        layout = StoreLayout(str(golden(case)), conf_of(case))
        log = CommitLog(layout)
        files, moved, passed = true_files(log)
        assert [file.path for file in files] == [file.path for file in log.segments]
        assert (moved, passed) == ([], [])
        assert not Survey.of(layout, files).wrong
