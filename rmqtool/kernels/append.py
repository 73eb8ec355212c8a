"""Bulk encoding of records; equivalent to :func:`formats.message.build.compose` and ``pack`` for each message.

Source: store.CommitLog.DefaultAppendMessageCallback (4.9.8); store-formats 2.1, 2.5. This also assigns queue offsets,
in message order.
"""

import ctypes
from typing import Protocol

import numpy as np

from formats.errors import BadLength
from rmqtool.kernels.crc import fast_function
from rmqtool.kernels.load.library import INT64, POINTER, Function, Implementation, is_compiled
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.plain import append as plain
from rmqtool.kernels.tables.messages import BatchSize, Cells, MessageTable
from rmqtool.kernels.tables.shapes import Column, Table

_MESSAGES = (
    POINTER,
    INT64,
    POINTER,
    POINTER,
    POINTER,
    POINTER,
)  # table, number of columns, topics, hosts, following, answer
_OUT = POINTER, INT64, INT64, INT64  # output, its size, room in the file, physical offset of the first record
_encode = Function("rmq_encode", INT64, *_MESSAGES, INT64, INT64, POINTER, INT64, *_OUT, POINTER, POINTER)
_read_batch = Function("rmq_read_batch", INT64, POINTER, INT64, INT64, POINTER, INT64, POINTER)
_Batch = ctypes.c_int64 * (len(BatchSize._fields) - 1)


class Append(Protocol):
    """Entry points."""

    def encode(
        self, messages: MessageTable, first: int, stop: int, more: Memory, out: Memory, room: int, physical_offset: int
    ) -> tuple[int, int]:
        """Return (next message, bytes written); see :meth:`Encoder.encode`."""

    def read_batch(self, body: Memory, more_length: int, table: Cells) -> BatchSize:
        """Fill flag, body and properties for as many messages as the table has columns."""


class _Compiled:
    def encode(
        self, messages: MessageTable, first: int, stop: int, more: Memory, out: Memory, room: int, physical_offset: int
    ) -> tuple[int, int]:
        written = ctypes.c_int64()
        row = _encode(
            *messages.places,
            first,
            stop,
            more.address,
            more.length,
            out.address,
            out.length,
            room,
            physical_offset,
            fast_function(),
            ctypes.byref(written),
        )
        return row, written.value

    def read_batch(self, body: Memory, more_length: int, table: Cells) -> BatchSize:
        batch = _Batch()
        rows = _read_batch(body.address, body.length, more_length, table.address, table.columns, batch)
        return BatchSize(rows, *batch)


def choose_code(code: Implementation | None) -> Append:
    """Return the compiled or the plain entry points."""
    return _Compiled() if is_compiled(code) else plain


class BatchReader:
    """Locates the messages of batches in wire format (:func:`formats.message.bodies.build_batch`).

    Args:
        table: a :class:`rmqtool.kernels.tables.messages.MessageColumns` array; flag, body and properties are filled in.
            Addresses in it are valid as long as the batch exists.
        code: implementation to use.

    Raises:
        ValueError: the table is not a contiguous int64 array.
    """

    def __init__(self, table: Table, *, code: Implementation | None = None) -> None:
        self._cells = Cells(table)
        self._code = choose_code(code)

    def read(self, body: bytes, more_length: int = 0) -> BatchSize | None:
        """Return the size of a batch's messages; None if the table has too few columns.

        Args:
            more_length: length of the properties that will be appended to those of every message.

        Raises:
            BadLength: the batch is malformed.
        """
        memory = Memory(body)
        batch = self._code.read_batch(memory, more_length, self._cells)
        if batch.rows < 0:
            raise BadLength(batch.at, "no message of a batch")
        return batch if batch.at == memory.length else None


def text_table(texts: list[bytes], ports: list[int] | None = None) -> tuple[Table, Memory]:
    """Return an array of (address, length, port) per text, shape (texts, 3), and the buffer that keeps it valid."""
    memory = Memory(b"".join(texts) or b"\0")
    table = np.zeros((max(len(texts), 1), 3), np.int64)
    at = memory.address
    for row, text in enumerate(texts):
        table[row] = at, len(text), ports[row] if ports is not None else 0
        at += len(text)
    return table, memory


class Encoder:
    """Encodes messages into a buffer as consecutive records.

    Args:
        table: :class:`rmqtool.kernels.tables.messages.MessageColumns` as one array of shape (fields, messages).
        topics, hosts: arrays from :func:`text_table`.
        following: next queue offset of each queue; incremented.
        code: implementation to use.

    Attributes:
        answer: physical offset, size and queue offset of each message, shape (3, messages).

    Raises:
        ValueError: an array is not a contiguous int64 array.
    """

    def __init__(
        self, table: Table, topics: Table, hosts: Table, following: Column, *, code: Implementation | None = None
    ) -> None:
        self._messages = MessageTable(table, topics, hosts, following)
        self._code = choose_code(code)
        self.answer = self._messages.answer

    def encode(
        self,
        out: bytearray | memoryview,
        room: int,
        physical_offset: int,
        first: int,
        more: bytes = b"",
        stop: int | None = None,
    ) -> tuple[int, int]:
        """Encode messages from number ``first`` on while they fit; return (next message, bytes written).

        Args:
            out: output buffer, written from its beginning.
            room: bytes left in the commit-log file; a record must leave 8 of them for the blank.
            physical_offset: physical offset of the first record.
            more: properties appended to those of every message, such as those of a batch.
            stop: message at which to stop; by default all are encoded.
        """
        stop = self._messages.table.shape[1] if stop is None else stop
        memory = Memory(out, writable=True)
        return self._code.encode(self._messages, first, stop, Memory(more), memory, room, physical_offset)
