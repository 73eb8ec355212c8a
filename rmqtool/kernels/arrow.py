"""Parts of many records as Arrow lays out its columns, compiled: bytes end to end, with an offset behind each.

Texts are told by address and length, so that those of records and those that had to be rewritten lie in one column.
"""

from typing import Any, NamedTuple

import numpy as np

from formats.jit import byte_at, copy_bytes, kernel, part, word_at
from formats.kernel import Column, Table, begins, find_byte
from formats.kernel_text import character
from formats.message import properties

DONE, ODD = range(2)
INLINE = 12  # bytes of a text that lie in its view itself; of a longer one, the first four
ID_SPACE = 56  # digits of the longest message id
_MANY = 64  # items; a name that comes twice is looked for among no more than these
_HIGHS = 0x8080808080808080
_NAME_AT, _NAME_LENGTH, _VALUE_AT, _VALUE_LENGTH = range(4)
_TAGS_ITEM, _KEYS_ITEM, _UNIQUE_ITEM = range(3)
_TAGS, _KEYS, _UNIQ_KEY = (
    np.frombuffer(name.encode() + b"\x01", np.uint8) for name in (properties.TAGS, properties.KEYS, properties.UNIQ_KEY)
)

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Offsets = np.ndarray[Any, np.dtype[np.int32]]
Views = np.ndarray[Any, np.dtype[np.int32]]
_Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Texts(NamedTuple):
    """Texts where they lie; the length of one that is not there is -1."""

    address: Column
    length: Column


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


@kernel
def _gather(address: Any, length: Any, to: Any, offsets: Any, filled: Any) -> Any:
    for i in range(len(address)):
        size = length[i]
        if size > 0:
            copy_bytes(to + filled, address[i], size)
            filled += size
        offsets[i] = filled
    return filled


def gather(texts: Texts, to: Bytes, offsets: Offsets, filled: int) -> int:
    """Copy texts end to end behind ``filled`` bytes; returns the bytes that are filled then.

    Args:
        offsets: where each text ends; as many as there are texts.

    Raises:
        ValueError: there is no room.
    """
    room = len(to) - filled
    if len(offsets) != len(texts.length) or room < int(np.maximum(texts.length, 0).sum()):
        raise ValueError(f"{len(texts.length)} texts do not fit {len(offsets)} offsets and {room} bytes")
    return int(_gather(texts.address, texts.length, to.ctypes.data, offsets, filled))


@kernel
def _views(address: Any, length: Any, begin: Any, number: Any, to: Any, views: Any) -> None:
    for i in range(len(address)):
        size = length[i]
        views[i, 0] = size
        if size <= INLINE:
            copy_bytes(to + 16 * i + 4, address[i], size)
        else:
            copy_bytes(to + 16 * i + 4, address[i], 4)
            views[i, 2], views[i, 3] = number, address[i] - begin


def views_of(texts: Texts, begin: int, number: int) -> Views:
    """Texts as Arrow's views: length, and the text itself or its first bytes, its buffer and where it lies in that.

    Args:
        texts: all of them there, in one buffer of less than 2 GiB.
        begin: address of that buffer.
        number: of the buffer.

    Raises:
        ValueError: a text does not lie so.
    """
    views: Views = np.zeros((len(texts.address), 4), np.int32)
    if len(views):
        first, last = int(texts.address.min()), int(texts.address.max())
        if first < begin or last - begin >= 1 << 31 or texts.length.min() < 0:
            raise ValueError(f"texts at {first} to {last} do not lie in a buffer at {begin}")
    _views(*texts, begin, number, views.ctypes.data, views)
    return views


@part
def _is_text(at: Any, stop: Any) -> Any:
    """Whether [at, stop) is well-formed UTF-8."""
    while at < stop:
        if stop - at >= 8 and word_at(at) & np.uint64(_HIGHS) == 0:
            at += 8
            continue
        size, _code = character(at, stop)
        if size == 0:
            return False
        at += size
    return True


@part
def _same(a: Any, b: Any, length: Any) -> Any:
    while length >= 8:
        if word_at(a) != word_at(b):
            return False
        a, b, length = a + 8, b + 8, length - 8
    for i in range(length):  # noqa: SIM110 (compiled: no generators)
        if byte_at(a + i) != byte_at(b + i):
            return False
    return True


@kernel
def _parse(address: Any, length: Any, sure: Any, first: Any, items: Any, bounds: Any, named: Any) -> Any:
    for i in range(first, len(address)):
        at, stop = address[i], address[i] + length[i]
        begin = filled = bounds[i]
        named[_TAGS_ITEM, i] = named[_KEYS_ITEM, i] = named[_UNIQUE_ITEM, i] = -1
        if not sure[i] and not _is_text(at, stop):
            return i, ODD
        while at < stop:
            end = find_byte(at, stop, 2)
            name_end = find_byte(at, end, 1)
            if name_end > at and name_end + 1 < end:
                if not sure[i]:
                    if filled - begin >= _MANY:
                        return i, ODD
                    for j in range(begin, filled):
                        if items[_NAME_LENGTH, j] == name_end - at and _same(items[_NAME_AT, j], at, name_end - at):
                            return i, ODD
                items[_NAME_AT, filled], items[_NAME_LENGTH, filled] = at, name_end - at
                items[_VALUE_AT, filled], items[_VALUE_LENGTH, filled] = name_end + 1, end - name_end - 1
                if begins(at, end, _TAGS):
                    named[_TAGS_ITEM, i] = filled
                elif begins(at, end, _KEYS):
                    named[_KEYS_ITEM, i] = filled
                elif begins(at, end, _UNIQ_KEY):
                    named[_UNIQUE_ITEM, i] = filled
                filled += 1
            at = end + 1
        bounds[i + 1] = filled
    return len(address), DONE


class ItemParser:
    """Goes through the properties of records; equal to :func:`formats.message.properties.parse`.

    Args:
        texts: the stored properties; changed where they are rewritten.
    """

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        count = len(texts.address)
        self._sure: _Flags = np.zeros(count, np.bool_)
        self._items: Table = np.empty((4, int(_most(texts.length, 4).sum())), np.int64)
        self._bounds: Column = np.zeros(count + 1, np.int64)
        self._named: Table = np.empty((3, count), np.int64)
        self._row = 0

    def odd(self) -> int | None:
        """The next row that is malformed, has a name twice or very many: give it to :meth:`rewrite`, ask again."""
        self._row, why = _parse(*self._texts, self._sure, self._row, self._items, self._bounds, self._named)
        return int(self._row) if why == ODD else None

    def rewrite(self, address: int, length: int) -> None:
        """Take the odd row's properties from here: well-formed, each name once, and no more items than it had."""
        self._texts.address[self._row], self._texts.length[self._row] = address, length
        self._sure[self._row] = True

    def items(self) -> Items:
        """All of them, after :meth:`odd` found none."""
        items = self._items[:, : self._bounds[-1]]
        names, values = (Texts(items[at], items[at + 1]) for at in (_NAME_AT, _VALUE_AT))
        tags, keys, unique = (self._value(found) for found in self._named)
        return Items(Lists(self._bounds, names), Lists(self._bounds, values), tags, keys, unique)

    def _value(self, item: Column) -> Texts:
        if not self._items.shape[1]:
            return Texts(np.zeros_like(item), np.full_like(item, -1))
        length = np.where(item >= 0, self._items[_VALUE_LENGTH, item], -1)
        return Texts(self._items[_VALUE_AT, item], length)


def _most(length: Column, size: int) -> Column:
    """How many pieces a text can hold at most, each of ``size`` bytes with its separator."""
    return (np.maximum(length, 0) + size) // size


@kernel
def _split(address: Any, length: Any, at: Any, size: Any, bounds: Any) -> Any:
    filled = 0
    for i in range(len(address)):
        here, stop = address[i], address[i] + length[i]
        while here < stop:
            end = find_byte(here, stop, ord(" "))
            if end > here:
                at[filled], size[filled] = here, end - here
                filled += 1
            here = end + 1
        bounds[i + 1] = filled
    return filled


def split_keys(texts: Texts) -> Lists:
    """As :func:`formats.message.properties.split_keys`, of each text."""
    most = int(_most(texts.length, 2).sum())
    at, size = np.empty(most, np.int64), np.empty(most, np.int64)
    bounds = np.zeros(len(texts.address) + 1, np.int64)
    filled = _split(*texts, at, size, bounds)
    return Lists(bounds, Texts(at[:filled], size[:filled]))


@part
def _digit(value: Any) -> Any:
    return value + (ord("0") if value < 10 else ord("A") - 10)


@kernel
def _hex_ids(address: Any, length: Any, offset: Any, out: Any) -> Any:
    for i in range(len(address)):
        at = 0
        for j in range(length[i]):
            byte = byte_at(address[i] + j)
            out[i, at], out[i, at + 1] = _digit(byte >> 4), _digit(byte & 15)
            at += 2
        for j in range(16):
            out[i, at + j] = _digit(offset[i] >> (60 - 4 * j) & 15)


def offset_ids(hosts: Texts, offsets: Column, out: Bytes) -> Texts:
    """As :func:`formats.message.ids.offset_id`, of each record.

    Args:
        hosts: store hosts, 4 or 16 address bytes and the port's 4, as records have them.
        offsets: physical offsets.
        out: holds the ids then; of shape (records, :data:`ID_SPACE`).

    Raises:
        ValueError: lengths that no host has, or no room.
    """
    count = len(hosts.address)
    if (
        out.shape != (count, ID_SPACE)
        or not out.flags.c_contiguous
        or np.isin(hosts.length, (8, 20), invert=True).any()
    ):
        raise ValueError("no hosts, or no room for their ids")
    _hex_ids(hosts.address, hosts.length, offsets, out)
    return Texts(out.ctypes.data + ID_SPACE * np.arange(count, dtype=np.int64), 2 * hosts.length + 16)
