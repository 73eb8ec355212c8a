"""After each command allowed by the table of roles, real brokers serve the same messages, and replicas follow."""

import base64
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.message.bodies import decompress
from formats.message.read import Record, read
from tests import roles
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.interop import broker as brokers
from tests.interop.broker import Broker
from tests.interop.engine import NEWEST
from tests.roles import DLEDGER, NEW_TIERED, TIERED, Node

pytestmark = pytest.mark.interop

PULL_MESSAGE, MAX_OFFSET, MIN_OFFSET = 11, 30, 31
FOUND = 0
_OF_BROKERS = ("SCHEDULE", "RMQ_SYS", "rmq_sys")

REBUILD = ("rebuild", "STORE", "consumequeue", "index", "checkpoint", "--yes")
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "nothing": (),
    "recover without queues": (("recover", "STORE", "--yes"),),
    "dispatch": (("dispatch", "STORE"),),
    "rebuild queues": (REBUILD,),
    "rebuild files and config": (("rebuild", "STORE", "files", "--yes"), ("rebuild", "STORE", "config", "--yes")),
    "clean": (("clean", "STORE", "--hours", "0", "--yes", "--accept-loss"),),
    "metadata from the segments": (("rebuild", "STORE", "tiered-metadata", "--yes"),),
    "append": (("append", "STORE", "LINES"),),
    "append and undo": (("append", "STORE", "LINES"), REBUILD, ("undo", "STORE", "--yes")),
    "append and truncate": (("append", "STORE", "LINES"), ("truncate", "STORE", "END", "--yes")),
    "rebuild timer": (("rebuild", "STORE", "timer", "--yes"),),
    "group reset and clone": (
        ("group", "reset", "STORE", "billing", "--to-earliest", "--yes"),
        ("group", "clone", "STORE", "billing", "other", "--yes"),
    ),
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(c, marks=pytest.mark.xdist_group(f"broker-{c[-5:]}")) for c in (TIERED, NEW_TIERED)],
)
def case(request: pytest.FixtureRequest) -> str:
    """The name of a tiered store, which ends with its broker's release."""
    return str(request.param)


@pytest.fixture(scope="module")
def recovered(case: str, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """The tiered store after ``recover``, read-only."""
    node = roles.unpack(case, "a", tmp_path_factory.mktemp("tiered"))
    assert rmqtool("recover", node.store, "--yes", *node.options()).code == 0
    return node


@pytest.fixture(scope="module")
def its_broker(case: str, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of the release that wrote the store."""
    if not case.endswith(NEWEST):
        yield request.getfixturevalue("broker_5")
        return
    if reason := brokers.available(NEWEST):
        pytest.skip(reason)
    with Broker(NEWEST) as running:
        yield running


def of_queue(row: dict[str, Any]) -> tuple[str, int]:
    return row["cqTopic"], row["cqQueueId"]


def pull_fields(topic: str, queue_id: int, at: int) -> dict[str, str]:
    """Header of a pull."""
    return {
        "consumerGroup": "judge", "topic": topic, "queueId": str(queue_id), "queueOffset": str(at), "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip


def walk(broker: Broker, topic: str, queue_id: int, start: int, stop: int) -> None:
    """Pull a queue between two offsets, and check that it is complete."""
    at = start
    while at < stop:
        answer = broker.ask("request", code=PULL_MESSAGE, fields=pull_fields(topic, queue_id, at))
        assert answer["code"] == FOUND, (topic, queue_id, at, answer)
        following = int(answer["fields"]["nextBeginOffset"])
        assert at < following, (topic, queue_id, at, answer)
        at = following


@by_turns(23)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_tiered_broker_serves_what_it_served(
    name: str, case: str, recovered: Node, its_broker: Broker, tmp_path: Path
) -> None:
    shutil.copytree(recovered.store, tmp_path / "a")
    conf = tmp_path / "a.conf"
    conf.write_text(recovered.conf.read_text().replace(str(recovered.store.parent), str(tmp_path)))
    node = Node(tmp_path / "a", conf)
    (lines := tmp_path / "lines").write_text('{"topic": "History", "queueId": 0, "body": "one more"}\n')
    if name == "metadata from the segments":
        for path in (node.store / "config").glob("tieredStoreMetadata.json*"):
            path.unlink()
    if name == "recover without queues":
        for topic in ("History", "%RETRY%billing", "Events"):  # two of them in the tier alone
            shutil.rmtree(node.store / "consumequeue" / topic)
    info = json.loads(rmqtool("info", node.store, "-o", "json", *node.options()).out)
    values = {"STORE": node.store, "LINES": lines, "END": info["maxPhyOffset"]}
    for args in COMMANDS[name]:
        result = rmqtool(*(values.get(word, word) for word in args), *node.options())
        assert result.code == 0, result.err
    its_broker.boot(node.store, node.settings)
    try:
        served: dict[tuple[str, int], list[int]] = {}
        for row in roles.served(case):
            served.setdefault(of_queue(row), []).append(row["cqOffset"])
        for (topic, queue_id), offsets in sorted(served.items()):
            if topic.startswith(_OF_BROKERS):
                continue  # not in the tier: what is local goes on
            place = {"topic": topic, "queueId": str(queue_id)}
            low = its_broker.ask("request", code=MIN_OFFSET, fields=place)["fields"]["offset"]
            high = its_broker.ask("request", code=MAX_OFFSET, fields=place)["fields"]["offset"]
            assert int(low) == min(offsets), (topic, queue_id)
            assert int(high) > max(offsets), (topic, queue_id)
            walk(its_broker, topic, queue_id, min(offsets), max(offsets) + 1)
        appended = int(name in ("append", "append and undo"))
        walk(its_broker, "History", 0, 13, 13 + appended)
        sent = its_broker.ask("send", topic="History", keys="next", queueId=0)
        assert sent["queueOffset"] == 13 + appended  # behind all that the tier has
    finally:
        its_broker.stop()


_OF_THE_FORM = ("messageStorePlugIn", "tiered", "enableDLeger", "dLeger", "preferredLeaderId")
EXPORTED = [(roles.OLD_DLEDGER, "n0"), (DLEDGER, "n0"), (DLEDGER, "n2"), (TIERED, "a"), (NEW_TIERED, "a")]


@pytest.fixture
def exporting_broker(form: str, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of the release that wrote a form."""
    if form.endswith(NEWEST):
        if reason := brokers.available(NEWEST):
            pytest.skip(reason)
        with Broker(NEWEST) as running:
            yield running
    else:
        yield request.getfixturevalue("broker_4" if form == roles.OLD_DLEDGER else "broker_5")


def pull_all(broker: Broker, topic: str, queue_id: int, end: int) -> dict[int, Record]:
    """Every message of a queue up to an offset."""
    return {record.queue_offset: record for record in pull_records(broker, topic, queue_id, end)}


def pull_records(broker: Broker, topic: str, queue_id: int, end: int, *, crc: bool = True) -> Iterator[Record]:
    """What a broker serves of a queue up to an offset; without ``crc`` also messages with a rotten body."""
    at = 0
    while at < end:
        answer = broker.ask("request", code=PULL_MESSAGE, fields=pull_fields(topic, queue_id, at))
        assert answer["code"] == FOUND, (topic, queue_id, at, answer)
        body, place = base64.b64decode(answer["base64"]), 0
        while place < len(body):
            record = read(body, place, len(body), crc=crc)
            assert isinstance(record, Record), record
            yield record
            place += record.total_size
        at = int(answer["fields"]["nextBeginOffset"])


@by_turns(11)
@pytest.mark.parametrize(
    ("form", "member"),
    [pytest.param(f, m, marks=pytest.mark.xdist_group(f"broker-{f[-5:]}")) for f, m in EXPORTED],
)
def test_a_broker_serves_what_was_exported(form: str, member: str, exporting_broker: Broker, tmp_path: Path) -> None:
    """The messages of the tier, or of a DLedger log, in an ordinary store: those that their own brokers served."""
    node = roles.unpack(form, member, tmp_path)
    assert rmqtool("export", node.store, tmp_path / "new", *node.options()).code == 0
    facts: dict[tuple[str, int], dict[int, str]] = {}  # of a queue: offset to digest of the body
    for row in roles.served(form):
        if row.get("afterStart") or row["message"] is None or row["cqTopic"].startswith(_OF_BROKERS):
            continue
        facts.setdefault(of_queue(row), {})[row["cqOffset"]] = row["message"]["bodySha256"]
    if member == "n2":  # it was alone for a while: the others have other messages in place of its last ones
        facts = {}
    for entry in roles.entries_of(form, member) if "dledger" in form else ():
        queue = entry["topic"], entry["queueId"]
        if not entry["topic"].startswith(_OF_BROKERS) and entry["queueOffset"] not in facts.get(queue, {}):
            facts.setdefault(queue, {})[entry["queueOffset"]] = entry["bodySha256"]
    assert len(facts) > 5
    settings = {name: value for name, value in node.settings.items() if not name.startswith(_OF_THE_FORM)}
    exporting_broker.boot(tmp_path / "new", settings)
    try:
        for (topic, queue_id), messages in sorted(facts.items()):
            records = pull_all(exporting_broker, topic, queue_id, max(messages) + 1)
            digests = {
                offset: hashlib.sha256(decompress(record.body, record.sys_flag)).hexdigest()
                for offset, record in records.items()
            }
            assert {offset: digests.get(offset) for offset in messages} == messages, (topic, queue_id)
            sent = exporting_broker.ask("request", code=MAX_OFFSET, fields={"topic": topic, "queueId": str(queue_id)})
            assert int(sent["fields"]["offset"]) > max(messages)
    finally:
        exporting_broker.stop()
