"""The records of one step of a walk as arrays, and values derived from them, computed once.

Input that the kernels do not support is rewritten in Python first: compressed bodies, and properties that are not UTF-8
or have very many names.
"""

from functools import cached_property
from typing import Any, Protocol

import numpy as np

from formats.errors import FormatError
from formats.layouts.codes import BORN_V6, STORE_V6
from formats.layouts.derived import HEAD_V4_V4
from formats.message.bodies import decompress
from formats.message.properties import parse
from formats.primitives import COMPRESSED
from rmqtool.kernels.arrow import ItemParser, Lists, PropertyItems, offset_ids, split_keys
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.scan import Rows
from rmqtool.kernels.tables.messages import ID_SPACE, Texts
from rmqtool.kernels.tables.shapes import Column

_BORN_AT, _STORE_AT = HEAD_V4_V4.offsets["born_address"], HEAD_V4_V4.offsets["store_address"]
_HOST, _HOST_V6 = 8, 20  # size of address and port, bytes
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class RecordFile(Protocol):
    """What records lie in.

    Attributes:
        base: physical offset of its first byte.
    """

    base: int

    def map(self) -> memoryview:
        """Return its content."""


class RecordBlock:
    """The rows of one step of a walk, and values derived from them, computed once.

    Args:
        address: memory address of the file's first byte.
        bodies: inflated bodies, or the reason why that failed, by row.
    """

    def __init__(
        self, file: RecordFile, address: int, rows: Rows, bodies: "dict[int, bytes | str] | None" = None
    ) -> None:
        self.rows = rows
        self.file = file
        self._address, self._bodies = address, bodies or {}
        self._keep: list[object] = []  # buffers that addresses point to

    def __len__(self) -> int:
        return self.rows.records

    def pick(self, which: "slice | Mask", bodies: "dict[int, bytes | str] | None" = None) -> "RecordBlock":
        """Return some of the rows."""
        return type(self)(self.file, self._address, Rows(*(column[which] for column in self.rows)), bodies)

    def _texts(self, at: Column, length: Column) -> Texts:
        return Texts(at + self._address, np.array(length))

    def _keep_bytes(self, data: bytes) -> tuple[int, int]:
        memory = Memory(data)
        self._keep.append(memory)
        return memory.address, memory.length

    @property
    def offsets(self) -> Column:
        """Physical offsets by position, whatever the records themselves say."""
        return self.rows.at + self.file.base

    @property
    def file_offsets(self) -> Column:
        """Positions in the file."""
        return self.rows.at

    @property
    def topics(self) -> Texts:
        return self._texts(self.rows.topic_at, self.rows.topic_length)

    @property
    def born_hosts(self) -> Texts:
        wide = self.rows.sys_flag & BORN_V6 != 0
        return self._texts(self.rows.at + _BORN_AT, np.where(wide, _HOST_V6, _HOST))

    @cached_property
    def store_hosts(self) -> Texts:
        moved = np.where(self.rows.sys_flag & BORN_V6, _HOST_V6 - _HOST, 0)
        wide = self.rows.sys_flag & STORE_V6 != 0
        return self._texts(self.rows.at + _STORE_AT + moved, np.where(wide, _HOST_V6, _HOST))

    @cached_property
    def items(self) -> PropertyItems:
        """Properties, parsed as in :mod:`formats.message.properties`."""
        texts = self._texts(self.rows.properties_at, self.rows.properties_length)
        parser = ItemParser(texts)
        while (row := parser.odd()) is not None:
            at, length = int(self.rows.properties_at[row]), int(self.rows.properties_length[row])
            items = parse(bytes(self.file.map()[at : at + length]))
            parser.rewrite(*self._keep_bytes("\2".join(f"{name}\1{value}" for name, value in items.items()).encode()))
        return parser.items()

    @cached_property
    def keys(self) -> Lists:
        return split_keys(self.items.keys)

    @cached_property
    def offset_ids(self) -> Texts:
        digits = np.empty((len(self), ID_SPACE), np.uint8)
        self._keep.append(digits)
        return offset_ids(self.store_hosts, self.offsets, digits)

    @property
    def message_ids(self) -> Texts:
        """Unique ids, or offset ids for messages without one."""
        unique, own = self.items.unique, self.offset_ids
        has_unique = unique.length > 0
        return Texts(np.where(has_unique, unique.address, own.address), np.where(has_unique, unique.length, own.length))

    @cached_property
    def bodies(self) -> Texts:
        texts = self._texts(self.rows.body_at, self.rows.body_length)
        for row, body in self.inflated.items():
            texts.address[row], texts.length[row] = self._keep_bytes(body)
        return texts

    @property
    def inflated(self) -> dict[int, bytes]:
        """Bodies that are not in the file, by row."""
        return {row: body for row, body in self._bodies.items() if isinstance(body, bytes)}

    def map(self) -> tuple[int, memoryview]:
        """Address and content of the part of the file that contains all rows."""
        start, stop = int(self.rows.at[0]), int(self.rows.at[-1] + self.rows.total_size[-1])
        return self._address + start, self.file.map()[start:stop]

    @property
    def errors(self) -> list[tuple[int, str]]:
        """(row, reason why its body is as stored)."""
        return [(row, body) for row, body in self._bodies.items() if isinstance(body, str)]

    def compressed_rows(self) -> list[int]:
        """Return the rows whose bodies must be inflated."""
        return np.flatnonzero((self.rows.sys_flag & COMPRESSED) & (self.rows.body_length > 0)).tolist()

    def inflate(self, row: int) -> bytes | str:
        """Return a body, or why it cannot be decompressed."""
        at, length = int(self.rows.body_at[row]), int(self.rows.body_length[row])
        try:
            return decompress(bytes(self.file.map()[at : at + length]), int(self.rows.sys_flag[row]))
        except FormatError as err:
            return str(err)


class PulledBlock(RecordBlock):
    """Records in the answer of a broker, which say themselves where in the log they are."""

    @property
    def offsets(self) -> Column:
        return self.rows.physical_offset

    @property
    def file_offsets(self) -> Column:
        return np.full(len(self), -1, np.int64)
