"""Damaged batch queues of a real 5.3.3 store: each damage gets its own code at its place, and no other."""

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.queues.batch import BatchEntry, build
from rmqtool.services.lookup.get_message import get_message
from rmqtool.store.check.codes.all import CODES
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.paths import BATCH_UNIT as UNIT
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import batch_queues_of
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.findings import Told, flip, found_in, told, write
from tests.store.helpers import conf_of

QUEUE = f"batchconsumequeue/BatchQueue/0/{0:020d}"  # units of 7, 15, 1, 1, 1 messages
DIRECTORY = "batchconsumequeue/BatchQueue/0"
_BASE, _COUNT, _SIZE, _TAGS, _TIME = 28, 36, 8, 12, 20  # in a unit
Damager = Callable[[Path], list[Told]]


def units_of(store: Path) -> list[bytes]:
    data = (store / QUEUE).read_bytes()
    return [data[at : at + UNIT] for at in range(0, 5 * UNIT, UNIT)]


def put(store: Path, *units: bytes) -> None:
    size = (store / QUEUE).stat().st_size
    (store / QUEUE).write_bytes(b"".join(units).ljust(size, b"\0"))


def base(store: Path) -> list[Told]:
    write(store / QUEUE, UNIT + _BASE, struct.pack(">q", 8))
    return [("bcq-base", QUEUE, UNIT, 1)]


def count(store: Path) -> list[Told]:
    write(store / QUEUE, UNIT + _COUNT, struct.pack(">h", 14))
    return [("bcq-count", QUEUE, UNIT, 1)]


def size(store: Path) -> list[Told]:
    flip(store / QUEUE, 2 * UNIT + _SIZE + 3)
    return [("bcq-size", QUEUE, 2 * UNIT, 1)]


def tags(store: Path) -> list[Told]:
    flip(store / QUEUE, 2 * UNIT + _TAGS + 7)
    return [("bcq-tags", QUEUE, 2 * UNIT, 1)]


def time(store: Path) -> list[Told]:
    flip(store / QUEUE, 3 * UNIT + _TIME + 7)
    return [("bcq-time", QUEUE, 3 * UNIT, 1)]


def outside(store: Path) -> list[Told]:
    write(store / QUEUE, 4 * UNIT, struct.pack(">q", 1 << 40))
    return [("bcq-no-message", QUEUE, 4 * UNIT, 1), ("bcq-missing", DIRECTORY, None, 1)]


def inside_a_record(store: Path) -> list[Told]:
    flip(store / QUEUE, 3 * UNIT + 7)
    return [("bcq-no-message", QUEUE, 3 * UNIT, 1), ("bcq-missing", DIRECTORY, None, 1)]


def of_another_queue(store: Path) -> list[Told]:
    other = (store / DIRECTORY).with_name("1") / f"{0:020d}"
    write(store / QUEUE, 2 * UNIT, other.read_bytes()[:8])
    return [("bcq-no-message", QUEUE, 2 * UNIT, 1), ("bcq-missing", DIRECTORY, None, 1)]


def twice(store: Path) -> list[Told]:
    first, second, third, fourth, fifth = units_of(store)
    put(store, first, second, second, third, fourth, fifth)
    return [("bcq-repeat", QUEUE, 2 * UNIT, 1)]


def left_out(store: Path) -> list[Told]:
    first, _second, third, fourth, fifth = units_of(store)
    put(store, first, third, fourth, fifth)
    return [("bcq-missing", DIRECTORY, None, 15)]


def last_left_out(store: Path) -> list[Told]:
    put(store, *units_of(store)[:3])
    return [("bcq-missing", DIRECTORY, None, 2)]


def hole(store: Path) -> list[Told]:
    write(store / QUEUE, UNIT, bytes(UNIT))
    return [("bcq-hole", QUEUE, UNIT, 1), ("bcq-missing", DIRECTORY, None, 15)]


def torn_inside(store: Path) -> list[Told]:
    write(store / QUEUE, UNIT + 20, bytes(UNIT - 20))
    return [("bcq-torn", QUEUE, UNIT, 1), ("bcq-missing", DIRECTORY, None, 15)]


def torn_at_the_end(store: Path) -> list[Told]:
    write(store / QUEUE, 4 * UNIT + 20, bytes(UNIT - 20))
    return [("bcq-torn", QUEUE, 4 * UNIT, 1), ("bcq-missing", DIRECTORY, None, 1)]


def stale(store: Path) -> list[Told]:
    write(store / QUEUE, 7 * UNIT, build([BatchEntry(80_980, 1149, 0, 0, 0, 7)] * 3))
    return [("bcq-stale", QUEUE, 5 * UNIT, 5)]


def all_zero(store: Path) -> list[Told]:
    put(store)
    return [("bcq-missing", DIRECTORY, None, 25)]


def queue_gone(store: Path) -> list[Told]:
    shutil.rmtree(store / DIRECTORY)
    return [("bcq-queue-missing", DIRECTORY, None, 25)]


def all_queues_gone(store: Path) -> list[Told]:
    shutil.rmtree(store / "batchconsumequeue")
    other = DIRECTORY[:-1] + "1"
    return [("bcq-queue-missing", DIRECTORY, None, 25), ("bcq-queue-missing", other, None, 18)]


def file_cut(store: Path) -> list[Told]:
    file = store / QUEUE
    file.write_bytes(file.read_bytes()[: 2 * UNIT + 11])
    return [("file-size", QUEUE, None, 1), ("bcq-missing", DIRECTORY, None, 3)]


def another_form(store: Path) -> list[Told]:
    path = store / "config" / "topics.json"
    topics = json.loads(path.read_text())
    topics["topicConfigTable"]["BatchQueue"]["attributes"] = {}
    path.write_text(json.dumps(topics))
    return [("bcq-form", "batchconsumequeue/BatchQueue", None, 1)]


DAMAGES: list[Damager] = [
    base, count, size, tags, time, outside, inside_a_record, of_another_queue, twice, left_out, last_left_out, hole,
    torn_inside, torn_at_the_end, stale, all_zero, queue_gone, all_queues_gone, file_cut, another_form,
]  # fmt: skip


@by_turns(3)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damage_is_told(damage: Damager, golden_copy: Unpacked) -> None:
    store = golden_copy("broker-5.3.3")
    expected = damage(store)
    findings = found_in(store, conf_of("broker-5.3.3"))
    assert told([f for f in findings if f.code != "not-checked"]) == sorted(expected)
    for finding in findings:
        assert finding.code == "not-checked" or is_problem(finding)
        assert finding.consequence
        assert finding.fix
        if finding.code.startswith("bcq"):
            assert finding.topic == "BatchQueue"


def test_every_code_is_told_of_some_damage(golden_copy: Unpacked) -> None:
    seen = {code for damage in DAMAGES for code, *_rest in damage(golden_copy("broker-5.3.3"))}
    assert {code for code in CODES if code.startswith("bcq-")} - seen == {"bcq-behind"}


@pytest.mark.parametrize("case", ["broker-5.3.3", "broker-5.3.3-crash"])
def test_nothing_is_told_of_healthy_queues(case: str, golden: Unpacked) -> None:
    for conf in (None, conf_of(case)):
        assert not [f for f in found_in(golden(case), conf) if f.code not in ("not-checked", "abort-present")]


def test_after_a_crash_what_lies_behind_the_last_unit_comes_at_the_next_start(golden_copy: Unpacked) -> None:
    store = golden_copy("broker-5.3.3-crash")
    put(store, *units_of(store)[:3])
    finding = [f for f in found_in(store) if f.code.startswith("bcq")]
    assert [(f.code, f.severity, f.count, f.queueOffset) for f in finding] == [("bcq-behind", "info", 2, 23)]


def test_explain_tells_of_every_code() -> None:
    for code in (code for code in CODES if code.startswith("bcq-")):
        result = rmqtool("explain", code)
        assert result.code == 0
        assert CODES[code].title in result.out


@by_turns(13)
@pytest.mark.parametrize("seed", range(40))
def test_any_bytes_are_checked_and_read(seed: int, golden_copy: Unpacked) -> None:
    rng = random.Random(seed)
    store = golden_copy("broker-5.3.3")
    log = store / "commitlog" / f"{0:020d}"
    for _ in range(rng.randrange(1, 8)):
        if rng.random() < 0.3:
            write(log, rng.randrange(80_000, 88_000), rng.randbytes(rng.randrange(1, 9)))
        else:
            write(store / QUEUE, rng.randrange(0, 8 * UNIT), rng.randbytes(rng.randrange(1, 60)))
    assert {finding.severity for finding in found_in(store)} <= {"error", "warning", "info"}
    layout = StoreLayout(str(store))
    opened = CommitLog(layout)
    for queue in batch_queues_of(layout):
        assert len(list(queue.entries())) <= 100
        for offset in (0, 7, 22, rng.randrange(-(2**63), 2**63)):
            entry = queue.entry(offset)
            assert entry is None or entry.queue_offset <= offset < entry.queue_offset + entry.batch_num
            assert get_message(opened, queue, offset, 32).min_offset == queue.min_offset(opened.min_offset)
    assert rmqtool("commitlog", "dump", store, "--topic", "Batch*").code in (0, 1)
    assert rmqtool("consumequeue", "dump", store).code == 0
