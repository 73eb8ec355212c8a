"""Tables of integers that both kinds of code read and fill; :mod:`rmqtool.kernels.build.header` tells C of them."""

from typing import Any, NamedTuple

import numpy as np

from rmqtool.kernels.load.memory import array_address
from rmqtool.kernels.tables.shapes import Column, Table

# rows of what is answered for messages that were written, and of items of properties; columns of texts and of views
ANSWER = ("physical_offset", "size", "queue_offset")
PROPERTY = ("name_at", "name_length", "value_at", "value_length")
NAMED = ("tags", "keys", "unique")
TEXT = ("at", "length", "port")
VIEW = ("length", "text", "buffer", "offset")
VIEW_INLINE = 12  # bytes of a text that lie in its view itself; of a longer one, the first four
MOST_NAMES = 64  # of the properties of one record; a name that comes twice is looked for among no more than these
ID_SPACE = 56  # digits of the longest message id


class MessageColumns(NamedTuple):
    """Messages to be written, a column of int64 for each field. ``_at`` columns are addresses in memory."""

    topic: Column  # row of the texts' table
    queue: Column  # position in the table of next queue offsets
    queue_id: Column
    flag: Column
    sys_flag: Column  # with the bits of the hosts' widths
    born_timestamp: Column
    store_timestamp: Column
    born_host: Column  # row of the hosts' table
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


class Messages:
    """Messages to be written, and what they refer to.

    Args:
        table: :class:`MessageColumns` as one array, shape (fields, messages).
        topics, hosts: (address, length, port) of each text, shape (texts, 3).
        following: next queue offset of each queue; counted up.

    Attributes:
        answer: physical offset, size and queue offset of each message, shape (3, messages).
        places: where all these lie, as C takes them.

    Raises:
        ValueError: an array of anything but int64 one behind the other.
    """

    __slots__ = ("answer", "following", "hosts", "places", "table", "topics")

    def __init__(self, table: Table, topics: Table, hosts: Table, following: Column) -> None:
        self.table, self.topics, self.hosts, self.following = table, topics, hosts, following
        self.answer: Table = np.zeros((len(ANSWER), table.shape[1]), np.int64)
        others = map(cells_address, (topics, hosts, following, self.answer))
        self.places = (cells_address(table), table.shape[1], *others)


class Cells:
    """A table whose address is looked up once, for calls that come by the thousand.

    Raises:
        ValueError: an array of anything but int64 one behind the other.
    """

    __slots__ = ("address", "array", "columns")

    def __init__(self, array: Table) -> None:
        self.array, self.address, self.columns = array, cells_address(array), array.shape[1]


class BatchSize(NamedTuple):
    """What the messages of a batch need.

    Attributes:
        rows: how many were found; -1 where bytes are no message.
        at: behind the last one found, or where bytes are no message.
        stored: bytes of all bodies and properties as they will be stored.
        longest: bytes of the longest properties as they are.
        inner: properties whose names begin as those do which brokers take for numbers.
    """

    rows: int
    at: int
    stored: int
    longest: int
    inner: int


class Texts(NamedTuple):
    """Texts where they lie; the length of one that is not there is -1."""

    address: Column
    length: Column


def cells_address(array: "np.ndarray[Any, Any]", kind: type[np.generic] = np.int64) -> int:
    """Where the cells of an array lie, one behind the other.

    Raises:
        ValueError: they do not, or are of another kind.
    """
    if array.dtype != kind or not array.flags.c_contiguous:
        raise ValueError(f"kernels take {np.dtype(kind)} cells one behind the other")
    return array_address(array)
