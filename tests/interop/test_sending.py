"""Sends of real clients to a real broker: stored messages, new topics, and refusals."""

import base64
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formats.config.files import Topics
from formats.message.bodies import build_batch
from formats.message.properties import DELAY, REAL_QID, REAL_TOPIC, build, parse
from formats.model.topics import TopicConfig
from formats.primitives import host_text
from formats.topics import AUTO_CREATE, DLQ_PREFIX, NOT_SENT_TO, RETRY_PREFIX, SCHEDULE
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import RELEASES
from rmqtool.rules.sending import (
    COMPRESS_FROM,
    MESSAGE_ILLEGAL,
    Rejected,
    auto_create,
    batch_properties,
    check_at_broker,
    check_batch,
    compress,
)
from rmqtool.services.retries.retries import DeadLetter, Retries
from rmqtool.services.retries.send_back import SendBackStore
from rmqtool.store.append.answers import Illegal
from rmqtool.store.append.outgoing import AppendRules
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from tests.amounts import by_turns
from tests.interop.broker import Broker
from tests.interop.sides import DEAD, GROUP, RETRY, SETTINGS, Replay, begin, bodies, resent, same, stored
from tests.services.build import never

pytestmark = pytest.mark.interop

SEND = 10  # request code


def pairs(properties: bytes) -> list[bytes]:
    """Stored properties, unordered, as clients use a hash map."""
    return sorted(filter(None, properties.split(b"\x02")))


@by_turns(11)
def test_batches_as_the_broker_stores_them(broker: Broker, tmp_path: Path) -> None:
    """A 5.3 client also gives the batch an id, which hides those of its messages; its broker returns the position."""
    theirs, ours = begin(broker, tmp_path, "Batched")
    sent = [
        {"topic": "Batched", "keys": f"k{n} 键", "body": "消息" * n + "x", "flag": n * 7 - 9,
         "properties": {f"p{m}": "v" * m for m in range(1, n)}}
        for n in range(6)
    ]  # fmt: skip
    answer = broker.ask("sendBatch", messages=sent)
    broker.stop()
    outcome = stored(theirs, "Batched")
    named = [
        {"KEYS": str(row["keys"]), "TAGS": "tag", "WAIT": "true", "UNIQ_KEY": unique} | dict(row["properties"])  # type: ignore[call-overload]
        for row, unique in zip(sent, answer["msgId"].split(","), strict=True)
    ]
    items = [
        (int(str(row["flag"])), str(row["body"]).encode(), build(properties))
        for row, properties in zip(sent, named, strict=True)
    ]
    check_batch([("Batched", properties) for properties in named])
    first = outcome[0]
    added = {"CLUSTER": "LabCluster"}
    if broker.engine == "5.3":
        added |= {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        unique = parse(first.properties)["UNIQ_KEY"]
        assert unique not in answer["msgId"]
    else:
        unique = None
    with Store.create(ours, broker_conf=SETTINGS, release=RELEASES[broker.engine]) as store:
        result = store.live.append_encoded(
            NewMessage(
                topic="Batched", queue_id=answer["queueId"], body=build_batch(items),
                properties=batch_properties(named[0], unique) | added,
                born_timestamp=first.born_timestamp, store_timestamp=first.store_timestamp,
                born_host=host_text(first.born_address, first.born_port),
                store_host=host_text(first.store_address, first.store_port),
            )
        )  # fmt: skip
    assert (result.messages, result.queue_offset) == (6, answer["queueOffset"])
    for left, right in zip(outcome, stored(ours, "Batched"), strict=True):
        assert left._replace(properties=b"") == right._replace(properties=b"")
        assert pairs(left.properties) == pairs(right.properties)
        assert left.properties.count(b"WAIT\x01true") == 2
    assert [body for _flag, body, _properties in items] == [r.body for r in outcome]


@by_turns(11)
def test_bodies_are_compressed_as_the_client_does_it(broker: Broker, tmp_path: Path) -> None:
    broker.boot(tmp_path / "theirs", SETTINGS)
    sizes = (COMPRESS_FROM - 1, COMPRESS_FROM, 50_000)
    made = [bytes(n * n % 251 for n in range(size)) for size in sizes]
    for body in made:
        broker.ask("send", topic="Large", keys="k", base64=base64.b64encode(body).decode())
    broker.stop()
    result = stored(tmp_path / "theirs", "Large")
    for body, record in zip(made, result, strict=True):
        packed, flag = compress(body)
        assert record.sys_flag == flag
        assert (zlib.decompress(record.body) if flag else record.body) == body
        assert record.body[:2] == packed[:2]
        assert zlib.crc32(record.body) & 0x7FFFFFFF == record.body_crc
    assert [bool(record.sys_flag) for record in result] == [False, True, True]


def header(topic: str, **fields: Any) -> dict[str, str]:
    """The header fields of a send request."""
    named = {
        "producerGroup": "lab", "topic": topic, "defaultTopic": AUTO_CREATE, "defaultTopicQueueNums": 4,
        "queueId": 0, "sysFlag": 0, "bornTimestamp": int(time.time() * 1000), "flag": 0, "properties": "",
        "reconsumeTimes": 0, "unitMode": "false", "batch": "false",
    }  # fmt: skip
    return {name: str(value) for name, value in (named | fields).items()}


def send(broker: Broker, topic: str, body: bytes = b"x", **fields: Any) -> int:
    """The broker's answer to a message not validated by a client."""
    request = {"fields": header(topic, **fields), "base64": base64.b64encode(body).decode()}
    code: int = broker.ask("request", code=SEND, **request)["code"]
    return code


def verdict(check: Callable[..., None], *arguments: Any, **named: Any) -> int:
    """Our response code, 0 if accepted."""
    try:
        check(*arguments, **named)
    except Rejected as err:
        return err.code
    return 0


def at_store(message: NewMessage, most: int) -> int:
    """Our response code for what the store accepts, 0 if accepted."""
    try:
        AppendRules(max_message_size=most).ready(message)
    except Illegal:
        return MESSAGE_ILLEGAL
    return 0


def queue_of(count: int) -> int:
    """A queue id to let the broker choose, in a topic with ``queues`` queues."""
    return -1 if count > 0 else 0


def topics_of(store: Path) -> dict[str, TopicConfig]:
    return Topics.parse((store / "config" / "topics.json").read_bytes()).topics


@by_turns(11)
def test_topics_come_to_be_as_in_the_broker(broker: Broker, tmp_path: Path) -> None:
    store = tmp_path / "store"
    broker.boot(store, SETTINGS)
    broker.ask("send", topic="ByClient", keys="k")
    wanted = {
        "Few": (AUTO_CREATE, 2),
        "Many": (AUTO_CREATE, 100),
        "None": (AUTO_CREATE, 0),
        "Negative": (AUTO_CREATE, -3),
        "LikeCluster": ("LabCluster", 9),
        "NotInherited": ("Few", 2),
        "NoTemplate": ("Nothing", 2),
        RETRY_PREFIX + "fresh": (AUTO_CREATE, 4),
        RETRY_PREFIX + "alone": ("Nothing", 4),
        DLQ_PREFIX + "alone": ("Nothing", 4),
    }
    codes = {
        topic: send(broker, topic, defaultTopic=template, defaultTopicQueueNums=count, queueId=queue_of(count))
        for topic, (template, count) in wanted.items()
    }
    broker.stop()
    theirs = topics_of(store)
    for topic, (template, count) in {"ByClient": (AUTO_CREATE, 4), **wanted}.items():
        made = auto_create(topic, template, theirs.get(template), count)
        assert theirs.get(topic) == made, topic
        if topic in codes:
            assert codes[topic] == verdict(
                check_at_broker, topic, queue_of(count), made, release=RELEASES[broker.engine]
            ), topic
    assert [name for name in wanted if name not in theirs] == ["NotInherited", "NoTemplate", DLQ_PREFIX + "alone"]


@by_turns(11)
def test_no_topics_come_to_be_where_that_is_switched_off(broker: Broker, tmp_path: Path) -> None:
    store = tmp_path / "store"
    broker.boot(store, SETTINGS | {"autoCreateTopicEnable": "false"})
    names = {"Plain": AUTO_CREATE, RETRY_PREFIX + "g": AUTO_CREATE, "LikeCluster": "LabCluster"}
    codes = {topic: send(broker, topic, defaultTopic=template) for topic, template in names.items()}
    broker.stop()
    theirs = topics_of(store)
    for topic, template in names.items():
        made = auto_create(topic, template, theirs.get(template), 4, enabled=False)
        assert theirs.get(topic) == made, topic
        assert codes[topic] == (0 if made is not None else 17)
    assert "Plain" not in theirs


@by_turns(11)
def test_what_the_broker_refuses(broker: Broker, tmp_path: Path) -> None:
    """The same answers; 5.3 has separate codes for names and queue ids."""
    store, most = tmp_path / "store", 20_000
    broker.boot(store, SETTINGS | {"maxMessageSize": str(most)})
    broker.ask("topic", topic="Plain")
    long = "p\x01" + "v" * 32_766
    cases: list[tuple[str, bytes, dict[str, Any]]] = [
        ("Plain", b"x", {}),
        *([("Plain", b"", {})] if broker.engine == "4.9" else []),  # which ends in an exception there in 5.3
        ("Plain", b"x", {"queueId": 3}),
        ("Plain", b"x", {"queueId": 4}),
        ("Plain", b"x", {"queueId": -1}),
        ("", b"x", {}),
        ("two words", b"x", {}),
        ("主题", b"x", {}),
        ("a/b", b"x", {}),
        ("T" * 127, b"x", {}),
        ("T" * 128, b"x", {}),
        ("Unknown", b"x", {"defaultTopic": "Nothing"}),
        ("Plain", bytes(most), {}),
        ("Plain", bytes(most + 1), {}),
        ("Plain", b"x", {"properties": long}),
        ("Plain", b"x", {"properties": long[:32_000]}),
        *((topic, b"x", {}) for topic in sorted(NOT_SENT_TO)),
    ]
    codes = [send(broker, topic, body, **fields) for topic, body, fields in cases]
    broker.stop()
    theirs = topics_of(store)
    for (topic, body, fields), code in zip(cases, codes, strict=True):
        properties = str(fields.get("properties", "")).encode() + b"\x02CLUSTER\x01LabCluster"
        ours = verdict(
            check_at_broker, topic, fields.get("queueId", 0), theirs.get(topic), release=RELEASES[broker.engine]
        )
        ours = ours or at_store(NewMessage(topic=topic, body=body, properties=parse(properties)), most)
        assert code == ours, (topic, len(body), {**fields, "properties": len(properties)})
    assert len({*codes}) > 3


# -- sent to the retry topic ------------------------------------------------------------------------------------------


def dead_letters(store: Path) -> list[DeadLetter]:
    """Dead letters as listed by our commands."""
    log = CommitLog(StoreLayout(str(store), BrokerConf(SETTINGS)))
    return [letter for letter, _found in Retries(log, 0, never).dead_letters()]


@by_turns(23)
@pytest.mark.parametrize("level", [0, 17])
def test_sent_to_the_retry_topic(broker: Broker, level: int, tmp_path: Path) -> None:
    """As by consumers whose sending back failed; the limit is one higher in 5.3."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    broker.boot(theirs, SETTINGS)
    sends = [(1, 3), (2, 3), (3, 3), (4, 3), (15, None), (16, None), (17, None), (None, 3)]
    for times, most in sends:
        named = {"RETRY_TOPIC": "Orders", "RECONSUME_TIME": times, "MAX_RECONSUME_TIMES": most}
        broker.ask(
            "send", topic=RETRY, keys=f"{times}-{most}", **({"level": level} if level else {}),
            properties={name: str(value) for name, value in named.items() if value is not None},
        )  # fmt: skip
    broker.stop()
    replay = Replay(theirs, ours, broker.engine)
    back = SendBackStore(replay.store, replay.state)
    limits = {f"{times}-{most}": most for times, most in sends}
    for record in replay.theirs:
        replay.at(record)
        most = limits[record.body.decode()]
        sent = resent(record)
        sent.queue_id = int(parse(record.properties).get(REAL_QID, record.queue_id))
        if broker.engine == "5.3" and parse(record.properties).get(DELAY) == "-1":
            named = sent.property_map()
            del named[DELAY]
            sent.properties = named | ({DELAY: str(level)} if level else {})
        assert back.send_to_retry(sent, most).ok
    replay.close()
    dead = {"3-3", "4-3", "16-None", "17-None"} if broker.engine == "4.9" else {"4-3", "17-None"}
    alive = {f"{times}-{most}" for times, most in sends} - dead
    waits = level and broker.engine == "4.9"
    assert set(bodies(stored(theirs, DEAD))) == (set() if waits else dead)
    assert set(bodies(stored(theirs, SCHEDULE))) == ((alive | dead if waits else alive) if level else set())
    same(theirs, ours, {topic for topic in (RETRY, DEAD, SCHEDULE) if stored(theirs, topic)})
    if waits:
        shown = sorted((letter.state, letter.keys or "", letter.topic) for letter in dead_letters(theirs))
        assert shown == sorted(("scheduled", name, SCHEDULE) for name in dead)


@by_turns(11)
def test_orderly_consumers_that_fail_too_often(broker: Broker, tmp_path: Path) -> None:
    """Their clients send messages over the limit to the retry topic: they wait in 4.9, and are dead at once in 5.3."""
    theirs, ours = begin(broker, tmp_path, "Sequenced")
    for n in range(3):
        broker.ask("send", topic="Sequenced", keys=f"seq-{n}", queueId=0)
    broker.ask("consume", group=GROUP, topic="Sequenced", failures=9, most=1, level=0, orderly=True)
    names = {f"seq-{n}" for n in range(3)}
    broker.wait_for(lambda _rows: set(bodies(stored(theirs, SCHEDULE, DEAD))) == names)
    broker.stop()
    replay = Replay(theirs, ours, broker.engine)
    back = SendBackStore(replay.store, replay.state)
    for record in replay.theirs:
        replay.at(record)
        named = parse(record.properties)
        if record.topic == b"Sequenced":
            replay.send(record, "Sequenced", record.queue_id, named)
        elif record.topic.decode() == DEAD and REAL_TOPIC in named:
            replay.deliver(record)
        else:
            assert named["RECONSUME_TIME"] == str(record.reconsume_times)
            assert back.send_to_retry(resent(record), 1, locked=True).ok
    replay.close()
    topics = {topic for topic in (SCHEDULE, DEAD) if stored(theirs, topic)}
    same(theirs, ours, {"Sequenced", *topics})
    assert (SCHEDULE in topics) == (broker.engine == "4.9")
    assert {letter.keys for letter in dead_letters(theirs)} == names
