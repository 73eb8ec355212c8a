"""Write commit-log files from a given offset: records back to back, and a blank where the next one does not fit.

Source: store.CommitLog (DefaultAppendMessageCallback), store.MappedFile; store-engine 2.6, 2.7. Files have their full
length from the start. Nothing is durable before :meth:`LogWriter.sync`.
"""

import os

from formats.errors import BadLength
from formats.message.build import BLANK_SIZE, build_blank, fits
from rmqtool.store.disk.files import File, open_to_change
from rmqtool.store.disk.new_files import open_at_length
from rmqtool.store.disk.segments import name_of

_BUFFER = 4 << 20  # bytes buffered before they are written
_DIRECT = 64 << 10  # records of at least this size are written without buffering
_MOST_UNSYNCED = 16  # full files kept open until the next sync


class LogWriter:
    """Appends to the end of a commit log.

    Args:
        folders: directories of the files; used in turn, as by the broker (``MultiPathMappedFileQueue``).
        file_size: bytes of every file.
        position: physical offset of the next record: the base of a file, or a position inside the last one.

    Attributes:
        position: as above; advances with each record.
    """

    def __init__(self, folders: list[str], file_size: int, position: int = 0) -> None:
        if file_size <= BLANK_SIZE:
            raise BadLength(0, f"commit-log files of {file_size} bytes have no room")
        self.folders, self.file_size, self.position = sorted(folders), file_size, position
        self._current: File | None = None
        self._written = position  # everything before it has been written to the OS
        self._buffer = bytearray()
        # full files not yet synced; syncing needs these very descriptors, since only they report the medium's errors
        self._unsynced: list[File] = []

    def reserve(self, size: int) -> int:
        """The physical offset for a record of this size; rolls to the next file if it does not fit into this one.

        Raises:
            BadLength: it fits no file. The real engine answers PUT_OK to such a message and loses it.
        """
        if not fits(size, self.file_size):
            raise BadLength(0, f"record of {size} bytes does not fit a file of {self.file_size}")
        if not fits(size, self.room):
            self.roll()
        return self.position

    @property
    def room(self) -> int:
        """Bytes left in the current file."""
        return self.file_size - self.position % self.file_size

    def roll(self) -> None:
        """Fill up the current file with a blank."""
        room = self.room
        self._buffer += build_blank(room)
        self.position += BLANK_SIZE
        self.hand_over()
        self.position += room - BLANK_SIZE
        self._written = self.position
        self._close_file()

    def append(self, record: bytes | memoryview) -> None:
        """Write one or several packed records at the position that :meth:`reserve` returned for their size."""
        if len(record) >= _DIRECT:
            self.append_now(record)
            return
        self._buffer += record
        self.position += len(record)
        if len(self._buffer) >= _BUFFER:
            self.hand_over()

    def append_now(self, record: bytes | memoryview) -> None:
        """Like :meth:`append`, but write to the OS at once."""
        self.hand_over()
        self.position += len(record)
        self._write(memoryview(record))

    def take_back(self, position: int) -> None:
        """Undo all appends from a position on; parts already written are zeroed.

        Raises:
            OSError: zeroing failed; the log may hold records that were never acknowledged.
        """
        self._buffer = bytearray()
        opened = {file.path: file for file in (*self._unsynced, self._current) if file is not None}
        first = position - position % self.file_size
        for base in range(first, self.position, self.file_size):
            path = self._path(base)
            start, stop = max(position - base, 0), min(self.position - base, self.file_size)
            if (file := opened.get(path)) is not None:
                file.clear(start, stop)
            elif base < self._written:  # otherwise at most created, with nothing in it
                with open_to_change(path) as file:
                    file.clear(start, stop)
        behind = opened.pop(self._path(first), None)
        if self._current is not None and self._current is not behind:
            self._unsynced.append(self._current)
        self._current = behind
        if behind in self._unsynced:
            self._unsynced.remove(behind)
        self.position = self._written = position

    def sync(self) -> None:
        """Make everything appended so far durable; when this returns it survives a power cut."""
        self.hand_over()
        self.sync_written()

    def sync_written(self) -> None:
        """Like :meth:`sync`, but only for what is already written to the OS; usable when further writes fail."""
        while self._unsynced:
            self._sync_oldest()
        if self._current is not None:
            self._current.sync()

    def take_unsynced(self) -> list[File]:
        """Write out the buffer and return the files that :meth:`sync` would sync, oldest first.

        The caller syncs and closes them; the writer no longer owns the full ones.
        """
        self.hand_over()
        current = [] if self._current is None else [self._current.again()]
        taken, self._unsynced = self._unsynced, []
        return taken + current

    def _sync_oldest(self) -> None:
        oldest = self._unsynced[0]
        oldest.sync()
        del self._unsynced[0]
        oldest.close()

    def close(self) -> None:
        """Sync everything and close the files."""
        self.sync()
        self.let_go()

    def let_go(self) -> None:
        """Close all open files, synced or not."""
        if self._current is not None:
            self._unsynced.append(self._current)
            self._current = None
        while self._unsynced:
            self._unsynced.pop().close()

    def hand_over(self) -> None:
        """Write the buffer to the OS: from here on the data survives the death of this process."""
        if self._buffer:
            with memoryview(self._buffer) as data:
                self._write(data)
            self._buffer = bytearray()

    def _write(self, data: memoryview) -> None:
        """Write ``data`` at the offset up to which the OS has the log; it ends at ``position``."""
        self._file().write(self._written % self.file_size, data)
        self._written = self.position

    def make_file(self) -> None:
        """Create the file for the next byte, even though nothing is written to it yet."""
        self._file()

    def _file(self) -> File:
        """The file for the next byte to be written, created at full length if it is new."""
        if self._current is None:
            path = self._path(self._written - self._written % self.file_size)
            scratch = os.path.dirname(os.path.dirname(path))
            self._current = open_at_length(path, self.file_size, scratch)
        return self._current

    def _path(self, base: int) -> str:
        """Path of the file that begins at a physical offset."""
        return os.path.join(self.folders[base // self.file_size % len(self.folders)], name_of(base))

    def _close_file(self) -> None:
        if self._current is not None:
            self._unsynced.append(self._current)
            self._current = None
            while len(self._unsynced) > _MOST_UNSYNCED:
                self._sync_oldest()
