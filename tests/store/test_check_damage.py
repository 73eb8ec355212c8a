"""Single damages: check reports each exactly, and nothing else."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from formats import checkpoint
from formats.config.files import ConsumerOffsets, DelayOffsets
from formats.index import HEADER_SIZE, entry_at, infer_geometry, read_entry, read_header, slot_at
from formats.message.read import HEADS, HOSTS_V6
from rmqtool.store.check.run import check_store
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.repair.rebuild import rebuild
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.damage import Place, index_files, log_files, records_of
from tests.store.findings import UNIT, Told, flip, found_in, told, totals, write
from tests.store.helpers import conf_of, tree


def a_message(store: Path, topic: bytes, queue_id: int, ordinal: int) -> Place:
    """A record and its position."""
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
    result: list[Told] = []
    for path in index_files(store):
        data = path.read_bytes()
        slots, _room = infer_geometry(data) or (0, 0)
        result += [
            ("index-ghost", name_of(path, store), entry_at(slots, number), 1)
            for number in range(1, read_header(data).index_count)
            if read_entry(data, slots, number).physical_offset == place.record.physical_offset
        ]
    assert result
    return result


def position_field(store: Path) -> list[Told]:
    place = a_message(store, b"TopicA", 1, 5)
    flip(place.path, place.at + 35)
    return [("log-position", name_of(place.path, store), place.at, 1)]


def properties_zeroed(store: Path) -> list[Told]:
    """The last property is the tag here, so its entry no longer matches."""
    place = a_message(store, b"TopicA", 1, 5)
    record = place.record
    at = place.end - 3
    write(place.path, at, bytes(3))
    return [
        ("log-properties", name_of(place.path, store), place.end - len(record.properties), 1),
        ("cq-tags", queue_name(), 5 * UNIT + 12, 1),
    ]


def port_flipped(store: Path) -> list[Told]:
    place = a_message(store, b"TopicA", 1, 5)
    at = place.at + HEADS[place.record.sys_flag & HOSTS_V6].offsets["born_port"]
    flip(place.path, at)
    return [("log-port", name_of(place.path, store), at, 1)]


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
    """An entry with a wrong offset: it is a ghost, and its message lost a key."""
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
    (store / "config" / "consumerFilter.json").write_bytes(b'{"filterDataByTopic":{')
    return [("config-broken", "config/consumerFilter.json", 22, 1)]


def offset_ahead(store: Path) -> list[Told]:
    table = ConsumerOffsets(offsets={"TopicA@g": {1: 48, 2: 10**6}})
    (store / "config" / "consumerOffset.json").write_bytes(table.build())
    return [
        ("offset-ahead", "config/consumerOffset.json", None, 1),
        ("topics-missing", "config/topics.json", None, 3),  # a broker wrote the offsets, and topics beside them
    ]


def delay_offset_ahead(store: Path) -> list[Told]:
    (store / "config" / "delayOffset.json").write_bytes(DelayOffsets(offsets={3: 9}).build())
    return [("delay-offset-ahead", "config/delayOffset.json", None, 1)]


DAMAGERS: list[Damager] = [
    body_bit, magic, position_field, port_flipped, properties_zeroed, blank_lost, blank_over_a_message,
    bytes_behind_the_log, unit_zeroed, filler_inside,
    wrong_tag, wrong_size, wrong_offset, swapped, other_queue, stale_units, queue_tail, queue_gone, first_units_filler,
    empty_queue_file, chain_loop, slot_lost, index_count_ahead, index_count_behind, index_begin, index_end,
    index_longer, slot_count, index_offset,
    index_time, first_index_gone, point_ahead, short_file, foreign, tmp_left, broken_json, offset_ahead,
    delay_offset_ahead,
]  # fmt: skip


@by_turns(2)
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
    part = "index" if damager is first_index_gone else "consumequeue"
    wanted = [command for finding in found_in(store) if (command := finding.steps[-1].command)]
    assert set(wanted) == {("rmqtool", "rebuild", "STORE", part)}
    rebuild(StoreLayout(str(store), conf_of("clean")), (part,))
    assert found_in(store, conf_of("clean")) == []


def test_entries_without_deliver_time_are_told_once_as_information(golden_copy: Unpacked) -> None:
    store = golden_copy("delay")
    path = next((store / "consumequeue" / "SCHEDULE_TOPIC_XXXX").glob("*/*"))
    (offset,) = struct.unpack(">q", path.read_bytes()[:8])
    place = next(p for f in log_files(store) for p in records_of(f) if p.record.physical_offset == offset)
    flip(path, 19)
    assert [f.code for f in found_in(store)] == ["cq-deliver-time"]
    from formats.message.properties import TAGS, parse
    from formats.primitives import java_hash

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


@pytest.mark.parametrize(("also", "severity"), [((), "warning"), (("subscriptionGroup", "consumerOffset"), "info")])
def test_a_store_without_topics(also: tuple[str, ...], severity: str, golden_copy: Unpacked) -> None:
    """Lost after a broker ran, or never written: either way clients find no route, and `rebuild config` mends it."""
    store = golden_copy("broker")
    for name in ("topics", *also):
        for path in (store / "config").glob(f"{name}.json*"):
            path.unlink()
    (finding,) = check_store(StoreLayout(str(store)))
    assert (finding.code, finding.severity, finding.count) == ("topics-missing", severity, 7)
    assert "find no route" in finding.consequence
    assert finding.steps[-1].command == ("rmqtool", "rebuild", "STORE", "config")
    rebuild(StoreLayout(str(store)), ("config",))
    assert "topics-missing" not in totals(list(check_store(StoreLayout(str(store)))))


def test_the_header_size_is_what_offsets_count_from() -> None:
    assert slot_at(0) == HEADER_SIZE
