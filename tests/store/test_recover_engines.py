"""How recovery by the rules of 5.3 differs, rule by rule; tests/interop compares with the engine itself."""

import json
import os
import shutil
from pathlib import Path

import pytest

from formats import checkpoint
from formats.message.read import Record, read
from formats.queues.consume import as_array
from rmqtool.errors import Refused
from rmqtool.rules.releases import RELEASES, V5_3
from rmqtool.store.changes.undo import undo
from rmqtool.store.layout.paths import UNIT, StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.batch import batch_queues_of
from rmqtool.store.queues.reader import queues_of
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.recovery.report import RecoveryReport
from rmqtool.store.salvage.carve import Salvage
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.store.findings import check_store
from tests.store.helpers import conf_of, content, cut_queues, entries_of, rewrite, tree

CASE = "clean"  # three commit-log files, stopped cleanly


def layout_of(store: Path, case: str = CASE) -> StoreLayout:
    return StoreLayout(str(store), conf_of(case))


def planned(store: Path, engine: str = "5.3", **options: bool) -> RecoveryReport:
    return plan(layout_of(store), release=RELEASES.get(engine), **options)


# -- choice -----------------------------------------------------------------------------------------------------------


def test_the_engine_is_chosen_by_what_the_store_shows(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    report = planned(store, "auto")
    assert (report.engine, report.engineReason, report.warnings) == ("4.9", "it has nothing of 5.x", [])
    (store / "abort.bak").write_bytes(b"17")
    report = planned(store, "auto")
    assert (report.engine, report.engineReason, report.warnings) == ("5.3", "it has abort.bak", [])


@pytest.mark.parametrize(("shows_5", "engine", "text"), [
    (True, "4.9", "a 5.x broker seems to have written this store (it has abort.bak), but the rules of 4.9 are used"),
    (False, "5.3", "nothing shows that a 5.x broker has written this store, but the rules of 5.3 are used"),
    (True, "5.3", None),
    (False, "4.9", None),
])  # fmt: skip
def test_a_choice_against_what_the_store_shows_is_warned_of(
    shows_5: bool, engine: str, text: str | None, golden_copy: Unpacked
) -> None:
    store = golden_copy(CASE)
    if shows_5:
        (store / "abort.bak").touch()
    report = planned(store, engine)
    assert (report.engine, report.engineReason) == (engine, "asked for")
    assert report.warnings == ([text] if text else [])


def test_a_v2_record_ends_the_log_for_4_9_only(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    layout = layout_of(store)
    victim = [item for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)][-30]
    rewrite(victim, body=victim.record.body[1:], version=2)
    (store / "abort.bak").touch()
    assert planned(store, "5.3").actions == []
    report = planned(store, "4.9")
    assert report.stop is not None
    assert (report.stop.physicalOffset, report.stop.reason) == (
        victim.physical_offset,
        "V2 record, which 4.9 does not know",
    )
    assert sum(loss.messages for loss in report.lost) == 29


@by_turns(2)
@pytest.mark.parametrize(("properties", "ends"), [
    (b"INNER_BASE\x0122222\x02INNER_NUM\x0111111\x02", False),
    (b"INNER_BASE\x01-2222\x02INNER_NUM\x01+1111\x02", False),
    (b"INNER_BASE\x012222x\x02INNER_NUM\x0111111\x02", True),
    (b"INNER_BASE\x01 2222\x02INNER_NUM\x0111111\x02", True),
    (b"INNER_BASE\x0122222\x02INNER_NUM\x0199999\x02", True),
    (b"INNER_BASE\x0122222\x02INNER_NUM\x01\x02", False),
    (b"INNER_BASE\x012222x\x02INNER_NUX\x0111111\x02", False),
    (b"INNER_BASX\x0122222\x02INNER_NUM\x011111x\x02", False),
])  # fmt: skip
def test_an_inner_batch_without_numbers_ends_the_log_for_5_3_only(
    properties: bytes, ends: bool, golden_copy: Unpacked
) -> None:
    store = golden_copy(CASE)
    located = [item for item in CommitLog(layout_of(store)).walk() if isinstance(item, LocatedRecord)]
    victim = next(item for item in located[-30:] if len(item.record.body) > 2 * len(properties))
    body = victim.record.body[len(properties) :]
    rewrite(victim, body=body, properties=properties + victim.record.properties)
    assert planned(store, "4.9").actions == []
    report = planned(store)
    assert report.stop is not None
    if not ends:
        assert report.actions == []
        return
    assert (report.stop.physicalOffset, report.stop.reason) == (
        victim.physical_offset,
        "INNER_BASE or INNER_NUM is not a number, which 5.3 takes for damage",
    )
    (store / "abort.bak").touch()
    behind = len(located) - 1 - located.index(victim)
    (told,) = [finding for finding in check_store(layout_of(store)) if finding.code == "log-batch-numbers"]
    assert (told.offset, told.consequence) == (
        victim.at,
        f"a broker's next start ends the log here and cuts off {behind} messages after it",
    )
    salvaged = Salvage(layout_of(store), str(store.parent / "new")).run()
    assert (salvaged.messages, [lost.at for lost in salvaged.lostRanges]) == (len(located) - 1, [victim.at])
    assert planned(store.parent / "new").actions == []
    recover(layout_of(store))
    assert planned(store).actions == []
    assert "error" not in {finding.severity for finding in check_store(layout_of(store))}


def test_a_log_that_begins_with_a_v2_record_is_of_5(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    with open(store / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(7)
        file.write(b"\xab")
    report = planned(store, "auto")
    assert (report.engine, report.engineReason) == ("5.3", "the log begins with a V2 record")


# -- the check and what is dispatched ---------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_queues_that_are_begun_anew_too_late_are_warned_of(engine: str, golden_copy: Unpacked) -> None:
    """Their earlier messages are never dispatched; check says so."""
    store = golden_copy(CASE)
    layout = layout_of(store)
    counts: dict[tuple[str, int], list[int]] = {}
    for item in CommitLog(layout).walk():
        if isinstance(item, LocatedRecord):
            record = item.record
            counts.setdefault((record.topic.decode(), record.queue_id), []).append(record.physical_offset)
    (topic, queue_id), offsets = max(counts.items(), key=lambda item: len(item[1]))
    shutil.rmtree(layout.queue_path(topic, queue_id))
    assert not any("had no files" in warning for warning in planned(store, engine, quick=True).warnings)
    cut_queues(layout, behind=offsets[-2])
    known = planned(store, engine, quick=True)
    (warning,) = (warning for warning in known.warnings if "had no files" in warning)
    assert warning.startswith(f"topic {topic!r} queue {queue_id} (from {len(offsets) - 2} on): had no files")
    whole = planned(store, engine)
    assert not any("had no files" in warning for warning in whole.warnings)
    assert [(q.topic, q.queueId) for q in whole.mended] == [(topic, queue_id)]
    recover(layout, release=RELEASES[engine], quick=True)
    assert {finding.code for finding in check_store(layout_of(store))} == {"cq-starts-late"}
    recover(layout_of(store), release=RELEASES[engine])
    assert not list(check_store(layout_of(store)))
    (store / "abort").touch()
    shutil.rmtree(store / "consumequeue")
    whole = planned(store, engine)
    assert whole.startFile == f"commitlog/{0:020d}"
    assert not any("had no files" in warning for warning in whole.warnings)


def test_the_check_begins_where_queues_know_the_log(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    files = sorted(os.listdir(store / "commitlog"))
    assert planned(store).startFile == f"commitlog/{files[-1]}"
    cut_queues(layout_of(store), behind=int(files[1]) + 1)
    assert planned(store).startFile == f"commitlog/{files[1]}"
    cut_queues(layout_of(store), behind=0)
    assert planned(store).startFile == f"commitlog/{files[0]}"
    with open(store / "commitlog" / files[0], "r+b") as file:
        file.seek(4)
        file.write(bytes(4))
    assert planned(store).stop is not None


def test_damage_in_front_of_the_check_is_left(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    with open(sorted((store / "commitlog").iterdir())[1], "r+b") as file:
        file.seek(60)
        file.write(bytes(500))
    assert planned(store, "4.9").bytesCut
    report = planned(store, "5.3")
    assert (report.bytesCut, report.mended) == (0, [])
    assert not any("commitlog" in action for action in report.actions)
    assert planned(store, "5.3", exactly=True).actions == []


def test_the_first_message_that_no_queue_has_is_kept(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    expected = entries_of(layout_of(store))
    missing = cut_queues(layout_of(store), 40)
    report = recover(layout_of(store), release=V5_3)
    assert report.messagesRedispatched == 40
    first = missing[0]
    assert report.warnings[1] == (
        f"topic {first.topic.decode()!r} queue {first.queue_id} offset {first.queue_offset} at {first.physical_offset} "
        "is the first message that no queue has: a 5.3 broker leaves it out, and later messages of its queue move "
        "one offset down; this plan keeps it"
    )
    assert entries_of(layout_of(store)) == expected


def test_exactly_it_is_left_out_and_its_queue_moves(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    expected = entries_of(layout_of(store))
    missing = cut_queues(layout_of(store), 40)
    first = missing[0]
    report = recover(layout_of(store), release=V5_3, exactly=True)
    assert report.messagesRedispatched == 39
    assert report.warnings[1].endswith("move one offset down; this plan does the same")
    key = (first.topic.decode(), first.queue_id)
    lost = [row for row in expected if row[:2] != key or row[2] < first.queue_offset]
    lost += [(*row[:2], row[2] - 1, *row[3:]) for row in expected if row[:2] == key and row[2] > first.queue_offset]
    assert entries_of(layout_of(store)) == sorted(lost)


def test_a_log_that_ends_with_half_messages_is_in_order(golden_copy: Unpacked) -> None:
    """They are in no queue, so every start dispatches them again, which adds nothing to the index."""
    store = golden_copy(CASE)
    located = [item for item in CommitLog(layout_of(store)).walk() if isinstance(item, LocatedRecord)]
    cut_queues(layout_of(store), 3)
    for item in located[-3:]:
        with open(item.file.path, "r+b") as file:
            file.seek(item.at + 36)
            file.write((item.record.sys_flag | 4).to_bytes(4, "big"))
    assert planned(store).actions == []


def test_queues_that_were_cut_too_far_get_their_messages_back(golden_copy: Unpacked) -> None:
    """Units that point beyond the log cut their queues, which a 5.3 broker does not refill at this start."""
    store = golden_copy(CASE)
    expected = entries_of(layout_of(store))
    behind = sorted(row[3] for row in expected)[-40]
    for path in (store / "consumequeue").glob("*/*/*"):
        units = as_array(memoryview(path.read_bytes())).copy()
        units["physical_offset"][units["physical_offset"] >= behind] += 10**9
        path.write_bytes(units.tobytes())
    exactly = planned(store, exactly=True)
    assert exactly.messagesRedispatched == 0
    assert sum(queue.entriesCut for queue in exactly.queues) == 40
    assert recover(layout_of(store), release=V5_3).messagesRedispatched == 40
    assert entries_of(layout_of(store)) == expected
    assert planned(store).actions == []


def test_nothing_is_dispatched_at_the_start(golden_copy: Unpacked) -> None:
    """In 5.3, a lost queue stays lost while another one is complete; with a setting it works as in 4.9."""
    store = golden_copy("one-queue-deleted")
    (store / "abort").unlink(missing_ok=True)
    layout = layout_of(store, "one-queue-deleted")
    report = plan(layout, release=V5_3, exactly=True)
    assert report.messagesRedispatched == 0
    assert report.afterStart == report.afterLoad


def test_the_settings_that_heeds_all_queues(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    cut_queues(layout_of(store), 1)
    layout = layout_of(store)
    assert plan(layout, release=V5_3, exactly=True).messagesRedispatched == 0
    layout.conf.values["recheckReputOffsetFromCq"] = "true"
    assert plan(layout, release=V5_3, exactly=True).messagesRedispatched == 1


def test_delayed_messages_keep_their_time_after_a_crash(golden_copy: Unpacked) -> None:
    store = golden_copy("delay")
    expected = entries_of(layout_of(store, "delay"))
    (store / "abort").touch()
    for path in (store / "consumequeue" / "SCHEDULE_TOPIC_XXXX").glob("*/*"):
        path.unlink()
    (store / "checkpoint").unlink()
    report = recover(layout_of(store, "delay"), release=V5_3)
    assert not any("deliver" in warning for warning in report.warnings)
    assert entries_of(layout_of(store, "delay")) == expected


def lengthen_blank(store: Path, size: int | None = None) -> int:
    """Let the blank of the first file reach a byte beyond it, or state a size; returns where the blank begins."""
    first = sorted((store / "commitlog").iterdir())[0]
    data, at = first.read_bytes(), 0
    while isinstance(record := read(data, at, len(data)), Record):
        at += record.total_size
    with first.open("r+b") as file:
        file.seek(at)
        file.write((len(data) - at + 1 if size is None else size).to_bytes(4, "big", signed=True))
    cut_queues(layout_of(store), behind=0)
    return at


def test_a_blank_must_fit_its_file(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    at = lengthen_blank(store)
    left = sorted((store / "commitlog").iterdir())[0].stat().st_size - at
    report = planned(store)
    assert report.stop is not None
    assert (report.stop.at, report.stop.reason) == (
        at,
        f"end-of-file blank of {left + 1} bytes, {left} left",
    )
    assert planned(store, "4.9").stop != report.stop


def test_the_checkpoint_confirms_the_last_record(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    last = cut_queues(layout_of(store), 5)[-1].physical_offset
    old = checkpoint.parse((store / "checkpoint").read_bytes())
    (store / "checkpoint").write_bytes(checkpoint.build(old._replace(master_flushed_offset=77)))
    recover(layout_of(store), release=V5_3)
    assert checkpoint.parse((store / "checkpoint").read_bytes())[3:5] == (77, last)


# -- loading ----------------------------------------------------------------------------------------------------------


def test_directories_and_an_empty_last_file(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    before = content(store)
    names = ["commitlog/00000000000009999999", f"consumequeue/TopicA/1/{10**15:020d}"]
    for name in names:
        (store / name).touch()
    (store / "commitlog" / ".lost").mkdir()
    damaged = tree(store)
    assert not planned(store, "4.9").loadOk
    report = recover(layout_of(store), release=V5_3)
    assert report.loadOk
    assert [action for action in report.actions if "checkpoint" not in action] == [f"remove {name}" for name in names]
    after = content(store)
    after.pop("checkpoint")
    before.pop("checkpoint")
    assert after == before
    undo(str(store))
    assert tree(store) == damaged


def test_an_empty_file_before_a_directory_is_not_the_last(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    (store / "commitlog" / "00000000000009999999").touch()
    (store / "commitlog" / "later").mkdir()
    report = planned(store, exactly=True)
    assert not report.loadOk
    assert report.refusals[0].endswith("00000000000009999999: 0 bytes long, not 49152")


def test_an_index_directory_with_a_number_for_a_name(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    (store / "index" / "20260101000000000").mkdir()
    assert planned(store, "4.9").loadOk
    assert "a directory where an index file should be" in planned(store, "5.3").refusals[0]


def split_queues(store: Path, size: int) -> StoreLayout:
    """Split all single-file queues into files of this size."""
    for path in list((store / "consumequeue").glob("*/*/*")):
        data = path.read_bytes()
        path.unlink()
        for at in range(0, len(data), size):
            if at == 0 or data[at : at + size].strip(b"\0"):
                path.with_name(f"{at:020d}").write_bytes(data[at : at + size].ljust(size, b"\0"))
    conf = conf_of(CASE)
    conf.sizes["mappedFileSizeConsumeQueue"] = size
    return StoreLayout(str(store), conf)


def test_a_queue_with_an_empty_last_file_is_not_loaded(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    layout = split_queues(store, 5 * UNIT)
    assert plan(layout, release=V5_3).actions == []
    # all queues lack the last message, and one has lost the entries of its last file
    (last,) = cut_queues(layout_of(store), 1)
    queues = (queue for queue in sorted((store / "consumequeue").glob("*/*")) if len(list(queue.iterdir())) > 1)
    file = max(next(q for q in queues if q.parent.name != last.topic.decode()).iterdir())
    file.write_bytes(bytes(5 * UNIT))
    before = tree(store)
    report = recover(layout, release=V5_3, exactly=True)
    assert not report.loadOk
    assert report.refusals == [f"{file}: the last file of its queue is empty: a 5.3 broker does not load the queue"]
    assert report.afterStart is None
    assert tree(store) == before
    report = recover(layout, release=V5_3)
    assert report.loadOk
    assert f"replace {file.relative_to(store)}" in report.actions  # its messages are in the log
    assert any("does not load the queue; it is removed" in warning for warning in report.warnings)
    assert plan(layout, release=V5_3).actions == []


# -- batch consume queues ---------------------------------------------------------------------------------------------


def topics_json(store: Path, topic: str, queue_type: str) -> None:
    (store / "config").mkdir(exist_ok=True)
    table = {topic: {"topicName": topic, "attributes": {"queue.type": queue_type}}}
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def test_a_topic_whose_kind_of_queue_disagrees_is_not_loaded(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    topics_json(store, "TopicA", "BatchCQ")
    report = planned(store)
    assert "topics.json says that the topic has batch consume queues" in report.refusals[0]
    topics_json(store, "TopicA", "SimpleCQ")
    assert planned(store).loadOk
    (store / "batchconsumequeue" / "TopicA" / "0").mkdir(parents=True)
    assert "topics.json does not say that the topic has batch" in planned(store, "auto").refusals[0]


def test_a_batch_queue_without_files_changes_nothing(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    before = tree(store)
    topics_json(store, "Batches", "BatchCQ")
    assert planned(store).loadOk
    (store / "batchconsumequeue" / "Batches" / "0").mkdir(parents=True)
    recover(layout_of(store))
    assert {name: value for name, value in tree(store).items() if name in before} == before


def test_messages_of_a_topic_with_batch_queues_are_put_nowhere_else(golden_copy: Unpacked) -> None:
    case = "consumequeue-deleted-no-checkpoint"
    store = golden_copy(case)
    topics_json(store, "TopicA", "BatchCQ")
    recover(layout_of(store, case), release=V5_3)
    layout = layout_of(store, case)
    assert "TopicA" not in {queue.topic for queue in queues_of(layout)}
    located = [item.record for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)]
    for queue in batch_queues_of(layout):
        own = [r for r in located if r.topic == b"TopicA" and r.queue_id == queue.queue_id]
        entries = [(entry.queue_offset, entry.physical_offset, entry.batch_num) for entry in queue.entries()]
        assert entries == [(record.queue_offset, record.physical_offset, 1) for record in own]
    assert {queue.topic for queue in batch_queues_of(layout)} == {"TopicA"}


@pytest.mark.parametrize("name", ["forceVerifyPropCRC"])
def test_settings_that_are_not_followed(name: str, golden: Unpacked) -> None:
    layout = layout_of(golden(CASE))
    layout.conf.values[name] = "true"
    with pytest.raises(Refused, match=name):
        plan(layout, release=V5_3)


def test_a_controller_store_keeps_what_is_confirmed(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    (store / "epochFileCheckpoint").write_text("0\n")
    old = checkpoint.parse((store / "checkpoint").read_bytes())
    (store / "checkpoint").write_bytes(checkpoint.build(old._replace(confirm_phy_offset=500)))
    cut_queues(layout_of(store), 5)
    report = recover(layout_of(store))
    assert (report.engine, "controller mode" in "".join(report.warnings)) == ("5.3", True)
    assert checkpoint.parse((store / "checkpoint").read_bytes()).confirm_phy_offset == 500
