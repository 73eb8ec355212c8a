"""The manifest of a backup, and the directory that backups of a store are in.

A backup is a directory ``TIME`` with the plain files of the store below ``store`` and ``manifest.json``. It has the
name ``TIME.part`` until it is complete. ``rmqtool-backups.json`` marks the directory around it, and is locked while a
backup is created or removed.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rmqtool.contract import PlainRow
from rmqtool.errors import CorruptFile, Refused, UnreadableStore
from rmqtool.store.disk.durable import sync, write_durably
from rmqtool.store.disk.ownership import make_folders_as
from rmqtool.store.layout.backup_signs import MARK, NAME, PART, is_home

FORMAT = 1
MANIFEST = "manifest.json"
_MOST = 1 << 30  # bytes of a manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupFile(PlainRow):
    """One file of a backup.

    ``sha256`` is that of the first ``written`` bytes; the rest of the file is zeros.
    """

    path: str  # below the store
    bytes: int
    written: int
    sha256: str
    modifiedNs: int
    inode: int  # of the original
    sealed: bool  # the original is not written to any more
    linked: bool = False  # a hard link to the copy in an earlier backup


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A complete backup."""

    name: str
    store: str
    createdTimestamp: int  # when it was begun, ms
    live: bool  # a broker was running: the log ends at a whole record, and restoring completes queues and index
    logFrom: int
    logTo: int
    files: list[BackupFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def build(self) -> bytes:
        """The manifest's text."""
        content = {"format": FORMAT, **asdict(self)}
        return json.dumps({**content, "digest": _digest(content)}, indent=1, ensure_ascii=True).encode()


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def read_manifest(folder: str) -> Backup:
    """The manifest of a backup.

    Raises:
        CorruptFile: it is damaged, or of a later version.
        UnreadableStore: it is missing, or cannot be read.
    """
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST)
    except OSError as err:
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    return parse_manifest(data, path)


def parse_manifest(data: bytes, path: str) -> Backup:
    """A manifest's content.

    Args:
        path: for errors.

    Raises:
        CorruptFile: it is damaged, or of a later version.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as err:
        raise CorruptFile(path, None, "no manifest of a backup") from err
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CorruptFile(path, None, "no manifest of a backup that this version reads")
    digest = content.pop("digest", None)
    if digest != _digest(content):
        raise CorruptFile(path, None, "its digest differs")
    del content["format"]
    try:
        files = [file_of(row) for row in content.pop("files")]
        return Backup(files=files, **content)
    except (KeyError, TypeError, AttributeError) as err:
        raise CorruptFile(path, None, "no manifest of a backup") from err


def file_of(row: dict[str, Any]) -> BackupFile:
    """One file from its JSON object.

    Raises:
        TypeError: it lacks a field, or names a path that leaves the store.
    """
    file = BackupFile(**{field.name: row[field.name] for field in fields(BackupFile)})
    parts = file.path.split("/")
    if file.path.startswith("/") or not all(parts) or ".." in parts:
        raise TypeError(file.path)
    return file


def read_journal(path: str, head: dict[str, str]) -> dict[str, BackupFile] | None:
    """The files that an interrupted run has copied.

    Args:
        head: the first line, which says what the run was for.

    Returns:
        The files by path; None if it was for something else.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        if json.loads(lines[0]) != head:
            return None
    except (OSError, ValueError):
        return None
    done: dict[str, BackupFile] = {}
    for line in lines[1:]:
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # the last one may be torn
            copied = file_of(json.loads(line))
            done[copied.path] = copied
    return done


def list_names(home: str) -> tuple[list[str], list[str]]:
    """Names of complete backups, oldest first, and of those that were interrupted.

    Raises:
        UnreadableStore: it is not a directory of backups.
    """
    if not is_home(home):
        raise UnreadableStore(f"{home}: no directory of backups: {MARK} is not there")
    names = sorted(entry.name for entry in os.scandir(home) if entry.is_dir(follow_symlinks=False))
    complete = [name for name in names if NAME.fullmatch(name)]
    return complete, [name for name in names if name.endswith(PART) and NAME.fullmatch(name.removesuffix(PART))]


@contextmanager
def locked(home: str, model: str) -> Iterator[None]:
    """Create a directory of backups if needed, and lock it.

    Args:
        model: directory whose owner and mode a new one gets.

    Raises:
        Refused: it has other files, or another backup is being created there.
    """
    mark = os.path.join(home, MARK)
    if not is_home(home):
        begun = {f"{MARK}.tmp"}  # left by a run that was killed at this point
        if os.path.lexists(home) and (not os.path.isdir(home) or {*os.listdir(home)} - begun):
            raise Refused(f"{home}: exists, and is no directory of backups: give another one")
        created = make_folders_as(home, model)
        write_durably(mark, json.dumps({"format": FORMAT}).encode(), like=home)
        for folder in created:
            sync(os.path.dirname(folder))
    with alone(
        os.open(mark, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), f"{home}: another backup is being made there"
    ):
        yield


@contextmanager
def alone(fd: int, otherwise: str) -> Iterator[None]:
    """Lock an open file, and close it at the end.

    Raises:
        Refused: another process has locked it; ``otherwise`` is the reason.
    """
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as err:
            raise Refused(otherwise) from err
        yield
    finally:
        os.close(fd)
