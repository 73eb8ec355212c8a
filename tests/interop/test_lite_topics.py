"""Lite topics: the same requests to a real 5.5.0 broker and to ours."""

import base64
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from formats.message.properties import KEYS, parse
from formats.remoting.codes import RequestCode as C
from formats.variants.pop_handle import ORDERED, Handle
from tests.amounts import whole_by_turns
from tests.cli.running import rmqtool
from tests.interop.broker import Broker
from tests.interop.pairs import SETTINGS, Pair
from tests.interop.test_live_admin import columns, millis
from tests.server.serving import records as records_in

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("broker-5.5.0"), whole_by_turns(3, 5)]
_TOPIC = {
    "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip
_GROUPS = {
    "plain": {},
    "only": {"lite.sub.model": "Exclusive", "lite.sub.reset.offset.exclusive": "true"},
    "all": {"lite.sub.wildcard": "yes"},
    "again": {"lite.sub.reset.offset.unsubscribe": "true"},
}
_TIMES = {"lastAccessTime", "lastConsumeTime", "lastUpdateTimestamp", "earliestUnconsumedTimestamp", "lastTimestamp"}
# what depends on other topics and queues of the store
_COUNTS = {"cqTableSize", "offsetTableSize", "eventMapSize", "currentLmqNum", "lmqNum"}


class Asking:
    """Asks one side; keeps what it has answered, without times."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.rows: list[Any] = []
        self._popped: dict[str, str] = {}

    def request(self, code: int, fields: dict[str, Any] | None = None, body: Any = None) -> dict[str, Any]:
        given = {} if body is None else {"base64": base64.b64encode(json.dumps(body).encode()).decode()}
        texts = {name: str(value) for name, value in (fields or {}).items()}
        answer: dict[str, Any] = self.broker.ask("request", code=int(code), fields=texts, **given)
        return answer

    def note(self, code: int, fields: dict[str, Any] | None = None, body: Any = None) -> None:
        answer = self.request(code, fields, body)
        known = json.loads(answer["body"]) if answer["code"] == 0 and answer.get("body") else None
        self.rows.append((int(code), answer["code"], _plain(known)))

    def change(self, action: str, group: str, *names: str, who: str = "c1", **more: Any) -> None:
        entry = {"action": action, "clientId": who, "group": group, "topic": "Parent", "liteTopicSet": list(names)}
        self.note(C.LITE_SUBSCRIPTION_CTL, body={"subscriptionSet": [{**entry, **more}]})

    def pop(self, group: str, *, who: str = "c1", most: int = 32, invisible: int = 60_000, wait: int = 0) -> None:
        fields = {
            "clientId": who, "consumerGroup": group, "topic": "Parent", "maxMsgNum": most, "invisibleTime": invisible,
            "pollTime": wait, "bornTime": 0,
        }  # fmt: skip
        answer = self.request(C.POP_LITE_MESSAGE, fields)
        self._popped = answer.get("fields") or {}
        got = records_in(base64.b64decode(answer.get("base64") or ""))
        keys = [parse(record.properties)[KEYS] for record in got]
        counts = self._popped.get("orderCountInfo") or ""
        self.rows.append(("pop", group, who, answer["code"], keys, counts))

    def collect(self, group: str, who: str, count: int) -> None:
        """Pop until there are so many: a broker notes what was there before a wildcard group after five seconds."""
        begin, keys = len(self.rows), []
        while len(keys) < count and len(self.rows) < begin + 10:
            self.pop(group, who=who, wait=5_000)
            keys += self.rows[-1][4]
        self.rows[begin:] = [("pop", group, who, 0, sorted(keys))]

    def _handle(self, offset: int) -> str:
        return Handle(
            start_offset=0, pop_time=int(self._popped["popTime"]), invisible_time=int(self._popped["invisibleTime"]),
            revive_queue=ORDERED, origin="0", broker_name="lab-a", queue_id=0, queue_offset=offset,
        ).text  # fmt: skip

    def ack(self, group: str, lite: str, offset: int, queue: int = 0) -> None:
        fields = {
            "consumerGroup": group, "topic": "Parent", "queueId": queue, "offset": offset, "liteTopic": lite,
            "extraInfo": self._handle(offset),
        }  # fmt: skip
        self.note(C.ACK_MESSAGE, fields)

    def postpone(self, group: str, lite: str, offset: int, invisible: int, *, suspend: bool) -> None:
        fields = {
            "consumerGroup": group, "topic": "Parent", "queueId": 0, "offset": offset, "liteTopic": lite,
            "extraInfo": self._handle(offset), "invisibleTime": invisible, "suspend": str(suspend).lower(),
        }  # fmt: skip
        self.note(C.CHANGE_MESSAGE_INVISIBLETIME, fields)

    def look(self, group: str, lite: str, who: str = "c1") -> None:
        self.note(C.GET_BROKER_LITE_INFO)
        self.note(C.GET_PARENT_TOPIC_INFO, {"topic": "Parent"})
        self.note(C.GET_LITE_TOPIC_INFO, {"parentTopic": "Parent", "liteTopic": lite})
        self.note(C.GET_LITE_CLIENT_INFO, {"parentTopic": "Parent", "group": group, "clientId": who, "maxCount": 10})
        self.note(C.GET_LITE_GROUP_INFO, {"group": group, "topK": 5})
        self.note(C.GET_LITE_GROUP_INFO, {"group": group, "liteTopic": lite, "topK": 5})


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: sorted(_plain(item), key=str) if isinstance(item, list) else _plain(item)
            for name, item in value.items()
            if name not in _TIMES | _COUNTS
        }
    return [_plain(item) for item in value] if isinstance(value, list) else value


def talks(broker: Broker) -> Any:
    asking = Asking(broker)
    attributes = "+message.type=LITE,+lite.topic.expiration=30"
    asking.note(C.UPDATE_AND_CREATE_TOPIC, {**_TOPIC, "topic": "Parent", "attributes": attributes})
    asking.note(C.UPDATE_AND_CREATE_TOPIC, {**_TOPIC, "topic": "Other", "attributes": "+message.type=NORMAL"})
    for group, given in _GROUPS.items():
        own = {"+lite.bind.topic": "Parent"} | {f"+{name}": value for name, value in given.items()}
        asking.note(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body={"groupName": group, "attributes": own})
    for own in ({"+nothing": "1"}, {"-lite.sub.wildcard": ""}, {"lite.sub.model": "Shared"}):
        asking.note(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body={"groupName": "bad", "attributes": own})
    asking.note(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body={"groupName": "plain", "attributes": {}})

    def send(lite: str, *keys: str) -> None:
        for key in keys:
            broker.ask("send", topic="Parent", keys=key, queueId=1, properties={"__LITE_TOPIC": lite})

    send("one", "a", "b", "c")
    send("two", "x")
    asking.pop("plain")
    first = {"type": "POLICY", "value": 1}
    asking.change("PARTIAL_ADD", "plain", "one", offsetOption=first)
    asking.look("plain", "one")
    asking.pop("plain", most=2)
    asking.pop("plain")  # nothing: the last ones are not acked
    asking.change("PARTIAL_ADD", "plain", "two", "three", offsetOption={"type": "OFFSET", "value": 0})
    asking.pop("plain")
    asking.ack("plain", "two", 0)
    asking.ack("plain", "two", 0)
    asking.ack("plain", "two", 7)
    asking.ack("plain", "two", 0, queue=1)
    asking.ack("other", "two", 0)
    asking.look("plain", "two")
    send("two", "y", "z")
    asking.pop("plain", most=1)
    asking.postpone("plain", "two", 1, 1, suspend=True)
    asking.note(C.TRIGGER_LITE_DISPATCH, {"group": "plain"})
    asking.pop("plain", wait=5_000, most=1)
    asking.postpone("plain", "two", 1, 1, suspend=False)
    asking.note(C.TRIGGER_LITE_DISPATCH, {"group": "plain", "clientId": "c1"})
    asking.pop("plain", wait=5_000)
    asking.change("PARTIAL_REMOVE", "plain", "one")
    asking.change("COMPLETE_ADD", "plain", "two", "four")
    asking.look("plain", "four")
    asking.change("COMPLETE_REMOVE", "plain")
    asking.look("plain", "four")
    asking.change("PARTIAL_ADD", "only", "one", offsetOption=first, who="c2")
    asking.pop("only", who="c2", most=1)
    asking.change("PARTIAL_ADD", "only", "one", who="c3")
    asking.pop("only", who="c3", most=1)
    asking.look("only", "one", "c3")
    asking.change("PARTIAL_ADD", "all", "one", who="c4")
    asking.change("COMPLETE_ADD", "all", who="c4")
    send("five", "v")
    asking.collect("all", "c4", 7)
    asking.look("all", "five", "c4")
    asking.change("PARTIAL_ADD", "again", "one", offsetOption=first, who="c5")
    asking.pop("again", who="c5")
    asking.ack("again", "one", 0)
    asking.change("PARTIAL_REMOVE", "again", "one", who="c5")
    asking.change("PARTIAL_ADD", "again", "one", offsetOption={"type": "TAIL_N", "value": 5}, who="c5")
    asking.pop("again", who="c5")
    for code, fields in (
        (C.GET_PARENT_TOPIC_INFO, {"topic": "Other"}), (C.GET_PARENT_TOPIC_INFO, {"topic": "nothing"}),
        (C.GET_LITE_GROUP_INFO, {"group": "notLite"}), (C.TRIGGER_LITE_DISPATCH, {"group": "notLite"}),
        (C.GET_LITE_CLIENT_INFO, {"parentTopic": "Parent", "group": "notLite", "clientId": "c"}),
        (C.GET_LITE_TOPIC_INFO, {"parentTopic": "Other", "liteTopic": "one"}),
    ):  # fmt: skip
        asking.note(code, fields)
    asking.note(C.GET_LITE_GROUP_INFO, {"group": "plain", "topK": 0})
    asking.note(C.LITE_SUBSCRIPTION_CTL)
    asking.note(C.LITE_SUBSCRIPTION_CTL, body={})
    asking.pop("notLite")
    return asking.rows


def compare(broker: Broker) -> None:
    """What mqadmin says of all this, our commands say too."""
    addresses = broker.ask("addresses")
    target = f"rocketmq://{addresses['namesrv']}"

    def admin(line: str) -> str:
        said: str = broker.ask("admin", arguments=line.split(), seconds=20)["said"]
        return said

    def ours(line: str, code: int = 0) -> Any:
        done = rmqtool(*line.replace("TARGET", target).split(), "-o", "json")
        assert done.code == code, (line, done.err)
        return json.loads(done.out)

    def row_of(said: str) -> list[str]:
        """The first row of the table in an output; lines without columns may follow it."""
        return [*columns(said, begin="#Broker")[0].values()]

    (row,) = ours("lite brokers TARGET")
    said = admin(f"getBrokerLiteInfo -b {addresses['broker']}")
    (theirs,) = [line.split() for line in said.splitlines() if line.startswith(addresses["broker"])]
    names = ("storeType", "maxLmqNum", "currentLmqNum", "liteSubscriptionCount", "orderInfoCount", "cqTableSize")
    assert [str(row[name]) for name in (*names, "offsetTableSize", "eventMapSize")] == theirs[1:], said
    (row,) = ours("lite list TARGET")
    said = admin("getParentTopicInfo -p Parent")
    broker_name, ttl, lite_topics, queues, *_, groups = row_of(said)
    assert [str(row[name]) for name in ("brokerName", "ttl", "liteTopicCount", "lmqNum")] == [
        broker_name, ttl, lite_topics, queues
    ], said  # fmt: skip
    assert {*row["groups"]} == {*_GROUPS} == {*groups.strip("[]").split(", ")}
    for lite in ("one", "two", "five"):
        (row,) = ours(f"lite show TARGET Parent {lite}")
        said = admin(f"getLiteTopicInfo -p Parent -l {lite} -s")
        broker_name, begin, end, updated, sharding, clients = row_of(said)
        assert [str(row[name]) for name in ("brokerName", "minOffset", "maxOffset", "subscriberCount")] == [
            broker_name, begin, end, clients
        ], said  # fmt: skip
        assert millis(updated) // 1000 == row["lastUpdateTimestamp"] // 1000
        assert sharding == str(row["shardingToBroker"]).lower()
        assert all(name in said for name in row["subscribers"]), said
    for group in _GROUPS:
        rows = ours(f"lite lag TARGET {group}")
        said = admin(f"getLiteGroupInfo -p Parent -g {group} -k 50")
        assert f"Total Lag Count: {sum(row['lag'] for row in rows)}" in said, (rows, said)
        counts = said.partition("TopK by lag count")[2].partition("TopK by lag time")[0]
        lines = [line.split() for line in counts.splitlines() if re.match(r"\d", line)]
        assert {line[1]: int(line[2]) for line in lines} == {row["liteTopic"]: row["lag"] for row in rows}, said
    (row,) = ours("lite lag TARGET again --lite-topic one")
    said = admin("getLiteGroupInfo -p Parent -g again -l one")
    assert [str(row[name]) for name in ("brokerName", "brokerOffset", "consumerOffset", "lag")] == row_of(said)[:4]
    assert ours("lite lag TARGET again --lite-topic nothing", 1) == []
    assert row_of(admin("getLiteGroupInfo -p Parent -g again -l nothing"))[1:3] == ["-", "-"]
    for group, client in (("only", "c3"), ("all", "c4"), ("again", "c5")):
        (row,) = ours(f"lite client TARGET {group} {client}")
        said = admin(f"getLiteClientInfo -p Parent -g {group} -c {client} -s")
        assert [row["brokerName"], str(row["liteTopicCount"] or "N/A")] == row_of(said)[:2], said
        assert all(name in said for name in row["liteTopics"]), said
    assert ours("lite client TARGET again nobody", 1) == []
    (row,) = ours("lite dispatch TARGET again --yes")
    assert row["state"] == "dispatched"
    assert "dispatched" in admin("triggerLiteDispatch -p Parent -g again")


def test_lite_topics(brokers_5_5: tuple[Broker, Broker], tmp_path: Path) -> None:
    settings = SETTINGS + "timerWheelEnable=true\nenableLmq=true\nenableMultiDispatch=true\n"
    with closing(Pair(*brokers_5_5, tmp_path, settings)) as pair:
        wanted, got = pair.run(talks)
        for broker in (pair.broker, pair.clients):  # one after the other: our commands run in this process
            compare(broker)
    differ = [
        f"{n}: {ours}, not {theirs}" for n, (theirs, ours) in enumerate(zip(wanted, got, strict=True)) if ours != theirs
    ]
    assert not differ, "\n".join(differ)
    popped = [row[4] for row in wanted if row[0] == "pop"]
    assert sum(map(len, popped)) > 10, "otherwise nothing was compared"
