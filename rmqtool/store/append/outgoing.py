"""Messages on their way into a store: as the caller gives them, and as the engine checks and converts them.

Source: the checks of store.DefaultMessageStore and CommitLog (4.9.8), and of broker.util.HookUtils (5.3.3);
store-engine 2.1 to 2.5. If the real engine accepts a message and then loses it, this one rejects it with a reason.
"""

from collections.abc import Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from formats.errors import BadText, FormatError
from formats.message.build import (
    MAX_MESSAGE_SIZE,
    MAX_PROPERTIES,
    MAX_TOPIC,
    PROPERTIES_LENGTH_SIZE,
    TOPIC_LENGTH_SIZE,
)
from formats.message.inner import is_inner_batch, spans_of
from formats.message.properties import (
    INNER_BASE,
    INNER_NUM,
    KEYS,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    TAGS,
    build,
    parse,
)
from formats.message.read import HEADS
from formats.primitives import (
    BORN_V6,
    INNER_BATCH,
    STORE_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NONE,
    parse_host,
)
from formats.topics import RETRY_PREFIX
from formats.variants import timer
from rmqtool.rules.releases import V4_9, Release
from rmqtool.store.append.acceptance import find_objection, may_be_rejected, names_a_directory
from rmqtool.store.append.answers import Illegal, PutStatus
from rmqtool.store.append.delayed import (
    SCHEDULE,
    SPECIAL,
    SPECIAL_BYTES,
    TimerRules,
    check_timer_message,
    waiting_place,
)
from rmqtool.words import counted

_WAITING = frozenset((SCHEDULE, timer.TOPIC))
_HOST = "127.0.0.1:0"
_SPECIAL = SPECIAL | {MULTI_DISPATCH}
_SPECIAL_BYTES = (*SPECIAL_BYTES, f"{MULTI_DISPATCH}\x01".encode())
_INT = range(-(2**31), 2**31)
_LONG = range(-(2**63), 2**63)
_OFFSETS_NAME, _OFFSET_DIGITS = len(MULTI_QUEUE_OFFSET) + 2, 20  # bytes that the offsets of light queues may take
_BASE_SIZE = len(INNER_BASE) + 2 + _OFFSET_DIGITS
_MOST_INNER = 2**15 - 1  # messages in one record; a broker keeps the count in 16 bits


@dataclass(slots=True, kw_only=True)
class NewMessage:
    """A message to be appended to a store; :class:`rmqtool.client.Message` is one to be sent.

    Attributes:
        body: as stored, that is compressed if ``sys_flag`` says so.
        properties: name to value, or the stored bytes.
        tags, keys: added to the properties if given; keys are separated by blanks.
        born_timestamp: ms; None for the current time.
        store_timestamp: ms; None for the current time, as in a broker.
        born_host, store_host: ``address:port``.
        was_stored: it is copied from a store, where a delayed message is already in the queue of its level, and keeps
            the delay property after delivery.
        from_store: its properties are copied from a store, where a value may contain U+0001; they stay as they are.
    """

    topic: str
    body: bytes = b""
    queue_id: int = 0
    tags: str | None = None
    keys: str | None = None
    properties: dict[str, str] | bytes = field(default_factory=dict)
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    store_timestamp: int | None = None
    born_host: str = _HOST
    store_host: str | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    was_stored: bool = False
    from_store: bool = False

    def property_map(self) -> dict[str, str]:
        """The properties by name, including tags and keys."""
        properties = parse(self.properties) if isinstance(self.properties, bytes) else dict(self.properties)
        if self.tags is not None:
            properties[TAGS] = self.tags
        if self.keys is not None:
            properties[KEYS] = self.keys
        return properties


class Ready(NamedTuple):
    """A checked message as stored bytes, without its place and time."""

    topic: bytes
    queue_id: int
    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_timestamp: int | None
    store_timestamp: int | None
    born_host: tuple[bytes, int]
    store_host: tuple[bytes, int]
    reconsume_times: int
    prepared_transaction_offset: int
    light_queues: tuple[str, ...] = ()  # further queues; their offsets are added to the properties
    inner_messages: int = 0  # messages of an inner batch; its first queue offset is added to the properties

    @property
    def version(self) -> int:
        """Version of the record; only version 2 has space for long topics."""
        return 1 if len(self.topic) <= MAX_TOPIC[1] else 2

    @property
    def size(self) -> int:
        """Bytes of the record, without the properties that depend on its place."""
        head = HEADS[self.sys_flag & (BORN_V6 | STORE_V6)].size
        lengths = TOPIC_LENGTH_SIZE[self.version] + PROPERTIES_LENGTH_SIZE
        return head + lengths + len(self.topic) + len(self.body) + len(self.properties)

    @property
    def queued(self) -> bool:
        """Whether the message gets a queue offset; prepared and rolled-back messages do not."""
        return self.sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)


@dataclass(slots=True, kw_only=True)
class AppendRules:
    """Which messages an engine accepts, and how it stores them.

    Attributes:
        release: the release with these rules.
        levels: number of delay levels.
        room: bytes of the largest record that fits a commit-log file, with the blank that ends the file.
        timer: conditions of the 5.x timer; None for an engine without one.
        max_message_size: largest body of a new message, bytes (``maxMessageSize``).
        light_queues: whether messages are also dispatched to light queues (``enableMultiDispatch``, ``enableLmq``).
        batch_topics: topics with batch queues; only these accept inner batches.
        store_host: default store host.
    """

    release: Release = V4_9
    levels: int = 18
    timer: TimerRules | None = None
    room: int = 1 << 30
    max_message_size: int = MAX_MESSAGE_SIZE
    light_queues: bool = False
    batch_topics: Set[str] = frozenset()
    store_host: str = _HOST

    def ready(self, message: NewMessage, *, batch: bool = False) -> Ready:
        """Check a message and convert it to stored bytes.

        Args:
            batch: whether it is part of a batch, whose messages may be neither delayed nor transactional.

        Raises:
            Illegal: the engine would reject it or lose it, or a later start of some release would fail to read
                it.
        """
        check_topic(message.topic, self.release.record_version)
        if message.topic in _WAITING and not message.was_stored:
            _check_waiting(message)
        topic, queue_id, properties = message.topic, message.queue_id, message.properties
        light: tuple[str, ...] = ()
        if _has_special(properties):
            topic, queue_id, properties, light = self._route(message, batch=batch)
        if batch and message.sys_flag & TRANSACTION_MASK:
            raise _illegal("a batch may have no transactional message")
        inner = self._inner_messages(topic, message)
        if inner:
            properties = _count_inner(properties, inner)
        packed = self._pack(message, properties)
        most = len(packed)  # bytes of the properties including the offsets
        if light or inner:
            most += (_OFFSETS_NAME + _OFFSET_DIGITS * len(light) if light else 0) + (_BASE_SIZE if inner else 0)
        if most > MAX_PROPERTIES:
            text = f"properties of {most} bytes, at most {MAX_PROPERTIES} fit"
            raise Illegal(PutStatus.PROPERTIES_SIZE_EXCEEDED, text)
        stored_topic = topic.encode()
        if may_be_rejected(stored_topic, packed) and (reason := find_objection(stored_topic, packed)) is not None:
            raise _illegal(reason)
        if len(message.body) > self.max_message_size and not message.was_stored:
            raise _illegal(f"body of {len(message.body)} bytes, the broker takes {self.max_message_size}")
        born, store = host_of(message.born_host), host_of(message.store_host or self.store_host)
        sys_flag = message.sys_flag & ~(BORN_V6 | STORE_V6)
        sys_flag |= (BORN_V6 if len(born[0]) == 16 else 0) | (STORE_V6 if len(store[0]) == 16 else 0)
        ready = Ready(
            stored_topic,
            queue_id,
            message.body,
            packed,
            message.flag,
            sys_flag,
            message.born_timestamp,
            message.store_timestamp,
            born,
            store,
            message.reconsume_times,
            message.prepared_transaction_offset,
            light,
            inner,
        )
        _check_ranges(ready)
        if (size := ready.size + most - len(packed)) > self.room:
            raise _illegal(f"record of {size} bytes does not fit a commit-log file, which has room for {self.room}")
        return ready

    def _route(self, message: NewMessage, *, batch: bool) -> tuple[str, int, dict[str, str] | bytes, tuple[str, ...]]:
        """(topic, queue id, properties, light queues) of a message whose properties affect its destination.

        Raises:
            Illegal: the destination is not allowed.
        """
        topic, queue_id, properties = message.topic, message.queue_id, message.properties
        named = message.property_map()
        place = None
        if not message.was_stored:
            place = waiting_place(topic, queue_id, named, message.sys_flag, self.levels, self.timer)
        if place is not None:
            if batch:
                raise _illegal("a batch may have no delayed message")
            if place[0] == timer.TOPIC and not message.body:
                raise _illegal("a timer message without a body: a broker drops it when its time has come")
            (topic, queue_id), properties = place, named
        light = self._light_queues(topic, named.get(MULTI_DISPATCH, "")) if self.light_queues and not batch else ()
        return topic, queue_id, properties, light

    def _light_queues(self, topic: str, names: str) -> tuple[str, ...]:
        """The light queues of a message, from its property."""
        queues = tuple(names.split(",")) if names else ()
        for name in queues:
            if not names_a_directory(name):
                raise _illegal(f"queue name {name!r} cannot be a directory's name")
        if queues and not self.release.fills_light_queues(topic):
            return ()
        if topic in queues or SCHEDULE in queues:
            raise _illegal(f"{MULTI_DISPATCH}: neither the message's own topic nor {SCHEDULE} is a further queue")
        if queues and self.batch_topics & {topic, *queues}:
            raise _illegal(f"{MULTI_DISPATCH}: nothing goes into further queues from batch queues, or into those")
        return queues

    def _pack(self, message: NewMessage, properties: dict[str, str] | bytes) -> bytes:
        """The properties in stored form, including tags and keys."""
        if message.tags is None and message.keys is None:
            if isinstance(properties, bytes):
                return properties
            if not properties:
                return b""
        named = parse(properties) if isinstance(properties, bytes) else properties
        if message.tags is not None or message.keys is not None:
            given = {TAGS: message.tags, KEYS: message.keys}
            named = {**named, **{name: value for name, value in given.items() if value is not None}}
        try:
            packed = build(named, trailing_separator=self.release.trailing_separator)
        except UnicodeEncodeError as err:
            raise _illegal(f"a property is no text: {err.reason}") from None
        except BadText as err:
            raise _illegal(err.reason) from None
        except FormatError as err:
            raise Illegal(PutStatus.PROPERTIES_SIZE_EXCEEDED, err.reason) from None
        if message.was_stored or message.from_store:
            return packed
        if packed.count(b"\x01") != len(named):
            raise _illegal("the value of a property holds U+0001, which separates names from values")
        if "" in named or "" in named.values():
            name = next(name for name, value in named.items() if not (name and value))
            lacks = f"property {name!r} has no value" if name else "a property has no name"
            raise _illegal(f"{lacks}: it would be stored, and nobody who reads the message would get it")
        return packed

    def _inner_messages(self, topic: str, message: NewMessage) -> int:
        """Number of messages in an inner batch; 0 for any other message (5.3: HookUtils.checkInnerBatch)."""
        if not self.release.has_attributes:
            return 0
        if not message.sys_flag & INNER_BATCH:
            if message.topic in self.batch_topics and INNER_NUM in message.property_map():
                text = f"{INNER_NUM} is of inner batches alone, and the system flag does not say that this is one"
                raise _illegal(text)
            return 0
        if topic not in self.batch_topics:
            if not is_inner_batch(message.sys_flag):
                return 0  # it is never split
            text = f"topic {topic!r} takes no inner batch: topics.json does not give it batch consume queues"
            raise _illegal(text)
        if message.sys_flag & TRANSACTION_MASK:
            raise _illegal("an inner batch may not be transactional")
        spans = spans_of(message.body, 0, len(message.body)) if is_inner_batch(message.sys_flag) else None
        count = sum(1 for _span in spans or ())
        if not 0 < count <= _MOST_INNER:
            text = (
                f"an inner batch of {counted(count, 'message')}, 1 to {_MOST_INNER} fit"
                if count
                else "the body is no plain batch"
            )
            raise _illegal(text)
        return count


def _illegal(reason: str) -> Illegal:
    return Illegal(PutStatus.MESSAGE_ILLEGAL, reason)


def _has_special(properties: dict[str, str] | bytes) -> bool:
    """Whether there may be properties that affect a message's destination."""
    if isinstance(properties, bytes):
        return any(name in properties for name in _SPECIAL_BYTES)
    return bool(properties) and not _SPECIAL.isdisjoint(properties)


def _count_inner(properties: dict[str, str] | bytes, messages: int) -> dict[str, str]:
    """Properties of an inner batch, with the number of its messages."""
    named = parse(properties) if isinstance(properties, bytes) else properties
    return {name: value for name, value in named.items() if name != INNER_BASE} | {INNER_NUM: str(messages)}


def _check_waiting(message: NewMessage) -> None:
    """Reject a message sent directly to a topic for delayed messages.

    Raises:
        Illegal: the engine could not deliver it.
    """
    if message.topic == timer.TOPIC:
        check_timer_message(message.property_map())
        return
    text = f"{SCHEDULE}: messages come into it by their property DELAY, under their own topic"
    raise _illegal(text)


@lru_cache(maxsize=4096)
def host_of(text: str) -> tuple[bytes, int]:
    """Address bytes and port.

    Raises:
        Illegal: not ``address:port``.
    """
    try:
        address, port = parse_host(text)
    except ValueError:
        raise _illegal(f"{text!r} is not address:port") from None
    if port not in _INT:
        raise _illegal(f"{text!r}: no such port")
    return address, port


@lru_cache(maxsize=65536)
def check_topic(topic: str, version: int) -> None:
    """Reject a topic that cannot be a directory name, or that a record cannot hold.

    Args:
        version: the newest record version written.

    Raises:
        Illegal: it is refused.

    4.9 accepts a topic of at most 127 characters but more bytes, and its next start truncates the log there.
    """
    try:
        size = len(topic.encode())
    except UnicodeEncodeError:
        raise _illegal("topic is no text") from None
    most = MAX_TOPIC[version] if topic.startswith(RETRY_PREFIX) else MAX_TOPIC[1]
    if not 0 < size <= most:
        raise _illegal(f"topic of {size} bytes, 1 to {most} are taken")
    if not names_a_directory(topic):
        raise _illegal(f"topic {topic!r} cannot be a directory's name")


def _check_ranges(ready: Ready) -> None:
    if (
        0 <= ready.queue_id <= _INT[-1]
        and ready.flag in _INT
        and ready.sys_flag in _INT
        and ready.reconsume_times in _INT
        and (ready.born_timestamp is None or ready.born_timestamp in _LONG)
        and (ready.store_timestamp is None or ready.store_timestamp in _LONG)
        and ready.prepared_transaction_offset in _LONG
    ):
        return
    # find the field only after a failed check
    for name in ("queue_id", "flag", "sys_flag", "reconsume_times"):
        if getattr(ready, name) not in _INT:
            raise _illegal(f"{name} {getattr(ready, name)} is no 32-bit number")
    for name in ("born_timestamp", "store_timestamp", "prepared_transaction_offset"):
        value = getattr(ready, name)
        if value is not None and value not in _LONG:
            raise _illegal(f"{name} {value} is no 64-bit number")
    if ready.queue_id < 0:
        raise _illegal(f"queue id {ready.queue_id} is negative")
