"""The messages of an inner batch: one record of 5.x that holds many, for topics with batch consume queues.

Source: common.message.MessageDecoder.decodeMessage, client.impl.consumer.PullAPIWrapper, which divide what they
pulled; store-formats 2.10. Clients never compress a batch as a whole, so a record that says it is compressed is left
undivided, and so is one whose body is no batch.
"""

from collections.abc import Iterator

from formats.errors import FormatError
from formats.message.bodies import BatchSpan, batch_spans
from formats.message.properties import BATCH_NUMBERS, INNER_BASE, parse_raw
from formats.message.read import Record, is_java_int
from formats.primitives import COMPRESSED, INNER_BATCH, NEED_UNWRAP, crc31

BATCH_BITS = INNER_BATCH | NEED_UNWRAP  # of sys_flag; a message of a batch is no batch itself
_BATCH_MARK = INNER_BASE.encode() + b"\x01"


def batch_numbers(properties: bytes) -> tuple[int, int] | None:
    """(first queue offset, messages) as properties say them, whatever the flags; None unless they say both as numbers.

    Dispatch of 5.x goes by them (CommitLog.setBatchSizeIfNeeded); without them a record is one message, at its own
    queue offset. Numbers that cannot be read are damage to it.
    """
    if _BATCH_MARK not in properties:
        return None
    properties_map = parse_raw(properties)
    if not all(name in properties_map and is_java_int(properties_map[name], bits) for name, bits in BATCH_NUMBERS):
        return None
    base, count = (int(properties_map[name]) for name, _bits in BATCH_NUMBERS)
    return base, count


def is_inner_batch(sys_flag: int) -> bool:
    """Whether a record's body should be a batch."""
    return sys_flag & (INNER_BATCH | COMPRESSED) == INNER_BATCH


def spans_of(buf: bytes | memoryview, at: int, stop: int) -> Iterator[BatchSpan] | None:
    """Where the messages of a record's body, bytes [at, stop) of a buffer, lie; None when it is no batch.

    The body is gone through once before, so that a batch is either divided as a whole or not at all.
    """
    try:
        count = sum(1 for _span in batch_spans(buf, at, stop))
    except FormatError:
        return None
    return batch_spans(buf, at, stop) if count else None


def messages_in(record: Record) -> Iterator[Record]:
    """The messages of a record: those of an inner batch in their order, else the record itself.

    A message of a batch has its own flag, body, properties and queue offset, and the checksum of its own body; all else
    is the record's, ``total_size`` and ``physical_offset`` too.
    """
    body = record.body
    spans = spans_of(body, 0, len(body)) if is_inner_batch(record.sys_flag) else None
    if spans is None:
        yield record
        return
    for number, (flag, body_at, body_length, properties_at, properties_length) in enumerate(spans):
        own = body[body_at : body_at + body_length]
        yield record._replace(
            body_crc=crc31(own),
            flag=flag,
            queue_offset=record.queue_offset + number,
            sys_flag=record.sys_flag & ~BATCH_BITS,
            body_length=body_length,
            body=own,
            properties=body[properties_at : properties_at + properties_length],
        )
