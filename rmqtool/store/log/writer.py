"""Write commit-log files from some offset on: records back to back, a blank where the next one does not fit.

Source: store.CommitLog (DefaultAppendMessageCallback), store.MappedFile; store-engine 2.6, 2.7. Files have their full
length from the start. Nothing is durable before :meth:`LogWriter.sync`.
"""

import os

from formats.errors import BadLength
from formats.message.build import BLANK_SIZE, build_blank, fits
from rmqtool.store.disk.files import File, open_to_change
from rmqtool.store.disk.new_files import open_at_length
from rmqtool.store.disk.segments import name_of

_BUFFER = 4 << 20  # bytes gathered before they are written
_DIRECT = 64 << 10  # so much at once is not gathered
_MOST_UNSYNCED = 16  # full files that wait, open, for the next sync


class LogWriter:
    """Appends at the end of a commit log.

    Args:
        folders: where files go; the broker takes them in turn (``MultiPathMappedFileQueue``).
        file_size: of every file.
        position: physical offset of the next record; a file's base, or a place inside the last file.

    Attributes:
        position: as above, kept up to date.
    """

    def __init__(self, folders: list[str], file_size: int, position: int = 0) -> None:
        if file_size <= BLANK_SIZE:
            raise BadLength(0, f"commit-log files of {file_size} bytes have no room")
        self.folders, self.file_size, self.position = sorted(folders), file_size, position
        self._current: File | None = None
        self._written = position  # all before it has been handed to the system
        self._gathered = bytearray()
        # full files, not yet synced: by these descriptors, which get the errors of the medium
        self._unsynced: list[File] = []

    def reserve(self, size: int) -> int:
        """Physical offset that a record of this size will have; rolls to the next file where it does not fit.

        Raises:
            BadLength: no file has room for it. The real engine answers PUT_OK to such a message and loses it.
        """
        if not fits(size, self.file_size):
            raise BadLength(0, f"record of {size} bytes does not fit a file of {self.file_size}")
        if not fits(size, self.room):
            self.roll()
        return self.position

    @property
    def room(self) -> int:
        """Bytes that the present file has left."""
        return self.file_size - self.position % self.file_size

    def roll(self) -> None:
        """End the present file with a blank."""
        room = self.room
        self._gathered += build_blank(room)
        self.position += BLANK_SIZE
        self.hand_over()
        self.position += room - BLANK_SIZE
        self._written = self.position
        self._close_file()

    def append(self, record: bytes | memoryview) -> None:
        """Write a packed record, or several, at the position that :meth:`reserve` gave for their size."""
        if len(record) >= _DIRECT:
            self.append_now(record)
            return
        self._gathered += record
        self.position += len(record)
        if len(self._gathered) >= _BUFFER:
            self.hand_over()

    def append_now(self, record: bytes | memoryview) -> None:
        """As :meth:`append`, and give it to the system."""
        self.hand_over()
        self.position += len(record)
        self._write(memoryview(record))

    def take_back(self, position: int) -> None:
        """Forget what was appended from a position on, of which a part may be written: that becomes zeros again.

        Raises:
            OSError: it does not; the log may hold what was never acknowledged.
        """
        self._gathered = bytearray()
        opened = {file.path: file for file in (*self._unsynced, self._current) if file is not None}
        first = position - position % self.file_size
        for base in range(first, self.position, self.file_size):
            path = self._path(base)
            start, stop = max(position - base, 0), min(self.position - base, self.file_size)
            if (file := opened.get(path)) is not None:
                file.clear(start, stop)
            elif base < self._written:  # else it was made at most
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
        """Everything appended so far survives a power cut when this returns."""
        self.hand_over()
        self.sync_written()

    def sync_written(self) -> None:
        """As :meth:`sync` for what the system has, when it takes no more."""
        while self._unsynced:
            self._sync_oldest()
        if self._current is not None:
            self._current.sync()

    def take_unsynced(self) -> list[File]:
        """What :meth:`sync` would sync, oldest first, after the same was given to the system. Whoever takes these files
        syncs and closes them; the full ones are no more this one's then."""
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
        """Sync and let go."""
        self.sync()
        self.let_go()

    def let_go(self) -> None:
        """Close what is open, synced or not."""
        if self._current is not None:
            self._unsynced.append(self._current)
            self._current = None
        while self._unsynced:
            self._unsynced.pop().close()

    def hand_over(self) -> None:
        """Give to the system what was gathered: from here on it survives the death of this process."""
        if self._gathered:
            with memoryview(self._gathered) as data:
                self._write(data)
            self._gathered = bytearray()

    def _write(self, data: memoryview) -> None:
        """Write what lies between what the system has and the position."""
        self._file().write(self._written % self.file_size, data)
        self._written = self.position

    def make_file(self) -> None:
        """Make the file of the next byte, though nothing is written to it yet."""
        self._file()

    def _file(self) -> File:
        """The file that holds the next byte to be written, made at full length if it is new."""
        if self._current is None:
            path = self._path(self._written - self._written % self.file_size)
            scratch = os.path.dirname(os.path.dirname(path))
            self._current = open_at_length(path, self.file_size, scratch)
        return self._current

    def _path(self, base: int) -> str:
        """Of the file that begins at a physical offset."""
        return os.path.join(self.folders[base // self.file_size % len(self.folders)], name_of(base))

    def _close_file(self) -> None:
        if self._current is not None:
            self._unsynced.append(self._current)
            self._current = None
            while len(self._unsynced) > _MOST_UNSYNCED:
                self._sync_oldest()
