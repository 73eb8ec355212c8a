"""Copy an undamaged store to one with plain files, keeping every offset: ``export``, for stores in RocksDB."""

from collections.abc import Callable
from contextlib import suppress

from formats.config.rocksdb import TABLES
from rmqtool.errors import CorruptFile, Refused
from rmqtool.store.config.files import config_database
from rmqtool.store.disk.lock import holder
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.rocks import queue_database
from rmqtool.store.roles.table import heed
from rmqtool.store.salvage.carve import Salvage
from rmqtool.store.salvage.delays import other_deliver_times
from rmqtool.store.salvage.report import SalvageReport
from rmqtool.words import command_line, counted

_INSTEAD = f"nothing is exported; {command_line('salvage')} keeps every intact message"


def export_store(
    layout: StoreLayout, target: str, *, also: Callable[[StoreLayout], None] = lambda _new: None
) -> SalvageReport:
    """Copy all of a store to a new one that has its queues and tables in files.

    Physical offsets, queue offsets, consumer offsets and waiting messages are preserved.

    Args:
        also: called with the new store before it appears, to complete it.

    Raises:
        Refused: the target exists, is inside the source, or cannot be written to; or a broker is running on the source.
        UnreadableStore: the source has neither a commit log nor tables.
        CorruptFile: a part of the source cannot be read or preserved; nothing is written then.
        MissingRuntime: the library to read its databases is not installed.
    """
    heed(layout, "export")
    queue_database(layout)  # deliver times are only there
    for name in TABLES:
        with suppress(CorruptFile):  # is reported below
            config_database(layout, name)
    _refuse_use(layout)
    salvage = Salvage(layout, target, "export")
    if salvage.warnings:  # files of the log are damaged or misnamed
        raise CorruptFile(layout.path("commitlog"), None, f"{salvage.warnings[0]}: {_INSTEAD}")

    def accept(report: SalvageReport, new: StoreLayout) -> None:
        _refuse_losses(layout, report)
        if others := other_deliver_times(layout, new):
            reason = f"{others} delayed messages would have another deliver time, as the delay levels were changed"
            raise CorruptFile(layout.path("consumequeue"), None, f"{reason}: {_INSTEAD}")
        also(new)
        _refuse_use(layout)

    return salvage.run(accept)


def _refuse_use(layout: StoreLayout) -> None:
    """Refuse a store in use: a running broker has data in memory that is in no file."""
    if (pid := holder(layout.root)) is not None:
        raise Refused(f"{layout.root}: in use{f' by process {pid}' if pid else ''}: stop the broker first")


def _refuse_losses(layout: StoreLayout, report: SalvageReport) -> None:
    if report.logMissing is not None:
        tables = f"{command_line('salvage')} takes its tables alone"
        reason = report.logMissing.removeprefix(f"{layout.root}: ")
        raise CorruptFile(layout.root, None, f"{reason}; nothing is exported; {tables}")
    if report.lostRangeCount:
        first, more = report.lostRanges[0], report.lostRangeCount - 1
        others = f" (and {more} more {'place' if more == 1 else 'places'})" if more else ""
        raise CorruptFile(first.file, first.at, f"{first.reason}{others}: {_INSTEAD}")
    if report.notTaken:
        alone = sum(queue.messages for queue in report.notTaken)
        reason = f"{counted(alone, 'message is', 'messages are')} in the tier alone"
        raise CorruptFile(report.notTaken[0].where, None, f"{reason}: {_INSTEAD} of the log")
    if report.leftOut:
        advice = f"{command_line('check', layout.root)} tells what is wrong"
        raise CorruptFile(layout.path(report.leftOut[0]), None, f"cannot be read: {_INSTEAD}; {advice}")
    moved = {
        "queues lack messages": len(report.renumbered),
        "messages are in queues that began again": report.restarted,
        "messages have wrong queue offsets": report.wrongOffsets,
        "queues without a message would begin at 0 again": sum(not queue.kept for queue in report.emptyQueues),
    }
    changes = [f"{count} {what}" for what, count in moved.items() if count]
    if changes:
        raise CorruptFile(layout.path("commitlog"), None, f"{', '.join(changes)}: offsets would change: {_INSTEAD}")
