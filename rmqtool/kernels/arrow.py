"""Columns in Arrow's layout built from many records: concatenated bytes and an offset at the end of each text.

Texts are given by address and length, so that texts of records and rewritten ones can be in the same column.
"""

from typing import NamedTuple, Protocol

import numpy as np

from rmqtool.kernels.load.library import INT32, INT64, POINTER, Function, Implementation, is_compiled
from rmqtool.kernels.plain import arrow as plain
from rmqtool.kernels.tables.messages import ID_SPACE, NAMED, PROPERTY, VIEW, Texts, cells_address
from rmqtool.kernels.tables.shapes import Bytes, Column, Flags, Offsets, Table, Views

_HOSTS = (8, 20)  # size of address and port, bytes
_NAME_AT, _NAME_LENGTH, _VALUE_AT, _VALUE_LENGTH = range(len(PROPERTY))
_gather = Function("rmq_gather", INT64, POINTER, POINTER, INT64, POINTER, POINTER, INT64)
_views = Function("rmq_views", None, POINTER, POINTER, INT64, INT64, INT32, POINTER)
_parse = Function("rmq_parse", INT64, *[POINTER] * 3, INT64, INT64, POINTER, INT64, POINTER, POINTER)
_split = Function("rmq_split", INT64, POINTER, POINTER, INT64, POINTER, POINTER, POINTER)
_offset_ids = Function("rmq_offset_ids", None, POINTER, POINTER, POINTER, INT64, POINTER)


class Lists(NamedTuple):
    """Texts grouped into rows: row i has the texts ``bounds[i]`` to ``bounds[i + 1]``."""

    bounds: Column
    texts: Texts


class PropertyItems(NamedTuple):
    """Properties of each row, and three of them by name."""

    names: Lists
    values: Lists
    tags: Texts
    keys: Texts
    unique: Texts


class Arrow(Protocol):
    """Entry points. The columns of texts are contiguous."""

    def gather(self, texts: Texts, to: Bytes, offsets: Offsets, filled: int) -> int:
        """See :func:`gather`."""

    def views(self, texts: Texts, begin: int, number: int, out: Views) -> None:
        """Fill the result of :func:`views_of`."""

    def parse(self, texts: Texts, sure: Flags, first: int, items: Table, bounds: Column, named: Table) -> int:
        """Parse rows from ``first`` on until an odd one that is not ``sure``; return its number or the row count.

        ``items`` has a row per name in ``PROPERTY``. ``named`` has one per name in ``NAMED``, with an item number or
        -1.
        """

    def split(self, texts: Texts, parts: Texts, bounds: Column) -> int:
        """Fill ``parts`` with the texts' blank-separated parts and ``bounds`` with their ends; return their number."""

    def offset_ids(self, hosts: Texts, offsets: Column, out: Bytes) -> None:
        """Fill the ids that :func:`offset_ids` returns."""


class _Compiled:
    def gather(self, texts: Texts, to: Bytes, offsets: Offsets, filled: int) -> int:
        outs = cells_address(to, np.uint8), cells_address(offsets, np.int32)
        return _gather(*_addresses(texts), *outs, filled)

    def views(self, texts: Texts, begin: int, number: int, out: Views) -> None:
        _views(*_addresses(texts), begin, number, cells_address(out, np.int32))

    def parse(self, texts: Texts, sure: Flags, first: int, items: Table, bounds: Column, named: Table) -> int:
        address, length, count = _addresses(texts)
        places = cells_address(items), items.shape[1], cells_address(bounds), cells_address(named)
        return _parse(address, length, cells_address(sure, np.bool_), count, first, *places)

    def split(self, texts: Texts, parts: Texts, bounds: Column) -> int:
        return _split(*_addresses(texts), *map(cells_address, (*parts, bounds)))

    def offset_ids(self, hosts: Texts, offsets: Column, out: Bytes) -> None:
        address, length, count = _addresses(hosts)
        _offset_ids(address, length, cells_address(offsets), count, cells_address(out, np.uint8))


def _addresses(texts: Texts) -> tuple[int, int, int]:
    return cells_address(texts.address), cells_address(texts.length), len(texts.length)


def choose_code(code: Implementation | None) -> Arrow:
    """Return the compiled or the plain entry points."""
    return _Compiled() if is_compiled(code) else plain


def _contiguous(texts: Texts) -> Texts:
    """Return the texts with contiguous columns."""
    return Texts(*map(np.ascontiguousarray, texts))


def gather(texts: Texts, to: Bytes, offsets: Offsets, filled: int, *, code: Implementation | None = None) -> int:
    """Copy texts after the first ``filled`` bytes; return the number of bytes then filled.

    Args:
        offsets: receives the end of each text; same length as ``texts``.
        code: implementation to use.

    Raises:
        ValueError: the buffer or ``offsets`` is too small.
    """
    room = len(to) - filled
    if len(offsets) != len(texts.length) or room < int(np.maximum(texts.length, 0).sum()):
        raise ValueError(f"{len(texts.length)} texts do not fit {len(offsets)} offsets and {room} bytes")
    return choose_code(code).gather(_contiguous(texts), to, offsets, filled)


def views_of(texts: Texts, begin: int, number: int, *, code: Implementation | None = None) -> Views:
    """Return texts as Arrow views: the length, then the text itself or its first bytes, buffer number and offset.

    Args:
        texts: texts in one buffer of less than 2 GiB; none may be missing.
        begin: address of that buffer.
        number: number of that buffer.
        code: implementation to use.

    Raises:
        ValueError: a text is missing or outside the buffer.
    """
    views: Views = np.zeros((len(texts.address), len(VIEW)), np.int32)
    if len(views):
        first, last = int(texts.address.min()), int(texts.address.max())
        if first < begin or last - begin >= 1 << 31 or texts.length.min() < 0:
            raise ValueError(f"texts at {first} to {last} do not lie in a buffer at {begin}")
    choose_code(code).views(_contiguous(texts), begin, number, views)
    return views


class ItemParser:
    """Parses the properties of records like :func:`formats.message.properties.parse`.

    Args:
        texts: the stored properties; replaced where they are rewritten.
        code: implementation to use.
    """

    def __init__(self, texts: Texts, *, code: Implementation | None = None) -> None:
        self._texts = _contiguous(texts)
        self._code = choose_code(code)
        count = len(texts.address)
        self._sure: Flags = np.zeros(count, np.bool_)
        self._items: Table = np.empty((len(PROPERTY), int(_most(texts.length, 4).sum())), np.int64)
        self._bounds: Column = np.zeros(count + 1, np.int64)
        self._named: Table = np.empty((len(NAMED), count), np.int64)
        self._row = 0

    def odd(self) -> int | None:
        """Return the next malformed row or one with too many names; :meth:`rewrite` it and repeat."""
        self._row = self._code.parse(self._texts, self._sure, self._row, self._items, self._bounds, self._named)
        return self._row if self._row < len(self._sure) else None

    def rewrite(self, address: int, length: int) -> None:
        """Replace the odd row's properties by well-formed ones with unique names and no more items than before."""
        self._texts.address[self._row], self._texts.length[self._row] = address, length
        self._sure[self._row] = True

    def items(self) -> PropertyItems:
        """Return all items, once :meth:`odd` has returned None."""
        items = self._items[:, : self._bounds[-1]]
        names, values = (Texts(items[at], items[at + 1]) for at in (_NAME_AT, _VALUE_AT))
        tags, keys, unique = (self._value(column) for column in self._named)
        return PropertyItems(Lists(self._bounds, names), Lists(self._bounds, values), tags, keys, unique)

    def _value(self, item: Column) -> Texts:
        if not self._items.shape[1]:
            return Texts(np.zeros_like(item), np.full_like(item, -1))
        length = np.where(item >= 0, self._items[_VALUE_LENGTH, item], -1)
        return Texts(self._items[_VALUE_AT, item], length)


def _most(length: Column, size: int) -> Column:
    """Return the maximum number of pieces in a text, given the size of a piece with its separator."""
    return (np.maximum(length, 0) + size) // size


def split_keys(texts: Texts, *, code: Implementation | None = None) -> Lists:
    """Apply :func:`formats.message.properties.split_keys` to each text.

    Args:
        code: implementation to use.
    """
    most = int(_most(texts.length, 2).sum())
    parts = Texts(np.empty(most, np.int64), np.empty(most, np.int64))
    bounds = np.zeros(len(texts.address) + 1, np.int64)
    filled = choose_code(code).split(_contiguous(texts), parts, bounds)
    return Lists(bounds, Texts(parts.address[:filled], parts.length[:filled]))


def offset_ids(hosts: Texts, offsets: Column, out: Bytes, *, code: Implementation | None = None) -> Texts:
    """Apply :func:`formats.message.ids.offset_id` to each record.

    Args:
        hosts: store hosts as in records: 4 or 16 address bytes followed by 4 bytes for the port.
        offsets: physical offsets.
        out: receives the ids; shape (records, :data:`rmqtool.kernels.tables.ID_SPACE`).
        code: implementation to use.

    Raises:
        ValueError: the length of a host is invalid, or ``out`` has another shape.
    """
    count = len(hosts.address)
    if out.shape != (count, ID_SPACE) or not out.flags.c_contiguous or np.isin(hosts.length, _HOSTS, invert=True).any():
        raise ValueError("no hosts, or no room for their ids")
    choose_code(code).offset_ids(_contiguous(hosts), np.ascontiguousarray(offsets), out)
    return Texts(out.ctypes.data + ID_SPACE * np.arange(count, dtype=np.int64), 2 * hosts.length + 16)
