"""Count records by what they say: numbers for texts, and sums by code."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from formats.message.inner import is_inner_batch, messages_in
from formats.message.read import Record, read
from formats.primitives import INNER_BATCH
from rmqtool.kernels.tables.shapes import Column
from rmqtool.kernels.texts import number_texts
from rmqtool.store.log.scan import FileRows


def texts_of(view: memoryview, at: Column, length: Column) -> Iterable[bytes]:
    """The bytes at each position."""
    return (bytes(view[start:stop]) for start, stop in zip(at.tolist(), (at + length).tolist(), strict=True))


def count_messages(scanned: FileRows) -> Column:
    """The number of messages in each record."""
    rows = scanned.rows
    counts = np.ones(rows.records, np.int64)
    for row, messages in batches_of(scanned):
        counts[row] = sum(1 for _message in messages)
    return counts


def batches_of(scanned: FileRows, mask: "np.ndarray[Any, Any] | None" = None) -> Iterator[tuple[int, Iterable[Record]]]:
    """Row and messages of each record that is an inner batch.

    Args:
        mask: only of these rows.
    """
    rows = scanned.rows
    batches = rows.sys_flag & INNER_BATCH != 0
    for row in np.flatnonzero(batches if mask is None else batches & mask).tolist():
        record = read(scanned.view, int(rows.at[row]), scanned.file.size, crc=False)
        if isinstance(record, Record) and is_inner_batch(record.sys_flag):
            yield row, messages_in(record)


class Names:
    """Assigns numbers to texts in order of appearance."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self._raw: list[bytes] = []

    def number(self, texts: Iterable[bytes]) -> Column:
        """The number of each text."""
        numbers = self.numbers
        return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)

    def number_at(self, view: memoryview, at: Column, length: Column) -> Column:
        """The number of the text at each position; its bytes are copied only if no other one is equal."""
        first, numbers = number_texts(view, at, length)
        return self.number(texts_of(view, at[first], length[first]))[numbers]

    def raw(self, number: int) -> bytes:
        """The text with this number, as bytes."""
        if len(self._raw) < len(self.numbers):
            self._raw = [*self.numbers]
        return self._raw[number]

    def text(self, number: int) -> str:
        """The text with this number, as str."""
        return self.raw(number).decode("utf-8", "surrogateescape")


class Sums:
    """Messages and bytes by code."""

    def __init__(self) -> None:
        self.by_code: dict[int, list[int]] = {}

    def add_messages(self, code: int, messages: int) -> None:
        """Add messages whose bytes are counted elsewhere."""
        self.by_code.setdefault(code, [0, 0])[0] += messages

    def add(self, codes: Column, messages: Column, sizes: Column) -> None:
        """Add records with their codes, numbers of messages and sizes in bytes."""
        distinct, which = _number_codes(codes)
        # the sums of one step are far below 2**53, up to which floats are exact
        totals = (np.bincount(which, weights, len(distinct)).astype(np.int64).tolist() for weights in (messages, sizes))
        for code, count, size in zip(distinct.tolist(), *totals, strict=True):
            sums = self.by_code.setdefault(code, [0, 0])
            sums[0] += count
            sums[1] += size


_FEW = 1 << 14  # codes up to which a table of all of them is smaller than what is to be sorted


def _number_codes(codes: Column) -> "tuple[Column, Column]":
    """The distinct codes, ascending, and the place of each code among them."""
    if len(codes) and int(codes.min()) >= 0 and int(codes.max()) < _FEW:
        present = np.bincount(codes) > 0
        return np.flatnonzero(present), (np.cumsum(present) - 1)[codes]
    return np.unique(codes, return_inverse=True)
