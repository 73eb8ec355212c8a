"""Inner batches of 5.x: many messages in one record, which topics with batch consume queues take.

Source: broker.processor.SendMessageProcessor.sendBatchMessage (5.3.3); store-formats 2.10. A broker keeps in one record
what a client sent as a batch with an id of its own, which clients of 5.x give it. It stores other batches message by
message.
"""

from collections.abc import Sequence
from dataclasses import replace

from formats.errors import FormatError
from formats.message.bodies import BatchItem, batch_items, build_batch
from formats.message.inner import BATCH_BITS, batch_numbers
from formats.message.properties import UNIQ_KEY
from rmqtool.store.append.answers import Illegal, PutStatus
from rmqtool.store.append.outgoing import Message, Ready, Rules


def is_named(batch: Message) -> bool:
    """Whether a batch as clients send it has an id of its own."""
    return UNIQ_KEY in batch.property_map()


def as_inner_batch(batch: Message) -> Message:
    """A batch as clients send it, to be stored as one record."""
    return replace(batch, sys_flag=batch.sys_flag | BATCH_BITS)


def check_items(batch: Message) -> None:
    """Look through a batch that batch queues get message by message.

    Raises:
        Illegal: a message has the numbers of an inner batch, which dispatch would go by.
    """
    try:
        numbered = any(batch_numbers(item.properties) is not None for item in batch_items(batch.body))
    except FormatError as err:
        raise Illegal(PutStatus.MESSAGE_ILLEGAL, str(err)) from None
    if numbered:
        raise Illegal(PutStatus.MESSAGE_ILLEGAL, "a message of a batch has the numbers of an inner batch")


def gather_batch(messages: Sequence[Message], rules: Rules) -> Message:
    """Messages of one queue as an inner batch, each with its own flag, body and properties.

    Raises:
        Illegal: one of them is not taken, or they differ in what a record says once for all of them.
    """
    ready = [rules.ready(message, batch=True) for message in messages]
    if len({(message.topic, message.queue_id) for message in ready}) > 1:
        raise Illegal(PutStatus.MESSAGE_ILLEGAL, "a batch goes to one queue")
    if any(message.inner_messages for message in ready):
        raise Illegal(PutStatus.MESSAGE_ILLEGAL, "an inner batch holds no other one")
    if len({_said_once(message) for message in ready}) > 1:
        text = "the messages of an inner batch have the same times, hosts, system flag and number of retries"
        raise Illegal(PutStatus.MESSAGE_ILLEGAL, text)
    body = build_batch([BatchItem(message.flag, message.body, message.properties) for message in ready])
    return as_inner_batch(replace(messages[0], body=body, properties={}, tags=None, keys=None, flag=0))


def _said_once(ready: Ready) -> tuple[object, ...]:
    times = ready.born_timestamp, ready.store_timestamp, ready.reconsume_times
    return ready.sys_flag, *times, ready.born_host, ready.store_host, ready.prepared_transaction_offset
