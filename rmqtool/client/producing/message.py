"""Messages to send, and send results (common.message.Message, client.producer.SendResult)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from formats.message.properties import DELAY, KEYS, TAGS, UNIQ_KEY, WAIT
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.errors import ClientError

DELIVER_MS = "TIMER_DELIVER_MS"  # 5.x


@dataclass(slots=True)  # not frozen: creating a message then takes a quarter of the time
class Message:
    """A message.

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
