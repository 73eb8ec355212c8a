"""``lost+found``: byte ranges of a store without messages, each in a file of its own, with a manifest."""

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
MAX_DETAILS = 1000  # ranges listed in a report; the manifest has all
_MAX_REASONS = 100
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange:
    """A range of the source that should contain a record but does not."""

    file: str
    at: int
    physicalOffset: int
    length: int
    reason: str
    copy: str  # path of the copy, relative to the parent of the manifest's directory


class LostFound:
    """Collects lost ranges, merging adjacent ones with the same reason; memory use is bounded.

    Args:
        source: the store being read, for the manifest.
        path: the directory, created with the first range.
        shown: the directory's name in ``copy``.
        name: returns the original path of a file that may be a partial copy.

    Attributes:
        ranges: the first of them.
        count: number of all ranges.
        bytes: their total length.
    """

    def __init__(self, source: str, path: str, shown: str = NAME, name: Callable[[str], str] = str) -> None:
        self._source, self.path, self._shown, self._name = source, path, shown, name
        self.ranges: list[LostRange] = []
        self.count = self.bytes = 0
        self._reasons: Counter[str] = Counter()
        self._pending: LostRange | None = None
        self._manifest: File | None = None
        self._at = 0  # end of the manifest

    def damage(self, item: Damage) -> None:
        """Keep a damaged range."""
        self.keep(item.path, item.at, item.physical_offset, item.length, item.reason)

    def keep(self, path: str, at: int, physical_offset: int, length: int, reason: str) -> None:
        """Keep bytes [at, at + length) of a file."""
        last = self._pending
        if last is not None and (last.file, last.at + last.length, last.reason) == (path, at, reason):
            at, physical_offset, length = last.at, last.physicalOffset, last.length + length
        else:
            self._flush()
        # positions in the tier are per queue, so they can repeat
        twice = f"-{self.count}" if os.path.lexists(os.path.join(self.path, f"{physical_offset:020d}-{length}")) else ""
        copy = os.path.join(self._shown, f"{physical_offset:020d}-{length}{twice}")
        self._pending = LostRange(
            file=path, at=at, physicalOffset=physical_offset, length=length, reason=reason, copy=copy
        )

    def _flush(self) -> None:
        row, self._pending = self._pending, None
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
        """Write the last range and finish the manifest; everything is durable when this returns."""
        self._flush()
        if self._manifest is None:
            return
        reasons: dict[str, Any] = dict(self._reasons.most_common())
        self._write(f'\n ],\n "reasons": {json.dumps(reasons)}\n}}\n')
        self._manifest.sync()
        self._manifest.close()
        self._manifest = None
        sync(self.path)

    def _write(self, text: str) -> None:
        """Append ASCII text to the manifest."""
        assert self._manifest is not None
        self._manifest.write(self._at, text.encode("ascii"))
        self._at += len(text)


def _copy(path: str, at: int, length: int, target: str) -> None:
    with open_file(path) as source, make_file(target) as out:
        done = 0
        while done < length and (part := source.read(at + done, min(length - done, _PIECE))):
            out.write(done, part)
            done += len(part)
        out.sync()
