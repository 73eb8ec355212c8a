"""For a store and a live cluster that serves it, fields, types, order and exit codes are the same."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import ROOT, Result, rmqtool
from tests.interop.serving import CLUSTER, Serving

Row = dict[str, Any]
# fields that no broker reports, and fields only of a cluster
UNTOLD = {"bytes", "inFlight", "size"}
BEYOND = {"brokerName", "brokers"}
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"  # missing from the topic table of 4.9, which therefore does not report its queues


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live") / "store"
    shutil.copytree(ROOT / "examples" / "store", folder)
    return folder


@pytest.fixture(scope="module")
def target(store: Path) -> Iterator[str]:
    with Serving(store, "--read-only") as served:
        yield f"rocketmq://{served.namesrv}/{CLUSTER}"


def read_rows(result: Result, form: str) -> list[Row]:
    assert result.out, result.err
    if form == "json":
        parsed = json.loads(result.out)
        return parsed if isinstance(parsed, list) else [parsed]
    return [json.loads(line) for line in result.out.splitlines()]


def both(command: str, store: Path, target: str, form: str = "ndjson") -> tuple[list[Row], list[Row]]:
    """Rows of the store and of the cluster, after comparing exit codes."""
    results = [rmqtool(*command.format(where).split(), "-o", form) for where in (store, target)]
    assert results[0].code == results[1].code, (results[0].err, results[1].err)
    return read_rows(results[0], form), read_rows(results[1], form)


def check_same(of_store: list[Row], of_cluster: list[Row]) -> None:
    """Compare rows, except for fields that only one of them has."""
    for row in of_cluster:
        for name in BEYOND & row.keys():
            assert list(row)[-1] == name, "a field of clusters alone is the last one"
            del row[name]
    assert [list(row) for row in of_cluster] == [list(row) for row in of_store]
    for ours, theirs in zip(of_cluster, of_store, strict=True):
        for name in UNTOLD & ours.keys():
            assert ours.pop(name) is None, "what is not told is null, never 0"
            theirs.pop(name)
    assert of_cluster == of_store


def test_topics(store: Path, target: str) -> None:
    of_store, of_cluster = both("topic list {}", store, target)
    check_same(of_store, of_cluster)
    of_store, of_cluster = both("topic list {} --system", store, target)
    assert {row["topic"] for row in of_store} == {row["topic"] for row in of_cluster} | {OP}
    check_same([row for row in of_store if row["topic"] != OP], of_cluster)
    check_same(*both("topic list {} --topic Ord*", store, target, "json"))


def test_unused_topics(store: Path, target: str, tmp_path: Path) -> None:
    for where in (store, target):
        assert "no topic is unused" in rmqtool("topic", "unused", where).err
    copy = shutil.copytree(store, tmp_path / "store")
    offsets, groups = (copy / "config" / f"{name}.json" for name in ("consumerOffset", "subscriptionGroup"))
    offsets.write_text(offsets.read_text().replace("Batched@", "Gone@"))
    groups.write_text(groups.read_text().replace("lab-orderly", "gone"))
    with Serving(copy, "--read-only") as served:
        of_store, of_cluster = both("topic unused {}", copy, f"rocketmq://{served.namesrv}")
    assert [(row["topic"], row["reason"]) for row in of_store] == [
        ("%RETRY%lab-orderly", "its group is not in subscriptionGroup.json"),
        ("Batched", "no group has an offset in it"),
    ]
    check_same(of_store, of_cluster)


def test_offsets_that_differ(store: Path, target: str, tmp_path: Path) -> None:
    for words in ((store, target), (target, store), (target, target)):
        assert "no offset differs" in rmqtool("group", "diff", *words).err
    copy = shutil.copytree(store, tmp_path / "store")
    offsets = copy / "config" / "consumerOffset.json"
    offsets.write_text(offsets.read_text().replace("1:106", "1:100"))
    saved = tmp_path / "offsets.csv"
    saved.write_text(rmqtool("group", "offsets", target, "-o", "csv").out)
    for other in (target, saved):
        (row,) = read_rows(rmqtool("group", "diff", copy, other, "-o", "ndjson"), "ndjson")
        assert (row["topic"], row["queueId"], row["offset"], row["change"]) == ("Orders", 1, 100, 6)
    assert rmqtool("group", "diff", target, copy, "--broker", "lab-a").code == 1
    assert rmqtool("group", "diff", target, copy, "--broker", "lab-x").code == 2


@pytest.mark.parametrize("topic", ["Orders", "Batched", "%RETRY%lab-consumer"])
def test_one_topic(topic: str, store: Path, target: str) -> None:
    of_store, of_cluster = both(f"topic show {{}} {topic}", store, target, "json")
    ours, theirs = of_cluster[0].pop("queueTable"), of_store[0].pop("queueTable")
    check_same(of_store, of_cluster)
    empty = [queue for queue in ours if not queue["maxOffset"]]
    assert not any(queue["firstStoreTimestamp"] for queue in empty), "a directory has no files of those"
    check_same(theirs, [queue for queue in ours if queue["maxOffset"]])


def test_groups(store: Path, target: str) -> None:
    of_store, of_cluster = both("group list {}", store, target)
    unknown = [row for row in of_cluster if row["group"] == "CID_RMQ_SYS_TRANS"]
    assert [row["diff"] for row in unknown] == [None], "one of its queues is not told, so its sum is not known"
    known = [row["group"] for row in of_cluster if row not in unknown]
    kept = [[row for row in rows if row["group"] in known] for rows in (of_store, of_cluster)]
    check_same(*kept)


def test_lag(store: Path, target: str) -> None:
    of_store, of_cluster = both("group lag {} --group lab-*", store, target)
    assert len(of_cluster) > 15
    # a directory has no files of queues without a message
    check_same(*([row for row in rows if row["brokerOffset"]] for rows in (of_store, of_cluster)))
    for arguments in ("--by topic", "--by group", "--by topic --topic Ord*"):
        check_same(*both(f"group lag {{}} --group lab-* {arguments}", store, target))
    for arguments in ("--lagging", "--queue 1 --limit 2 --topic Orders"):
        results = [rmqtool("group", "lag", where, "--group", "lab-*", *arguments.split()) for where in (store, target)]
        assert results[0].code == results[1].code == 0


def test_offsets(store: Path, target: str) -> None:
    for arguments in (
        "group offsets {}",
        "group offsets {} --group lab-orderly --queue 0",
        "offsets {} --topic Orders",
    ):
        check_same(*both(arguments, store, target))
    of_store, of_cluster = both("offsets {}", store, target)
    assert [row["brokerOffset"] for row in of_cluster if row["topic"] == OP] == [None]
    keys = [(row["topic"], row["queueId"]) for row in of_cluster if row["brokerOffset"]]
    check_same(*([row for row in rows if (row["topic"], row["queueId"]) in keys] for rows in (of_store, of_cluster)))


def test_messages(store: Path, target: str) -> None:
    all_of_them, _ = both("query-offset {} Orders 2 0 --max-msgs 32", store, target)
    message = all_of_them[3]
    for arguments in (
        "query-key {} Orders order-65", f"query-id {{}} {message['offsetMsgId']}", f"query-id {{}} {message['msgId']}",
        f"query-id {{}} {message['msgId']} --topic Ord*", "query-offset {} Orders 2 7 --max-msgs 5",
        "query-offset {} Orders 2 0 --status", "query-offset {} Orders 2 9999 --status",
        f"query-time {{}} Orders 2 {message['storeTimestamp']}",
    ):  # fmt: skip
        of_store, of_cluster = both(arguments, store, target)
        assert of_cluster, arguments
        check_same(of_store, of_cluster)


@pytest.mark.parametrize(
    "command",
    [
        "retry list {}", "retry list {} --group lab-consumer --state dead --limit 3", "dlq list {}", "dlq export {}",
        "dlq export {} --group lab-* --topic Orders --body base64", "delay list {}", "delay list {} --all",
        "delay list {} --at 2026-11-20T20:35:00Z", "delay due {} --all --at 2026-11-20T20:35:00Z", "delay due {}",
        "rebalance plan {} Orders -c one -c two -c three --broker lab-a", "rebalance plan {} Orders -c one --was two"
    ],
)  # fmt: skip
def test_what_waits(command: str, store: Path, target: str) -> None:
    of_store, of_cluster = both(command, store, target)
    if command.startswith("rebalance plan"):  # a field of both: a directory does not know the broker's name
        for row in (*of_store, *of_cluster):
            del row["brokerName"]
    assert of_cluster
    check_same(of_store, of_cluster)


def test_transactions(store: Path, target: str) -> None:
    """What ends a transaction is in a topic that brokers of 4.9 do not have in their table, but in a queue."""
    of_store, of_cluster = both("transaction list {}", store, target)
    assert {row["state"] for row in of_cluster} == {"committed", "given-up", "rolled-back"}
    check_same(of_store, of_cluster)
    assert rmqtool("transaction", "list", target).err == ""
    some = rmqtool("transaction", "list", target, "--state", "committed", "-o", "ndjson")
    shown = rmqtool("transaction", "show", target, json.loads(some.out.splitlines()[0])["msgId"], "-o", "json")
    assert (shown.code, json.loads(shown.out)["state"]) == (0, "committed")
    assert rmqtool("transaction", "show", target, "nobody").code == 1


def test_transactions_of_a_broker_that_has_just_started(store: Path, tmp_path: Path) -> None:
    """Brokers of 4.9 list the topic of half messages only a minute after their first start."""
    new = shutil.copytree(store, tmp_path / "store")
    topics = new / "config" / "topics.json"
    table = json.loads(topics.read_text())
    del table["topicConfigTable"]["RMQ_SYS_TRANS_HALF_TOPIC"]
    topics.write_text(json.dumps(table))
    (new / "config" / "topics.json.bak").unlink(missing_ok=True)
    with Serving(new, "--read-only") as served:
        target = f"rocketmq://{served.namesrv}/{CLUSTER}"
        listed = rmqtool("topic", "list", target, "RMQ_SYS_TRANS_HALF_TOPIC", "--system", "-o", "ndjson")
        check_same(*both("transaction list {}", store, target))
    assert listed.out == "", "otherwise nothing is shown"


@pytest.mark.parametrize(
    "message_id",
    [
        "FD0000000000000000000000000000020FB630946E09664343CD0000",  # sent back until it was a dead letter
        "FD0000000000000000000000000000020FB630946E09664346B10041",
        "7F000001000078BF000000000001FC89",  # a copy of it in the schedule topic
    ],
)
def test_trace(message_id: str, store: Path, target: str) -> None:
    ((of_store,), (of_cluster,)) = both(f"trace {{}} {message_id}", store, target, "json")
    for name in ("events", "groups"):
        ours, theirs = of_cluster.pop(name), of_store.pop(name)
        for row in (*ours, *theirs):
            row.pop("why", None)  # a cluster does not tell resets and filters
        check_same(theirs, ours)
    assert of_cluster == of_store
    table = rmqtool("trace", target, message_id)
    assert "stored" in table.out
    assert rmqtool("trace", target, message_id, "-o", "csv").out.count("\n") > 1


def test_trace_of_a_transaction(store: Path, target: str) -> None:
    rows = read_rows(rmqtool("transaction", "list", store, "-o", "ndjson"), "ndjson")
    ids = {state: next(row["msgId"] for row in rows if row["state"] == state) for state in ("committed", "rolled-back")}
    for state in ids:
        trace = json.loads(rmqtool("trace", target, ids[state], "-o", "json").out)
        assert trace["state"] == state
        assert trace["transaction"]["msgId"] == ids[state]
    assert rmqtool("trace", target, "nobody").code == rmqtool("trace", store, "nobody").code == 1


@pytest.mark.parametrize(
    "command",
    [
        "query-key {} Orders nokey", "query-key {} Nowhere key", "query-id {} X", "query-offset {} Orders 2 9999",
        "query-offset {} Nowhere 0 0", "query-offset {} Orders 77 0", "topic show {} Nowhere", "topic list {} Nowhere",
        "group lag {} --group nobody", "offsets {} --topic Nowhere", "query-time {} Nowhere 0 now",
        "query-id {} C0A8070100002A9F0000000000000B33", "retry list {} --group nobody", "dlq list {} --group nobody",
        "transaction list {} --topic nowhere", "delay due {} --level 17", "rebalance plan {} Nowhere -c one",
        f"query-id {{}} {'0' * 32} --topic Batched",
    ],
)  # fmt: skip
def test_nothing_is_an_answer_with_the_same_code(command: str, store: Path, target: str) -> None:
    results = [rmqtool(*command.format(where).split()) for where in (store, target)]
    assert [result.code for result in results] == [1, 1], [result.err for result in results]
    assert all(result.err for result in results)


def test_keys_beyond_one_answer(store: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqtool.admin.live import messages

    rows = [json.loads(line) for line in rmqtool("commitlog", "dump", store, "-o", "ndjson").out.splitlines()]
    times = [row["storeTimestamp"] for row in rows if "user-0" in row["keys"] and row["topic"] == "Orders"]
    most = max(sum(time - 1000 < other <= time for other in times) for time in times)  # in the same second
    assert len(times) > most + 2
    monkeypatch.setattr(messages, "_PAGE", most + 2)
    of_store, of_cluster = both("query-key {} Orders user-0", store, target)
    assert len(of_store) == len(times)
    check_same(of_store, of_cluster)

    monkeypatch.setattr(messages, "_PAGE", 2)
    monkeypatch.setattr(messages, "_FEW", 2)
    result = rmqtool("query-key", target, "Orders", "user-0")
    assert result.code == 1
    assert "2 messages of topic Orders with key user-0 are of the same second" in result.err, "no cap without a word"


def test_config(store: Path, target: str) -> None:
    for name in ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json"):
        of_store, of_cluster = both(f"config {{}} {name}", store, target, "json")
        keys = {"topics.json": "topicConfigTable", "subscriptionGroup.json": "subscriptionGroupTable"}
        key = keys.get(name, "offsetTable")
        assert of_cluster[0][key].keys() >= of_store[0][key].keys()
    of_store, of_cluster = both("config {}", store, target)
    assert of_store[0].keys() < of_cluster[0].keys()
    assert all(row["bytes"] is None and row["readable"] for row in of_cluster)


def test_info(store: Path, target: str) -> None:
    of_store, of_cluster = both("info {}", store, target, "json")
    assert list(of_cluster[0]) == [*of_store[0], "brokers"]
    assert set(of_cluster[0]["groups"]) >= set(of_store[0]["groups"])
    for name in ("minPhyOffset", "firstStoreTimestamp"):
        assert of_cluster[0][name] == of_store[0][name]
    for name in ("files", "checkpoint", "lock", "roles", "configs"):
        assert of_cluster[0][name] is None


def test_brokers(target: str) -> None:
    rows = read_rows(rmqtool("cluster", "list", target, "-o", "json"), "json")
    assert [(row["brokerName"], row["role"], row["version"]) for row in rows] == [("lab-a", "master", "V4_9_8")]
    assert rows[0]["commitLogDiskRatio"] > 0
    assert rows[0]["timerReadBehind"] is None, "4.9 has no timers"
    settings = read_rows(rmqtool("broker-config", "show", target, "lab-a", "--name", "broker*", "-o", "json"), "json")
    assert {"brokerName": "lab-a", "brokerClusterName": CLUSTER}.items() <= {
        row["name"]: row["value"] for row in settings
    }.items()
    assert rmqtool("broker-config", "show", target, "nobody").code == 1
    assert rmqtool("client", "list", target, "--group", "nobody").code == 1


def test_reading_leaves_the_broker_as_it_was(store: Path, target: str) -> None:
    before = read_rows(rmqtool("cluster", "list", target, "-o", "json"), "json")[0]["commitLogMaxOffset"]
    rmqtool("query-offset", target, "Orders", "0", "9999")  # 4.9 stores a message about a pull from there
    rmqtool("topic", "show", target, "Nowhere")
    rmqtool("group", "lag", target)
    assert read_rows(rmqtool("cluster", "list", target, "-o", "json"), "json")[0]["commitLogMaxOffset"] == before
