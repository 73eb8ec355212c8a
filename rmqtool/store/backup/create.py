"""Create a backup of a stopped or live store. The store is only read."""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import IO

from rmqtool.errors import CorruptFile, Refused, UnreadableStore
from rmqtool.progress import Stage, stage
from rmqtool.store.backup.copying import CopyState, RateLimit, copy_file, difference
from rmqtool.store.backup.manifest import (
    MANIFEST,
    PART,
    STORE,
    Backup,
    BackupFile,
    file_of,
    list_names,
    locked,
    read_manifest,
)
from rmqtool.store.backup.sources import Source, Sources
from rmqtool.store.disk.durable import Barrier, sync, write_durably
from rmqtool.store.disk.files import make_file
from rmqtool.store.disk.lock import holder
from rmqtool.store.disk.ownership import make_folders_as
from rmqtool.store.layout.paths import StoreLayout

_JOURNAL = "journal.ndjson"
_RECENT = 2_000_000_000  # ns: a file changed less long ago may have changed again without a new time
Warn = Callable[[str], None]


def create_backup(
    layout: StoreLayout, home: str, warn: Warn, *, incremental: bool = False, rate: int | None = None
) -> Backup:
    """Make a backup.

    Every message that was acknowledged before the call is in it. If the run is killed, the next one for the same store
    continues from what was copied.

    Args:
        home: directory of backups; created if it does not exist.
        incremental: files that have not changed since an earlier backup there become hard links to its copies.
        rate: most bytes per second to copy.

    Raises:
        Refused: the directory has other files, another run is using it, it is inside the store, or the store changed in
            a way that prevents copying.
        UnreadableStore: something cannot be read or written.
    """
    home = os.path.abspath(home)
    real, root = os.path.realpath(home), os.path.realpath(layout.root)
    if real == root or real.startswith(root + os.sep) or layout.part_with(home) is not None:
        raise Refused(f"{home}: lies in the store: give another directory")
    with locked(home, layout.root):
        return _Run(layout, home, warn, incremental=incremental, rate=rate).run()


class _Run:
    def __init__(self, layout: StoreLayout, home: str, warn: Warn, *, incremental: bool, rate: int | None) -> None:
        self._layout, self._home, self._warn, self._pace = layout, home, warn, RateLimit(rate)
        self._began = time.time_ns()
        self._earlier = self._find_earlier() if incremental else {}
        self._live = holder(layout.root) is not None

    def run(self) -> Backup:
        folder, done = self._open_part()
        barrier = Barrier(self._home)
        try:
            return self._fill(folder, done, barrier)
        except OSError as err:
            where = err.filename or folder
            raise UnreadableStore(
                f"{where}: {os.strerror(err.errno or 0)}: the backup is not complete; the same command goes on with it"
            ) from err
        finally:
            barrier.close()

    def _fill(self, folder: str, done: dict[str, BackupFile], barrier: Barrier) -> Backup:
        sources = Sources(self._layout, live=self._live)
        files: dict[str, BackupFile] = {}
        with (
            open(os.path.join(folder, _JOURNAL), "a", encoding="utf-8") as journal,
            stage("copying", max(sources.log_to - sources.log_from, 0)) as copying,
        ):
            for source in sources:
                file = self._take(source, folder, done, copying)
                if file is not None:
                    files[file.path] = file
                    _note(journal, file)
        self._refuse_changes(files, sources)
        self._remove_others(folder, files)
        name = os.path.basename(folder).removesuffix(PART)
        for text in sources.warnings:
            self._warn(text)
        log = [file for path, file in files.items() if path.startswith("commitlog/")]
        low = min((int(os.path.basename(file.path)) for file in log if file.path[10:].isdecimal()), default=0)
        backup = Backup(
            name=name,
            store=self._layout.root,
            createdTimestamp=self._began // 1_000_000,
            live=self._live,
            logFrom=low if self._live else sources.log_from,
            logTo=sources.log_to,
            files=list(files.values()),
            warnings=sources.warnings,
        )
        _sync_all(folder, barrier, files)
        write_durably(os.path.join(folder, MANIFEST), backup.build(), like=self._home)
        final = os.path.join(self._home, name)
        os.rename(folder, final)
        sync(self._home)
        os.unlink(os.path.join(final, _JOURNAL))  # last: with it, an interrupted run can be continued
        return backup

    # -- one file ------------------------------------------------------------------------------------------------------

    def _take(self, source: Source, folder: str, done: dict[str, BackupFile], copying: Stage) -> BackupFile | None:
        """Copy a file, or use an existing copy of it. None if the broker has removed it as expired."""
        target = os.path.join(folder, STORE, *source.path.split("/"))
        about = None if source.data is not None else _about(source.original)
        if about is None and source.data is None:
            self._note_gone(source)
            return None
        before = done.pop(source.path, None)
        unchanged = before is not None and about is not None and before.sealed and _is_same(before, about)
        if before is not None and unchanged and difference(target, before) is None:
            copying.done += before.written
            return before
        with suppress(FileNotFoundError):
            os.unlink(target)
        make_folders_as(os.path.dirname(target), self._layout.root)
        if source.data is not None:
            return _write(source, target)
        assert about is not None
        sealed = source.sealed
        if sealed is None:
            sealed = about.st_mtime_ns < self._began - _RECENT
        if sealed and (linked := self._link(source, about, target)) is not None:
            copying.done += linked.written
            return linked
        try:
            copied = copy_file(source.original, target, stop=source.stop, pace=self._pace, progress=copying)
        except FileNotFoundError:
            self._note_gone(source)
            return None
        return _file(source.path, about, copied, sealed=sealed)

    def _link(self, source: Source, about: os.stat_result, target: str) -> BackupFile | None:
        for name, file in self._earlier.get(source.path, ()):
            copy = os.path.join(self._home, name, STORE, *source.path.split("/"))
            there = _about(copy)
            if not _is_same(file, about) or there is None:
                continue
            if (there.st_size, there.st_mtime_ns) != (file.bytes, file.modifiedNs):
                self._warn(f"{copy}: has changed since it was made: copied again, not linked")
                continue
            try:
                os.link(copy, target)
            except OSError:
                return None  # this file system has no hard links, or the file has too many
            return BackupFile(**{**file.to_dict(), "linked": True})
        return None

    def _note_gone(self, source: Source) -> None:
        if not self._live:
            raise Refused(f"{source.original}: has gone while the store was copied: run it again")
        self._warn(f"{source.original}: the broker removed it as expired while the store was copied")

    def _refuse_changes(self, files: dict[str, BackupFile], sources: Sources) -> None:
        """Check that a stopped store was still stopped at the end, and that a live one lost no file from the middle."""
        if self._live:
            names = sorted(int(path[10:]) for path in files if path.startswith("commitlog/") and path[10:].isdecimal())
            sizes = {int(path[10:]): file.bytes for path, file in files.items() if path.startswith("commitlog/")}
            for one, other in pairwise(names):
                if one + sizes[one] != other and sources.log_from <= one:
                    self._warn(f"the log has a gap between {one + sizes[one]} and {other}")
            return
        if holder(self._layout.root) is not None:
            raise Refused(f"{self._layout.root}: a broker was started while it was copied: run it again")
        for source in Sources(self._layout, live=False):
            about, file = _about(source.original), files.get(source.path)
            if about is None or file is None or not _is_same(file, about):
                raise Refused(f"{source.original}: has changed while the store was copied: run it again")

    # -- directories ---------------------------------------------------------------------------------------------------

    def _find_earlier(self) -> dict[str, list[tuple[str, BackupFile]]]:
        """Path → (backup, file) of sealed files of complete backups, newest first."""
        backups: dict[str, list[tuple[str, BackupFile]]] = {}
        for name in reversed(list_names(self._home)[0]):
            try:
                backup = read_manifest(os.path.join(self._home, name))
            except (CorruptFile, UnreadableStore) as err:
                self._warn(f"{err}: not used")
                continue
            for file in backup.files:
                if file.sealed:
                    backups.setdefault(file.path, []).append((name, file))
        return backups

    def _open_part(self) -> tuple[str, dict[str, BackupFile]]:
        """(folder, files in it) of an interrupted run for this store, or a new folder."""
        for name in list_names(self._home)[1]:
            folder = os.path.join(self._home, name)
            done = self._read_journal(os.path.join(folder, _JOURNAL))
            if done is not None:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, MANIFEST))
                return folder, done
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._began // 1_000_000_000))
        taken = {name.removesuffix(PART) for name in os.listdir(self._home)}
        name = next(n for n in (stamp, *(f"{stamp}-{number}" for number in range(2, 1000))) if n not in taken)
        folder = os.path.join(self._home, name + PART)
        make_folders_as(os.path.join(folder, STORE), self._layout.root)
        with open(os.path.join(folder, _JOURNAL), "x", encoding="utf-8") as file:
            file.write(json.dumps({"store": os.path.realpath(self._layout.root)}) + "\n")
        return folder, {}

    def _read_journal(self, path: str) -> dict[str, BackupFile] | None:
        """The files that an interrupted run has copied; None if it was for another store."""
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().split("\n")
            if json.loads(lines[0]) != {"store": os.path.realpath(self._layout.root)}:
                return None
        except (OSError, ValueError):
            return None
        done: dict[str, BackupFile] = {}
        for line in lines[1:]:
            with suppress(ValueError, KeyError, TypeError, AttributeError):  # the last one may be torn
                copied = file_of(json.loads(line))
                done[copied.path] = copied
        return done

    def _remove_others(self, folder: str, files: dict[str, BackupFile]) -> None:
        """Remove what an interrupted run copied and the store no longer has."""
        top = os.path.join(folder, STORE)
        for above, _folders, names in os.walk(top):
            for name in names:
                path = os.path.join(above, name)
                if os.path.relpath(path, top) not in files:
                    os.unlink(path)


def _about(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_same(file: BackupFile, about: os.stat_result) -> bool:
    """Whether the original of a copy has not changed."""
    return (file.bytes, file.modifiedNs, file.inode) == (about.st_size, about.st_mtime_ns, about.st_ino)


def _file(path: str, about: os.stat_result, copied: CopyState, *, sealed: bool) -> BackupFile:
    return BackupFile(
        path=path,
        bytes=about.st_size,
        written=copied.written,
        sha256=copied.sha256,
        modifiedNs=about.st_mtime_ns,
        inode=about.st_ino,
        sealed=sealed,
    )


def _write(source: Source, target: str) -> BackupFile:
    """Write content that was read before."""
    import hashlib

    assert source.data is not None
    about = _about(source.original)
    with make_file(target, 0o600) as file:
        file.write(0, source.data)
        if about is not None:
            file.take_after(source.original)
    if about is not None:
        os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))
    content = source.data.rstrip(b"\0")
    written = os.stat(target)
    return BackupFile(
        path=source.path,
        bytes=len(source.data),
        written=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        modifiedNs=written.st_mtime_ns,
        inode=about.st_ino if about is not None else 0,
        sealed=False,
    )


def _note(journal: IO[str], file: BackupFile) -> None:
    journal.write(json.dumps(file.to_dict()) + "\n")
    journal.flush()


def _sync_all(folder: str, barrier: Barrier, files: dict[str, BackupFile]) -> None:
    """Make all copies durable."""
    top = os.path.join(folder, STORE)
    if not barrier.sync():
        for file in files.values():
            sync(os.path.join(top, *file.path.split("/")))
    for above, _folders, _names in os.walk(top):
        sync(above)
    sync(folder)
