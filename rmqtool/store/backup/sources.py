"""The files of a store that a backup copies, and up to where.

If no process uses the store, every file is copied as it is. While a broker writes, the order matters: first how far
consumers and delivery are, so that a restored store repeats messages rather than leaving some out; then the end of the
log; then the log up to there, and queues as far as they point below it; last the tables of topics and groups. Files
that are only valid together with others of the same instant are left out, and rebuilt by the restore.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from formats.config.files import kind_of
from formats.errors import FormatError
from rmqtool.errors import Refused
from rmqtool.store.disk.directories import list_dir, read_small
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import BATCH_QUEUES, BATCH_UNIT, UNIT, StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.log.scan import scan_file
from rmqtool.store.queues.reader import BATCH, PLAIN, runs_of
from rmqtool.store.roles.elsewhere import log_missing

_PROGRESS = (
    "consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json", "consumerOrderInfo.json", "timercheck",
)  # fmt: skip
_NOT_COPIED = ("lock",)
_WITH_BROKER = ("timerwheel", "timerlog", "abort", "lock")  # left out while a broker runs
# only valid together with other files of the same instant
_ONLY_STOPPED = (
    "compaction", "consumequeue_rocksdb", "rocksdbstore", "kvStore", "RocksDBMessageStore", "tieredstore",
    "config/topics", "config/subscriptionGroups", "config/consumerOffsets", "config/metadata", "config/rdb",
)  # fmt: skip
# settings of what may lie outside of the store
ELSEWHERE = ("storePathDLedgerCommitLog", "storePathEpochFile", "storePathBrokerIdentity", "tieredStoreFilePath")
_TRIES, _PAUSE = 40, 0.05  # seconds between attempts to read a file that is being written
_STABLE = 0.05  # seconds in which the last record must not change


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file to copy.

    Attributes:
        path: below the backup's store, with ``/``.
        original: where it is.
        stop: byte after which the copy has zeros; None for all of it.
        sealed: nobody writes to it any more; None if that depends on its age.
        data: the content, if it was read already.
    """

    path: str
    original: str
    stop: int | None = None
    sealed: bool | None = None
    data: bytes | None = None


class Sources:
    """The files of one store, in the order in which they must be copied.

    Args:
        live: a broker is running.

    Raises:
        Refused: it cannot be copied while a broker runs.

    Attributes:
        warnings: what a backup does not have.
        log_from, log_to: range of the log.
    """

    def __init__(self, layout: StoreLayout, *, live: bool) -> None:
        self._layout, self._live = layout, live
        self.warnings: list[str] = []
        if live:
            self._refuse_databases()
        self._progress = [*self._configs(*_PROGRESS), *self._checkpoint()] if live else []
        log = CommitLog(layout)
        self._log = log.segments.files
        self.log_from = max(log.min_offset, 0)
        self.log_to = find_end(log, settle=live)
        self.warnings += log_missing(layout, "not in the backup")
        for name in ELSEWHERE:
            for path in layout.configured_paths(name):
                if os.path.exists(path) and not _is_below(path, layout.root):
                    self.warnings.append(f"{path} ({name}) lies outside of the store, and is not in the backup")

    def __iter__(self) -> Iterator[SourceFile]:
        return self._of_live() if self._live else self._of_stopped()

    # -- a stopped store -----------------------------------------------------------------------------------------------

    def _of_stopped(self) -> Iterator[SourceFile]:
        apart = {os.path.realpath(path) for path in self._layout.commit_log_paths} if not self._dledger else set()
        if apart:
            yield from self._log_files(None)
        links: list[tuple[str, str]] = []
        apart.add(os.path.realpath(self._layout.root))
        yield from self._walk(self._layout.root, "", apart, links)
        for path, name in links:  # which grows; last, so that a directory keeps its own name
            if os.path.realpath(path) not in apart:
                yield from self._walk(path, f"{name}/", apart, links)

    @property
    def _dledger(self) -> bool:
        return bool(self._layout.dledger_dirs())

    def _log_files(self, end: int | None) -> Iterator[SourceFile]:
        """The log's files, from all of its paths.

        Args:
            end: physical offset at which the copy ends; None for everything.
        """
        last = next((file.base for file in reversed(self._log) if end is not None and file.base < end), None)
        for file in self._log:
            if end is not None and file.base >= end:
                return
            stop = None if end is None or file.end <= end else end - file.base
            sealed = None if end is None else file.base != last
            yield SourceFile(f"commitlog/{os.path.basename(file.path)}", file.path, stop, sealed)

    def _walk(self, folder: str, prefix: str, apart: set[str], links: list[tuple[str, str]]) -> Iterator[SourceFile]:
        """The files below a directory.

        Args:
            apart: real paths of directories that are not walked; those that were are added.
            links: path and name of links to directories are added.
        """
        apart.add(os.path.realpath(folder))
        for entry in list_dir(folder):
            name = prefix + entry.name
            if entry.is_dir():
                if os.path.islink(entry.path):
                    links.append((entry.path, name))
                elif os.path.realpath(entry.path) not in apart:
                    yield from self._walk(entry.path, name + "/", apart, links)
            elif not entry.is_file():
                self.warnings.append(f"{entry.path}: not a file, and not in the backup")
            elif name not in _NOT_COPIED:
                yield SourceFile(name, entry.path)

    # -- a live store --------------------------------------------------------------------------------------------------

    def _of_live(self) -> Iterator[SourceFile]:
        yield from self._progress
        yield from self._log_files(self.log_to)
        for kind, unit in (("consumequeue", UNIT), (BATCH_QUEUES, BATCH_UNIT)):
            for topic, queue_id, path in self._layout.each_queue_dir(kind):
                for file in self._layout.files_in(path).files:
                    yield from self._queue_file(f"{kind}/{topic}/{queue_id}", file, unit)
        for topic, queue_id, path in self._layout.each_queue_dir("consumequeue_ext"):
            for file in self._layout.files_in(path).files:
                yield SourceFile(
                    f"consumequeue_ext/{topic}/{queue_id}/{os.path.basename(file.path)}", file.path, None, False
                )
        paths = self._layout.index_paths()
        for path in paths:
            yield SourceFile(f"index/{os.path.basename(path)}", path, None, path != paths[-1])
        names = (entry.name for entry in self._layout.entries("config") if entry.is_file())
        done = {source.path for source in self._progress}
        yield from self._configs(*(name for name in names if f"config/{name}" not in done))
        known = {"commitlog", "consumequeue", BATCH_QUEUES, "consumequeue_ext", "index", "config", "checkpoint"}
        for entry in self._layout.entries():
            if entry.is_file() and entry.name not in {*known, *_WITH_BROKER}:
                yield SourceFile(entry.name, entry.path, None, False)
            elif entry.is_dir() and entry.name not in {*known, *_WITH_BROKER}:
                self.warnings.append(f"{entry.path}: not in the backup, since a broker is running")

    def _queue_file(self, folder: str, file: Segment, unit: int) -> Iterator[SourceFile]:
        """A queue file up to its first entry at or beyond the end of the log."""
        count, form = 0, PLAIN if unit == UNIT else BATCH
        number = file.size // unit
        for first, units in runs_of(file.path, 0, number, form):
            if first > count:
                break
            valid = form.valid_prefix(units)
            below = int((units["physical_offset"][:valid] < self.log_to).sum())  # they ascend
            count = first + below
            if below < len(units):
                break
        yield SourceFile(f"{folder}/{os.path.basename(file.path)}", file.path, count * unit, count == number)

    def _configs(self, *names: str) -> Iterator[SourceFile]:
        for name in names:
            path = self._layout.path("config", name)
            model = kind_of(name)
            for attempt in range(_TRIES):
                try:
                    data = read_small(path)
                    if data is not None and model is not None:
                        model.parse(data)
                except FormatError:
                    data = None
                if data is not None:
                    yield SourceFile(f"config/{name}", path, None, False, data)
                    break
                if attempt == 2 and not os.path.lexists(path) and not os.path.lexists(path + ".tmp"):
                    break  # a broker that replaces it takes only a moment
                time.sleep(_PAUSE)
            else:
                self.warnings.append(f"{path}: could not be read as a broker writes it, and is not in the backup")

    def _checkpoint(self) -> Iterator[SourceFile]:
        data = self._layout.checkpoint()
        if data is not None:
            yield SourceFile("checkpoint", self._layout.path("checkpoint"), None, False, data)

    def _refuse_databases(self) -> None:
        there = [name for name in _ONLY_STOPPED if os.path.isdir(self._layout.path(*name.split("/")))]
        if self._dledger:
            there.append("a DLedger log")
        if there:
            raise Refused(
                f"{self._layout.root}: a broker is running, and {', '.join(there)} can only be copied while none is: "
                "stop it, or copy a snapshot of the file system"
            )


def find_end(log: CommitLog, *, settle: bool) -> int:
    """Physical offset after the last record of the log.

    Args:
        settle: wait until the last record is whole, as a broker is writing.
    """
    last = _last(log)
    while settle and last is not None:
        before = bytes(last.file.read(last.at, last.record.total_size))
        time.sleep(_STABLE)
        again = log.read(last.physical_offset)
        if again is not None and bytes(again.file.read(again.at, again.record.total_size)) == before:
            break
        last = _last(log)
    return last.end if last is not None else max(log.min_offset, 0)


def _last(log: CommitLog) -> LocatedRecord | None:
    """The last record; damage before it does not end the search."""
    for file in reversed(log.segments.files):
        ends = [-1, -1]  # of the last two records
        for item in scan_file(file, last=file is log.segments.files[-1]):
            if not isinstance(item, Damage) and item.rows.records:
                ends = [*ends, *item.rows.at[-2:].tolist()][-2:]
        file.release()
        for at in reversed(ends):  # the last one may be incomplete
            record = log.read(file.base + at) if at >= 0 else None
            if record is not None:
                return record
    return None


def _is_below(path: str, root: str) -> bool:
    real, above = os.path.realpath(path), os.path.realpath(root)
    return real == above or real.startswith(above + os.sep)
