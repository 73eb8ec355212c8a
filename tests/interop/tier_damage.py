"""Tiers, damaged, read by rmqtool and served by a real broker.

What the broker still serves of the tier, unharmed, rmqtool has to read, too; what it does not serve any more,
``check`` has to report, and what rmqtool reads has to be what was stored. As a program it damages tiers at random:

    python -m tests.interop.tier_damage --cases 30 --seed 1 --release 5.5.0
"""

import argparse
import base64
import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from formats.message.read import Record, read
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.tier.tier import Tier
from tests import roles
from tests.cli.running import rmqtool
from tests.interop.broker import Broker
from tests.roles import NEW_TIERED, TIERED, Node

CASES = {"5.3.3": TIERED, "5.5.0": NEW_TIERED}
_PULL, _FOUND = 11, 0
_ERROR_KINDS = ("error", "warning")
Key = tuple[str, int, int]  # topic, queue id, queue offset


def _segments(store: Path, kind: str) -> list[Path]:
    return sorted(path for path in (store / "tiered").rglob(f"{kind}/*") if path.stat().st_size)


def _write(path: Path, change: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def flip(rng: Random, store: Path) -> str:
    """Flip bits of a segment."""
    path = rng.choice(_segments(store, rng.choice(("COMMIT_LOG", "COMMIT_LOG", "CONSUME_QUEUE", "INDEX"))))
    places = [rng.randrange(path.stat().st_size) for _ in range(rng.randint(1, 6))]

    def do(data: bytearray) -> None:
        for at in places:
            data[at] ^= 1 << rng.randrange(8)

    _write(path, do)
    return f"bits at {places} of {path.relative_to(store)}"


def zero(rng: Random, store: Path) -> str:
    """Zero a range of a segment."""
    path = rng.choice(_segments(store, rng.choice(("COMMIT_LOG", "CONSUME_QUEUE"))))
    at = rng.randrange(path.stat().st_size)
    count = rng.randint(1, 600)
    _write(path, lambda data: data.__setitem__(slice(at, at + count), bytes(len(data[at : at + count]))))
    return f"zeros at {at}, {count} bytes, of {path.relative_to(store)}"


def shorten(rng: Random, store: Path) -> str:
    """Cut the end of a segment off."""
    path = rng.choice(_segments(store, rng.choice(("COMMIT_LOG", "CONSUME_QUEUE"))))
    size = rng.randrange(path.stat().st_size)
    _write(path, lambda data: data.__delitem__(slice(size, None)))
    return f"{path.relative_to(store)} ends at {size}"


def delete(rng: Random, store: Path) -> str:
    """Delete a segment."""
    path = rng.choice(_segments(store, rng.choice(("COMMIT_LOG", "CONSUME_QUEUE", "INDEX"))))
    path.unlink()
    return f"{path.relative_to(store)} is gone"


DAMAGES = (flip, flip, zero, shorten, delete)


def _queues(case: str) -> dict[tuple[str, int], list[int]]:
    """Offsets of the messages that the tier alone had, by queue."""
    queues: dict[tuple[str, int], list[int]] = {}
    for row in roles.served(case):
        if not row["local"] and row["message"] is not None:
            queues.setdefault((row["cqTopic"], row["cqQueueId"]), []).append(row["cqOffset"])
    return queues


def pull(broker: Broker, topic: str, queue_id: int, at: int) -> Record | None:
    """The message at a queue offset, or None where the broker has another answer."""
    fields = {
        "consumerGroup": "judge", "topic": topic, "queueId": str(queue_id), "queueOffset": str(at), "maxMsgNums": "1",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    answer = broker.ask("request", code=_PULL, fields=fields)
    body = base64.b64decode(answer.get("base64") or "")
    record = read(body, 0, len(body)) if answer["code"] == _FOUND and body else None
    return record if isinstance(record, Record) else None


def _content(record: Record | None) -> tuple[Any, ...] | None:
    """What a client gets of a message."""
    if record is None:
        return None
    return record.topic, record.queue_id, record.queue_offset, record.body, record.properties


def _read_here(node: Node) -> dict[Key, str]:
    """Digests of what rmqtool reads."""
    dumped = rmqtool("commitlog", "dump", node.store, *node.options(), "--output", "ndjson", "--body", "base64")
    found = {}
    for line in dumped.out.splitlines():
        row = json.loads(line)
        body = base64.b64decode(row["body"] or "")
        found[row["topic"], row["queueId"], row["queueOffset"]] = hashlib.sha256(body).hexdigest()
    return found


def _copy(node: Node, folder: Path) -> Node:
    shutil.copytree(node.store.parent, folder)
    conf = folder / node.conf.name
    conf.write_text(node.conf.read_text().replace(str(node.store.parent), str(folder)))
    return Node(folder / node.store.name, conf)


def _codes(node: Node) -> dict[tuple[Any, ...], int]:
    checked = rmqtool("check", node.store, *node.options(), "--output", "ndjson")
    rows = (json.loads(line) for line in checked.out.splitlines())
    counts: dict[tuple[Any, ...], int] = {}
    for row in rows:
        if row["severity"] in _ERROR_KINDS:
            name = row["code"], row["topic"], row["queueId"]
            counts[name] = counts.get(name, 0) + row["count"]
    return counts


def hold_against(broker: Broker, case: str, node: Node, damage: Callable[[Path], object], folder: Path) -> int:
    """Damage a copy, read it, and let the broker serve another one; returns how many messages it serves no more."""
    mine = _copy(node, folder / "mine")
    damage(mine.store)
    judged = _copy(mine, folder / "judged")
    before, after = _codes(node), _codes(mine)
    here = _read_here(mine)
    whole = Tier.of(StoreLayout(str(node.store), load(str(node.conf))))
    assert whole is not None
    told = {(row["cqTopic"], row["cqQueueId"], row["cqOffset"]): row for row in roles.served(case)}
    for key, digest in here.items():
        if key in told and told[key]["message"] is not None:
            assert digest == told[key]["message"]["bodySha256"], f"{key} is not what was stored"
    broker.boot(judged.store, judged.settings)
    gone = 0
    try:
        for (topic, queue_id), offsets in sorted(_queues(case).items()):
            for at in offsets:
                if _content(pull(broker, topic, queue_id, at)) == _content(whole.record(topic, queue_id, at)):
                    assert (topic, queue_id, at) in here, f"the broker serves {topic}/{queue_id} {at}, we do not"
                else:
                    gone += 1
    finally:
        broker.stop()
    if gone:
        assert after != before, f"{gone} messages are not served, and check says nothing of it"
    return gone


def at_random(seed: int, broker: Broker, case: str, node: Node, folder: Path) -> int:
    """Damage a tier at random, one to three times."""
    rng, done = Random(seed), list[str]()

    def damage(store: Path) -> None:
        for _ in range(rng.choice((1, 1, 2, 3))):
            done.append(rng.choice(DAMAGES)(rng, store))

    try:
        gone = hold_against(broker, case, node, damage, folder)
    except Exception as err:
        raise AssertionError(f"seed {seed}, {folder}: {done}\n{type(err).__name__}: {err}") from err
    shutil.rmtree(folder)
    return gone


def prepared(case: str, folder: Path) -> Node:
    """The store after a recovery, as its broker had been killed."""
    node = roles.unpack(case, "a", folder)
    assert rmqtool("recover", node.store, "--yes", *node.options()).code == 0
    shutil.rmtree(f"{node.store}.rmqtool")
    return node


def main(count: int, seed: int, release: str, seconds: float) -> int:
    """Run random cases, as many as there is time for; returns the number of failures."""
    folder, failed, done, gone = Path(tempfile.mkdtemp(prefix="rmqtool-tier-")), 0, 0, 0
    node, end = prepared(CASES[release], folder / "whole"), time.monotonic() + seconds
    with Broker(release) as broker:
        for number in range(seed, seed + count):
            if time.monotonic() > end:
                break
            done += 1
            try:
                gone += bool(at_random(number, broker, CASES[release], node, folder / str(number)))
            except AssertionError as err:
                failed += 1
                print(str(err)[:2000], flush=True)
    print(f"{release}, seed {seed}: {done} cases, {failed} failed; in {gone} the broker serves less", flush=True)
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--release", choices=[*CASES], default="5.5.0")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no more cases after that")
    given = parser.parse_args()
    sys.exit(1 if main(given.cases, given.seed, given.release, given.seconds) else 0)
