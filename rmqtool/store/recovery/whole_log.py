"""Files of the log that a broker would not load, put right: they get their length, and what is in the way goes.

What the last file lacks is filled up with zeros, which a broker takes for space that is not written. Where other files
follow, an end-of-file blank goes behind the last record, so that the messages in them stay. Where the log ends is
judged after that, as by a broker. What a file has too much is cut off where it holds no message.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

from formats.message.build import BLANK_SIZE, build_blank
from rmqtool.store.disk.files import make_file
from rmqtool.store.disk.segments import Segment
from rmqtool.store.dispatch.reading import check_records
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord, next_in_file, walk_file

Stage = Callable[[], str]


class FittedFile(Segment):
    """A file of the log as it will be, under the name that it has: its bytes are those of a staging file.

    Attributes:
        source: as it is on disk.
        blank_at: byte at which an end-of-file blank was put; None where none was.
    """

    __slots__ = ("blank_at", "source")

    def __init__(self, source: Segment, size: int, staged: str, blank_at: int | None) -> None:
        super().__init__(source.path, source.base, size, source.mtime_ns)
        self.source, self.where, self.blank_at = source, staged, blank_at

    @property
    def blank(self) -> tuple[int, int] | None:
        """Physical offsets [start, stop) of that blank, where messages were that are missing."""
        return None if self.blank_at is None else (self.base + self.blank_at, self.end)

    @property
    def words(self) -> str:
        """What was done to it."""
        if self.size > self.source.size:
            return f"fill up from {self.source.size} to {self.size} bytes"
        return f"cut from {self.source.size} to {self.size} bytes"


def warnings_of_lengths(files: list[Segment]) -> list[str]:
    """What is missing in files that were too short."""
    warnings = []
    for file in files:
        if isinstance(file, FittedFile) and file.source.size < file.size:
            text = f"{file.path}: its last {file.size - file.source.size} bytes are missing, with what was in them"
            if file.blank_at is not None:
                text += f": its messages end at byte {file.blank_at}, and those of the files behind it stay"
            warnings.append(f"{text}: a whole copy of the file is better, if there is one")
    return warnings


class FittedLog(NamedTuple):
    """What became of files that a broker would not load.

    Attributes:
        files: the log without those that go, in order.
        removed: its files that go: empty ones at either end.
        foreign: paths that go.
        refused: (path, why) of those that stay as they are.
        mended: the same of all others.
    """

    files: list[Segment]
    removed: list[Segment]
    foreign: list[str]
    refused: list[tuple[str, str]]
    mended: list[tuple[str, str]]


def fit_log(log: CommitLog, refused: list[tuple[str, str]], removed: list[Segment], stage: Stage) -> FittedLog:
    """Put files right in staging files.

    Args:
        refused: (path, why) of what a broker would not load.
        removed: files that it deletes.

    Raises:
        UnreadableStore: a file cannot be read.
    """
    foreign = {path for path, _why in refused if path in log.segments.foreign and can_go(path)}
    files = [file for file in log.segments if file not in removed]
    empty = list(removed)
    while files and not files[-1].size:
        empty.append(files.pop())
    while files and not files[0].size:
        empty.append(files.pop(0))
    fitted = [_fit(file, log.file_size, stage, last=file is files[-1]) for file in files]
    right = {file.path for file in fitted if file.size == log.file_size}
    right |= {file.path for file in empty} | foreign
    return FittedLog(
        fitted,
        empty,
        sorted(foreign),
        [(path, why) for path, why in refused if path not in right],
        [(path, why) for path, why in refused if path in right],
    )


def _fit(file: Segment, wanted: int, stage: Stage, *, last: bool) -> Segment:
    if file.size == wanted or (file.size > wanted and _holds_message(file, wanted)):
        return file
    blank_at = None if last or file.size > wanted else _end_of_records(file)
    if blank_at is not None and wanted - blank_at < BLANK_SIZE:
        blank_at = None
    staged = stage()
    with make_file(staged) as copy:
        copy.copy_from(file.path, min(file.size, wanted))
        if blank_at is not None and copy.read(blank_at, BLANK_SIZE) == build_blank(wanted - blank_at):
            blank_at = None
        if blank_at is not None:
            copy.cut(blank_at)
            copy.write(blank_at, build_blank(wanted - blank_at))
        copy.cut(wanted)
    return FittedFile(file, wanted, staged, blank_at)


def _end_of_records(file: Segment) -> int:
    """Byte behind the last record of a file, past damage before it."""
    at = check_records(file.view(), 0, file.size, crc=False)[0].at
    for item in walk_file(file, at, file.size, last=True, crc=False):
        if isinstance(item, LocatedRecord):
            at = item.at + item.record.total_size
    file.release()
    return at


def _holds_message(file: Segment, start: int) -> bool:
    """Whether a record that says its own position lies behind a byte: then the length of all files is in question."""
    try:
        return next_in_file(file, start) < file.size
    finally:
        file.release()


def can_go(path: str) -> bool:
    """Whether something foreign is a file or a link, which a change can keep; a directory is moved by hand."""
    return os.path.isfile(path) or os.path.islink(path)
