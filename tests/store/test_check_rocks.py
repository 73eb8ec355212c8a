"""Check of queues and tables in RocksDB: silent on healthy stores, a code for each kind of damage."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formats.queues import rocks as codec
from rmqtool.store.check.codes.all import CODES
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.paths import StoreLayout
from tests import goldens, rocks
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.rocks import Families, build_offset
from tests.store.findings import check_store
from tests.store.helpers import conf_of, tree

CASE = "rocksdb-5.3.3"
ORDER = ("Orders", 2)


@pytest.fixture(scope="module")
def small(golden: Unpacked, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden store without its timer, whose wheel is large: shared by the module, restored by each test."""
    store = tmp_path_factory.mktemp("small") / "store"
    for path in golden(CASE).rglob("*"):
        relative = path.relative_to(golden(CASE))
        if path.is_file() and not str(relative).startswith("timer") and relative.name != "timercheck":
            target = store / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return store


def found(store: Path) -> list[Finding]:
    return [f for f in check_store(StoreLayout(str(store), conf_of(CASE))) if f.code != "not-checked"]


def damaged(store: Path, what: Callable[[Families], Any], place: str = "consumequeue") -> list[Finding]:
    """Findings for the store with one database changed; it is restored afterwards."""
    folder = store / place
    kept = store.with_name("kept")
    os.rename(folder, kept)
    try:
        families = rocks.content(kept)
        what(families)
        rocks.write(folder, families)
        return [f for f in found(store) if not f.code.startswith(("timer", "store-role"))]
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        os.rename(kept, folder)


def unit(families: Families, queue_offset: int, **changes: int) -> None:
    key = codec.unit_key(*ORDER, queue_offset)
    families[codec.UNITS][key] = codec.build_unit(codec.parse_unit(families[codec.UNITS][key])._replace(**changes))


def bound(families: Families, which: bytes, physical_offset: int, queue_offset: int) -> None:
    families[codec.OFFSETS][codec.offset_key(*ORDER, which)] = build_offset(
        codec.RocksOffset(physical_offset, queue_offset)
    )


@pytest.mark.parametrize("with_conf", [True, False])
def test_a_healthy_store_is_silent(golden: Unpacked, with_conf: bool) -> None:
    store = golden(CASE)
    before = tree(store)
    layout = StoreLayout(str(store), conf_of(CASE) if with_conf else None)
    findings = list(check_store(layout))
    assert [finding.code for finding in findings] == ["store-role"]  # which is no problem
    assert tree(store) == before


def test_a_rewritten_database_is_silent_too(small: Path) -> None:
    assert [f for f in found(small) if is_problem(f)] == []
    assert damaged(small, lambda families: None) == []
    for place in ("config/topics", "config/subscriptionGroups", "config/consumerOffsets"):
        assert damaged(small, lambda families: None, place) == []


def test_what_a_kill_left_out_is_no_fault(golden: Unpacked) -> None:
    findings = list(check_store(StoreLayout(str(golden(CASE + "-crash")), conf_of(CASE))))
    assert {f.code for f in findings if is_problem(f)} == {"abort-present"}
    late = [f for f in findings if f.code == "rcq-behind"]
    counted = sum(1 for row in goldens.messages(CASE) if not row["cqTopic"].startswith("%LMQ%"))
    assert sum(f.count for f in late if not (f.topic or "").startswith("%LMQ%")) == counted
    assert not [f for f in findings if any(step.command for step in f.steps)]


def test_light_queues_that_a_kill_left_out_are_none_without_settings(golden: Unpacked) -> None:
    findings = list(check_store(StoreLayout(str(golden("rocksdb-5.5.0-crash")))))
    assert {f.code for f in findings if is_problem(f)} == {"abort-present"}


def drop(*queue_offsets: int) -> Callable[[Families], Any]:
    return lambda families: [families[codec.UNITS].pop(codec.unit_key(*ORDER, offset)) for offset in queue_offsets]


DAMAGES: dict[str, tuple[Callable[[Families], Any], dict[str, int]]] = {
    "a unit is gone": (drop(7), {"rcq-missing": 1}),
    "many units are gone": (drop(*range(30)), {"rcq-missing": 30}),
    "a unit is too short": (lambda f: f[codec.UNITS].update({codec.unit_key(*ORDER, 3): b"short"}), {"rcq-missing": 1}),
    "a unit leads to another message": (
        lambda f: unit(f, 5, physical_offset=0), {"rcq-other": 1, "rcq-no-message": 1},
    ),
    "a unit leads to no message": (
        lambda f: unit(f, 5, physical_offset=7), {"rcq-other": 1, "rcq-no-message": 1},
    ),
    "a unit leads behind the log": (
        lambda f: unit(f, 5, physical_offset=1 << 40), {"rcq-other": 1, "rcq-no-message": 1},
    ),
    "a size is wrong": (lambda f: unit(f, 9, size=1), {"rcq-size": 1}),
    "a tags code is wrong": (lambda f: unit(f, 9, tags_code=1), {"rcq-tags": 1}),
    "a time is wrong": (lambda f: unit(f, 9, store_timestamp=1), {"rcq-time": 1}),
    "a unit too many": (
        lambda f: (
            f[codec.UNITS].update({codec.unit_key(*ORDER, 61): f[codec.UNITS][codec.unit_key(*ORDER, 60)]}),
            bound(f, codec.MAX, 77211, 61),
        ),
        {"rcq-no-message": 1},
    ),
    "a unit behind the end": (
        lambda f: f[codec.UNITS].update({codec.unit_key(*ORDER, 61): f[codec.UNITS][codec.unit_key(*ORDER, 60)]}), {},
    ),
    "no end": (lambda f: f[codec.OFFSETS].pop(codec.offset_key(*ORDER, codec.MAX)), {"rcq-end": 61}),
    "an end too low": (lambda f: bound(f, codec.MAX, 0, 40), {"rcq-end": 20}),
    "an end too high": (lambda f: bound(f, codec.MAX, 77211, 99), {"rcq-end": 1}),
    "a beginning too high": (lambda f: bound(f, codec.MIN, 1000, 10), {"rcq-begin": 10}),
    "no beginning": (lambda f: f[codec.OFFSETS].pop(codec.offset_key(*ORDER, codec.MIN)), {}),
    "built beyond the log": (lambda f: f[codec.OFFSETS].update({codec.CHECKPOINT_KEY: (1 << 40).to_bytes(8, "big")}),
                             {"rcq-ahead": 1}),
    "strange notes": (
        lambda f: f[codec.OFFSETS].update({b"key": b"", b"\0\0\0\1\1T\1mid\1\0\0\0\0": b"x"}), {"rcq-note": 2},
    ),
    "a short end": (
        lambda f: f[codec.OFFSETS].update({codec.offset_key(*ORDER, codec.MAX): b"x"}), {"rcq-note": 1, "rcq-end": 61},
    ),
    "another queue's unit": (
        lambda f: f[codec.UNITS].update({codec.unit_key("Orders", 9, 0): f[codec.UNITS][codec.unit_key(*ORDER, 0)],
                                   b"": b"", b"\xff" * 30: b""})
        or f[codec.OFFSETS].update({codec.offset_key("Orders", 9, codec.MAX): build_offset(codec.RocksOffset(0, 0))}),
        {"rcq-no-message": 1},
    ),
}  # fmt: skip


@by_turns(3)
@pytest.mark.parametrize("name", DAMAGES)
def test_damage_has_its_code(name: str, small: Path) -> None:
    what, codes = DAMAGES[name]
    findings = damaged(small, what)
    told: dict[str, int] = {}
    for finding in findings:
        if finding.code.startswith("rcq-"):
            told[finding.code] = told.get(finding.code, 0) + finding.count
    assert told == codes
    assert {f.code for f in findings if is_problem(f)} <= set(codes) | {"offset-ahead", "offset-range", "queue-unread"}
    for finding in findings:
        if finding.code in codes and finding.topic is not None:
            assert finding.topic == "Orders"


def test_findings_say_what_is_expected(small: Path) -> None:
    [finding] = [f for f in damaged(small, lambda f: unit(f, 9, size=17)) if f.code == "rcq-size"]
    answer = next(r for r in goldens.messages(CASE) if (r["cqTopic"], r["cqQueueId"], r["cqOffset"]) == (*ORDER, 9))
    assert (finding.file, finding.topic, finding.queueId, finding.queueOffset) == ("consumequeue", *ORDER, 9)
    assert (finding.expected, finding.actual) == (str(answer["cqSize"]), "17")
    assert [step.command[:2] for step in finding.steps] == [("rmqtool", "salvage")]


def test_messages_behind_what_was_built_are_no_fault(small: Path) -> None:
    def earlier(families: Families) -> None:
        families[codec.OFFSETS][codec.CHECKPOINT_KEY] = (100_000).to_bytes(8, "big")
        for key in [k for k, v in families[codec.UNITS].items() if codec.parse_unit(v).physical_offset >= 100_000]:
            del families[codec.UNITS][key]

    findings = damaged(small, earlier)
    assert sum(f.count for f in findings if f.code == "rcq-behind") > 20
    assert {f.code for f in findings if f.code.startswith("rcq-")} <= {"rcq-behind", "rcq-end"}


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ("config/topics", {b"Orders": b"{"}),
        ("config/subscriptionGroups", {b"pull-group": b"[]"}),
        ("config/consumerOffsets", {b"Orders@pull-group": b'{"offsetTable":{"0":"x"}}'}),
    ],
)
def test_tables_that_cannot_be_read(place: str, change: dict[bytes, bytes], small: Path) -> None:
    findings = damaged(small, lambda families: families["default"].update(change), place)
    assert [(f.code, f.severity, f.file) for f in findings if f.code == "config-database"] == [
        ("config-database", "error", place)
    ]


def test_offsets_are_held_against_the_queues(small: Path) -> None:
    change = {b"Orders@pull-group": b'{"offsetTable":{"0":41,"1":41,"2":99,"3":42}}'}
    findings = damaged(small, lambda families: families["default"].update(change), "config/consumerOffsets")
    assert [(f.topic, f.queueId) for f in findings if is_problem(f)] == [ORDER]


@pytest.mark.parametrize("place", ["consumequeue", "config/topics"])
def test_a_damaged_file(place: str, small: Path) -> None:
    table = max((small / place).glob("*.sst"), key=lambda path: path.stat().st_size)
    intact = table.read_bytes()
    try:
        for at in (10, len(intact) // 2, len(intact) - 10):
            table.write_bytes(intact[:at] + bytes([intact[at] ^ 1]) + intact[at + 1 :])
            codes = {f.code for f in found(small)}
            assert codes & {"rcq-unreadable", "config-database"} or at == len(intact) - 10
        table.write_bytes(b"")
        assert {f.code for f in found(small)} & {"rcq-unreadable", "config-database"}
    finally:
        table.write_bytes(intact)


def test_without_the_library_it_is_said_what_was_not_checked(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    findings = list(check_store(StoreLayout(str(small))))
    told = {f.file: f.actual or "" for f in findings if f.code == "not-checked"}
    assert {"consumequeue", "config/topics", "config/subscriptionGroups", "config/consumerOffsets"} <= told.keys()
    assert "pip install rocksdict" in told["consumequeue"]
    assert not [f for f in findings if is_problem(f)]


@pytest.mark.parametrize("code", [code for code in CODES if code.startswith("rcq-") or code == "config-database"])
def test_codes_are_explained(code: str) -> None:
    told = json.loads(rmqtool("explain", code, "-o", "json").out)
    assert all(told[name] for name in ("title", "meaning", "cause", "broker", "fix"))
