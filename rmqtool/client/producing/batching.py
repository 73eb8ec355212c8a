"""Messages that go together: looked at, and put into as few bodies as hold them (common.message.MessageBatch)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from formats.layouts import derived
from formats.message.bodies import build_batch
from formats.message.properties import build_many
from rmqtool.client.producing.message import WAIT, Message
from rmqtool.services.sending.batch import check_batch
from rmqtool.services.sending.rules import MESSAGE_ILLEGAL, OutMessage, Rejected, check_message

_LEAST = derived.BATCH_ITEM_HEAD.size + 2  # bytes of an item without body and properties


@dataclass
class Batch:
    """Messages of one request.

    Attributes:
        messages: each with all of its properties.
        items: flag, body and properties of each, as they are sent.
    """

    messages: list[tuple[Message, dict[str, str]]] = field(default_factory=list)
    items: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    size: int = 0

    @property
    def body(self) -> bytes:
        """Of the request."""
        return build_batch(self.items)


def batches(
    messages: Sequence[Message],
    unique_ids: Sequence[str],
    more: Mapping[str, str],
    *,
    separated: bool,
    max_message_size: int,
    limit: int,
) -> list[Batch]:
    """All of the messages in order. There may be very many: what is done for each is kept small.

    Args:
        unique_ids: for those that have none.
        more: properties of each.
        separated: properties end with a separator.
        limit: bytes of one batch.

    Raises:
        Rejected: messages that cannot go together, or one that brokers would not take.
        FormatError: properties that cannot be sent.
    """
    first: OutMessage | None = None
    topic, wait = "", ""
    all_named = [message.named(more, unique_id) for message, unique_id in zip(messages, unique_ids, strict=True)]
    for message, named in zip(messages, all_named, strict=True):
        body = message.body
        if first is None or message.topic != topic or named[WAIT] != wait or "DELAY" in named:
            out = OutMessage(message.topic, body, message.flag, named)
            check_message(out, max_message_size)
            if first is None:
                first, topic, wait = out, message.topic, named[WAIT]
            check_batch([first, out])
        elif not body or len(body) > max_message_size:
            check_message(OutMessage(topic, body, message.flag, named), max_message_size)
    if first is None:
        check_batch([])
    made = [Batch()]
    batch = made[0]
    texts = build_many(all_named, trailing_separator=separated)
    for message, named, text in zip(messages, all_named, texts, strict=True):
        size = _LEAST + len(message.body) + len(text)
        if batch.size + size > limit:
            if size > limit:
                raise Rejected(MESSAGE_ILLEGAL, f"a message takes {size} bytes of a batch, at most {limit} fit")
            batch = Batch()
            made.append(batch)
        batch.size += size
        batch.messages.append((message, named))
        batch.items.append((message.flag, message.body, text))
    return made
