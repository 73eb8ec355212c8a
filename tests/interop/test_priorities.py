"""Messages with a priority, and of lite topics: what 5.5.0 stores and pops, on a real broker and on ours."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from formats.message.properties import parse
from tests.amounts import whole_by_turns
from tests.interop.broker import Broker
from tests.interop.pairs import SETTINGS, Pair
from tests.interop.sides import records

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("broker-5.5.0"), whole_by_turns(3, 5)]
_TOPIC = {
    "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip
_PRIORITY = "_SYS_MSG_PRIORITY_"
# of each message what it says, and where it was sent to
MESSAGES: tuple[tuple[dict[str, str], int], ...] = (
    ({}, 1), ({_PRIORITY: "0"}, 2), ({_PRIORITY: "2"}, 0), ({_PRIORITY: "3"}, 0), ({_PRIORITY: "99"}, 0),
    ({_PRIORITY: "-1"}, 1), ({_PRIORITY: "high"}, 1), ({_PRIORITY: "2147483648"}, 1),
    ({_PRIORITY: "2", "__SHARDINGKEY": "s"}, 0), ({_PRIORITY: "2", "__LITE_TOPIC": "one"}, 1),
    ({"__LITE_TOPIC": "two"}, 1),
)  # fmt: skip


def _make(broker: Broker, topic: str, kind: str) -> None:
    fields = {**_TOPIC, "topic": topic, "attributes": f"+message.type={kind}"}
    assert broker.ask("request", code=17, fields=fields)["code"] == 0


def sends(broker: Broker) -> Any:
    _make(broker, "Urgent", "PRIORITY")
    sent = []
    for number, (properties, queue) in enumerate(MESSAGES):
        row = broker.ask("send", topic="Urgent", keys=f"k{number}", queueId=queue, properties=properties)
        sent.append((row["queueId"], row["queueOffset"]))
    popped = []
    for _ in range(6):
        rows = broker.ask("pop", group="g", topic="Urgent", queueId=-1, count=3, invisible=60_000)["messages"]
        popped.append([(row["queueId"], row["keys"]) for row in rows])
    return sent, popped


def test_priorities_and_lite_topics(brokers_5_5: tuple[Broker, Broker], tmp_path: Path) -> None:
    settings = SETTINGS + "timerWheelEnable=true\nenableLmq=true\nenableMultiDispatch=true\n"
    with closing(Pair(*brokers_5_5, tmp_path, settings)) as pair:
        wanted, got = pair.run(sends)
    assert got == wanted
    queues = [queue for queue, _offset in wanted[0]]
    assert queues == [1, 0, 2, 3, 3, 1, 1, 1, 0, 2, 1]
    order = [queue for rows in wanted[1] for queue, _key in rows]
    assert order == sorted(order, reverse=True), "the highest priority comes first"
    stored = [
        [
            (record.queue_id, {name: value for name, value in parse(record.properties).items() if name in _COMPARED})
            for record in records(side)
            if record.topic == b"Urgent"
        ]
        for side in (tmp_path / "real", tmp_path / "ours")
    ]
    assert stored[0] == stored[1]
    assert any("INNER_MULTI_QUEUE_OFFSET" in properties for _queue, properties in stored[0])


_COMPARED = {_PRIORITY, "__LITE_TOPIC", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "KEYS", "__SHARDINGKEY"}
