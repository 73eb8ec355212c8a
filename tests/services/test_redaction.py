"""Overwritten messages: no byte of them is left, everything else is as before, and it can be interrupted anywhere."""

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from formats.message.build import append_crc, verify_crc
from formats.message.ids import offset_id
from formats.message.inner import is_inner_batch
from formats.message.properties import UNIQ_KEY, parse
from formats.primitives import COMPRESSED, crc31
from rmqtool.errors import BadValue, Refused
from rmqtool.services.lookup.selection import Selection
from rmqtool.services.lookup.where import FieldCondition
from rmqtool.services.redaction import RedactionReport, redact
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.runs import default_home, runs
from rmqtool.store.check.run import check_store
from rmqtool.store.disk.lock import StoreLock
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import LocatedRecord
from tests.amounts import by_turns, some
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.services.build import Builder, log_of
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
    compacted = golden_copy("compaction-5.3.3")
    with pytest.raises(Refused, match="compaction log"):
        redact(layout_of(compacted), EVERYTHING, ())
    assert rmqtool("redact", store, "--yes").code == 2
    assert rmqtool("redact", store, "--key", "no such key", "--yes").code == 1
    assert rmqtool("redact", store, "--key", "order-40").code == 4
    assert rmqtool("redact", store, "--key", "order-40", "--dry-run").code == 1
    assert not [run for run in runs(Places(str(store))) if run.state != "done"]
