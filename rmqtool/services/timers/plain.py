"""Ordinary timer messages as columns: a wheel may hold hundreds of thousands.

Messages that need closer inspection (malformed properties or numbers, text that has to be escaped in output) are left
out; the caller reads them one by one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from formats.message.properties import REAL_QID, REAL_TOPIC
from formats.variants import timer
from rmqtool.kernels.arrow import ItemParser, Lists, gather
from rmqtool.kernels.tables.messages import Texts, cells_address
from rmqtool.services.delays.delays import DelayedMessage
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.timer.heads import TimerHeads, plain_heads, windows
from rmqtool.store.queues.timer.waiting import Waiting

if TYPE_CHECKING:
    from formats.arrays import Array

    Value = str | int | bool | None

LEVEL = 0  # what brokers use for "no delay level"
_NONE = np.empty(0, np.int64)
_DIGITS = 18  # any number with this many digits fits into an int64
_SHOWN = np.zeros(256, bool)  # bytes that no output format escapes
_SHOWN[[byte for byte in range(0x21, 0x7F) if byte not in b'",\\']] = True


class PlainTexts(NamedTuple):
    """Concatenated non-empty texts, of bytes that neither JSON nor CSV escapes.

    Attributes:
        data: uint8 of shape (bytes,).
        ends: start of each text, and the end of the last; int32 of shape (texts + 1,).
        missing: which texts are missing; bool of shape (texts,).
        listed: each stands for a list of this text, or for an empty list if missing.
    """

    data: "Array"
    ends: "Array"
    missing: "Array"
    listed: bool = False

    def strings(self) -> "list[str | None]":
        """The texts; None for a missing one."""
        text, ends = self.data.tobytes().decode("ascii"), self.ends.tolist()
        parts: list[str | None] = [text[begin:end] for begin, end in pairwise(ends)]
        for number in np.flatnonzero(self.missing).tolist():
            parts[number] = None
        return parts


@dataclass(frozen=True, slots=True)
class PlainTimers:
    """Messages waiting in the wheel. Array columns are int64 of shape (messages,).

    Attributes:
        numbers: numbers of their units.
    """

    numbers: "Array"
    queue_offset: "Array"
    physical_offset: "Array"
    deliver_timestamp: "Array"
    store_timestamp: "Array"
    topic: PlainTexts
    queue_id: "Array"
    unique: PlainTexts
    keys: PlainTexts
    reconsume_times: "Array"
    fire_timestamp: "Array"

    def __len__(self) -> int:
        return len(self.numbers)

    def columns(self) -> "dict[str, Array | PlainTexts | Value]":
        """Columns of machine output, named as in :class:`DelayedMessage`; a value that all share is given once."""
        return {
            "level": LEVEL,
            "queueOffset": self.queue_offset,
            "physicalOffset": self.physical_offset,
            "deliverTimestamp": self.deliver_timestamp,
            "storeTimestamp": self.store_timestamp,
            "topic": self.topic,
            "queueId": self.queue_id,
            "msgId": self.unique,
            "keys": self.keys,
            "reconsumeTimes": self.reconsume_times,
            "due": False,
            "kind": "timer",
            "fireTimestamp": self.fire_timestamp,
            "rolled": False,
            "recalled": False,
        }

    def rows(self) -> Iterator[DelayedMessage]:
        """The messages one by one."""
        names, cells, common = list[str](), list[list[Any]](), dict[str, Any]()
        for name, column in self.columns().items():
            if isinstance(column, PlainTexts):
                cells.append(column.strings())
            elif isinstance(column, np.ndarray):
                cells.append(column.tolist())
            else:
                common[name] = column
                continue
            names.append(name)
        for values in zip(*cells, strict=True):
            yield DelayedMessage(**common, **dict(zip(names, values, strict=True)))

    def take(self, rows: "slice | Array") -> "PlainTimers":
        """A selection of the messages, in the given order."""
        return _make({name: _take(getattr(self, name), rows) for name in _COLUMNS})


_COLUMNS = tuple(field.name for field in fields(PlainTimers))
_TEXTS = ("topic", "unique", "keys")


def _make(columns: dict[str, Any]) -> PlainTimers:
    return PlainTimers(**columns)


def _take(column: "Array | PlainTexts", rows: "slice | Array") -> Any:
    if not isinstance(column, PlainTexts):
        return column[rows]
    places = Texts(cells_address(column.data, np.uint8) + column.ends[:-1].astype(np.int64), _lengths(column))
    return _gather(Texts(places.address[rows], places.length[rows]), listed=column.listed)


def _lengths(column: PlainTexts) -> "Array":
    return np.where(column.missing, -1, np.diff(column.ends)).astype(np.int64)


def _gather(texts: Texts, *, listed: bool = False) -> PlainTexts:
    missing = texts.length < 0
    data = np.empty(int(np.maximum(texts.length, 0).sum()), np.uint8)
    ends = np.zeros(len(missing) + 1, np.int32)
    gather(texts, data, ends[1:], 0)
    return PlainTexts(data, ends, missing, listed)


def plain_timers(log: CommitLog, wheel: Waiting, chosen: "Array") -> PlainTimers:
    """The ordinary messages of some units, by unit number; others are left out.

    Args:
        chosen: numbers of the units, ascending, in slots without recalls.
    """
    parts = [_of_file(heads, wheel) for heads in plain_heads(log, wheel.units, chosen)]
    if len(parts) == 1:
        return parts[0]
    joined = _join(parts)
    return joined.take(np.argsort(joined.numbers))


def _join(parts: list[PlainTimers]) -> PlainTimers:
    columns: dict[str, Any] = {}
    for name in _COLUMNS:
        cells = [getattr(part, name) for part in parts]
        columns[name] = _end_to_end(cells, listed=name == "keys") if name in _TEXTS else np.concatenate([_NONE, *cells])
    return _make(columns)


def _end_to_end(parts: list[PlainTexts], *, listed: bool) -> PlainTexts:
    data = np.concatenate([_NONE.astype(np.uint8), *(part.data for part in parts)])
    lengths = np.concatenate([_NONE, *(np.diff(part.ends) for part in parts)])
    missing = np.concatenate([_NONE.astype(bool), *(part.missing for part in parts)])
    return PlainTexts(data, np.concatenate(([0], np.cumsum(lengths))).astype(np.int32), missing, listed)


def _of_file(heads: TimerHeads, wheel: Waiting) -> PlainTimers:
    begin = cells_address(heads.data, np.uint8)
    parser = ItemParser(Texts(begin + heads.properties_at, heads.properties_length.copy()))
    plain = np.ones(len(heads.numbers), bool)
    while (row := parser.odd()) is not None:
        plain[row] = False
        parser.rewrite(begin, 0)
    items = parser.items()

    def values_of(name: str) -> Texts:
        return _values_of(heads.data, begin, items.names, items.values.texts, name.encode())

    topic, unique, keys = (_gather(texts) for texts in (values_of(REAL_TOPIC), items.unique, items.keys))
    deliver, is_time = _numbers_of(heads.data, begin, values_of(timer.OUT_MS))
    queue_id, is_queue = _numbers_of(heads.data, begin, values_of(REAL_QID))
    plain &= is_time & is_queue & (values_of(timer.DELETE_KEY).length < 0)
    for texts in (topic, unique, keys):
        plain &= _is_shown(texts)
    plain &= (_lengths(topic) > 0) & (_lengths(unique) > 0)

    def text(texts: PlainTexts) -> PlainTexts:
        return texts if plain.all() else _take(texts, plain)

    def of_head(name: str) -> "Array":
        return heads.heads[name][plain].astype(np.int64)

    return PlainTimers(
        numbers=heads.numbers[plain],
        queue_offset=of_head("queue_offset"),
        physical_offset=of_head("physical_offset"),
        deliver_timestamp=deliver[plain],
        store_timestamp=of_head("store_timestamp"),
        topic=text(topic),
        queue_id=queue_id[plain],
        unique=text(unique),
        keys=text(keys)._replace(listed=True),
        reconsume_times=of_head("reconsume_times"),
        fire_timestamp=wheel.slot_time[heads.numbers[plain]],
    )


def _values_of(data: "Array", begin: int, names: Lists, values: Texts, name: bytes) -> Texts:
    """The value of a property in each row; a length of -1 if a row does not have it."""
    rows = len(names.bounds) - 1
    items = np.flatnonzero(names.texts.length == len(name))
    at = names.texts.address[items] - begin
    same = data[at] == name[0]  # the first byte excludes most
    items, at = items[same], at[same]
    items = items[windows(data, at, len(name)).view(f"S{len(name)}")[:, 0] == name]
    row = np.searchsorted(names.bounds, items, "right") - 1
    address, length = np.zeros(rows, np.int64), np.full(rows, -1, np.int64)
    address[row], length[row] = values.address[items], values.length[items]
    return Texts(address, length)


def _numbers_of(data: "Array", begin: int, texts: Texts) -> "tuple[Array, Array]":
    """(value, whether it is valid) of each text; a number with a sign or with too many digits is not valid."""
    good = (texts.length > 0) & (texts.length <= _DIGITS)
    most = int(texts.length[good].max(initial=0))
    value = np.zeros(len(good), np.int64)
    end = texts.address - begin + texts.length
    for place in range(most):
        there = good & (place < texts.length)
        digit = data[np.where(there, end - 1 - place, 0)].astype(np.int64) - ord("0")
        good &= ~there | ((digit >= 0) & (digit <= 9))
        value += np.where(there, digit, 0) * 10**place
    return value, good


def _is_shown(texts: PlainTexts) -> "Array":
    """Which texts no output format escapes; missing ones count."""
    good = np.ones(len(texts.missing), bool)
    strange = np.flatnonzero(~_SHOWN[texts.data])
    good[np.searchsorted(texts.ends, strange, "right") - 1] = False
    return good
