"""Answers of a single 5.3.3 broker about slaves, epochs, RocksDB, cold data and users that it does not have, and about
groups: ours are the same.
"""

import json
from base64 import b64encode
from typing import Any

import pytest

from tests.amounts import by_turns
from tests.interop.broker import Broker
from tests.interop.pairs import Pairs
from tests.interop.test_serve import make

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("broker-5.3.3")]
_USER = '{"username":"someone","password":"secret","userType":"Normal"}'
_ACL = (
    '{"subject":"User:someone","policies":[{"policyType":"CUSTOM","entries":[{"resource":"Topic:*","actions":["Pub"],'
    '"decision":"Allow"}]}]}'
)
_NAMED, _SUBJECT = {"username": "someone"}, {"subject": "User:someone"}
_GROUP = {"group": "readers"}
ASKED: list[tuple[int, dict[str, str], str]] = [
    (907, {}, ""), (908, {"masterFlushOffset": "0"}, ""), (1007, {}, ""),
    (354, {"topic": "Orders", "checkStoreTime": "0"}, ""), (354, {}, ""),
    (355, {"configType": "topics"}, ""), (355, {"configType": "topics;subscriptionGroups;consumerOffsets"}, ""),
    (2003, {}, ""), (2001, {}, "readers=1024\nothers=x"), (2003, {}, ""), (2002, {}, "readers"), (2003, {}, ""),
    (2002, {}, "nobody"), (2001, {}, ""),
    (3001, _NAMED, _USER), (3001, {"username": ""}, _USER), (3001, {}, _USER),
    (3002, _NAMED, _USER), (3002, {}, _USER), (3003, _NAMED, ""), (3004, _NAMED, ""), (3004, {}, ""), (3005, {}, ""),
    (3006, _SUBJECT, _ACL), (3006, {}, _ACL), (3007, _SUBJECT, _ACL), (3008, _SUBJECT, ""), (3009, _SUBJECT, ""),
    (3010, {}, ""),
    (343, _GROUP, ""), (343, {"group": "nobody"}, ""),
    (345, _GROUP | {"topic": "Orders"}, ""), (345, _GROUP | {"topic": "Other"}, ""),
    (345, {"group": "nobody", "topic": "Orders"}, ""),
    (352, _GROUP, ""), (352, {"group": "made-now"}, ""),
]  # fmt: skip


def alone(broker: Broker) -> Any:
    make(broker, "Orders")
    for number in range(4):
        broker.ask("send", topic="Orders", keys=f"k{number}", queueId=number)
    broker.ask("consume", group="readers", topic="Orders", failures=0, most=1, level=0, expression="tag || b")
    broker.wait_for(lambda rows: len(rows) >= 4, 60)
    broker.ask("setOffset", group="readers", topic="Orders", queueId=0, offset=1)
    answers = []
    for code, fields, body in ASKED:
        answer = broker.ask("request", code=code, fields=fields, base64=b64encode(body.encode()).decode())
        parsed = json.loads(answer.get("body") or "null")
        if isinstance(parsed, dict):
            for name in ("masterCommitLogMaxOffset", "brokerAddr"):
                parsed.pop(name, None)
            if parsed.get("subscriptionData"):
                parsed["subscriptionData"].pop("subVersion")
        # on success a broker's remark may say that it has set no code; where in it something failed is left out
        remark = (answer.get("remark") or "").partition(", org.apache")[0] if answer["code"] else None
        answers.append((code, fields, answer["code"], remark, parsed))
    return answers


@by_turns(11)
def test_the_same_requests_have_the_same_answers(broker_5: Broker, clients_5: Broker, pairs: Pairs) -> None:
    wanted, got = pairs.run(broker_5, clients_5, alone)
    differing = [pair for pair in zip(got, wanted, strict=True) if pair[0] != pair[1]]
    assert not differing, "\n".join(f"{ours}\n{theirs}" for ours, theirs in differing)
