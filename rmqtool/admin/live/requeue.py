"""Give dead letters of a live cluster back: to the group's retry topic, or to their original topic.

As in a store, requeued messages have the property ``REQUEUED_FROM``. It is looked for in the target topics before
anything is sent, so a run that was ended continues where it was. Without an answer to that question nothing is sent.

A broker that no name server knows at the moment cannot answer, and nothing shows that it is missing. Dead letters
therefore only go to their own broker, or to the one that has the original message, whose address is in
``ORIGIN_MESSAGE_ID``: if no broker has that address, the dead letter stays until its broker is back, or is named as
gone.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from formats.errors import FormatError
from formats.message.ids import is_id, offset_id, parse_offset_id
from formats.message.properties import UNIQ_KEY, build, parse, split_keys
from formats.message.read import Record
from formats.primitives import COMPRESSED, COMPRESSION_MASK, address_text
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.topics import DLQ_PREFIX, Perm
from formats.variants.pop_handle import POP_CK
from rmqtool.admin.live.messages import WireMessage, find_by_offset_id
from rmqtool.admin.live.questions import TIMEOUT, Node, Warn
from rmqtool.admin.live.queues import LiveQueues
from rmqtool.admin.live.requeue_lock import RequeueLock
from rmqtool.admin.live.retries import LiveDeadLetter, LiveRetries
from rmqtool.client.cluster.answers import header_from
from rmqtool.client.cluster.errors import ClientError
from rmqtool.contract import row_dict
from rmqtool.remoting.errors import NotReached, RemotingError
from rmqtool.rules.resending import own_properties
from rmqtool.services.lookup.queue_messages import ORIGIN_MESSAGE_ID, RETRY_TOPIC
from rmqtool.services.retries.requeue import (
    REQUEUED_FROM,
    Requeued,
    given_back_before,
    is_chosen,
    never_sent_to,
    to_requeue,
)

_SKEW = 600_000  # ms by which clocks of brokers may differ
_PRODUCERS = "rmqtool-requeue"
_STORED = {
    ResponseCode.FLUSH_DISK_TIMEOUT: "stored, but not yet on the disk",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "stored, but not yet by the slave",
    ResponseCode.SLAVE_NOT_AVAILABLE: "stored, but there is no slave",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequeued(Requeued):
    """One dead letter and where it goes; from one broker to the same or another one."""

    targetBrokerName: str | None = None
    brokerName: str

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return {**asdict(self), "keys": split_keys(self.keys or "")}


@dataclass(frozen=True)
class _Sending:
    """A message to send."""

    node: Node
    header: h.Send
    body: bytes


class LiveRequeue:
    """Requeues the dead letters of one group.

    Args:
        ids: only these: unique ids, or offset ids of the dead letters or of the original messages.
        target: ``retry``: only the group gets them again; ``origin``: every group of the original topic does.
        gone: addresses of brokers that will not come back, or have others now.

    Raises:
        ClientError: a broker does not answer, or has no master, so it is not known what was given back before.
    """

    def __init__(
        self,
        queues: LiveQueues,
        group: str,
        ids: list[str] | None,
        target: str,
        say: Warn,
        *,
        gone: Collection[str] = (),
    ) -> None:
        self._queues, self._group, self._target, self._ids = queues, group, target, set(ids or ())
        self._gone = frozenset(gone)
        self._say, self._retries = say, LiveRetries(queues, say)
        self._before: dict[str, set[str]] = {}  # topic to dead letters already requeued to it
        for node in queues.nodes:
            if not node.is_master:
                raise ClientError(f"broker {node.name} has no master: nothing is given back")
            if node not in queues.tables:
                self._refuse(f"broker {node.name} does not answer")

    def plan(self) -> Iterator[tuple[LiveRequeued, _Sending | None]]:
        """Every selected dead letter, with the message to send; None if there is nothing to do.

        Raises:
            ClientError: it is not known what was given back before.
        """
        letters = list(self._retries.dead_letters([self._group]))
        if not self._queues.whole or self._queues.is_missing(DLQ_PREFIX + self._group):
            self._refuse("not every dead letter is known")
        oldest = min((letter.storeTimestamp for letter, _message in letters), default=0)
        for letter, message in letters:
            assert isinstance(letter, LiveDeadLetter)
            record = message.record
            dead_id = offset_id(record.store_address, record.store_port, record.physical_offset)
            if not is_chosen(letter, dead_id, self._ids):
                continue
            shown = to_requeue(letter, dead_id, self._group, self._target)
            row = LiveRequeued(**row_dict(shown), brokerName=letter.brokerName)
            if (before := given_back_before(row, letter, lambda topic: self._find_requeued(topic, oldest))) is not None:
                yield before, None
                continue
            origin = self._find_origin(letter, record)
            place = self._place(letter, row.targetTopic, origin)
            if isinstance(place, str):
                yield replace(row, state="refused", reason=place), None
                continue
            node, queue_id = place
            row = replace(row, targetQueueId=queue_id, targetBrokerName=node.name)
            try:
                yield row, self._build_sending(record, node, str(row.targetTopic), queue_id, dead_id)
            except FormatError as err:
                yield replace(row, state="refused", reason=f"its properties cannot be sent: {err}"), None

    def carry_out(self, stop: Callable[[], bool]) -> Iterator[LiveRequeued]:
        """Send, one after the other; each row is yielded once the broker has answered.

        Args:
            stop: called before each dead letter; true ends the run, and the next one continues there.

        Raises:
            ClientError: it is not known what was given back before, or another run gives them back.
        """
        with RequeueLock(self._queues, self._group, stop, self._say) as lock:
            self._queues.look_again()  # another run may have given some back before this one had the lock
            for row, sending in list(self.plan()):
                if stop():
                    return
                lock.renew()
                yield row if sending is None else self._queues.run(self._send(row, sending))

    async def _send(self, row: LiveRequeued, sending: _Sending) -> LiveRequeued:
        cluster, address = self._queues.questions.cluster, sending.node.address
        request = cluster.request(C.SEND_MESSAGE_V2, sending.header, sending.body)
        try:
            response = await cluster.call(address, request, TIMEOUT)
        except NotReached as err:
            return replace(row, state="refused", reason=str(err))
        except RemotingError as err:
            reason = f"{err}: it may have been stored; the next run looks for it first"
            return replace(row, state="unknown", reason=reason)
        if response.code not in (ResponseCode.SUCCESS, *_STORED):
            code = ResponseCode(response.code).name if response.code in set(ResponseCode) else "code"
            return replace(row, state="refused", reason=f"{address}: {code} ({response.code}): {response.remark}")
        with cluster.answers_of(address):
            try:
                sent = header_from(h.Sent, response, address)
            except (ClientError, RemotingError) as err:
                return replace(row, state="unknown", reason=f"{err}; the next run looks for it first")
        return replace(
            row,
            state="done",
            targetQueueId=sent.queue_id,
            targetQueueOffset=sent.queue_offset,
            reason=_STORED.get(ResponseCode(response.code)),
        )

    def _refuse(self, reason: str) -> None:
        reasons = "; ".join(self._queues.questions.reasons())
        raise ClientError(f"{reason}: nothing is given back{f': {reasons}' if reasons else ''}")

    def _find_requeued(self, topic: str, oldest: int) -> set[str]:
        """Dead letters already requeued to a topic; only messages newer than the first dead letter are read."""
        if topic not in self._before:
            self._before[topic] = set()
            for record in self._queues.records_from(max(oldest - _SKEW, 0), self._queues.queues_of(topic)):
                if (dead_id := parse(record.properties).get(REQUEUED_FROM)) is not None:
                    self._before[topic].add(dead_id)
            if not self._queues.whole or self._queues.is_missing(topic):
                self._refuse(f"not known what was given back to {topic} before")
        return self._before[topic]

    def _place(
        self, letter: LiveDeadLetter, topic: str | None, origin: tuple[Node, int] | str | None
    ) -> tuple[Node, int] | str:
        """The broker and queue to send to, or why there is none.

        Args:
            origin: of :meth:`_find_origin`.
        """
        own = next(node for node in self._queues.nodes if node.name == letter.brokerName)
        if isinstance(origin, str):
            return origin
        if self._target == "retry":
            return own, 0
        if topic is None:
            return f"no property {RETRY_TOPIC}: its topic is not known"
        if (reason := never_sent_to(topic)) is not None:
            return reason
        if not any(self._queues.has(node, topic) for node in self._queues.nodes):
            return f"{topic}: the topic is gone: no broker has it any more"
        for node, queue_id in ([origin] if origin is not None else []) + [(own, 0)]:
            if self._queues.has(node, topic) and self._queues.tables[node][topic].perm & Perm.WRITE:
                return node, queue_id if queue_id < self._queues.tables[node][topic].write_queue_nums else 0
        return f"{topic}: the topic is not writable on broker {own.name}"

    def _find_origin(self, letter: LiveDeadLetter, record: Record) -> tuple[Node, int] | str | None:
        """The broker and queue of the original message, None if it is not there any more; or why that is unknown."""
        if letter.originMsgId is None or not is_id(letter.originMsgId):
            return None
        messages: list[WireMessage] = self._queues.run(
            find_by_offset_id(self._queues.questions, self._queues.nodes, letter.originMsgId)
        )
        for message in messages:
            if message.node is not None and message.record.topic.decode("utf-8", "replace") == letter.originTopic:
                return message.node, message.record.queue_id
        wanted = parse_offset_id(letter.originMsgId)
        address = f"{wanted.address}:{wanted.port}"
        if (wanted.address, wanted.port) == (address_text(record.store_address), record.store_port):
            return None  # of the same broker, whatever its address was
        known = {node.address for node in self._queues.run(self._queues.questions.nodes())}
        if messages or address in known or address in self._gone:
            return None
        return (
            f"broker {address}, which had the original message, is not registered now, and may have been given it "
            f"back before (--gone {address}: it does not come back, or has another address)"
        )

    def _build_sending(self, record: Record, node: Node, topic: str, queue_id: int, dead_id: str) -> _Sending:
        properties = own_properties(parse(record.properties))
        for name in (POP_CK,) if self._target == "retry" else (POP_CK, RETRY_TOPIC, ORIGIN_MESSAGE_ID):
            properties.pop(name, None)
        properties.setdefault(UNIQ_KEY, dead_id)
        properties[REQUEUED_FROM] = dead_id
        header = h.Send(
            producer_group=_PRODUCERS,
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=record.sys_flag & (COMPRESSED | COMPRESSION_MASK),
            born_timestamp=record.born_timestamp,
            flag=record.flag,
            properties=build(properties).decode("utf-8", "surrogateescape"),
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            bname=node.name,
        )
        return _Sending(node, header, bytes(record.body))
