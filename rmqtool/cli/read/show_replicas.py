"""The answer of ``replicas`` for people."""

import os
from collections.abc import Iterator

from rmqtool.cli.render.console import console, facts_table, table, text
from rmqtool.cli.render.times import time_text
from rmqtool.services.comparison.report import CopyFacts, ReplicasReport
from rmqtool.store.roles.table import NAMES, Role
from rmqtool.words import counted

_ROWS = 12  # rows of each table; machine output has all


def show(report: ReplicasReport, form: str) -> None:
    """Print it."""
    out, names = console(form), _names([copy.store for copy in report.copies])
    for copy in report.copies:
        out.print(facts_table(_facts(report, copy, names)))
        out.print()
    if report.equal:
        out.print(text("The copies are equal.", "bold"))
    elif report.agreedTo is None:
        out.print(text("The logs have no common history; messages were compared one by one."))
    else:
        out.print(text(f"All logs agree from {report.agreedFrom} to {report.agreedTo}{_but(report)}."))
    for grid, rows in (
        (table("copy", "what", "topic", "queue", "offsets", "messages", "acknowledged", right=("queue", "messages")),
         [(names[row.store], _what(row.what, row.other, names), row.topic, str(row.queueId),
           f"{row.fromOffset}:{row.toOffset}", str(row.messages), row.acknowledged) for row in report.messages]),
        (table("copy", "at", "has", "topic", "queue", "offset", "why", right=("at", "queue", "offset")),
         [(names[row.store], str(row.physicalOffset), row.has, row.topic or "", _number(row.queueId),
           _number(row.queueOffset), row.fields or (row.reason or "").partition(":")[0])
          for row in report.contradictions]),
        (table("copy", "following", "then", "from", "loses", right=("from", "loses")),
         [(names[row.store], names[row.master], row.what, _number(row.at), _number(row.messages or None))
          for row in report.following]),
        (table("copy", "setting", "there", f"in {names[report.advice.store]}"),
         [(names[row.store], _setting(row.what, row.name or _queue_of(row.group, row.topic, row.queueId)),
           _short(row.here), _short(row.started)) for row in report.settings]),
    ):  # fmt: skip
        if not rows:
            continue
        for cells in rows[:_ROWS]:
            grid.add_row(*map(text, cells))
        out.print()
        out.print(grid)
        if len(rows) > _ROWS:
            out.print(text(f"and {len(rows) - _ROWS} more: --output json"))
    out.print()
    _advise(report, form)


def _advise(report: ReplicasReport, form: str) -> None:
    out, advice = console(form), report.advice
    out.print(text(f"Start {advice.store} as the {advice.role}: {advice.why}.", "bold"))
    if not advice.lost:
        out.print(text("No message of another copy is lost then."))
    else:
        parts = [(advice.lostAcknowledged, "acknowledged"), (advice.lostUnknown, "perhaps acknowledged")]
        parts.append((advice.lost - advice.lostAcknowledged - advice.lostUnknown, "never acknowledged"))
        kinds = [(number, words) for number, words in parts if number]
        how = kinds[0][1] if len(kinds) == 1 else ", ".join(f"{number} {words}" for number, words in kinds)
        out.print(text(f"Lost then: {counted(advice.lost, 'message')} of other copies, {how}."))
    if advice.cut:
        out.print(
            text(f"{counted(advice.cut, 'intact message')} of its own will not be served, and nothing prevents that.")
        )
    if advice.damaged:
        places = counted(advice.damaged, "damaged record")
        out.print(text(f"It has {places} that another copy has intact."))
    out.print()
    for number, step in enumerate(advice.steps, 1):
        out.print(facts_table([(f"{number}.", step)]))


def _names(stores: list[str]) -> dict[str, str]:
    """Short names: the last part of each path, or the path where that is not unique."""
    last = [os.path.basename(store.rstrip("/")) for store in stores]
    return {store: name if last.count(name) == 1 else store for store, name in zip(stores, last, strict=True)}


def _facts(report: ReplicasReport, copy: CopyFacts, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    yield names[copy.store], f"{NAMES[Role(copy.role)]}: {copy.reason}"
    yield "release", f"{copy.release}: {copy.releaseReason}"
    log = f"{copy.beginOffset} to {copy.endOffset}" if copy.beginOffset >= 0 else "empty"
    if copy.lastStoreTimestamp is not None:
        log += f", the last message of {time_text(copy.lastStoreTimestamp)}"
    yield "log", log
    if copy.tornBytes:
        yield "torn end", f"{counted(copy.tornBytes, 'byte')} that are no message: {copy.tornReason}"
    if copy.tornProperties:
        yield "last record", copy.tornProperties
    periods = [row for row in report.history if row.store == copy.store]
    if periods:
        kind = "terms" if periods[0].kind == "term" else "epochs"
        yield kind, ", ".join(f"{row.number} from {row.fromOffset}" for row in periods)
    if copy.committedIndex is not None:
        yield "committed", f"index {copy.committedIndex} of {copy.lastIndex}, up to {_number(copy.confirmedOffset)}"
    elif copy.confirmedOffset is not None:
        yield "confirmed", f"up to {copy.confirmedOffset}, as of the last flush"
    for problem in report.problems:
        if problem.store == copy.store:
            yield "but", problem.words
    if copy.tierOnly:
        yield "tier", f"{counted(copy.tierOnly, 'message')} in it alone, which are not compared"
    yield "messages", f"{copy.alone} in no other copy, {copy.lacks} lacking"


def _but(report: ReplicasReport) -> str:
    places = len({row.physicalOffset for row in report.contradictions if row.physicalOffset < (report.agreedTo or 0)})
    return f", but for {counted(places, 'record')}" if places else ""


def _what(what: str, other: str | None, names: dict[str, str]) -> str:
    if other is None:
        return "alone"
    return f"lacks, {names[other]} has" if what == "lacks" else f"other than {names[other]}"


def _number(number: int | None) -> str:
    return "" if number is None else str(number)


def _queue_of(group: str | None, topic: str | None, queue_id: int | None) -> str:
    return " ".join(str(part) for part in (group, topic, queue_id) if part is not None)


def _setting(what: str, name: str) -> str:
    """The file and the name in it, without that of the table."""
    return f"{what} {name.partition('.')[2] or name}".strip()


def _short(value: str | None) -> str:
    if value is None:
        return "-"
    return value if len(value) <= 20 else value[:17] + "..."
