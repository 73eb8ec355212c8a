"""Directories in any file system supported by pyarrow: local, or by URI on S3, HDFS, GCS, ABFS and others."""

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
_VERY_MANY = 256  # files; below this, a sync of the whole file system is not worthwhile
_RETRY = "retry_limit_seconds"


def sync(path: str) -> None:
    """Make a file, or the names in a directory, survive a power failure, as far as its file system supports it."""
    try:
        durable.sync(path)
    except OSError as err:
        if err.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems, for directories
            raise


def _sync_all(paths: Sequence[str]) -> None:
    """As :func:`sync`, for many files: a disk syncs several concurrently in the time of one."""
    if len(paths) < _MANY:
        for path in paths:
            sync(path)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        for _done in pool.map(sync, paths):
            pass


def open_uri(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI and the path in it."""
    remember(uri)
    if uri.startswith(("gs://", "gcs://")) and _RETRY not in uri:
        uri += f"{'&' if '?' in uri else '?'}{_RETRY}=60"  # the default limit is 15 minutes
    opened, path = fs.FileSystem.from_uri(uri)
    return opened, str(path)


class Folder:
    """A directory. All names are relative to it, with ``/`` as separator.

    Args:
        location: a path, or a URI such as ``s3://bucket/path``.

    Raises:
        BadValue: a URI of an unknown file system, or a path that is not UTF-8.
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
        """Return the path of a file in the file system."""
        return f"{self.path}/{name}" if name else self.path

    def below(self, name: str) -> "Folder":
        """Return a subdirectory."""
        path, mark, options = self.location.partition("?") if "://" in self.location else (self.location, "", "")
        return Folder(f"{path.rstrip('/')}/{name}{mark}{options}")

    def make(self, name: str = "") -> None:
        """Create a directory and its parents."""
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
        """Return the size of a file in bytes; None if it does not exist."""
        info = self.fs.get_file_info(self.full(name))
        return int(info.size) if info.type == fs.FileType.File else None

    def files(self, name: str = "") -> list[str]:
        """Return every file below a directory, sorted."""
        root = self.full(name)
        entries = self.fs.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        skip = len(self.full("x")) - 1
        return sorted(info.path[skip:] for info in entries if info.type == fs.FileType.File)

    def move(self, name: str, to: str) -> None:
        """Rename a file; copies and deletes it where there is no rename."""
        if isinstance(self.fs, fs.LocalFileSystem):
            os.rename(self.full(name), self.full(to))
            return
        self.fs.move(self.full(name), self.full(to))

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        if self.size(name) is not None:
            self.fs.delete_file(self.full(name))

    def delete_dir(self, name: str) -> None:
        """Delete a directory and its content if it exists."""
        if self.fs.get_file_info(self.full(name)).type == fs.FileType.Directory:
            self.fs.delete_dir(self.full(name))

    def sync(self, *names: str) -> None:
        """Make files, and names in directories, survive a power failure; remote files do once they are closed."""
        if isinstance(self.fs, fs.LocalFileSystem):
            for name in names:
                sync(self.full(name))

    def barrier(self) -> Barrier | None:
        """Return a barrier for :meth:`sync_all`, created before the files are written; None for remote file systems."""
        return Barrier(self.path) if isinstance(self.fs, fs.LocalFileSystem) else None

    def sync_all(self, names: Sequence[str], barrier: Barrier | None) -> None:
        """As :meth:`sync`, for many files."""
        if barrier is not None and not (len(names) >= _VERY_MANY and barrier.sync()):
            _sync_all([self.full(name) for name in names])

    def sync_names(self) -> None:
        """As :meth:`sync`, for the names in the directory and in subdirectories that Parquet readers visit."""
        if isinstance(self.fs, fs.LocalFileSystem):
            synced = []
            for folder, folders, _names in os.walk(self.path):
                folders[:] = [name for name in folders if not name.startswith("_")]
                synced.append(folder)
            with closing(Barrier(self.path)) as barrier:
                if not (len(synced) >= _VERY_MANY and barrier.sync()):
                    _sync_all(synced)

    def write_new(self, name: str, data: Any) -> None:
        """Write a new file from one buffer."""
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
        """Write a small file atomically.

        Args:
            by_way_of: directory for the temporary file; by default the file's own.
            lasting: make the file survive a power failure.
        """
        level = name.rpartition("/")[0] if by_way_of is None else by_way_of
        temporary = f"{level}/_{uuid.uuid4().hex}" if level else f"_{uuid.uuid4().hex}"
        with self.fs.open_output_stream(self.full(temporary)) as stream:
            stream.write(text.encode("utf-8", "backslashreplace"))  # undecodable names are escaped as in JSON
        if lasting:
            self.sync(temporary)
        self.move(temporary, name)
        if lasting:
            self.sync(name.rpartition("/")[0])

    def read_json(self, name: str) -> Any:
        """Return the value in a JSON file; None if the file is missing or torn."""
        if self.size(name) is None:
            return None
        with self.fs.open_input_stream(self.full(name)) as stream:
            try:
                return json.loads(stream.read())
            except (ValueError, RecursionError):
                return None


def local_path(location: str) -> str | None:
    """Return the path of a location on this machine; None if it is remote."""
    if "://" not in location:
        return location
    folder = Folder(location)
    return str(folder.path) if isinstance(folder.fs, fs.LocalFileSystem) else None


def prune(path: str) -> None:
    """Remove empty directories below a local directory."""
    for folder, _folders, names in os.walk(path, topdown=False):
        if folder != path and not names:
            with suppress(OSError):  # not empty
                os.rmdir(folder)


def text(value: Any) -> str:
    """Return readable JSON."""
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
