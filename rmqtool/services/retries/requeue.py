"""Requeue dead letters: to the group's retry topic, or to their original topic.

Requeued messages are recognised by the property ``REQUEUED_FROM``, the offset id of the dead letter, in both topics: a
run that was killed continues where it was, and no dead letter is requeued twice, nor to both topics. The dead letter
itself is kept.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from formats.errors import FormatError
from formats.message.ids import offset_id, parse_offset_id
from formats.message.properties import DELAY, REAL_QID, REAL_TOPIC, WAIT, parse, split_keys
from formats.topics import DLQ_PREFIX, NOT_SENT_TO, RETRY_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS, Perm
from rmqtool.services.lookup.configs import Warn, topics_of
from rmqtool.services.lookup.queue_messages import ORIGIN_MESSAGE_ID, RETRY_TOPIC, TopicQueues, messages_of, raw
from rmqtool.services.lookup.stored import LogMessage
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.open_store.store import Store
from rmqtool.services.retries.retries import DeadLetter, Retries
from rmqtool.services.sending.copies import copy_of
from rmqtool.services.transactions.half_messages import first_behind
from rmqtool.store.append.outgoing import NewMessage
from rmqtool.store.log.commit_log import CommitLog

REQUEUED_FROM = "REQUEUED_FROM"
TARGETS = ("retry", "origin")
_LEFT_BEHIND = (DELAY, REAL_TOPIC, REAL_QID, WAIT)


Row = TypeVar("Row", bound="Requeued")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeued:
    """One dead letter and where it goes.

    ``state``: to-do, done (now), before (by an earlier run), refused; of a live cluster also unknown (no answer).
    """

    group: str
    state: str
    deadLetterId: str  # offset id of the dead letter
    queueOffset: int  # of the dead letter
    msgId: str
    keys: str | None
    targetTopic: str | None
    targetQueueId: int | None = None
    targetQueueOffset: int | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return {**asdict(self), "keys": split_keys(self.keys or "")}


def never_sent_to(topic: str) -> str | None:
    """Why no producer can send to a topic, by its name; None if there is no reason."""
    if topic in SYSTEM_TOPICS | NOT_SENT_TO or topic.startswith(SYSTEM_PREFIX):
        return f"{topic}: a topic of the broker itself, to which nobody sends"
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return f"{topic}: a topic of retries or dead letters, which no other group reads"
    return None


def is_chosen(letter: DeadLetter, dead_id: str, ids: Collection[str]) -> bool:
    """Whether a letter is dead, and one of its ids is asked for.

    Args:
        dead_id: offset id of the dead letter.
        ids: empty for all.
    """
    return letter.state == "dead" and (not ids or not {dead_id, letter.msgId, letter.originMsgId}.isdisjoint(ids))


def to_requeue(letter: DeadLetter, dead_id: str, group: str, target: str) -> Requeued:
    """The row of a dead letter that is to be requeued; ``target`` is that of :class:`Requeue`."""
    return Requeued(
        group=group,
        state="to-do",
        deadLetterId=dead_id,
        queueOffset=letter.queueOffset,
        msgId=letter.msgId,
        keys=letter.keys,
        targetTopic=RETRY_PREFIX + group if target == "retry" else letter.originTopic,
    )


def given_back_before(row: Row, letter: DeadLetter, given_back: Callable[[str], Collection[str]]) -> Row | None:
    """The row of a dead letter that an earlier run gave back, to this or another topic; None if none did.

    Args:
        given_back: the dead letters that were given back to a topic.
    """
    places = dict.fromkeys((row.targetTopic, RETRY_PREFIX + row.group, letter.originTopic))
    before = [topic for topic in places if topic and row.deadLetterId in given_back(topic)]
    if not before:
        return None
    where = None if before[0] == row.targetTopic else f"it was given back to {before[0]}"
    return replace(row, state="before", reason=where)


class Requeue:
    """Requeues the dead letters of one group.

    Args:
        ids: only these: unique ids, or offset ids of the dead letters or of the original messages.
        target: ``retry``: only the group gets them again; ``origin``: every group of the original topic does.
    """

    def __init__(self, log: CommitLog, group: str, ids: list[str] | None, target: str, warn: Warn) -> None:
        self.log, self.group, self.target, self._ids = log, group, target, set(ids or ())
        self._warn = warn
        self._topics = TopicQueues(log.layout)
        self._known = topics_of(log.layout, warn)
        self._before: dict[str, set[str]] = {}  # topic → dead letters already requeued to it

    def plan(self) -> Iterator[tuple[Requeued, NewMessage | None]]:
        """Every selected dead letter, with the message to store; None if there is nothing to do."""
        retries = Retries(self.log, 0, self._warn)
        for letter, message in retries.dead_letters([self.group]):
            record = message.record
            dead_id = offset_id(record.store_address, record.store_port, message.physical_offset)
            if not is_chosen(letter, dead_id, self._ids):
                continue
            row = to_requeue(letter, dead_id, self.group, self.target)
            if (before := given_back_before(row, letter, self._find_requeued)) is not None:
                yield before, None
            elif row.targetTopic is None:
                yield replace(row, state="refused", reason=f"no property {RETRY_TOPIC}: its topic is not known"), None
            elif self.target == "origin" and (reason := self._not_taken(row.targetTopic)) is not None:
                yield replace(row, state="refused", reason=reason), None
            else:
                queue_id = self._queue_id(row.targetTopic, letter.originMsgId)
                yield replace(row, targetQueueId=queue_id), self._message(message, row.targetTopic, queue_id, dead_id)

    def _not_taken(self, topic: str) -> str | None:
        if (reason := never_sent_to(topic)) is not None or self._known is None:
            return reason  # topics.json is lost: unknown
        config = self._known.topics.get(topic)
        if config is None:
            return f"{topic}: the topic is gone: topics.json does not have it any more"
        return None if config.perm & Perm.WRITE else f"{topic}: the topic is not writable (perm {config.perm})"

    def _find_requeued(self, topic: str) -> set[str]:
        """Dead letters already requeued to a topic; only messages newer than the first dead letter are read."""
        if topic not in self._before:
            self._before[topic] = set()
            dead = self._topics.one(DLQ_PREFIX + self.group, 0)
            oldest = dead.entry(dead.min_offset(self.log.min_offset)) if dead is not None else None
            if oldest is None:
                return set()
            for queue in self._topics.of(topic):
                start = max(first_behind(queue, oldest.physical_offset), queue.min_offset(self.log.min_offset))
                for message in messages_of(self.log, queue, self._warn, start):
                    if (dead_id := message.properties.get(REQUEUED_FROM)) is not None:
                        self._before[topic].add(dead_id)
        return self._before[topic]

    def _queue_id(self, topic: str, origin_id: str | None) -> int:
        """The queue of the original message; 0 if unknown, and for a retry topic."""
        if self.target == "retry" or origin_id is None:
            return 0
        try:
            original = self.log.read(parse_offset_id(origin_id).physical_offset, crc=False)
        except FormatError:
            return 0
        queue_id = original.record.queue_id if original is not None and original.record.topic == raw(topic) else 0
        config = self._known.topics.get(topic) if self._known is not None else None
        return queue_id if config is None or queue_id < config.write_queue_nums else 0  # it may have fewer by now

    def _message(self, dead: LogMessage, topic: str, queue_id: int, dead_id: str) -> NewMessage:
        properties = parse(dead.record.properties)
        for name in _LEFT_BEHIND if self.target == "retry" else (*_LEFT_BEHIND, RETRY_TOPIC, ORIGIN_MESSAGE_ID):
            properties.pop(name, None)
        properties[REQUEUED_FROM] = dead_id
        return copy_of(dead.record, topic, queue_id, properties, reconsume_times=0)


def requeue(
    store: Store,
    group: str,
    ids: list[str] | None,
    target: str,
    warn: Warn,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Requeued]:
    """Requeue dead letters; each row is yielded once its message is in the log and survives a kill of this process.

    Args:
        stop: called before each dead letter; true ends the run, and the next one continues there.
    """
    state = BrokerState(store, warn)
    store.dispatch()
    for row, message in Requeue(CommitLog(store.layout), group, ids, target, warn).plan():
        if stop():
            break
        if target == "retry":
            state.ensure_topic(RETRY_PREFIX + group)
        if message is None:
            yield row
            continue
        stored = store.append(message)
        if stored.ok:
            yield replace(row, state="done", targetQueueOffset=stored.queue_offset)
        else:
            yield replace(row, state="refused", reason=stored.reason)
    state.persist()
