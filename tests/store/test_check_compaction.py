"""Damaged compacted topics of a real 5.3.3 store: each damage gets its own code at its place, and rebuild repairs
it.
"""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.message.build import pack
from formats.queues.batch import SIZE, BatchEntry, build
from formats.variants import compaction
from rmqtool.analytics.source.tables import NamedStore, rows_of
from rmqtool.store.changes.undo import undo
from rmqtool.store.check.advice.steps import REBUILD_COMPACTION
from rmqtool.store.check.codes.all import CODES
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.compaction import CompactionQueue, compaction_queues_of
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.repair.rebuild import rebuild
from rmqtool.store.salvage.carve import Salvage
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.findings import Told, flip, found_in, told, write
from tests.store.helpers import tree

CASE = "compaction-5.3.3"
LOGS, QUEUES = "compaction/compactionLog/Prices/0", "compaction/compactionCq/Prices/0"
BASES = (0, 5060, 50_600)  # with 9, 1 and 6 messages, of queue offsets 0 to 2 and 83 to 88; 89; 90 to 95
FIRST, SECOND, LAST = (f"{QUEUES}/{base:020d}" for base in BASES)
FIRST_LOG, SECOND_LOG, LAST_LOG = (f"{LOGS}/{base:020d}" for base in BASES)
POSITIONS = "compaction/position-checkpoint"
Damager = Callable[[Path], list[Told]]


def compaction_findings(store: Path, conf: BrokerConf | None = None) -> list[Finding]:
    return [finding for finding in found_in(store, conf) if finding.code.startswith("compaction-")]


def queue_of(store: Path) -> CompactionQueue:
    return CompactionQueue(StoreLayout(str(store)), "Prices", 0)


def offsets_of(store: Path) -> list[int]:
    return [unit.base_queue_offset for unit in queue_of(store).entries()]


def replaced_file_left(store: Path) -> list[Told]:
    shutil.copy(store / FIRST_LOG, store / f"{FIRST_LOG}.delete")
    return [("compaction-foreign", f"{FIRST_LOG}.delete", None, 1)]


def queue_file_left(store: Path) -> list[Told]:
    shutil.copy(store / FIRST, store / f"{FIRST}.delete")
    return [("compaction-foreign", f"{FIRST}.delete", None, 1)]


def a_note(store: Path) -> list[Told]:
    (store / LOGS / "note.txt").write_text("?")
    return [("compaction-size", f"{LOGS}/note.txt", None, 1)]


def queue_file_gone(store: Path) -> list[Told]:
    (store / FIRST).unlink()
    return [("compaction-unpaired", FIRST_LOG, None, 1)]


def log_file_gone(store: Path) -> list[Told]:
    (store / SECOND_LOG).unlink()
    return [("compaction-unpaired", SECOND, None, 1), ("compaction-no-record", SECOND, 0, 1)]


def queue_folder_gone(store: Path) -> list[Told]:
    shutil.rmtree(store / QUEUES)
    return [("compaction-half", LOGS, None, 1), ("compaction-missing", QUEUES, None, 3),
            ("compaction-checkpoint-ahead", POSITIONS, None, 1)]  # fmt: skip


def log_folder_gone(store: Path) -> list[Told]:
    shutil.rmtree(store / LOGS)
    at = [*((FIRST, number * SIZE) for number in range(9)), (SECOND, 0), *((LAST, n * SIZE) for n in range(6))]
    return [("compaction-half", QUEUES, None, 1), *(("compaction-no-record", file, byte, 1) for file, byte in at)]


def both_gone(store: Path) -> list[Told]:
    shutil.rmtree(store / QUEUES)
    shutil.rmtree(store / LOGS)
    return [("compaction-queue-missing", QUEUES, None, 3), ("compaction-checkpoint-ahead", POSITIONS, None, 1)]


def log_cut(store: Path) -> list[Told]:
    with (store / LAST_LOG).open("r+b") as file:
        file.truncate(1000)
    rest = [("compaction-no-record", LAST, number * SIZE, 1) for number in range(3, 6)]
    return [("compaction-size", LAST_LOG, None, 1), *rest]


def queue_cut(store: Path) -> list[Told]:
    with (store / LAST).open("r+b") as file:
        file.truncate(2 * SIZE + 5)
    lacks = [("compaction-unqueued", LAST_LOG, 558, 4), ("compaction-missing", QUEUES, None, 3)]
    return [("compaction-size", LAST, None, 1), *lacks]


def hole(store: Path) -> list[Told]:
    write(store / FIRST, 2 * SIZE, bytes(SIZE))
    return [("compaction-hole", FIRST, 2 * SIZE, 6)]


def hole_at_the_end(store: Path) -> list[Told]:
    write(store / LAST, 5 * SIZE, bytes(SIZE))
    return [("compaction-unqueued", LAST_LOG, 1410, 1), ("compaction-missing", QUEUES, None, 1)]


def torn(store: Path) -> list[Told]:
    write(store / LAST, 5 * SIZE + 20, bytes(SIZE - 20))
    return [("compaction-torn", LAST, 5 * SIZE, 1), ("compaction-unqueued", LAST_LOG, 1410, 1),
            ("compaction-missing", QUEUES, None, 1)]  # fmt: skip


def torn_inside(store: Path) -> list[Told]:
    write(store / FIRST, 3 * SIZE, b"\xff")
    return [("compaction-torn", FIRST, 3 * SIZE, 5)]


def body_flipped(store: Path) -> list[Told]:
    flip(store / FIRST_LOG, 90)
    return [("compaction-no-record", FIRST, 0, 1)]


def beyond_the_log(store: Path) -> list[Told]:
    write(store / FIRST, 4 * SIZE, struct.pack(">q", 1 << 40))
    return [("compaction-no-record", FIRST, 4 * SIZE, 1)]


def another_topic(store: Path) -> list[Told]:
    data = (store / FIRST_LOG).read_bytes()
    write(store / FIRST_LOG, data.index(b"Prices"), b"Crises")
    return [("compaction-other-record", FIRST, 0, 1)]


def another_position(store: Path) -> list[Told]:
    flip(store / FIRST_LOG, 35)
    return [("compaction-other-record", FIRST, 0, 1)]


def another_offset(store: Path) -> list[Told]:
    write(store / FIRST, 35, b"\x01")  # of the first unit: that of the second
    return [("compaction-other-record", FIRST, 0, 1), ("compaction-order", FIRST, SIZE, 1)]


def old_file_put_back(store: Path) -> list[Told]:
    """Files replaced only partly: the second pair again, after the last."""
    for kind, size in ((LOGS, 5060), (QUEUES, 460)):
        (store / kind / f"{55_660:020d}").write_bytes(bytes(size))
    unit = next(queue_of(store).entries())
    raw = (store / FIRST_LOG).read_bytes()[: unit.size]
    write(store / LOGS / f"{55_660:020d}", 0, compaction.move_record(raw, 55_660))
    write(store / QUEUES / f"{55_660:020d}", 0, build([unit._replace(physical_offset=55_660)]))
    return [("compaction-order", f"{QUEUES}/{55_660:020d}", 0, 1), ("compaction-checkpoint-ahead", POSITIONS, None, 1)]


def key_lost(store: Path) -> list[Told]:
    data = (store / FIRST_LOG).read_bytes()
    write(store / FIRST_LOG, data.index(b"KEYS\1"), b"KEYZ")
    return [("compaction-no-key", FIRST_LOG, 0, 1)]


def log_of_another_time(store: Path) -> list[Told]:
    """Cut the commit log and its queue, but not the compaction log."""
    with (store / f"consumequeue/Prices/0/{0:020d}").open("r+b") as file:
        file.seek(95 * 20)
        file.write(bytes(20))
    log = CommitLog(StoreLayout(str(store)))
    last = [item for item in log.walk() if isinstance(item, LocatedRecord)]
    cut = next(i for i in last if (i.record.topic, i.record.queue_id, i.record.queue_offset) == (b"Prices", 0, 95))
    write(Path(cut.file.path), cut.at, bytes(cut.file.size - cut.at))
    return [("compaction-ahead", QUEUES, None, 1)]


def positions_torn(store: Path) -> list[Told]:
    (store / POSITIONS).write_bytes((store / POSITIONS).read_bytes()[:30])
    return [("compaction-checkpoint", POSITIONS, None, 1)]


def positions_ahead(store: Path) -> list[Told]:
    (store / POSITIONS).write_bytes((store / POSITIONS).read_bytes().replace(b'"Prices_0":89', b'"Prices_0":99'))
    return [("compaction-checkpoint-ahead", POSITIONS, None, 1)]


def work_left(store: Path) -> list[Told]:
    (store / LOGS / "compacting").mkdir()
    (store / LOGS / "compacting" / f"{0:020d}").write_bytes(bytes(5060))
    return [("compaction-unfinished", f"{LOGS}/compacting", None, 1)]


def policy_lost(store: Path) -> list[Told]:
    topics = store / "config/topics.json"
    topics.write_text(topics.read_text().replace('"cleanup.policy":"COMPACTION"', '"cleanup.policy":"DELETE"', 1))
    name = "Prices" if '"Prices"' in topics.read_text().partition('"DELETE"')[2].partition("}")[0] else "Users"
    folder = f"compaction/compactionLog/{name}"
    return [("compaction-unused", f"{folder}/0", None, 1), ("compaction-unused", f"{folder}/1", None, 1)]


DAMAGES: list[Damager] = [
    replaced_file_left, queue_file_left, a_note, queue_file_gone, log_file_gone, queue_folder_gone, log_folder_gone,
    both_gone, log_cut, queue_cut, hole, hole_at_the_end, torn, torn_inside, body_flipped, beyond_the_log,
    another_topic, another_position, another_offset, old_file_put_back, key_lost, log_of_another_time, positions_torn,
    positions_ahead, work_left, policy_lost,
]  # fmt: skip
REFUSED = [replaced_file_left, queue_file_left, queue_file_gone, log_file_gone]  # a broker does not start
LEFT = [positions_torn, work_left, policy_lost]  # there is nothing to mend


@by_turns(2)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_one_damage(damage: Damager, golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    assert offsets_of(store) == [0, 1, 2, *range(83, 96)]
    expected = damage(store)
    assert told(compaction_findings(store)) == sorted(expected)
    assert plan(StoreLayout(str(store)), exactly=True).loadOk == (damage not in REFUSED)


KEPT = {0, 1, 2, *range(89, 96)}  # the newest of each key, and what no compaction has looked at
IN_THE_COMMIT_LOG = {93, 94, 95}
KEPT_AFTER: dict[Damager, set[int]] = {  # where the only copy of a message is destroyed
    log_folder_gone: IN_THE_COMMIT_LOG,
    both_gone: IN_THE_COMMIT_LOG,
    log_file_gone: KEPT - {89},
    body_flipped: KEPT - {0},
    another_topic: KEPT - {0},
    key_lost: KEPT - {0},
    log_of_another_time: KEPT - {95} | {88},  # the same key
}


@by_turns(2)
@pytest.mark.parametrize("damage", [d for d in DAMAGES if d not in LEFT], ids=lambda damage: damage.__name__)
def test_what_is_advised_mends(damage: Damager, golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    damage(store)
    assert REBUILD_COMPACTION in [step for finding in compaction_findings(store) for step in finding.steps]
    report = rebuild(StoreLayout(str(store)), ("compaction",))
    assert report.applied
    assert compaction_findings(store) == []
    there = set(offsets_of(store))
    assert there == (set(range(83, 89)) | KEPT if damage is positions_ahead else KEPT_AFTER.get(damage, KEPT))


@pytest.mark.parametrize("case", [CASE, f"{CASE}-crash", "broker-5.3.3", "rocksdb-5.3.3"])
def test_what_is_in_order_is_not_written(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    assert compaction_findings(store) == []
    before = tree(store)
    report = rebuild(StoreLayout(str(store)), ("compaction",))
    assert report.actions == []
    assert tree(store) == before


def test_a_rebuilt_log_is_laid_out_as_by_a_broker(golden_copy: Unpacked) -> None:
    """All files lost, all messages still in the commit log: the result equals the broker's, byte for byte."""
    store = golden_copy("broker-5.3.3")
    before = {name: digest for name, (_time, digest) in tree(store).items() if name.startswith("compaction/")}
    for kind in ("compactionLog", "compactionCq"):
        shutil.rmtree(store / "compaction" / kind)
    assert {finding.code for finding in compaction_findings(store)} == {"compaction-queue-missing"}
    conf = BrokerConf({"compactionMappedFileSize": "131072", "compactionCqMappedFileSize": "4600"})
    rebuild(StoreLayout(str(store), conf), ("compaction",))
    after = {name: digest for name, (_time, digest) in tree(store).items() if name.startswith("compaction/")}
    assert after == before


def test_a_log_of_several_files_rolls_as_a_broker_does(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    conf = BrokerConf({"compactionMappedFileSize": "460", "compactionCqMappedFileSize": "230"})
    for queue in compaction_queues_of(StoreLayout(str(store))):
        if queue.topic == "Prices":
            shutil.rmtree(queue.log_path)
            shutil.rmtree(queue.path)
    (store / POSITIONS).unlink()
    (store / f"{POSITIONS}.bak").unlink()
    rebuild(StoreLayout(str(store), conf), ("compaction",))
    queue = CompactionQueue(StoreLayout(str(store), conf), "Prices", 0)
    assert (queue.log_size, queue.queue_size) == (1150, 230)
    assert [unit.base_queue_offset for unit in queue.entries()] == [93, 94, 95]
    assert [finding for finding in compaction_findings(store, conf) if finding.topic == "Prices"] == []


def test_every_code_is_met() -> None:
    met = {code for damage in DAMAGES for code in _words(damage) if code.startswith("compaction-")}
    assert met | {"compaction-behind"} == {code for code in CODES if code.startswith("compaction-")}


def _words(damage: Damager) -> set[str]:
    result: set[str] = set()
    for value in damage.__code__.co_consts:
        result.update(text for text in (value if isinstance(value, tuple) else (value,)) if isinstance(text, str))
    return result


def test_after_a_crash_what_is_redispatched_is_no_loss(golden_copy: Unpacked) -> None:
    store = golden_copy(f"{CASE}-crash")
    for kind in (LOGS, QUEUES):
        shutil.rmtree(store / kind)
    finding = {f.code: f.severity for f in compaction_findings(store)}
    assert finding["compaction-behind"] == "info"


@by_turns(2)
@pytest.mark.parametrize("damage", [None, hole, body_flipped, queue_file_gone, both_gone])
def test_salvage_keeps_what_only_the_compaction_log_has(
    damage: Damager | None, golden_copy: Unpacked, tmp_path: Path
) -> None:
    store, new = golden_copy(CASE), tmp_path / "new"
    kept = offsets_of(store) if damage is None else sorted(KEPT_AFTER.get(damage, KEPT))
    if damage is not None:
        damage(store)
    Salvage(StoreLayout(str(store)), str(new)).run()
    assert compaction_findings(new) == []
    assert offsets_of(new) == kept
    bodies = {m.record.queue_offset: m.record.body for m in queue_of(new).read()}
    assert bodies[93].startswith(b"Prices ")
    assert bodies.get(1, b"rare 2") == b"rare 2"


def test_the_newest_message_of_each_key(golden: Unpacked) -> None:
    store = golden(CASE)
    newest = queue_of(store).latest()
    assert sorted(m.record.queue_offset for m in newest.values()) == sorted(KEPT)
    output = rmqtool("topic", "latest", store, "Prices", "--key", "rare-2", "--output", "json")
    assert (output.code, [row["body"] for row in json.loads(output.out)]) == (0, ["rare 2"])
    assert rmqtool("topic", "latest", store, "Prices", "--key", "none").code == 1


def test_queries_find_what_has_expired_in_the_commit_log(golden: Unpacked) -> None:
    store = golden(CASE)
    by_key = rmqtool("query-key", store, "Prices", "rare-2", "--output", "json")
    (row,) = json.loads(by_key.out)
    assert (row["queueOffset"], row["body"]) == (1, "rare 2")
    by_id = rmqtool("query-id", store, row["msgId"], "--output", "json")
    assert json.loads(by_id.out) == [row]
    of_all = rmqtool("query-offset", store, "Prices", "0", "0", "--max-msgs", "32", "--output", "ndjson")
    assert [json.loads(line)["queueOffset"] for line in of_all.out.splitlines()] == [0, 1, 2, *range(83, 89)]


def test_the_table_of_compacted_topics(golden: Unpacked) -> None:
    (batch,) = rows_of("compacted", NamedStore(str(golden(CASE)), "one"))
    rows = [row for row in batch.to_pylist() if (row["topic"], row["queueId"]) == ("Prices", 0)]
    assert [row["queueOffset"] for row in rows] == [0, 1, 2, *range(83, 96)]
    assert {row["queueOffset"] for row in rows if row["latest"]} == KEPT
    assert (rows[1]["key"], rows[1]["body"]) == ("rare-2", b"rare 2")


def test_a_key_whose_newest_message_has_no_body_is_deleted(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    *_before, last = queue_of(store).read()
    gone = last.record._replace(body=b"", body_length=0, body_crc=0, queue_offset=96, total_size=0)
    raw = pack(gone._replace(total_size=len(pack(gone))))
    position = last.physical_offset + last.record.total_size
    write(store / LAST_LOG, position - BASES[2], compaction.move_record(raw, position))
    unit = BatchEntry(position, len(raw), 0, gone.store_timestamp, 96, 1)
    write(store / LAST, 6 * SIZE, build([unit]))
    assert [m.record.queue_offset for m in queue_of(store).latest().values()] == sorted(KEPT - {95})


def test_recovery_says_what_it_leaves(golden: Unpacked) -> None:
    notes = plan(StoreLayout(str(golden(CASE))), exactly=True).notes
    assert any("compaction logs are left to" in note for note in notes)


@by_turns(2)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_recovery_mends_it_in_the_same_plan(damage: Damager, golden_copy: Unpacked) -> None:
    """Except a log that extends beyond the commit log: its messages are nowhere else."""
    store = golden_copy(CASE)
    damage(store)
    (store / "abort").touch()
    before = tree(store)
    report = recover(StoreLayout(str(store)))
    assert report.applied
    left = {finding.code for finding in compaction_findings(store) if is_problem(finding)}
    assert left == ({"compaction-ahead"} if damage is log_of_another_time else set())
    assert plan(StoreLayout(str(store))).clean
    undo(str(store))
    assert tree(store) == before


@pytest.mark.parametrize("damage", REFUSED, ids=lambda damage: damage.__name__)
def test_recovery_names_what_mends_a_store_that_is_refused(damage: Damager, golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    damage(store)
    report = plan(StoreLayout(str(store)), exactly=True)
    assert not report.loadOk
    first, again = report.nextSteps
    assert first.startswith(f"rmqtool rebuild {store} compaction: ")
    assert rmqtool("rebuild", store, "compaction", "--yes").code == 0
    assert again.startswith(f"rmqtool recover {store} --dry-run: ")
    assert plan(StoreLayout(str(store))).clean


def test_an_empty_last_file_is_deleted_before_anything_is_compared(golden_copy: Unpacked) -> None:
    """As observed with 5.3.3 by ``tests.interop.differential.compacted``."""
    store = golden_copy(CASE)
    queue = queue_of(store)
    (Path(queue.path) / "note.txt").write_bytes(b"")
    assert queue_of(store).refused is None
    Path(queue.log.files[0].path).rename(store / "kept")
    assert "no file of the same name" in (queue_of(store).refused or ("", ""))[1]
    (store / "kept").rename(queue.log.files[0].path)
    (Path(queue.path) / "note.txt").unlink()
    Path(queue.queue.files[-1].path).write_bytes(b"")
    again = queue_of(store)
    assert again.refused is None  # the log is cut behind what the file before leads to
    assert again.log_end <= again.log.files[-1].base


def test_a_queue_offset_is_looked_for_in_the_last_file_that_begins_there_or_before(golden: Unpacked) -> None:
    queue = queue_of(golden(CASE))
    begins = [queue._unit(file, 0).base_queue_offset for file in queue.queue.files]
    assert len(begins) > 1
    assert [queue.file_of(begin) for begin in begins] == list(range(len(begins)))
    assert queue.file_of(begins[1] - 1) == 0
    assert queue.file_of(-1) == 0


def test_a_log_that_lost_all_that_was_nowhere_else_is_no_dead_end(golden_copy: Unpacked) -> None:
    """The commit log of the golden store no longer has any of these messages."""
    store = golden_copy(CASE)
    for kind in ("compactionLog", "compactionCq"):
        shutil.rmtree(store / "compaction" / kind / "Users" / "0")
    recover(StoreLayout(str(store)))
    assert [finding for finding in compaction_findings(store) if is_problem(finding)] == []
