"""Write transactions: half messages, commit and rollback, and the check of open ones.

Source: broker.transaction.queue.TransactionalMessageBridge, TransactionalMessageServiceImpl,
DefaultTransactionalMessageCheckListener, broker.processor.EndTransactionProcessor (4.9.8); message-services 11.

Three things differ from the broker's check. Where a broker would spin until time has passed, the message is left to the
next round. If the first op messages have expired, a broker checks ended transactions again; here the remaining op
messages are read first. If older copies of a half message come up again after a kill, a broker checks and commits each;
here a transaction ends once (:mod:`rmqtool.services.transactions.copies`).
"""

from collections.abc import Callable
from dataclasses import replace

from formats.message.properties import DELAY, REAL_QID, REAL_TOPIC, TAGS, UNIQ_KEY, WAIT, parse
from formats.message.read import java_int
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, host_text
from formats.topics import HALF, OP
from rmqtool.rules.sending import SYSTEM_ERROR, Rejected
from rmqtool.services.delays.delays import number_of
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.lookup.queue_messages import QueueMessage, TopicQueues
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.open_store.store import Store
from rmqtool.services.sending.copies import copy_of
from rmqtool.services.transactions.check_round import Round
from rmqtool.services.transactions.copies import Copies
from rmqtool.services.transactions.half_messages import OP_TAG
from rmqtool.services.transactions.rules import IMMUNITY, PRODUCER_GROUP, CheckCounts, CheckRules, Decide, Decision
from rmqtool.store.append.answers import PutResult, PutStatus
from rmqtool.store.append.outgoing import NewMessage
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.reader import QueueEntry

ILLEGAL_OPERATION = 604
HALF_MARK = "TRAN_MSG"
_TRANSACTION_ID = "__transactionId__"


class TransactionService:
    """The transactions of a store that is open for writing.

    Args:
        state: has the offsets of the check; its owner persists them.
    """

    def __init__(self, store: Store, state: BrokerState, warn: Warn) -> None:
        self.store, self.state, self.warn = store, state, warn
        self.rules = CheckRules.of(store.layout.conf)
        self._copies: dict[int, Copies] = {}  # by half queue
        self.stopped_round: int | None = None  # ms; start of a round that was stopped early

    def copies(self, queue_id: int) -> Copies:
        """Known copies of the half messages of a queue."""
        if queue_id not in self._copies:
            self.store.dispatch()
            log = CommitLog(self.store.layout)
            self._copies[queue_id] = Copies(log, TopicQueues(self.store.layout), self.state, queue_id)
        return self._copies[queue_id]

    # -- by the producer ----------------------------------------------------------------------------------------------

    def prepare(self, message: NewMessage, producer_group: str) -> PutResult:
        """Store a half message; its position in the half queue is an argument of :meth:`end`."""
        named = message.property_map()
        level = java_int(named.get(DELAY, "0"))
        if level is None or level > 0:
            # a broker accepts both; it drops the one when due, and cannot commit the other
            text = "a half message cannot be delayed" if level else f"delay level {named[DELAY]!r} is not a number"
            return PutResult(PutStatus.MESSAGE_ILLEGAL, message.topic, message.queue_id, reason=text)
        named |= {HALF_MARK: "true", PRODUCER_GROUP: producer_group}
        named |= {REAL_TOPIC: message.topic, REAL_QID: str(message.queue_id)}
        if self.store.live.release.is_5 and UNIQ_KEY in named:
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
        """Commit or roll back; returns the committed message's position. An unknown or second decision changes nothing.

        Args:
            physical_offset, queue_offset: of the half message, or of the copy in the check.

        Raises:
            Rejected: the group has no such half message, or the message could not be stored.
        """
        if decision is Decision.UNKNOWN:
            return None
        half = self._half_at(physical_offset)
        if half is None:
            raise Rejected(SYSTEM_ERROR, "Find prepared transaction message failed")
        record = half.record
        if half.properties.get(PRODUCER_GROUP) != producer_group:
            raise Rejected(SYSTEM_ERROR, "The producer group wrong")
        if record.queue_offset != queue_offset:
            raise Rejected(SYSTEM_ERROR, "The transaction state table offset wrong")
        if self.store.live.release.checks_immunity and not from_check and IMMUNITY in half.properties:
            age = self.store.live.clock() - record.born_timestamp
            if age > self.immunity(half.properties[IMMUNITY]):
                raise Rejected(ILLEGAL_OPERATION, "the time in which this transaction may be ended is over")
        copies = self.copies(record.queue_id)
        if copies.has_ended(half):
            return None
        newer = copies.newer(half)
        return self.end_half((self._half_at(newer.physical_offset) if newer else None) or half, decision)

    def _half_at(self, physical_offset: int) -> QueueMessage | None:
        half = CommitLog(self.store.layout).read(physical_offset)
        if half is None:
            return None
        record = half.record
        entry = QueueEntry(record.queue_offset, physical_offset, record.total_size, 0)
        return QueueMessage(entry, record, parse(record.properties))

    def end_half(self, half: QueueMessage, decision: Decision) -> PutResult | None:
        """As :meth:`end`, for a half message already read.

        The message is stored before the op message: after a kill in between, the check finds the message.
        """
        result = None
        if decision is Decision.COMMIT:
            topic, queue_id = half.properties.get(REAL_TOPIC), java_int(half.properties.get(REAL_QID, ""))
            if topic is None or queue_id is None:
                raise Rejected(SYSTEM_ERROR, f"half message without {REAL_TOPIC} or {REAL_QID}")
            flag = half.record.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
            properties = dict(half.properties)
            if not self.store.live.release.commits_real_queue:
                del properties[REAL_TOPIC], properties[REAL_QID]
            result = self._put(
                copy_of(half.record, topic, queue_id, properties, sys_flag=flag,
                        prepared_transaction_offset=half.entry.physical_offset)
            )  # fmt: skip
        self.mark_ended(half)
        return result

    def mark_ended(self, half: QueueMessage) -> None:
        """Store the op message that ends a half message."""
        host = host_text(half.record.store_address, half.record.store_port)
        body = str(half.entry.queue_offset) + self.store.live.release.operation_separator
        properties = {TAGS: OP_TAG, WAIT: "true"}
        self._put(
            NewMessage(topic=OP, queue_id=half.record.queue_id, body=body.encode(), properties=properties,
                    born_host=host, store_host=host)
        )  # fmt: skip
        self.copies(half.record.queue_id).note_ended(half)

    def _put(self, message: NewMessage) -> PutResult:
        stored = self.store.append(message)
        if not stored.ok:
            raise Rejected(SYSTEM_ERROR, f"{stored.status}: {stored.reason}")
        return stored

    # -- by the broker ------------------------------------------------------------------------------------------------

    def check(
        self, decide: Decide, stop: Callable[[], bool] = lambda: False, *, begun: int | None = None
    ) -> CheckCounts:
        """Run one round: check every half message that is due, and act on the decision.

        A copy of each is first appended to the half queue, with its number of checks incremented.

        Args:
            stop: called before each message; true ends the round.
            begun: :attr:`stopped_round`, to continue that round.
        """
        done = CheckCounts()
        self.store.dispatch()
        queues = TopicQueues(self.store.layout)
        config = self.state.topic(HALF)
        start = self.store.live.clock() if begun is None else begun
        self.stopped_round = None
        for queue in queues.of(HALF):
            if config is not None and queue.queue_id >= config.read_queue_nums:
                continue
            if Round(self, queues, queue.queue_id, done).run(decide, stop, start):
                self.stopped_round = start
        return done

    def immunity(self, text: str) -> int:
        """A half message's own check timeout in ms."""
        seconds = number_of(text)
        return self.rules.timeout if seconds in (None, -1) else (seconds or 0) * 1000
