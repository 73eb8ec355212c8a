"""Match copies of the same half message, so that each transaction is ended once.

A check appends a copy of a half message to its queue and asks the producer about that copy. The position of the check
is persisted every few seconds; after a kill, a broker continues from there, meets the older copies, and checks each of
them as a transaction of its own, so that all of them are committed. The queues show more: of the copies of one half
message only the newest is open, and once one of them has ended, all have.

Copies are recognised by unique id, born time, body and destination. A half message without a unique id is treated as
having no copies, as a broker treats all.
"""

from typing import NamedTuple

from formats.message.properties import REAL_QID, REAL_TOPIC, UNIQ_KEY, parse
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK
from formats.topics import HALF, OP
from rmqtool.rules.retention import HOUR
from rmqtool.services.lookup.queue_messages import QueueMessage, TopicQueues, messages_of
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.transactions.half_messages import CHECK_GROUP, is_copy, op_offsets
from rmqtool.services.transactions.rules import PRODUCER_GROUP
from rmqtool.store.append.answers import PutResult
from rmqtool.store.index.reader import BadIndex, open_index, physical_offsets
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import PlainQueue

_MOST_FOUND = 1 << 10  # messages of one key to read

Identity = tuple[object, ...]


class CopyPlace(NamedTuple):
    """The position of one copy.

    Attributes:
        again: whether it was stored by a check, not by the producer.
    """

    queue_offset: int
    physical_offset: int
    again: bool


def identity(message: QueueMessage) -> Identity | None:
    """A value shared by all copies of a half message and its committed message; None without a unique id."""
    record, properties = message.record, message.properties
    unique = properties.get(UNIQ_KEY)
    if unique is None:
        return None
    # brokers of 5.5 take the destination off the committed message, which is there
    topic = properties.get(REAL_TOPIC, record.topic.decode("utf-8", "replace"))
    place = properties.get(PRODUCER_GROUP), topic, properties.get(REAL_QID, str(record.queue_id))
    return (unique, record.born_timestamp, record.born_port, record.body_crc, *place)


class Copies:
    """Copies of the half messages of one queue, from the position of the check on.

    Memory: about 500 bytes for each transaction checked or ended since; forgotten two rounds after the check has passed
    it.

    Args:
        log, queues: read on creation; later changes are reported to :meth:`note_renewed` and :meth:`note_ended`.
    """

    def __init__(self, log: CommitLog, queues: TopicQueues, state: BrokerState, queue_id: int) -> None:
        self._newest: dict[Identity, CopyPlace] = {}
        self._ended: dict[Identity, CopyPlace] = {}
        half, op = (queues.one(topic, queue_id) for topic in (HALF, OP))
        self._first_new = half.max_offset if half is not None else 0
        self._passed = 0
        if half is None:
            return
        offsets = self._ends(log, op, state.offset(OP, CHECK_GROUP, queue_id))
        first = state.offset(HALF, CHECK_GROUP, queue_id) or 0
        first = max(first, half.min_offset(log.min_offset))
        for offset in sorted(offset for offset in offsets if 0 <= offset < first):
            self._take(log, half, offset, offset + 1, offsets)
        self._take(log, half, first, half.max_offset, offsets)

    @staticmethod
    def _ends(log: CommitLog, op: PlainQueue | None, first: int | None) -> set[int]:
        """Queue offsets of half messages ended by op messages."""
        if op is None:
            return set()
        first = max(first or 0, op.min_offset(log.min_offset))
        messages = messages_of(log, op, lambda _text: None, first, op.max_offset)
        return {offset for message in messages for offset in op_offsets(message.record, message.properties) or ()}

    def _take(self, log: CommitLog, half: PlainQueue, first: int, stop: int, ended: set[int]) -> None:
        for message in messages_of(log, half, lambda _text: None, first, stop):
            key = identity(message)
            if key is None:
                continue
            if is_copy(message.properties):
                self._newest[key] = _place(message)
            if message.entry.queue_offset in ended:
                self._ended[key] = _place(message)

    def newer(self, message: QueueMessage) -> CopyPlace | None:
        """The newest copy of a half message; None if it is the newest itself."""
        key = identity(message)
        newest = None if key is None else self._newest.get(key)
        return newest if newest is not None and newest.queue_offset > message.entry.queue_offset else None

    def has_ended(self, message: QueueMessage) -> bool:
        """Whether this half message, or a copy of it, was committed or rolled back."""
        key = identity(message)
        ended = None if key is None else self._ended.get(key)
        if ended is None:
            return False
        # two messages that a producer sent in one millisecond are different, even if equal
        return ended.again or is_copy(message.properties) or ended.queue_offset == message.entry.queue_offset

    def was_there(self, message: QueueMessage) -> bool:
        """Whether a previous process may have begun to end this half message."""
        return message.entry.queue_offset < self._first_new

    def note_renewed(self, message: QueueMessage, copy: PutResult) -> None:
        """Record that a copy of a half message was stored."""
        if (key := identity(message)) is not None:
            self._newest[key] = CopyPlace(copy.queue_offset, copy.physical_offset, again=True)

    def note_ended(self, message: QueueMessage) -> None:
        """Record that a half message was committed or rolled back."""
        if (key := identity(message)) is not None:
            self._ended[key] = _place(message)

    def note_passed(self, queue_offset: int) -> None:
        """Record where the next round begins; forget what the round before the last has passed."""
        for known in (self._newest, self._ended):
            for key in [key for key, at in known.items() if at.queue_offset < self._passed]:
                del known[key]
        self._passed = queue_offset


def _place(message: QueueMessage) -> CopyPlace:
    entry = message.entry
    return CopyPlace(entry.queue_offset, entry.physical_offset, is_copy(message.properties))


def was_committed(layout: StoreLayout, log: CommitLog, half: QueueMessage) -> bool:
    """Whether the index has a message committed from a half message or a copy of it.

    A broker killed between the two writes of a commit leaves such a message without an op message.
    """
    topic, unique, wanted = half.properties.get(REAL_TOPIC), half.properties.get(UNIQ_KEY), identity(half)
    if topic is None or unique is None:
        return False
    files = [file for file in open_index(layout) if not isinstance(file, BadIndex)]
    since = min(half.record.born_timestamp, half.record.store_timestamp) - HOUR  # clocks differ
    for offset in physical_offsets(files, topic, unique, limit=_MOST_FOUND, begin=since):
        message = log.read(offset, crc=False)
        if message is not None and message.record.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT:
            record = message.record
            if identity(QueueMessage(half.entry, record, parse(record.properties))) == wanted:
                return True
    return False
