"""Messages only in tiered storage are found, dumped, counted, salvaged and exported."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from formats.layouts.derived import HEAD_V4_V4
from rmqtool import Store, StoredMessage
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.salvage.carve import Salvage
from tests import roles
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.roles import NEW_TIERED, TIERED, Node, prints
from tests.store.test_dledger import sha

ALONE = {TIERED: 229, NEW_TIERED: 255}
Get = Callable[[str], Node]
Key = tuple[str, int, int]


def rows(*args: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rmqtool(*args, "--output", "ndjson").out.splitlines()]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Get:
    """Case → original directory of the broker, read-only."""
    known: dict[str, Node] = {}

    def get(case: str) -> Node:
        if case not in known:
            known[case] = roles.unpack(case, "a", tmp_path_factory.mktemp("tiered"))
        return known[case]

    return get


def layout_of(node: Node) -> StoreLayout:
    return StoreLayout(str(node.store), load(str(node.conf)))


def served(case: str) -> dict[Key, dict[str, Any]]:
    """(topic, queue, queue offset) → message served by the broker."""
    return {(entry["cqTopic"], entry["cqQueueId"], entry["cqOffset"]): entry for entry in roles.served(case)}


def key_of(row: dict[str, Any]) -> Key:
    return row["topic"], row["queueId"], row["queueOffset"]


def same_bodies(entries: list[dict[str, Any]], case: str) -> None:
    """Check that exactly the messages served by the broker are there, once each."""
    told = {key: entry["message"]["bodySha256"] for key, entry in served(case).items()}
    assert len(entries) == len(told)
    assert {key_of(row): sha(row) for row in entries} == told


@by_turns(3)
@pytest.mark.parametrize("case", ALONE)
def test_a_dump_has_what_the_broker_served(case: str, left: Get, tmp_path: Path) -> None:
    import pyarrow.dataset as ds

    node = left(case)
    before = prints(node.store)
    same_bodies(rows("commitlog", "dump", node.store, *node.options()), case)
    entries = rows("consumequeue", "dump", node.store, *node.options())
    assert {key_of(row) for row in entries} == set(served(case))
    alone = {key for key, entry in served(case).items() if not entry["local"]}
    assert len(alone) == ALONE[case]
    positions = {key_of(row): row["physicalOffset"] for row in entries}
    assert {key: positions[key] for key in alone} == {key: served(case)[key]["tierPosition"] for key in alone}
    result = rmqtool("dump-to-parquet", node.store, tmp_path / "out", "--runner", "local", *node.options())
    assert result.code == 0, result.err
    table = ds.dataset(tmp_path / "out").to_table(columns=["topic", "queueId", "queueOffset", "body"]).to_pylist()
    assert {key_of(row): hashlib.sha256(row["body"]).hexdigest() for row in table} == {
        key: entry["message"]["bodySha256"] for key, entry in served(case).items()
    }
    assert prints(node.store) == before


@by_turns(3)
@pytest.mark.parametrize("which", ["first", "last"])
@pytest.mark.parametrize("case", ALONE)
def test_a_damaged_entry_hides_no_other_message(case: str, which: str, tmp_path: Path) -> None:
    """The first and the last entry of a queue say where its messages are, unless they lead nowhere."""
    node = roles.unpack(case, "a", tmp_path)
    told = {key for key, one in served(case).items() if key[:2] == ("Invoices", 0)}
    alone = sorted(key[2] for key in told if not served(case)[key]["local"])
    at = alone[0] if which == "first" else alone[-1]
    segments = sorted((node.store / "tiered").rglob("Invoices/0/CONSUME_QUEUE/*"), key=lambda path: path.name[8:])
    file = [path for path in segments if int(path.name[8:]) <= at * 20][-1]
    data, place = bytearray(file.read_bytes()), at * 20 - int(file.name[8:])
    data[place : place + 20] = bytes(20)
    file.write_bytes(data)
    found = {key_of(row) for row in rows("commitlog", "dump", node.store, *node.options())}
    assert {key for key in told if key[2] != at} <= found


@pytest.mark.parametrize("bulk", [False, True])
def test_a_message_that_only_its_entry_leads_to_is_read(
    bulk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before it is damaged, and it states another position itself: a broker does not look at that."""
    import pyarrow.dataset as ds

    node = roles.unpack(TIERED, "a", tmp_path)
    told = {key: one for key, one in served(TIERED).items() if key[:2] == ("Events", 1) and not one["local"]}
    second, third = (told[key] for key in sorted(told)[6:8])
    (file,) = (node.store / "tiered").rglob("Events/1/COMMIT_LOG/*0000000000")
    data = bytearray(file.read_bytes())
    data[second["tierPosition"] + HEAD_V4_V4.size] ^= 1  # its body, or what precedes that
    data[third["tierPosition"] + HEAD_V4_V4.offsets["physical_offset"] + 7] ^= 1
    file.write_bytes(data)
    found = {key_of(row) for row in rows("commitlog", "dump", node.store, *node.options())}
    assert set(told) - found == {sorted(told)[6]}
    monkeypatch.setattr("rmqtool.store.dispatch.batch.BULK_BYTES", 64 if bulk else 1 << 30)
    written = rmqtool("dump-to-parquet", node.store, tmp_path / "out", "--runner", "local", *node.options())
    assert "530 bytes skipped" in written.err, written.err
    table = ds.dataset(tmp_path / "out").to_table(columns=["topic", "queueId", "queueOffset"]).to_pylist()
    assert {key_of(row) for row in table} == found
    assert key_of({**rows("query-offset", node.store, "Events", 1, sorted(told)[7][2], *node.options())[0]}) in found


@by_turns(3)
@pytest.mark.parametrize("case", ALONE)
def test_look_ups_answer_from_both(case: str, left: Get) -> None:
    node = left(case)
    told = [entry for entry in roles.served(case) if not entry["local"]][::23]
    for entry in told:
        queue = entry["cqTopic"], entry["cqQueueId"]
        (row,) = rows("query-offset", node.store, *queue, entry["cqOffset"], *node.options())
        assert (key_of(row), row["storeTimestamp"]) == ((*queue, entry["cqOffset"]), entry["message"]["storeTimestamp"])
        assert row["physicalOffset"] == entry["tierPosition"] == entry["message"]["physicalOffset"]
        assert row["offsetMsgId"] == entry["message"]["offsetMsgId"]
        keys = entry["message"]["keys"].split() if entry["message"].get("keys") else []
        for key in keys[:1]:
            listed = rows("query-key", node.store, entry["cqTopic"], key, *node.options())
            assert (*queue, entry["cqOffset"]) in {key_of(row) for row in listed}
        listed = rows("query-id", node.store, entry["message"]["msgId"], *node.options())
        assert (*queue, entry["cqOffset"]) in {key_of(row) for row in listed}
        assert "in the tier alone and read there" in rmqtool("trace", node.store, entry["message"]["msgId"]).err


@pytest.mark.parametrize("case", ALONE)
def test_a_pull_goes_on_where_the_tier_ends(case: str, left: Get) -> None:
    node, offset, listed = left(case), 0, []
    while True:
        got = rows("query-offset", node.store, "Invoices", 0, offset, "--max-msgs", 7, *node.options())
        if not got:
            break
        listed += [row["queueOffset"] for row in got]
        offset = listed[-1] + 1
    assert listed == [at for topic, queue, at in sorted(served(case)) if (topic, queue) == ("Invoices", 0)]
    (pull,) = rows("query-offset", node.store, "Invoices", 0, 3, "--status", *node.options())
    assert (pull["status"], pull["minOffset"], pull["maxOffset"]) == ("FOUND", 0, len(listed))


@pytest.mark.parametrize("case", ALONE)
def test_a_time_is_looked_for_in_both(case: str, left: Get) -> None:
    node = left(case)
    times = sorted(
        (entry["cqOffset"], entry["message"]["storeTimestamp"])
        for entry in roles.served(case)
        if (entry["cqTopic"], entry["cqQueueId"]) == ("Invoices", 1)
    )
    for _offset, time in times[::11]:
        (row,) = rows("query-time", node.store, "Invoices", 1, time, *node.options())
        assert row["offset"] == next(at for at, stored in times if stored >= time)
        assert row["storeTimestamp"] >= time


@by_turns(13)
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("case", ALONE)
def test_a_query_counts_them(case: str, left: Get) -> None:
    node = left(case)
    sql = "select topic, queueId, count(*) as n, min(queueOffset) as low from messages group by topic, queueId"
    listed = {
        (row["topic"], row["queueId"]): (row["n"], row["low"]) for row in rows("sql", node.store, sql, *node.options())
    }
    told: dict[tuple[str, int], list[int]] = {}
    for topic, queue, at in served(case):
        told.setdefault((topic, queue), []).append(at)
    assert listed == {key: (len(offsets), min(offsets)) for key, offsets in told.items()}
    (row,) = rows("sql", node.store, "select count(*) as n from messages where topic = 'History'", *node.options())
    assert row["n"] == 39


@pytest.mark.parametrize("case", ALONE)
def test_retries_are_listed_from_both(case: str, left: Get) -> None:
    node = left(case)
    told = {at: entry["message"]["msgId"] for (topic, _queue, at), entry in served(case).items() if topic[0] == "%"}
    listed = [row for row in rows("retry", "list", node.store, *node.options()) if row["state"] != "scheduled"]
    assert {row["queueOffset"]: row["msgId"] for row in listed} == told
    assert len(listed) == len(told) == 2


@pytest.mark.parametrize("case", ALONE)
def test_the_library_reads_both(case: str, left: Get) -> None:
    node = left(case)
    told = {key: entry["message"]["bodySha256"] for key, entry in served(case).items()}

    def digests(messages: Iterable[StoredMessage]) -> list[tuple[Key, str]]:
        return [
            ((message.topic, message.queue_id, message.queue_offset), hashlib.sha256(message.body).hexdigest())
            for message in messages
        ]

    with Store(node.store, broker_conf=str(node.conf)) as store:
        every = digests(store.messages())
        assert len(every) == len(told)
        assert dict(every) == told
        assert len(digests(store.messages(topic="History"))) == 39
        local = digests(store.messages(0))  # positions in the tier are others
        assert len(local) == sum(entry["local"] for entry in roles.served(case))
        ends: dict[tuple[str, int], list[int]] = {}
        for topic, queue_id, offset in sorted(told):
            ends.setdefault((topic, queue_id), []).append(offset)
        ranges = {(queue.topic, queue.queueId): queue for queue in store.queues()}
        for (topic, queue_id), offsets in ends.items():
            assert (ranges[topic, queue_id].minOffset, ranges[topic, queue_id].maxOffset) == (
                offsets[0], offsets[-1] + 1,
            )  # fmt: skip
            read = digests(store.queue_messages(topic, queue_id))
            assert read == [((topic, queue_id, at), told[topic, queue_id, at]) for at in offsets]
            part = digests(store.queue_messages(topic, queue_id, 3, offsets[-1] - 2))
            assert part == [digest for digest in read if 3 <= digest[0][2] < offsets[-1] - 2]
            assert digests(store.get(topic, queue_id, offsets[0]).messages)[:1] == read[:1]
        for entry in [entry for entry in roles.served(case) if not entry["local"]][::29]:
            key = entry["cqTopic"], entry["cqQueueId"], entry["cqOffset"]
            for word in entry["message"].get("keys", "").split()[:1]:
                assert key in dict(digests(store.query_key(entry["cqTopic"], word)))
        assert any("in the tier alone and read there" in text for text in store.warnings)


def test_a_range_of_the_log_is_of_the_log_alone(left: Get) -> None:
    node = left(TIERED)
    local = sum(entry["local"] for entry in roles.served(TIERED))
    result = rmqtool("commitlog", "dump", node.store, "--offset", "122880:", "--output", "ndjson", *node.options())
    assert len(result.out.splitlines()) == local
    assert "229 messages of 11 queues are not shown" in result.err


# -- into another store -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["salvage", "export"])
@pytest.mark.parametrize("case", ALONE)
def test_another_store_has_each_message_once(verb: str, case: str, left: Get, tmp_path: Path) -> None:
    node = left(case)
    before = prints(node.store)
    result = rmqtool(verb, node.store, tmp_path / "new", *node.options(), "--output", "json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert (report["messages"], report["takenFromTier"], report["notTaken"]) == (len(served(case)), ALONE[case], [])
    assert (report["renumbered"], report["duplicates"], report["lostRangeCount"]) == ([], 0, 0)
    assert prints(node.store) == before
    same_bodies(rows("commitlog", "dump", tmp_path / "new"), case)
    assert {key_of(row) for row in rows("consumequeue", "dump", tmp_path / "new")} == set(served(case))
    assert {finding["severity"] for finding in rows("check", tmp_path / "new")} <= {"info"}
    offsets = "config/consumerOffset.json"
    assert (node.store / offsets).read_text() == (tmp_path / "new" / offsets).read_text()
    assert not (tmp_path / "new" / "config" / "tieredStoreMetadata.json").exists()


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_and_so_has_a_file(form: str, left: Get, tmp_path: Path) -> None:
    node = left(TIERED)
    result = rmqtool("salvage", node.store, "--to", form, tmp_path / "file", *node.options(), "--output", "json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["messages"] == 370
    if form == "ndjson":
        same_bodies([json.loads(line) for line in (tmp_path / "file").read_text().splitlines()], TIERED)


@pytest.fixture
def damaged(left: Get, tmp_path: Path) -> Node:
    """A damaged copy."""
    node = left(TIERED)
    shutil.copytree(node.store, tmp_path / "a")
    conf = tmp_path / "a.conf"
    conf.write_text(node.conf.read_text().replace(str(node.store.parent), str(tmp_path)))
    return Node(tmp_path / "a", conf)


def segment(node: Node, topic: str, kind: str, number: int = 0) -> Path:
    (folder,) = (node.store / "tiered").glob(f"*/*/{topic}/0/{kind}")
    return sorted(folder.iterdir(), key=lambda path: path.name[8:])[number]


def lose_local_queues(node: Node) -> None:
    shutil.rmtree(node.store / "consumequeue")


def lose_log_head(node: Node) -> None:
    sorted((node.store / "commitlog").iterdir())[0].unlink()


def damage_tier(node: Node) -> None:
    path = segment(node, "History", "COMMIT_LOG")
    data = bytearray(path.read_bytes())
    data[1000:1100] = bytes(100)
    path.write_bytes(data)


def lose_metadata(node: Node) -> None:
    for path in (node.store / "config").glob("tieredStoreMetadata.json*"):
        path.unlink()


# messages that are lost for good
@pytest.mark.parametrize(
    ("damage", "lost"), [(lose_local_queues, 0), (lose_log_head, None), (damage_tier, 1), (lose_metadata, 0)]
)
def test_each_message_stands_once_whatever_is_damaged(
    damage: Callable[[Node], None], lost: int | None, damaged: Node, tmp_path: Path
) -> None:
    damage(damaged)
    report = Salvage(layout_of(damaged), str(tmp_path / "new")).run()
    listed = rows("commitlog", "dump", tmp_path / "new")
    bodies = [sha(row) for row in listed]
    told = [entry["message"]["bodySha256"] for entry in roles.served(TIERED)]
    assert report.messages == len(listed)
    assert sorted(set(bodies)) == sorted(set(bodies) & set(told))
    assert lost is None or len(listed) == 370 - lost
    assert "error" not in {finding["severity"] for finding in rows("check", tmp_path / "new")}
    if damage is lose_log_head:  # what was in both comes out of the tier
        assert len(listed) > 370 - 30


@pytest.mark.parametrize("case", ALONE)
def test_a_dump_that_is_repeated_has_them_from_its_first_run(case: str, left: Get, tmp_path: Path) -> None:
    import pyarrow.dataset as ds

    node, args = left(case), ("--runner", "local", "--since-last")
    for _run in range(2):
        result = rmqtool("dump-to-parquet", node.store, tmp_path / "out", *args, *node.options())
        assert result.code == 0, result.err
        table = ds.dataset(tmp_path / "out").to_table(columns=["topic", "queueId", "queueOffset", "body"]).to_pylist()
        assert len(table) == len(served(case))
        assert {key_of(row): hashlib.sha256(row["body"]).hexdigest() for row in table} == {
            key: entry["message"]["bodySha256"] for key, entry in served(case).items()
        }
