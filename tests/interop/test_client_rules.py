"""A client's send rules, ids, queue selection and files give the same results as classes of the real 4.9.8 client.

Queue selection by the different rules of 5.3 is compared with 5.3.3.
"""

import base64
import random
import string
from collections import Counter
from datetime import UTC, tzinfo
from typing import Any

import pytest

from formats.config.files import ConsumerOffsets
from formats.message.bodies import batch_items, build_batch, decompress
from formats.message.ids import parse_unique_id
from formats.message.properties import build, parse
from formats.primitives import parse_address
from formats.remoting.shapes import MessageQueue
from formats.topics import NOT_SENT_TO
from rmqtool.client.cluster.routes import Route
from rmqtool.client.producing import choice as choosing
from rmqtool.client.producing.message import Message
from rmqtool.client.producing.producer import by_hash
from rmqtool.rules import broadcast as broadcast_offsets
from rmqtool.rules import ids as send_ids
from rmqtool.rules import sending as send_rules
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.queue_selection import Faults, QueueIndex, Selector, unavailable
from rmqtool.rules.releases import V4_9, V5_3
from rmqtool.rules.sending import Rejected
from rmqtool.services.offsets.files import BrokerFile
from rmqtool.store.layout.paths import StoreLayout
from tests.interop.broker import Broker
from tests.interop.client import Client
from tests.interop.test_rebalance import as_json, from_json

pytestmark = pytest.mark.interop


NAMES = [
    *("Orders", "a", "%RETRY%g", "%DLQ%g", "a|b-c_d", "a b", "", " ", "\t\n", "\u00a0", "\u2003", "\x1c", "\u2007"),
    *("a/b", "a.b", "é", "主题", "a\n", "🙂", "x" * 127, "x" * 128, "x" * 255, "x" * 256, "é" * 200, " " * 130),
    *sorted(NOT_SENT_TO),
    *("TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_x", "DefaultCluster"),
]


def agree(answer: dict[str, Any], rule: Any, *arguments: Any) -> bool:
    """Check that our rule accepts or refuses like the client, with the same code and text; returns whether refused."""
    ours: tuple[int, str] | None = None
    try:
        rule(*arguments)
    except Rejected as err:
        ours = err.code, str(err)
    assert ours == ((answer.get("code", -1), answer["message"]) if "error" in answer else None), arguments
    return ours is not None


def test_names(client: Client) -> None:
    pick = random.Random(1)
    alphabet = string.ascii_letters + string.digits + "%|-_"
    names = NAMES + ["".join(pick.choices(alphabet + " ./@é", k=6)) for _ in range(300)]
    refused = [agree(client.ask("checkTopic", text=name), send_rules.check_topic, name) for name in names]
    assert 50 < sum(refused) < len(names) - 50
    for name in names:
        agree(client.ask("checkGroup", text=name), send_rules.check_group, name)


def as_item(topic: str, body: bytes | None, flag: int = 0, properties: dict[str, str] | None = None) -> dict[str, Any]:
    encoded = base64.b64encode(body).decode() if body is not None else None
    return {"topic": topic, "body": encoded, "flag": flag, "properties": properties or {}}


def test_messages(client: Client) -> None:
    bodies = (None, b"", b"x", bytes(4 << 20), bytes((4 << 20) + 1))
    outcomes = set()
    for body in bodies:
        for topic in ("Orders", "a b", "OFFSET_MOVED_EVENT"):
            answer = client.ask("checkMessage", items=[as_item(topic, body)])
            outcomes.add(agree(answer, send_rules.check_message, topic, body))
    assert outcomes == {True, False}


def test_batches(client: Client) -> None:
    pick = random.Random(2)
    refused = 0
    for _ in range(300):
        odd = pick.random() < 0.4
        messages = [
            Message(
                pick.choice(["T", "T", "U", "%RETRY%g"]) if odd else "T",
                pick.randbytes(pick.randrange(1, 40)),
                flag=pick.randrange(-(2**31), 2**31),
                properties=dict(
                    pick.sample([("WAIT", "true"), ("KEYS", "k1 k2"), ("p", "v é"), ("DELAY", "0"), ("q", "\x01x")], 3)
                )
                | (
                    {"WAIT": pick.choice(["true", "false", "TRUE", ""]), "DELAY": pick.choice(["0", "1", "-1"])}
                    if odd
                    else {}
                ),
            )
            for _ in range(pick.randrange(1, 5))
        ]
        named = [dict(message.properties) for message in messages]
        items = [as_item(m.topic, m.body, m.flag, properties) for m, properties in zip(messages, named, strict=True)]
        answer = client.ask("batch", items=items)
        topics = [message.topic for message in messages]
        if agree(answer, send_rules.check_batch, list(zip(topics, named, strict=True))):
            refused += 1
            continue
        theirs, ours = base64.b64decode(answer["body"]), encode(messages, named)
        # a hash map decides about the order of properties there, so all else is compared byte by byte
        assert len(theirs) == len(ours)
        assert decode(theirs) == decode(ours)
        assert answer["properties"] == "WAIT\x01" + send_rules.batch_properties(named[0])["WAIT"]
        item = as_item("T", messages[0].body, messages[0].flag, {"KEYS": "k"})
        encoded = base64.b64decode(client.ask("batch", items=[item])["body"])
        assert encoded == encode(messages[:1], [{"KEYS": "k"}])
    assert 30 < refused < 250


def encode(messages: list[Message], named: list[dict[str, str]]) -> bytes:
    return build_batch((m.flag, m.body, build(properties)) for m, properties in zip(messages, named, strict=True))


def decode(body: bytes) -> list[tuple[int, bytes, dict[str, str]]]:
    return [(item.flag, item.body, parse(item.properties)) for item in batch_items(body)]


def nearly_time(unique_id: str, now: int, zone: tzinfo | None = None) -> int:
    """The time in an id as computed by a 4.9 client, ms: in this month, or in the last one if that would be in the
    future.

    Raises:
        BadText: not an id of a Java client.
    """
    passed = parse_unique_id(unique_id).millis_of_month
    start, _next = send_ids.month_of(now, zone)
    if passed is None or start + passed < now:
        return start + (passed or 0)
    return send_ids.month_of(start - 1, zone)[0] + passed


def test_unique_ids(client: Client) -> None:
    answer = client.ask("createId", count=5)
    parts = [parse_unique_id(text, answer["now"]) for text in answer["ids"]]
    assert [part.counter for part in parts] == list(range(5))
    assert all(part.process_id == answer["pid"] & 0xFFFF for part in parts)
    assert all(part.timestamp is not None and abs(part.timestamp - answer["now"]) < 10_000 for part in parts)
    assert all(abs(nearly_time(text, answer["now"] + 1, UTC) - answer["now"]) < 10_000 for text in answer["ids"])
    for address, now in (("192.0.2.10", answer["now"]), ("2001:db8:0:0:0:0:0:1", answer["now"] - 40 * 86_400_000)):
        make = send_ids.UniqueIds(parse_address(address), 70_000, 0x5FFD2B27, lambda at=now: at, UTC)  # type: ignore[misc]
        for text in (make(), make()):
            read = client.ask("parseId", text=text)
            assert read["pid"] == 70_000 & 0xFFFF
            assert parse_address(read["address"]) == parse_address(address)
            assert read["time"] == nearly_time(text, answer["now"] + 1, UTC)


def test_choice_of_queues(client: Client) -> None:
    pick = random.Random(3)
    for _ in range(150):
        brokers = ["b1", "b2", "b3"][: pick.randrange(1, 4)]
        queues = [QueueName("T", broker, n) for broker in brokers for n in range(pick.randrange(1, 5))]
        start = pick.choice([0, 5, 2**31 - 3, 2**31 - 1, -7])
        last = pick.choice([None, "b1", "nobody"])
        answer = client.ask("select", queues=as_json(queues), index=start, last=last, count=9)
        selector, ours = Selector(queues, QueueIndex(start)), []
        for _ in range(9):
            ours.append(selector.select(last))
            last = ours[-1].broker_name if last is not None else None
        assert ours == from_json(answer["queues"])


def test_choice_of_queues_with_fault_tolerance(client: Client) -> None:
    pick = random.Random(4)
    left_out = 0
    for _ in range(150):
        brokers = ["b1", "b2", "b3", "b4"][: pick.randrange(1, 5)]
        queues = [QueueName("T", broker, n) for broker in brokers for n in range(pick.randrange(1, 4))]
        nums = {broker: sum(q.broker_name == broker for q in queues) for broker in brokers}
        start = pick.choice([0, 5, 2**31 - 4, 2**31 - 2])
        hurt = pick.sample([*brokers, "gone"], pick.randrange(0, len(brokers) + 2))
        faults = [
            {"broker": broker, "latency": 10 * n, "duration": pick.choice([0, 600_000])}
            for n, broker in enumerate(hurt)
        ]
        answer = client.ask("select", queues=as_json(queues), index=start, faults=faults, count=9)
        table = Faults(lambda: 1_000_000, QueueIndex(start), V4_9)
        for fault in faults:
            table.put(fault["broker"], fault["latency"], fault["duration"])
        left_out += not any(table.available(broker) for broker in brokers)
        selector = Selector(queues, QueueIndex(start), table, nums)
        assert [selector.select("b1") for _ in range(9)] == from_json(answer["queues"])
    assert left_out > 10


def test_how_long_brokers_are_left_out(client: Client) -> None:
    times = sorted(
        {edge + shift for edge in (0, 50, 100, 550, 1000, 2000, 3000, 15_000, 10**6) for shift in (-1, 0, 1)}
    )
    assert client.ask("duration", offsets=times)["durations"] == [unavailable(time, V4_9) for time in times]


@pytest.mark.xdist_group("broker-5.3.3")
@pytest.mark.parametrize("tolerant", [False, True])
def test_choice_of_queues_of_5_3(broker_5: Broker, tolerant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers and failures are reported as in DefaultMQProducerImpl.sendDefaultImpl, repeated here."""
    pick, seen = random.Random(7), Counter[str]()
    for _ in range(120):
        names = ["b1", "b2", "b3", "b4"][: pick.randrange(1, 5)]
        queues = tuple(MessageQueue("T", name, n) for name in names for n in range(pick.randrange(1, 4)))
        route = Route("T", queues, (), {name: {0: f"{name}:1"} for name in names}, {})
        start, last, detected = pick.choice([0, 5, 2**31 - 4]), pick.choice([None, "b1"]), pick.random() < 0.5
        monkeypatch.setattr(choosing, "_index", lambda start=start: QueueIndex(start))
        choice = choosing.QueueChoice(V5_3, tolerant=tolerant, detected=detected, clock=lambda: 1_000_000)
        events: list[tuple[str, int, bool, bool]] = []
        for _ in range(pick.randrange(0, 7)):
            name, took = pick.choice(names), pick.choice([0, 60, 4000, 20_000])  # left out for long, or not at all
            what = pick.choice(["answered", "refused", "failed", "unasked"])
            if what == "answered":
                choice.note_answer(name, took)
            else:
                choice.note_failure(name, took, refused=what == "refused", unasked=what == "unasked")
            unreachable = what == "refused" or (what == "failed" and detected)
            events.append((name, took, what in ("refused", "failed"), not unreachable))
        text = broker_5.ask(
            "choose", tolerant=tolerant, queues=[(queue.broker_name, queue.queue_id) for queue in queues],
            events=events, index=start, last=last, count=9,
        )  # fmt: skip
        choice.select(route)  # makes the selector; its number is that of Java's from here on
        choice._selectors["T"][1].index = index = QueueIndex(start)
        monkeypatch.setattr(choosing, "_index", lambda index=index: index)  # no new start where an attempt has failed
        ours = [choice.select(route, last) for _ in range(9)]
        assert [[queue.broker_name, queue.queue_id] for queue in ours] == text["chosen"]
        for name, left in text["leftOut"].items():
            assert 0 <= choice.remaining_pause(name) - left < 1900, name  # time passes there
            seen["left out" if left else "there"] += 1
        seen["unreachable"] += bool(choice.unreachable)
    if tolerant:
        assert min(seen["left out"], seen["there"], seen["unreachable"]) > 20
    else:
        assert not any(seen.values())


def test_sharding_keys(client: Client) -> None:
    keys = ["", "order", "user-42", "polygenelubricants", "é", "🙂", *map(str, range(50))]  # one hashes to -2**31
    for count in (1, 3, 4, 7):
        queues = [QueueName("T", "b", n) for n in range(count)]
        for key in keys:
            answer = client.ask("selectByHash", queues=as_json(queues), text=key)
            chosen = by_hash(key)([MessageQueue(*queue) for queue in queues])
            assert [QueueName(chosen.topic, chosen.broker_name, chosen.queue_id)] == from_json(answer["queues"])


def test_compression(client: Client) -> None:
    body = b"".join(f"line {n}\n".encode() for n in range(3000))
    assert send_rules.compress(body[:4095]) == (body[:4095], 0)
    made, flag = send_rules.compress(body, 4)
    assert flag == 0x305
    assert made[:2] == b"\x78\x5e"
    assert decompress(made, flag) == body
    theirs = base64.b64decode(client.ask("compress", text=base64.b64encode(body).decode(), level=5)["body"])
    assert decompress(theirs, flag) == body
    assert theirs[:2] == made[:2]


def test_offsets_of_a_broadcasting_client(client: Client) -> None:
    pick = random.Random(5)
    for count in (0, 1, 2, 30):
        queues = [
            QueueName(pick.choice(["T", 'a"b\\', "主题", "{x:1}"]), pick.choice(["b", "c"]), n) for n in range(count)
        ]
        offsets = [pick.choice([0, 12, 2**62]) for _ in queues]
        text = client.ask("broadcastOffsets", queues=as_json(queues), offsets=offsets)["text"].encode()
        read = broadcast_offsets.parse(text)
        assert read == dict(zip(queues, offsets, strict=True))
        assert broadcast_offsets.build(read) == text
        again = client.ask("readBroadcastOffsets", text=broadcast_offsets.build(read).decode())["rows"]
        assert {from_json([row["queue"]])[0]: row["offset"] for row in again} == read


def test_new_offsets_go_where_the_broker_would_put_them(client: Client, tmp_path: Any) -> None:
    pick = random.Random(6)
    keys = [f"topic{n}@group{pick.randrange(9)}" for n in range(400)]
    before = client.ask("consumerOffsets", keys=keys[:250], count=70)["text"].encode()
    after = client.ask("consumerOffsets", keys=keys, count=100)["text"].encode()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_bytes(before)
    file = BrokerFile(StoreLayout(str(tmp_path)), lambda _text: None)
    assert file.build({}) == before
    wanted = {(e.topic, e.group, e.queue_id): e.offset for e in ConsumerOffsets.parse(after).entries()}
    assert file.build(wanted) == after
