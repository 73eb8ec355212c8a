"""Where backups are kept: what creating, verifying and restoring ask of a directory, here or in object storage."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from rmqtool.progress import Stage
from rmqtool.store.backup.copying import CopyState, RateLimit
from rmqtool.store.backup.manifest import Backup, BackupFile
from rmqtool.store.backup.sources import SourceFile


@dataclass(frozen=True, slots=True)
class Original:
    """A file to copy, as it was before.

    Attributes:
        modified_ns: time of its last change.
    """

    source: SourceFile
    bytes: int
    modified_ns: int
    inode: int

    def is_same(self, file: BackupFile) -> bool:
        """Whether it has not changed since a copy of it was made."""
        return (file.bytes, file.modifiedNs, file.inode) == (self.bytes, self.modified_ns, self.inode)

    def describe(self, copied: CopyState, *, sealed: bool) -> BackupFile:
        """Its line in the manifest."""
        return BackupFile(
            path=self.source.path,
            bytes=self.bytes,
            written=copied.written,
            sha256=copied.sha256,
            modifiedNs=self.modified_ns,
            inode=self.inode,
            sealed=sealed,
        )


class BackupPart(Protocol):
    """A backup that is being made. Its methods raise OSError or UnreadableStore.

    Attributes:
        name: of the backup.
        done: what an interrupted run had copied, by path.
    """

    name: str
    done: dict[str, BackupFile]

    def holds(self, file: BackupFile) -> bool:
        """Whether a file that an interrupted run had copied is there and whole."""

    def reuse(self, name: str, file: BackupFile) -> BackupFile | None:
        """Take the copy of an earlier backup.

        Returns:
            The file's line in the manifest; None if it must be copied, as the copy cannot be used.

        Raises:
            Refused: the copy has changed since it was made.
        """

    def copy(self, original: Original, pace: RateLimit, progress: Stage) -> CopyState:
        """Copy a file."""

    def write(self, source: SourceFile) -> BackupFile:
        """Write content that was read before."""

    def note(self, file: BackupFile) -> None:
        """Note that a file is complete, for the next run if this one is interrupted."""

    def finish(self, backup: Backup, files: Mapping[str, BackupFile]) -> None:
        """Make the backup complete: all of it at once, and durably."""


class BackupHome(Protocol):
    """A directory of backups. Its methods raise UnreadableStore.

    Attributes:
        place: for messages and commands.
    """

    place: str

    def locked(self, root: str) -> AbstractContextManager[None]:
        """Create the directory if needed, and keep others from creating a backup of the store at ``root`` there."""

    def begin(self, root: str, began_ns: int) -> AbstractContextManager[BackupPart]:
        """Continue the interrupted backup of a store, or begin one."""

    def names(self) -> tuple[list[str], list[str]]:
        """Names of complete backups, oldest first, and of those that were interrupted."""

    def read(self, name: str) -> Backup:
        """The manifest of a backup.

        Raises:
            CorruptFile: it is damaged, or of a later version.
        """

    def path_of(self, name: str, path: str = "") -> str:
        """Where a file of a backup is, for messages."""

    def difference(self, name: str, file: BackupFile, progress: Stage | None = None) -> str | None:
        """What differs between a copy and its line in the manifest; None if nothing does."""

    def files_in(self, name: str) -> Iterator[str]:
        """The paths below the store of all files of a backup, sorted within a directory."""

    def fetch(self, name: str, file: BackupFile, target: str, progress: Stage) -> CopyState | None:
        """Copy a file of a backup to a new one here; None if it is missing."""
