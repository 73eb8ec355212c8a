"""Batches: which messages may go together, their form on the wire, and how to split what is too large for one.

Sources: common.message.MessageBatch, MessageDecoder.encodeMessages, SendMessageProcessor.asyncSendBatchMessage (4.9.8);
message-services 10.1, 10.2.
"""

from collections.abc import Iterable, Iterator, Sequence

from formats.layouts import derived
from formats.message import properties
from formats.message.bodies import batch_items, build_batch
from formats.message.build import MAX_MESSAGE_SIZE
from formats.message.properties import UNIQ_KEY
from formats.topics import RETRY_PREFIX
from rmqtool.rules.sending import CLIENT_ERROR, MESSAGE_ILLEGAL, OutMessage, Rejected, check_message


def check_batch(messages: Sequence[OutMessage]) -> None:
    """The client's rules for messages that go in one batch.

    Raises:
        Rejected: empty, delayed, to a retry topic, or not all for one topic or of one WAIT.
    """
    if not messages:
        raise Rejected(CLIENT_ERROR, "a batch needs messages")
    topic, wait = messages[0].topic, messages[0].properties.get("WAIT")
    for message in messages:
        named = message.properties
        if "DELAY" in named and message.delay_level > 0:
            raise Rejected(CLIENT_ERROR, "TimeDelayLevel is not supported for batching")
        if message.topic.startswith(RETRY_PREFIX):
            raise Rejected(CLIENT_ERROR, "Retry Group is not supported for batching")
        if message.topic != topic:
            raise Rejected(CLIENT_ERROR, "The topic of the messages in one batch should be the same")
        if named.get("WAIT") != wait and message.wait_store_ok != messages[0].wait_store_ok:
            raise Rejected(CLIENT_ERROR, "The waitStoreMsgOK of the messages in one batch should the same")


def encode(messages: Sequence[OutMessage]) -> bytes:
    """The body of the request.

    Raises:
        BadLength: properties longer than their length field can say.
    """
    return build_batch((m.flag, m.body or b"", properties.build(m.properties)) for m in messages)


def batch_properties(messages: Sequence[OutMessage], unique_id: str | None = None) -> dict[str, str]:
    """The properties of the request itself.

    Args:
        unique_id: that a 5.x client gives to the batch. A broker stores it with each message, behind the message's own.
    """
    named = {"WAIT": "true" if messages[0].wait_store_ok else "false"}
    return named if unique_id is None else {**named, UNIQ_KEY: unique_id}


def decode(topic: str, body: bytes) -> Iterator[OutMessage]:
    """The messages of a batch.

    Raises:
        FormatError: an item does not fit, or its lengths disagree.
    """
    for item in batch_items(body):
        yield OutMessage(topic=topic, body=item.body, flag=item.flag, properties=properties.parse(item.properties))


def stored_properties(own: bytes, batch: bytes) -> bytes:
    """The properties of one message of a batch as the broker stores them: its own, then those of the batch."""
    if own and batch and not own.endswith(b"\x02"):
        return own + b"\x02" + batch
    return own + batch


def encoded_size(message: OutMessage) -> int:
    """Bytes that a message takes in a batch."""
    return derived.BATCH_ITEM_HEAD.size + len(message.body or b"") + 2 + len(properties.build(message.properties))


def split(messages: Iterable[OutMessage], limit: int = MAX_MESSAGE_SIZE) -> Iterator[list[OutMessage]]:
    """Messages in order, in batches of at most ``limit`` bytes each.

    Raises:
        Rejected: a message that no batch can hold, or that cannot be sent at all.
    """

    def built() -> Iterator[tuple[OutMessage, bytes]]:
        for message in messages:
            check_message(message)
            yield message, properties.build(message.properties)

    for batch in split_built(built(), limit):
        yield [message for message, _text in batch]


def split_built(
    messages: Iterable[tuple[OutMessage, bytes]], limit: int = MAX_MESSAGE_SIZE
) -> Iterator[list[tuple[OutMessage, bytes]]]:
    """As :func:`split`, of messages that were looked at, each with its properties as they are sent.

    Raises:
        Rejected: a message that no batch can hold.
    """
    batch: list[tuple[OutMessage, bytes]] = []
    total, least = 0, derived.BATCH_ITEM_HEAD.size + 2
    for message, text in messages:
        size = least + len(message.body or b"") + len(text)
        if size > limit:
            raise Rejected(MESSAGE_ILLEGAL, f"a message takes {size} bytes of a batch, at most {limit} fit")
        if batch and total + size > limit:
            yield batch
            batch, total = [], 0
        batch.append((message, text))
        total += size
    if batch:
        yield batch
