"""Read RocksDB databases without writing to their directory: RocksDB gets a directory of links instead.

The library ``rocksdict`` is imported when a database is opened. If it cannot be loaded on this machine, everything that
needs no database still works.
"""

import errno
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from formats.variants.rocksdb import is_table_or_log
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.store.disk.directories import list_dir
from rmqtool.store.disk.mapping import raise_open_files

# errors of the OS about intact files: not corruption
_NOT_OURS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM)
_OTHER_FILES = 256
_TRIES = 3  # a running broker may remove a file between listing and opening


HOW = "needs the library rocksdict: pip install rocksdict"


def library() -> Any:
    """The module ``rocksdict``.

    Raises:
        MissingRuntime: it is not installed, or cannot be loaded on this machine.
    """
    try:
        return import_module("rocksdict")
    except ImportError as err:
        raise MissingRuntime(f"reading a RocksDB database {HOW} ({err})") from err


def has_library() -> bool:
    """Whether ``rocksdict`` can be loaded."""
    try:
        library()
    except MissingRuntime:
        return False
    return True


class Database:
    """A snapshot of one database.

    All files are opened at once and their links removed, so that nothing is left behind however the process ends.
    RocksDB never gets the original directory: even opened read-only, it leaves files there.

    Args:
        path: its directory.

    Raises:
        MissingRuntime: the library is not available.
        UnreadableStore: no permission for the directory or a file in it, or too few descriptors.
        CorruptFile: a file is missing, or RocksDB does not recognize a database.
    """

    def __init__(self, path: str) -> None:
        from rmqtool.store.disk.scratch import folder_of_links  # few stores have a database

        self.path = path
        self._module = library()
        for tries_left in reversed(range(_TRIES)):
            try:
                with folder_of_links(path, is_table_or_log, copied="CURRENT") as folder:
                    self._families = self._open(folder)
                return
            except CorruptFile:
                if not tries_left:
                    raise

    def _open(self, folder: str) -> dict[str, Any]:
        module = self._module
        tables = sum(entry.name.endswith(".sst") for entry in list_dir(folder))
        raise_open_files(tables + _OTHER_FILES)
        try:
            names = module.Rdict.list_cf(folder, self._options())
            database = module.Rdict(
                folder,
                options=self._options(),
                column_families={name: self._options() for name in names},
                access_type=module.AccessType.read_only(False),
            )
            return {name: database.get_column_family(name) for name in names}
        except Exception as err:  # the library has one class for all of its errors
            corrupt = self._corrupt(err, folder)
            if any(os.strerror(number) in corrupt.reason for number in _NOT_OURS):
                reason = f"{self.path}: {tables} tables, which are all opened at once: {corrupt.reason}"
                raise UnreadableStore(reason) from err
            raise corrupt from err

    def _options(self) -> Any:
        options = self._module.Options(raw_mode=True)
        options.create_if_missing(False)
        options.set_max_open_files(-1)  # open all files with the database, since their links are removed
        return options

    def _corrupt(self, err: Exception, folder: str = "") -> CorruptFile:
        text = " ".join(str(err).split())
        return CorruptFile(self.path, None, f"RocksDB: {text.replace(folder, self.path) if folder else text}")

    def __repr__(self) -> str:
        return f"Database({self.path!r})"

    @property
    def families(self) -> tuple[str, ...]:
        """Names of the column families, sorted."""
        return tuple(sorted(self._families))

    def get(self, family: str, key: bytes) -> bytes | None:
        """The value of a key; None if there is no such key or column family.

        Raises:
            CorruptFile: that part of the database cannot be read.
        """
        if (column := self._families.get(family)) is None:
            return None
        try:
            value: bytes | None = column.get(key)
        except Exception as err:
            raise self._corrupt(err) from err
        return value

    def items(self, family: str, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of the keys in [start, stop), ascending.

        Raises:
            CorruptFile: a part of the database cannot be read; everything before it has been yielded.
        """
        if (column := self._families.get(family)) is None:
            return
        try:
            cursor = column.iter()
            cursor.seek(start)
            while cursor.valid():
                key: bytes = cursor.key()
                if stop is not None and key >= stop:
                    return
                yield key, cursor.value()
                cursor.next()
            cursor.status()
        except Exception as err:
            raise self._corrupt(err) from err


class NoDatabase(Database):
    """The database that a broker would create where none exists: empty."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._families = {}
