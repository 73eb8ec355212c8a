"""What clients themselves have reported of a message: the records of the trace topic."""

from collections.abc import Iterable
from dataclasses import dataclass

from formats.errors import FormatError
from formats.message.bodies import decompress
from formats.message.read import Record
from formats.message.trace import OUTCOMES, Pub, SubAfter, SubBefore, TransactionEnd, parse_records
from formats.primitives import COMPRESSED, host_text
from rmqtool.contract import PlainRow

SENT, RECEIVED, CONSUMED, ENDED = "sent", "received", "consumed", "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(PlainRow):
    """One record of a client with ``enableMsgTrace``."""

    time: int  # ms, by the client's clock
    event: str  # sent, received, consumed or ended (a transaction)
    group: str
    clientHost: str
    topic: str | None  # of producers
    tookMillis: int | None
    success: bool | None
    outcome: str | None  # of a listener, or of a transaction
    retryTimes: int | None  # of consumers
    requestId: str | None  # the same for received and consumed


def reports_in(records: Iterable[Record], message_id: str) -> list[Report]:
    """The reports of one message in messages of the trace topic, by time.

    Args:
        message_id: unique id.
    """
    reports: dict[Report, None] = {}
    for record in records:
        body = bytes(record.body)
        if record.sys_flag & COMPRESSED:
            try:
                body = decompress(body, record.sys_flag)
            except FormatError:
                continue
        host = host_text(record.born_address, record.born_port)
        for item in parse_records(body.decode("utf-8", "replace")):
            if item.message_id == message_id:
                reports[_report(item, host)] = None
    return sorted(reports, key=lambda report: (report.time, report.event != SENT, report.event == CONSUMED))


def _report(item: Pub | SubBefore | SubAfter | TransactionEnd, host: str) -> Report:
    topic = item.topic if isinstance(item, Pub | TransactionEnd) else None
    took = item.took if isinstance(item, Pub | SubAfter) else None
    outcome = None
    if isinstance(item, SubAfter) and item.outcome < len(OUTCOMES):
        outcome = OUTCOMES[item.outcome]
    elif isinstance(item, TransactionEnd):
        outcome = item.state
    names = {Pub: SENT, SubBefore: RECEIVED, SubAfter: CONSUMED, TransactionEnd: ENDED}
    return Report(
        time=item.time,
        event=names[type(item)],
        group=item.group,
        clientHost=host,
        topic=topic,
        tookMillis=took,
        success=item.success if isinstance(item, Pub | SubAfter) else None,
        outcome=outcome,
        retryTimes=item.retry_times if isinstance(item, SubBefore) else None,
        requestId=item.request_id if isinstance(item, SubBefore | SubAfter) else None,
    )
