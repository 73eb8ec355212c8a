"""Repair log files that a broker would not load: correct their length, and remove what does not belong.

A last file that is too short is extended with zeros, which a broker takes for unwritten space. If other files follow,
an end-of-file blank is put after the last record, so that the messages in them are kept. Where the log ends is
determined after that, as by a broker. A file that is too long is truncated if the excess contains no message.
"""

from collections.abc import Callable
from typing import NamedTuple

from formats.message.build import BLANK_SIZE, build_blank
from rmqtool.store.disk.files import make_file
from rmqtool.store.disk.segments import Segment
from rmqtool.store.dispatch.reading import check_records
from rmqtool.store.layout.mending import can_go
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord, next_in_file, walk_file

Stage = Callable[[], str]


class FittedFile(Segment):
    """A file of the log in its repaired form, under its own name; its bytes are those of a staging file.

    Attributes:
        source: the file on disk.
        blank_at: position at which an end-of-file blank was added; None if none was.
    """

    __slots__ = ("blank_at", "source")

    def __init__(self, source: Segment, size: int, staged: str, blank_at: int | None) -> None:
        super().__init__(source.path, source.base, size, source.mtime_ns)
        self.source, self.where, self.blank_at = source, staged, blank_at

    @property
    def blank(self) -> tuple[int, int] | None:
        """Physical offsets [start, stop) of that blank, in place of missing messages."""
        return None if self.blank_at is None else (self.base + self.blank_at, self.end)

    @property
    def words(self) -> str:
        """A description of the repair."""
        if self.size > self.source.size:
            return f"fill up from {self.source.size} to {self.size} bytes"
        return f"cut from {self.source.size} to {self.size} bytes"


def warnings_of_lengths(files: list[Segment]) -> list[str]:
    """Warnings about what is missing in files that were too short."""
    warnings = []
    for file in files:
        if isinstance(file, FittedFile) and file.source.size < file.size:
            text = f"{file.path}: its last {file.size - file.source.size} bytes are missing, with what was in them"
            if file.blank_at is not None:
                text += f": its messages end at byte {file.blank_at}, and those of the files behind it stay"
            warnings.append(f"{text}: a whole copy of the file is better, if there is one")
    return warnings


class FittedLog(NamedTuple):
    """The result of repairing files that a broker would not load.

    Attributes:
        files: the repaired log, in order.
        removed: files to be removed: empty ones at either end.
        foreign: foreign paths to be removed.
        refused: (path, reason) of those that stay as they are.
        mended: (path, reason) of all others.
    """

    files: list[Segment]
    removed: list[Segment]
    foreign: list[str]
    refused: list[tuple[str, str]]
    mended: list[tuple[str, str]]


def fit_log(log: CommitLog, refused: list[tuple[str, str]], removed: list[Segment], stage: Stage) -> FittedLog:
    """Repair files, in staging files.

    Args:
        refused: (path, reason) of what a broker would not load.
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
    if file.size == wanted or (file.size > wanted and holds_message(file, wanted)):
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
    """Position after the last record of a file, ignoring damage before it."""
    at = check_records(file.view(), 0, file.size, crc=False)[0].at
    for item in walk_file(file, at, file.size, last=True, crc=False):
        if isinstance(item, LocatedRecord):
            at = item.at + item.record.total_size
    file.release()
    return at


def holds_message(file: Segment, start: int) -> bool:
    """Whether a record that states its own position follows, which would put the length of all files in doubt.

    Raises:
        UnreadableStore: the file cannot be read.
    """
    try:
        return next_in_file(file, start) < file.size
    finally:
        file.release()
