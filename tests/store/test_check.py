"""The whole-store check: silent on what is healthy, exact on what is not, and never writing."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats import checkpoint
from formats.config_files import ConsumerOffsets, DelayOffsets
from formats.index import HEADER_SIZE, entry_at, infer_geometry, read_entry, read_header, slot_at
from formats.kernel_properties import odd_properties
from formats.message import HEADS
from rmqtool.store.broker_conf import BrokerConf
from rmqtool.store.check import CODES, FINDING_FIELDS, Finding, check_store, is_problem, log
from rmqtool.store.check.records import PROPERTIES
from rmqtool.store.layout import StoreLayout
from rmqtool.store.recover import recover
from tests import goldens
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.damage import VERBS, Place, damage, index_files, log_files, records_of
from tests.store.helpers import conf_of, tree

Told = tuple[str, str, int | None, int]  # code, file, offset, count
UNIT = 20
LOG = "commitlog/{:020d}"
LAST_LOG = LOG.format(147456)
LAST_INDEX = "index/20261120205828377"
ABORT: Told = ("abort-present", "abort", None, 1)
NO_CHECKPOINT: Told = ("checkpoint-missing", "checkpoint", None, 1)
MESSAGES = {"TopicA": (49, 48, 42, 48), "TopicB": (38, 34, 33, 46), "order-events": (42, 32, 36, 52)}
CLEAN = ["clean", "broker", "delay", "ipv6", "large-bodies", "lmq", "queue-ext"]


def every_queue(code: str) -> list[Told]:
    return [
        (code, f"consumequeue/{topic}/{number}/{0:020d}", 0, count)
        for topic, counts in MESSAGES.items()
        for number, count in enumerate(counts)
    ]


def ghosts(*offsets: int) -> list[Told]:
    return [("index-ghost", LAST_INDEX, offset, 1) for offset in offsets]


TORN: list[Told] = [
    ("log-torn", LAST_LOG, 28028, 1),
    ("cq-no-message", f"consumequeue/TopicA/3/{0:020d}", 940, 1),
    *ghosts(5768, 5788),
]
DAMAGED: dict[str, list[Told]] = {
    "body-bit-flip-first-file-no-checkpoint": [ABORT, ("log-crc", LOG.format(0), 24198, 1), NO_CHECKPOINT],
    "body-bit-flip-last-file": [ABORT, ("log-crc", LAST_LOG, 19325, 1)],
    "broker-crash": [ABORT],
    "checkpoint-deleted": [ABORT, NO_CHECKPOINT],
    "checkpoint-zeroed": [ABORT, ("checkpoint-empty", "checkpoint", 0, 1)],
    "clean-exit-consumequeue-deleted": every_queue("cq-missing"),
    "clean-exit-torn-last-record": TORN,
    "commitlog-deleted": [ABORT, ("log-absent", "commitlog", None, 500)],
    "consumequeue-deleted": [ABORT, *every_queue("cq-behind")],
    "consumequeue-deleted-no-checkpoint": [ABORT, *every_queue("cq-behind"), NO_CHECKPOINT],
    "crash": [ABORT],
    "extra-zero-file": [ABORT],
    "head-file-deleted": [ABORT],
    "index-deleted": [ABORT, ("index-absent", "index", None, 1)],
    "index-deleted-no-checkpoint": [ABORT, ("index-absent", "index", None, 1), NO_CHECKPOINT],
    "magic-broken-last-file": [
        ABORT,
        *ghosts(3808, 3828),
        ("log-damage", LAST_LOG, 8755, 1),
        ("cq-no-message", f"consumequeue/TopicB/2/{0:020d}", 500, 1),
    ],
    "one-queue-deleted": [ABORT, ("cq-behind", f"consumequeue/TopicA/1/{0:020d}", 0, 48)],
    "queue-tail-zeroed": [ABORT, ("cq-behind", f"consumequeue/TopicA/2/{0:020d}", 640, 10)],
    "short-last-file": [ABORT, ("file-size", LOG.format(196608), None, 1)],
    "size-field-negative": [
        ABORT,
        *ghosts(4388, 4408, 4428),
        ("log-damage", LAST_LOG, 14216, 1),
        ("cq-no-message", f"consumequeue/order-events/3/{0:020d}", 960, 1),
    ],
    "torn-header": [ABORT, *TORN],
    "torn-last-record": [ABORT, *TORN],
}
# what recovery leaves, as a broker does: it never looks at the index after a clean stop or without a log
AFTER_RECOVERY = {"clean-exit-torn-last-record": {"index-ghost": 2}, "commitlog-deleted": {"index-ghost": 710}}


def found_in(store: Path, conf: BrokerConf | None = None) -> list[Finding]:
    return list(check_store(StoreLayout(str(store), conf)))


def told(findings: list[Finding]) -> list[Told]:
    return sorted((f.code, f.file, f.offset, f.count) for f in findings)  # type: ignore[type-var]


def totals(findings: list[Finding]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.code] = counts.get(finding.code, 0) + finding.count
    return counts


def write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = path.read_bytes()[at]
    write(path, at, bytes([data ^ 1 << bit]))


def test_every_golden_store_has_an_expectation() -> None:
    assert sorted(CLEAN + list(DAMAGED)) == goldens.cases()


@pytest.mark.parametrize("case", CLEAN)
def test_nothing_is_found_in_a_healthy_store(case: str, golden: Unpacked) -> None:
    assert found_in(golden(case)) == []
    assert found_in(golden(case), conf_of(case)) == []


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_of_golden_stores_is_told_exactly_and_nothing_is_written(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    before = tree(store.parent)
    findings = found_in(store)
    assert told(findings) == sorted(DAMAGED[case])  # type: ignore[type-var]
    assert found_in(store, conf_of(case)) == findings
    assert tree(store.parent) == before


@pytest.mark.parametrize("case", sorted(set(DAMAGED) - {"short-last-file"}))
def test_a_recovered_store_has_no_errors(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    recover(StoreLayout(str(store), conf_of(case)))
    findings = found_in(store, conf_of(case))
    assert totals(findings) == AFTER_RECOVERY.get(case, {})
    assert {f.severity for f in findings} <= {"warning"}


@pytest.mark.parametrize("case", ["clean", "broker", "ipv6", "lmq", "delay", "torn-last-record", "crash"])
def test_the_compiled_way_finds_the_same(case: str, golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = found_in(golden(case))
    monkeypatch.setattr(log, "is_bulk", lambda *_args: True)
    assert found_in(golden(case)) == plain


def test_the_compiled_look_at_properties_agrees_with_the_rule() -> None:
    random = Random(1)
    items = [bytes(random.choices(b"\0\1\2\1\2ab\x80c", k=random.randrange(12))) for _ in range(3000)]
    lengths = np.array([len(item) for item in items], np.int64)
    odd = odd_properties(b"".join(items), np.cumsum(lengths) - lengths, lengths)
    expected = [
        number
        for number, item in enumerate(items)
        if item and (PROPERTIES.fullmatch(item) is None or item[-1] == 0 or not item.isascii())
    ]
    assert odd.tolist() == expected


# -- one damage each --------------------------------------------------------------------------------------------------


def a_message(store: Path, topic: bytes, queue_id: int, ordinal: int) -> Place:
    """A record and where it lies."""
    places = (place for path in log_files(store) for place in records_of(path))
    return next(
        p for p in places if (p.record.topic, p.record.queue_id, p.record.queue_offset) == (topic, queue_id, ordinal)
    )


def a_queue(store: Path, topic: str = "TopicA", queue_id: int = 1) -> Path:
    return store / "consumequeue" / topic / str(queue_id) / f"{0:020d}"


def queue_name(topic: str = "TopicA", queue_id: int = 1) -> str:
    return f"consumequeue/{topic}/{queue_id}/{0:020d}"


def name_of(path: Path, store: Path) -> str:
    return str(path.relative_to(store))


def entries_in(path: Path) -> int:
    return -(-len(path.read_bytes().rstrip(b"\0")) // UNIT)


Damager = Callable[[Path], list[Told]]


def body_bit(store: Path) -> list[Told]:
    place = a_message(store, b"TopicA", 1, 5)
    flip(place.path, place.at + HEADS[place.record.sys_flag & 0x30].size)
    return [("log-crc", name_of(place.path, store), place.at, 1)]


def magic(store: Path) -> list[Told]:
    place = a_message(store, b"TopicA", 1, 5)
    write(place.path, place.at + 4, b"\1\2\3\4")
    keys = ghosts_of(store, place)
    return [
        ("log-damage", name_of(place.path, store), place.at, 1),
        ("cq-no-message", queue_name(), 5 * UNIT, 1),
        *keys,
    ]


def ghosts_of(store: Path, place: Place) -> list[Told]:
    """The index entries of a message."""
    found: list[Told] = []
    for path in index_files(store):
        data = path.read_bytes()
        slots, _room = infer_geometry(data) or (0, 0)
        found += [
            ("index-ghost", name_of(path, store), entry_at(slots, number), 1)
            for number in range(1, read_header(data).index_count)
            if read_entry(data, slots, number).physical_offset == place.record.physical_offset
        ]
    assert found
    return found


def position_field(store: Path) -> list[Told]:
    place = a_message(store, b"TopicA", 1, 5)
    flip(place.path, place.at + 35)
    return [("log-position", name_of(place.path, store), place.at, 1)]


def properties_zeroed(store: Path) -> list[Told]:
    """The last property is the tag here, which its entry then no longer has."""
    place = a_message(store, b"TopicA", 1, 5)
    record = place.record
    at = place.end - 3
    write(place.path, at, bytes(3))
    return [
        ("log-properties", name_of(place.path, store), place.end - len(record.properties), 1),
        ("cq-tags", queue_name(), 5 * UNIT + 12, 1),
    ]


def blank_lost(store: Path) -> list[Told]:
    path = log_files(store)[0]
    end = list(records_of(path))[-1].end
    write(path, end, bytes(8))
    return [("log-blank-missing", name_of(path, store), end, 1)]


def blank_over_a_message(store: Path) -> list[Told]:
    place = a_message(store, b"TopicA", 1, 5)
    write(place.path, place.at, struct.pack(">iI", 0, 0xCBD43194))
    return [
        ("log-damage", name_of(place.path, store), place.at, 1),
        ("cq-no-message", queue_name(), 5 * UNIT, 1),
        *ghosts_of(store, place),
    ]


def bytes_behind_the_log(store: Path) -> list[Told]:
    path = log_files(store)[-1]
    end = list(records_of(path))[-1].end
    write(path, end + 1000, b"old")
    return [("log-stale", name_of(path, store), end + 1000, 1)]


def unit_zeroed(store: Path) -> list[Told]:
    write(a_queue(store), 7 * UNIT, bytes(UNIT))
    return [("cq-hole", queue_name(), 7 * UNIT, 1)]


def filler_inside(store: Path) -> list[Told]:
    write(a_queue(store), 7 * UNIT, struct.pack(">qiq", 0, 2**31 - 1, 0))
    return [("cq-hole", queue_name(), 7 * UNIT, 1)]


def wrong_tag(store: Path) -> list[Told]:
    flip(a_queue(store), 7 * UNIT + 19)
    return [("cq-tags", queue_name(), 7 * UNIT + 12, 1)]


def wrong_size(store: Path) -> list[Told]:
    flip(a_queue(store), 7 * UNIT + 11)
    return [("cq-size", queue_name(), 7 * UNIT, 1)]


def wrong_offset(store: Path) -> list[Told]:
    flip(a_queue(store), 7 * UNIT + 7)
    return [("cq-no-message", queue_name(), 7 * UNIT, 1)]


def swapped(store: Path) -> list[Told]:
    path = a_queue(store)
    data = path.read_bytes()
    write(path, 7 * UNIT, data[9 * UNIT : 10 * UNIT])
    write(path, 9 * UNIT, data[7 * UNIT : 8 * UNIT])
    return [("cq-order", queue_name(), 7 * UNIT, 1), ("cq-order", queue_name(), 9 * UNIT, 1)]


def other_queue(store: Path) -> list[Told]:
    write(a_queue(store), 7 * UNIT, a_queue(store, "TopicB").read_bytes()[:UNIT])
    return [("cq-other-message", queue_name(), 7 * UNIT, 1)]


def stale_units(store: Path) -> list[Told]:
    path = a_queue(store)
    data = path.read_bytes()
    end = entries_in(path) * UNIT
    write(path, end + UNIT, data[: 3 * UNIT])
    return [("cq-stale", queue_name(), end + UNIT, 3)]


def queue_tail(store: Path) -> list[Told]:
    path = a_queue(store)
    count = entries_in(path)
    write(path, (count - 4) * UNIT, bytes(4 * UNIT))
    return [("cq-missing", queue_name(), (count - 4) * UNIT, 4)]


def queue_gone(store: Path) -> list[Told]:
    count = entries_in(a_queue(store))
    a_queue(store).unlink()
    return [("cq-missing", queue_name(), 0, count)]


def first_units_filler(store: Path) -> list[Told]:
    write(a_queue(store), 0, struct.pack(">qiq", 0, 2**31 - 1, 0) * 5)
    return [("cq-starts-late", queue_name(), 0, 5)]


def empty_queue_file(store: Path) -> list[Told]:
    path = a_queue(store).with_name(f"{2140:020d}")
    path.write_bytes(bytes(2140))
    return [("cq-empty-file", name_of(path, store), 0, 1)]


def _index(store: Path) -> tuple[Path, int]:
    path = index_files(store)[-1]
    slots, _room = infer_geometry(path.read_bytes()) or (0, 0)
    return path, slots


def chain_loop(store: Path) -> list[Told]:
    path, slots = _index(store)
    number = read_header(path.read_bytes()).index_count // 2
    write(path, entry_at(slots, number) + 16, struct.pack(">i", number))
    return [("index-chain", name_of(path, store), entry_at(slots, number) + 16, 1)]


def slot_lost(store: Path) -> list[Told]:
    path, slots = _index(store)
    data = path.read_bytes()
    slot = next(s for s in range(slots) if data[slot_at(s) : slot_at(s) + 4] != bytes(4))
    write(path, slot_at(slot), bytes(4))
    return [("index-chain", name_of(path, store), slot_at(slot), 1)]


def index_count_ahead(store: Path) -> list[Told]:
    path, _slots = _index(store)
    write(path, 36, struct.pack(">i", read_header(path.read_bytes()).index_count + 5))
    return [("index-count", name_of(path, store), 36, 1)]


def index_count_behind(store: Path) -> list[Told]:
    path, _slots = _index(store)
    write(path, 36, struct.pack(">i", read_header(path.read_bytes()).index_count - 5))
    return [("index-count", name_of(path, store), 36, 1)]


def index_begin(store: Path) -> list[Told]:
    path, _slots = _index(store)
    write(path, 0, struct.pack(">q", read_header(path.read_bytes()).begin_timestamp - 5000))
    return [("index-header", name_of(path, store), 0, 1)]


def index_end(store: Path) -> list[Told]:
    path, _slots = _index(store)
    write(path, 24, struct.pack(">q", read_header(path.read_bytes()).end_physical_offset - 1))
    return [("index-header", name_of(path, store), 24, 1)]


def index_longer(store: Path) -> list[Told]:
    path, _slots = _index(store)
    with path.open("ab") as file:
        file.write(bytes(UNIT))
    return [("file-size", name_of(path, store), None, 1)]


def slot_count(store: Path) -> list[Told]:
    path, _slots = _index(store)
    write(path, 32, struct.pack(">i", read_header(path.read_bytes()).hash_slot_count + 1))
    return [("index-slots", name_of(path, store), 32, 1)]


def index_offset(store: Path) -> list[Told]:
    """An entry of another place: it is a ghost, and its message lost one key."""
    path, slots = _index(store)
    flip(path, entry_at(slots, 20) + 11)
    return [("index-ghost", name_of(path, store), entry_at(slots, 20), 1), ("index-missing", "index", None, 1)]


def index_time(store: Path) -> list[Told]:
    path, slots = _index(store)
    flip(path, entry_at(slots, 20) + 15, 4)
    return [("index-time", name_of(path, store), entry_at(slots, 20) + 12, 1)]


def first_index_gone(store: Path) -> list[Told]:
    index_files(store)[0].unlink()
    return [("index-missing", "index", None, 710)]


def point_ahead(store: Path) -> list[Told]:
    path = store / "checkpoint"
    old = checkpoint.parse(path.read_bytes())
    path.write_bytes(checkpoint.build(old._replace(physic_msg_timestamp=old.physic_msg_timestamp + 10**6)))
    return [("checkpoint-ahead", "checkpoint", 0, 1)]


def short_file(store: Path) -> list[Told]:
    path = log_files(store)[-1]
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 7)
    return [("file-size", name_of(path, store), None, 1)]


def foreign(store: Path) -> list[Told]:
    (store / "commitlog" / "nohup.out").write_bytes(b"x")
    (store / "hello").write_bytes(b"x")
    return [("file-foreign", "commitlog/nohup.out", None, 1), ("file-ignored", "hello", None, 1)]


def tmp_left(store: Path) -> list[Told]:
    (store / "config" / "topics.json.tmp").write_bytes(b"{")
    return [("config-tmp", "config/topics.json.tmp", None, 1)]


def broken_json(store: Path) -> list[Told]:
    (store / "config" / "consumerOffset.json").write_bytes(b'{"offsetTable":{')
    return [("config-broken", "config/consumerOffset.json", 16, 1)]


def offset_ahead(store: Path) -> list[Told]:
    table = ConsumerOffsets(offsets={"TopicA@g": {1: 48, 2: 10**6}})
    (store / "config" / "consumerOffset.json").write_bytes(table.build())
    return [("offset-ahead", "config/consumerOffset.json", None, 1)]


def delay_offset_ahead(store: Path) -> list[Told]:
    (store / "config" / "delayOffset.json").write_bytes(DelayOffsets(offsets={3: 9}).build())
    return [("delay-offset-ahead", "config/delayOffset.json", None, 1)]


DAMAGERS: list[Damager] = [
    body_bit, magic, position_field, properties_zeroed, blank_lost, blank_over_a_message, bytes_behind_the_log,
    unit_zeroed, filler_inside,
    wrong_tag, wrong_size, wrong_offset, swapped, other_queue, stale_units, queue_tail, queue_gone, first_units_filler,
    empty_queue_file, chain_loop, slot_lost, index_count_ahead, index_count_behind, index_begin, index_end,
    index_longer, slot_count, index_offset,
    index_time, first_index_gone, point_ahead, short_file, foreign, tmp_left, broken_json, offset_ahead,
    delay_offset_ahead,
]  # fmt: skip


@pytest.mark.parametrize("damager", DAMAGERS, ids=lambda damager: damager.__name__)
def test_one_damage_is_told_and_nothing_beside_it(damager: Damager, golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    expected = damager(store)
    before = tree(store)
    findings = found_in(store)
    assert told(findings) == sorted(expected)  # type: ignore[type-var]
    assert tree(store) == before
    for finding in findings:
        assert finding.severity in ("error", "warning", "info")
        assert finding.consequence
        assert finding.fix


def test_a_gap_in_the_log(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    lost = log_files(store)[1]
    gone = len(list(records_of(lost)))
    lost.unlink()
    findings = found_in(store)
    assert [(f.file, f.count) for f in findings if f.code == "file-gap"] == [(name_of(lost, store), 1)]
    assert totals(findings)["cq-no-message"] == gone
    assert set(totals(findings)) == {"file-gap", "cq-no-message", "index-ghost"}


def test_the_same_name_in_two_paths(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    other = store / "commitlog2"
    other.mkdir()
    twice = log_files(store)[-1]
    (other / twice.name).write_bytes(twice.read_bytes())
    paths = f"{store}/commitlog,{other}"
    findings = found_in(store, BrokerConf({"storePathCommitLog": paths}))
    assert ("file-duplicate", f"commitlog2/{twice.name}", None, 1) in told(findings)


def test_a_flood_is_counted(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    path = a_queue(store)
    count = entries_in(path)
    for number in range(count):
        flip(path, number * UNIT + 19)
    findings = found_in(store)
    assert totals(findings) == {"cq-tags": count}
    assert len(findings) == 21
    assert (findings[-1].count, findings[-1].offset, findings[-1].queueId) == (count - 20, None, 1)


@pytest.mark.parametrize(
    "damager", [unit_zeroed, swapped, other_queue, queue_gone, first_index_gone, first_units_filler]
)
def test_the_advice_to_build_anew_helps(damager: Damager, golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    damager(store)
    assert any("create an empty file abort" in f.fix for f in found_in(store)) or damager is queue_gone
    (store / "checkpoint").unlink()
    (store / "abort").touch()
    if damager is not first_index_gone:
        (store / "consumequeue").rename(store.parent / "aside")
    recover(StoreLayout(str(store), conf_of("clean")))
    assert found_in(store, conf_of("clean")) == []


def test_entries_without_deliver_time_are_told_once_as_information(golden_copy: Unpacked) -> None:
    store = golden_copy("delay")
    path = next((store / "consumequeue" / "SCHEDULE_TOPIC_XXXX").glob("*/*"))
    (offset,) = struct.unpack(">q", path.read_bytes()[:8])
    place = next(p for f in log_files(store) for p in records_of(f) if p.record.physical_offset == offset)
    flip(path, 19)
    assert [f.code for f in found_in(store)] == ["cq-deliver-time"]
    from formats.primitives import java_hash
    from formats.properties import TAGS, parse

    write(path, 12, struct.pack(">q", java_hash(parse(place.record.properties).get(TAGS, ""))))
    assert [(f.code, f.severity) for f in found_in(store)] == [("cq-delay-hash", "info")]


def test_an_extension_that_is_lost(golden_copy: Unpacked) -> None:
    store = golden_copy("queue-ext")
    for path in (store / "consumequeue_ext").glob("*/*/*"):
        path.unlink()
    assert set(totals(found_in(store))) == {"ext-missing"}


def test_a_config_file_with_a_good_bak_and_one_without(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    path = store / "config" / "topics.json"
    path.write_bytes(b"")
    # the generation before lacks topics that came later, and a broker that starts with it does too
    finding, *others = found_in(store)
    assert {f.code for f in others} == {"topic-unknown"}
    assert (finding.code, finding.severity) == ("config-broken", "error")
    assert "starts with the .bak" in finding.consequence
    path.unlink()
    assert [f.code for f in found_in(store) if f not in others] == ["config-missing"]
    path.with_name("topics.json.bak").write_bytes(b"x")
    path.write_bytes(b"x")
    (finding,) = found_in(store)
    assert "does not start" in finding.consequence


# -- hostile bytes ----------------------------------------------------------------------------------------------------


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(verb=st.sampled_from(sorted(VERBS)), more=st.integers(0, 3), seed=st.integers(0, 2**32 - 1))
def test_any_damage_is_survived(verb: str, more: int, seed: int, golden_copy: Unpacked) -> None:
    store = golden_copy("crash")
    damage(Random(seed), store, verb, more)
    before = tree(store)
    for finding in found_in(store):
        assert finding.code in CODES
        assert finding.count > 0
        json.dumps(finding.to_dict())
    assert tree(store) == before


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_files_of_noise_are_survived(data: st.DataObject, golden_copy: Unpacked) -> None:
    store = golden_copy("lmq")
    paths = sorted(p for p in store.rglob("*") if p.is_file())
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=4, unique=True)):
        path.write_bytes(data.draw(st.binary(max_size=300)))
    found_in(store)


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command(golden: Unpacked) -> None:
    clean = rmqtool("check", golden("clean"))
    assert (clean.code, clean.out, clean.err) == (0, "", "clean: nothing found\n")
    torn = rmqtool("check", golden("torn-header"), "-o", "ndjson")
    assert torn.code == 1
    assert torn.err == "1 error, 4 warnings\n"
    rows = [json.loads(line) for line in torn.out.splitlines()]
    assert all(tuple(row) == FINDING_FIELDS for row in rows)
    assert rows[0]["fix"] == f"rmqtool recover {golden('torn-header')}"
    errors = rmqtool("check", golden("torn-header"), "-o", "json", "--severity", "error")
    assert [row["code"] for row in json.loads(errors.out)] == ["cq-no-message"]
    assert rmqtool("check", golden("crash"), "--severity", "error").code == 0
    few = rmqtool("check", golden("clean-exit-consumequeue-deleted"), "-o", "csv", "--limit-per-code", "2")
    assert len(few.out.splitlines()) == 3
    assert few.err == "cq-missing: 403 more not shown (--limit-per-code)\n500 errors\n"


def test_explain_knows_every_code() -> None:
    listed = json.loads(rmqtool("explain", "-o", "json").out)
    assert [row["code"] for row in listed] == list(CODES)
    for code in CODES:
        shown = rmqtool("explain", code)
        assert (shown.code, shown.err) == (0, "")
        assert shown.out.startswith(f"{code} ({CODES[code].severity}): {CODES[code].title}\n")
    unknown = rmqtool("explain", "cq-mising")
    assert (unknown.code, unknown.out) == (2, "")
    assert "cq-missing" in unknown.err


def test_infos_are_clean(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    tmp_left(store)
    result = rmqtool("check", store)
    assert result.code == 0
    assert result.err.endswith("1 info\n")


def test_is_problem_goes_by_severity(golden: Unpacked) -> None:
    assert {is_problem(f) for f in found_in(golden("consumequeue-deleted")) if f.code == "cq-behind"} == {False}


def test_the_header_size_is_what_offsets_count_from() -> None:
    assert slot_at(0) == HEADER_SIZE
