"""Message trace records, the content of messages of the topic ``RMQ_SYS_TRACE_TOPIC``.

Fields are separated by U+0001 and records end with U+0002; clients write ``null`` for an unknown value.
Source: client.trace.TraceDataEncoder (4.9.8, 5.3.3).
"""

from dataclasses import dataclass
from typing import ClassVar

NORMAL, HALF, COMMIT, DELAYED = 0, 1, 2, 3  # types of messages (MessageType)
OUTCOMES = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")  # results of a listener (ConsumeReturnType)
_FIELD, _END = "\x01", "\x02"


class _TraceRecord:
    """A record whose stored form is its type (TraceType) and its fields in order."""

    trace_type: ClassVar[str]

    def text(self) -> str:
        """Return the stored form."""
        return _record(self.trace_type, *vars(self).values())


@dataclass(frozen=True, kw_only=True)
class _OfMessage(_TraceRecord):
    """How a record of a producer's message begins; ``time`` is in ms since the epoch."""

    time: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str


@dataclass(frozen=True, kw_only=True)
class Pub(_OfMessage):
    """A message was sent; ``took`` is in ms."""

    trace_type = "Pub"
    body_length: int
    took: int
    kind: int
    offset_message_id: str | None
    success: bool


@dataclass(frozen=True, kw_only=True)
class SubBefore(_TraceRecord):
    """A consumer is about to receive a message; the matching :class:`SubAfter` has the same ``request_id``."""

    trace_type = "SubBefore"
    time: int
    region: str | None
    group: str
    request_id: str
    message_id: str
    retry_times: int
    keys: str | None


@dataclass(frozen=True, kw_only=True)
class SubAfter(_TraceRecord):
    """A consumer has processed a message; ``outcome`` is an index into :data:`OUTCOMES`."""

    trace_type = "SubAfter"
    request_id: str
    message_id: str
    took: int
    success: bool
    keys: str | None
    outcome: int
    time: int
    group: str


@dataclass(frozen=True, kw_only=True)
class TransactionEnd(_OfMessage):
    """A producer has reported the outcome of a transaction."""

    trace_type = "EndTransaction"
    kind: int
    transaction_id: str | None
    state: str
    from_check: bool


def parse_sub_after(text: str) -> list[SubAfter]:
    """The records of processed messages in the content of a trace message; other and malformed records are skipped.

    Clients before 4.9 write neither time nor group.
    """
    records = []
    for line in text.split(_END):
        kind, *fields = line.split(_FIELD)
        if kind != SubAfter.trace_type or len(fields) < 8:
            continue
        request_id, message_id, took, success, keys, outcome, time, group = fields[:8]
        numbers = took.removeprefix("-"), outcome, time
        if not all(number.isascii() and number.isdecimal() and len(number) < 19 for number in numbers):
            continue
        records.append(
            SubAfter(
                request_id=request_id,
                message_id=message_id,
                took=int(took),
                success=success == "true",
                keys=None if keys == "null" else keys,
                outcome=int(outcome),
                time=int(time),
                group=group,
            )
        )
    return records


def parse_records(text: str) -> list[Pub | SubBefore | SubAfter | TransactionEnd]:
    """All records in the content of a trace message; malformed ones and those of other kinds are skipped."""
    records: list[Pub | SubBefore | SubAfter | TransactionEnd] = []
    for line in text.split(_END):
        kind, *fields = line.split(_FIELD)
        if kind == SubAfter.trace_type:
            records += parse_sub_after(line)
            continue
        try:
            if kind == Pub.trace_type and len(fields) >= 12:
                records.append(_parse_pub(fields))
            elif kind == SubBefore.trace_type and len(fields) >= 7:
                time, region, group, request_id, message_id, retry_times, keys = fields[:7]
                records.append(
                    SubBefore(
                        time=_number(time), region=_or_none(region), group=group, request_id=request_id,
                        message_id=message_id, retry_times=_number(retry_times), keys=_or_none(keys),
                    )
                )  # fmt: skip
            elif kind == TransactionEnd.trace_type and len(fields) >= 12:
                time, region, group, topic, message_id, tags, keys, host, type_, transaction_id, state, check = fields[
                    :12
                ]
                records.append(
                    TransactionEnd(
                        time=_number(time), region=region, group=group, topic=topic, message_id=message_id,
                        tags=_or_none(tags), keys=_or_none(keys), store_host=host, kind=_number(type_),
                        transaction_id=_or_none(transaction_id), state=state, from_check=check == "true",
                    )
                )  # fmt: skip
        except ValueError:
            continue
    return records


def _parse_pub(fields: list[str]) -> Pub:
    """From the fields behind the kind; clients before 4.4 write no offset id.

    Raises:
        ValueError: a number is none.
    """
    time, region, group, topic, message_id, tags, keys, host, length, took, kind = fields[:11]
    offset_message_id = fields[11] if len(fields) > 12 else None
    return Pub(
        time=_number(time), region=region, group=group, topic=topic, message_id=message_id, tags=_or_none(tags),
        keys=_or_none(keys), store_host=host, body_length=_number(length), took=_number(took), kind=_number(kind),
        offset_message_id=None if offset_message_id is None else _or_none(offset_message_id),
        success=fields[12 if len(fields) > 12 else 11] == "true",
    )  # fmt: skip


def _number(text: str) -> int:
    """A number of up to 18 digits.

    Raises:
        ValueError: it is none.
    """
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 19):
        raise ValueError(text)
    return int(text)


def _or_none(text: str) -> str | None:
    return None if text == "null" else text


def _record(*fields: str | int | bool | None) -> str:
    return _FIELD.join(map(_text, fields)) + _END


def _text(value: str | int | bool | None) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
