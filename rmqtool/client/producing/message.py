"""Messages to send, and what became of them (common.message.Message, client.producer.SendResult)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from formats.message.properties import DELAY, KEYS, TAGS, UNIQ_KEY, WAIT
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.errors import ClientError

DELIVER_MS = "TIMER_DELIVER_MS"  # of 5.x


@dataclass(slots=True)  # not frozen: making a message takes a quarter of the time
class Message:
    """A message.

    Attributes:
        tags: its tag.
        keys: texts that it can be found by; none holds a blank.
        properties: the application's own, or all of them by RocketMQ's names.
        delay_level: 1 to 18 by default; 0 is no delay.
        deliver_at: ms since the epoch at which consumers are to get it; brokers of 5.x only.
        wait_store_ok: answered when the broker has flushed and copied it as it is set to.
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
        """All that it says, as properties.

        Args:
            more: properties that count more than its own.
            unique_id: for a message that has none yet.
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
    """What the broker said of a message that it has stored.

    Attributes:
        status: SEND_OK, or the reason why it is not as safe as the broker is set to make it.
        message_id: its unique id.
        offset_message_id: the broker's id, by which the message can be looked up there.
        recall_handle: by which a message that waits for its time can be called back (5.x).
        maybe_in: queues that may hold the message a second time: one for each earlier attempt that was not answered, or
            that stored it and was followed by another one.
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
    """A message that was not acknowledged.

    Attributes:
        code: of the broker's last answer, where there was one.
        maybe_in: queues that may hold it all the same: one for each attempt that was not answered.
        sent: of several messages those that were acknowledged before, in their order.
        tried: how many came next, in the request that failed.
    """

    def __init__(self, words: str, *, code: int | None = None, maybe_in: Sequence[MessageQueue] = ()) -> None:
        super().__init__(words)
        self.code, self.maybe_in = code, tuple(maybe_in)
        self.sent: list[SendResult] = []
        self.tried = 1

    @property
    def maybe_stored(self) -> bool:
        """Whether it may be stored although nobody has acknowledged it."""
        return bool(self.maybe_in)
