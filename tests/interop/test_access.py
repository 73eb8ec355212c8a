"""Access control with signing clients: the same accounts and programs have the same outcome as on a real broker."""

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.amounts import by_turns
from tests.interop.broker import SMALL_FILES, Broker
from tests.interop.serving import Serving

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("broker-4.9.8")]  # 5.3.3 has no such accounts any more
Do = Callable[..., Any]

ACCOUNTS = """
globalWhiteRemoteAddresses: [10.10.103.*]
accounts:
- {accessKey: the-admin, secretKey: admin-secret, admin: true}
- {accessKey: the-writer, secretKey: writer-secret, topicPerms: [Orders=PUB, Others=DENY]}
- accessKey: the-reader
  secretKey: reader-secret
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [Orders=SUB]
  groupPerms: [readers=SUB]
- {accessKey: the-number, secretKey: 12345678, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}
- {accessKey: from-here, secretKey: here-secret, whiteRemoteAddress: 127.0.0.*}
"""
KEYS = {
    "the-admin": "admin-secret", "the-writer": "writer-secret", "the-reader": "reader-secret",
    "the-number": "12345678", "from-here": "wrong-secret", "nobody": "nobody-secret", "the-writer ": "writer-secret",
}  # fmt: skip
_SENT = {"a": "g", "b": "Orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1795000000000", "h": "0",
         "j": "0", "k": "false", "m": "false"}  # fmt: skip
_PULL = {
    "consumerGroup": "readers", "topic": "Orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
    "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*",
}  # fmt: skip
_TOPIC = {
    "topic": "Made", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip
_COMMIT = {"consumerGroup": "readers", "topic": "Orders", "queueId": "0", "commitOffset": "0"}
_QUERY = {"topic": "Orders", "key": "no", "maxNum": "8", "beginTimestamp": "0", "endTimestamp": "9999999999999"}


def heartbeat(group: str, topic: str) -> str:
    return (
        '{"clientID":"c","producerDataSet":[],"consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        f'"consumeType":"CONSUME_ACTIVELY","groupName":"{group}","messageModel":"CLUSTERING","unitMode":false,'
        f'"subscriptionDataSet":[{{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*",'
        f'"subVersion":1,"tagsSet":[],"topic":"{topic}"}}]}}]}}'
    )


REQUESTS: list[tuple[int, dict[str, str], str]] = [
    (310, _SENT, "x"),
    (310, _SENT | {"b": "Others"}, "x"),
    (310, _SENT | {"b": "RMQ_SYS_TRACE_TOPIC", "c": "Orders"}, "x"),
    (11, _PULL, ""),
    (11, _PULL | {"topic": "Others"}, ""),
    (11, _PULL | {"consumerGroup": "others"}, ""),
    (12, _QUERY, ""),
    (12, _QUERY | {"topic": "Others"}, ""),
    (34, {}, heartbeat("readers", "Orders")),
    (34, {}, heartbeat("readers", "Others")),
    (34, {}, heartbeat("others", "Orders")),
    (35, {"clientID": "c", "consumerGroup": "readers"}, ""),
    (35, {"clientID": "c", "consumerGroup": "others"}, ""),
    (38, {"consumerGroup": "others"}, ""),
    (15, _COMMIT, ""),
    (15, _COMMIT | {"topic": "Others"}, ""),
    (36, {"offset": "999999", "group": "others", "delayLevel": "0"}, ""),
    (17, _TOPIC, ""),
    (200, {}, '{"groupName":"made"}'),
    (207, {"groupName": "made"}, ""),
    (215, {"topic": "Made"}, ""),
]

_MADE = {"accessKey": "made-here", "secretKey": "made-secret", "admin": "false", "topicPerms": "A=PUB,B=SUB"}
# what an administrator may do with accounts
ADMIN_REQUESTS: list[tuple[int, dict[str, str], str]] = [
    (50, _MADE, ""),
    (50, _MADE | {"accessKey": "short"}, ""),
    (50, {name: value for name, value in _MADE.items() if name != "secretKey"}, ""),
    (50, _MADE | {"topicPerms": "A"}, ""),
    (50, _MADE | {"groupPerms": "A=WHAT"}, ""),
    (52, {}, ""),
    (53, {"globalWhiteAddrs": "10.10.103.*,10.10.104.1", "aclFileFullPath": ""}, ""),
    (53, {"globalWhiteAddrs": "10.10.103.*", "aclFileFullPath": "/nosuch.yml"}, ""),
    (51, {"accessKey": "made-here"}, ""),
    (51, {"accessKey": "never-made"}, ""),
]


def program(clients: Broker) -> list[Any]:
    """The result of every account, as codes and remarks, and the clients' reactions."""
    results: list[Any] = []

    def do(what: str, key: str | None, **more: Any) -> Any:
        given = {} if key is None else {"accessKey": key, "secretKey": KEYS[key]}
        return clients.ask("signed", do=what, **given, **more)

    def raw(key: str | None, requests: list[tuple[int, dict[str, str], str]]) -> list[Any]:
        asked = [
            {"code": code, "fields": fields, "base64": base64.b64encode(body.encode()).decode()}
            for code, fields, body in requests
        ]
        answers = do("raw", key, requests=asked)
        return [
            (key, *request, answer["code"], words(answer.get("remark")))
            for request, answer in zip(requests, answers, strict=True)
        ]

    for key in (None, *KEYS):
        results += raw(key, REQUESTS)
    for key in ("the-writer", "the-reader", "nobody", None):
        sent = do("send", key, topic="Orders", keys="k")
        results.append((key, sent.get("status"), sent.get("code"), words(sent.get("remark"))))
    assert do("send", "the-writer", topic="Orders", keys="k", batch=3)["status"] == "SEND_OK"
    at = do("send", "the-admin", topic="Orders", keys="k")["offsetMsgId"]
    results += [do("view", key, topic="Orders", msgId=at) for key in ("the-admin", "the-reader", "nobody")]
    stored = sum(
        row[1] == 310 and row[2]["b"] == "Orders" and not row[4] for row in results[: (len(KEYS) + 1) * len(REQUESTS)]
    )
    sent = 1 + 3 + 1
    seen = do("consume", "the-reader", group="readers", topic="Orders", count=stored + sent, millis=60_000)
    results.append(sorted(key or "" for key in seen))
    results.append(do("consume", "the-writer", group="readers", topic="Orders", count=1, millis=2_000))
    results.append(do("consume", "the-reader", group="others", topic="Orders", count=1, millis=2_000))
    results += [row[:5] for row in raw("the-admin", ADMIN_REQUESTS)]
    return results


def words(remark: str | None) -> str:
    """Why a request was refused, without the missing right, as a broker checks several in any order."""
    match = re.search(r"AclException: (.*?)( for (topic|group):|,|$)", remark or "")
    return match[1] if match else ""


@by_turns(23)
def test_every_account_gets_what_it_gets_from_a_real_broker(
    broker_4: Broker, clients_4: Broker, clients_5: Broker, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf/plain_acl.yml").write_text(ACCOUNTS)
    config = {**SMALL_FILES, "aclEnable": "true",
              "rocketmqHome": str(home), "brokerFastFailureEnable": "false"}  # fmt: skip
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    for clients in (clients_4, clients_5):
        store = tmp_path / f"real-{clients.engine}"
        store.mkdir()
        broker_4.boot(store, config)
        addresses = broker_4.ask("addresses")
        clients.connect(addresses["namesrv"], addresses["broker"])
        wanted = program(clients)
        clients.stop()
        broker_4.stop()
        ours = tmp_path / f"ours-{clients.engine}"
        with Serving(ours, "--create", "--engine", "4.9", "--broker-conf", str(conf)) as serving:
            clients.connect(serving.namesrv, serving.broker)
            got = program(clients)
            clients.stop()
            code, stderr = serving.end()
        assert code == 0
        assert "Traceback" not in stderr
        differing = [pair for pair in zip(got, wanted, strict=True) if pair[0] != pair[1]]
        assert not differing, differing
