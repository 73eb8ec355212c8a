"""After each command allowed by the table of roles, real brokers serve the same messages, and replicas follow."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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

REBUILD = ("rebuild", "STORE", "consumequeue", "index", "checkpoint", "--yes")
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "nothing": (),
    "recover without queues": (("recover", "STORE", "--yes"),),
    "dispatch": (("dispatch", "STORE"),),
    "rebuild queues": (REBUILD,),
    "rebuild files and config": (("rebuild", "STORE", "files", "--yes"), ("rebuild", "STORE", "config", "--yes")),
    "clean": (("clean", "STORE", "--hours", "0", "--yes", "--accept-loss"),),
    "append": (("append", "STORE", "LINES"),),
    "append and undo": (("append", "STORE", "LINES"), REBUILD, ("undo", "STORE", "--yes")),
    "group reset": (("group", "reset", "STORE", "billing", "--to-earliest", "--yes"),),
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
    with Broker(NEWEST) as one:
        yield one


def of_queue(row: dict[str, Any]) -> tuple[str, int]:
    return row["cqTopic"], row["cqQueueId"]


def walk(broker: Broker, topic: str, queue_id: int, start: int, stop: int) -> None:
    """Pull a queue between two offsets, and check that it is complete."""
    at = start
    while at < stop:
        fields = {
            "consumerGroup": "judge", "topic": topic, "queueId": str(queue_id), "queueOffset": str(at),
            "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        answer = broker.ask("request", code=PULL_MESSAGE, fields=fields)
        assert answer["code"] == FOUND, (topic, queue_id, at, answer)
        following = int(answer["fields"]["nextBeginOffset"])
        assert at < following, (topic, queue_id, at, answer)
        at = following


@by_turns(7)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_tiered_broker_serves_what_it_served(
    name: str, case: str, recovered: Node, its_broker: Broker, tmp_path: Path
) -> None:
    shutil.copytree(recovered.store, tmp_path / "a")
    conf = tmp_path / "a.conf"
    conf.write_text(recovered.conf.read_text().replace(str(recovered.store.parent), str(tmp_path)))
    node = Node(tmp_path / "a", conf)
    (lines := tmp_path / "lines").write_text('{"topic": "History", "queueId": 0, "body": "one more"}\n')
    if name == "recover without queues":
        for topic in ("History", "%RETRY%billing", "Events"):  # two of them in the tier alone
            shutil.rmtree(node.store / "consumequeue" / topic)
    for words in COMMANDS[name]:
        result = rmqtool(*({"STORE": node.store, "LINES": lines}.get(w, w) for w in words), *node.options())
        assert result.code == 0, result.err
    its_broker.boot(node.store, node.settings)
    try:
        served: dict[tuple[str, int], list[int]] = {}
        for row in roles.served(case):
            served.setdefault(of_queue(row), []).append(row["cqOffset"])
        for (topic, queue_id), offsets in sorted(served.items()):
            if topic.startswith(("SCHEDULE", "RMQ_SYS", "rmq_sys")):
                continue  # not in the tier: what is local goes on
            place = {"topic": topic, "queueId": str(queue_id)}
            low = its_broker.ask("request", code=MIN_OFFSET, fields=place)["fields"]["offset"]
            high = its_broker.ask("request", code=MAX_OFFSET, fields=place)["fields"]["offset"]
            assert int(low) == min(offsets), (topic, queue_id)
            assert int(high) > max(offsets), (topic, queue_id)
            walk(its_broker, topic, queue_id, min(offsets), max(offsets) + 1)
        appended = int(name.startswith("append"))
        walk(its_broker, "History", 0, 13, 13 + appended)
        sent = its_broker.ask("send", topic="History", keys="next", queueId=0)
        assert sent["queueOffset"] == 13 + appended  # behind all that the tier has
    finally:
        its_broker.stop()


_OF_THE_FORM = ("messageStorePlugIn", "tiered", "enableDLeger", "dLeger", "preferredLeaderId")


@by_turns(2)
@pytest.mark.xdist_group("broker-5.3.3")
@pytest.mark.parametrize(("form", "member"), [(TIERED, "a"), (DLEDGER, "n0"), (DLEDGER, "n2")])
def test_a_broker_serves_what_was_exported(form: str, member: str, broker_5: Broker, tmp_path: Path) -> None:
    """The messages of the tier, or of a DLedger log, in an ordinary store."""
    node = roles.unpack(form, member, tmp_path)
    assert rmqtool("export", node.store, tmp_path / "new", *node.options()).code == 0
    bodies: dict[tuple[str, int], int] = {}
    if form == TIERED:
        for row in roles.served(form):
            bodies[of_queue(row)] = max(bodies.get(of_queue(row), 0), row["cqOffset"] + 1)
    else:
        for entry in roles.entries_of(form, member):
            queue = entry["topic"], entry["queueId"]
            bodies[queue] = max(bodies.get(queue, 0), entry["queueOffset"] + 1)
    settings = {name: value for name, value in node.settings.items() if not name.startswith(_OF_THE_FORM)}
    broker_5.boot(tmp_path / "new", settings)
    try:
        for (topic, queue_id), end in sorted(bodies.items()):
            if not topic.startswith(("SCHEDULE", "RMQ_SYS", "rmq_sys")):
                walk(broker_5, topic, queue_id, 0, end)
                sent = broker_5.ask("request", code=MAX_OFFSET, fields={"topic": topic, "queueId": str(queue_id)})
                assert int(sent["fields"]["offset"]) >= end
    finally:
        broker_5.stop()
