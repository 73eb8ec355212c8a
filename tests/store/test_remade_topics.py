"""A topic that was deleted and made again: what the log has of before is in no queue, and no command brings it back."""

import json
import shutil
from collections.abc import Container
from pathlib import Path

import pytest

from formats.queues.rocks import MAX, MIN, OFFSETS, UNITS, RocksOffset, offset_key, unit_key
from rmqtool import NewMessage, Store
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.damage import log_files, records_of
from tests.rocks import Families, build_offset
from tests.rocks import change as change_database
from tests.store.helpers import content

CONF = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "400", "maxIndexNum": "400"}
QUEUES, BEFORE, SINCE = 3, 30, 4


def send(store: Path, topic: str, messages: int, queues: int) -> None:
    with Store(store, write=True) as opened:
        for n in range(messages):
            opened.append(NewMessage(topic=topic, body=b"x" * 50, keys=f"{topic}-{n}", queue_id=n % queues))


@pytest.fixture
def remade(tmp_path: Path) -> Path:
    """Three queues of a topic had ten messages each; two of them have two each since it was made again."""
    store = tmp_path / "store"
    Store.create(store, broker_conf=CONF).close()
    send(store, "Gone", BEFORE, QUEUES)
    send(store, "Kept", 6, 2)
    shutil.rmtree(store / "consumequeue" / "Gone")
    send(store, "Gone", SINCE, 2)
    return store


def findings(store: Path) -> list[tuple[str, str, object, object]]:
    rows = map(json.loads, rmqtool("check", store, "-o", "ndjson").out.splitlines())
    return [
        (row["code"], row["severity"], row.get("topic"), row.get("count"))
        for row in rows
        if (row["code"], row["severity"]) != ("topics-missing", "info")
    ]


AS_REMADE = [("topic-remade", "info", "Gone", BEFORE)]


def test_check_names_what_is_from_before(remade: Path) -> None:
    assert findings(remade) == AS_REMADE
    report = rmqtool("check", remade)
    assert report.code == 0
    assert "rebuild consumequeue" not in report.out
    assert "rmqtool recover" not in report.out


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_recover_leaves_it_alone(remade: Path, engine: str) -> None:
    before = content(remade)
    report = json.loads(rmqtool("recover", remade, "--engine", engine, "--yes", "-o", "json").out)
    note = f"topic 'Gone' was deleted and created again: its {BEFORE} earlier messages are in no queue"
    assert note in report["notes"]
    assert content(remade) == before


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/Gone/0", "consumequeue/Gone/1"])
@pytest.mark.parametrize("crash", [True, False])
def test_recover_puts_in_what_came_since(remade: Path, engine: str, lost: str, crash: bool) -> None:
    """A broker would put in what is from before, and take what came since for repeated."""
    before = content(remade / "consumequeue")
    shutil.rmtree(remade / lost)
    if crash:
        (remade / "abort").touch()
        (remade / "checkpoint").unlink()
    assert rmqtool("recover", remade, "--engine", engine, "--yes", "--accept-loss").code == 0
    assert content(remade / "consumequeue") == before
    assert findings(remade) == AS_REMADE


def test_a_crash_brings_nothing_back(remade: Path) -> None:
    (remade / "abort").touch()
    (remade / "checkpoint").unlink()
    before = content(remade / "consumequeue")
    (told,) = [row for row in rmqtool("check", remade, "-o", "ndjson").out.splitlines() if "topic-remade" in row]
    assert "puts 10 earlier messages into queues again" in json.loads(told)["consequence"]
    assert rmqtool("recover", remade, "--yes", "--accept-loss").code == 0
    assert content(remade / "consumequeue") == before


def test_rebuild_builds_what_came_since(remade: Path) -> None:
    before = content(remade / "consumequeue")
    shutil.rmtree(remade / "consumequeue" / "Gone" / "1")
    assert "cq-missing" in {code for code, *_about in findings(remade)}
    result = rmqtool("rebuild", remade, "consumequeue", "--yes")
    assert result.code == 0, result.err
    assert f"its {BEFORE} earlier messages get no entries" in result.err
    assert content(remade / "consumequeue") == before
    assert findings(remade) == AS_REMADE


def test_a_single_queue_that_was_numbered_again_is_damage(tmp_path: Path) -> None:
    """Its files were lost; the topic was not deleted, since its other queue has messages from before."""
    store = tmp_path / "store"
    Store.create(store, broker_conf=CONF).close()
    send(store, "Gone", 20, 2)
    shutil.rmtree(store / "consumequeue" / "Gone" / "0")
    send(store, "Gone", 4, 2)
    codes = {code for code, *_about in findings(store)}
    assert {"log-ordinal-repeat", "cq-missing"} <= codes
    assert "topic-remade" not in codes
    new = tmp_path / "new"
    assert rmqtool("salvage", store, new).code == 0
    assert findings(new) == []
    report = json.loads(rmqtool("recover", store, "--dry-run", "-o", "json").out)
    assert [note for note in report["notes"] if "queue 0 was renumbered from 0: its 10 earlier messages" in note]


def remake_in_database(store: Path, topic: str, since: int, queues: Container[int] = range(99)) -> int:
    """Number the last messages of a topic's queues from 0 on, and let the database have only these.

    Args:
        since: number of messages that came since.
        queues: ids of its queues; the others stay as they are.

    Returns:
        The number of messages from before.
    """
    places = [place for path in log_files(store) for place in records_of(path)]
    places = [place for place in places if place.record.topic.decode() == topic and place.record.queue_id in queues]
    former, later = places[:-since], places[-since:]
    firsts: dict[int, int] = {}
    for place in later:
        begin = firsts.setdefault(place.record.queue_id, place.record.queue_offset)
        with place.path.open("r+b") as file:
            file.seek(place.at + 20)
            file.write((place.record.queue_offset - begin).to_bytes(8, "big"))

    def change(families: Families) -> None:
        for place in former:
            record = place.record
            families[UNITS].pop(unit_key(topic, record.queue_id, record.queue_offset))
            families[OFFSETS].pop(offset_key(topic, record.queue_id, MAX), None)  # a broker leaves the first one
        for place in later:
            record, offset = place.record, place.record.queue_offset - firsts[place.record.queue_id]
            unit = families[UNITS].pop(unit_key(topic, record.queue_id, record.queue_offset))
            families[UNITS][unit_key(topic, record.queue_id, offset)] = unit
            end = RocksOffset(record.physical_offset, offset)
            families[OFFSETS][offset_key(topic, record.queue_id, MAX)] = build_offset(end)
            if not offset:
                families[OFFSETS][offset_key(topic, record.queue_id, MIN)] = build_offset(end)

    change_database(store / "consumequeue", change)
    return len(former)


def test_of_queues_in_rocksdb(golden_copy: Unpacked) -> None:
    store = golden_copy("rocksdb-5.3.3")
    before = findings(store)
    messages = remake_in_database(store, "Orders", 41)
    told = [finding for finding in findings(store) if finding not in before]
    assert [finding for finding in told if finding[1] == "info"] == [("topic-remade", "info", "Orders", messages)]
    assert {code for code, severity, *_about in told if severity != "info"} <= {"offset-ahead"}  # groups keep theirs


def test_of_a_single_queue_in_rocksdb_it_is_damage(golden_copy: Unpacked) -> None:
    """Other queues of the topic have messages from before."""
    store = golden_copy("rocksdb-5.3.3")
    remake_in_database(store, "Orders", 9, {2})
    codes = {code for code, *_about in findings(store)}
    assert {"log-ordinal-repeat", "rcq-missing", "rcq-other"} <= codes
    assert "topic-remade" not in codes
