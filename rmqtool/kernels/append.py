"""Records written in bulk: what :func:`formats.message.build.compose` and ``pack`` make of one message.

Source: store.CommitLog.DefaultAppendMessageCallback (4.9.8); store-formats 2.1, 2.5. Queue offsets are given out here
too, in the order of the messages.
"""

import ctypes
from typing import Protocol

import numpy as np

from formats.errors import BadLength
from rmqtool.kernels.crc import fast_function
from rmqtool.kernels.load.library import INT64, POINTER, Code, Function, is_compiled
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.plain import append as plain
from rmqtool.kernels.tables.messages import BatchSize, Cells, Messages
from rmqtool.kernels.tables.shapes import Column, Table

_MESSAGES = POINTER, INT64, POINTER, POINTER, POINTER, POINTER  # table, its columns, topics, hosts, following, answer
_OUT = POINTER, INT64, INT64, INT64  # where records go, its size, the file's room, the first one's physical offset
_encode = Function("rmq_encode", INT64, *_MESSAGES, INT64, INT64, POINTER, INT64, *_OUT, POINTER, POINTER)
_read_batch = Function("rmq_read_batch", INT64, POINTER, INT64, INT64, POINTER, INT64, POINTER)
_Found = ctypes.c_int64 * (len(BatchSize._fields) - 1)


class Append(Protocol):
    """Entry points."""

    def encode(
        self, messages: Messages, first: int, stop: int, more: Memory, out: Memory, room: int, physical_offset: int
    ) -> tuple[int, int]:
        """(next message, bytes written), as :meth:`Encoder.encode`."""

    def read_batch(self, body: Memory, more_length: int, table: Cells) -> BatchSize:
        """Fill flag, body and properties of as many messages as the table has columns."""


class _Compiled:
    def encode(
        self, messages: Messages, first: int, stop: int, more: Memory, out: Memory, room: int, physical_offset: int
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
        batch = _Found()
        rows = _read_batch(body.address, body.length, more_length, table.address, table.columns, batch)
        return BatchSize(rows, *batch)


def choose_code(code: Code | None) -> Append:
    """The entry points by compiled or by plain code."""
    return _Compiled() if is_compiled(code) else plain


class BatchReader:
    """Finds the messages of batches as clients send them (:func:`formats.message.bodies.build_batch`).

    Args:
        table: as :class:`rmqtool.kernels.tables.messages.MessageColumns` has it; flag, body and properties are filled.
            Addresses in it are valid as long as the batch is there.
        code: which code reads.

    Raises:
        ValueError: a table of anything but int64 one behind the other.
    """

    def __init__(self, table: Table, *, code: Code | None = None) -> None:
        self._cells = Cells(table)
        self._code = choose_code(code)

    def read(self, body: bytes, more_length: int = 0) -> BatchSize | None:
        """What the messages of a batch need; None when the table is too short for them.

        Args:
            more_length: of the properties that are put behind those of every message.

        Raises:
            BadLength: the batch does not read as messages.
        """
        memory = Memory(body)
        batch = self._code.read_batch(memory, more_length, self._cells)
        if batch.rows < 0:
            raise BadLength(batch.at, "no message of a batch")
        return batch if batch.at == memory.length else None


def text_table(texts: list[bytes], ports: list[int] | None = None) -> tuple[Table, Memory]:
    """(address, length, port) of each text, shape (texts, 3), and what keeps the addresses valid."""
    memory = Memory(b"".join(texts) or b"\0")
    table = np.zeros((max(len(texts), 1), 3), np.int64)
    at = memory.address
    for row, text in enumerate(texts):
        table[row] = at, len(text), ports[row] if ports is not None else 0
        at += len(text)
    return table, memory


class Encoder:
    """Writes messages into a buffer, record after record.

    Args:
        table: :class:`rmqtool.kernels.tables.messages.MessageColumns` as one array, shape (fields, messages).
        topics, hosts: as :func:`text_table` gives them.
        following: next queue offset of each queue; counted up.
        code: which code writes.

    Attributes:
        answer: physical offset, size and queue offset of each message, shape (3, messages).

    Raises:
        ValueError: an array of anything but int64 one behind the other.
    """

    def __init__(
        self, table: Table, topics: Table, hosts: Table, following: Column, *, code: Code | None = None
    ) -> None:
        self._messages = Messages(table, topics, hosts, following)
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
        """(next message, bytes written) from message ``first`` on, as far as they fit.

        Args:
            out: where records are written, from its beginning.
            room: bytes that the commit-log file has left; a record leaves 8 of them for the blank.
            physical_offset: of the first record.
            more: properties that are put behind those of every message, as a batch's own are.
            stop: message before which to end, else all are written.
        """
        stop = self._messages.table.shape[1] if stop is None else stop
        memory = Memory(out, writable=True)
        return self._code.encode(self._messages, first, stop, Memory(more), memory, room, physical_offset)
