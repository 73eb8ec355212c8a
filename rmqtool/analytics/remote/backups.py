"""Backups in object storage, as :mod:`rmqtool.store.backup.local` keeps them in a directory.

An object is complete or not there at all, and nothing can be renamed: a backup is complete when its manifest is there,
which is written last. Objects end after their last byte that is not zero. What an interrupted run has copied is noted
on this machine, so that another machine never continues it.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, TypeVar

import pyarrow as pa
from pyarrow import fs

from rmqtool.admin.changes.journal import default_folder
from rmqtool.analytics.remote.files import Folder
from rmqtool.analytics.remote.secrets import remove_secrets
from rmqtool.errors import Refused, UnreadableStore
from rmqtool.progress import Stage
from rmqtool.store.backup.copying import CopyState, Digest, RateLimit
from rmqtool.store.backup.home import Original
from rmqtool.store.backup.manifest import FORMAT, MANIFEST, Backup, BackupFile, alone, parse_manifest, read_journal
from rmqtool.store.backup.sources import SourceFile
from rmqtool.store.disk.files import make_file, open_file, set_times
from rmqtool.store.disk.remote import show_uri
from rmqtool.store.layout.backup_signs import MARK, NAME, STORE

_BLOCK = 8 << 20
_ZEROS = bytes(1 << 20)
_ERRORS = (OSError, ValueError, pa.ArrowException)
_T = TypeVar("_T")


class RemoteHome:
    """A directory of backups at a URI (:class:`rmqtool.store.backup.home.BackupHome`).

    Args:
        uri: such as ``s3://bucket/backups``.

    Raises:
        BadValue: a URI of an unknown file system.
    """

    def __init__(self, uri: str) -> None:
        self.place = show_uri(uri)
        self._folder = Folder(uri)

    # -- making a backup -----------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self, root: str) -> Iterator[None]:
        """Mark the directory if needed, and keep others on this machine from backing up the same store there.

        Raises:
            Refused: it has other files, or another backup of the store is being made there.
        """
        if self._folder_call(lambda: self._folder.size(MARK)) is None:
            if self._entries(""):
                raise Refused(f"{self.place}: has other files, and is no directory of backups: give another one")
            self._folder_call(lambda: self._write(MARK, json.dumps({"format": FORMAT}).encode()))
        os.makedirs(os.path.dirname(self._journal_of(root)), mode=0o700, exist_ok=True)
        fd = os.open(self._journal_of(root) + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with alone(fd, f"{self.place}: another backup of {root} is being made there"):
            yield

    def _journal_of(self, root: str) -> str:
        of = hashlib.sha256(f"{os.path.realpath(root)}\0{self.place}".encode("utf-8", "surrogateescape")).hexdigest()
        return os.path.join(default_folder(), "backups", f"{of[:32]}.ndjson")

    @contextmanager
    def begin(self, root: str, began_ns: int) -> Iterator["RemotePart"]:
        """Continue the backup that this machine was making, or begin one."""
        path = self._journal_of(root)
        head = {"store": os.path.realpath(root), "home": self.place}
        for name in self.names()[1]:
            done = read_journal(path, {**head, "name": name})
            if done is not None:
                break
        else:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(began_ns // 1_000_000_000))
            # other machines may begin in the same second; names sort by time
            name, done = f"{stamp}-{began_ns // 1000 % 10**6:06d}", {}
            with open(path, "w", encoding="utf-8") as file:
                file.write(json.dumps({**head, "name": name}) + "\n")
        with open(path, "a", encoding="utf-8") as journal:
            yield RemotePart(self, self._folder, name, done, journal)
        os.unlink(path)

    # -- what is there -------------------------------------------------------------------------------------------------

    def names(self) -> tuple[list[str], list[str]]:
        """Names of complete backups, oldest first, and of those that were interrupted.

        Raises:
            UnreadableStore: it is no directory of backups, or cannot be read.
        """
        if self._folder_call(lambda: self._folder.size(MARK)) is None:
            raise UnreadableStore(f"{self.place}: no directory of backups: {MARK} is not there")
        names = [
            info.base_name
            for info in self._entries("")
            if info.type == fs.FileType.Directory and NAME.fullmatch(info.base_name)
        ]
        complete = self._folder_call(
            lambda: [name for name in sorted(names) if self._folder.size(f"{name}/{MANIFEST}") is not None]
        )
        return complete, sorted({*names} - {*complete})

    def read(self, name: str) -> Backup:
        """The manifest of a backup."""
        return parse_manifest(self._folder_call(lambda: self._read(f"{name}/{MANIFEST}")), self.path_of(name, MANIFEST))

    def path_of(self, name: str, path: str = "") -> str:
        """Where a file of a backup is."""
        below = path if path in ("", MANIFEST) else f"{STORE}/{path}"
        return f"{self.place}/{name}/{below}".rstrip("/")

    def difference(self, name: str, file: BackupFile, progress: Stage | None = None) -> str | None:
        """What differs between a copy and its line in the manifest; None if nothing does."""
        place = f"{name}/{STORE}/{file.path}"
        size = self._folder_call(lambda: self._folder.size(place))
        if size is None:
            return "missing"
        if size != file.written:
            return f"{size} bytes long instead of {file.written}"
        digest = Digest()
        self._folder_call(lambda: self._fetch(place, digest.add, progress))
        return None if digest.result() == (file.written, file.sha256) else "its content differs"

    def files_in(self, name: str) -> Iterator[str]:
        """The paths below the store of all files of a backup."""
        top = f"{name}/{STORE}"
        for path in self._folder_call(lambda: self._folder.files(top)):
            yield path[len(top) + 1 :]

    def fetch(self, name: str, file: BackupFile, target: str, progress: Stage) -> CopyState | None:
        """Copy a file of a backup to a new one here; None if it is missing.

        Raises:
            UnreadableStore: it cannot be read.
            OSError: the new file cannot be written.
        """
        place = f"{name}/{STORE}/{file.path}"
        if self._folder_call(lambda: self._folder.size(place)) is None:
            return None
        digest = Digest()
        with make_file(target, 0o666) as copy:  # as the umask has it: the place knows no modes
            blocks = self._blocks(place)
            while (block := self._folder_call(lambda: next(blocks, None))) is not None:
                at, data = block
                if content := digest.add(at, data):
                    copy.write(at, content)
                progress.done += len(data)
            copy.cut(file.bytes)
        set_times(target, file.modifiedNs, file.modifiedNs)
        return digest.result()

    # -- access --------------------------------------------------------------------------------------------------------

    def _entries(self, name: str) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self._folder.full(name), allow_not_found=True)
        entries: list[fs.FileInfo] = self._folder_call(lambda: self._folder.fs.get_file_info(selector))
        return entries

    def _blocks(self, name: str) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) of parts of an object, in order."""
        at = 0
        with self._folder.fs.open_input_stream(self._folder.full(name)) as stream:
            while data := stream.read(_BLOCK):
                yield at, data
                at += len(data)

    def _fetch(self, name: str, take: Callable[[int, bytes], object], progress: Stage | None) -> None:
        for at, data in self._blocks(name):
            take(at, data)
            if progress is not None:
                progress.done += len(data)

    def _read(self, name: str) -> bytes:
        return b"".join(data for _at, data in self._blocks(name))

    def _write(self, name: str, data: bytes) -> None:
        make_parent(self._folder, name)
        self._folder.write_new(name, data)

    def _folder_call(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except _ERRORS as err:
            raise UnreadableStore(f"{self.place}: {reason_of(err)}") from err


class RemotePart:
    """A backup that is being made (:class:`rmqtool.store.backup.home.BackupPart`).

    Its methods raise UnreadableStore if the place cannot be written.
    """

    def __init__(
        self, home: RemoteHome, folder: Folder, name: str, done: dict[str, BackupFile], journal: IO[str]
    ) -> None:
        self._home, self._folder, self._journal = home, folder, journal
        self.name, self.done = name, done

    def _place(self, path: str) -> str:
        return f"{self.name}/{STORE}/{path}"

    def holds(self, file: BackupFile) -> bool:
        """Whether the object is there: it was complete when it was noted, and no other run writes it."""
        with self._writing():
            return self._folder.size(self._place(file.path)) == file.written

    def reuse(self, name: str, file: BackupFile) -> BackupFile | None:
        """Have the server copy what an earlier backup has; None if that is gone, or the server does not.

        Raises:
            Refused: it has changed since.
        """
        place = f"{name}/{STORE}/{file.path}"
        with self._writing():
            size = self._folder.size(place)
        if size is not None and size != file.written:
            raise Refused(f"{self._home.path_of(name, file.path)}: has changed since it was made: copied again")
        try:
            make_parent(self._folder, self._place(file.path))
            self._folder.fs.copy_file(self._folder.full(place), self._folder.full(self._place(file.path)))
        except _ERRORS:
            return None
        return BackupFile(**{**file.to_dict(), "linked": False})

    def copy(self, original: Original, pace: RateLimit, progress: Stage) -> CopyState:
        """Copy a file.

        Raises:
            OSError: it is gone, or the object cannot be written.
        """
        stop = original.source.stop
        with open_file(original.source.original) as file:
            size = file.about().st_size if stop is None else min(stop, file.about().st_size)
            return self._send(original.source.path, file.written_parts(0, size), pace, progress)

    def write(self, source: SourceFile) -> BackupFile:
        """Write content that was read before."""
        assert source.data is not None
        copied = self._send(source.path, [(0, source.data)], RateLimit(None), Stage("", 0, "bytes"))
        inode, modified = 0, 0
        with suppress(FileNotFoundError):
            about = os.stat(source.original)
            inode, modified = about.st_ino, about.st_mtime_ns
        return Original(source, len(source.data), modified, inode).describe(copied, sealed=False)

    def _send(
        self, path: str, parts: "Iterator[tuple[int, bytes]] | list[tuple[int, bytes]]", pace: RateLimit, stage: Stage
    ) -> CopyState:
        digest = Digest()
        with self._writing():
            make_parent(self._folder, self._place(path))
            with self._folder.fs.open_output_stream(self._folder.full(self._place(path))) as stream:
                for at, data in parts:
                    gap = at - digest.end
                    if content := digest.add(at, data):
                        while gap > 0:
                            stream.write(_ZEROS[:gap])
                            gap -= len(_ZEROS)
                        stream.write(content)
                    pace.add(len(data))
                    stage.done += len(data)
        return digest.result()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except _ERRORS as err:
            where = getattr(err, "filename", None) or self._home.place
            raise UnreadableStore(
                f"{where}: {reason_of(err)}: the backup is not complete; the same command continues with it"
            ) from err

    def note(self, file: BackupFile) -> None:
        """Note on this machine that a file is complete."""
        self._journal.write(json.dumps(file.to_dict()) + "\n")
        self._journal.flush()

    def finish(self, backup: Backup, files: Mapping[str, BackupFile]) -> None:
        """Remove what is not in the backup any more, and write the manifest."""
        for path in self._home.files_in(self.name):
            if path not in files:
                with self._writing():
                    self._folder.delete(self._place(path))
        with self._writing():
            self._folder.write_new(f"{self.name}/{MANIFEST}", backup.build())


def make_parent(folder: Folder, name: str) -> None:
    """Create the directory of a file, where the file system has directories; object storage does not need them."""
    if not isinstance(folder.fs, fs.S3FileSystem | fs.GcsFileSystem):
        folder.make(name.rpartition("/")[0])


def reason_of(err: Exception) -> str:
    """An error in one line, without secrets."""
    text = os.strerror(err.errno) if isinstance(err, OSError) and err.errno else remove_secrets(str(err))
    return text.splitlines()[0] if text else type(err).__name__
