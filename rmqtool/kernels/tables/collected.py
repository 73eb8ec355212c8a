"""Data that dispatch collects from records: columns, index keys, topics."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rmqtool.kernels.tables.shapes import Column, Table

FIELDS = ("physical_offset", "size", "queue_id", "queue_offset", "store_timestamp", "tags_code", "queued", "topic")
TOPIC_FIELDS = ("at", "length", "mix", "hash", "good", "slot")  # hash: Java hash of the topic and a '#'
DONE, FULL, ODD = range(3)


class BatchNumbers(NamedTuple):
    """Numbers of the records that are inner batches, in columns of int64."""

    row: Column  # row of the record; ascending
    base: Column  # queue offset of the first message
    messages: Column  # number of messages


@dataclass(slots=True)
class Collector:
    """Collected data and the space for it; mirrors ``collector`` in c/dispatch.c.

    Attributes:
        delays: delays of levels 1, 2, ... in ms.
        light: leave records with additional queues to the caller.
        tags: also index tags as keys (5.4).
        table: int64 of shape (:data:`FIELDS`, capacity).
        keys: int64 of shape (2, keys): record and hash of each index key; hashes of tags are complemented.
        topics: int64 of shape (:data:`TOPIC_FIELDS`, capacity).
        slots: hash table of topics: number + 1, or 0; int32; its size is a power of two above the number of topics.
        numbers: int64 of shape (fields of :class:`BatchNumbers`, capacity).
        records, key_count, topic_count, number_count: how many of each have been collected.
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
    """Index keys in C-contiguous columns of int64; mirrors ``key_columns`` in c/index.c."""

    row: Column  # record of each key, as an index into the last two columns; ascending
    hash: Column  # hash of each key; never negative
    physical_offset: Column  # of each record
    store_timestamp: Column
