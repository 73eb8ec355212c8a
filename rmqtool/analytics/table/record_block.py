"""Records that one step of a walk has found, as arrays, and what is worked out from them once.

What kernels do not take is rewritten in Python before they see it: compressed bodies, and properties that are not
UTF-8 or have a name twice.
"""

from functools import cached_property
from typing import Any

import numpy as np

from formats.errors import FormatError
from formats.layouts.codes import BORN_V6, STORE_V6
from formats.layouts.derived import HEAD_V4_V4
from formats.message.bodies import decompress
from formats.message.properties import parse
from formats.primitives import COMPRESSED
from rmqtool.kernels.arrow import ItemParser, Items, Lists, offset_ids, split_keys
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.scan import Rows
from rmqtool.kernels.tables.messages import ID_SPACE, Texts
from rmqtool.kernels.tables.shapes import Column
from rmqtool.store.disk.segments import Segment

_BORN_AT, _STORE_AT = HEAD_V4_V4.offsets["born_address"], HEAD_V4_V4.offsets["store_address"]
_HOST, _HOST_V6 = 8, 20  # bytes of address and port
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class RecordBlock:
    """Rows of one step of a walk, and what is worked out from them once.

    Args:
        address: of the file's first byte in memory.
        bodies: inflated ones, or why that failed, by row.
    """

    def __init__(self, file: Segment, address: int, rows: Rows, bodies: "dict[int, bytes | str] | None" = None) -> None:
        self.rows = rows
        self.file = file
        self._address, self._bodies = address, bodies or {}
        self._keep: list[object] = []  # what addresses point to

    def __len__(self) -> int:
        return self.rows.records

    def pick(self, which: "slice | Mask", bodies: "dict[int, bytes | str] | None" = None) -> "RecordBlock":
        """Some of the rows."""
        return RecordBlock(self.file, self._address, Rows(*(column[which] for column in self.rows)), bodies)

    def _texts(self, at: Column, length: Column) -> Texts:
        return Texts(at + self._address, np.array(length))

    def _keep_bytes(self, data: bytes) -> tuple[int, int]:
        memory = Memory(data)
        self._keep.append(memory)
        return memory.address, memory.length

    @property
    def offsets(self) -> Column:
        """Physical offsets, whatever the records say of themselves."""
        return self.rows.at + self.file.base

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
    def items(self) -> Items:
        """Properties by the rule of :mod:`formats.message.properties`."""
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
        """Unique ids; where there is none, offset ids."""
        unique, own = self.items.unique, self.offset_ids
        there = unique.length > 0
        return Texts(np.where(there, unique.address, own.address), np.where(there, unique.length, own.length))

    @cached_property
    def bodies(self) -> Texts:
        texts = self._texts(self.rows.body_at, self.rows.body_length)
        for row, body in self.inflated.items():
            texts.address[row], texts.length[row] = self._keep_bytes(body)
        return texts

    @property
    def inflated(self) -> dict[int, bytes]:
        """Bodies that do not lie in the file, by row."""
        return {row: body for row, body in self._bodies.items() if isinstance(body, bytes)}

    def map(self) -> tuple[int, memoryview]:
        """The block of the file in which all rows lie: its address, and its bytes."""
        start, stop = int(self.rows.at[0]), int(self.rows.at[-1] + self.rows.total_size[-1])
        return self._address + start, self.file.map()[start:stop]

    @property
    def errors(self) -> list[tuple[int, str]]:
        """(row, why its body is as stored)."""
        return [(row, body) for row, body in self._bodies.items() if isinstance(body, str)]

    def compressed_rows(self) -> list[int]:
        """Rows whose bodies must be inflated."""
        return np.flatnonzero((self.rows.sys_flag & COMPRESSED) & (self.rows.body_length > 0)).tolist()

    def inflate(self, row: int) -> bytes | str:
        """A body, or why it cannot be read."""
        at, length = int(self.rows.body_at[row]), int(self.rows.body_length[row])
        try:
            return decompress(bytes(self.file.map()[at : at + length]), int(self.rows.sys_flag[row]))
        except FormatError as err:
            return str(err)
