"""Build a send request, and parse its response (impl.MQClientAPIImpl.sendMessage)."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, repeat

from formats.message import properties
from formats.message.build import MAX_MESSAGE_SIZE
from formats.message.properties import UNIQ_KEY
from formats.primitives import TRANSACTION_PREPARED
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from formats.topics import AUTO_CREATE
from rmqtool.client.cluster.answers import SEND_STATUSES, header_from
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError
from rmqtool.client.producing.message import Message, SendResult
from rmqtool.rules.sending import COMPRESS_FROM, compress

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
