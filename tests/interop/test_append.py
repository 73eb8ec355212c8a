"""Stores written by us and by the engines: the same messages give the same bytes, and they can continue each
other's.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from formats.message.bodies import BatchItem, build_batch
from formats.message.properties import build
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import RELEASES
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.recovery.command import plan, recover
from tests.amounts import by_turns
from tests.interop.engine import Engine, golden_config, unpack_golden
from tests.store.helpers import conf_of, content, entries_of, key_hits

pytestmark = pytest.mark.interop

SIZES = {
    "mappedFileSizeCommitLog": 16384, "mappedFileSizeConsumeQueue": 1280, "maxHashSlotNum": 61, "maxIndexNum": 300,
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "extension": {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 1024},
    "light": {"enableLmq": True, "enableMultiDispatch": True},
    "no-index": {"messageIndexEnable": False},
}
Put = dict[str, Any]


def settings(variant: str) -> dict[str, str]:
    """The settings in our format."""
    return {name: str(value).lower() for name, value in (SIZES | VARIANTS[variant]).items()}


def puts(rng: Random, count: int, *, light: bool) -> list[Put]:
    """Messages of every kind in the judge's format, with properties in stored order."""
    made: list[Put] = []
    for n in range(count):
        kind = rng.choice(("plain", "plain", "utf8", "ipv6", "delay", "batch", "half", "large", "empty", "light"))
        put: Put = {"topic": rng.choice(("Mixed", "Other", "第三")), "queueId": n % 3, "body": rng.randbytes(n % 200)}
        put["properties"] = {"UNIQ_KEY": f"{n:032X}", "KEYS": f"key{n % 20} 键{n % 7}", "TAGS": "标签" * (n % 2)}
        if not put["properties"]["TAGS"]:
            del put["properties"]["TAGS"]
        if kind == "utf8":
            put["properties"] |= {"区域": "华东😀"}
        elif kind == "ipv6":
            put |= {"bornHost": "[2001:db8::1]:1234", "storeHost": rng.choice(("[::1]:10911", "10.0.0.1:10911"))}
        elif kind == "delay":
            put |= {"delayLevel": rng.choice((1, 3, 18, 40))}
        elif kind == "batch":
            parts = [
                {"body": rng.randbytes(50), "flag": i, "properties": {"KEYS": f"key{i}", "TAGS": "b"}}
                for i in range(rng.randint(1, 9))
            ]
            put = {
                "topic": put["topic"],
                "queueId": n % 3,
                "batch": parts,
                "properties": rng.choice(({}, {"OF": "all"})),
            }
        elif kind == "half":
            put |= {"sysFlag": rng.choice((4, 8, 12)), "preparedTransactionOffset": n, "flag": -n}
        elif kind == "large":
            put["body"] = rng.randbytes(rng.randint(2_000, 12_000))
        elif kind == "empty":
            put |= {"body": b"", "properties": {}, "reconsumeTimes": n}
        elif kind == "light" and light:
            put["properties"] |= {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b" if n % 2 else "%LMQ%b,other"}
        made.append(put)
    return made


def messages_of(put: Put, times: Sequence[tuple[int, int | None]]) -> list[NewMessage]:
    """The judge's messages as ours, with (born, stored) of each taken from the engine's store."""
    parts = put.get("batch", [put])
    made = []
    for part, (born, stored) in zip(parts, times, strict=True):
        properties = dict(part["properties"])
        if level := part.get("delayLevel"):
            properties["DELAY"] = str(level)
        made.append(
            NewMessage(
                topic=put["topic"],
                queue_id=put["queueId"],
                body=part["body"],
                properties=properties,
                flag=part.get("flag", 0),
                sys_flag=part.get("sysFlag", 0),
                born_timestamp=born,
                store_timestamp=stored,
                born_host=put.get("bornHost", "127.0.0.1:40000"),
                store_host=put.get("storeHost", "127.0.0.1:10911"),
                reconsume_times=put.get("reconsumeTimes", 0),
                prepared_transaction_offset=put.get("preparedTransactionOffset", 0),
            )
        )
    return made


def encoded(messages: list[NewMessage], release: str) -> bytes:
    """A batch encoded as by clients."""
    ended = release != "4.9"
    return build_batch([BatchItem(m.flag, m.body, build(m.property_map(), trailing_separator=ended)) for m in messages])


def append_all(store: Store, made: list[Put], times: list[tuple[int, int]], release: str) -> None:
    """Append the judge's messages with their times."""
    at = 0
    for put in made:
        count = len(put.get("batch", [put]))
        messages = messages_of(put, times[at : at + count])
        at += count
        if "batch" not in put:
            assert store.append(messages[0]).ok
        elif put["properties"]:
            whole = replace(messages[0], properties=put["properties"], flag=0, body=encoded(messages, release))
            assert store.live.append_encoded(whole).messages == count
        else:
            assert all(result.ok for result in store.append_batch(messages))
    assert at == len(times)


def times_in(store: Path, variant: str) -> list[tuple[int, int]]:
    """(born, store timestamp) of every message in a log."""
    layout = StoreLayout(str(store), _conf(variant))
    walked = CommitLog(layout).walk()
    return [(i.record.born_timestamp, i.record.store_timestamp) for i in walked if isinstance(i, LocatedRecord)]


def _conf(variant: str) -> BrokerConf:
    return BrokerConf(settings(variant))


def written(store: Path) -> dict[str, str]:
    """Log, queues and index: files whose content depends only on the messages."""
    parts = ("commitlog/", "consumequeue", "index/")
    return {name: digest for name, digest in content(store).items() if name.startswith(parts)}


@by_turns(2)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_messages_give_the_same_files_as_4_9(variant: str, engine_4: Engine, tmp_path: Path) -> None:
    same_files(variant, engine_4, tmp_path)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "light"])
def test_the_same_messages_give_the_same_files_as_5_3(variant: str, engine_5: Engine, tmp_path: Path) -> None:
    """Without light queues: 5.3.3 assigns their offsets in a hook of the broker, not in the store."""
    same_files(variant, engine_5, tmp_path)


def same_files(variant: str, engine: Engine, tmp_path: Path) -> None:
    """Check that both write the same messages to identical files."""
    made = puts(Random(variant), 260, light=variant == "light")
    theirs = tmp_path / "theirs"
    answer = engine.write(theirs, made, SIZES | VARIANTS[variant])
    assert {row["status"] for row in answer["results"]} == {"PUT_OK"}
    ours = tmp_path / "ours"
    with Store.create(ours, broker_conf=settings(variant), release=RELEASES[engine.version[:3]]) as store:
        append_all(store, made, times_in(theirs, variant), engine.version[:3])
    assert written(ours) == written(theirs)
    assert plan(StoreLayout(str(ours), _conf(variant))).clean


def test_an_engine_goes_on_where_we_stopped(engine: Engine, tmp_path: Path) -> None:
    """We create and append, the engine reads and appends, we read and append, the engine reads."""
    release = engine.version[:3]
    store = tmp_path / "store"
    made = puts(Random(7), 200, light=False)
    config = dict(SIZES)
    with Store.create(store, broker_conf=settings("plain"), release=RELEASES[release]) as ours:
        for put in made[:100]:
            messages = messages_of(put, [(1, None)] * len(put.get("batch", [put])))
            results = ours.append_batch(messages) if "batch" in put else ours.append_many(messages)
            assert all(result.ok for result in results)
    layout = StoreLayout(str(store), _conf("plain"))
    before = entries_of(layout)
    answer = engine.open(store, config, keys=[("Mixed", "key3"), ("Other", "键2")])
    assert answer["loadOk"]
    assert answer["dispatchBehind"] == 0
    assert _entries(answer) == before
    assert {(q["topic"], q["key"]): sorted(q["physicalOffsets"]) for q in answer["queries"]} == {
        (topic, key): key_hits(layout, topic, key) for topic, key in (("Mixed", "key3"), ("Other", "键2"))
    }
    results = engine.write(store, made[100:], config)["results"]
    assert {row["status"] for row in results} == {"PUT_OK"}
    with Store(store, write=True, broker_conf=settings("plain"), release=RELEASES[release]) as ours:
        more = ours.append_many(
            [NewMessage(topic="Mixed", queue_id=1, body=b"%d" % n, keys="last") for n in range(600)]
        )
        assert all(result.ok for result in more)
        assert len(ours.query_key("Mixed", "last")) == 600
    layout = StoreLayout(str(store), _conf("plain"))
    answer = engine.open(store, config)
    assert answer["loadOk"]
    assert _entries(answer) == entries_of(layout)
    assert all(row["message"] is not None for row in answer["messages"])


@by_turns(2)
@pytest.mark.parametrize("case", ["clean", "broker", "ipv6", "queue-ext", "head-file-deleted"])
def test_we_append_to_what_an_engine_wrote(case: str, engine: Engine, tmp_path: Path) -> None:
    store = unpack_golden(case, tmp_path)
    recover(StoreLayout(str(store), conf_of(case)))
    conf = {name: str(value).lower() for name, value in golden_config(case).items()}
    with Store(store, write=True, broker_conf=conf) as ours:
        topics = sorted({(queue.topic, queue.queueId) for queue in ours.queues() if queue.topic[0] not in "%R"})[:3]
        for n in range(150):
            topic, queue_id = topics[n % len(topics)]
            assert ours.append(NewMessage(topic=topic, queue_id=queue_id, body=b"%d" % n, tags="new", keys="new")).ok
    answer = engine.open(store, golden_config(case))
    assert answer["loadOk"]
    assert answer["dispatchBehind"] == 0
    layout = StoreLayout(str(store), conf_of(case))
    assert [row[:5] for row in _entries(answer)] == [row[:5] for row in entries_of(layout)]
    new = [row for row in answer["messages"] if row["message"] and row["message"]["properties"].get("KEYS") == "new"]
    assert len(new) == 150


def _entries(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = ("cqTopic", "cqQueueId", "cqOffset", "cqPhysicalOffset", "cqSize", "cqTagsCode")
    return sorted(tuple(row[name] for name in names) for row in answer["messages"])
