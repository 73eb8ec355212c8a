"""Arrange messages in columns for the compiled writer; imported only by bulk appends."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TypeVar, overload

import numpy as np

from formats.errors import FormatError
from formats.message.build import MAX_PROPERTIES, MAX_TOPIC
from formats.message.ids import offset_id
from formats.message.properties import INNER, KEYS, TAGS
from formats.message.read import MIN_SIZE
from formats.primitives import BORN_V6, INNER_BATCH, STORE_V6
from formats.variants import timer
from rmqtool.kernels.append import BatchReader, Encoder, text_table
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.scan import space_rows
from rmqtool.kernels.tables.messages import MessageColumns
from rmqtool.kernels.tables.shapes import Column, Table
from rmqtool.store.append.acceptance import find_objection
from rmqtool.store.append.answers import Illegal, PutResult, PutStatus
from rmqtool.store.append.delayed import SCHEDULE, SPECIAL_BYTES
from rmqtool.store.append.outgoing import AppendRules, NewMessage, Ready, check_topic, host_of

QueueKey = tuple[str, int]
Host = tuple[bytes, int]  # address and port
_FIELDS = attrgetter(
    "topic",
    "queue_id",
    "flag",
    "sys_flag",
    "reconsume_times",
    "prepared_transaction_offset",
    "born_timestamp",
    "store_timestamp",
    "born_host",
    "store_host",
    "body",
    "properties",
    "tags",
    "keys",
)
_SPECIAL = (*SPECIAL_BYTES, INNER.encode())  # messages with these are checked one by one
_NAME_VALUE = "\x01".join
_BATCH_ROWS, _BATCH_TEXTS = 1024, 256
_NO_END = 1 << 62
_IPV4 = 4  # bytes of an address
# columns with one value for all messages of a batch, and the columns that locate the properties
_STORE_HOST, _QUEUE_ID, _SYS_FLAG, _BORN_TIMESTAMP, _STORE_TIMESTAMP, _RECONSUME_TIMES, *_PROPERTIES = (
    MessageColumns._fields.index(name)
    for name in (
        "store_host",
        "queue_id",
        "sys_flag",
        "born_timestamp",
        "store_timestamp",
        "reconsume_times",
        "properties_at",
        "properties_length",
    )
)
_Value = TypeVar("_Value", bound=Hashable)


class Results(Sequence[PutResult]):
    """The results for many messages, each created on access.

    Attributes:
        physical_offset, size, queue_offset: columns of int64.
    """

    def __init__(self, answer: Table, columns: MessageColumns, topics: list[str], hosts: list[Host]) -> None:
        self.physical_offset, self.size, self.queue_offset = answer
        self._columns, self._topics, self._hosts = columns, topics, hosts

    def __len__(self) -> int:
        return len(self.size)

    @overload
    def __getitem__(self, row: int) -> PutResult: ...
    @overload
    def __getitem__(self, row: slice) -> list[PutResult]: ...
    def __getitem__(self, row: int | slice) -> PutResult | list[PutResult]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        columns, at = self._columns, int(self.physical_offset[row])
        return PutResult(
            PutStatus.PUT_OK,
            self._topics[int(columns.topic[row])],
            int(columns.queue_id[row]),
            int(self.queue_offset[row]),
            at,
            int(self.size[row]),
            int(columns.store_timestamp[row]),
            offset_id(*self._hosts[int(columns.store_host[row])], at),
        )

    def __iter__(self) -> Iterator[PutResult]:
        return (self[row] for row in range(len(self)))


class Prepared:
    """Messages in columns, ready to be written.

    Attributes:
        encoder: writes them.
        last_store_timestamp: store timestamp of the last message.
    """

    def __init__(self, columns: MessageColumns, topics: list[str], hosts: list[Host], keep: object) -> None:
        self._columns, self._topics, self._hosts, self._keep = columns, topics, hosts, keep
        self.last_store_timestamp = int(columns.store_timestamp[-1])
        self._queues: list[QueueKey] = []
        self.encoder: Encoder

    def number(self, next_offsets: dict[QueueKey, int]) -> None:
        """Number the queues, and give the kernel the next offset of each."""
        columns = self._columns
        span = int(columns.queue_id.max()) + 1
        pairs, numbers = np.unique(columns.topic * span + columns.queue_id, return_inverse=True)
        self._queues = [(self._topics[pair // span], pair % span) for pair in pairs.tolist()]
        following = np.array([next_offsets.get(key, 0) for key in self._queues], np.int64)
        topic_table, keep_topics = text_table([topic.encode() for topic in self._topics])
        host_table, keep_hosts = text_table([a for a, _port in self._hosts], [port for _address, port in self._hosts])
        self._keep = (self._keep, keep_topics, keep_hosts)
        self._following = following
        table = np.stack(columns._replace(queue=numbers.astype(np.int64)))
        self.encoder = Encoder(table, topic_table, host_table, following)

    def finish(self, next_offsets: dict[QueueKey, int]) -> Results:
        """Write the next offset of each queue back, and return the results."""
        next_offsets.update(zip(self._queues, self._following.tolist(), strict=True))
        return Results(self.encoder.answer, self._columns, self._topics, self._hosts)

    @property
    def sizes(self) -> Column:
        """Bytes of each record."""
        columns = self._columns
        topics = np.array([len(topic.encode()) for topic in self._topics], np.int64)[columns.topic]
        widths = np.array([len(address) for address, _port in self._hosts], np.int64)
        hosts = widths[columns.born_host] + widths[columns.store_host] - 2 * _IPV4
        is_v2 = topics > MAX_TOPIC[1]  # V2 has one more byte for the topic's length
        return MIN_SIZE + hosts + is_v2 + topics + columns.body_length + columns.properties_length


class BatchWriter:
    """Writes batches in the form that clients send; reuses its tables between batches."""

    def __init__(self) -> None:
        self._make_table(_BATCH_ROWS)
        self._following = np.zeros(1, np.int64)
        self._texts: dict[tuple[bytes, tuple[Host, ...]], Encoder] = {}
        self._keep: list[Memory] = []
        self._rows = 0

    def _make_table(self, rows: int) -> None:
        self._table = np.zeros((len(MessageColumns._fields), space_rows(rows)), np.int64)
        self._reader = BatchReader(self._table)
        self._same: dict[int, tuple[int, int]] = {}  # by column: the value in its first rows, and their number

    def read(self, ready: Ready, now: int) -> int:
        """Parse the messages of a batch; returns the total size of their records.

        Args:
            ready: the fields of the batch; its body contains the messages.
            now: default for store and born time, ms.

        Raises:
            Illegal: the batch cannot be parsed, or the properties of a message are too long.
        """
        try:
            while (batch := self._reader.read(ready.body, len(ready.properties))) is None:
                self._texts.clear()
                self._make_table(2 * self._table.shape[1])
        except FormatError as err:
            raise Illegal(PutStatus.MESSAGE_ILLEGAL, str(err)) from None
        self._rows = rows = batch.rows
        if batch.inner:
            self._check_properties(ready, rows)
        longest = batch.longest + 1 + len(ready.properties)
        if rows and longest > MAX_PROPERTIES:
            text = f"properties of {longest} bytes, at most {MAX_PROPERTIES} fit"
            raise Illegal(PutStatus.PROPERTIES_SIZE_EXCEEDED, text)
        for column, value in (
            (_STORE_HOST, 1),
            (_QUEUE_ID, ready.queue_id),
            (_SYS_FLAG, ready.sys_flag),
            (_BORN_TIMESTAMP, now if ready.born_timestamp is None else ready.born_timestamp),
            (_STORE_TIMESTAMP, now if ready.store_timestamp is None else ready.store_timestamp),
            (_RECONSUME_TIMES, ready.reconsume_times),
        ):
            before, filled = self._same.get(column, (None, 0))
            if value != before or rows > filled:  # most are unchanged since the previous batch
                self._table[column, :rows] = value
                self._same[column] = value, rows
        return rows * (ready.size - len(ready.body) - len(ready.properties)) + batch.stored

    def _check_properties(self, ready: Ready, rows: int) -> None:
        """Reject messages whose properties a later start could not parse."""
        start = Memory(ready.body).address
        for at, length in self._table[_PROPERTIES, :rows].T.tolist():
            own = ready.body[at - start : at - start + length]
            if (reason := find_objection(ready.topic, own)) is not None:
                raise Illegal(PutStatus.MESSAGE_ILLEGAL, reason)

    def encoder(self, ready: Ready) -> Encoder:
        """The encoder for a batch; tables of topics and hosts are cached across batches."""
        key = (ready.topic, (ready.born_host, ready.store_host))
        encoder = self._texts.get(key)
        if encoder is None:
            if len(self._texts) >= _BATCH_TEXTS:
                self._texts.clear()
                self._keep.clear()
            topics, keep_topics = text_table([ready.topic])
            hosts, keep_hosts = text_table([host[0] for host in key[1]], [host[1] for host in key[1]])
            self._keep += [keep_topics, keep_hosts]
            encoder = self._texts[key] = Encoder(self._table, topics, hosts, self._following)
        return encoder

    def write(self, ready: Ready, out: bytearray, physical_offset: int, queue_offset: int) -> tuple[int, list[int]]:
        """Write the parsed messages; returns (bytes, physical offset of each). ``out`` must be large enough."""
        self._following[0] = queue_offset
        encoder = self.encoder(ready)
        rows, size = encoder.encode(out, _NO_END, physical_offset, 0, ready.properties, self._rows)
        if rows != self._rows:
            raise AssertionError("a batch is longer than its messages")
        offsets: list[int] = encoder.answer[0, :rows].tolist()
        return size, offsets


class _Numbers(dict[_Value, int]):
    """Numbers distinct values in order of first occurrence."""

    def __missing__(self, value: _Value) -> int:
        number = self[value] = len(self)
        return number


def _column(values: Iterable[int], count: int) -> Column:
    return np.fromiter(values, np.int64, count)


def _times(values: tuple[int | None, ...], now: int, count: int) -> Column:
    if values.count(None) == count:
        return np.full(count, now, np.int64)
    return _column((now if value is None else value for value in values), count)


def _number(values: tuple[_Value, ...], numbers: _Numbers[_Value], count: int) -> Column:
    return _column(map(numbers.__getitem__, values), count)


def _addresses(data: bytes, lengths: Column) -> Column:
    """Address of each part of joined bytes."""
    return Memory(data).address + np.cumsum(lengths) - lengths


def _columns(
    numbers: tuple[tuple[int, ...], ...],
    times: tuple[Column, Column],
    places: tuple[Column, Column, Column],
    body: tuple[bytes, Column],
    properties: tuple[bytes, Column],
) -> MessageColumns:
    """Build columns from grouped inputs: (queue id ... prepared offset), (born, stored), (topic, hosts)."""
    count = len(body[1])
    queue_id, flag, sys_flag, reconsume_times, prepared = (_column(values, count) for values in numbers)
    topic, born_host, store_host = places
    return MessageColumns(
        topic=topic,
        queue=topic,
        queue_id=queue_id,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=times[0],
        store_timestamp=times[1],
        born_host=born_host,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
        body_at=_addresses(*body),
        body_length=body[1],
        properties_at=_addresses(*properties),
        properties_length=properties[1],
    )


def of_ready(ready: list[Ready], now: int) -> Prepared:
    """Columns of messages that were checked one by one.

    Args:
        now: default for store and born time, ms.
    """
    count = len(ready)
    topics, hosts = _Numbers[bytes](), _Numbers[Host]()
    names, ids, bodies, properties, flags, sys_flags, born, stored, *rest = zip(*ready, strict=True)
    born_hosts, store_hosts, times, prepared, _light_queues, _inner_messages = rest
    body, packed = b"".join(bodies), b"".join(properties)
    columns = _columns(
        (ids, flags, sys_flags, times, prepared),
        (_times(born, now, count), _times(stored, now, count)),
        (
            _number(names, topics, count),
            _number(born_hosts, hosts, count),
            _number(store_hosts, hosts, count),
        ),
        (body, _column(map(len, bodies), count)),
        (packed, _column(map(len, properties), count)),
    )
    return Prepared(columns, [topic.decode() for topic in topics], list(hosts), (body, packed))


def of_messages(messages: Sequence[NewMessage], rules: AppendRules, now: int) -> Prepared | None:
    """Check messages in bulk; None if they must be checked one by one: one is rejected, or is special."""
    try:
        return _of_messages(messages, rules, now)
    except (Illegal, TypeError, ValueError, OverflowError, AttributeError):
        return None  # checking one by one will report the error for its message


def _of_messages(messages: Sequence[NewMessage], rules: AppendRules, now: int) -> Prepared | None:
    count = len(messages)
    topics, host_names = _Numbers[str](), _Numbers[str]()
    names, *numbers, born, stored, born_hosts, store_hosts, bodies, properties, tags, keys = zip(
        *map(_FIELDS, messages), strict=True
    )
    packed = _packed_properties(properties, tags, keys, "\x02" if rules.release.trailing_separator else "")
    body_lengths = _column(map(len, bodies), count)
    if packed is None or body_lengths.max() > rules.max_message_size or packed[1].max() > MAX_PROPERTIES:
        return None
    body = b"".join(bodies)
    places = (
        _number(names, topics, count),
        _number(born_hosts, host_names, count),
        _number(tuple(host or rules.store_host for host in store_hosts), host_names, count),
    )
    if SCHEDULE in topics or timer.TOPIC in topics:
        return None
    for topic in topics:
        check_topic(topic, rules.release.record_version)
    hosts = [host_of(name) for name in host_names]
    times = (_times(born, now, count), _times(stored, now, count))
    columns = _columns(tuple(numbers), times, places, (body, body_lengths), packed)
    for column in (columns.queue_id, columns.flag, columns.sys_flag, columns.reconsume_times):
        if column.min() < -(2**31) or column.max() >= 2**31:
            return None
    if columns.queue_id.min() < 0 or (columns.sys_flag & INNER_BATCH).any():
        return None
    wide = np.array([len(address) == 16 for address, _port in hosts])
    sys_flag = columns.sys_flag & ~(BORN_V6 | STORE_V6)
    sys_flag |= wide[columns.born_host] * BORN_V6 | wide[columns.store_host] * STORE_V6
    prepared = Prepared(columns._replace(sys_flag=sys_flag), list(topics), hosts, (body, packed))
    return None if prepared.sizes.max() > rules.room else prepared


def _packed_properties(
    properties: tuple[dict[str, str], ...], tags: tuple[str | None, ...], keys: tuple[str | None, ...], end: str
) -> tuple[bytes, Column] | None:
    """(joined stored form, length of each); None if a property has an effect beyond being stored."""
    count = len(properties)
    if tags.count(None) != count or keys.count(None) != count:
        named = []
        for own, tag, key in zip(properties, tags, keys, strict=True):
            own = dict(own)
            if tag is not None:
                own[TAGS] = tag
            if key is not None:
                own[KEYS] = key
            named.append(own)
        properties = tuple(named)
    texts = ["\x02".join(map(_NAME_VALUE, own.items())) for own in properties]
    if end:
        texts = [text and text + end for text in texts]
    whole = "".join(texts)
    if "\x01\x02" in whole or "\x02\x01" in whole or any(text[:1] == "\x01" or text[-1:] == "\x01" for text in texts):
        return None  # a property without a name or a value
    data = whole.encode()
    if any(name in data for name in _SPECIAL):
        return None
    items = sum(map(len, properties))
    separators = 2 * items - (0 if end else count - texts.count(""))
    if np.count_nonzero(np.frombuffer(data, np.uint8) < 3) != separators:
        return None  # a name or value contains a separator or a NUL
    return data, _column(map(len, texts if whole.isascii() else map(str.encode, texts)), count)
