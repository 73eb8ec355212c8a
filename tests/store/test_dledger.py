"""DLedger logs: messages are read, checked, salvaged and exported like those of any other log."""

import base64
import hashlib
import json
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard

import pytest

from formats.layouts.derived import HEAD_V4_V4
from formats.variants.dledger import HEAD_SIZE
from rmqtool.analytics.dump.dump import dump_to_parquet
from rmqtool.analytics.dump.report import DumpOptions
from rmqtool.analytics.ranges.tail import Budget, frontier
from rmqtool.errors import UnreadableStore
from rmqtool.services.open_store.store import Store
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.log.dledger import DLedgerLog
from rmqtool.store.salvage.carve import Salvage
from tests import roles
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.roles import DLEDGER, OLD_DLEDGER, Node, prints
from tests.store.findings import totals

MEMBERS = {"4.9": (OLD_DLEDGER, "n0", 381), "5.3": (DLEDGER, "n0", 329), "5.3 alone": (DLEDGER, "n2", 246)}
UNCOMMITTED = 9  # of the last one
Get = Callable[[str], Node]


def rows(*args: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rmqtool(*args, "--output", "ndjson").out.splitlines()]


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Get:
    """Name → a member's original directory, read-only."""
    known: dict[str, Node] = {}

    def get(name: str) -> Node:
        if name not in known:
            case, node, _entries = MEMBERS[name]
            known[name] = roles.unpack(case, node, tmp_path_factory.mktemp(node))
        return known[name]

    return get


@pytest.fixture
def damaged(member: Get, tmp_path: Path) -> Path:
    """A copy of the last member's directory."""
    # its index is 160 MiB of holes
    subprocess.run(["cp", "-a", "--sparse=always", member("5.3 alone").store, tmp_path / "n2"], check=True)
    return tmp_path / "n2"


def layout_of(node: Node) -> StoreLayout:
    return StoreLayout(str(node.store), load(str(node.conf)))


def sha(row: dict[str, Any]) -> str:
    """SHA of the body in a row of machine output."""
    body = row["body"].encode() if row["bodyEncoding"] != "base64" else base64.b64decode(row["body"])
    return hashlib.sha256(body).hexdigest()


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MEMBERS)
def test_every_entry_is_read(name: str, member: Get) -> None:
    node, (case, folder, count) = member(name), MEMBERS[name]
    before = prints(node.store)
    told = roles.entries_of(case, folder)
    listed = rows("commitlog", "dump", node.store)
    assert len(listed) == len(told) == count
    fields = ("topic", "queueId", "queueOffset", "physicalOffset")
    for row, entry in zip(listed, told, strict=True):
        assert {field: row[field] for field in fields} == {field: entry[field] for field in fields}
        assert sha(row) == entry["bodySha256"]
    ((log,),) = ([*DLedgerLog.of(layout_of(node))],)
    heads = [(entry.index, entry.term, at, entry.size) for _file, at, entry in log.entries() if hasattr(entry, "term")]
    assert heads == [(entry["index"], entry["term"], entry["pos"], entry["size"]) for entry in told]
    assert prints(node.store) == before


@pytest.mark.parametrize("name", MEMBERS)
def test_messages_are_found_by_key_offset_time_and_id(name: str, member: Get) -> None:
    node, (case, folder, _count) = member(name), MEMBERS[name]
    with Store(node.store, broker_conf=str(node.conf)) as store:
        for entry in roles.entries_of(case, folder):
            if entry["physicalOffset"] >= 126_295 and name == "5.3 alone":
                continue  # neither queues nor index have what is not committed
            for key in entry.get("keys", "null").replace("null", "").split():
                hits = store.query_key(entry["topic"], key, limit=1000)
                assert entry["physicalOffset"] in [located.physical_offset for located in hits]
        queued = 0
        for row in rows("consumequeue", "dump", node.store):
            (message,) = store.get(row["topic"], row["queueId"], row["queueOffset"], 1).messages
            assert (message.physical_offset, message.queue_offset) == (row["physicalOffset"], row["queueOffset"])
            assert store.query_id(message.offset_id)[0].physical_offset == message.physical_offset
            queued += 1
        assert queued > 200
        assert store.warnings == []


@pytest.mark.parametrize("name", MEMBERS)
def test_a_range_of_the_log_holds_what_begins_in_it(name: str, member: Get) -> None:
    """Adjacent ranges neither lose nor duplicate messages, wherever they are cut."""
    log = CommitLog(layout_of(member(name)))
    every = [item.physical_offset for item in log.walk()]
    end, _last = log.end()
    for step in (48, 511, 7001, 60_000):
        parts = [log.walk(start, start + step) for start in range(0, end + step, step)]
        result = [item for part in parts for item in part]
        assert not [item for item in result if isinstance(item, Damage)]
        assert [item.physical_offset for item in result] == every


@pytest.mark.parametrize("split_bytes", [1 << 27, 9001])
def test_a_dump_has_every_message(split_bytes: int, member: Get, tmp_path: Path) -> None:
    import pyarrow.dataset as ds

    for name, (case, folder, count) in MEMBERS.items():
        out = tmp_path / folder / case
        out.parent.mkdir(parents=True, exist_ok=True)
        report = dump_to_parquet(
            str(member(name).store), str(out), DumpOptions(runner="local", split_bytes=split_bytes)
        )
        assert (report.rows, report.damaged) == (count, 0)
        table = ds.dataset(out, partitioning=None, exclude_invalid_files=True).to_table(columns=["physicalOffset"])
        assert sorted(table["physicalOffset"].to_pylist()) == [
            entry["physicalOffset"] for entry in roles.entries_of(case, folder)
        ]


def test_a_log_that_grows_is_read_up_to_its_last_whole_message(member: Get) -> None:
    log = CommitLog(layout_of(member("5.3 alone")))
    assert frontier(log, 0, Budget()) == log.end()[0] == 130_812
    last = [item.physical_offset for item in log.walk()][9]
    assert frontier(log, 0, Budget(records=9)) == last - HEAD_SIZE


def test_the_bytes_are_shown_by_name(member: Get) -> None:
    lines = rmqtool("commitlog", "hexdump", member("5.3").store, "--limit", "6").out
    assert "term=2" in lines
    assert "damaged" not in lines


def test_info_says_how_far_it_goes(member: Get) -> None:
    node = member("5.3 alone")
    (info,) = [json.loads(rmqtool("info", node.store, "--output", "json", *node.options()).out)]
    assert (info["minPhyOffset"], info["maxPhyOffset"]) == (0, 130_812)
    assert info["firstStoreTimestamp"]
    (note,) = [file["note"] for file in info["files"] if file["kind"] == "dledger-n2"]
    assert note == (
        "DLedger commit log; entries up to 245 of term 2, committed up to 236; term 2, voted for n2; 9 messages behind "
        "the committed index"
    )


def test_entries_elsewhere_are_found_by_the_settings(damaged: Path, tmp_path: Path) -> None:
    shutil.move(damaged / "dledger-n2" / "data", tmp_path / "data")
    result = rmqtool("commitlog", "dump", damaged)
    assert result.code == 5
    assert "whose entries are not here (storePathDLedgerCommitLog)" in result.err
    (tmp_path / "conf").write_text(f"storePathDLedgerCommitLog={tmp_path / 'data'}\n")
    assert len(rows("commitlog", "dump", damaged, "--broker-conf", tmp_path / "conf")) == 246


def test_the_log_of_a_controller_holds_no_messages(tmp_path: Path) -> None:
    node = roles.unpack_controller(tmp_path)
    (tmp_path / "new").mkdir()
    for arguments in (("commitlog", "dump", node), ("salvage", node, tmp_path / "new" / "store")):
        result = rmqtool(*arguments)
        assert (result.code, result.out) in ((5, ""), (3, "")), result
        assert "the log of a controller, which holds events and no messages" in result.err


# -- into another store -----------------------------------------------------------------------------------------------


@by_turns(3)
@pytest.mark.parametrize("verb", ["salvage", "export"])
@pytest.mark.parametrize("name", MEMBERS)
def test_another_store_has_every_message(verb: str, name: str, member: Get, tmp_path: Path) -> None:
    node, (case, folder, count) = member(name), MEMBERS[name]
    before = prints(node.store)
    result = rmqtool(verb, node.store, tmp_path / "new", *node.options(), "--output", "json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert (report["messages"], report["lostRangeCount"], report["renumbered"]) == (count, 0, [])
    text = f"{UNCOMMITTED} messages from physical offset 126295 on are behind the committed index 236"
    assert (text in " ".join(report["warnings"])) is (name == "5.3 alone")
    assert prints(node.store) == before
    # a queue offset as it was, a physical offset without the headers of entries
    told = [
        (entry["topic"], entry["queueId"], entry["queueOffset"], entry["bodySha256"])
        for entry in roles.entries_of(case, folder)
    ]
    listed = rows("commitlog", "dump", tmp_path / "new")
    assert [(row["topic"], row["queueId"], row["queueOffset"], sha(row)) for row in listed] == told
    assert {finding["severity"] for finding in rows("check", tmp_path / "new")} <= {"info"}
    offsets = "config/consumerOffset.json"
    assert (node.store / offsets).read_text() == (tmp_path / "new" / offsets).read_text()


@pytest.mark.parametrize("name", ["4.9", "5.3"])
def test_and_its_queues_hold_what_the_brokers_served(name: str, member: Get, tmp_path: Path) -> None:
    node, (case, _folder, _count) = member(name), MEMBERS[name]
    Salvage(layout_of(node), str(tmp_path / "new")).run()
    with Store(tmp_path / "new") as store:
        for entry in roles.served(case):
            if entry.get("afterStart") or entry["message"] is None:
                continue
            (stored,) = store.get(entry["cqTopic"], entry["cqQueueId"], entry["cqOffset"], 1).messages
            assert stored.born_timestamp == entry["message"]["bornTimestamp"]
            assert hashlib.sha256(stored.body).hexdigest() == entry["message"]["bodySha256"]


# -- damage -----------------------------------------------------------------------------------------------------------


def data(store: Path, base: int) -> Path:
    return store / "dledger-n2" / "data" / f"{base:020d}"


def put(path: Path, at: int, what: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(what)


def place_of(store: Path, index: int) -> tuple[Path, int]:
    """(file, byte) of an entry."""
    ((log,),) = ([*DLedgerLog.of(StoreLayout(str(store)))],)
    unit = log.unit(index)
    assert unit is not None
    base = unit.position // 49_152 * 49_152
    return data(store, base), unit.position - base


def cut_last(store: Path) -> None:
    path, at = place_of(store, 245)
    put(path, at + 200, bytes(5000))


def cut_last_header(store: Path) -> None:
    path, at = place_of(store, 245)
    put(path, at + 20, bytes(5000))


def stale_behind(store: Path) -> None:
    path, at = place_of(store, 245)
    size = int.from_bytes(path.read_bytes()[at + 4 : at + 8], "big")
    put(path, at + size, b"\0\0\0\1\0\0\7\xff" + bytes(60))


def break_magic(store: Path) -> None:
    path, at = place_of(store, 100)
    put(path, at, b"\7")


def break_position(store: Path) -> None:
    path, at = place_of(store, 240)
    put(path, at + 31, b"\1")


def skip_index(store: Path) -> None:
    path, at = place_of(store, 240)
    put(path, at + 8, struct.pack(">q", 999))


def lower_term(store: Path) -> None:
    path, at = place_of(store, 240)
    put(path, at + 16, struct.pack(">q", 1))


def wrong_crc(store: Path) -> None:
    path, at = place_of(store, 240)
    put(path, at + 40, struct.pack(">i", 12345))


def break_body(store: Path) -> None:
    path, at = place_of(store, 240)
    put(path, at + HEAD_SIZE + 100, b"\0\1\2")


def break_index(store: Path) -> None:
    put(store / "dledger-n2" / "index" / f"{0:020d}", 32 * 50 + 4, struct.pack(">q", 7))


def cut_index(store: Path) -> None:
    put(store / "dledger-n2" / "index" / f"{0:020d}", 32 * 200, bytes(32 * 46))


def remove_index(store: Path) -> None:
    shutil.rmtree(store / "dledger-n2" / "index")


def lose_last_file(store: Path) -> None:
    data(store, 98_304).unlink()


def zero_middle_file(store: Path) -> None:
    put(data(store, 49_152), 0, bytes(49_152))


def commit_all(store: Path) -> None:
    (store / "dledger-n2" / "checkpoint").write_text("committedIndex=245\nendIndex=245\n")


def break_marks(store: Path) -> None:
    (store / "dledger-n2" / "checkpoint").write_bytes(b"committedIndex=\xff\n")


# what is found beside the nine entries behind the committed index: code to count
DAMAGES: list[tuple[Callable[[Path], None], dict[str, int]]] = [
    (cut_last, {"dledger-uncommitted": UNCOMMITTED}),
    (cut_last_header, {"dledger-torn": 1, "dledger-index": 1, "dledger-uncommitted": UNCOMMITTED - 1}),
    (stale_behind, {"dledger-torn": 1, "dledger-uncommitted": UNCOMMITTED}),
    (break_magic, {"dledger-entry": 1, "dledger-uncommitted": UNCOMMITTED}),
    (break_position, {"dledger-entry": 1, "dledger-uncommitted": UNCOMMITTED}),
    (skip_index, {"dledger-gap": 2, "dledger-index": 1, "dledger-uncommitted": UNCOMMITTED}),
    (lower_term, {"dledger-term": 1, "dledger-index": 1, "dledger-uncommitted": UNCOMMITTED}),
    (wrong_crc, {"dledger-crc": 1, "dledger-uncommitted": UNCOMMITTED}),
    (break_body, {"log-crc": 1, "dledger-queue-cut": 1, "dledger-uncommitted": UNCOMMITTED}),
    (break_index, {"dledger-index": 1, "dledger-uncommitted": UNCOMMITTED}),
    (cut_index, {"dledger-index": 46, "dledger-uncommitted": UNCOMMITTED}),
    (remove_index, {"dledger-index": 246, "dledger-uncommitted": UNCOMMITTED}),
    (lose_last_file, {"dledger-lost": 50, "dledger-index": 1, "dledger-queue-cut": 9}),
    (zero_middle_file, {"dledger-entry": 1, "dledger-uncommitted": UNCOMMITTED}),
    (commit_all, {}),
    (break_marks, {"file-unreadable": 1, "dledger-refused": 1}),
]


@by_turns(3)
@pytest.mark.parametrize(("damage", "expected"), DAMAGES, ids=lambda case: getattr(case, "__name__", ""))
def test_damage_is_found(damage: Callable[[Path], None], expected: dict[str, int], damaged: Path) -> None:
    damage(damaged)
    from tests.store.findings import check_store

    by_code = totals(list(check_store(StoreLayout(str(damaged)))))
    ours = {
        code: count for code, count in by_code.items() if code.startswith(("dledger-", "log-crc", "file-unreadable"))
    }
    assert ours == expected, by_code


@by_turns(13)
@pytest.mark.parametrize("damage", [damage for damage, _expected in DAMAGES], ids=lambda case: case.__name__)
def test_every_intact_message_is_salvaged(damage: Callable[[Path], None], damaged: Path, tmp_path: Path) -> None:
    damage(damaged)
    told = {entry["physicalOffset"] for entry in roles.entries_of(DLEDGER, "n2")}
    left = {
        item.physical_offset for item in CommitLog(StoreLayout(str(damaged))).walk() if not isinstance(item, Damage)
    }
    lost = {
        cut_last: 1, cut_last_header: 1, break_body: 1, zero_middle_file: None, lose_last_file: None,
    }.get(damage, 0)  # fmt: skip
    assert left <= told
    assert lost is None or len(told) - len(left) == lost
    report = Salvage(StoreLayout(str(damaged)), str(tmp_path / "new")).run()
    assert report.messages == len(left)
    assert "error" not in {finding["severity"] for finding in rows("check", tmp_path / "new")}


def test_nothing_is_written_into_it(member: Get, tmp_path: Path) -> None:
    node = member("5.3")
    before = prints(node.store)
    for arguments in (
        ("recover", node.store, "--yes"),
        ("dispatch", node.store),
        ("truncate", node.store, "48", "--yes"),
    ):
        assert rmqtool(*arguments, *node.options()).code == 4
    assert prints(node.store) == before


def test_salvage_to_a_file_has_them_too(member: Get, tmp_path: Path) -> None:
    node = member("4.9")
    result = rmqtool("salvage", node.store, "--to", "ndjson", tmp_path / "out")
    assert result.code == 0, result.err
    assert len((tmp_path / "out").read_text().splitlines()) == 381


def test_no_entries_at_all(damaged: Path, tmp_path: Path) -> None:
    shutil.rmtree(damaged / "dledger-n2" / "data")
    with pytest.raises(UnreadableStore, match="whose entries are not here"):
        Salvage(StoreLayout(str(damaged)), str(tmp_path / "new")).run()


# -- what a start does -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MEMBERS)
def test_a_start_changes_nothing_of_a_whole_log(name: str, member: Get) -> None:
    node, (case, folder, count) = member(name), MEMBERS[name]
    shown = rmqtool("recover", node.store, "--dry-run", *node.options()).out
    assert "leaves the log as it is" in shown  # and not that it changes nothing: it cuts the queues
    assert "changes nothing" not in shown
    result = rmqtool("recover", node.store, "--dry-run", *node.options(), "--output", "json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    last = roles.entries_of(case, folder)[-1]
    ledger = report["dledger"]
    assert (ledger["beginIndex"], ledger["endIndex"], ledger["endTerm"]) == (0, count - 1, last["term"])
    assert ledger["endPosition"] == report["afterLoad"]["maxPhyOffset"] == last["pos"] + last["size"]
    assert (report["actions"], report["loadOk"], report["lost"]) == ([], True, [])


# (last entry, units of the index that are written) after a start; the library says the same (tests.interop)
STARTS: list[tuple[Callable[[Path], None], tuple[int, int] | None]] = [
    (cut_last_header, (244, 0)),
    (stale_behind, (245, 0)),
    (skip_index, (239, 0)),
    (lower_term, (239, 0)),
    (break_body, (245, 0)),
    (break_index, (245, 196)),
    (cut_index, (245, 46)),
    (remove_index, (245, 246)),
    (commit_all, (245, 0)),
    (break_marks, None),
]


@pytest.mark.parametrize(("damage", "expected"), STARTS, ids=lambda case: getattr(case, "__name__", ""))
def test_a_start_of_a_damaged_log(
    damage: Callable[[Path], None], expected: tuple[int, int] | None, damaged: Path
) -> None:
    damage(damaged)
    before = prints(damaged)
    report = json.loads(rmqtool("recover", damaged, "--dry-run", "--output", "json").out)
    assert prints(damaged) == before
    assert report["loadOk"] is (expected is not None)
    if expected is None:
        assert "committedIndex" in report["refusals"][0]
        assert report["nextSteps"]
        return
    ledger = report["dledger"]
    assert (ledger["endIndex"], ledger["unitsWritten"]) == expected
    assert ledger["committedIndex"] == (245 if damage is commit_all else 236)
    assert sum(loss["messages"] for loss in report["lost"]) == {skip_index: 6, lower_term: 6}.get(damage, 0)


# -- what a start of 5.x loses in the queues, and what a group does ----------------------------------------------------


@pytest.mark.parametrize("name", ["n0", "n1", "n2"])
def test_a_start_of_5_x_cuts_queue_entries(name: str, tmp_path: Path) -> None:
    """The messages of the log that the real broker did not serve, to the message."""
    node = roles.unpack(roles.DLEDGER, name, tmp_path)
    plain = rmqtool("recover", node.store, "--dry-run", *node.options(), "--output", "json")
    result = rmqtool("recover", node.store, "--dry-run", "--exactly", *node.options(), "--output", "json")
    report = json.loads(result.out)
    unserved = {(row["topic"], row["queueId"]): row["messages"] for row in report["dledger"]["unserved"]}
    found = rmqtool("check", node.store, *node.options(), "--output", "ndjson").out.splitlines()
    cut = [row for row in map(json.loads, found) if row.get("code") == "dledger-queue-cut"]
    assert sum(row["count"] for row in cut) == sum(unserved.values())
    if name == "n2":  # its queues are behind its log
        assert (unserved, report["dledger"]["queuesCutAt"], result.code) == ({}, None, 0)
        return
    served = {(row["cqTopic"], row["cqQueueId"], row["cqOffset"]) for row in roles.served(roles.DLEDGER)}
    walked = CommitLog(StoreLayout(str(node.store), load(str(node.conf)))).walk()
    log = [item.record for item in walked if is_message(item)]
    there = {(record.topic.decode(), record.queue_id, record.queue_offset) for record in log}
    assert unserved == Counter((topic, queue_id) for topic, queue_id, _offset in there - served)
    assert sum(unserved.values()) == 5
    assert (report["dledger"]["queuesCutAt"], result.code) == (176160, 1)
    assert "5 messages are not served then" in report["destroys"][0]
    assert (plain.code, json.loads(plain.out)["destroys"]) == (0, [])
    assert "5 messages are not served then" in json.loads(plain.out)["warnings"][0]
    advised = {tuple(step["command"]) for row in cut for step in row["steps"]}
    assert advised == {("rmqtool", "rebuild", str(node.store), "consumequeue", *node.options())}
    assert rmqtool("rebuild", node.store, "consumequeue", "--yes", *node.options()).code == 0
    assert "dledger-queue-cut" not in rmqtool("check", node.store, *node.options()).out


@pytest.mark.parametrize(("committed", "unserved"), [(328, 5), (326, 3), (324, 1), (323, 0), (100, 0), (None, 0)])
def test_a_start_that_goes_on_before_the_cut_makes_the_entries_again(
    committed: int | None, unserved: int, tmp_path: Path
) -> None:
    """A start goes on at the committed index that it finds, which is seconds old after a kill."""
    node = roles.unpack(roles.DLEDGER, "n0", tmp_path)
    checkpoint = node.store / "dledger-n0" / "checkpoint"
    checkpoint.unlink()
    if committed is not None:
        checkpoint.write_text(f"committedIndex={committed}\nendIndex=328\n")
    result = rmqtool("recover", node.store, "--dry-run", "--exactly", *node.options(), "--output", "json")
    report = json.loads(result.out)["dledger"]
    assert sum(row["messages"] for row in report["unserved"]) == unserved
    assert report["queuesCutAt"] == (176160 if unserved else None)


def test_queues_that_are_lost(tmp_path: Path) -> None:
    """A start makes entries of what its scan reads alone; tests.interop.test_dledger_queues has the broker's word."""
    node = roles.unpack(roles.DLEDGER, "n0", tmp_path)
    shutil.rmtree(node.store / "consumequeue")
    args = ("recover", node.store, "--dry-run", *node.options(), "--output", "json")
    plan = json.loads(rmqtool(*args).out)
    assert (sum(row["messages"] for row in plan["dledger"]["unserved"]), plan["dledger"]["queuesCutAt"]) == (187, None)
    assert "187 other messages are in no queue" in plan["warnings"][0]
    assert rmqtool("rebuild", node.store, "consumequeue", "--yes", *node.options()).code == 0
    assert json.loads(rmqtool(*args).out)["dledger"]["unserved"] == []


def test_a_queue_offset_that_two_messages_have(tmp_path: Path) -> None:
    """The messages after a start that has cut queue entries take the offsets of those that it has cut."""
    node = roles.unpack(roles.DLEDGER, "n0", tmp_path)
    layout = StoreLayout(str(node.store), load(str(node.conf)))
    of_queue = [item for item in CommitLog(layout).walk() if is_message(item) and item.record.topic == b"Events"]
    *_rest, earlier, last = [item for item in of_queue if item.record.queue_id == of_queue[-1].record.queue_id]
    with open(last.file.path, "r+b") as file:
        file.seek(last.at + HEAD_V4_V4.offsets["queue_offset"])
        file.write(earlier.record.queue_offset.to_bytes(8, "big"))
    plan = json.loads(rmqtool("recover", node.store, "--dry-run", *node.options(), "--output", "json").out)
    queue = {"topic": "Events", "queueId": last.record.queue_id, "messages": 1}
    assert plan["dledger"]["repeated"] == [queue]
    assert any("1 message has the queue offset of an earlier one" in warning for warning in plan["warnings"])


def test_damage_at_which_the_scan_of_a_start_ends(tmp_path: Path) -> None:
    """Queues are cut there, too, and what is committed is not put into them again."""
    node = roles.unpack(roles.DLEDGER, "n0", tmp_path)
    roles.damage_last_file(node)
    plan = json.loads(rmqtool("recover", node.store, "--dry-run", *node.options(), "--output", "json").out)
    unserved = sum(row["messages"] for row in plan["dledger"]["unserved"])
    assert (plan["dledger"]["queuesCutAt"], unserved) == (152820, 46)
    assert "ends at damage" in plan["warnings"][0]
    assert "rebuild" not in plan["warnings"][0]  # it would not help


def test_damage_that_a_broker_meets_when_it_goes_on(tmp_path: Path) -> None:
    """It passes over all that is committed by then; what the group commits later is put into queues."""
    node = roles.unpack(roles.DLEDGER, "n0", tmp_path)
    items = list(filter(is_message, CommitLog(StoreLayout(str(node.store), load(str(node.conf)))).walk()))
    broken = items[-40]
    with open(broken.file.path, "r+b") as file:
        file.seek(broken.end - len(broken.record.properties) - 2 - len(broken.record.topic) - 1 - broken.file.base)
        assert file.read(1) == bytes([len(broken.record.topic)])
        file.seek(-1, 1)
        file.write(b"\xa3")
    (node.store / "dledger-n0" / "checkpoint").write_text("committedIndex=100\n")
    plan = json.loads(rmqtool("recover", node.store, "--dry-run", *node.options(), "--output", "json").out)
    assert plan["dledger"]["behindDamage"] == plan["dledger"]["unserved"]
    assert sum(row["messages"] for row in plan["dledger"]["unserved"]) == 39
    assert "Up to 39 messages are not served then" in plan["warnings"][0]


def test_data_files_that_were_made_and_not_written(tmp_path: Path) -> None:
    """A start removes one of them. With two it does not start, and another member has to lead."""
    nodes = roles.unpack_all(roles.DLEDGER, tmp_path)
    stores, data = [node.store for node in nodes], nodes[0].store / "dledger-n0" / "data"
    last = max(data.iterdir())
    size = last.stat().st_size
    plan, check = ("recover", stores[0], "--dry-run"), ("check", stores[0], "-o", "ndjson")
    for number, refused in ((1, False), (2, True)):
        (data / f"{int(last.name) + number * size:020d}").write_bytes(bytes(size))
        planned = json.loads(rmqtool(*plan, *nodes[0].options(), "-o", "json").out)
        found = rmqtool(*check, *nodes[0].options()).out
        assert (planned["loadOk"], '"dledger-refused"' in found) == (not refused, refused)
        advice = json.loads(rmqtool("replicas", *stores, "-o", "json").out)["advice"]
        assert advice["store"] == str(stores[refused])
        emptied = any(step.startswith(f"Empty the directory {stores[0]} before it follows") for step in advice["steps"])
        assert emptied is refused


def is_message(item: object) -> TypeGuard[LocatedRecord]:
    return isinstance(item, LocatedRecord) and item.record.sys_flag & 12 in (0, 8)


@pytest.mark.parametrize("name", ["n0", "n1", "n2"])
def test_a_start_of_4_9_cuts_none(name: str, tmp_path: Path) -> None:
    node = roles.unpack(roles.OLD_DLEDGER, name, tmp_path)
    args = ("recover", node.store, "--dry-run", "--exactly", *node.options(), "--output", "json")
    assert json.loads(rmqtool(*args).out)["dledger"]["unserved"] == []


def test_a_topic_that_a_member_does_not_know(tmp_path: Path) -> None:
    """A leader was killed before the others had the settings of a new topic, and queues were cut: it is not deleted."""
    node = roles.unpack(roles.DLEDGER, "n1", tmp_path)
    topics = node.store / "config" / "topics.json"
    table = json.loads(topics.read_text())
    del table["topicConfigTable"]["Events"]
    table["dataVersion"]["timestamp"] = 2**41
    topics.write_text(json.dumps(table))
    shutil.rmtree(node.store / "consumequeue" / "Events")
    found = rmqtool("check", node.store, *node.options(), "-o", "ndjson").out.splitlines()
    codes = {json.loads(row).get("code") for row in found}
    assert ("topic-unknown" in codes, "topic-deleted" in codes) == (True, False)
    assert rmqtool("convert", node.store, tmp_path / "new", *node.options()).code == 0
    assert "Events" in json.loads((tmp_path / "new" / "config" / "topics.json").read_text())["topicConfigTable"]


def test_a_group_that_starts_together(tmp_path: Path) -> None:
    """The member that was a leader alone cannot lead, and is cut, as the real group did."""
    stores = [str(node.store) for node in roles.unpack_all(roles.DLEDGER, tmp_path)]
    others = [word for store in stores[1:] for word in ("--with", store)]
    result = rmqtool("recover", stores[0], "--dry-run", *others, "--output", "json")
    group = json.loads(result.out)["group"]
    assert group["leaders"] == stores[:2]
    cut = {(row["store"], row["at"], row["messages"]) for row in group["following"] if row["what"] == "cut"}
    assert cut == {(stores[2], 126247, 9)}
    assert (group["lost"], group["lostAcknowledged"]) == (9, 0)
    shown = " ".join(rmqtool("recover", stores[0], "--dry-run", *others).out.split())
    assert f"{stores[2]} under {stores[0]}: cut at 126247, and loses 9 messages" in shown
    refused = rmqtool("recover", stores[0], "--yes", *others)
    assert (refused.code, "--with needs --dry-run" in refused.err) == (2, True)


# -- queues made again -------------------------------------------------------------------------------------------------


def queue_files(node: Node) -> dict[str, str]:
    return {path: digest for path, digest in prints(node.store).items() if path.startswith("consumequeue")}


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(("case", "name"), [(OLD_DLEDGER, "n0"), (OLD_DLEDGER, "n2"), (DLEDGER, "n2")])
def test_rebuilt_queues_are_those_of_the_broker(case: str, name: str, lost: bool, tmp_path: Path) -> None:
    """Byte for byte; what is not committed is not in them."""
    node = roles.unpack(case, name, tmp_path)
    before, log = queue_files(node), prints(node.store / f"dledger-{name}")
    assert len(before) > 10
    if lost:
        shutil.rmtree(node.store / "consumequeue")
    result = rmqtool("rebuild", node.store, "consumequeue", "--yes", *node.options())
    assert result.code == 0, result.err
    assert queue_files(node) == before
    assert prints(node.store / f"dledger-{name}") == log


def test_rebuilt_queues_of_5_x_end_where_a_start_does_not_cut_them(tmp_path: Path) -> None:
    """tests.interop.test_dledger_queues has the real broker's word on it."""
    node = roles.unpack(DLEDGER, "n0", tmp_path)
    args = ("recover", node.store, "--dry-run", *node.options(), "--output", "json")
    assert json.loads(rmqtool(*args).out)["dledger"]["queuesCutAt"] == 176160
    assert rmqtool("rebuild", node.store, "consumequeue", "index", "--yes", *node.options()).code == 0
    assert json.loads(rmqtool(*args).out)["dledger"]["queuesCutAt"] is None
    ends = [row["physicalOffset"] + row["size"] for row in rows("consumequeue", "dump", node.store, *node.options())]
    assert max(ends) < 176160
    assert rmqtool("undo", node.store, "--yes").code == 0
    assert json.loads(rmqtool(*args).out)["dledger"]["queuesCutAt"] == 176160


def test_no_queues_without_a_committed_index(tmp_path: Path) -> None:
    node = roles.unpack(DLEDGER, "n0", tmp_path)
    (node.store / "dledger-n0" / "checkpoint").unlink()
    before = prints(node.store)
    refused = rmqtool("rebuild", node.store, "consumequeue", "--yes", *node.options())
    assert (refused.code, "does not have a committed index" in refused.err) == (4, True)
    assert prints(node.store) == before
