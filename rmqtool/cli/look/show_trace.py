"""One message's life, or one transaction, for people and for scripts."""

from rmqtool.cli.look.show_info import console, facts_table
from rmqtool.cli.shell.output import PEOPLE, with_times, write_object
from rmqtool.cli.shell.parts import PARTS
from rmqtool.cli.shell.show_rows import write_rows
from rmqtool.cli.shell.times import time_text
from rmqtool.services.waiting.half_messages import HalfCopy, TransactionInfo
from rmqtool.services.waiting.trace import Event, Taken, Trace

_EVENT_NAMES = (
    *("time", "event", "topic", "queueId", "queueOffset", "physicalOffset", "reconsumeTimes", "group"),
    *("deliverTimestamp", "detail"),
)
_TAKEN_NAMES = ("group", "topic", "queueId", "queueOffset", "consumerOffset", "passed")


def write_trace(found: Trace, form: str) -> None:
    """Print a trace; as CSV it is one row an event."""
    if form in ("json", "ndjson"):
        write_object(form, with_times(found.to_dict()))
    elif PARTS.write(found, form):
        pass
    elif form == "csv":
        write_rows(form, Event, found.events)
    else:
        rows = [("message", found.msgId or found.id), ("state", found.state)]
        if found.transaction is not None:
            rows.append(("transaction", _state(found.transaction)))
        out = console(form)
        out.print(facts_table(rows))
        if found.events:
            out.print()
            out.file.flush()
            write_rows(form, Event, found.events, _EVENT_NAMES, wide=("detail",))
        if found.groups:
            out.print()
            out.file.flush()
            write_rows(form, Taken, found.groups, _TAKEN_NAMES)


def write_transaction(info: TransactionInfo, form: str) -> None:
    """Print a transaction; as CSV it is one row a copy of the half message."""
    if form in ("json", "ndjson"):
        write_object(form, with_times(info.to_dict()))
        return
    if form in PEOPLE:
        rows = [
            ("message", info.msgId),
            ("state", _state(info)),
            ("producer group", info.producerGroup or "-"),
            ("for", f"{info.topic} queue {info.queueId}"),
            ("keys", info.keys or "-"),
            ("begun", time_text(info.storeTimestamp)),
        ]
        if info.endTimestamp is not None:
            rows.append(("ended", time_text(info.endTimestamp)))
        if info.commitPhysicalOffset is not None:
            rows.append(("committed message at", f"physical offset {info.commitPhysicalOffset}"))
        if info.givenUpPhysicalOffset is not None:
            rows.append(("given up at", f"physical offset {info.givenUpPhysicalOffset}"))
        out = console(form)
        out.print(facts_table(rows))
        out.print()
        out.file.flush()
    write_rows(form, HalfCopy, info.copies)


def _state(info: TransactionInfo) -> str:
    checks = f" after {info.checkTimes} checks" if info.checkTimes else ""
    return info.state + checks + (f" ({info.note})" if info.note else "")
