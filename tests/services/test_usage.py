"""Usage by messages: each total equals that of a plain walk of the log."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from formats.message.properties import parse
from formats.primitives import address_text
from rmqtool.services.lookup.selection import Selection
from rmqtool.services.usage.parts import measure_parts
from rmqtool.services.usage.usage import KINDS, Usage, measure
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.log.scan import scan_log
from tests import damage, roles
from tests.amounts import some
from tests.conftest import Unpacked
from tests.services.build import log_of, never

STORES = ("broker", "ipv6", "broker-crash", "broker-5.3.3", "broker-5.5.0", "size-field-negative", "head-file-deleted")


def group_of(item: LocatedRecord) -> tuple[Any, ...]:
    topic = item.record.topic.decode()
    kind = "retry" if topic.startswith("%RETRY%") else "dlq" if topic.startswith("%DLQ%") else None
    name = topic.split("%")[2].split("+")[0].removesuffix("_Popped") if kind else None
    return name, kind


def begin_of(item: LocatedRecord, hours: int) -> int:
    time = datetime.fromtimestamp(item.record.store_timestamp / 1000, UTC).replace(minute=0, second=0, microsecond=0)
    return int((time if hours == 1 else time.replace(hour=0)).timestamp()) * 1000


PLAIN: dict[str, Callable[[LocatedRecord], tuple[Any, ...]]] = {
    "topic": lambda item: (item.record.topic.decode(),),
    "queue": lambda item: (item.record.topic.decode(), item.record.queue_id),
    "tag": lambda item: (item.record.topic.decode(), parse(item.record.properties).get("TAGS") or None),
    "group": group_of,
    "host": lambda item: (address_text(item.record.born_address),),
    "day": lambda item: (begin_of(item, 24),),
    "hour": lambda item: (begin_of(item, 1),),
    "size": lambda item: (min(1 << bits for bits in range(32) if 1 << bits >= item.record.total_size),),
}


def sums_of(usage: Usage) -> dict[tuple[Any, ...], tuple[int, int]]:
    spare = {"purpose", "messages", "bytes", "share"}
    return {
        tuple(value for name, value in row.items() if name not in spare): (row["messages"], row["bytes"])
        for row in usage.rows
    }


def plain_sums(
    items: Iterator[LocatedRecord | Damage],
    key: Callable[[LocatedRecord], tuple[Any, ...]],
    *,
    by_message: bool = False,
) -> dict[Any, tuple[int, int]]:
    """Messages and bytes; with ``by_message`` messages of one batch may differ, whose bytes are those of the first."""
    messages, sizes = Counter[Any](), Counter[Any]()
    for item in items:
        if isinstance(item, LocatedRecord):
            keys = [key(message if by_message else item) for message in item.messages()]
            messages.update(keys)
            sizes[keys[0]] += item.record.total_size
    return {each: (messages[each], sizes[each]) for each in sizes}


@pytest.mark.parametrize("case", STORES)
def test_sums_are_those_of_a_walk(case: str, golden: Unpacked) -> None:
    log = log_of(golden(case))
    assert set(KINDS) == set(PLAIN)
    for by, key in PLAIN.items():
        usage = measure(log, by, Selection(), never)
        wanted = plain_sums(log.walk(crc=False), key, by_message=by == "tag")
        assert sums_of(usage) == wanted, by
        assert usage.log_bytes == usage.bytes == sum(size for _count, size in wanted.values())
        assert [row["bytes"] for row in usage.rows] == sorted((row["bytes"] for row in usage.rows), reverse=True)
        assert abs(sum(row["share"] for row in usage.rows) - 1) < 1e-4


@pytest.mark.parametrize(("case", "node"), [(roles.OLD_DLEDGER, "n0"), (roles.DLEDGER, "n2"), (roles.MULTI_PATH, "a")])
def test_logs_of_other_forms(case: str, node: str, tmp_path: Path) -> None:
    unpacked = roles.unpack(case, node, tmp_path)
    log = CommitLog(StoreLayout(str(unpacked.store), load(str(unpacked.conf))))
    usage = measure(log, "queue", Selection(), never)
    assert usage.messages
    assert sums_of(usage) == plain_sums(log.walk(crc=False), PLAIN["queue"])


def test_only_what_is_chosen(golden: Unpacked) -> None:
    log = log_of(golden("broker"))
    times = sorted(item.record.store_timestamp for item in log.walk() if isinstance(item, LocatedRecord))
    since, until = times[100], times[400]
    usage = measure(log, "topic", Selection(topics=("Order*", "Payments"), since=since, until=until), never)
    wanted = plain_sums(
        (
            item
            for item in log.walk()
            if isinstance(item, LocatedRecord)
            and item.record.topic in (b"Orders", b"Payments")
            and since <= item.record.store_timestamp < until
        ),
        PLAIN["topic"],
    )
    assert sums_of(usage) == wanted
    assert usage.bytes < usage.log_bytes
    assert sum(row["share"] for row in usage.rows) == pytest.approx(usage.bytes / usage.log_bytes, abs=1e-4)


@pytest.mark.parametrize("seed", range(some(12, 100)))
def test_bulk_reading_passes_damage_as_a_walk_does(seed: int, golden_copy: Unpacked) -> None:
    rng = Random(seed)
    store = golden_copy(rng.choice(("broker", "clean", "broker-5.3.3")))
    for _ in range(rng.randint(1, 3)):
        verb = rng.choice((damage.zero_log_range, damage.garbage_in_log, damage.zero_record, damage.other_size,
                           damage.blank_early, damage.tear_last_record, damage.lose_blank))  # fmt: skip
        verb(rng, store)
    log = log_of(store)
    for crc in (True, False):
        walked = [
            (item.physical_offset, item.length) if isinstance(item, Damage) else item.physical_offset
            for item in log.walk(crc=crc)
        ]
        scanned: list[Any] = []
        for item in scan_log(log, crc=crc):
            if isinstance(item, Damage):
                scanned.append((item.physical_offset, item.length))
            else:
                scanned += (item.rows.at + item.file.base).tolist()
        assert scanned == walked


def test_parts_are_those_of_the_directory(golden: Unpacked, tmp_path: Path) -> None:
    store = golden("broker")
    parts = {part.part: part for part in measure_parts(StoreLayout(str(store)))}
    files = [path for path in store.rglob("*") if path.is_file()]
    assert sum(part.files for part in parts.values()) == len(files)
    assert sum(part.bytes for part in parts.values()) == sum(path.stat().st_size for path in files)
    assert parts["index"].bytes == sum(path.stat().st_size for path in (store / "index").iterdir())
    # a log elsewhere is a part of the store, and what two names lead to counts once
    elsewhere = tmp_path / "store"
    elsewhere.mkdir()
    for entry in store.iterdir():
        os.symlink(entry, elsewhere / entry.name)
    os.symlink(elsewhere, elsewhere / "loop")
    linked = {part.part: part for part in measure_parts(StoreLayout(str(elsewhere)))}
    assert {name: part.to_dict() for name, part in linked.items()} == {
        name: part.to_dict() for name, part in parts.items()
    }
