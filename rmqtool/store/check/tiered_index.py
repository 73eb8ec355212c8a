"""Check the index of tiered storage: uploaded segments, and local files that are not uploaded yet.

Source: tieredstore.index.IndexStoreFile (parseKeyHash, putKey, doCompaction; 5.3.3).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from formats.config.tiered import INDEX, TieredMetadata
from formats.index import key_hash
from formats.layouts.derived import (
    TIERED_INDEX_HEAD,
    TIERED_INDEX_ITEM,
    TIERED_INDEX_SLOT,
    TIERED_LOCAL_INDEX_ITEM,
)
from formats.message.properties import KEYS, UNIQ_KEY, parse
from formats.message.read import Record, read
from rmqtool.store.check.common.context import Context
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.layout.tier_signs import LOCAL_INDEX
from rmqtool.store.tier.tier import Tier

_SIGN = 1 << 32
UPLOADED, LOCAL = 0xBCC50285 - _SIGN, 0xBCC50289 - _SIGN  # magic codes
Items = npt.NDArray[Any]


class TieredIndexCheck:
    """Checks that every item of the index leads to its message.

    Args:
        tier: the tier of the store.
        metadata: names the topics by their ids.
    """

    def __init__(self, ctx: Context, tier: Tier, metadata: TieredMetadata) -> None:
        self._ctx, self._tier = ctx, tier
        self._topics = {topic.topic_id: name for name, topic in metadata.topics.items()}

    def run(self) -> None:
        """Check all of them."""
        for key, file in self._tier.segments.items():
            if key[1] == INDEX:
                self._check_uploaded(file)
                file.release()
        for entry in self._ctx.layout.entries(LOCAL_INDEX):
            if entry.is_file():
                file = Segment(entry.path, 0, entry.size, entry.mtime_ns)
                self._check_local(file)
                file.release()

    def _add(self, file: Segment, actual: str, offset: int | None = None, count: int = 1) -> None:
        self._ctx.found.add("tiered-index", self._ctx.name(file.path), offset=offset, actual=actual, count=count)

    def _check_uploaded(self, file: Segment) -> None:
        head = self._head(file, UPLOADED)
        if head is None:
            return
        _magic, begin, _end, _used, number = head
        slots_size = file.size - TIERED_INDEX_HEAD.size - TIERED_INDEX_ITEM.size * number
        if number < 0 or slots_size < TIERED_INDEX_SLOT.size or slots_size % TIERED_INDEX_SLOT.size:
            self._add(file, f"{number} items do not fit into {file.size} bytes", 0)
            return
        first = TIERED_INDEX_HEAD.size + slots_size
        slots = np.frombuffer(file.read(TIERED_INDEX_HEAD.size, slots_size), TIERED_INDEX_SLOT.dtype)
        items = np.frombuffer(file.read(first, TIERED_INDEX_ITEM.size * number), TIERED_INDEX_ITEM.dtype)
        ends = np.cumsum(slots["bytes"], dtype=np.int64) + first
        wrong = (slots["position"] != ends - slots["bytes"]) | (slots["bytes"] % TIERED_INDEX_ITEM.size != 0)
        if wrong.any() or ends[-1] != file.size:
            row = int(np.argmax(wrong)) if wrong.any() else len(slots) - 1
            at = TIERED_INDEX_HEAD.size + row * TIERED_INDEX_SLOT.size
            self._add(file, f"slot {row}: position {slots['position'][row]}, {slots['bytes'][row]} bytes", at)
        else:
            rows = np.repeat(np.arange(len(slots)), slots["bytes"] // TIERED_INDEX_ITEM.size)
            self._check_slots(file, items, rows, len(slots), first)
        self._check_items(file, items, begin, first, TIERED_INDEX_ITEM.size)

    def _check_local(self, file: Segment) -> None:
        head = self._head(file, LOCAL)
        if head is None:
            return
        conf = self._ctx.layout.conf
        slots = conf.number("tieredStoreIndexFileMaxHashSlotNum", 5_000_000)
        most = conf.number("tieredStoreIndexFileMaxIndexNum", 20_000_000)
        first = TIERED_INDEX_HEAD.size + TIERED_INDEX_SLOT.size * slots
        if file.size != first + TIERED_LOCAL_INDEX_ITEM.size * most:
            actual = "the numbers of slots and items are not those of the settings (tieredStoreIndexFileMaxHashSlotNum)"
            self._ctx.found.add("not-checked", self._ctx.name(file.path), actual=actual)
            return
        _magic, begin, _end, _used, number = head
        if not 0 <= number < most:
            self._add(file, f"{number} items, of at most {most - 1}", 0)
            return
        # item 0 is never used
        first += TIERED_LOCAL_INDEX_ITEM.size
        items = np.frombuffer(file.read(first, TIERED_LOCAL_INDEX_ITEM.size * number), TIERED_LOCAL_INDEX_ITEM.dtype)
        wrong = (items["previous_item"] < 0) | (items["previous_item"] > np.arange(number))
        if wrong.any():
            row = int(np.argmax(wrong))
            at = first + row * TIERED_LOCAL_INDEX_ITEM.size
            self._add(file, f"item {row + 1}: after item {items['previous_item'][row]}", at, int(wrong.sum()))
        self._check_items(file, items, begin, first, TIERED_LOCAL_INDEX_ITEM.size)

    def _head(self, file: Segment, magic: int) -> tuple[int, ...] | None:
        data = file.read(0, TIERED_INDEX_HEAD.size)
        if len(data) < TIERED_INDEX_HEAD.size:
            self._add(file, f"{file.size} bytes")
            return None
        head: tuple[int, ...] = TIERED_INDEX_HEAD.unpack_from(data, 0)
        if head[0] != magic:
            self._add(file, f"magic code {head[0] % _SIGN:#x}, not {magic % _SIGN:#x}", 0)
            return None
        return head

    def _check_slots(self, file: Segment, items: Items, rows: Items, slots: int, first: int) -> None:
        """Check that every item is in the slot of its hash."""
        wrong = items["hash_code"] % slots != rows
        if wrong.any():
            row = int(np.argmax(wrong))
            actual = f"hash {items['hash_code'][row]} in slot {rows[row]} of {slots}"
            self._add(file, actual, first + row * TIERED_INDEX_ITEM.size, int(wrong.sum()))

    def _check_items(self, file: Segment, items: Items, begin: int, first: int, size: int) -> None:
        names = ("hash_code", "topic_id", "queue_id", "position", "size", "time_difference")
        for row, item in enumerate(zip(*(items[name].tolist() for name in names), strict=True)):
            if (reason := self._find_fault(item, begin)) is not None:
                self._add(file, reason, first + row * size)

    def _find_fault(self, item: tuple[int, ...], begin: int) -> str | None:
        """Why an item does not lead to a message with its key; None if it does, or its segment has expired."""
        hash_code, topic_id, queue_id, position, size, difference = item
        topic = self._topics.get(topic_id)
        if topic is None:
            return f"topic id {topic_id}, which is not in the metadata" if self._topics else None
        queue = self._tier.queues.get((topic, queue_id))
        if queue is None or not queue.log:
            return f"{topic} queue {queue_id} is not in the tier" if not self._tier.known else None
        if position < queue.log[0].base:
            return None
        log = Segments(queue.log, []).find(position)
        record = read(log.view(), position - log.base, log.size, crc=False) if log is not None else None
        if not isinstance(record, Record) or record.total_size != size:
            return f"{topic} queue {queue_id}: no message of {size} bytes at position {position}"
        properties = parse(record.properties)
        keys = [properties.get(UNIQ_KEY, ""), *properties.get(KEYS, "").split(" ")]
        if hash_code not in {key_hash(topic, key) for key in keys if key}:
            return f"{topic} queue {queue_id}: hash {hash_code} is of no key of the message at position {position}"
        seconds = int((record.store_timestamp - begin) / 1000)  # towards 0, as in Java
        if seconds != difference:
            return f"{topic} queue {queue_id}: {difference} s after the header's time, not {seconds}"
        return None
