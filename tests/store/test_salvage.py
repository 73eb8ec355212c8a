"""Salvage keeps every intact message of a damaged store, in a consistent store."""

import json
from pathlib import Path
from typing import Any

import pytest

from formats.config.files import ConsumerOffsets, DelayOffsets
from formats.message.read import HEADS
from rmqtool import NewMessage, Store
from rmqtool.errors import Refused, UnreadableStore
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.queues.reader import queues_of
from rmqtool.store.recovery.command import plan
from rmqtool.store.recovery.plan import run_recovery
from rmqtool.store.salvage.carve import Salvage
from rmqtool.store.salvage.numbering import Numbering, move_delays, move_offsets
from rmqtool.store.salvage.records import mend_ports
from tests import goldens
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.helpers import conf_of, tree

WITH_LOG = [case for case in goldens.cases() if case != "commitlog-deleted"]


def found_in(layout: StoreLayout) -> list[LocatedRecord]:
    return [item for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)]


@by_turns(13)
@pytest.mark.parametrize("case", WITH_LOG)
def test_every_intact_message_is_in_the_new_store(case: str, golden: Unpacked, tmp_path: Path) -> None:
    source = golden(case)
    before = tree(source)
    layout = StoreLayout(str(source), conf_of(case))
    report = Salvage(layout, str(tmp_path / "new")).run()
    new = StoreLayout(str(tmp_path / "new"), conf_of(case))
    assert tree(source) == before
    old, moved = found_in(layout), found_in(new)
    assert len(moved) == len(old) == report.messages > 0
    for was, now in zip(old, moved, strict=True):
        same = was.record._replace(
            physical_offset=now.physical_offset,
            queue_offset=now.record.queue_offset,
            prepared_transaction_offset=now.record.prepared_transaction_offset,
        )
        assert now.record == same
    assert not [item for item in CommitLog(new).walk() if isinstance(item, Damage)]
    assert plan(new).actions == []
    assert not new.aborted
    # every message that has a queue offset is where its queue says, and nothing else is in the queues
    entries = {(q.topic, q.queue_id, e.queue_offset): e.physical_offset for q in queues_of(new) for e in q.entries()}
    for item in moved:
        record = item.record
        assert entries[record.topic.decode(), record.queue_id, record.queue_offset] == item.physical_offset


def test_what_a_broker_throws_away_is_kept(golden: Unpacked, tmp_path: Path) -> None:
    case = "body-bit-flip-first-file-no-checkpoint"
    layout = StoreLayout(str(golden(case)), conf_of(case))
    broker_keeps = len(list(goldens.messages(case)))
    report = Salvage(layout, str(tmp_path / "new")).run()
    assert broker_keeps == 70
    assert report.messages == 499
    (lost,) = report.lostRanges
    assert (lost.at, lost.length) == (24198, 574)
    raw = Path(lost.file).read_bytes()[lost.at : lost.at + lost.length]
    assert (tmp_path / "new" / lost.copy).read_bytes() == raw
    assert [(q.topic, q.queueId, q.lost) for q in report.renumbered] == [("order-events", 0, 1)]


def test_commits_point_at_their_moved_half_messages(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    layout = StoreLayout(str(store))
    victim = found_in(layout)[3]
    with open(victim.file.path, "r+b") as file:
        file.seek(victim.at + 4)
        file.write(b"\0\0\0\0")
    Salvage(StoreLayout(str(store)), str(tmp_path / "new")).run()
    log = CommitLog(StoreLayout(str(tmp_path / "new")))
    commits = [i.record for i in log.walk() if isinstance(i, LocatedRecord) and i.record.prepared_transaction_offset]
    assert len(commits) == 9
    for commit in commits:
        half = log.read(commit.prepared_transaction_offset)
        assert half is not None
        assert half.record.topic == b"RMQ_SYS_TRANS_HALF_TOPIC"
        assert half.record.body == commit.body


def test_consumer_offsets_follow_their_queue(golden_copy: Unpacked, tmp_path: Path) -> None:
    from rmqtool.services.lookup.offsets import consumer_offsets

    store = golden_copy("broker")
    first = next(
        i for i in found_in(StoreLayout(str(store))) if i.record.topic == b"Orders" and i.record.queue_offset == 5
    )
    with open(first.file.path, "r+b") as file:
        file.seek(first.at + 100)
        file.write(b"\xff\xff")

    def lags(root: Path) -> dict[tuple[str, str, int], int]:
        rows = [row for rows in consumer_offsets(StoreLayout(str(root))) for row in rows.dicts()]
        return {(row["topic"], row["group"], row["queueId"]): row["diff"] for row in rows}

    before = lags(store)
    Salvage(StoreLayout(str(store)), str(tmp_path / "new")).run()
    assert lags(tmp_path / "new") == before != {}


def test_targets_that_are_refused(golden: Unpacked, tmp_path: Path) -> None:
    store = golden("crash")
    layout = StoreLayout(str(store))
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("x")
    for target in (tmp_path / "there", tmp_path / "there" / "file", store, store / "inside"):
        with pytest.raises(Refused):
            Salvage(layout, str(target)).run()
    with pytest.raises(UnreadableStore, match="no commit log"):
        Salvage(StoreLayout(str(golden("commitlog-deleted"))), str(tmp_path / "new")).run()


def test_a_lone_file_that_was_cut_short(golden_copy: Unpacked, tmp_path: Path) -> None:
    """Its length is not used: the new store has files of the default size, or of the size in the broker's settings."""
    store = golden_copy("clean")
    first, *others = sorted((store / "commitlog").iterdir())
    for path in others:
        path.unlink()
    for size, messages in (7, 0), (found_in(StoreLayout(str(store)))[0].record.total_size, 1):
        with open(first, "r+b") as file:
            file.truncate(size)
        report = Salvage(StoreLayout(str(store)), str(tmp_path / f"{size}")).run()
        assert report.messages == messages
        assert any("--broker-conf" in warning for warning in report.warnings)
        assert {path.stat().st_size for path in (tmp_path / f"{size}" / "commitlog").iterdir()} <= {1 << 30}
        if size == 7:
            first.write_bytes(golden_copy("clean").joinpath("commitlog", first.name).read_bytes())
    assert Salvage(StoreLayout(str(store), conf_of("clean")), str(tmp_path / "new")).run().messages == 1


def test_a_config_file_that_cannot_be_read_costs_itself_only(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    config = store / "config"
    (config / ".bak").write_bytes(b"what is this")
    for name in ("topics.json", "notes.txt"):
        with open(config / name, "wb") as file:
            file.truncate(65 << 20)
    (config / "topics.json.bak").unlink(missing_ok=True)
    (config / "delayOffset.json").unlink(missing_ok=True)
    (config / "delayOffset.json").mkdir()
    report = Salvage(StoreLayout(str(store)), str(tmp_path / "new")).run()
    assert report.messages > 0
    assert ".bak" in report.configs
    assert {"topics.json", "notes.txt"}.isdisjoint(report.configs)
    assert any("topics.json cannot be read" in warning for warning in report.warnings)
    assert any("notes.txt" in warning and "larger than" in warning for warning in report.warnings)
    info = rmqtool("info", store, "--output", "json")
    assert info.code == 1  # there are problems to tell
    assert "larger than" in json.dumps(json.loads(info.out)["problems"])
    listed = {row["name"]: row for row in json.loads(rmqtool("config", store, "--output", "json").out)}
    assert listed["topics.json"]["readable"] is False
    assert listed["topics.json"]["bytes"] == 65 << 20
    assert listed["notes.txt"]["readable"] is True


@by_turns(3)
def test_what_is_taken_though_a_part_of_it_is_lost(tmp_path: Path) -> None:
    """An impossible port, which no checksum covers, and properties that a killed slave has not written whole."""
    with Store.create(tmp_path / "old") as store:
        done = [store.append(NewMessage(topic="T", queue_id=0, body=b"%d" % n, tags="red")) for n in range(6)]
    path = tmp_path / "old/commitlog/00000000000000000000"
    ports = HEADS[0].offsets["born_port"], HEADS[0].offsets["store_port"]
    with path.open("r+b") as file:
        for message, port in zip(done[1:3], ports, strict=True):
            file.seek(message.physical_offset + port)
            file.write((-70_000).to_bytes(4, "big", signed=True))
        file.seek(done[-1].physical_offset + done[-1].size - 2)
        file.write(bytes(2))
    checked = json.loads(rmqtool("check", tmp_path / "old", "-o", "json").out)
    codes = [finding["code"] for finding in checked]
    assert (codes.count("log-port"), codes.count("log-properties")) == (2, 1)
    salvaged = rmqtool("salvage", tmp_path / "old", tmp_path / "new")
    assert "2 messages with an impossible port copied with port 0" in salvaged.err
    assert "1 message with torn properties taken as stored: check of the new store warns, too" in salvaged.err
    old, new = found_in(StoreLayout(str(tmp_path / "old"))), found_in(StoreLayout(str(tmp_path / "new")))
    assert [item.record for item in new] == [mend_ports(item.record) for item in old]
    assert {port for item in new for port in (item.record.born_port, item.record.store_port)} == {0}
    kept = [file.read_bytes() for file in sorted((tmp_path / "new/lost+found").rglob("*")) if file.is_file()]
    data = path.read_bytes()
    for message in (done[1], done[2], done[-1]):
        assert any(data[message.physical_offset :][: message.size] in part for part in kept)
    again = json.loads(rmqtool("check", tmp_path / "new", "-o", "json").out)
    assert {finding["code"] for finding in again} & {"log-port", "log-properties"} == {"log-properties"}


def test_the_new_store_is_recovered_once(golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def counting(*arguments: Any) -> Any:
        runs.append(arguments)
        return run_recovery(*arguments)

    monkeypatch.setattr("rmqtool.store.recovery.command.run_recovery", counting)
    Salvage(StoreLayout(str(golden("clean"))), str(tmp_path / "new")).run()
    assert len(runs) == 1


def test_batch_queues_keep_their_form_without_topics(golden_copy: Unpacked, tmp_path: Path) -> None:
    """Nothing but the files says that a topic has them; otherwise nobody can read its messages in the new store."""
    source, new = golden_copy("broker-5.3.3"), tmp_path / "new"
    for name in ("topics.json", "topics.json.bak"):
        (source / "config" / name).unlink(missing_ok=True)
    done = rmqtool("salvage", source, new)
    assert done.code == 0, done.err
    assert "config/topics.json lacks topics that have messages: " in done.err
    before, after = (
        [
            row["msgId"]
            for row in map(
                json.loads, rmqtool("commitlog", "dump", root, "--topic", "BatchQueue", "-o", "ndjson").out.splitlines()
            )
        ]
        for root in (source, new)
    )
    assert before
    assert before == after
    assert sorted(path.name for path in (new / "batchconsumequeue").iterdir()) == ["BatchQueue"]
    assert not (new / "consumequeue" / "BatchQueue").exists()
    assert rmqtool("check", new, "--severity", "warning").code == 0


def test_the_way_on_without_topics_is_to_make_them_first(golden_copy: Unpacked, tmp_path: Path) -> None:
    source, new = golden_copy("clean"), tmp_path / "new"
    for name in ("topics.json", "topics.json.bak"):
        (source / "config" / name).unlink(missing_ok=True)
    done = rmqtool("salvage", source, new)
    assert done.code == 0
    rebuild = f"rmqtool rebuild {new} config"
    assert f"then {rebuild}, as it has no topics.json; then start the broker on it" in done.err
    assert rmqtool(*rebuild.split()[1:], "--yes").code == 0
    assert (new / "config/topics.json").exists()
    again = rmqtool("salvage", new, tmp_path / "newer")
    assert again.code == 0
    assert "no topics.json" not in again.err


def test_offsets_among_lost_messages_move_to_the_next_one_that_is_kept() -> None:
    """Old offsets 0 to 9 without 3 to 5: who was to get 4 next gets 6, which is 3 now."""
    queue = Numbering(0)
    for old in (0, 1, 2, 6, 7, 8, 9):
        queue.follow(old)
    numbers = {(b"T", 0): queue, (b"SCHEDULE_TOPIC_XXXX", 2): queue}
    for old, new in ((0, 0), (2, 2), (3, 3), (4, 3), (5, 3), (6, 3), (7, 4), (10, 7)):
        offsets = move_offsets(ConsumerOffsets(offsets={"T@g": {0: old}}), numbers)
        assert offsets.offsets["T@g"][0] == new, old
        delays = move_delays(DelayOffsets(offsets={3: old, 1: 5}), numbers)
        assert delays.offsets == {3: new, 1: 5}
    assert move_delays(DelayOffsets(offsets={3: 12}), numbers).offsets == {3: 7}, "beyond its end"
