"""Parts of many records as Arrow lays out its columns: bytes end to end, with an offset behind each.

Texts are given by address and length, so that those of records and those that had to be rewritten lie in one column.
"""

from typing import NamedTuple, Protocol

import numpy as np

from rmqtool.kernels.load.library import INT32, INT64, POINTER, Code, Function, is_compiled
from rmqtool.kernels.plain import arrow as plain
from rmqtool.kernels.tables.messages import ID_SPACE, NAMED, PROPERTY, VIEW, Texts, cells_address
from rmqtool.kernels.tables.shapes import Bytes, Column, Flags, Offsets, Table, Views

_HOSTS = (8, 20)  # bytes of address and port
_NAME_AT, _NAME_LENGTH, _VALUE_AT, _VALUE_LENGTH = range(len(PROPERTY))
_gather = Function("rmq_gather", INT64, POINTER, POINTER, INT64, POINTER, POINTER, INT64)
_views = Function("rmq_views", None, POINTER, POINTER, INT64, INT64, INT32, POINTER)
_parse = Function("rmq_parse", INT64, *[POINTER] * 3, INT64, INT64, POINTER, INT64, POINTER, POINTER)
_split = Function("rmq_split", INT64, POINTER, POINTER, INT64, POINTER, POINTER, POINTER)
_offset_ids = Function("rmq_offset_ids", None, POINTER, POINTER, POINTER, INT64, POINTER)


class Lists(NamedTuple):
    """Texts in rows: those of row i are ``bounds[i]`` to ``bounds[i + 1]``."""

    bounds: Column
    texts: Texts


class Items(NamedTuple):
    """Properties in rows, and three of each row by their names."""

    names: Lists
    values: Lists
    tags: Texts
    keys: Texts
    unique: Texts


class Arrow(Protocol):
    """Entry points. Texts are columns that lie one cell behind the other."""

    def gather(self, texts: Texts, to: Bytes, offsets: Offsets, filled: int) -> int:
        """As :func:`gather`."""

    def views(self, texts: Texts, begin: int, number: int, out: Views) -> None:
        """Fill what :func:`views_of` returns."""

    def parse(self, texts: Texts, sure: Flags, first: int, items: Table, bounds: Column, named: Table) -> int:
        """Take rows apart from ``first`` on, up to one that is odd and not ``sure``; that row, or how many there are.

        ``items`` has a row for each of ``PROPERTY``, ``named`` one for each of ``NAMED``: the number of an item, or -1.
        """

    def split(self, texts: Texts, parts: Texts, bounds: Column) -> int:
        """Fill in the parts of texts between blanks, and where those of each text end; returns how many."""

    def offset_ids(self, hosts: Texts, offsets: Column, out: Bytes) -> None:
        """Fill what :func:`offset_ids` tells of."""


class _Compiled:
    def gather(self, texts: Texts, to: Bytes, offsets: Offsets, filled: int) -> int:
        outs = cells_address(to, np.uint8), cells_address(offsets, np.int32)
        return _gather(*_lying(texts), *outs, filled)

    def views(self, texts: Texts, begin: int, number: int, out: Views) -> None:
        _views(*_lying(texts), begin, number, cells_address(out, np.int32))

    def parse(self, texts: Texts, sure: Flags, first: int, items: Table, bounds: Column, named: Table) -> int:
        address, length, count = _lying(texts)
        places = cells_address(items), items.shape[1], cells_address(bounds), cells_address(named)
        return _parse(address, length, cells_address(sure, np.bool_), count, first, *places)

    def split(self, texts: Texts, parts: Texts, bounds: Column) -> int:
        return _split(*_lying(texts), *map(cells_address, (*parts, bounds)))

    def offset_ids(self, hosts: Texts, offsets: Column, out: Bytes) -> None:
        address, length, count = _lying(hosts)
        _offset_ids(address, length, cells_address(offsets), count, cells_address(out, np.uint8))


def _lying(texts: Texts) -> tuple[int, int, int]:
    return cells_address(texts.address), cells_address(texts.length), len(texts.length)


def choose_code(code: Code | None) -> Arrow:
    """The entry points by compiled or by plain code."""
    return _Compiled() if is_compiled(code) else plain


def _in_cells(texts: Texts) -> Texts:
    """The same with columns that lie one cell behind the other."""
    return Texts(*map(np.ascontiguousarray, texts))


def gather(texts: Texts, to: Bytes, offsets: Offsets, filled: int, *, code: Code | None = None) -> int:
    """Copy texts end to end behind ``filled`` bytes; returns the bytes that are filled then.

    Args:
        offsets: where each text ends; as many as there are texts.
        code: which code copies.

    Raises:
        ValueError: there is no room.
    """
    room = len(to) - filled
    if len(offsets) != len(texts.length) or room < int(np.maximum(texts.length, 0).sum()):
        raise ValueError(f"{len(texts.length)} texts do not fit {len(offsets)} offsets and {room} bytes")
    return choose_code(code).gather(_in_cells(texts), to, offsets, filled)


def views_of(texts: Texts, begin: int, number: int, *, code: Code | None = None) -> Views:
    """Texts as Arrow's views: length, and the text itself or its first bytes, its buffer and where it lies in that.

    Args:
        texts: all of them there, in one buffer of less than 2 GiB.
        begin: address of that buffer.
        number: of the buffer.
        code: which code makes them.

    Raises:
        ValueError: a text does not lie so.
    """
    views: Views = np.zeros((len(texts.address), len(VIEW)), np.int32)
    if len(views):
        first, last = int(texts.address.min()), int(texts.address.max())
        if first < begin or last - begin >= 1 << 31 or texts.length.min() < 0:
            raise ValueError(f"texts at {first} to {last} do not lie in a buffer at {begin}")
    choose_code(code).views(_in_cells(texts), begin, number, views)
    return views


class ItemParser:
    """Goes through the properties of records; equal to :func:`formats.message.properties.parse`.

    Args:
        texts: the stored properties; changed where they are rewritten.
        code: which code goes through them.
    """

    def __init__(self, texts: Texts, *, code: Code | None = None) -> None:
        self._texts = _in_cells(texts)
        self._code = choose_code(code)
        count = len(texts.address)
        self._sure: Flags = np.zeros(count, np.bool_)
        self._items: Table = np.empty((len(PROPERTY), int(_most(texts.length, 4).sum())), np.int64)
        self._bounds: Column = np.zeros(count + 1, np.int64)
        self._named: Table = np.empty((len(NAMED), count), np.int64)
        self._row = 0

    def odd(self) -> int | None:
        """The next row that is malformed, has a name twice or very many: give it to :meth:`rewrite`, ask again."""
        self._row = self._code.parse(self._texts, self._sure, self._row, self._items, self._bounds, self._named)
        return self._row if self._row < len(self._sure) else None

    def rewrite(self, address: int, length: int) -> None:
        """Take the odd row's properties from here: well-formed, each name once, and no more items than it had."""
        self._texts.address[self._row], self._texts.length[self._row] = address, length
        self._sure[self._row] = True

    def items(self) -> Items:
        """All of them, after :meth:`odd` found none."""
        items = self._items[:, : self._bounds[-1]]
        names, values = (Texts(items[at], items[at + 1]) for at in (_NAME_AT, _VALUE_AT))
        tags, keys, unique = (self._value(column) for column in self._named)
        return Items(Lists(self._bounds, names), Lists(self._bounds, values), tags, keys, unique)

    def _value(self, item: Column) -> Texts:
        if not self._items.shape[1]:
            return Texts(np.zeros_like(item), np.full_like(item, -1))
        length = np.where(item >= 0, self._items[_VALUE_LENGTH, item], -1)
        return Texts(self._items[_VALUE_AT, item], length)


def _most(length: Column, size: int) -> Column:
    """How many pieces a text can hold at most, each of ``size`` bytes with its separator."""
    return (np.maximum(length, 0) + size) // size


def split_keys(texts: Texts, *, code: Code | None = None) -> Lists:
    """As :func:`formats.message.properties.split_keys`, of each text.

    Args:
        code: which code splits.
    """
    most = int(_most(texts.length, 2).sum())
    parts = Texts(np.empty(most, np.int64), np.empty(most, np.int64))
    bounds = np.zeros(len(texts.address) + 1, np.int64)
    filled = choose_code(code).split(_in_cells(texts), parts, bounds)
    return Lists(bounds, Texts(parts.address[:filled], parts.length[:filled]))


def offset_ids(hosts: Texts, offsets: Column, out: Bytes, *, code: Code | None = None) -> Texts:
    """As :func:`formats.message.ids.offset_id`, of each record.

    Args:
        hosts: store hosts, 4 or 16 address bytes and the port's 4, as records have them.
        offsets: physical offsets.
        out: holds the ids then; of shape (records, :data:`rmqtool.kernels.tables.ID_SPACE`).
        code: which code writes them.

    Raises:
        ValueError: lengths that no host has, or no room.
    """
    count = len(hosts.address)
    if out.shape != (count, ID_SPACE) or not out.flags.c_contiguous or np.isin(hosts.length, _HOSTS, invert=True).any():
        raise ValueError("no hosts, or no room for their ids")
    choose_code(code).offset_ids(_in_cells(hosts), np.ascontiguousarray(offsets), out)
    return Texts(out.ctypes.data + ID_SPACE * np.arange(count, dtype=np.int64), 2 * hosts.length + 16)
