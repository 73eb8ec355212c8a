"""The stores to damage: small ones with everything in them, written by an engine."""

import shutil
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from rmqtool.store.layout.broker_conf import BrokerConf
from tests import damage
from tests.interop.engine import Engine


@dataclass(frozen=True)
class Base:
    """A store left by the engine."""

    name: str
    path: Path
    config: dict[str, Any]
    keys: list[tuple[str, str]]

    @property
    def conf(self) -> BrokerConf:
        """The settings for rmqtool."""
        return BrokerConf({name: str(value) for name, value in self.config.items()})


def sizes(log: int, units: int, slots: int, entries: int) -> dict[str, Any]:
    """The engine's settings for small files."""
    return {
        "mappedFileSizeCommitLog": log,
        "mappedFileSizeConsumeQueue": units * damage.UNIT,
        "maxHashSlotNum": slots,
        "maxIndexNum": entries,
    }


def plain_messages(rng: Random, count: int, topics: int, queues: int) -> list[dict[str, Any]]:
    """Messages with tags and keys, mostly round robin."""
    return [
        {
            "topic": f"Topic{n % topics}",
            "queueId": rng.randrange(queues) if rng.random() < 0.2 else n // topics % queues,
            "body": rng.randbytes(rng.randint(1, 300)),
            "tags": rng.choice(("a", "b", "TagC", "")) or None,
            "keys": f"key{n % 40}",
            "properties": {"UNIQ_KEY": f"{n:032X}"} if n % 3 else {},
        }
        for n in range(count)
    ]


def mixed_messages(rng: Random, count: int) -> list[dict[str, Any]]:
    """Messages with everything that a record may contain."""
    messages: list[dict[str, Any]] = []
    for n in range(count):
        kind = rng.choice(("plain", "plain", "utf8", "ipv6", "delay", "batch", "half", "large", "empty"))
        message: dict[str, Any] = {"topic": "Mixed" if n % 2 else "Other", "queueId": n % 3}
        message |= {"keys": f"key{n % 20} 键{n % 7}", "body": rng.randbytes(rng.randint(1, 200))}
        if kind == "utf8":
            message |= {"tags": "标签", "properties": {"区域": "华东😀"}}
        elif kind == "ipv6":
            message |= {"bornHost": "[2001:db8::1]:1234", "storeHost": rng.choice(("[::1]:10911", "10.0.0.1:10911"))}
        elif kind == "delay":
            message |= {"delayLevel": rng.choice((16, 17, 18)), "tags": "later"}
        elif kind == "batch":
            parts = [{"body": rng.randbytes(50), "keys": f"key{i}", "tags": "b"} for i in range(rng.randint(1, 5))]
            message = {"topic": message["topic"], "queueId": n % 3, "batch": parts}
        elif kind == "half":
            message |= {"sysFlag": rng.choice((4, 8, 12)), "preparedTransactionOffset": n}
        elif kind == "large":
            message["body"] = rng.randbytes(rng.randint(2_000, 12_000))
        elif kind == "empty":
            message = {"topic": message["topic"], "queueId": n % 3, "body": rng.choice((None, b""))}
        messages.append(message)
    return messages


def long_topics(rng: Random, count: int) -> list[dict[str, Any]]:
    """Messages with topics too long for version 1 records, among others."""
    messages = plain_messages(rng, count, 2, 2)
    for number in range(0, count, 3):
        messages[number]["topic"] = "Long" * 40 + str(number % 2)
    return messages


def make_bases(folder: Path, engine: Engine) -> list[Base]:
    """Create all bases with the engine."""
    rng = Random(4_9_8)
    small, tight, wide = sizes(16384, 64, 61, 900), sizes(16384, 64, 32, 240), sizes(49152, 107, 112, 711)
    plain, mixed = plain_messages(rng, 500, 2, 3), mixed_messages(rng, 300)
    one_queue = plain_messages(rng, 700, 1, 1)
    plans = [
        ("plain", small, plain, False),
        ("plain-killed", small, plain, True),
        ("mixed", wide, mixed, False),
        ("mixed-killed", wide, mixed, True),
        ("one-queue", sizes(32768, 64, 61, 900), one_queue, False),
        ("many-queues", tight, plain_messages(rng, 300, 5, 6), False),
        ("few", small, plain[:5], False),
        ("none", small, [], False),
    ]
    if engine.version[0] == "5":
        long = long_topics(rng, 400)
        plans += [("long-topics", small, long, False), ("long-topics-killed", small, long, True)]
    if engine.version >= "5.4":
        both = small | {"rocksdbCQDoubleWriteEnable": True}
        plans += [("both-forms", both, plain, False), ("both-forms-killed", both, plain, True)]
    bases = []
    for kind, config, messages, kill in plans:
        name = f"{engine.version}-{kind}"
        path = folder / name
        written = engine.write(path, messages, config, kill=kill)
        assert all(row["status"] == "PUT_OK" for row in written["results"]), name
        bases.append(Base(name, path, config, keys_of(messages)))
    bases += [expired(engine, base) for base in bases if base.name[6:] in ("plain", "mixed", "one-queue")]
    return bases


def keys_of(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Keys to query: all that are in use, and an unused one."""
    result = {("Topic0", "absent")}
    for message in messages:
        for part in message.get("batch", [message]):
            result |= {(message["topic"], key) for key in (part.get("keys") or "").split()}
            if unique := (part.get("properties") or {}).get("UNIQ_KEY"):
                result.add((message["topic"], unique))
    return sorted(result)[:: max(1, len(result) // 60)]


def expired(engine: Engine, base: Base) -> Base:
    """A store whose oldest log files, and the queue files that point into them, have expired."""
    path = base.path.with_name(f"{base.path.name}-expired")
    shutil.copytree(base.path, path)
    files = damage.log_files(path)
    for file in files[: len(files) // 3]:
        file.unlink()
    first = int(files[len(files) // 3].name)
    for file in damage.queue_files(path):
        if len(list(file.parent.iterdir())) > 1:
            (last,) = struct.unpack(">q", file.read_bytes()[-damage.UNIT : -damage.UNIT + 8])
            if 0 < last < first:
                file.unlink()
    seen = engine.open(path, base.config)
    assert seen["loadOk"]
    return replace(base, name=f"{base.name}-expired", path=path)
