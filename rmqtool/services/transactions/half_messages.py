"""Transactions: half messages joined with the op messages that end them, and with their copies from checks.

A check appends a copy of the half message to the half queue. An op message names the queue offset of the copy that is
ended, but not the outcome. A committed message names the physical offset of that copy.

Source: broker.transaction.queue (4.9.8; op messages of 5.x name many offsets), broker.transaction.rocksdb (5.5.0);
message-services 11, releases-5.4-5.5 5.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from formats.message.properties import KEYS, REAL_QID, REAL_TOPIC, TAGS, UNIQ_KEY, split_keys
from formats.message.read import HEADS, HOSTS_V6, Record
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK
from formats.topics import GIVEN_UP, HALF, OP, ROCKS_HALF, ROCKS_OP
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.services.delays.delays import number_of
from rmqtool.services.lookup.configs import Warn, known_offsets, offsets_of
from rmqtool.services.lookup.pairs import Pairs
from rmqtool.services.lookup.queue_messages import QueueMessage, TopicQueues, messages_of, raw, warn_of_unbuilt
from rmqtool.store.index.reader import BadIndex, IndexView, open_index, physical_offsets
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import PlainQueue
from rmqtool.store.queues.message_store import OpenHalves, open_halves_of

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
    checkTimes: int

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionInfo:
    """One transaction. Times are ms since the epoch.

    ``passed``: the check has passed it, there is no op message and it was not given up; it will not be checked again.
    """

    state: str  # pending, committed, rolled-back, given-up or passed
    producerGroup: str | None
    topic: str | None  # the message's destination
    queueId: int | None
    msgId: str
    keys: str | None
    halfQueueId: int
    halfQueueOffset: int  # of the first copy still in the log
    checkTimes: int
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
        """As machine output has it."""
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


class Transactions:
    """The transactions of one store.

    Memory: 16 bytes for each ended half message and for each copy stored by a check.
    """

    def __init__(self, log: CommitLog, warn: Warn) -> None:
        self.log, self.warn = log, warn
        self.layout, self.topics = log.layout, TopicQueues(log.layout)
        warn_of_unbuilt(log, warn)
        self.checked = offsets_of(known_offsets(self.layout, warn)).get((HALF, CHECK_GROUP), {})
        self._open = self._open_halves()
        self._index: list[IndexView] | None = None
        self._given_up = Pairs()  # identity → physical offset
        for queue in self.topics.of(GIVEN_UP):
            for message in messages_of(log, queue, warn):
                self._given_up.add(_identity(message), message.entry.physical_offset)

    def _open_halves(self) -> OpenHalves | None:
        try:
            return open_halves_of(self.layout, self.warn)
        except (CorruptFile, MissingRuntime, UnreadableStore) as err:
            self.warn(f"{err}: how often half messages were checked, and which were given up, is not known")
            return None

    def all(self) -> Iterator[TransactionInfo]:
        """Every transaction whose half message is still in the log, in order of their start."""
        for queue in self.topics.of(HALF):
            yield from self._of_queue(queue)
        for queue in self.topics.of(ROCKS_HALF):
            yield from self._of_rocks(queue)

    def ops(self, half_queue: int) -> Pairs:
        """Half-queue offset to op-queue offset for one half queue."""
        ended, bad = Pairs(), 0
        queue = self.topics.one(OP, half_queue)
        for entry, record, properties in messages_of(self.log, queue, self.warn) if queue is not None else ():
            named = op_offsets(record, properties)
            for offset in named or ():
                ended.add(offset, entry.queue_offset)
            bad += named is None
        if bad:
            self.warn(f"{OP} queue {half_queue}: {bad} messages that name no half message: passed over")
        return ended

    def _of_queue(self, queue: PlainQueue) -> Iterator[TransactionInfo]:
        ended, copies = self.ops(queue.queue_id), Pairs()
        for message in messages_of(self.log, queue, self.warn):
            if is_copy(message.properties):
                copies.add(_identity(message), message.entry.queue_offset)
        yielded: set[int] = set()  # checked transactions; others appear once
        for message in messages_of(self.log, queue, lambda _text: None):
            identity = _identity(message)
            if identity in yielded and is_copy(message.properties):
                continue
            # if two half messages have the same id, the copies count for the first
            again = copies.get(identity) if identity not in yielded else []
            if again:
                yielded.add(identity)
            chain = [message] + [
                copy
                for offset in again
                if offset > message.entry.queue_offset
                for copy in messages_of(self.log, queue, lambda _text: None, offset, offset + 1)
            ]
            yield self._info(queue.queue_id, chain, ended, self._given_up.get(identity))

    def _of_rocks(self, queue: PlainQueue) -> Iterator[TransactionInfo]:
        """Transactions of a broker that keeps open half messages in RocksDB: a check stores no copy, and an op message
        names the physical offset of the half message.
        """
        ends: dict[int, int] = {}
        ops = self.topics.one(ROCKS_OP, queue.queue_id)
        for entry, _record, properties in messages_of(self.log, ops, self.warn) if ops is not None else ():
            if (at := number_of(properties.get(HALF_OFFSET))) is not None and properties.get(TAGS) == OP_TAG:
                ends.setdefault(at, entry.queue_offset)
        for message in messages_of(self.log, queue, self.warn):
            yield self._rocks_info(queue.queue_id, message, ends.get(message.entry.physical_offset))

    def _rocks_info(self, half_queue: int, half: QueueMessage, op_offset: int | None) -> TransactionInfo:
        at, properties = half.entry.physical_offset, half.properties
        noted = self._open.get(at) if self._open is not None else None
        copy = HalfCopy(
            queueOffset=half.entry.queue_offset,
            physicalOffset=at,
            storeTimestamp=half.record.store_timestamp,
            checkTimes=noted.check_times if noted is not None else 0,
        )
        topic, queue_id = properties.get(REAL_TOPIC), number_of(properties.get(REAL_QID))
        op = self._op(ROCKS_OP, half_queue, op_offset) if op_offset is not None else None
        commit = self._commit(topic, queue_id, properties, [copy], op.entry.physical_offset if op is not None else None)
        note = end = None
        if op is not None:
            state, end = "committed" if commit is not None else "rolled-back", op.record.store_timestamp
        elif self._open is not None and noted is None and self._open.has(at):
            state, note = "given-up", "it was checked too often, and is in no queue of given-up messages"
        elif commit is not None:
            state, note = "committed", "no op message: it will be checked, and may be committed, again"
        else:
            state = "pending"
        return self._make(state, half, half_queue, [copy], commit, end, op_offset, note=note)

    def _info(self, half_queue: int, chain: list[QueueMessage], ended: Pairs, given_up: list[int]) -> TransactionInfo:
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
        topic, queue_id = first.properties.get(REAL_TOPIC), number_of(first.properties.get(REAL_QID))
        op = self._op(OP, half_queue, ops[0]) if ops else None
        commit = self._commit(topic, queue_id, first.properties, copies, op.entry.physical_offset if op else None)
        note = end = None
        if op is not None:
            state, end = "committed" if commit is not None else "rolled-back", op.record.store_timestamp
            if copies[-1].queueOffset >= self.checked.get(half_queue, 0) and not ended.get(copies[-1].queueOffset):
                note = f"its copy at half-queue offset {copies[-1].queueOffset} is open: it will be checked again"
        elif after:
            state = "given-up"
            message = self.log.read(after[0], crc=False)
            end = message.record.store_timestamp if message is not None else None
        elif commit is not None:
            state, note = "committed", "no op message: it will be checked, and may be committed, again"
        else:
            state = "passed" if copies[-1].queueOffset < self.checked.get(half_queue, 0) else "pending"
        checked = newest.record.store_timestamp if copies[-1].checkTimes else None
        committed_at = after[0] if after and op is None else None
        op_offset = ops[0] if ops else None
        return self._make(state, first, half_queue, copies, commit, end, op_offset, checked, committed_at, note)

    @staticmethod
    def _make(
        state: str,
        first: QueueMessage,
        half_queue: int,
        copies: list[HalfCopy],
        commit: int | None,
        end: int | None,
        op_offset: int | None,
        checked: int | None = None,
        given_up: int | None = None,
        note: str | None = None,
    ) -> TransactionInfo:
        return TransactionInfo(
            state=state,
            producerGroup=first.properties.get("PGROUP"),
            topic=first.properties.get(REAL_TOPIC),
            queueId=number_of(first.properties.get(REAL_QID)),
            msgId=first.message_id,
            keys=first.properties.get(KEYS),
            halfQueueId=half_queue,
            halfQueueOffset=copies[0].queueOffset,
            checkTimes=max(copy.checkTimes for copy in copies),
            bornTimestamp=first.record.born_timestamp,
            storeTimestamp=first.record.store_timestamp,
            lastCheckTimestamp=checked,
            endTimestamp=end,
            opQueueOffset=op_offset,
            commitPhysicalOffset=commit,
            givenUpPhysicalOffset=given_up,
            copies=copies,
            note=note,
        )

    def _op(self, topic: str, half_queue: int, op_offset: int) -> QueueMessage | None:
        queue = self.topics.one(topic, half_queue)
        if queue is None:
            return None
        return next(messages_of(self.log, queue, lambda _text: None, op_offset, op_offset + 1), None)

    def _commit(
        self,
        topic: str | None,
        queue_id: int | None,
        properties: dict[str, str],
        copies: list[HalfCopy],
        end: int | None,
    ) -> int | None:
        """Physical offset of the committed message, which precedes the op message.

        It is looked up in the index. If it is not there, the target queue is read backwards from the op message to the
        half message; for a transaction that has not ended only the index is used.
        """
        prepared = {copy.physicalOffset for copy in copies}
        unique = properties.get(UNIQ_KEY)
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
