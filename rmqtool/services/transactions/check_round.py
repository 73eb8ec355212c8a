"""One round of the check: half messages without an op message are checked, put back, or given up.

Source: TransactionalMessageServiceImpl.check (4.9.8); message-services 11.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from formats.message.properties import REAL_QID, REAL_TOPIC, parse
from formats.topics import GIVEN_UP, HALF, OP
from rmqtool.rules.releases import Release
from rmqtool.rules.sending import Rejected
from rmqtool.rules.statuses import GetStatus
from rmqtool.services.delays.delays import number_of
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.lookup.get_message import get_message
from rmqtool.services.lookup.queue_messages import QueueMessage, TopicQueues, raw
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.open_store.store import Store
from rmqtool.services.sending.copies import copy_of
from rmqtool.services.transactions.copies import Copies, was_committed
from rmqtool.services.transactions.half_messages import CHECK_GROUP, CHECK_TIMES, PREPARED_OFFSET, op_offsets
from rmqtool.services.transactions.rules import (
    IMMUNITY,
    PRODUCER_GROUP,
    CheckCounts,
    CheckRequest,
    CheckRules,
    Decide,
    Decision,
)
from rmqtool.store.append.answers import PutResult
from rmqtool.store.append.outgoing import NewMessage
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import PlainQueue
from rmqtool.store.queues.reader import QueueEntry

_OPS_AT_ONCE = 32
_ROUND = 60_000  # ms; the longest time that one round spends on one queue


class Service(Protocol):
    """What a round needs from the transaction service."""

    store: Store
    state: BrokerState
    rules: CheckRules
    warn: Warn

    def end_half(self, half: QueueMessage, decision: Decision) -> PutResult | None:
        """Commit or roll back a half message."""

    def mark_ended(self, half: QueueMessage) -> None:
        """Store the op message that ends a half message."""

    def copies(self, queue_id: int) -> Copies:
        """Known copies of the half messages of a queue."""

    def immunity(self, text: str) -> int:
        """A half message's own check timeout in ms."""


class _Offsets(NamedTuple):
    """The check's offsets for one queue of half messages and its op queue."""

    state: BrokerState
    queue_id: int

    def start_of(self, topic: str, lowest: int) -> int:
        """Where the previous round ended; the lowest offset if there was none."""
        offset = self.state.offset(topic, CHECK_GROUP, self.queue_id)
        return lowest if offset is None else offset

    def keep(self, topic: str, offset: int) -> None:
        """Store where the next round begins."""
        self.state.set_offset(topic, CHECK_GROUP, self.queue_id, offset)


class _Half:
    """Half messages of one queue, as of the start of the round."""

    def __init__(self, log: CommitLog, queue: PlainQueue, release: Release) -> None:
        self._log, self._queue, self._release = log, queue, release

    def message(self, at: int) -> QueueMessage | None:
        """The message at an offset."""
        entry = self._queue.entry(at) if at < self._queue.max_offset else None
        half = self._log.read(entry.physical_offset, crc=False) if entry is not None else None
        if entry is None or half is None or half.record.topic != raw(HALF):
            return None
        return QueueMessage(entry, half.record, parse(half.record.properties))

    def behind_gap(self, at: int) -> int | None:
        """The next offset with a message after a gap; None at the end of the queue."""
        pulled = get_message(self._log, self._queue, at, 1, release=self._release)
        if pulled.status in (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.OFFSET_OVERFLOW_ONE):
            return None
        return at + 1 if pulled.status == GetStatus.FOUND else pulled.next_begin_offset


class _Ops:
    """Op messages of one queue read so far, which name the half messages that have ended.

    Args:
        first: offset of the first op message.
        first_half: offset of the first half message of the round.

    Attributes:
        ended: half offset → offset of the op message that ends it.
        last_born: born time of the op messages read last, ms; None if there were no more.
    """

    def __init__(
        self, log: CommitLog, queue: PlainQueue | None, release: Release, offsets: _Offsets, first: int, first_half: int
    ) -> None:
        self._log, self._queue, self._release, self._offsets = log, queue, release, offsets
        self._first, self._next, self._first_half = first, first, first_half
        self.ended: dict[int, int] = {}
        self.last_born: int | None = None
        self._open: dict[int, set[int]] = {}  # op offset → half offsets that it ends, ahead of the round
        self._passed: list[int] = []  # op offsets no longer needed

    def read(self) -> bool:
        """Read further op messages; returns whether there were any."""
        at = self._next
        pulled = get_message(self._log, self._queue, at, _OPS_AT_ONCE, release=self._release)
        while pulled.status not in (GetStatus.FOUND, GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.OFFSET_OVERFLOW_ONE):
            following = pulled.next_begin_offset
            if at == self._first:  # otherwise op messages before the gap may still be needed
                self._first = following
                self._offsets.keep(OP, following)
            if following == at:
                break
            at = following
            pulled = get_message(self._log, self._queue, at, _OPS_AT_ONCE, release=self._release)
        self._next = pulled.next_begin_offset
        self.last_born = None
        for message in pulled.messages:
            record = message.record
            self.last_born = record.born_timestamp
            ends = op_offsets(record, parse(record.properties)) or ()
            named = [offset for offset in ends if offset >= self._first_half]
            self._open[record.queue_offset] = set(named)
            self.ended.update(dict.fromkeys(named, record.queue_offset))
            if not named:
                self._passed.append(record.queue_offset)
        return bool(pulled.messages)

    def leave(self, half_offset: int) -> None:
        """Drop an ended half message that the round has passed."""
        op = self.ended.pop(half_offset)
        self._open[op].discard(half_offset)
        if not self._open[op]:
            self._passed.append(op)

    def keep_offset(self) -> None:
        """Let the next round begin after the op messages that are no longer needed."""
        op = self._first
        for offset_done in sorted(self._passed):
            if offset_done != op:
                break
            op += 1
        if op != self._first:
            self._offsets.keep(OP, op)


class Round:
    """One round over one half queue, as of its start.

    Args:
        done: counts the round's actions.
    """

    def __init__(self, service: Service, queues: TopicQueues, queue_id: int, done: CheckCounts) -> None:
        self._service, self._done = service, done
        self._store, self._rules, self._now = service.store, service.rules, service.store.live.clock
        self._queue_id, self._offsets = queue_id, _Offsets(service.state, queue_id)
        self._log = log = CommitLog(self._store.layout)
        release = self._store.live.release
        half, op = (queues.one(topic, queue_id) for topic in (HALF, OP))
        self._first = self._offsets.start_of(HALF, half.min_offset(log.min_offset) if half is not None else 0)
        first_op = self._offsets.start_of(OP, op.min_offset(log.min_offset) if op is not None else 0)
        self._ops = _Ops(log, op, release, self._offsets, first_op, self._first)
        self._half = _Half(log, half, release) if half is not None and self._first >= 0 and first_op >= 0 else None

    def run(self, decide: Decide, stop: Callable[[], bool], start: int) -> bool:
        """Check the messages of the queue; returns whether it was stopped early.

        Args:
            start: ms since the epoch, when the round began: messages stored later belong to the next round.
        """
        if self._half is None:
            return False
        self._ops.read()
        at, misses, stopped = self._first, 0, False
        while self._now() - start <= _ROUND and not (stopped := stop()):
            if at in self._ops.ended:
                self._ops.leave(at)
                at += 1
                continue
            message = self._half.message(at)
            if message is None:
                misses += 1
                following = self._half.behind_gap(at)
                if following is None or misses > 1:
                    break
                at = following
            elif self._one(message, start, decide):
                at += 1
            else:
                break
        if at != self._first:
            self._offsets.keep(HALF, at)
        self._ops.keep_offset()
        self._service.copies(self._queue_id).note_passed(at)
        return stopped

    def _one(self, message: QueueMessage, start: int, decide: Decide) -> bool:
        """Handle one half message without an op message so far; returns whether to continue with the next."""
        record, properties, rules = message.record, message.properties, self._rules
        checks = number_of(properties.get(CHECK_TIMES, "0"))
        checks = -1 if checks is None else checks
        too_many = CHECK_TIMES in properties and checks >= rules.most_checks
        if not too_many:
            properties[CHECK_TIMES] = str(checks + 1)
        if too_many or self._now() - record.born_timestamp > rules.reserved:
            return self._is_settled(message) or self._give_up(message)
        if record.store_timestamp >= start:
            return False
        age, immunity = self._now() - record.born_timestamp, rules.timeout
        if IMMUNITY in properties:
            immunity = self._service.immunity(properties[IMMUNITY])
            if age < immunity and (self._is_settled(message) or self._immune(message)):
                return True
        elif 0 <= age < immunity:
            return False
        while True:
            born = self._ops.last_born
            if (born is None and age > immunity) or (born is not None and born - start > rules.timeout) or age <= -1:
                return self._is_settled(message) or self._ask(message, decide)
            if not self._ops.read() and age <= immunity:
                return False
            if message.entry.queue_offset in self._ops.ended:
                self._ops.leave(message.entry.queue_offset)
                return True

    def _is_settled(self, message: QueueMessage) -> bool:
        """Whether a half message needs nothing: it is an older copy, or its transaction has ended."""
        copies = self._service.copies(self._queue_id)
        if copies.newer(message) is not None or copies.has_ended(message):
            return True
        if copies.was_there(message) and was_committed(self._store.layout, self._log, message):
            self._service.mark_ended(message)
            return True
        return False

    def _give_up(self, message: QueueMessage) -> bool:
        self._service.state.ensure_topic(GIVEN_UP)
        if self._store_copy(copy_of(message.record, GIVEN_UP, 0, message.properties, was_stored=True), message) is None:
            return False
        self._done.givenUp += 1
        return True

    def _immune(self, message: QueueMessage) -> bool:
        """Handle a half message with its own check timeout; returns whether it was put back or has ended meanwhile."""
        first = number_of(message.properties.setdefault(PREPARED_OFFSET, str(message.entry.queue_offset)))
        if first is None or first == -1:
            return False
        if first in self._ops.ended:
            self._ops.leave(first)
            return True
        copy = self._store_copy(self._renew(message), message)
        if copy is None:
            return False
        self._service.copies(self._queue_id).note_renewed(message, copy)
        self._done.immune += 1
        return True

    def _renew(self, message: QueueMessage) -> NewMessage:
        return copy_of(
            message.record,
            HALF,
            message.record.queue_id,
            message.properties,
            flag=0,
            reconsume_times=0,
            was_stored=True,
        )

    def _store_copy(self, copy: NewMessage, message: QueueMessage) -> PutResult | None:
        stored = self._store.append(copy)
        if not stored.ok:
            self._service.warn(
                f"{HALF} queue {self._queue_id}: the message at queue offset {message.entry.queue_offset} cannot be "
                f"put into {copy.topic}: {stored.reason}"
            )
            return None
        return stored

    def _ask(self, message: QueueMessage, decide: Decide) -> bool:
        begin = getattr(decide, "begin", None)
        if begin is not None:
            begin()
        result = self._store_copy(self._renew(message), message)
        if result is None:
            return False
        self._service.copies(self._queue_id).note_renewed(message, result)
        record = message.record._replace(
            queue_offset=result.queue_offset, physical_offset=result.physical_offset,
            store_timestamp=result.store_timestamp, total_size=result.size, flag=0, reconsume_times=0,
        )  # fmt: skip
        entry = QueueEntry(result.queue_offset, result.physical_offset, result.size, message.entry.tags_code)
        copy = QueueMessage(entry, record, message.properties)
        topic, queue_id = copy.properties.get(REAL_TOPIC, ""), number_of(copy.properties.get(REAL_QID)) or 0
        decision = decide(
            CheckRequest(
                record._replace(topic=topic.encode(), queue_id=queue_id),
                copy.properties,
                copy.properties.get(PRODUCER_GROUP),
                copy.message_id,
                number_of(copy.properties[CHECK_TIMES]) or 0,
            )
        )
        self._done.checked += 1
        try:
            if decision is not Decision.UNKNOWN:
                self._service.end_half(copy, decision)
        except Rejected as err:
            self._service.warn(f"{HALF} queue {self._queue_id}: queue offset {result.queue_offset}: {err}")
            decision = Decision.UNKNOWN
        self._done.committed += decision is Decision.COMMIT
        self._done.rolledBack += decision is Decision.ROLLBACK
        self._done.unknown += decision is Decision.UNKNOWN
        return True
