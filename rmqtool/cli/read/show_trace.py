"""One message's life, or one transaction, for people and for scripts."""

import sys
from collections.abc import Sequence

from rmqtool.cli.render.console import console, facts_table
from rmqtool.cli.render.output import PEOPLE, TABLES, write_object
from rmqtool.cli.render.parts import PARTS
from rmqtool.cli.render.rows import write_rows
from rmqtool.cli.render.text import cell_text, fold, plain
from rmqtool.cli.render.times import time_text, with_times
from rmqtool.services.trace import Event, Trace
from rmqtool.services.trace_reports import Report
from rmqtool.services.transactions.half_messages import HalfCopy, TransactionInfo
from rmqtool.words import counted

_EVENT_NAMES = (
    *("time", "event", "topic", "queueId", "queueOffset", "physicalOffset", "reconsumeTimes", "group"),
    *("deliverTimestamp", "detail"),
)
_TAKEN_NAMES = ("group", "topic", "queueId", "queueOffset", "consumerOffset", "passed", "why")
_REPORT_NAMES = (
    "time", "event", "group", "clientHost", "topic", "tookMillis", "success", "outcome", "retryTimes",
)  # fmt: skip
_MOST_BODY = 1000  # characters


def write_trace(trace: Trace, form: str) -> None:
    """Print a trace; CSV has one row per event."""
    if form in ("json", "ndjson"):
        write_object(form, with_times(trace.to_dict()))
    elif PARTS.write(trace, form):
        pass
    elif form == "csv":
        write_rows(form, type(trace.events[0]) if trace.events else Event, trace.events)
    else:
        rows = [("message", trace.msgId or trace.id), ("state", trace.state)]
        if trace.transaction is not None:
            rows.append(("transaction", _state(trace.transaction)))
        body = cell_text(trace.body)
        known = [("tag", trace.tags or ""), ("keys", " ".join(trace.keys)), ("body", body)]
        if len(body) > _MOST_BODY:
            known[-1] = ("body", f"{body[:_MOST_BODY]}… (all of it: --output json)")
        rows[1:1] = [(name, text) for name, text in known if text]
        out = console(form)
        out.print(facts_table(rows))
        if trace.events:
            out.print()
            out.file.flush()
            if form == "table" or TABLES.columns or TABLES.wide:
                write_rows(form, type(trace.events[0]), trace.events, _EVENT_NAMES, wide=("detail",))
            else:
                _write_events(trace.events, out.width)
        if trace.groups:
            out.print()
            out.file.flush()
            write_rows(form, type(trace.groups[0]), trace.groups, _TAKEN_NAMES, wide=("why",))
        if trace.reports:
            out.print()
            out.file.flush()
            write_rows(form, Report, trace.reports, _REPORT_NAMES, spare=("retryTimes", "topic", "success"))


def _write_events(events: Sequence[Event], width: int) -> None:
    """Show each event on one line, wrapped if too long."""
    room = max(len(event.event) for event in events)
    for event in events:
        time = time_text(event.time)
        waits = event.event in ("delayed", "retry-delayed") and event.detail  # whose text names level and topic
        more = [] if waits else [f"{event.topic}/{event.queueId} offset {event.queueOffset}"]
        more += [event.detail] if event.detail else []
        if event.deliverTimestamp:
            until = time_text(event.deliverTimestamp)
            more.append(f"until {until[11:] if until[:11] == time[:11] else until}")
        if event.group and event.group not in "".join(more):
            more.append(f"group {event.group}")
        line = plain(f"{time}  {event.event.ljust(room)}  {', '.join(more)}")
        sys.stdout.write(fold(line, sys.stdout, hang=" " * 8, columns=width) + "\n")


def write_transaction(info: TransactionInfo, form: str) -> None:
    """Print a transaction; CSV has one row per copy of the half message."""
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
    write_rows(form, HalfCopy, info.copies, spare=("checkTimes",))


def _state(info: TransactionInfo) -> str:
    checks = f" after {counted(info.checkTimes, 'check')}" if info.checkTimes else ""
    return (info.state or "not known") + checks + (f" ({info.note})" if info.note else "")
