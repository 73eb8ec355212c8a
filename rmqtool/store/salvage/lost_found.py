"""``lost+found``: bytes of a store that hold no message, each range in a file of its own, and a manifest of them."""

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from rmqtool.store.disk.durable import sync
from rmqtool.store.disk.files import File, make_file, open_file
from rmqtool.store.disk.ownership import make_folders
from rmqtool.store.log.commit_log import Damage

NAME = "lost+found"
MANIFEST = "manifest.json"
MAX_DETAILS = 1000  # ranges that a report tells one by one; the manifest has all
_MAX_REASONS = 100
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange:
    """Bytes of the source that hold no record although they should."""

    file: str
    at: int
    physicalOffset: int
    length: int
    reason: str
    copy: str  # where the bytes are kept, beside the manifest's directory


class LostFound:
    """Collects ranges. Those that follow one another for the same reason become one; memory does not grow with them.

    Args:
        source: the store that is read, for the manifest.
        path: of the directory, which is made with the first range.
        shown: the directory's name in ``copy``.
        name: the file that a path stands for, which may be a copy of what can be read of it.

    Attributes:
        ranges: the first of them.
        count: of all ranges.
        bytes: their length.
    """

    def __init__(self, source: str, path: str, shown: str = NAME, name: Callable[[str], str] = str) -> None:
        self._source, self.path, self._shown, self._name = source, path, shown, name
        self.ranges: list[LostRange] = []
        self.count = self.bytes = 0
        self._reasons: Counter[str] = Counter()
        self._waiting: LostRange | None = None
        self._manifest: File | None = None
        self._at = 0  # where the manifest goes on

    def damage(self, item: Damage) -> None:
        """Keep what could not be read."""
        self.keep(item.path, item.at, item.physical_offset, item.length, item.reason)

    def keep(self, path: str, at: int, physical_offset: int, length: int, reason: str) -> None:
        """Keep bytes [at, at + length) of a file."""
        last = self._waiting
        if last is not None and (last.file, last.at + last.length, last.reason) == (path, at, reason):
            at, physical_offset, length = last.at, last.physicalOffset, last.length + length
        else:
            self._flush()
        # what lies in the tier has positions of its own, the same in every queue
        twice = f"-{self.count}" if os.path.lexists(os.path.join(self.path, f"{physical_offset:020d}-{length}")) else ""
        copy = os.path.join(self._shown, f"{physical_offset:020d}-{length}{twice}")
        self._waiting = LostRange(
            file=path, at=at, physicalOffset=physical_offset, length=length, reason=reason, copy=copy
        )

    def _flush(self) -> None:
        row, self._waiting = self._waiting, None
        if row is None:
            return
        read_from = row.file
        row = replace(row, file=self._name(read_from))
        if self._manifest is None:
            make_folders(self.path)
            self._manifest = make_file(os.path.join(self.path, MANIFEST))
            self._write(f'{{\n "source": {json.dumps(self._source)},\n "ranges": [')
        self._write(("," if self.count else "") + f"\n  {json.dumps(asdict(row))}")
        _copy(read_from, row.at, row.length, os.path.join(self.path, os.path.basename(row.copy)))
        self.count += 1
        self.bytes += row.length
        known = row.reason in self._reasons or len(self._reasons) < _MAX_REASONS
        self._reasons[row.reason if known else "others"] += 1
        if len(self.ranges) < MAX_DETAILS:
            self.ranges.append(row)

    def close(self) -> None:
        """Finish the manifest; everything is durable when this returns."""
        self._flush()
        if self._manifest is None:
            return
        reasons: dict[str, Any] = dict(self._reasons.most_common())
        self._write(f'\n ],\n "reasons": {json.dumps(reasons)}\n}}\n')
        self._manifest.sync()
        self._manifest.close()
        self._manifest = None
        sync(self.path)

    def _write(self, words: str) -> None:
        """The manifest's next words, which are ASCII."""
        assert self._manifest is not None
        self._manifest.write(self._at, words.encode("ascii"))
        self._at += len(words)


def _copy(path: str, at: int, length: int, target: str) -> None:
    with open_file(path) as source, make_file(target) as out:
        done = 0
        while done < length and (part := source.read(at + done, min(length - done, _PIECE))):
            out.write(done, part)
            done += len(part)
        out.sync()
