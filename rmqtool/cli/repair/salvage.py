"""The commands ``salvage`` and ``export``: a store into a fresh one, all that is intact or exactly as it is."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import open_copies, open_store
from rmqtool.cli.framework.options import BrokerConfOption, ConfsOption, Output, OutputOption, StoreDir, option
from rmqtool.cli.render.output import PEOPLE, Column, NdjsonWriter, write_all, write_object, writer
from rmqtool.cli.render.text import dump_json, note
from rmqtool.contract import message_row
from rmqtool.errors import BadValue, OutputLost
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage
from rmqtool.store.salvage.carve import Salvage
from rmqtool.store.tier.only_tiered import LogWithTier, NotTaken, describe_left, find_only_tiered
from rmqtool.words import command_line, counted

if TYPE_CHECKING:
    from rmqtool.store.salvage.to_file import WriteAll

_FIELDS = ("file", "at", "physicalOffset", "length", "reason", "copy")


class MessageForm(StrEnum):
    """What messages are written as, instead of a store."""

    ndjson = "ndjson"
    parquet = "parquet"


@command("salvage", "rmqtool salvage store newstore", progress=True)
def salvage(
    stores: Annotated[
        list[str], typer.Argument(metavar="STORE...", help="Directory of the broker's store, or of each of its copies.")
    ],
    new_store: Annotated[
        str,
        typer.Argument(metavar="NEWSTORE", help="Directory to create, or with --to the file; must not exist."),
    ],
    to: Annotated[
        MessageForm | None,
        option("--to", "FORM", "Write the messages to a file: ndjson (also - for stdout) or parquet."),
    ] = None,
    output: OutputOption = Output.text,
    broker_conf: ConfsOption = None,
) -> int:
    """Copy every intact message, even beyond damage, into a new store that a broker starts on.

    The source is not changed. The new store gets queues, index and checkpoint, and the readable config files; of a
    source whose log is not there it gets these alone, and the exit code is 1. Unreadable bytes are kept in
    NEWSTORE/lost+found. Exit code 0: nothing was lost; 1: something was.

    Given several copies of a store, such as a master and its slaves, takes every message that is intact in any of
    them, once. Where copies contradict each other, lost+found has the record of each, and the exit code is 1. A tier
    whose segments are files here is one more copy.

    With --to the messages go to one file: ndjson as printed by commitlog dump, or parquet with the columns of
    dump-to-parquet. Unreadable bytes are then kept beside it, in NEWSTORE.lost+found.
    """
    if len(stores) > 1:
        if to is not None:
            raise BadValue("--to: give one STORE; several become a store")
        return _salvage_copies(open_copies(stores, broker_conf, "not taken"), new_store, output.value)
    layout = open_store(stores[0], broker_conf[0] if broker_conf else None)
    if to is not None:
        return _salvage_to_file(layout, to.value, new_store, output.value)
    return _salvage_to_store(layout, new_store, output.value)


@command("export", "rmqtool export store newstore", progress=True)
def export(
    store: StoreDir,
    new_store: Annotated[str, typer.Argument(metavar="NEWSTORE", help="Directory to create; must not exist.")],
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Rewrite a store in RocksDB form as files, with the same offsets.

    Messages keep their physical and queue offsets and groups their progress; timers and messages held by POP consumers
    keep waiting. The source is not changed, and its broker must be stopped. A broker starts on NEWSTORE without
    storeType=defaultRocksDB; a store that already consists of files is copied.

    All or nothing: if something cannot be read, or an offset or deliver time would change, no store is made and the
    exit code is 5; salvage then keeps every intact message.
    """
    return _export(open_store(store, broker_conf), new_store, output.value)


def _salvage_copies(layouts: list[StoreLayout], new_store: str, output: str) -> int:
    """``salvage`` of several copies: 0, or 1 when something was lost or is contradicting."""
    from rmqtool.services.comparison.replicas import rank_copies

    ranked = rank_copies(layouts, lambda text: note(f"warning: {text}"))
    return _salvage_to_store(ranked[0], new_store, output, ranked[1:])


def _salvage_to_store(layout: StoreLayout, new_store: str, output: str, others: Sequence[StoreLayout] = ()) -> int:
    """``salvage`` into a store: 0, or 1 when something was lost."""
    report = Salvage(layout, new_store, others=others).run()
    _say(report.to_dict(), output)
    for copy in report.copies:
        taken, known = counted(copy.taken, "message"), f"{copy.known} that another copy had, too"
        note(f"{copy.store}: {taken} taken, {known}, {copy.damaged} damaged, {copy.contradicting} contradicting")
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
        note(f"{torn} with torn properties taken as stored: check of the new store warns, too (log-properties)")
    if report.mendedPorts:
        mended = counted(report.mendedPorts, "message")
        note(f"{mended} with an impossible port copied with port 0: lost+found also has the record as it was")
    if report.leftOut:
        note(f"not kept, because it cannot be read: {', '.join(report.leftOut)}")
    kept = f"{counted(report.messages, 'message')}, {counted(report.bytes, 'byte')} in {report.store}"
    unreadable = report.lostBytes - report.contradictingBytes, report.lostRangeCount - report.contradictions
    note(f"{kept}; {_unreadable(*unreadable)}")
    folder = os.path.join(report.store, "lost+found")
    if report.contradictions:
        note(
            f"{counted(report.contradictions, 'record')} of copies that contradict each other: all are kept in {folder}"
        )
    if unreadable[1] > 0:
        note(f"the bytes that hold no message are kept in {folder}")
    left = _say_left(report.notTaken)
    sources = report.source if not others else "all copies"
    start = "start the broker on it"
    if not any(os.path.exists(os.path.join(report.store, "config", f"topics.json{end}")) for end in ("", ".bak")):
        start = f"{command_line('rebuild', report.store, 'config')}, as it has no topics.json; then {start}"
    note(f"next: {command_line('check', report.store)}; then {start}, and keep {sources} until nothing is missed")
    is_less = left or report.lostRangeCount or report.logMissing is not None
    return 1 if is_less or not all(empty.kept for empty in report.emptyQueues) else 0


def _say_left(left: list[NotTaken]) -> bool:
    """Note which messages are left out because they are only in the tier; returns whether there are any."""
    for message in left:
        note(f"{message.topic} queue {message.queueId}: {counted(message.messages, 'message')} not taken, "
             f"queue offsets {message.firstOffset} to {message.nextOffset - 1}")  # fmt: skip
    if (warning := describe_left(left, "not taken")) is not None:
        note(warning)
    return bool(left)


def _unreadable(lost: int, ranges: int) -> str:
    if not ranges:
        return "nothing was unreadable"
    return f"{counted(lost, 'byte')} in {counted(ranges, 'place')} not readable"


def _export(layout: StoreLayout, new_store: str, output: str) -> int:
    """``export``: 0.

    Raises:
        CorruptFile: part of the source cannot be read or cannot be kept as it is.
    """
    from rmqtool.store.salvage.whole import export_store

    report = export_store(layout, new_store)
    if output in PEOPLE:  # of what was lost: nothing
        _warn(report.warnings)
    else:
        _say(report.to_dict(), output)
    kept = f"{counted(report.messages, 'message')}, {counted(report.bytes, 'byte')}"
    offsets = "queue offsets" if layout.dledger_dirs() or report.takenFromTier else "offsets"
    note(f"{kept} in {report.store}, at the {offsets} that they had")
    return 0


def _salvage_to_file(layout: StoreLayout, form: str, out: str, output: str) -> int:
    """``salvage --to``: 0, or 1 when something was lost.

    Raises:
        BadValue: Parquet to stdout, which is not seekable.
    """
    if out == "-":
        if form != "ndjson":
            raise BadValue(f"--to {form} needs a file, not -")
        return _to_stdout(layout)
    from rmqtool.store.salvage.to_file import salvage_to_file

    report = salvage_to_file(layout, out, form, _writer_of(form))
    _say(report.to_dict(), output)
    kept = f", kept in {os.path.relpath(report.lostFound)}" if report.lostFound else ""
    lost = _unreadable(report.lostBytes, report.lostRangeCount)
    note(f"{counted(report.messages, 'message')} in {report.out}; {lost}{kept}")
    return 1 if _say_left(report.notTaken) or report.lostRangeCount else 0


def _writer_of(form: str) -> "WriteAll":
    if form == "ndjson":
        return write_ndjson
    from rmqtool.analytics.dump.salvaged import write_parquet

    return write_parquet


def write_ndjson(log: CommitLog, path: str, tell: Callable[[Damage], None]) -> int:
    """Write every intact message as a line of ``commitlog dump``; returns their number."""

    messages = 0
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
        for row in _rows(log, tell):
            file.write(dump_json(row) + "\n")
            messages += 1
    return messages


def _rows(log: CommitLog, tell: Callable[[Damage], None]) -> Iterator[dict[str, Any]]:
    """The row of every intact message."""
    from rmqtool.store.salvage.to_file import report_torn

    for item in log.walk():
        if isinstance(item, Damage):
            tell(item)
            continue
        report_torn(item, tell)
        for message in item.messages():
            yield message_row(message.record, message.physical_offset)


def _to_stdout(layout: StoreLayout) -> int:
    from rmqtool.cli.read.run_files import say_damage
    from rmqtool.store.salvage.to_file import salvaged_log

    log, warnings, disk = salvaged_log(layout)
    for warning in warnings:
        note(f"warning: {warning}")
    to, messages, lost = NdjsonWriter(sys.stdout), 0, 0

    def tell(item: Damage) -> None:
        nonlocal lost
        say_damage(item._replace(path=disk.name(item.path)))
        lost += item.length

    for row in _rows(log, tell):
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
    return 1 if (not taken and _say_left(find_only_tiered(layout))) or lost else 0


def _cut_off(err: OSError) -> OutputLost:
    return OutputLost(f"stdout: {os.strerror(err.errno or 0)}: not all messages are written")


def _say(report: dict[str, Any], output: str) -> None:
    """Show the lost ranges, or as JSON the whole report, and the warnings."""
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
