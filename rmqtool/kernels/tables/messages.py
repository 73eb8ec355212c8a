"""Integer arrays shared with C; :mod:`rmqtool.kernels.build.header` generates their C declarations."""

from typing import Any, NamedTuple

import numpy as np

from rmqtool.kernels.load.memory import array_address
from rmqtool.kernels.tables.shapes import Column, Table

# rows of the result for written messages and of parsed properties; columns of texts and of views
ANSWER = ("physical_offset", "size", "queue_offset")
PROPERTY = ("name_at", "name_length", "value_at", "value_length")
NAMED = ("tags", "keys", "unique")
TEXT = ("at", "length", "port")
VIEW = ("length", "text", "buffer", "offset")
VIEW_INLINE = 12  # longest text stored in the view itself; of longer ones it has the first four bytes
MOST_NAMES = 64  # maximum number of names of one message's properties
ID_SPACE = 56  # digits of the longest message id


class MessageColumns(NamedTuple):
    """Messages to be written, one int64 column per field. ``_at`` columns are memory addresses."""

    topic: Column  # row in the table of topics
    queue: Column  # index into the table of next queue offsets
    queue_id: Column
    flag: Column
    sys_flag: Column  # includes the bits for the host widths
    born_timestamp: Column
    store_timestamp: Column
    born_host: Column  # row in the table of hosts
    store_host: Column
    reconsume_times: Column
    prepared_transaction_offset: Column
    body_at: Column
    body_length: Column
    properties_at: Column
    properties_length: Column


class MessageRow(NamedTuple):
    """One message of :class:`MessageColumns`."""

    topic: int
    queue: int
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    born_host: int
    store_host: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_at: int
    body_length: int
    properties_at: int
    properties_length: int


class MessageTable:
    """Messages to be written, and the tables they refer to.

    Args:
        table: :class:`MessageColumns` as one array, shape (fields, messages).
        topics, hosts: (address, length, port) of each text, shape (texts, 3).
        following: next queue offset of each queue; incremented.

    Attributes:
        answer: physical offset, size and queue offset of each message, shape (3, messages).
        places: addresses of all these arrays, in the order of the C arguments.

    Raises:
        ValueError: an array is not a contiguous int64 array.
    """

    __slots__ = ("answer", "following", "hosts", "places", "table", "topics")

    def __init__(self, table: Table, topics: Table, hosts: Table, following: Column) -> None:
        self.table, self.topics, self.hosts, self.following = table, topics, hosts, following
        self.answer: Table = np.zeros((len(ANSWER), table.shape[1]), np.int64)
        others = map(cells_address, (topics, hosts, following, self.answer))
        self.places = (cells_address(table), table.shape[1], *others)


class Cells:
    """A table with a cached address, for frequent calls.

    Raises:
        ValueError: the array is not a contiguous int64 array.
    """

    __slots__ = ("address", "array", "columns")

    def __init__(self, array: Table) -> None:
        self.array, self.address, self.columns = array, cells_address(array), array.shape[1]


class BatchSize(NamedTuple):
    """Size of the messages of a batch.

    Attributes:
        rows: number of messages; -1 if the batch is malformed.
        at: end of the last message, or position of the malformed bytes.
        stored: total size of bodies and properties as they will be stored, bytes.
        longest: size of the longest properties as received, bytes.
        inner: number of properties whose names begin like those that brokers parse as numbers.
    """

    rows: int
    at: int
    stored: int
    longest: int
    inner: int


class Texts(NamedTuple):
    """Texts by address and length; the length of a missing text is -1."""

    address: Column
    length: Column


def cells_address(array: "np.ndarray[Any, Any]", kind: type[np.generic] = np.int64) -> int:
    """Return the address of a contiguous array of the given type.

    Raises:
        ValueError: the array is not contiguous or has another type.
    """
    if array.dtype != kind or not array.flags.c_contiguous:
        raise ValueError(f"kernels take {np.dtype(kind)} cells one behind the other")
    return array_address(array)
