"""Backups in a directory of this machine: plain files, hard links, and a rename when one is complete."""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import IO

from rmqtool.errors import Refused
from rmqtool.progress import Stage
from rmqtool.store.backup.copying import CopyState, RateLimit, copy_file, difference
from rmqtool.store.backup.home import Original
from rmqtool.store.backup.manifest import (
    MANIFEST,
    Backup,
    BackupFile,
    list_names,
    locked,
    read_journal,
    read_manifest,
)
from rmqtool.store.backup.sources import SourceFile
from rmqtool.store.disk.durable import Barrier, sync, write_durably
from rmqtool.store.disk.files import make_file
from rmqtool.store.disk.ownership import make_folders_as
from rmqtool.store.layout.backup_signs import PART, STORE

_JOURNAL = "journal.ndjson"


class LocalHome:
    """A directory of backups on this machine (:class:`rmqtool.store.backup.home.BackupHome`).

    Args:
        place: its path.
    """

    def __init__(self, place: str) -> None:
        self.place = os.path.abspath(place)

    def locked(self, root: str) -> AbstractContextManager[None]:
        """See :func:`rmqtool.store.backup.manifest.locked`."""
        return locked(self.place, root)

    @contextmanager
    def begin(self, root: str, began_ns: int) -> Iterator["LocalPart"]:
        """Continue the interrupted backup of a store, or begin one."""
        folder, done = self._open_part(root, began_ns)
        barrier = Barrier(self.place)
        try:
            with open(os.path.join(folder, _JOURNAL), "a", encoding="utf-8") as journal:
                yield LocalPart(self.place, folder, root, done, journal, barrier)
        finally:
            barrier.close()

    def names(self) -> tuple[list[str], list[str]]:
        """See :func:`rmqtool.store.backup.manifest.list_names`."""
        return list_names(self.place)

    def read(self, name: str) -> Backup:
        """See :func:`rmqtool.store.backup.manifest.read_manifest`."""
        return read_manifest(self.path_of(name))

    def path_of(self, name: str, path: str = "") -> str:
        """Where a file of a backup is."""
        return os.path.join(self.place, name, *([STORE, *path.split("/")] if path else []))

    def difference(self, name: str, file: BackupFile, progress: Stage | None = None) -> str | None:
        """What differs between a copy and its line in the manifest; None if nothing does."""
        try:
            return difference(self.path_of(name, file.path), file, progress)
        except OSError as err:
            return os.strerror(err.errno or 0)

    def files_in(self, name: str) -> Iterator[str]:
        """The paths below the store of all files of a backup, sorted within a directory."""
        top = os.path.join(self.place, name, STORE)
        for above, _folders, inside in os.walk(top):
            for other in sorted(inside):
                yield os.path.relpath(os.path.join(above, other), top)

    def fetch(self, name: str, file: BackupFile, target: str, progress: Stage) -> CopyState | None:
        """Copy a file of a backup to a new one; None if it is missing."""
        path = self.path_of(name, file.path)
        if not os.path.isfile(path) or os.path.islink(path):
            return None
        return copy_file(path, target, pace=RateLimit(None), progress=progress)

    def _open_part(self, root: str, began_ns: int) -> tuple[str, dict[str, BackupFile]]:
        """(folder, files in it) of an interrupted run for this store, or a new folder."""
        for name in list_names(self.place)[1]:
            folder = self.path_of(name)
            done = read_journal(os.path.join(folder, _JOURNAL), {"store": os.path.realpath(root)})
            if done is not None:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, MANIFEST))
                return folder, done
            _remove_if_nothing(folder)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(began_ns // 1_000_000_000))
        taken = {name.removesuffix(PART) for name in os.listdir(self.place)}
        name = next(n for n in (stamp, *(f"{stamp}-{number}" for number in range(2, 1000))) if n not in taken)
        folder = os.path.join(self.place, name + PART)
        make_folders_as(os.path.join(folder, STORE), root)
        with open(os.path.join(folder, _JOURNAL), "x", encoding="utf-8") as file:
            file.write(json.dumps({"store": os.path.realpath(root)}) + "\n")
        return folder, {}


def _remove_if_nothing(folder: str) -> None:
    """Remove what is left of a run that was killed before it had noted which store it copies."""
    journal = os.path.join(folder, _JOURNAL)
    if os.path.lexists(journal) and os.path.getsize(journal):
        return
    with suppress(OSError):  # something is in it
        for remove, path in ((os.rmdir, os.path.join(folder, STORE)), (os.unlink, journal), (os.rmdir, folder)):
            with suppress(FileNotFoundError):
                remove(path)


class LocalPart:
    """A backup that is being made in ``TIME.part`` (:class:`rmqtool.store.backup.home.BackupPart`)."""

    def __init__(
        self, home: str, folder: str, root: str, done: dict[str, BackupFile], journal: IO[str], barrier: Barrier
    ) -> None:
        self._home, self._folder, self._root, self._journal, self._barrier = home, folder, root, journal, barrier
        self.done = done
        self.name = os.path.basename(folder).removesuffix(PART)

    def _target(self, path: str) -> str:
        return os.path.join(self._folder, STORE, *path.split("/"))

    def _fresh(self, path: str) -> str:
        """The path of a copy to be made; what an interrupted run left there is removed."""
        target = self._target(path)
        with suppress(FileNotFoundError):
            os.unlink(target)
        make_folders_as(os.path.dirname(target), self._root)
        return target

    def holds(self, file: BackupFile) -> bool:
        """Whether a file that an interrupted run had copied is there and whole."""
        return difference(self._target(file.path), file) is None

    def reuse(self, name: str, file: BackupFile) -> BackupFile | None:
        """Link the copy of an earlier backup; None if it is gone, or there are no hard links.

        Raises:
            Refused: it has changed since.
        """
        copy = os.path.join(self._home, name, STORE, *file.path.split("/"))
        try:
            there = os.stat(copy)
            if (there.st_size, there.st_mtime_ns) != (file.bytes, file.modifiedNs):
                raise Refused(f"{copy}: has changed since it was made: copied again, not linked")
            os.link(copy, self._fresh(file.path))
        except OSError:
            return None  # it is gone, this file system has no hard links, or the file has too many
        return BackupFile(**{**file.to_dict(), "linked": True})

    def copy(self, original: Original, pace: RateLimit, progress: Stage) -> CopyState:
        """Copy a file."""
        source = original.source
        return copy_file(source.original, self._fresh(source.path), stop=source.stop, pace=pace, progress=progress)

    def write(self, source: SourceFile) -> BackupFile:
        """Write content that was read before."""
        assert source.data is not None
        target = self._fresh(source.path)
        try:
            about = os.stat(source.original)
        except FileNotFoundError:
            about = None
        with make_file(target, 0o600) as file:
            file.write(0, source.data)
            if about is not None:
                file.take_after(source.original)
        if about is not None:
            os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))
        content = source.data.rstrip(b"\0")
        copied = CopyState(len(content), hashlib.sha256(content).hexdigest())
        inode = about.st_ino if about is not None else 0
        return Original(source, len(source.data), os.stat(target).st_mtime_ns, inode).describe(copied, sealed=False)

    def note(self, file: BackupFile) -> None:
        """Note that a file is complete."""
        self._journal.write(json.dumps(file.to_dict()) + "\n")
        self._journal.flush()

    def finish(self, backup: Backup, files: Mapping[str, BackupFile]) -> None:
        """Sync all copies, write the manifest, and give the directory its name."""
        self._remove_others(files)
        top = os.path.join(self._folder, STORE)
        if not self._barrier.sync():
            for file in files.values():
                sync(self._target(file.path))
        for above, _folders, _names in os.walk(top):
            sync(above)
        sync(self._folder)
        write_durably(os.path.join(self._folder, MANIFEST), backup.build(), like=self._home)
        final = os.path.join(self._home, self.name)
        os.rename(self._folder, final)
        sync(self._home)
        os.unlink(os.path.join(final, _JOURNAL))  # last: with it, an interrupted run can be continued

    def _remove_others(self, files: Mapping[str, BackupFile]) -> None:
        """Remove what an interrupted run copied and the store no longer has."""
        top = os.path.join(self._folder, STORE)
        for above, _folders, names in os.walk(top):
            for name in names:
                path = os.path.join(above, name)
                if os.path.relpath(path, top) not in files:
                    os.unlink(path)


def share(copy: str, other: str) -> bool:
    """Replace a file by a hard link to another one of the same content.

    Returns:
        Whether it could be; if not, it stays as it is.
    """
    link = f"{other}.link"
    try:
        os.link(copy, link)
    except OSError:
        return False  # this file system has no hard links, or the file has too many
    os.rename(link, other)
    return True
