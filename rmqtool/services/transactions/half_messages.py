"""Transactions: half messages joined with the op messages that end them, and with their copies from checks.

A check appends a copy of the half message to the half queue. An op message names the queue offset of the copy that is
ended, but not the outcome. A committed message names the physical offset of that copy.

Source: broker.transaction.queue (4.9.8; op messages of 5.x name many offsets), broker.transaction.rocksdb (5.5.0);
message-services 11, releases-5.4-5.5 5.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from formats.message.properties import KEYS, REAL_QID, REAL_TOPIC, TAGS, UNIQ_KEY, split_keys
from formats.message.read import HEADS, HOSTS_V6, Record
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK
from formats.topics import GIVEN_UP, HALF, OP, ROCKS_HALF, ROCKS_OP
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.services.delays.delays import number_of
from rmqtool.services.lookup.configs import Warn, known_offsets, offsets_of
from rmqtool.services.lookup.pairs import Pairs
from rmqtool.services.lookup.queue_messages import QueueMessage, TopicQueues, messages_of, raw, warn_of_unbuilt
from rmqtool.services.lookup.stored import NamedQueue
from rmqtool.store.index.reader import BadIndex, IndexView, open_index, physical_offsets
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import PlainQueue
from rmqtool.store.queues.message_store import OpenHalves, open_halves_of
from rmqtool.words import counted

CHECK_GROUP = "CID_RMQ_SYS_TRANS"
HALF_OFFSET = "TRANS_OFFSET"  # property of an op message if half messages are in RocksDB
CHECK_TIMES, PREPARED_OFFSET = "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"
OP_TAG = "d"
_SYS_FLAG = HEADS[0].field("sys_flag")


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfCopy:
    """One copy of a half message in the half queue: the producer's, or one stored by a check."""

    queueOffset: int
    physicalOffset: int
    storeTimestamp: int
    checkTimes: int | None  # None if not known

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionInfo:
    """One transaction. Times are ms since the epoch.

    ``passed``: the check has passed it, there is no op message and it was not given up; it will not be checked again.
    """

    state: str | None  # pending, committed, rolled-back, given-up or passed; None if not known
    producerGroup: str | None
    topic: str | None  # the message's destination
    queueId: int | None
    msgId: str
    keys: str | None
    halfQueueId: int
    halfQueueOffset: int  # of the first copy still in the log
    checkTimes: int | None
    bornTimestamp: int
    storeTimestamp: int  # of that copy
    lastCheckTimestamp: int | None
    endTimestamp: int | None  # of the op message, or when it was given up
    opQueueOffset: int | None
    commitPhysicalOffset: int | None
    givenUpPhysicalOffset: int | None
    copies: list[HalfCopy]
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return {**asdict(self), "keys": split_keys(self.keys or "")}


def op_offsets(record: Record, properties: dict[str, str]) -> list[int] | None:
    """The half-queue offsets that an op message ends: one in 4.9, ``17,18,`` in 5.x. None if it is not an op
    message.
    """
    if properties.get(TAGS) != OP_TAG:
        return None
    parts = [part for part in record.body.split(b",") if part]
    offsets = [number_of(part.decode("latin-1")) for part in parts]
    return [n for n in offsets if n is not None] if parts and None not in offsets else None


Q = TypeVar("Q", bound=NamedQueue)
T = TypeVar("T", bound=TransactionInfo)


class CommitUnknown(Exception):
    """It is not known whether a transaction was committed."""


class OpenState(NamedTuple):
    """What is known of a half message of a broker that keeps open ones in RocksDB.

    Attributes:
        check_times: number of checks; None if not known.
        gone: there is no such open half message any more.
    """

    check_times: int | None
    gone: bool


class TransactionReader(ABC, Generic[Q, T]):
    """Transactions, wherever their queues are.

    Memory: 16 bytes for each ended half message and for each copy stored by a check.
    """

    row: type[T]

    def __init__(self, warn: Warn) -> None:
        self.warn = warn

    @abstractmethod
    def queues_of(self, topic: str) -> Sequence[Q]:
        """The queues of a topic."""

    @abstractmethod
    def sibling(self, queue: Q, topic: str, queue_id: int) -> Q | None:
        """A queue of another topic in the same store."""

    @abstractmethod
    def messages(
        self, queue: Q, start: int | None = None, stop: int | None = None, *, quiet: bool = False
    ) -> Iterator[QueueMessage]:
        """Messages of queue offsets [start, stop), by default all that are still there."""

    @abstractmethod
    def check_offset(self, queue: Q) -> int:
        """The offset of the check in a half queue."""

    @abstractmethod
    def store_time(self, queue: Q, physical_offset: int) -> int | None:
        """The store time (ms) of a given-up message at a physical offset; None if it is gone."""

    @abstractmethod
    def open_half(self, physical_offset: int) -> OpenState:
        """What is known of a half message of a broker that keeps open ones in RocksDB."""

    @abstractmethod
    def commit(self, queue: Q, first: QueueMessage, copies: list[HalfCopy], end: int | None) -> int | None:
        """Physical offset of the committed message, which precedes the op message; None if it is not there.

        Args:
            queue: the half queue.
            end: physical offset of the op message; None for a transaction that has not ended.

        Raises:
            CommitUnknown: it is not known.
        """

    def tells_ends(self, _queue: Q) -> bool:
        """Whether everything is known that shows how transactions ended."""
        return True

    def place(self, _queue: Q) -> dict[str, Any]:
        """Further fields of rows of a queue."""
        return {}

    @cached_property
    def _given_up(self) -> Pairs:
        """Identity to physical offset."""
        pairs = Pairs()
        for queue in self.queues_of(GIVEN_UP):
            for message in self.messages(queue):
                pairs.add(self._identity(queue, message), message.entry.physical_offset)
        return pairs

    def _identity(self, queue: Q, message: QueueMessage) -> int:
        """A number shared by all copies of one half message in one store."""
        return hash((tuple(self.place(queue).values()), _identity(message)))

    def all(self, wanted: str | None = None) -> Iterator[T]:
        """Every transaction whose half message is still in the log, in order of their start.

        Args:
            wanted: ``msgId`` of the only one that is of interest.
        """
        for queue in self.queues_of(HALF):
            yield from self._of_queue(queue, wanted)
        for queue in self.queues_of(ROCKS_HALF):
            yield from self._of_rocks(queue, wanted)

    def ops(self, queue: Q) -> Pairs:
        """Half-queue offset to op-queue offset for one half queue."""
        ended, bad = Pairs(), 0
        ops = self.sibling(queue, OP, queue.queue_id)
        for entry, record, properties in self.messages(ops) if ops is not None else ():
            named = op_offsets(record, properties)
            for offset in named or ():
                ended.add(offset, entry.queue_offset)
            bad += named is None
        if bad:
            messages = counted(bad, "message that names", "messages that name")
            self.warn(f"{OP} queue {queue.queue_id}: {messages} no half message: passed over")
        return ended

    def _of_queue(self, queue: Q, wanted: str | None) -> Iterator[T]:
        ended, copies = self.ops(queue), Pairs()
        for message in self.messages(queue):
            if is_copy(message.properties):
                copies.add(self._identity(queue, message), message.entry.queue_offset)
        yielded: set[int] = set()  # checked transactions; others appear once
        for message in self.messages(queue, quiet=True):
            identity = self._identity(queue, message)
            if (identity in yielded and is_copy(message.properties)) or wanted not in (None, message.message_id):
                continue
            # if two half messages have the same id, the copies count for the first
            again = copies.get(identity) if identity not in yielded else []
            if again:
                yielded.add(identity)
            chain = [message] + [
                copy
                for offset in again
                if offset > message.entry.queue_offset
                for copy in self.messages(queue, offset, offset + 1, quiet=True)
            ]
            yield self._info(queue, chain, ended, self._given_up.get(identity))

    def _of_rocks(self, queue: Q, wanted: str | None) -> Iterator[T]:
        """Transactions of a broker that keeps open half messages in RocksDB: a check stores no copy, and an op message
        names the physical offset of the half message.
        """
        ends: dict[int, int] = {}
        ops = self.sibling(queue, ROCKS_OP, queue.queue_id)
        for entry, _record, properties in self.messages(ops) if ops is not None else ():
            if (at := number_of(properties.get(HALF_OFFSET))) is not None and properties.get(TAGS) == OP_TAG:
                ends.setdefault(at, entry.queue_offset)
        for message in self.messages(queue):
            if wanted in (None, message.message_id):
                yield self._rocks_info(queue, message, ends.get(message.entry.physical_offset))

    def _rocks_info(self, queue: Q, half: QueueMessage, op_offset: int | None) -> T:
        at = half.entry.physical_offset
        open_half = self.open_half(at)
        copy = HalfCopy(
            queueOffset=half.entry.queue_offset,
            physicalOffset=at,
            storeTimestamp=half.record.store_timestamp,
            checkTimes=open_half.check_times,
        )
        op = self._op(queue, ROCKS_OP, op_offset) if op_offset is not None else None
        commit, known = self._find_commit(queue, half, [copy], op)
        note = end = None
        state: str | None = None
        if op is not None:
            end = op.record.store_timestamp
            state = "committed" if commit is not None else "rolled-back" if known else None
        elif open_half.gone:
            state, note = "given-up", "it was checked too often, and is in no queue of given-up messages"
        elif commit is not None:
            state, note = "committed", "no op message: it will be checked, and may be committed, again"
        elif known:
            state = "pending"
        return self._make(state, half, queue, [copy], commit, end, op_offset, note=note)

    def _info(self, queue: Q, chain: list[QueueMessage], ended: Pairs, given_up: list[int]) -> T:
        first, newest = chain[0], chain[-1]
        copies = [
            HalfCopy(
                queueOffset=entry.queue_offset,
                physicalOffset=entry.physical_offset,
                storeTimestamp=record.store_timestamp,
                checkTimes=number_of(properties.get(CHECK_TIMES)) or 0,
            )
            for entry, record, properties in chain
        ]
        ops = [op for copy in copies for op in ended.get(copy.queueOffset)]
        after = [at for at in given_up if at > copies[-1].physicalOffset]  # otherwise it was returned to the check
        op = self._op(queue, OP, ops[0]) if ops else None
        commit, known = self._find_commit(queue, first, copies, op)
        tells_ends = self.tells_ends(queue)
        note: str | None = None
        end: int | None = None
        state: str | None = None
        if op is not None:
            end = op.record.store_timestamp
            state = "committed" if commit is not None else "rolled-back" if known else None
            if (
                tells_ends
                and copies[-1].queueOffset >= self.check_offset(queue)
                and not ended.get(copies[-1].queueOffset)
            ):
                note = f"its copy at half-queue offset {copies[-1].queueOffset} is open: it will be checked again"
        elif after and (tells_ends or commit is None):  # else it was given back to the check and committed
            state = "given-up"
            end = self.store_time(queue, after[0])
        elif commit is not None:
            state = "committed"
            if tells_ends:
                note = "no op message: it will be checked, and may be committed, again"
        elif known and tells_ends:  # otherwise it may be rolled back
            state = "passed" if copies[-1].queueOffset < self.check_offset(queue) else "pending"
        checked = newest.record.store_timestamp if copies[-1].checkTimes else None
        committed_at = after[0] if after and op is None else None
        op_offset = ops[0] if ops else None
        return self._make(state, first, queue, copies, commit, end, op_offset, checked, committed_at, note)

    def _find_commit(
        self, queue: Q, first: QueueMessage, copies: list[HalfCopy], op: QueueMessage | None
    ) -> tuple[int | None, bool]:
        """(physical offset of the committed message or None, whether that is known)."""
        try:
            return self.commit(queue, first, copies, op.entry.physical_offset if op is not None else None), True
        except CommitUnknown:
            return None, False

    def _make(
        self,
        state: str | None,
        first: QueueMessage,
        queue: Q,
        copies: list[HalfCopy],
        commit: int | None,
        end: int | None,
        op_offset: int | None,
        checked: int | None = None,
        given_up: int | None = None,
        note: str | None = None,
    ) -> T:
        return self.row(
            state=state,
            producerGroup=first.properties.get("PGROUP"),
            topic=first.properties.get(REAL_TOPIC),
            queueId=number_of(first.properties.get(REAL_QID)),
            msgId=first.message_id,
            keys=first.properties.get(KEYS),
            halfQueueId=queue.queue_id,
            halfQueueOffset=copies[0].queueOffset,
            checkTimes=max((copy.checkTimes for copy in copies if copy.checkTimes is not None), default=None),
            bornTimestamp=first.record.born_timestamp,
            storeTimestamp=first.record.store_timestamp,
            lastCheckTimestamp=checked,
            endTimestamp=end,
            opQueueOffset=op_offset,
            commitPhysicalOffset=commit,
            givenUpPhysicalOffset=given_up,
            copies=copies,
            note=note,
            **self.place(queue),
        )

    def _op(self, queue: Q, topic: str, op_offset: int) -> QueueMessage | None:
        ops = self.sibling(queue, topic, queue.queue_id)
        return None if ops is None else next(self.messages(ops, op_offset, op_offset + 1, quiet=True), None)


class Transactions(TransactionReader[PlainQueue, TransactionInfo]):
    """The transactions of one store."""

    row = TransactionInfo

    def __init__(self, log: CommitLog, warn: Warn) -> None:
        super().__init__(warn)
        self.log, self.layout, self.topics = log, log.layout, TopicQueues(log.layout)
        warn_of_unbuilt(log, warn)
        self._checked = offsets_of(known_offsets(self.layout, warn)).get((HALF, CHECK_GROUP), {})
        self._open = self._open_halves()
        self._index: list[IndexView] | None = None

    def _open_halves(self) -> OpenHalves | None:
        try:
            return open_halves_of(self.layout, self.warn)
        except (CorruptFile, MissingRuntime, UnreadableStore) as err:
            self.warn(f"{err}: how often half messages were checked, and which were given up, is not known")
            return None

    def queues_of(self, topic: str) -> list[PlainQueue]:
        """The queues of a topic."""
        return self.topics.of(topic)

    def sibling(self, _queue: PlainQueue, topic: str, queue_id: int) -> PlainQueue | None:
        """A queue of another topic."""
        return self.topics.one(topic, queue_id)

    def messages(
        self, queue: PlainQueue, start: int | None = None, stop: int | None = None, *, quiet: bool = False
    ) -> Iterator[QueueMessage]:
        """Messages of queue offsets [start, stop), by default all that are still there."""
        return messages_of(self.log, queue, _ignore if quiet else self.warn, start, stop)

    def check_offset(self, queue: PlainQueue) -> int:
        """The offset of the check in a half queue."""
        return self._checked.get(queue.queue_id, 0)

    def store_time(self, _queue: PlainQueue, physical_offset: int) -> int | None:
        """The store time (ms) of a given-up message at a physical offset; None if it is gone."""
        message = self.log.read(physical_offset, crc=False)
        return message.record.store_timestamp if message is not None else None

    def open_half(self, physical_offset: int) -> OpenState:
        """What RocksDB has of a half message."""
        noted = self._open.get(physical_offset) if self._open is not None else None
        gone = self._open is not None and noted is None and self._open.has(physical_offset)
        return OpenState(noted.check_times if noted is not None else 0, gone)

    def commit(self, _queue: PlainQueue, first: QueueMessage, copies: list[HalfCopy], end: int | None) -> int | None:
        """Physical offset of the committed message; None if it is not there.

        It is looked up in the index. If it is not there, the target queue is read backwards from the op message to the
        half message; for a transaction that has not ended only the index is used.
        """
        topic, queue_id = first.properties.get(REAL_TOPIC), number_of(first.properties.get(REAL_QID))
        prepared = {copy.physicalOffset for copy in copies}
        unique = first.properties.get(UNIQ_KEY)
        if topic is not None and unique is not None:
            for at in physical_offsets(self._index_files(), topic, unique, limit=1 << 10):
                if self._commits(at, topic, prepared):
                    return at
        if end is None or topic is None or queue_id is None:
            return None
        queue = self.topics.one(topic, queue_id)
        if queue is None:
            return None
        low, high = min(prepared), end
        for number in range(first_behind(queue, high) - 1, -1, -1):
            entry = queue.entry(number)
            if entry is None or entry.physical_offset < low:
                break
            if self._commits(entry.physical_offset, topic, prepared):
                return entry.physical_offset
        return None

    def _index_files(self) -> list[IndexView]:
        if self._index is None:
            self._index = [file for file in open_index(self.layout) if not isinstance(file, BadIndex)]
        return self._index

    def _commits(self, physical_offset: int, topic: str, prepared: set[int]) -> bool:
        """Whether the message there was committed from one of these half messages; mostly without reading it as a
        whole.
        """
        file = self.log.segments.find(physical_offset)
        if file is None:
            return False
        view, at = file.view(), physical_offset - file.base
        if at + HEADS[0].size > len(view):
            return False
        layout = HEADS[_SYS_FLAG.unpack_from(view, at)[0] & HOSTS_V6]
        place = at + layout.offsets["prepared_transaction_offset"]
        if int.from_bytes(view[place : place + 8], "big") not in prepared:
            return False
        message = self.log.read(physical_offset, crc=False)
        return (
            message is not None
            and message.record.topic == raw(topic)
            and message.record.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT
        )


def _ignore(_text: str) -> None:
    pass


def first_behind(queue: PlainQueue, physical_offset: int) -> int:
    """Ordinal of the first entry at or after a physical offset; entries are in log order."""

    def at(number: int) -> int:
        entry = queue.entry(number)
        return entry.physical_offset if entry is not None else -1

    return bisect_left(range(queue.max_offset), physical_offset, key=at)


def is_copy(properties: Mapping[str, str]) -> bool:
    """Whether this half message is a copy stored by a check."""
    return CHECK_TIMES in properties or PREPARED_OFFSET in properties


def _identity(message: QueueMessage) -> int:
    """A number shared by all copies of one half message: a hash of its unique id, or else of its unchanging fields."""
    record = message.record
    unique = message.properties.get(UNIQ_KEY)
    if unique is not None:
        return hash(unique)
    return hash((record.born_timestamp, record.born_address, record.born_port, record.body_crc))
