"""Create commit logs for benchmarks: many realistic records, written fast.

Records are created in blocks. The records of a block differ in topic, queue, tag and lengths; blocks differ in
positions, times, keys and message ids. So a series of blocks is one NumPy array.
"""

from pathlib import Path

import numpy as np

from formats.layouts.derived import HEAD_V4_V4
from formats.message import properties
from formats.message.build import build_blank, compose, pack
from formats.message.read import Record

BLOCK = 64  # records
_CHUNK = 16 << 20  # bytes made at once
_TOPICS = ("OrderEvents", "PaymentEvents", "audit-log", "inventory_updates")
_QUEUES = 4
_TAGS = ("created", "paid", "refund", "TagA")
_DIGITS = 8
_BORN = 1_700_000_000_000
_KEY, _ID = b"order-", b"C000020A1A2B18B4AAC247B7"
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


class _Template:
    """One block: its bytes, and the positions of the numbers that differ between blocks."""

    def __init__(self, body: int) -> None:
        random = np.random.default_rng(body)
        self.starts: list[int] = []
        self.ordinals: list[int] = []
        self.per_block: list[int] = []
        self.keys: list[int] = []
        self.ids: list[int] = []
        parts: list[bytes] = []
        at = 0
        queues: list[tuple[str, int]] = []
        for number in range(BLOCK):
            record = _record(number, random.bytes(body + number % 3 - 1 if body > 1 else body))
            packed = pack(record)
            queue = (record.topic.decode(), record.queue_id)
            self.ordinals.append(queues.count(queue))
            queues.append(queue)
            self.starts.append(at)
            self.keys.append(at + packed.index(_KEY) + len(_KEY))
            self.ids.append(at + packed.index(_ID) + len(_ID))
            parts.append(packed)
            at += len(packed)
        self.per_block = [queues.count(queue) for queue in queues]
        self.bytes = np.frombuffer(b"".join(parts), np.uint8)

    def blocks(self, first: int, count: int, physical_offset: int) -> np.ndarray:
        """Blocks ``first`` to ``first + count`` of a log, laid out from an offset on."""
        made = np.tile(self.bytes, (count, 1))
        numbers = np.arange(first, first + count)
        offsets = physical_offset + np.arange(count) * len(self.bytes)
        for i, start in enumerate(self.starts):
            message = numbers * BLOCK + i

            def field(name: str, values: np.ndarray, start: int = start) -> None:
                at = start + HEAD_V4_V4.offsets[name]
                made[:, at : at + 8] = values.astype(">i8").view(np.uint8).reshape(-1, 8)

            field("queue_offset", numbers * self.per_block[i] + self.ordinals[i])
            field("physical_offset", offsets + start)
            field("born_timestamp", _BORN + message // 50)
            field("store_timestamp", _BORN + 2 + message // 50)
            for digit in range(_DIGITS):
                made[:, self.keys[i] + digit] = ord("0") + message // 10 ** (_DIGITS - 1 - digit) % 10
                made[:, self.ids[i] + digit] = _HEX[(message >> 4 * (_DIGITS - 1 - digit)) & 15]
        return made


def _record(number: int, body: bytes) -> Record:
    items = {
        properties.KEYS: _KEY.decode() + "0" * _DIGITS,
        properties.UNIQ_KEY: _ID.decode() + "0" * _DIGITS,
        "CLUSTER": "DefaultCluster",
        "WAIT": "true",
        properties.TAGS: _TAGS[number // 7 % len(_TAGS)],
    }
    return compose(
        topic=_TOPICS[number % len(_TOPICS)].encode(),
        queue_id=number // len(_TOPICS) % _QUEUES,
        queue_offset=0,
        physical_offset=0,
        body=body,
        properties=properties.build(items),
        born_timestamp=0,
        born_address=bytes([192, 0, 2, 10]),
        born_port=51234,
        store_timestamp=0,
        store_address=bytes([198, 51, 100, 7]),
        store_port=10911,
    )


def write_log(folder: Path, *, body: int, file_size: int, messages: int | None = None, files: int | None = None) -> int:
    """Write commit-log files of ``file_size`` bytes; returns the number of messages.

    Args:
        body: bytes of each body, plus or minus one.
        messages: minimum number of messages, with the rest of the last file unwritten; by default as many as fill
            ``files``.
    """
    template = _Template(body)
    size = len(template.bytes)
    folder.mkdir(parents=True, exist_ok=True)
    per_file = (file_size - len(build_blank(8))) // size
    if not per_file:
        raise ValueError(f"a block of {size} bytes needs larger files")
    left = -(-messages // BLOCK) if messages is not None else per_file * (files or 1)
    block = number = 0
    while left > 0:
        base = number * file_size
        with (folder / f"{base:020d}").open("wb") as file:
            for first in range(0, min(left, per_file), _CHUNK // size or 1):
                count = min(_CHUNK // size or 1, left - first, per_file - first)
                file.write(template.blocks(block + first, count, base + first * size).data)
            if left >= per_file:
                file.write(build_blank(file_size - file.tell()))
            file.truncate(file_size)
        block += min(left, per_file)
        left -= per_file
        number += 1
    return block * BLOCK
