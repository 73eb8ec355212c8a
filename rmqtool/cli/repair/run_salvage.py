"""``salvage`` and ``export`` behind their options."""

import os
import sys
from collections.abc import Callable
from typing import Any

from rmqtool.cli.read.run_files import say_damage
from rmqtool.cli.render.output import PEOPLE, Column, NdjsonWriter, write_all, write_object, writer
from rmqtool.cli.render.text import dump_json, note
from rmqtool.contract import message_row
from rmqtool.errors import BadValue, OutputLost
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage
from rmqtool.store.salvage.carve import Salvage
from rmqtool.store.salvage.to_file import WriteAll, salvage_to_file, salvaged_log, tell_torn
from rmqtool.store.salvage.whole import export_store
from rmqtool.store.tier.left_behind import NotTaken, left_behind, words_of
from rmqtool.store.tier.only_tiered import LogWithTier
from rmqtool.words import command_line, counted

_FIELDS = ("file", "at", "physicalOffset", "length", "reason", "copy")


def run_salvage(layout: StoreLayout, new_store: str, output: str) -> int:
    """``salvage`` into a store: 0, or 1 when something was lost."""
    report = Salvage(layout, new_store).run()
    _say(report.to_dict(), output)
    for queue in report.renumbered:
        lost = counted(queue.lost, "message is lost", "messages are lost")
        note(f"not kept: {queue.topic} queue {queue.queueId}: {lost}; the offsets of later ones moved down by that")
    for empty in report.emptyQueues:
        if not empty.kept:
            ended = f"ended at queue offset {empty.endedAt}, and none of its messages is in the log"
            goes_on = f"goes on at {empty.endsAt}" if empty.endsAt else "begins at 0 again"
            note(f"not kept: {empty.topic} queue {empty.queueId}: {ended}: it {goes_on}")
    if report.restarted:
        again = counted(report.restarted, "message", "messages")
        note(f"{again} of queues that began again at a lower offset: put after the earlier ones")
    if report.tornProperties:
        torn = counted(report.tornProperties, "message")
        note(f"{torn} with torn properties taken all the same: lost+found has the record as it was, too")
    if report.leftOut:
        note(f"not kept, because it cannot be read: {', '.join(report.leftOut)}")
    kept = f"{counted(report.messages, 'message')}, {counted(report.bytes, 'byte')} in {report.store}"
    note(f"{kept}; {_unreadable(report.lostBytes, report.lostRangeCount)}")
    if report.lostRangeCount:
        note(f"the bytes that hold no message are kept in {os.path.join(report.store, 'lost+found')}")
    left = _say_left(report.notTaken)
    note(
        f"next: {command_line('check', report.store)}; then start the broker on it, and keep {report.source} until "
        "nothing is missed"
    )
    return 1 if left or report.lostRangeCount or not all(empty.kept for empty in report.emptyQueues) else 0


def _say_left(left: list[NotTaken]) -> bool:
    """Say which messages are not taken, because they are in the tier alone; whether there are any."""
    for one in left:
        note(f"{one.topic} queue {one.queueId}: {counted(one.messages, 'message')} not taken, "
             f"queue offsets {one.firstOffset} to {one.nextOffset - 1}")  # fmt: skip
    if (words := words_of(left, "not taken")) is not None:
        note(words)
    return bool(left)


def _unreadable(lost: int, ranges: int) -> str:
    if not ranges:
        return "nothing was unreadable"
    return f"{counted(lost, 'byte')} in {counted(ranges, 'place')} not readable"


def run_whole(layout: StoreLayout, new_store: str, output: str) -> int:
    """``export``: 0.

    Raises:
        CorruptFile: not all of the source can be read, or be as it was.
    """
    report = export_store(layout, new_store)
    if output in PEOPLE:  # of what was lost, which is nothing
        _warn(report.warnings)
    else:
        _say(report.to_dict(), output)
    kept = f"{counted(report.messages, 'message')}, {counted(report.bytes, 'byte')}"
    moved = "queue offsets" if layout.dledger_dirs() or report.takenFromTier else "offsets"
    note(f"{kept} in {report.store}, at the {moved} that they had")
    return 0


def run_to_file(layout: StoreLayout, form: str, out: str, output: str) -> int:
    """``salvage --to``: 0, or 1 when something was lost.

    Raises:
        BadValue: stdout for Parquet, which readers must be able to seek in.
    """
    if out == "-":
        if form != "ndjson":
            raise BadValue(f"--to {form} needs a file, not -")
        return _to_stdout(layout)
    report = salvage_to_file(layout, out, form, _writer_of(form))
    _say(report.to_dict(), output)
    kept = f", kept in {os.path.relpath(report.lostFound)}" if report.lostFound else ""
    lost = _unreadable(report.lostBytes, report.lostRangeCount)
    note(f"{counted(report.messages, 'message')} in {report.out}; {lost}{kept}")
    return 1 if _say_left(report.notTaken) or report.lostRangeCount else 0


def _writer_of(form: str) -> WriteAll:
    if form == "ndjson":
        return write_ndjson
    from rmqtool.analytics.dump.salvaged import write_parquet

    return write_parquet


def write_ndjson(log: CommitLog, path: str, tell: Callable[[Damage], None]) -> int:
    """Every intact message as a line of ``commitlog dump``; returns their number."""
    messages = 0
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
        for item in log.walk():
            if isinstance(item, Damage):
                tell(item)
                continue
            tell_torn(item, tell)
            for message in item.messages():
                file.write(dump_json(message_row(message.record, message.physical_offset)) + "\n")
                messages += 1
    return messages


def _to_stdout(layout: StoreLayout) -> int:
    log, warnings, disk = salvaged_log(layout)
    for warning in warnings:
        note(f"warning: {warning}")
    to, messages, lost = NdjsonWriter(sys.stdout), 0, 0

    def tell(item: Damage) -> None:
        nonlocal lost
        say_damage(item._replace(path=disk.name(item.path)))
        lost += item.length

    for item in log.walk():
        if isinstance(item, Damage):
            tell(item)
            continue
        tell_torn(item, tell)
        for message in item.messages():
            row = message_row(message.record, message.physical_offset)
            try:
                to.row(row)
            except OSError as err:
                raise _cut_off(err) from err
            messages += 1
    try:
        to.close()
    except OSError as err:
        raise _cut_off(err) from err
    note(f"{counted(messages, 'message')}; {counted(lost, 'byte')} not readable")
    taken = isinstance(log, LogWithTier) and log.tiered.messages
    return 1 if (not taken and _say_left(left_behind(layout))) or lost else 0


def _cut_off(err: OSError) -> OutputLost:
    return OutputLost(f"stdout: {os.strerror(err.errno or 0)}: not all messages are written")


def _say(report: dict[str, Any], output: str) -> None:
    """The lost ranges, or as an object all of the report; warnings."""
    if output in ("json", "ndjson"):
        write_object(output, report)
    else:
        columns = [Column(name, right=name in ("at", "physicalOffset", "length")) for name in _FIELDS]
        write_all(writer(output, _FIELDS, columns), report["lostRanges"])
    if (more := report["lostRangeCount"] - len(report["lostRanges"])) > 0:
        note(f"{counted(more, 'more range')} in the manifest")
    _warn(report["warnings"])


def _warn(warnings: list[str]) -> None:
    for warning in warnings:
        note(f"warning: {warning}")
