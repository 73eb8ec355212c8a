"""Inner batches of 5.x: many messages in one record, for topics with batch consume queues.

Source: broker.processor.SendMessageProcessor.sendBatchMessage (5.3.3); store-formats 2.10. A broker stores a client's
batch as one record if it has an id of its own, as batches of 5.x clients have. It stores other batches message by
message.
"""

from collections.abc import Sequence
from dataclasses import replace

from formats.errors import FormatError
from formats.message.bodies import BatchItem, batch_items, build_batch
from formats.message.inner import BATCH_BITS, batch_numbers
from formats.message.properties import UNIQ_KEY
from rmqtool.store.append.answers import Illegal, PutStatus
from rmqtool.store.append.outgoing import AppendRules, NewMessage, Ready


def is_named(batch: NewMessage) -> bool:
    """Whether a client's batch has an id of its own."""
    return UNIQ_KEY in batch.property_map()


def as_inner_batch(batch: NewMessage) -> NewMessage:
    """Mark a client's batch to be stored as one record."""
    return replace(batch, sys_flag=batch.sys_flag | BATCH_BITS)


def check_items(batch: NewMessage) -> None:
    """Check a batch whose messages go to batch queues one by one.

    Raises:
        Illegal: a message has the numbers of an inner batch, which would mislead dispatch.
    """
    try:
        numbered = any(batch_numbers(item.properties) is not None for item in batch_items(batch.body))
    except FormatError as err:
        raise Illegal(PutStatus.MESSAGE_ILLEGAL, str(err)) from None
    if numbered:
        raise Illegal(PutStatus.MESSAGE_ILLEGAL, "a message of a batch has the numbers of an inner batch")


def gather_batch(messages: Sequence[NewMessage], rules: AppendRules) -> NewMessage:
    """Combine messages of one queue into an inner batch; each keeps its flag, body and properties.

    Raises:
        Illegal: one of them is rejected, or they differ in fields that the record has only once.
    """
    ready = [rules.ready(message, batch=True) for message in messages]
    if len({(message.topic, message.queue_id) for message in ready}) > 1:
        raise Illegal(PutStatus.MESSAGE_ILLEGAL, "a batch goes to one queue")
    if any(message.inner_messages for message in ready):
        raise Illegal(PutStatus.MESSAGE_ILLEGAL, "an inner batch holds no other one")
    if len({_shared_fields(message) for message in ready}) > 1:
        text = "the messages of an inner batch have the same times, hosts, system flag and number of retries"
        raise Illegal(PutStatus.MESSAGE_ILLEGAL, text)
    body = build_batch([BatchItem(message.flag, message.body, message.properties) for message in ready])
    return as_inner_batch(replace(messages[0], body=body, properties={}, tags=None, keys=None, flag=0))


def _shared_fields(ready: Ready) -> tuple[object, ...]:
    times = ready.born_timestamp, ready.store_timestamp, ready.reconsume_times
    return ready.sys_flag, *times, ready.born_host, ready.store_host, ready.prepared_transaction_offset
