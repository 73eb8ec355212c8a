"""Messages to send, the requests that carry them, and their results.

Source: common.message.Message, client.producer.SendResult, impl.MQClientAPIImpl.sendMessage.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, repeat
from typing import NamedTuple

from formats.message import properties
from formats.message.build import MAX_MESSAGE_SIZE
from formats.message.properties import DELAY, KEYS, TAGS, UNIQ_KEY, WAIT
from formats.primitives import TRANSACTION_PREPARED
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from formats.topics import AUTO_CREATE
from rmqtool.client.cluster.answers import SEND_STATUSES, header_from
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, ClientError
from rmqtool.rules.sending import COMPRESS_FROM, compress

DELIVER_MS = "TIMER_DELIVER_MS"  # 5.x


@dataclass(slots=True)  # not frozen: creating a message then takes a quarter of the time
class Message:
    """A message to be sent; :class:`rmqtool.NewMessage` is one to be appended to a store.

    Attributes:
        tags: the message's tag.
        keys: keys by which it can be looked up; without spaces.
        properties: the application's own properties, or all properties by RocketMQ's names.
        delay_level: 1 to 18 by default; 0 is no delay.
        deliver_at: delivery time, ms since the epoch; only brokers of 5.x.
        wait_store_ok: acknowledge only after the broker has flushed and replicated it according to its settings.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    deliver_at: int | None = None
    wait_store_ok: bool = True

    def all_properties(self, more: Mapping[str, str] | None = None, unique_id: str | None = None) -> dict[str, str]:
        """All fields, as properties.

        Args:
            more: properties that override the message's own.
            unique_id: unique id if the message has none yet.
        """
        named = dict(self.properties)
        if WAIT not in named:
            named[WAIT] = "true" if self.wait_store_ok else "false"
        if self.tags is not None:
            named[TAGS] = self.tags
        if self.keys:
            named[KEYS] = self.keys if isinstance(self.keys, str) else " ".join(self.keys)
        if self.delay_level:
            named[DELAY] = str(self.delay_level)
        if self.deliver_at is not None:
            named[DELIVER_MS] = str(self.deliver_at)
        if more:
            named.update(more)
        if unique_id is not None and UNIQ_KEY not in named:
            named[UNIQ_KEY] = unique_id
        return named


class SendResult(NamedTuple):
    """A broker's answer for a stored message.

    Attributes:
        status: SEND_OK, or the reason why the message is stored less safely than configured.
        message_id: the unique id.
        offset_message_id: the broker's id, with which it finds the message.
        recall_handle: handle to recall a message that waits for its delivery time (5.x).
        maybe_in: queues that may have the message a second time: one for each earlier attempt that was not answered, or
            that stored it and was followed by another attempt.
    """

    status: str
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str = "DefaultRegion"
    trace_on: bool = True
    maybe_in: tuple[MessageQueue, ...] = ()


class NotSent(ClientError):
    """A message was not acknowledged.

    Attributes:
        code: response code of the broker's last answer, if there was one.
        maybe_in: queues that may have the message nevertheless: one for each unanswered attempt.
        sent: of several messages, those acknowledged before the failure, in order.
        tried: number of messages in the failed request.
    """

    def __init__(self, text: str, *, code: int | None = None, maybe_in: Sequence[MessageQueue] = ()) -> None:
        super().__init__(text)
        self.code, self.maybe_in = code, tuple(maybe_in)
        self.sent: list[SendResult] = []
        self.tried = 1

    @property
    def maybe_stored(self) -> bool:
        """Whether the message may be stored although it was not acknowledged."""
        return bool(self.maybe_in)


TRAN_MSG = "TRAN_MSG"
MESSAGE_TYPE, REPLY = "MSG_TYPE", "reply"


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Settings for encoding messages.

    Attributes:
        compress_from: bodies of at least this many bytes are compressed.
        compression: ``zlib``, ``lz4`` or ``zstd``.
        template: the topic whose brokers create new topics.
        queue_nums: queues of a new topic on each broker.
        unit_mode: announce with each message that the client belongs to a unit.
    """

    compress_from: int = COMPRESS_FROM
    compression: str = "zlib"
    compress_level: int = 5
    max_message_size: int = MAX_MESSAGE_SIZE
    template: str = AUTO_CREATE
    queue_nums: int = 4
    unit_mode: bool = False


@dataclass(frozen=True)
class Outgoing:
    """A send request for a message or a batch, before its queue is selected.

    Attributes:
        topic: name of the topic with namespace.
        body: encoded body of the request.
        properties: properties of the request; for a batch, not those of its messages.
        messages: messages with all their properties.
    """

    code: RequestCode
    topic: str
    body: bytes
    properties: Mapping[str, str]
    messages: Sequence[tuple[Message, Mapping[str, str]]]
    flag: int = 0
    sys_flag: int = 0

    @property
    def unique_ids(self) -> list[str]:
        """The unique id of each message."""
        return [named[UNIQ_KEY] for _message, named in self.messages]

    @property
    def half(self) -> bool:
        """Whether this is a half message of a transaction."""
        return bool(self.sys_flag & TRANSACTION_PREPARED)


class Packer:
    """Builds requests for one group.

    Attributes:
        separated: properties end with a separator, as in 5.x.
    """

    def __init__(self, cluster: Cluster, group: str, packing: Packing) -> None:
        self._cluster, self._group, self._packing = cluster, group, packing
        self.separated = cluster.options.release.trailing_separator

    def single(self, message: Message, topic: str, named: Mapping[str, str]) -> Outgoing:
        """Prepare a single message; a reply has its own request code.

        Args:
            named: all properties of the message.
        """
        packing = self._packing
        prepared = TRANSACTION_PREPARED if named.get(TRAN_MSG, "").lower() == "true" else 0
        body, sys_flag = compress(
            message.body, prepared, kind=packing.compression, level=packing.compress_level, over=packing.compress_from
        )
        is_reply = named.get(MESSAGE_TYPE) == REPLY
        code = RequestCode.SEND_REPLY_MESSAGE_V2 if is_reply else RequestCode.SEND_MESSAGE_V2
        return Outgoing(code, topic, body, named, [(message, named)], message.flag, sys_flag)

    def request(self, outgoing: Outgoing, queue: MessageQueue) -> Command:
        """Build the request for a queue."""
        header = h.Send(
            producer_group=self._group,
            topic=outgoing.topic,
            default_topic=self._packing.template,
            default_topic_queue_nums=self._packing.queue_nums,
            queue_id=queue.queue_id,
            sys_flag=outgoing.sys_flag,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=outgoing.flag,
            properties=properties.build(outgoing.properties, trailing_separator=self.separated).decode(),
            reconsume_times=0,
            unit_mode=self._packing.unit_mode,
            batch=outgoing.code == RequestCode.SEND_BATCH_MESSAGE,
            bname=queue.broker_name,
        )
        return self._cluster.request(outgoing.code, header, outgoing.body)


def results_of(outgoing: Outgoing, queue: MessageQueue, response: Command, address: str) -> list[SendResult]:
    """The send result of each message of a request.

    Args:
        queue: the queue, with the application's name of the topic.

    Raises:
        BrokerError: the message was not stored.
        BadAnswer: the answer lacks the message's position.
    """
    status = SEND_STATUSES.get(response.code)
    if status is None:
        raise BrokerError(response, address)
    sent = header_from(h.Sent, response, address)
    if sent.queue_id < 0 or sent.queue_offset < 0:
        raise BadAnswer(f"{address}: a message in queue {sent.queue_id} at {sent.queue_offset}")
    if sent.queue_id != queue.queue_id and outgoing.code != RequestCode.SEND_REPLY_MESSAGE_V2:
        raise BadAnswer(f"{address}: a message in queue {sent.queue_id} that was sent to queue {queue.queue_id}")
    unique_ids, ids = outgoing.unique_ids, sent.msg_id.split(",")
    if len(ids) != len(unique_ids):
        ids = [sent.msg_id] * len(unique_ids)  # 5.x topics that store a batch as one record return one id
    stored = MessageQueue(queue.topic, queue.broker_name, sent.queue_id)
    more = sent.transaction_id, sent.recall_handle, sent.msg_region or "DefaultRegion", sent.trace_on != "false", ()
    each = zip(
        repeat(status), unique_ids, ids, repeat(stored), count(sent.queue_offset), *map(repeat, more), strict=False
    )
    return list(map(SendResult._make, each))
