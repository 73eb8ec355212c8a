"""What dispatch collects of records: their columns, the keys of the index, their topics."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rmqtool.kernels.tables.shapes import Column, Table

FIELDS = ("physical_offset", "size", "queue_id", "queue_offset", "store_timestamp", "tags_code", "queued", "topic")
TOPIC_FIELDS = ("at", "length", "mix", "hash", "good", "slot")  # hash: Java's, of the topic and a '#'
DONE, FULL, ODD = range(3)


class BatchNumbers(NamedTuple):
    """What records say that are inner batches, in columns of int64."""

    row: Column  # of the record; ascending
    base: Column  # queue offset of its first message
    messages: Column  # of it


@dataclass(slots=True)
class Collector:
    """What is collected, and the room for it; the same as ``collector`` in c/dispatch.c.

    Attributes:
        delays: milliseconds of delay levels 1, 2, ...
        light: leave records with further queues to the caller.
        tags: tags are keys of the index too (5.4).
        table: int64 of shape (:data:`FIELDS`, capacity).
        keys: int64 of shape (2, room): record and hash of each index key; that of tags is complemented.
        topics: int64 of shape (:data:`TOPIC_FIELDS`, capacity).
        slots: hash table of topics: number + 1, or 0; int32, a power of two of them, more than topics.
        numbers: int64 of shape (fields of :class:`BatchNumbers`, capacity).
        records, key_count, topic_count, number_count: how many there are.
    """

    delays: Column
    light: bool
    tags: bool
    table: Table
    keys: Table
    topics: Table
    slots: "np.ndarray[Any, np.dtype[np.int32]]"
    numbers: Table
    records: int = 0
    key_count: int = 0
    topic_count: int = 0
    number_count: int = 0


class Keys(NamedTuple):
    """Index keys in columns of int64, C-contiguous; the same as ``key_columns`` in c/index.c."""

    row: Column  # of each key, its record: position in the last two; ascending
    hash: Column  # of each key; none is negative
    physical_offset: Column  # of each record
    store_timestamp: Column
