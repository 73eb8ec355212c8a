"""Directories of a file system that pyarrow knows: this machine's, or by URI S3, HDFS, GCS, ABFS and others."""

import errno
import json
import os
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

from pyarrow import fs

from rmqtool.analytics.remote.secrets import remember, remove_secrets
from rmqtool.errors import BadValue
from rmqtool.store.disk import durable
from rmqtool.store.disk.durable import Barrier
from rmqtool.store.disk.remote import show_uri

_MANY, _THREADS = 16, 8
_VERY_MANY = 256  # files; for fewer, what others have written to the file system is not waited for
_RETRY = "retry_limit_seconds"


def sync(path: str) -> None:
    """Make a file, or the names in a directory, outlast a power cut, as far as its file system knows how to."""
    try:
        durable.sync(path)
    except OSError as err:
        if err.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems, of directories
            raise


def _sync_all(paths: Sequence[str]) -> None:
    """As :func:`sync`, of many: a disk takes several at a time for the price of one."""
    if len(paths) < _MANY:
        for path in paths:
            sync(path)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        for _done in pool.map(sync, paths):
            pass


def open_uri(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI, and what it calls the place."""
    remember(uri)
    if uri.startswith(("gs://", "gcs://")) and _RETRY not in uri:
        uri += f"{'&' if '?' in uri else '?'}{_RETRY}=60"  # its own limit is a quarter of an hour
    opened, path = fs.FileSystem.from_uri(uri)
    return opened, str(path)


class Folder:
    """A directory. All names are relative to it, with ``/`` between levels.

    Args:
        location: a path, or a URI such as ``s3://bucket/path``.

    Raises:
        BadValue: a URI that is of no known file system, or a path that is not UTF-8.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        if "://" in location:
            try:
                self.fs, self.path = open_uri(location)
            except (ValueError, OSError, ImportError) as err:
                raise BadValue(f"{show_uri(location)}: {remove_secrets(str(err), [location]).splitlines()[0]}") from err
        else:
            if any("\ud800" <= letter <= "\udfff" for letter in location):
                raise BadValue(f"{location}: a path that is not UTF-8 cannot be written to")
            self.fs, self.path = fs.LocalFileSystem(), location

    def full(self, name: str) -> str:
        """What the file system calls a file."""
        return f"{self.path}/{name}" if name else self.path

    def below(self, name: str) -> "Folder":
        """A directory in it."""
        path, mark, options = self.location.partition("?") if "://" in self.location else (self.location, "", "")
        return Folder(f"{path.rstrip('/')}/{name}{mark}{options}")

    def make(self, name: str = "") -> None:
        """Make a directory, with those above it."""
        if not isinstance(self.fs, fs.LocalFileSystem):
            self.fs.create_dir(self.full(name), recursive=True)
            return
        try:
            os.mkdir(self.full(name))
        except FileExistsError:
            if not os.path.isdir(self.full(name)):
                raise
        except FileNotFoundError:
            os.makedirs(self.full(name), exist_ok=True)

    def size(self, name: str) -> int | None:
        """Bytes of a file; None when there is none."""
        info = self.fs.get_file_info(self.full(name))
        return int(info.size) if info.type == fs.FileType.File else None

    def files(self, name: str = "") -> list[str]:
        """Every file below a directory, in order."""
        root = self.full(name)
        entries = self.fs.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        skip = len(self.full("x")) - 1
        return sorted(info.path[skip:] for info in entries if info.type == fs.FileType.File)

    def move(self, name: str, to: str) -> None:
        """Rename a file; where there are no renames, copy and delete."""
        if isinstance(self.fs, fs.LocalFileSystem):
            os.rename(self.full(name), self.full(to))
            return
        self.fs.move(self.full(name), self.full(to))

    def delete(self, name: str) -> None:
        """Delete a file if it is there."""
        if self.size(name) is not None:
            self.fs.delete_file(self.full(name))

    def delete_dir(self, name: str) -> None:
        """Delete a directory and all in it if it is there."""
        if self.fs.get_file_info(self.full(name)).type == fs.FileType.Directory:
            self.fs.delete_dir(self.full(name))

    def sync(self, *names: str) -> None:
        """Make files, and the names in directories, outlast a power cut; elsewhere they do once they are closed."""
        if isinstance(self.fs, fs.LocalFileSystem):
            for name in names:
                sync(self.full(name))

    def barrier(self) -> Barrier | None:
        """For :meth:`sync_all`, made before the files are written; None where files last once they are closed."""
        return Barrier(self.path) if isinstance(self.fs, fs.LocalFileSystem) else None

    def sync_all(self, names: Sequence[str], barrier: Barrier | None) -> None:
        """As :meth:`sync`, of many files."""
        if barrier is not None and not (len(names) >= _VERY_MANY and barrier.sync()):
            _sync_all([self.full(name) for name in names])

    def sync_names(self) -> None:
        """As :meth:`sync`, the names in the directory and in those below it that readers of Parquet look into."""
        if isinstance(self.fs, fs.LocalFileSystem):
            synced = []
            for folder, folders, _names in os.walk(self.path):
                folders[:] = [name for name in folders if not name.startswith("_")]
                synced.append(folder)
            with closing(Barrier(self.path)) as barrier:
                if not (len(synced) >= _VERY_MANY and barrier.sync()):
                    _sync_all(synced)

    def write_new(self, name: str, data: Any) -> None:
        """Write a file from one buffer."""
        if not isinstance(self.fs, fs.LocalFileSystem):
            with self.fs.open_output_stream(self.full(name)) as stream:
                stream.write(data)
            return
        fd = os.open(self.full(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
        finally:
            os.close(fd)

    def write(self, name: str, text: str, by_way_of: str | None = None, *, lasting: bool = False) -> None:
        """Write a small file so that readers see all of it, or the one before.

        Args:
            by_way_of: a directory in which it is written first; its own when None.
            lasting: so after a power cut too.
        """
        level = name.rpartition("/")[0] if by_way_of is None else by_way_of
        temporary = f"{level}/_{uuid.uuid4().hex}" if level else f"_{uuid.uuid4().hex}"
        with self.fs.open_output_stream(self.full(temporary)) as stream:
            stream.write(text.encode("utf-8", "backslashreplace"))  # names that are no text, as JSON writes them
        if lasting:
            self.sync(temporary)
        self.move(temporary, name)
        if lasting:
            self.sync(name.rpartition("/")[0])

    def read_json(self, name: str) -> Any:
        """A JSON file's value; None when it is missing or torn."""
        if self.size(name) is None:
            return None
        with self.fs.open_input_stream(self.full(name)) as stream:
            try:
                return json.loads(stream.read())
            except (ValueError, RecursionError):
                return None


def local_path(location: str) -> str | None:
    """The path that a location means on this machine; None when it is elsewhere."""
    if "://" not in location:
        return location
    folder = Folder(location)
    return str(folder.path) if isinstance(folder.fs, fs.LocalFileSystem) else None


def prune(path: str) -> None:
    """Remove the empty directories below a directory of this machine."""
    for folder, _folders, names in os.walk(path, topdown=False):
        if folder != path and not names:
            with suppress(OSError):  # not empty
                os.rmdir(folder)


def text(value: Any) -> str:
    """JSON for a file that people may read."""
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
