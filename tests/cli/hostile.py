"""A small store with topics, bodies, tags and properties that are hard to print."""

import json
from collections import Counter
from pathlib import Path

from formats.message.build import compose, pack
from formats.primitives import java_hash
from formats.queues.consume import build as build_queue

FILE_SIZE = 1 << 16
QUEUE_FILE_SIZE = 2000
TIME = 1_700_000_000_000

TOPICS = [
    b"plain",
    b"\x1b]0;title\x07",
    b"[red]markup[/red]",
    "主题-é".encode(),
    b'a,b;"c"',
    b"\xc2\x9b31m",
    b"\xff\xfe",
]
BODIES = [
    b"",
    b"text",
    b"two\r\nlines\rand\nmore\t\x0b\x0c",
    b"\x1b[2J\x1b]52;c;ZXZpbA==\x07",
    "\x9b31m \x85 \u2028 \u202e \x7f".encode(),
    b"\xff\x00\xfe binary",
    b'a "quoted", cell; =cmd()|x',
    "消息🙂e\u0301".encode(),
    b'{"json": [1, {"deep": null}], "esc": "\\u001b[0m"}',
    b"x" * 3000,
]
PROPERTIES = [
    {},
    {"TAGS": "tag", "KEYS": "k1 k2"},
    {"TAGS": "\x1b[31m", "KEYS": 'k,3 "k4"', "UNIQ_KEY": "id\x1b[0m"},
    {"TAGS": "标签", "other\r\n": "\x9bvalue", "empty": " "},
]


def make(root: Path) -> Path:
    """Write the store, with a message for every topic and body."""
    log = bytearray()
    queues: dict[bytes, list[tuple[int, int, int]]] = {}
    counts: Counter[bytes] = Counter()
    number = 0
    for body in BODIES:
        for topic in TOPICS:
            properties = PROPERTIES[number % len(PROPERTIES)]
            number += 1
            record = pack(
                compose(
                    topic=topic,
                    queue_id=0,
                    queue_offset=counts[topic],
                    physical_offset=len(log),
                    body=body,
                    properties="\x02".join(f"{k}\x01{v}" for k, v in properties.items()).encode(),
                    born_timestamp=TIME,
                    born_address=b"\x7f\0\0\1",
                    born_port=1234,
                    store_timestamp=TIME + number,
                    store_address=b"\x7f\0\0\1",
                    store_port=10911,
                )
            )
            tag = properties.get("TAGS")
            queues.setdefault(topic, []).append((len(log), len(record), java_hash(tag) if tag else 0))
            counts[topic] += 1
            log += record
    assert len(log) < FILE_SIZE
    store = root / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / f"{0:020d}").write_bytes(bytes(log).ljust(FILE_SIZE, b"\0"))
    for topic, rows in queues.items():
        # directories of names that are no UTF-8 cannot come from a broker, but from anyone else
        folder = Path(str(store / "consumequeue") + "/" + topic.decode("utf-8", "surrogateescape")) / "0"
        folder.mkdir(parents=True)
        (folder / f"{0:020d}").write_bytes(build_queue(rows).ljust(QUEUE_FILE_SIZE, b"\0"))
    (store / "config").mkdir()
    offsets = {f"{topic.decode('utf-8', 'replace')}@group\x1b[5m\x9b": {"0": 1} for topic in TOPICS}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    names = [topic.decode("utf-8", "replace") for topic in TOPICS]
    table = {name: {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1} for name in names}
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}, ensure_ascii=False))
    (store / "checkpoint").write_bytes(bytes(4096))
    return store
