"""Transactions, written: half messages, commit and rollback, and the check that asks about those that stay open.

Source: broker.transaction.queue.TransactionalMessageBridge, TransactionalMessageServiceImpl,
DefaultTransactionalMessageCheckListener, broker.processor.EndTransactionProcessor (4.9.8); message-services 11.

Two things differ from the broker's check. Where that would spin until time has passed, this one leaves the message to
the next round. Where the first op messages have expired, that would ask about ended transactions once more; here the op
messages that are left are read first.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from formats.message.properties import DELAY, REAL_QID, REAL_TOPIC, TAGS, UNIQ_KEY, parse
from formats.message.read import Record, java_int
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, host_text
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.lookup.get_message import get_message
from rmqtool.services.lookup.queue_messages import GIVEN_UP, HALF, OP, QueueMessage, TopicQueues, raw
from rmqtool.services.opened.broker_state import BrokerState, setting
from rmqtool.services.opened.engine import Store
from rmqtool.services.sending.copies import copy_of
from rmqtool.services.sending.rules import SYSTEM_ERROR, Rejected
from rmqtool.services.waiting.delay import number_of
from rmqtool.services.waiting.half_messages import CHECK_GROUP, CHECK_TIMES, OP_TAG, PREPARED_OFFSET, op_offsets
from rmqtool.store.append.outgoing import Message, PutResult, PutStatus
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.reader import Entry
from rmqtool.store.repair.expiry import DEFAULT_RESERVED_HOURS, HOUR

ILLEGAL_OPERATION = 604
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PRODUCER_GROUP, HALF_MARK = "PGROUP", "TRAN_MSG"
_TRANSACTION_ID = "__transactionId__"
_OPS_AT_ONCE = 32
_ROUND = 60_000  # ms that one round spends on one queue


class Decision(StrEnum):
    """What a producer says of its transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


class CheckRequest(NamedTuple):
    """What a producer is asked about: the newest copy of its half message, with its own topic and queue."""

    record: Record
    properties: dict[str, str]
    producer_group: str | None
    message_id: str
    check_times: int


Decide = Callable[[CheckRequest], Decision]
"""Where it has a method ``begin``, that is called first: what it raises ends the round before a check was counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRules:
    """Times in ms."""

    timeout: int = 6_000  # age at which a half message is asked about
    most_checks: int = 15
    reserved: int = DEFAULT_RESERVED_HOURS * HOUR  # age at which it is given up

    @classmethod
    def of(cls, conf: BrokerConf) -> "CheckRules":
        """As the broker's settings have them."""
        return cls(
            timeout=setting(conf, "transactionTimeOut", 6_000),
            most_checks=setting(conf, "transactionCheckMax", 15),
            reserved=setting(conf, "fileReservedTime", DEFAULT_RESERVED_HOURS) * HOUR,
        )


@dataclass(slots=True, kw_only=True)
class Checked:
    """What one round of the check did."""

    checked: int = 0  # asked about
    committed: int = 0
    rolledBack: int = 0
    unknown: int = 0
    givenUp: int = 0  # too many checks, or too old
    immune: int = 0  # put back unasked, at their own wish

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)


class TransactionService:
    """The transactions of a store that is open for writing.

    Args:
        state: has the offsets of the check; who owns it persists them.
    """

    def __init__(self, store: Store, state: BrokerState, warn: Warn) -> None:
        self.store, self.state, self.warn = store, state, warn
        self.rules = CheckRules.of(store.layout.conf)

    # -- by the producer ----------------------------------------------------------------------------------------------

    def prepare(self, message: Message, producer_group: str) -> PutResult:
        """Store a half message; its place in the half queue is what :meth:`end` must be told."""
        named = message.property_map()
        level = java_int(named.get(DELAY, "0"))
        if level is None or level > 0:
            # a broker takes the one, and drops it when its time has come; and the other, and cannot commit it
            text = "a half message cannot be delayed" if level else f"delay level {named[DELAY]!r} is not a number"
            return PutResult(PutStatus.MESSAGE_ILLEGAL, message.topic, message.queue_id, reason=text)
        named |= {HALF_MARK: "true", PRODUCER_GROUP: producer_group}
        named |= {REAL_TOPIC: message.topic, REAL_QID: str(message.queue_id)}
        if self.store.live.engine != "4.9" and UNIQ_KEY in named:
            named.setdefault(_TRANSACTION_ID, named[UNIQ_KEY])
        self.state.ensure_topic(HALF)
        half = replace(
            message, topic=HALF, queue_id=0, properties=named, tags=None, keys=None,
            sys_flag=message.sys_flag & ~TRANSACTION_MASK, was_stored=True,
        )  # fmt: skip
        return self.store.append(half)

    def end(
        self,
        physical_offset: int,
        queue_offset: int,
        producer_group: str,
        decision: Decision,
        *,
        from_check: bool = False,
    ) -> PutResult | None:
        """Commit or roll back; where the committed message lies. An unknown end changes nothing.

        Args:
            physical_offset, queue_offset: of the half message, or of the copy that the check asked about.

        Raises:
            Rejected: there is no such half message of this group, or it could not be stored.
        """
        if decision is Decision.UNKNOWN:
            return None
        found = CommitLog(self.store.layout).read(physical_offset)
        if found is None:
            raise Rejected(SYSTEM_ERROR, "Find prepared transaction message failed")
        record = found.record
        entry = Entry(record.queue_offset, physical_offset, record.total_size, 0)
        half = QueueMessage(entry, record, parse(record.properties))
        if half.properties.get(PRODUCER_GROUP) != producer_group:
            raise Rejected(SYSTEM_ERROR, "The producer group wrong")
        if record.queue_offset != queue_offset:
            raise Rejected(SYSTEM_ERROR, "The transaction state table offset wrong")
        if self.store.live.engine != "4.9" and not from_check and IMMUNITY in half.properties:
            age = self.store.live.clock() - record.born_timestamp
            if age > self.immunity(half.properties[IMMUNITY]):
                raise Rejected(ILLEGAL_OPERATION, "the time in which this transaction may be ended is over")
        return self.end_half(half, decision)

    def end_half(self, half: QueueMessage, decision: Decision) -> PutResult | None:
        """As :meth:`end`, for a half message that is known.

        First the message, then the op message that ends it: killed in between, it is committed once more.
        """
        result = None
        if decision is Decision.COMMIT:
            topic, queue_id = half.properties.get(REAL_TOPIC), java_int(half.properties.get(REAL_QID, ""))
            if topic is None or queue_id is None:
                raise Rejected(SYSTEM_ERROR, f"half message without {REAL_TOPIC} or {REAL_QID}")
            flag = half.record.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
            result = self._put(
                copy_of(half.record, topic, queue_id, half.properties, sys_flag=flag,
                        prepared_transaction_offset=half.entry.physical_offset)
            )  # fmt: skip
        host = host_text(half.record.store_address, half.record.store_port)
        body = str(half.entry.queue_offset) + ("" if self.store.live.engine == "4.9" else ",")
        properties = {TAGS: OP_TAG, "WAIT": "true"}
        self._put(
            Message(topic=OP, queue_id=half.record.queue_id, body=body.encode(), properties=properties,
                    born_host=host, store_host=host)
        )  # fmt: skip
        return result

    def _put(self, message: Message) -> PutResult:
        result = self.store.append(message)
        if not result.ok:
            raise Rejected(SYSTEM_ERROR, f"{result.status}: {result.reason}")
        return result

    # -- by the broker ------------------------------------------------------------------------------------------------

    def check(self, decide: Decide, stop: Callable[[], bool] = lambda: False) -> Checked:
        """One round: ask about every half message whose time has come, and do as is answered.

        Each is put to the end of the half queue first, its number of checks one higher.

        Args:
            stop: asked before each message; true ends the round.
        """
        done = Checked()
        self.store.dispatch()
        queues = TopicQueues(self.store.layout)
        config = self.state.topic(HALF)
        for queue in queues.of(HALF):
            if config is None or queue.queue_id < config.read_queue_nums:
                _Round(self, queues, queue.queue_id, done).run(decide, stop)
        return done

    def immunity(self, text: str) -> int:
        """Own time of a half message in ms."""
        seconds = number_of(text)
        return self.rules.timeout if seconds in (None, -1) else (seconds or 0) * 1000


class _Round:
    """One round of the check over one half queue, on the queues as they are when it begins."""

    def __init__(self, service: TransactionService, queues: TopicQueues, queue_id: int, done: Checked) -> None:
        self._service, self._done = service, done
        self._store, self._state, self._rules = service.store, service.state, service.rules
        self._log = CommitLog(self._store.layout)
        self._half, self._op = (queues.one(topic, queue_id) for topic in (HALF, OP))
        self._queue_id = queue_id
        self._now = self._store.live.clock
        low = self._log.min_offset
        self._first = self._offset(HALF, self._half.min_offset(low) if self._half is not None else 0)
        self._first_op = self._offset(OP, self._op.min_offset(low) if self._op is not None else 0)
        self._ended: dict[int, int] = {}  # half offset → op offset that ends it
        self._open: dict[int, set[int]] = {}  # op offset → half offsets that it ends and that are not passed yet
        self._passed: list[int] = []  # op offsets that end nothing any more
        self._last_op_born: int | None = None  # of the op messages that were read last; None: there were no more
        self._next_op = 0

    def _offset(self, topic: str, lowest: int) -> int:
        known = self._state.offset(topic, CHECK_GROUP, self._queue_id)
        return lowest if known is None else known

    # -- op messages --------------------------------------------------------------------------------------------------

    def _read_ops(self, at: int) -> bool:
        """Take in the op messages from an offset on; whether there were any."""
        result = get_message(self._log, self._op, at, _OPS_AT_ONCE, engine=self._store.live.engine)
        while result.status not in ("FOUND", "NO_MESSAGE_IN_QUEUE", "OFFSET_OVERFLOW_ONE"):
            following = result.next_begin_offset
            if at == self._first_op:  # else what lies before the gap may still be needed
                self._first_op = following
                self._state.set_offset(OP, CHECK_GROUP, self._queue_id, following)
            if following == at:
                break
            at = following
            result = get_message(self._log, self._op, at, _OPS_AT_ONCE, engine=self._store.live.engine)
        self._next_op = result.next_begin_offset
        self._last_op_born = None
        for found in result.messages:
            record = found.record
            self._last_op_born = record.born_timestamp
            ends = op_offsets(record, parse(record.properties)) or ()
            named = [offset for offset in ends if offset >= self._first]
            self._open[record.queue_offset] = set(named)
            self._ended.update(dict.fromkeys(named, record.queue_offset))
            if not named:
                self._passed.append(record.queue_offset)
        return bool(result.messages)

    def _pass(self, half_offset: int) -> None:
        """A half message that has ended is behind us."""
        op = self._ended.pop(half_offset)
        self._open[op].discard(half_offset)
        if not self._open[op]:
            self._passed.append(op)

    # -- half messages ------------------------------------------------------------------------------------------------

    def run(self, decide: Decide, stop: Callable[[], bool]) -> None:
        """Go through the queue as far as there is something to do."""
        if self._half is None or self._first < 0 or self._first_op < 0:
            return
        start = self._now()
        self._read_ops(self._first_op)
        at, misses = self._first, 0
        while self._now() - start <= _ROUND and not stop():
            if at in self._ended:
                self._pass(at)
                at += 1
                continue
            message = self._message(at)
            if message is None:
                misses += 1
                following = self._behind_gap(at)
                if following is None or misses > 1:
                    break
                at = following
            elif self._one(message, start, decide):
                at += 1
            else:
                break
        if at != self._first:
            self._state.set_offset(HALF, CHECK_GROUP, self._queue_id, at)
        op = self._first_op
        for passed in sorted(self._passed):
            if passed != op:
                break
            op += 1
        if op != self._first_op:
            self._state.set_offset(OP, CHECK_GROUP, self._queue_id, op)

    def _message(self, at: int) -> QueueMessage | None:
        assert self._half is not None
        entry = self._half.entry(at) if at < self._half.max_offset else None
        found = self._log.read(entry.physical_offset, crc=False) if entry is not None else None
        if entry is None or found is None or found.record.topic != raw(HALF):
            return None
        return QueueMessage(entry, found.record, parse(found.record.properties))

    def _behind_gap(self, at: int) -> int | None:
        """Where the queue goes on after an offset without a message; None at its end."""
        result = get_message(self._log, self._half, at, 1, engine=self._store.live.engine)
        if result.status in ("NO_MESSAGE_IN_QUEUE", "OFFSET_OVERFLOW_ONE"):
            return None
        return at + 1 if result.status == "FOUND" else result.next_begin_offset

    def _one(self, message: QueueMessage, start: int, decide: Decide) -> bool:
        """One half message that no op message has ended so far; whether the next may be looked at."""
        record, properties, rules = message.record, message.properties, self._rules
        checks = number_of(properties.get(CHECK_TIMES, "0"))
        checks = -1 if checks is None else checks
        too_many = CHECK_TIMES in properties and checks >= rules.most_checks
        if not too_many:
            properties[CHECK_TIMES] = str(checks + 1)
        if too_many or self._now() - record.born_timestamp > rules.reserved:
            return self._give_up(message)
        if record.store_timestamp >= start:
            return False
        age, immunity = self._now() - record.born_timestamp, rules.timeout
        if IMMUNITY in properties:
            immunity = self._service.immunity(properties[IMMUNITY])
            if age < immunity and self._immune(message):
                return True
        elif 0 <= age < immunity:
            return False
        while True:
            born = self._last_op_born
            if (born is None and age > immunity) or (born is not None and born - start > rules.timeout) or age <= -1:
                return self._ask(message, decide)
            if not self._read_ops(self._next_op) and age <= immunity:
                return False
            if message.entry.queue_offset in self._ended:
                self._pass(message.entry.queue_offset)
                return True

    def _give_up(self, message: QueueMessage) -> bool:
        self._state.ensure_topic(GIVEN_UP)
        if self._stored(copy_of(message.record, GIVEN_UP, 0, message.properties, was_stored=True), message) is None:
            return False
        self._done.givenUp += 1
        return True

    def _immune(self, message: QueueMessage) -> bool:
        """Whether a half message that wants more time has got it: put back, or ended meanwhile."""
        first = number_of(message.properties.setdefault(PREPARED_OFFSET, str(message.entry.queue_offset)))
        if first is None or first == -1:
            return False
        if first in self._ended:
            self._pass(first)
            return True
        if self._stored(self._renewed(message), message) is None:
            return False
        self._done.immune += 1
        return True

    def _renewed(self, message: QueueMessage) -> Message:
        return copy_of(
            message.record,
            HALF,
            message.record.queue_id,
            message.properties,
            flag=0,
            reconsume_times=0,
            was_stored=True,
        )

    def _stored(self, copy: Message, message: QueueMessage) -> PutResult | None:
        result = self._store.append(copy)
        if not result.ok:
            self._service.warn(
                f"{HALF} queue {self._queue_id}: the message at queue offset {message.entry.queue_offset} cannot be "
                f"put into {copy.topic}: {result.reason}"
            )
            return None
        return result

    def _ask(self, message: QueueMessage, decide: Decide) -> bool:
        begin = getattr(decide, "begin", None)
        if begin is not None:
            begin()
        result = self._stored(self._renewed(message), message)
        if result is None:
            return False
        record = message.record._replace(
            queue_offset=result.queue_offset, physical_offset=result.physical_offset,
            store_timestamp=result.store_timestamp, total_size=result.size, flag=0, reconsume_times=0,
        )  # fmt: skip
        entry = Entry(result.queue_offset, result.physical_offset, result.size, message.entry.tags_code)
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
