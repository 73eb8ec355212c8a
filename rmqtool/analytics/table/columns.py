"""Records as Arrow record batches, many at once by compiled code; equal to :mod:`rmqtool.analytics.table.rows`.

What kernels do not take is rewritten in Python before they see it: compressed bodies, and properties that are not
UTF-8 or have a name twice.
"""

from collections.abc import Callable, Generator
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from formats.errors import FormatError
from formats.layouts.codes import BORN_V6, STORE_V6
from formats.layouts.derived import HEAD_V4_V4
from formats.message.bodies import decompress
from formats.message.properties import parse
from formats.primitives import COMPRESSED, host_text
from rmqtool.analytics.table.body_views import BodyViews
from rmqtool.analytics.table.choice import Choice
from rmqtool.analytics.table.rows import Limits
from rmqtool.analytics.table.schema import BODY_COLUMNS, BODY_ENCODING, MAX_TIME, MIN_TIME
from rmqtool.analytics.table.splits import name_of
from rmqtool.analytics.table.tally import Tally
from rmqtool.analytics.table.walk import walk_rows
from rmqtool.kernels.arrow import ItemParser, Items, Lists, gather, offset_ids, split_keys, views_of
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.scan import Rows, Walker
from rmqtool.kernels.tables import ID_SPACE, Column, Texts
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import Damage

_BORN_AT, _STORE_AT = HEAD_V4_V4.offsets["born_address"], HEAD_V4_V4.offsets["store_address"]
_HOST, _HOST_V6 = 8, 20  # bytes of address and port
_Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Part:
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

    def pick(self, which: "slice | _Mask", bodies: "dict[int, bytes | str] | None" = None) -> "Part":
        """Some of the rows."""
        return Part(self.file, self._address, Rows(*(column[which] for column in self.rows)), bodies)

    def _texts(self, at: Column, length: Column) -> Texts:
        return Texts(at + self._address, np.array(length))

    def _kept(self, data: bytes) -> tuple[int, int]:
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
            items = parse(bytes(self.file.mapped()[at : at + length]))
            parser.rewrite(*self._kept("\2".join(f"{name}\1{value}" for name, value in items.items()).encode()))
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
            texts.address[row], texts.length[row] = self._kept(body)
        return texts

    @property
    def inflated(self) -> dict[int, bytes]:
        """Bodies that do not lie in the file, by row."""
        return {row: body for row, body in self._bodies.items() if isinstance(body, bytes)}

    def mapped(self) -> tuple[int, memoryview]:
        """The part of the file in which all rows lie: its address, and its bytes."""
        start, stop = int(self.rows.at[0]), int(self.rows.at[-1] + self.rows.total_size[-1])
        return self._address + start, self.file.mapped()[start:stop]

    @property
    def errors(self) -> list[tuple[int, str]]:
        """(row, why its body is as stored)."""
        return [(row, body) for row, body in self._bodies.items() if isinstance(body, str)]

    def compressed(self) -> list[int]:
        """Rows whose bodies must be inflated."""
        return np.flatnonzero((self.rows.sys_flag & COMPRESSED) & (self.rows.body_length > 0)).tolist()

    def inflate(self, row: int) -> bytes | str:
        """A body, or why it cannot be told."""
        at, length = int(self.rows.body_at[row]), int(self.rows.body_length[row])
        try:
            return decompress(bytes(self.file.mapped()[at : at + length]), int(self.rows.sys_flag[row]))
        except FormatError as err:
            return str(err)


class Bytes:
    """Grows a column of bytes."""

    def __init__(self) -> None:
        self._data = np.empty(1 << 12, np.uint8)
        self._offsets = np.zeros(1 << 8, np.int32)
        self._missing: list[_Mask] = []
        self._filled = self._rows = 0

    def add(self, texts: Texts) -> None:
        """Append texts; one that is not there becomes null."""
        rows = self._rows + len(texts.length)
        missing = texts.length < 0
        size = int(texts.length.sum() + np.count_nonzero(missing))
        self._data = _grown(self._data, self._filled, self._filled + size)
        self._offsets = _grown(self._offsets, self._rows + 1, rows + 1)
        self._filled = gather(texts, self._data, self._offsets[self._rows + 1 : rows + 1], self._filled)
        self._missing.append(missing)
        self._rows = rows

    def finish(self) -> pa.BinaryArray:
        """The column; a new one begins."""
        missing = np.concatenate(self._missing) if self._missing else np.zeros(0, np.bool_)
        valid = None
        if missing.any():
            valid = pa.py_buffer(np.packbits(~missing, bitorder="little"))
        buffers = [valid, pa.py_buffer(self._offsets[: self._rows + 1]), pa.py_buffer(self._data[: self._filled])]
        made = pa.Array.from_buffers(pa.binary(), self._rows, buffers)
        # the next batch will be much like this one
        self._data = np.empty(self._filled + self._filled // 8 + 1, np.uint8)
        self._offsets = np.zeros(len(self._offsets), np.int32)
        self._missing, self._filled, self._rows = [], 0, 0
        return made


_Values = TypeVar("_Values", bound=np.ndarray[Any, Any])


def _grown(values: _Values, filled: int, needed: int) -> _Values:
    if needed <= len(values):
        return values
    made = np.empty(max(needed, 2 * len(values)), values.dtype)
    made[:filled] = values[:filled]
    return made  # type: ignore[return-value]


def binary_of(texts: Texts) -> pa.BinaryArray:
    """Texts as one array of bytes."""
    column = Bytes()
    column.add(texts)
    return column.finish()


def _text_of(values: pa.BinaryArray) -> pa.StringArray:
    """Bytes as text; malformed UTF-8 becomes U+FFFD."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return _each(values, lambda value: value.decode("utf-8", "replace"))


def _each(values: pa.BinaryArray, text: Callable[[bytes], str]) -> pa.StringArray:
    """A text for each, made once for those that are equal."""
    encoded = values.dictionary_encode()
    return pa.array(map(text, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)


def _host(value: bytes) -> str:
    return host_text(value[:-4], int.from_bytes(value[-4:], "big", signed=True))


def _among(texts: Texts, values: tuple[str, ...]) -> _Mask:
    wanted = pa.array([value.encode("utf-8", "surrogatepass") for value in values], pa.binary())
    found: _Mask = pc.is_in(binary_of(texts), wanted).to_numpy(zero_copy_only=False)
    return found


def chosen(part: Part, choice: Choice) -> _Mask:
    """Which rows are asked for, as :meth:`rmqtool.analytics.table.choice.Choice.has` tells."""
    rows, mask = part.rows, np.ones(len(part), np.bool_)
    for values, start, stop in (
        (rows.store_timestamp, choice.since, choice.until),
        (part.offsets, choice.start, choice.stop),
        (rows.queue_offset, choice.queue_start, choice.queue_stop),
    ):
        if start is not None:
            mask &= values >= start
        if stop is not None:
            mask &= values < stop
    if choice.queues:
        mask &= np.isin(rows.queue_id, choice.queues)
    if choice.topics:
        topics = binary_of(part.topics).dictionary_encode()
        wanted = np.array([choice.has_topic(topic) for topic in topics.dictionary.to_pylist()], np.bool_)
        mask &= wanted[topics.indices.to_numpy()]
    if choice.tags and mask.any():
        mask &= _among(part.items.tags, choice.tags)
    if choice.keys and mask.any():
        bounds, texts = part.keys
        hits = np.concatenate(([0], np.cumsum(_among(texts, choice.keys))))
        mask &= hits[bounds[1:]] > hits[bounds[:-1]]
    return mask


class _Column(Protocol):
    """Grows a column of a batch."""

    def add(self, part: Part) -> None:
        """Append rows."""

    def finish(self) -> pa.Array:
        """The column; a new one begins."""


class _Numbers:
    """Numbers of the type of a field."""

    def __init__(self, kind: pa.DataType, values: Callable[[Part], Column]) -> None:
        self._kind, self._values = kind, values
        self._parts: list[Column] = []

    def add(self, part: Part) -> None:
        self._parts.append(self._values(part).astype(self._kind.to_pandas_dtype()))

    def finish(self) -> pa.Array:
        values, self._parts = np.concatenate(self._parts), []
        return pa.array(values, self._kind)


class _Times:
    """Milliseconds as instants; null outside of what readers can show."""

    def __init__(self, kind: pa.DataType, tally: Tally, values: Callable[[Part], Column]) -> None:
        self._kind, self._tally, self._values = kind, tally, values
        self._parts: list[Column] = []

    def add(self, part: Part) -> None:
        self._parts.append(self._values(part).copy())

    def finish(self) -> pa.Array:
        values, self._parts = np.concatenate(self._parts), []
        missing = (values < MIN_TIME) | (values >= MAX_TIME)
        count = int(np.count_nonzero(missing))
        self._tally.times_out_of_range += count
        return pa.array(np.where(missing, 0, values) * 1000, mask=missing if count else None).view(self._kind)


class _Text:
    """Bytes or text, one for each row."""

    def __init__(self, texts: Callable[[Part], Texts], made: Callable[[pa.BinaryArray], pa.Array]) -> None:
        self._texts, self._made = texts, made
        self._bytes = Bytes()

    def add(self, part: Part) -> None:
        self._bytes.add(self._texts(part))

    def finish(self) -> pa.Array:
        return self._made(self._bytes.finish())


class _Many:
    """Lists or maps: where each begins, and the texts of all."""

    def __init__(self, lists: Callable[[Part], list[Lists]], made: Callable[..., pa.Array]) -> None:
        self._lists, self._made = lists, made
        self._ends: list[Column] = [np.zeros(1, np.int64)]
        self._columns: list[Bytes] = []

    def add(self, part: Part) -> None:
        lists = self._lists(part)
        self._columns = self._columns or [Bytes() for _each in lists]
        self._ends.append(lists[0].bounds[1:] + self._ends[-1][-1])
        for column, (_bounds, texts) in zip(self._columns, lists, strict=True):
            column.add(texts)

    def finish(self) -> pa.Array:
        offsets = pa.array(np.concatenate(self._ends), pa.int32())
        self._ends = self._ends[:1]
        return self._made(offsets, *(_text_of(column.finish()) for column in self._columns))


class _Same:
    """One text in every row."""

    def __init__(self, text: str) -> None:
        self._text, self._rows = text, 0

    def add(self, part: Part) -> None:
        self._rows += len(part)

    def finish(self) -> pa.Array:
        made, self._rows = pa.repeat(pa.scalar(self._text, pa.string()), self._rows), 0
        return made


class _Errors:
    """Why bodies are as stored."""

    def __init__(self) -> None:
        self._errors: dict[int, str] = {}
        self._rows = 0

    def add(self, part: Part) -> None:
        self._errors.update((self._rows + row, error) for row, error in part.errors)
        self._rows += len(part)

    def finish(self) -> pa.Array:
        values = map(self._errors.get, range(self._rows)) if self._errors else None
        made = pa.nulls(self._rows, pa.string()) if values is None else pa.array(values, pa.string())
        self._errors, self._rows = {}, 0
        return made


_NUMBERS: dict[str, Callable[[Part], Column]] = {
    "queueId": lambda part: part.rows.queue_id,
    "queueOffset": lambda part: part.rows.queue_offset,
    "physicalOffset": lambda part: part.offsets,
    "storeSize": lambda part: part.rows.total_size,
    "sysFlag": lambda part: part.rows.sys_flag,
    "flag": lambda part: part.rows.flag,
    "bodyCrc": lambda part: part.rows.body_crc,
    "reconsumeTimes": lambda part: part.rows.reconsume_times,
    "preparedTransactionOffset": lambda part: part.rows.prepared_transaction_offset,
    "bodyLength": lambda part: part.bodies.length,
    "fileOffset": lambda part: part.rows.at,
}
_TIMES: dict[str, Callable[[Part], Column]] = {
    "bornTimestamp": lambda part: part.rows.born_timestamp,
    "storeTimestamp": lambda part: part.rows.store_timestamp,
}
_TEXTS: dict[str, tuple[Callable[[Part], Texts], Callable[[pa.BinaryArray], pa.Array]]] = {
    "topic": (lambda part: part.topics, _text_of),
    "bornHost": (lambda part: part.born_hosts, lambda values: _each(values, _host)),
    "storeHost": (lambda part: part.store_hosts, lambda values: _each(values, _host)),
    "offsetMsgId": (lambda part: part.offset_ids, _text_of),
    "msgId": (lambda part: part.message_ids, _text_of),
    "tags": (lambda part: part.items.tags, _text_of),
    "body": (lambda part: part.bodies, lambda values: values),
}


def _column(name: str, kind: pa.DataType, tally: Tally, source: str) -> _Column:
    if name in _NUMBERS:
        return _Numbers(kind, _NUMBERS[name])
    if name in _TIMES:
        return _Times(kind, tally, _TIMES[name])
    if kind == pa.binary_view():
        return BodyViews()
    if name in _TEXTS:
        return _Text(*_TEXTS[name])
    if name == "keys":
        return _Many(lambda part: [part.keys], lambda *parts: pa.ListArray.from_arrays(*parts, type=kind))
    if name == "properties":
        names_and_values: Callable[[Part], list[Lists]] = lambda part: [part.items.names, part.items.values]  # noqa: E731
        return _Many(names_and_values, lambda *parts: pa.MapArray.from_arrays(*parts, type=kind))
    return _Errors() if name == "bodyError" else _Same({"bodyEncoding": BODY_ENCODING, "sourceFile": source}[name])


class Columns:
    """Collects the columns of one file's records until a batch is full.

    Args:
        tally: filled along the way.
    """

    def __init__(self, schema: pa.Schema, choice: Choice, tally: Tally, limits: Limits) -> None:
        self._schema, self._choice, self._tally, self._limits = schema, choice, tally, limits
        self._with_bodies = not BODY_COLUMNS.isdisjoint(schema.names)
        self._columns: list[_Column] = []
        self._rows = self._size = 0

    def read(self, file: Segment, at: int, stop: int, *, last: bool) -> Generator[pa.RecordBatch, None, int]:
        """As :meth:`rmqtool.analytics.table.rows.Rows.read`."""
        source = name_of(file.path)
        self._columns = [_column(field.name, field.type, self._tally, source) for field in self._schema]
        memory = Memory(file.mapped())
        walk = walk_rows(file, at, stop, last=last)
        while True:
            try:
                item = next(walk)
            except StopIteration as end:
                if self._rows:
                    yield self._finish()
                following: int = end.value
                return following
            if isinstance(item, Damage):
                if self._choice.in_range(item.physical_offset):
                    self._tally.add_damage(item)
                continue
            begin, size = int(item.at[-1]), int(item.total_size[-1])
            self._tally.add_records(item.records, int(item.total_size.sum()), begin, begin + size)
            part = Part(file, memory.address, item)
            mask = chosen(part, self._choice)
            yield from self._add(part if mask.all() else part.pick(mask))

    def _add(self, part: Part) -> Generator[pa.RecordBatch, None, None]:
        start = 0
        while start < len(part):
            stop, bodies = self._fit(part, start)
            if stop > start:
                taken = part if stop - start == len(part) and not bodies else part.pick(slice(start, stop), bodies)
                for column in self._columns:
                    column.add(taken)
                self._tally.not_decompressed += len(taken.errors)
            if stop == start or self._size >= self._limits.bytes or self._rows >= self._limits.rows:
                yield self._finish()
            start = stop

    def _fit(self, part: Part, start: int) -> tuple[int, dict[int, bytes | str]]:
        """(row after those from ``start`` on that the batch takes, their inflated bodies); none where it must end."""
        rows = part.rows
        huge = np.flatnonzero(rows.total_size[start:] > self._limits.huge)
        stop = min(len(part), start + self._limits.rows - self._rows)
        if len(huge):
            before = int(huge[0])
            stop = min(stop, start + before if before or self._rows else start + 1)
        sizes = rows.total_size[start:stop] - rows.body_length[start:stop]
        bodies: dict[int, bytes | str] = {}
        if self._with_bodies:
            ends = self._size + np.cumsum(sizes + rows.body_length[start:stop])
            for row in (row - start for row in part.compressed() if start <= row < stop):
                if row and ends[row - 1] >= self._limits.bytes:
                    break
                body = bodies[row] = part.inflate(start + row)
                if isinstance(body, bytes):
                    ends[row:] += len(body) - rows.body_length[start + row]
        else:
            ends = self._size + np.cumsum(sizes)
        taken = min(int(np.searchsorted(ends, self._limits.bytes)) + 1, stop - start)
        if taken:
            self._size = int(ends[taken - 1])
            self._rows += taken
        return start + taken, {row: body for row, body in bodies.items() if row < taken}

    def _finish(self) -> pa.RecordBatch:
        self._tally.rows += self._rows
        self._rows = self._size = 0
        return pa.RecordBatch.from_arrays([column.finish() for column in self._columns], schema=self._schema)


def load() -> None:
    """Load all compiled code, by running it on nothing."""
    nothing = Texts(np.zeros(0, np.int64), np.zeros(0, np.int64))
    Walker(b"", 1).walk(0, 0)
    ItemParser(nothing).odd()
    split_keys(nothing)
    offset_ids(nothing, nothing.length, np.empty((0, ID_SPACE), np.uint8))
    Bytes().add(nothing)
    views_of(nothing, 0, 0)
    pa.array(nothing.length)  # imports pandas, where there is one
