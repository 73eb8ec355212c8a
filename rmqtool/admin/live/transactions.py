"""Transactions of a live cluster."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from formats.message.properties import REAL_TOPIC, UNIQ_KEY
from formats.message.read import Record
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK
from formats.topics import GIVEN_UP, HALF, OP, ROCKS_HALF, ROCKS_OP
from rmqtool.admin.live.messages import find_copies
from rmqtool.admin.live.questions import Warn
from rmqtool.admin.live.queues import LiveQueue, LiveQueues
from rmqtool.services.lookup.queue_messages import QueueMessage
from rmqtool.services.transactions.half_messages import (
    CHECK_GROUP,
    CommitUnknown,
    HalfCopy,
    OpenState,
    TransactionInfo,
    TransactionReader,
    is_copy,
)

_TOGETHER = 64  # half messages whose committed messages are looked up together


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTransactionInfo(TransactionInfo):
    """One transaction, on one broker."""

    brokerName: str


class LiveTransactions(TransactionReader[LiveQueue, LiveTransactionInfo]):
    """Transactions of a cluster, with the rules of those of a store."""

    row = LiveTransactionInfo

    def __init__(self, queues: LiveQueues, warn: Warn) -> None:
        super().__init__(warn)
        self._queues = queues
        self._wanted: str | None = None
        self._matches: dict[tuple[LiveQueue, str, str], list[Record] | None] = {}  # None: unknown
        topics = (HALF, OP, GIVEN_UP, ROCKS_HALF, ROCKS_OP)
        queues.load(topics)
        queues.load_unlisted((HALF, OP))
        queues.read_ahead((queue, queue.min_offset) for topic in topics for queue in queues.queues_of(topic))

    def queues_of(self, topic: str) -> list[LiveQueue]:
        """The queues of a topic, by broker and number."""
        return self._queues.queues_of(topic)

    def sibling(self, queue: LiveQueue, topic: str, queue_id: int) -> LiveQueue | None:
        """A queue of another topic on the same broker."""
        queues = (other for other in self.queues_of(topic) if (other.node, other.queue_id) == (queue.node, queue_id))
        return next(queues, None)

    def messages(
        self, queue: LiveQueue, start: int | None = None, stop: int | None = None, *, quiet: bool = False
    ) -> Iterator[QueueMessage]:
        """Messages of a queue; what a broker does not give is reported once."""
        messages = self._queues.messages(queue, start, stop)
        shown = start is None and ((queue.topic == HALF and quiet) or queue.topic == ROCKS_HALF)
        return self._with_commits(queue, messages) if shown else messages

    def all(self, wanted: str | None = None) -> Iterator[LiveTransactionInfo]:
        """Every transaction whose half message is still in the log, or the wanted one."""
        self._wanted = wanted
        return super().all(wanted)

    def _with_commits(self, queue: LiveQueue, messages: Iterator[QueueMessage]) -> Iterator[QueueMessage]:
        """Half messages, after the committed messages of several have been looked up together."""
        while some := list(islice(messages, _TOGETHER)):
            if self._has_index(queue):
                self._look_up(queue, {name for message in some if (name := self._name_of(message)) is not None})
            yield from some

    def _name_of(self, message: QueueMessage) -> tuple[str, str] | None:
        """Topic and unique id of a half message whose committed message is needed."""
        topic, unique = message.properties.get(REAL_TOPIC), message.properties.get(UNIQ_KEY)
        if topic is None or unique is None or is_copy(message.properties):
            return None
        return (topic, unique) if self._wanted in (None, message.message_id) else None

    def _look_up(self, queue: LiveQueue, names: Collection[tuple[str, str]]) -> None:
        questions = self._queues.questions

        async def find(name: tuple[str, str]) -> list[Record]:
            return await find_copies(questions, self.warn, queue.node, *name)

        answers = self._queues.run(questions.collect(names, find))
        self._matches = {(queue, *name): answers.get(name) for name in names}

    def _has_index(self, queue: LiveQueue) -> bool:
        settings = self._queues.settings.get(queue.node)
        return settings is not None and settings.get("messageIndexEnable", "true").strip().lower() == "true"

    def check_offset(self, queue: LiveQueue) -> int:
        """The offset of the check in a half queue."""
        return self._queues.offset_of.get((queue.node, CHECK_GROUP, queue.topic, queue.queue_id), 0)

    def store_time(self, queue: LiveQueue, physical_offset: int) -> int | None:
        """The store time (ms) of a given-up message; None if the broker does not give it."""
        for other in self.queues_of(GIVEN_UP):
            if other.node == queue.node:
                for message in self.messages(other):
                    if message.entry.physical_offset == physical_offset:
                        return message.record.store_timestamp
        return None

    def open_half(self, _physical_offset: int) -> OpenState:
        """Nothing: no broker reports what it has in RocksDB."""
        return OpenState(None, False)

    def tells_ends(self, queue: LiveQueue) -> bool:
        """Whether the broker has returned all op and given-up messages, and the offset of the check."""
        node, queues = queue.node, self._queues
        whole = all(queues.is_whole(node, topic) for topic in (OP, GIVEN_UP))
        return whole and node in queues.offsets

    def commit(self, queue: LiveQueue, first: QueueMessage, copies: list[HalfCopy], _end: int | None) -> int | None:
        """Physical offset of the committed message, through the index of the broker; None if it is not there.

        Raises:
            CommitUnknown: the broker does not answer, or has no index.
        """
        topic, unique = first.properties.get(REAL_TOPIC), first.properties.get(UNIQ_KEY)
        if topic is None or unique is None:
            return None
        prepared = {copy.physicalOffset for copy in copies}
        if not self._has_index(queue):
            raise CommitUnknown
        if (queue, topic, unique) not in self._matches:
            self._look_up(queue, {(topic, unique)})
        matches = self._matches[queue, topic, unique]
        if matches is None:
            raise CommitUnknown
        for record in matches:
            committed = record.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT
            if committed and record.prepared_transaction_offset in prepared:
                return record.physical_offset
        return None

    def place(self, queue: LiveQueue) -> dict[str, Any]:
        """The broker of a row."""
        return {"brokerName": queue.node.name}
