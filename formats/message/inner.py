"""The messages of an inner batch: one 5.x record that holds many messages, for topics with batch consume queues.

Source: common.message.MessageDecoder.decodeMessage, client.impl.consumer.PullAPIWrapper, which split the messages they
pulled; store-formats 2.10. Clients never compress a whole batch, so a record that is flagged as compressed is not
split, nor is one whose body is not a valid batch.
"""

from collections.abc import Iterator

from formats.errors import FormatError
from formats.message.bodies import BatchSpan, batch_spans
from formats.message.properties import BATCH_NUMBERS, INNER_BASE, parse_raw
from formats.message.read import Record, is_java_int
from formats.primitives import COMPRESSED, INNER_BATCH, NEED_UNWRAP, crc31

BATCH_BITS = INNER_BATCH | NEED_UNWRAP  # of sys_flag; cleared in the messages of a batch
_BATCH_MARK = INNER_BASE.encode() + b"\x01"


def batch_numbers(properties: bytes) -> tuple[int, int] | None:
    """Return (first queue offset, message count) from the properties, or None unless both are numbers.

    Dispatch in 5.x uses these properties whatever the flags are (CommitLog.setBatchSizeIfNeeded). Without them a record
    is one message at its own queue offset. Unparsable numbers are treated as damage.
    """
    if _BATCH_MARK not in properties:
        return None
    by_name = parse_raw(properties)
    if not all(name in by_name and is_java_int(by_name[name], bits) for name, bits in BATCH_NUMBERS):
        return None
    base, count = (int(by_name[name]) for name, _bits in BATCH_NUMBERS)
    return base, count


def is_inner_batch(sys_flag: int) -> bool:
    """Return whether a record's body should be a batch."""
    return sys_flag & (INNER_BATCH | COMPRESSED) == INNER_BATCH


def spans_of(buf: bytes | memoryview, at: int, stop: int) -> Iterator[BatchSpan] | None:
    """Yield the positions of the messages in a record's body, bytes [at, stop) of a buffer; None if it is not a batch.

    The body is validated in a first pass, so that a batch is split either completely or not at all.
    """
    try:
        count = sum(1 for _span in batch_spans(buf, at, stop))
    except FormatError:
        return None
    return batch_spans(buf, at, stop) if count else None


def messages_in(record: Record) -> Iterator[Record]:
    """Yield the messages of a record: those of an inner batch in order, otherwise the record itself.

    A message of a batch has its own flag, body, properties, queue offset and body checksum; all other fields are those
    of the record, including ``total_size`` and ``physical_offset``.
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
