"""Overwritten messages: no byte of them is left, everything else is as before, and it can be interrupted anywhere."""

import os
import re
import shutil
from collections.abc import Callable, Collection
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest

from formats.layouts.derived import DLEDGER_ENTRY_HEAD
from formats.message.build import append_crc, verify_crc
from formats.message.ids import offset_id
from formats.message.inner import is_inner_batch
from formats.message.properties import UNIQ_KEY, parse
from formats.primitives import COMPRESSED, crc31
from rmqtool.errors import BadValue, Refused
from rmqtool.services.lookup.selection import Selection
from rmqtool.services.lookup.where import FieldCondition
from rmqtool.services.redaction.backups import redact_backups
from rmqtool.services.redaction.copies import files_of, walk
from rmqtool.services.redaction.redact import RedactionReport, redact
from rmqtool.store.backup.create import create_backup
from rmqtool.store.backup.manifest import list_names, locked, read_manifest
from rmqtool.store.backup.use import restore, verify
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.runs import default_home, runs
from rmqtool.store.check.run import check_store
from rmqtool.store.disk.lock import StoreLock
from rmqtool.store.layout.backup_signs import STORE
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import LocatedRecord
from tests import roles
from tests.amounts import by_turns, some
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.roles import prints
from tests.services.build import Builder, log_of, never
from tests.services.test_trace import unique_ids
from tests.store.crashes import Killed, Seam
from tests.store.helpers import tree

EVERYTHING = Selection()


def layout_of(store: Path) -> StoreLayout:
    return StoreLayout(str(store), BrokerConf())


def records(store: Path) -> dict[int, LocatedRecord]:
    return {item.physical_offset: item for item in log_of(store).walk() if isinstance(item, LocatedRecord)}


def all_bytes(*folders: Path) -> bytes:
    return b"".join(path.read_bytes() for folder in folders for path in sorted(folder.rglob("*")) if path.is_file())


def errors(store: Path) -> list[str]:
    return [finding.code for finding in check_store(layout_of(store)) if finding.severity == "error"]


@by_turns(3)
@pytest.mark.parametrize("case", ["broker", "broker-5.3.3", "broker-5.5.0", "ipv6", "large-bodies", "queue-ext"])
def test_nothing_is_left_of_bodies_and_the_rest_is_as_before(
    case: str, golden: Unpacked, golden_copy: Unpacked
) -> None:
    store = golden_copy(case)
    before = records(store)
    batches = {at for at, item in before.items() if is_inner_batch(item.record.sys_flag)}
    single = [item for at, item in before.items() if at not in batches]
    chosen = [item for number, item in enumerate(single) if number % 7 == 3 and item.record.body_length > 12]
    names = {parse(item.record.properties).get(UNIQ_KEY) for item in chosen} - {None}
    assert len(names) > 5
    report = redact(layout_of(store), EVERYTHING, sorted(filter(None, names)))
    assert report.applied
    assert report.backup is None
    after = records(store)
    assert after.keys() == before.keys()
    changed = {row.physicalOffset for row in report.messages}
    unchanged_bodies = [bytes(item.record.body) for at, item in before.items() if at not in changed]
    for at, item in before.items():
        record, there = item.record, after[at].record
        if at not in changed:
            assert there == record
            continue
        assert parse(record.properties)[UNIQ_KEY] in names
        assert bytes(there.body) == b"*" * record.body_length
        assert there.body_crc == crc31(there.body)
        assert not there.sys_flag & COMPRESSED
        assert there._replace(body=record.body, body_crc=record.body_crc, sys_flag=record.sys_flag) == record
    for at, item in before.items():
        if parse(item.record.properties).get(UNIQ_KEY) in names and item.record.body_length:
            assert at in changed
    rest = all_bytes(store)
    home = Path(default_home(Places(str(store))))
    assert not home.exists()
    for at in changed:
        body = bytes(before[at].record.body)
        if len(body) > 12 and not any(body in other for other in unchanged_bodies):
            assert body not in rest, at
    assert errors(store) == errors(golden(case))
    first, second = tree(store), tree(golden(case))
    assert {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)} <= {
        *(os.path.relpath(file, store) for file in report.files),
        "lock",
    }
    for file in report.files:
        assert os.stat(file).st_mtime_ns == (golden(case) / os.path.relpath(file, store)).stat().st_mtime_ns


@pytest.mark.parametrize("whole", [False, True])
def test_messages_of_a_batch_that_is_one_record(whole: bool, golden: Unpacked, golden_copy: Unpacked) -> None:
    store = golden_copy("broker-5.5.0")
    before = records(store)
    batch = next(item for item in before.values() if is_inner_batch(item.record.sys_flag))
    parts = [message.record for message in batch.messages()]
    gone = range(len(parts)) if whole else [1]
    ids = [offset_id(batch.record.store_address, batch.record.store_port, batch.physical_offset)]
    if not whole:
        ids = [parse(parts[1].properties)[UNIQ_KEY]]
    report = redact(layout_of(store), EVERYTHING, ids)
    assert [row.queueOffset for row in report.messages] == [parts[number].queue_offset for number in gone]
    after = records(store)
    assert {at for at, item in before.items() if after[at].record != item.record} == {batch.physical_offset}
    there = [message.record for message in after[batch.physical_offset].messages()]
    for number, (was, now) in enumerate(zip(parts, there, strict=True)):
        body = b"*" * was.body_length if number in gone else bytes(was.body)
        assert now == was._replace(body=body, body_crc=crc31(body))
        assert number not in gone or bytes(was.body) not in all_bytes(store)
    assert errors(store) == errors(golden("broker-5.5.0"))
    assert not redact(layout_of(store), EVERYTHING, ids).messages


def test_all_copies_of_what_a_condition_selects(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    key = unique_ids("broker")["order-40"]
    report = redact(
        layout_of(store), Selection(topics=("Orders",), where=FieldCondition("keys = 'order-40 user-6'")), ()
    )
    assert {row.msgId for row in report.messages} == {key}
    assert {row.topic for row in report.messages} == {
        "Orders", "SCHEDULE_TOPIC_XXXX", "%RETRY%lab-consumer", "%DLQ%lab-consumer",
    }  # fmt: skip
    for args in (("query-key", store, "Orders", "order-40"), ("query-id", store, key)):
        assert rmqtool(*args).code == 0


def test_any_copy_may_be_named(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    whole = redact(layout_of(store), EVERYTHING, [unique_ids("broker")["order-40"]], dry_run=True)
    for at, item in records(store).items():
        if at in {row.physicalOffset for row in whole.messages}:
            name = offset_id(item.record.store_address, item.record.store_port, at)
            assert redact(layout_of(store), EVERYTHING, [name.lower()], dry_run=True) == whole


def test_properties_are_overwritten_in_their_length(tmp_path: Path) -> None:
    builder = Builder()
    builder.put("T", properties={"KEYS": "k", "email": "ada@example.org", "email2": "x", "UNIQ_KEY": "id1"})
    builder.put("T", properties={"KEYS": "k2", "email": "bob@example.org", "UNIQ_KEY": "id2"})
    store = builder.write(tmp_path)
    report = redact(layout_of(store), EVERYTHING, ["id1"], properties=["email"])
    assert [row.properties for row in report.messages] == [["email"]]
    first, second = records(store).values()
    assert parse(first.record.properties) == {"KEYS": "k", "email": "*" * 15, "email2": "x", "UNIQ_KEY": "id1"}
    assert parse(second.record.properties)["email"] == "bob@example.org"
    for name in ("KEYS", "UNIQ_KEY", "TAGS", "__CRC32#", "TIMER_OUT_MS"):
        with pytest.raises(BadValue):
            redact(layout_of(store), EVERYTHING, ["id2"], properties=[name])


def test_the_checksum_of_a_whole_record_is_computed_again(tmp_path: Path) -> None:
    builder = Builder()
    builder.put("T", properties={"UNIQ_KEY": "id1", "a": "secret"})
    builder.log = bytearray(append_crc(bytes(builder.log)))
    builder.queues = {("T", 0): [(0, len(builder.log), 0)]}
    store = builder.write(tmp_path)
    redact(layout_of(store), EVERYTHING, ["id1"], properties=["a"])
    (item,) = records(store).values()
    packed = bytes(item.file.read(0, item.record.total_size))
    assert b"secret" not in packed
    assert verify_crc(packed) is True


def test_undo_only_with_a_backup(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    before = tree(store)
    report = redact(layout_of(store), Selection(keys=("order-40",)), (), keep_backup=True)
    assert report.backup is not None
    assert rmqtool("undo", store, "--yes").code == 0
    assert (
        tree(store).items() - {"lock": tree(store).get("lock")}.items()
        == before.items() - {"lock": before.get("lock")}.items()
    )
    redact(layout_of(store), Selection(keys=("order-40",)), ())
    result = rmqtool("undo", store, "--yes")
    assert result.code != 0
    assert redact(layout_of(store), Selection(keys=("order-40",)), ()).messages == []


def test_killed_anywhere_and_run_again(golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Selection(keys=("order-40",))
    secret = b'"id":40,'
    seam = Seam(monkeypatch)
    whole = tmp_path / "whole" / "store"
    shutil.copytree(golden("broker"), whole)
    assert secret in all_bytes(whole)
    seam.begin()
    redact(layout_of(whole), chosen, ())
    assert secret not in all_bytes(tmp_path / "whole")
    steps, end = seam.count, tree(whole)
    for number in sorted({1, 2, *range(steps - 6, steps + 1), *Random(5).sample(range(1, steps), some(10, steps - 1))}):
        folder = tmp_path / f"killed-{number}"
        store = folder / "store"
        shutil.copytree(golden("broker"), store)
        seam.begin(number)
        with pytest.raises(Killed):
            redact(layout_of(store), chosen, ())
        seam.begin()
        redact(layout_of(store), chosen, ())
        if secret in all_bytes(folder):  # the run was only finished
            redact(layout_of(store), chosen, ())
        assert secret not in all_bytes(folder), number
        assert {name: value[1:] for name, value in tree(store).items() if isinstance(value, tuple)}.keys() == {
            name for name, value in end.items() if isinstance(value, tuple)
        }
        assert errors(store) == []


def test_what_is_refused(golden: Unpacked, golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    before = tree(store)
    plan = redact(layout_of(store), Selection(keys=("order-40",)), (), dry_run=True)
    assert tree(store) == before
    other = RedactionReport(store=plan.store, messages=plan.messages[1:])
    with pytest.raises(Refused, match="has changed since the plan was shown"):
        redact(layout_of(store), Selection(keys=("order-40",)), (), shown=other)
    with StoreLock(str(store)), pytest.raises(Refused):
        redact(layout_of(store), Selection(keys=("order-40",)), ())
    with pytest.raises(Refused, match="not stopped cleanly"):
        redact(layout_of(golden_copy("broker-crash")), Selection(keys=("order-40",)), ())
    assert rmqtool("redact", store, "--yes").code == 2
    assert rmqtool("redact", store, "--key", "no such key", "--yes").code == 1
    assert rmqtool("redact", store, "--key", "order-40").code == 4
    assert rmqtool("redact", store, "--key", "order-40", "--dry-run").code == 1
    assert not [run for run in runs(Places(str(store))) if run.state != "done"]


# -- copies elsewhere than in the log ----------------------------------------------------------------------------------

KINDS = [
    ("compaction-5.3.3", "", {"log", "compaction"}),
    (roles.TIERED, "a", {"log", "tier"}),
    (roles.NEW_TIERED, "a", {"log", "tier"}),
    (roles.DLEDGER, "n0", {"log"}),
    (roles.OLD_DLEDGER, "n2", {"log"}),
    (roles.MULTI_PATH, "a", {"log"}),
]


def stopped(case: str, name: str, folder: Path, golden: Unpacked) -> StoreLayout:
    """A copy of a store as after a clean stop; the segments of its tier lie beside it."""
    if not name:
        return layout_of(Path(shutil.copytree(golden(case), folder / "store")))
    node = roles.unpack(case, name, folder)
    (node.store / "abort").unlink()
    if (node.store / "tiered").exists():
        (node.store / "tiered").rename(folder / "segments")
        node.conf.write_text(node.conf.read_text().replace(str(node.store / "tiered"), str(folder / "segments")))
    return StoreLayout(str(node.store), load(str(node.conf)))


def everything(layout: StoreLayout) -> dict[tuple[str, int], LocatedRecord]:
    """All messages, by file and position."""
    items = (item for files in files_of(layout) for item in walk(files, "reading"))
    return {(item.file.path, item.at): item for item in items if isinstance(item, LocatedRecord)}


def files_with(folder: Path, bodies: Collection[bytes]) -> list[Path]:
    """Files below a folder in which any of these is; the index of a DLedger log is large, and has only numbers."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size < 1 << 25]
    return [path for path in paths for data in [path.read_bytes()] if any(body in data for body in bodies)]


def choose(layout: StoreLayout) -> tuple[list[str], set[bytes]]:
    """Unique ids of every fifth message of which there is a body that no other has, and these bodies."""
    by_id: dict[str, set[bytes]] = {}
    for item in everything(layout).values():
        name = parse(item.record.properties).get(UNIQ_KEY)
        if name is not None and item.record.body_length > 12 and not is_inner_batch(item.record.sys_flag):
            by_id.setdefault(name, set()).add(bytes(item.record.body))
    ids = sorted(by_id)[::5]
    others = set().union(*(bodies for name, bodies in by_id.items() if name not in ids))
    ids = [name for name in ids if not by_id[name] & others]
    return ids, set().union(*(by_id[name] for name in ids))


@by_turns(7)
@pytest.mark.parametrize(("case", "name", "places"), KINDS, ids=[f"{case}-{name}" for case, name, _places in KINDS])
def test_copies_in_every_place_are_overwritten(
    case: str, name: str, places: set[str], golden: Unpacked, tmp_path: Path
) -> None:
    layout = stopped(case, name, tmp_path, golden)
    ids, bodies = choose(layout)
    assert len(bodies) > 3
    assert files_with(tmp_path, bodies)
    before, original = everything(layout), prints(tmp_path)
    plan = redact(layout, EVERYTHING, ids, dry_run=True)
    assert prints(tmp_path) == original
    report = redact(layout, EVERYTHING, ids, keep_backup=True, shown=plan)
    assert {row.place for row in report.messages} == places
    shown = {(os.path.normpath(os.path.join(layout.root, row.file)), row.physicalOffset) for row in report.messages}
    assert shown == {
        (path, item.physical_offset)
        for (path, _at), item in before.items()
        if parse(item.record.properties).get(UNIQ_KEY) in ids and item.record.body_length
    }
    assert rmqtool("undo", layout.root, "--yes", *layout.conf.options).code == 0
    shutil.rmtree(f"{layout.root}.rmqtool")
    assert prints(tmp_path) == original
    redact(layout, EVERYTHING, ids)
    assert files_with(tmp_path, bodies) == []
    after = everything(layout)
    assert after.keys() == before.keys()
    for place, item in before.items():
        record, there = item.record, after[place].record
        if (place[0], item.physical_offset) in shown:
            assert bytes(there.body) == b"*" * record.body_length
            there = there._replace(body=record.body, body_crc=record.body_crc, sys_flag=record.sys_flag)
        assert there == record
    now = [finding.code for finding in check_store(layout) if finding.severity == "error"]
    whole = stopped(case, name, tmp_path / "whole", golden)
    assert now == [finding.code for finding in check_store(whole) if finding.severity == "error"]
    assert redact(layout, EVERYTHING, ids, dry_run=True).messages == []


def test_a_message_that_only_the_tier_has(golden: Unpacked, tmp_path: Path) -> None:
    layout = stopped(roles.TIERED, "a", tmp_path, golden)
    report = redact(layout, Selection(topics=("Invoices",), queue_ids=(0,), queue_offsets=(3, 5)), ())
    assert [(row.place, row.queueOffset) for row in report.messages] == [("tier", 3), ("tier", 4)]
    assert {row.file.split("/")[:2] == ["..", "segments"] for row in report.messages} == {True}


def test_killed_while_segments_elsewhere_are_replaced(
    golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seam = Seam(monkeypatch)
    layout = stopped(roles.TIERED, "a", tmp_path / "whole", golden)
    ids, bodies = choose(layout)
    seam.begin()
    redact(layout, EVERYTHING, ids[:3])
    steps = seam.count
    for number in Random(7).sample(range(1, steps), some(4, steps - 1)):
        layout = stopped(roles.TIERED, "a", tmp_path / str(number), golden)
        seam.begin(number)
        with pytest.raises(Killed):
            redact(layout, EVERYTHING, ids)
        seam.begin()
        redact(layout, EVERYTHING, ids)
        redact(layout, EVERYTHING, ids)  # the one before may only have finished the first
        assert files_with(tmp_path / str(number), bodies) == [], number


def test_the_checksum_of_a_dledger_entry(golden: Unpacked, tmp_path: Path) -> None:
    layout = stopped(roles.OLD_DLEDGER, "n2", tmp_path, golden)
    ids, _bodies = choose(layout)

    def set_checksums(change: int, field: str = "body_crc") -> None:
        for item in everything(layout).values():
            with open(item.file.path, "r+b") as file:
                file.seek(item.at)
                crc = crc31(file.read(item.record.total_size)) ^ change
                file.seek(item.at - DLEDGER_ENTRY_HEAD.size + DLEDGER_ENTRY_HEAD.offsets[field])
                file.write(crc.to_bytes(4, "big"))

    set_checksums(0)
    assert redact(layout, EVERYTHING, ids).applied
    for item in everything(layout).values():
        view = item.file.map()
        entry = DLEDGER_ENTRY_HEAD.as_dict(view, item.at - DLEDGER_ENTRY_HEAD.size)
        assert entry["body_crc"] == crc31(bytes(view[item.at : item.at + item.record.total_size]))
    set_checksums(1)
    with pytest.raises(Refused, match="checksums of this DLedger entry"):
        redact(layout, EVERYTHING, [], properties=["nothing"])


def test_remains_behind_the_last_message_are_cleared(golden_copy: Unpacked) -> None:
    """Brokers leave bytes of earlier messages behind an end-of-file blank, and where a start has cut the log."""
    store = golden_copy("broker")
    secret = b'"id":40,'
    log = log_of(store).segments.files
    first, last = Path(log[0].path), Path(log[-1].path)
    end = max(item.end for item in records(store).values()) - log[-1].base
    for path, at in ((first, first.stat().st_size - len(secret)), (last, end + 4096)):
        data = bytearray(path.read_bytes())
        data[at : at + len(secret)] = secret
        path.write_bytes(data)
    report = redact(layout_of(store), Selection(keys=("order-40",)), ())
    assert {(each.file, each.bytes >= len(secret)) for each in report.cleared} == {
        (os.path.relpath(path, store), True) for path in (first, last)
    }
    assert secret not in all_bytes(store)
    assert errors(store) == []


def break_head(store: Path) -> str:
    """Damage the head of a message; its body is still there."""
    item = next(item for item in records(store).values() if b"order-40" in item.record.properties)
    with open(item.file.path, "r+b") as file:
        file.seek(item.at + 4)
        file.write(b"\0\0\0\0")
    return f"{os.path.relpath(item.file.path, store)} at byte {item.at} ({item.record.total_size} B)"


def copy_log(store: Path) -> str:
    """Leave a copy of a log file beside it."""
    path = Path(log_of(store).segments.files[0].path)
    shutil.copy(path, f"{path}.old")
    return f"{path}.old: has a copy of"


def upload(store: Path) -> str:
    """Give the store a tier whose segments are elsewhere."""
    (store / "tiered_index_file").mkdir()
    (store / "tiered_index_file" / "1").write_bytes(b"")
    return "its tier has segments that are not here"


@pytest.mark.parametrize("hinder", [break_head, copy_log, upload])
def test_what_cannot_be_overwritten_is_named(hinder: Callable[[Path], str], golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    reason = hinder(store)
    before = tree(store)
    with pytest.raises(Refused, match=re.escape(reason)):
        redact(layout_of(store), Selection(keys=("order-40",)), ())
    assert tree(store) == {**before, "lock": tree(store).get("lock")}


def test_copies_outside_of_the_store_are_named(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    redact(layout_of(store), Selection(keys=("order-40",)), (), keep_backup=True)
    log = Path(log_of(store).segments.files[0].path)
    os.link(log, store.parent / "linked")
    warnings = " ".join(redact(layout_of(store), Selection(keys=("order-41", "order-40")), (), dry_run=True).warnings)
    assert "redact-kept keeps copies of" in warnings
    assert f"{log} has another hard link" in warnings


# -- backups -----------------------------------------------------------------------------------------------------------

SECRET = b'"id":40,'
CHOSEN = Selection(keys=("order-40",))


def back_up(store: Path, home: Path, *, live: bool = False) -> None:
    """A full backup, and two incremental ones, the last after a change of a config file."""
    with StoreLock(str(store)) if live else nullcontext():
        create_backup(layout_of(store), str(home), never)
        create_backup(layout_of(store), str(home), never, incremental=True)
        path = store / "config" / "topics.json"
        path.write_bytes(path.read_bytes() + b" ")
        create_backup(layout_of(store), str(home), never, incremental=True)


@pytest.mark.parametrize("live", [False, True])
def test_backups_are_overwritten_too(live: bool, golden_copy: Unpacked, tmp_path: Path) -> None:
    store, home = golden_copy("broker"), tmp_path / "backups"
    back_up(store, home, live=live)
    names = list_names(str(home))[0]
    shared = [
        [(home / name / STORE / file.path).stat().st_ino for name in names]
        for file in read_manifest(str(home / names[0])).files
    ]
    assert any(len(set(inodes)) == 1 for inodes in shared)
    assert SECRET in all_bytes(home)
    assert rmqtool("redact", home, "--key", "order-40", "--yes").code == 0
    assert SECRET not in all_bytes(home)
    assert list(verify(str(home))) == []
    for inodes, file in zip(shared, read_manifest(str(home / names[0])).files, strict=True):
        now = [(home / name / STORE / file.path).stat().st_ino for name in names]
        assert len(set(now)) == len(set(inodes)), file.path
    restore(str(home), str(tmp_path / "restored"), name=names[1])
    before, after = records(store), records(tmp_path / "restored")
    apart = {at for at in before if before[at].record.body != after[at].record.body}
    assert apart
    assert all(bytes(after[at].record.body).strip(b"*") == b"" for at in apart)
    assert errors(tmp_path / "restored") == []
    # the store has the messages still, and no later backup takes an overwritten file for one of its own
    made = create_backup(layout_of(store), str(home), never, incremental=True)
    restore(str(home), str(tmp_path / "whole"), name=made.name)
    assert {at: bytes(item.record.body) for at, item in records(tmp_path / "whole").items()} == {
        at: bytes(item.record.body) for at, item in before.items()
    }
    assert redact_backups(str(home), CHOSEN, ()).messages
    assert redact_backups(str(home), CHOSEN, ()).messages == []


@by_turns(3)
@pytest.mark.parametrize(("case", "name"), [(case, name) for case, name, _places in KINDS])
def test_backups_of_every_kind(case: str, name: str, golden: Unpacked, tmp_path: Path) -> None:
    if name:
        node = roles.unpack(case, name, tmp_path)
        (node.store / "abort").unlink()
        layout = StoreLayout(str(node.store), load(str(node.conf)))
    else:
        layout = layout_of(golden(case))
    ids, bodies = choose(layout)
    home = tmp_path / "backups"
    for incremental in (False, True):
        create_backup(layout, str(home), never, incremental=incremental)
    assert files_with(home, bodies)
    report = redact_backups(str(home), EVERYTHING, ids, conf=layout.conf)
    assert report.applied
    assert files_with(home, bodies) == []
    assert list(verify(str(home))) == []


def test_redaction_of_backups_killed_anywhere(
    golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, made = tmp_path / "store", tmp_path / "made"
    shutil.copytree(golden("broker"), store)
    back_up(store, made)
    seam = Seam(monkeypatch)
    whole = Path(shutil.copytree(made, tmp_path / "whole"))
    seam.begin()
    redact_backups(str(whole), CHOSEN, ())
    steps = seam.count
    for number in sorted({1, steps, *Random(5).sample(range(1, steps), some(6, steps - 1))}):
        home = tmp_path / f"killed-{number}"
        shutil.copytree(made, home)
        seam.begin(number)
        with pytest.raises(Killed):
            redact_backups(str(home), CHOSEN, ())
        seam.begin()
        redact_backups(str(home), CHOSEN, ())
        assert SECRET not in all_bytes(home), number
        assert list(verify(str(home))) == [], number


def test_backups_that_are_not_overwritten(golden_copy: Unpacked, tmp_path: Path) -> None:
    store, home = golden_copy("broker"), tmp_path / "backups"
    back_up(store, home)
    first = home / list_names(str(home))[0][0]
    before = tree(home)
    copy = first / STORE
    for command, *words in (
        ("redact", "--key", "order-40", "--yes"), ("append", os.devnull), ("truncate", "0", "--yes"), ("recover",)
    ):  # fmt: skip
        result = rmqtool(command, copy, *words)
        assert (result.code, result.out) == (4, ""), (command, result)
        assert "the store of a backup" in result.err
    assert rmqtool("redact", home, "--key", "order-40", "--yes", "--keep-backup").code == 2
    assert rmqtool("redact", home, "--key", "order-40", "--dry-run").code == 1
    assert tree(home) == before
    with locked(str(home), str(home)), pytest.raises(Refused, match="another backup is being made"):
        redact_backups(str(home), CHOSEN, ())
    changed = next(iter(redact_backups(str(home), CHOSEN, (), dry_run=True).messages)).file
    data = (home / changed).read_bytes()
    (home / changed).write_bytes(data[:-1] + b"\x01")
    with pytest.raises(Refused, match="content differs"):
        redact_backups(str(home), CHOSEN, ())
    (home / changed).write_bytes(data)
    first.rename(f"{first}.part")
    with pytest.raises(Refused, match="interrupted backup"):
        redact_backups(str(home), CHOSEN, ())
