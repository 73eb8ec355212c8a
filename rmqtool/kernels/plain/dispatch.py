"""Dispatch of records one at a time, with the codecs."""

import zlib
from typing import Any

import numpy as np

from formats.index import key_hash, tag_key
from formats.message.inner import batch_numbers
from formats.message.properties import DELAY, KEYS, MULTI_DISPATCH, TAGS, UNIQ_KEY, parse, split_keys
from formats.message.read import SCHEDULE_TOPIC, Record, read
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE, TRANSACTION_ROLLBACK, java_hash
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.plain.scan import Row, row_of
from rmqtool.kernels.tables.collected import DONE, FIELDS, FULL, ODD, TOPIC_FIELDS, Collector
from rmqtool.kernels.tables.shapes import Column, Table

_TOPIC_AT, _TOPIC_LENGTH = TOPIC_FIELDS.index("at"), TOPIC_FIELDS.index("length")
_SLOT = TOPIC_FIELDS.index("slot")


def take(memory: Memory, rows: Table, first: int, count: int, into: Collector) -> tuple[int, int]:
    """See :meth:`rmqtool.kernels.dispatch.Dispatch.take`."""
    for number in range(first, count):
        row = Row(*rows[:, number].tolist())
        if _is_full(into, row):
            return number, FULL
        if not _take_row(memory, row, into):
            return number, ODD
    return count, DONE


def survey(memory: Memory, at: int, limit: int, stop: int, crc: bool, tables: bool, into: Collector) -> tuple[int, int]:
    """See :meth:`rmqtool.kernels.dispatch.Dispatch.survey`."""
    while at < stop and isinstance(record := read(memory.view, at, limit, crc=crc), Record):
        row = row_of(record, at)
        if _is_full(into, row):
            return at, FULL
        if not _take_row(memory, row, into):
            return at, ODD
        at += record.total_size
    return at, DONE


def _is_full(into: Collector, row: Row) -> bool:
    """Return whether a record may not fit: it has at most as many keys as bytes of properties."""
    keys_left = into.keys.shape[1] - into.key_count
    return bool(into.records >= into.table.shape[1] or keys_left < row.properties_length)


def _take_row(memory: Memory, row: Row, into: Collector) -> bool:
    """Add a record; return whether it was added completely."""
    number, transaction = into.records, row.sys_flag & TRANSACTION_MASK
    topic = bytes(memory.view[row.topic_at : row.topic_at + row.topic_length])
    stored = bytes(memory.view[row.properties_at : row.properties_at + row.properties_length])
    properties = parse(stored)
    tags_code = java_hash(properties.get(TAGS, ""))
    if topic == SCHEDULE_TOPIC and DELAY in properties:
        level = min(int(properties[DELAY]), len(into.delays))
        if level > 0:
            # a Java long: a forged timestamp wraps
            tags_code = (row.store_timestamp + int(into.delays[level - 1]) + 2**63) % 2**64 - 2**63
    into.table[:, number] = (
        row.physical_offset,
        row.total_size,
        row.queue_id,
        row.queue_offset,
        row.store_timestamp,
        tags_code,
        transaction in (TRANSACTION_NONE, TRANSACTION_COMMIT),
        _topic_number(memory, topic, row.topic_at, into),
    )
    into.records += 1
    if (numbers := batch_numbers(stored)) is not None:
        into.numbers[:, into.number_count] = number, *numbers
        into.number_count += 1
    if into.light and MULTI_DISPATCH in properties:
        return False
    if transaction != TRANSACTION_ROLLBACK:
        keys = [properties[UNIQ_KEY]] if UNIQ_KEY in properties else []
        name = topic.decode("utf-8", "replace")
        hashes = [key_hash(name, key) for key in keys + split_keys(properties.get(KEYS, ""))]
        if into.tags and properties.get(TAGS):
            hashes.append(~key_hash(name, tag_key(properties[TAGS])))
        for hashed in hashes:
            into.keys[:, into.key_count] = number, hashed
            into.key_count += 1
    return True


def _topic_number(memory: Memory, topic: bytes, at: int, into: Collector) -> int:
    """Return the number of a topic in this batch, assigned when it first occurs."""
    mask = len(into.slots) - 1
    slot = zlib.crc32(topic) & mask
    while (number := int(into.slots[slot]) - 1) >= 0:
        topic_at = int(into.topics[_TOPIC_AT, number])
        if memory.view[topic_at : topic_at + int(into.topics[_TOPIC_LENGTH, number])] == topic:
            return number
        slot = (slot + 1) & mask
    number = into.topic_count
    into.topic_count += 1
    into.slots[slot] = number + 1
    into.topics[_TOPIC_AT, number], into.topics[_TOPIC_LENGTH, number] = at, len(topic)
    into.topics[_SLOT, number] = slot
    return number


def group(
    into: Collector, queues: Table, groups: Table, rows: Column, entries: "np.ndarray[Any, np.dtype[Any]]"
) -> tuple[int, int]:
    """See :meth:`rmqtool.kernels.dispatch.Dispatch.group`."""
    columns = dict(zip(FIELDS, into.table[:, : into.records], strict=True))
    queued = np.flatnonzero(columns["queued"])
    total = len(queued)
    if not total:
        return 0, 0
    ids, topics = columns["queue_id"][queued], columns["topic"][queued]
    if (int(ids.max()) - int(ids.min()) + 1) * into.topic_count > len(queues):
        return -1, total
    order = np.lexsort((ids, topics))
    rows[:total] = queued[order]
    stops = np.append(np.flatnonzero(np.diff(topics[order]) | np.diff(ids[order])) + 1, total)
    count, start = len(stops), 0
    for name in ("physical_offset", "size", "tags_code"):
        entries[name][:total] = columns[name][rows[:total]]
    for number, stop in enumerate(stops.tolist()):
        members = rows[start:stop]
        physical, queue_offset = columns["physical_offset"][members], columns["queue_offset"][members]
        grow = bool((physical[1:] > physical[:-1]).all())
        groups[number] = stop, grow and bool((queue_offset[1:] - queue_offset[:-1] == 1).all())
        start = stop
    return count, total
