"""Validate messages and pack them into as few batches as possible (common.message.MessageBatch)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from formats.layouts import derived
from formats.message.bodies import build_batch
from formats.message.properties import DELAY, ITEM_END, NAME_END, UNIQ_KEY, WAIT, build, build_many
from rmqtool.client.producing.message import Message
from rmqtool.rules.sending import MESSAGE_ILLEGAL, Rejected, check_batch, check_message

_LEAST = derived.BATCH_ITEM_HEAD.size + 2  # bytes of an item without body and properties


@dataclass
class Batch:
    """Messages of one request.

    Attributes:
        messages: messages with all their properties.
        items: flag, body and encoded properties of each message.
    """

    messages: Sequence[tuple[Message, dict[str, str]]]
    items: Sequence[tuple[int, bytes, bytes]]

    @property
    def body(self) -> bytes:
        """The body of the request."""
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
    """Pack messages into batches, in order. Optimised for many messages.

    Args:
        unique_ids: ids for messages that have none.
        more: properties to add to each message.
        separated: properties end with a separator.
        limit: maximum bytes per batch.

    Raises:
        Rejected: the messages cannot be sent together, or brokers would refuse one.
        FormatError: properties that cannot be encoded.
    """
    bodies = [message.body for message in messages]
    same = UNIQ_KEY not in more and _say_the_same(messages)
    if same:
        all_named, texts = _number(messages[0].all_properties(more), unique_ids, separated=separated)
    else:
        all_named = [
            message.all_properties(more, unique_id) for message, unique_id in zip(messages, unique_ids, strict=True)
        ]
    alike = (
        all(bodies)
        and max(map(len, bodies), default=0) <= max_message_size
        and (same or _are_alike(messages, all_named))
    )
    for message, named in zip(messages[:1] if alike else messages, all_named, strict=False):
        check_message(message.topic, message.body, max_message_size)
        check_batch([(messages[0].topic, all_named[0]), (message.topic, named)])
    if not messages:
        check_batch([])
    if not same:
        texts = build_many(all_named, trailing_separator=separated)
    pairs = list(zip(messages, all_named, strict=True))
    items = list(zip([message.flag for message in messages], bodies, texts, strict=True))
    if len(items) * _LEAST + sum(map(len, bodies)) + sum(map(len, texts)) <= limit:
        return [Batch(pairs, items)]
    return [Batch(pairs[part], items[part]) for part in _split(items, limit)]


def _say_the_same(messages: Sequence[Message]) -> bool:
    """Whether the messages differ only in flag, body and unique id."""
    settings = {
        (message.topic, message.tags, message.wait_store_ok, message.delay_level, message.deliver_at)
        for message in messages
    }
    return len(settings) == 1 and not any(message.properties or message.keys for message in messages)


def _number(
    common: Mapping[str, str], unique_ids: Sequence[str], *, separated: bool
) -> tuple[list[dict[str, str]], list[bytes]]:
    """(properties of each message, these encoded) for messages that differ only in unique ids."""
    begin = build(common, trailing_separator=True) + UNIQ_KEY.encode() + bytes([NAME_END])
    end = bytes([ITEM_END]) if separated else b""
    texts = [begin + unique_id.encode() + end for unique_id in unique_ids]
    return [{**common, UNIQ_KEY: unique_id} for unique_id in unique_ids], texts


def _are_alike(messages: Sequence[Message], all_named: Sequence[Mapping[str, str]]) -> bool:
    """Whether validating the first message covers all, except for their bodies."""
    return (
        len({message.topic for message in messages}) == 1
        and len({named[WAIT] for named in all_named}) == 1
        and not any(DELAY in named for named in all_named)
    )


def _split(items: Sequence[tuple[int, bytes, bytes]], limit: int) -> Iterator[slice]:
    """Slices of messages, one per batch.

    Raises:
        Rejected: a message does not fit into a batch.
    """
    begin = taken = 0
    for number, (_flag, body, text) in enumerate(items):
        size = _LEAST + len(body) + len(text)
        if size > limit:
            raise Rejected(MESSAGE_ILLEGAL, f"a message takes {size} bytes of a batch, at most {limit} fit")
        if taken + size > limit:
            yield slice(begin, number)
            begin, taken = number, 0
        taken += size
    yield slice(begin, len(items))
