"""Determine the progress of each action of a run from the state of the store, and detect other changes."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from itertools import pairwise

import numpy as np

from rmqtool.store.changes.manifest import (
    Action,
    LogEnd,
    Manifest,
    Print,
    digest_before,
    digest_of,
    is_still,
    print_of,
    same,
)
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.steps import Differs, own_path
from rmqtool.store.disk.directories import list_dir
from rmqtool.store.disk.files import File, open_file
from rmqtool.store.disk.segments import offset_name
from rmqtool.words import counted

_QUEUE = re.compile(r"(consumequeue|consumequeue_ext|batchconsumequeue|index)/")


class ActionState(Enum):
    """Progress of an action."""

    BEFORE = "not begun"
    BETWEEN = "begun"
    AFTER = "done"


class RunSurvey:
    """Compares a store with one run; writes nothing.

    Attributes:
        how: progress of each action; None if its file differs.
        differences: descriptions of the unexpected changes, one per file.
    """

    def __init__(self, places: Places, folder: str, manifest: Manifest) -> None:
        self._places, self._folder, self._manifest = places, folder, manifest
        self.how: list[ActionState | None] = []
        self.differences: list[str] = []
        self.paths: list[str] = []  # of the files that differ
        for action in manifest.actions:
            try:
                for name in (action.staged, action.kept):
                    if name is not None:
                        own_path(folder, name)
                self.how.append(
                    {"put": self._check_put, "remove": self._check_remove, "zero": self._check_zero}[action.do](action)
                )
            except (Differs, OSError) as err:
                self.how.append(None)
                self._differs(action.path, f"{err}")
        if manifest.log is not None:
            for path, difference in self._check_log():
                self._differs(path, difference)

    def _differs(self, path: str, text: str) -> None:
        self.differences.append(f"{self._places.show(path)}: {text}")
        self.paths.append(path)

    def lacks(self, *, undoing: bool) -> list[str]:
        """Files of the run itself that are missing or changed, so that it cannot be completed (or undone)."""
        missing = []
        for action, how in zip(self._manifest.actions, self.how, strict=True):
            if not undoing and action.do == "put" and how is ActionState.BEFORE:
                if not is_still(self._inside(action.staged), action.put):
                    missing.append(f"{self._inside(action.staged)}: is not what was to be put in place")
            elif action.kept is not None and how in (
                (ActionState.AFTER, ActionState.BETWEEN, None) if undoing else (ActionState.BETWEEN,)
            ):
                kept = self._inside(action.kept)
                if how is None and not os.path.lexists(kept):
                    continue  # the run has not reached it
                intact = self._kept_range(action) if action.do == "zero" else self._kept_file(action)
                if not intact:
                    missing.append(f"{kept}: is not what was kept")
        return missing

    def gaps(self) -> list[tuple[str, str]]:
        """Log files that cannot be put back because the files after them have been deleted since.

        They were deleted by a run that keeps no backup, or by a broker. A change that has expectations of the log
        covers this itself.

        Returns:
            (path, description of the gap).
        """
        if self._manifest.log is not None or self._manifest.head.format == 1:
            return []
        back = self._removed_of_log()
        there = self._others_of_log(back)
        if not there:
            return []
        files = sorted((back | there).items())
        return [
            (path, f"the log would go on at {following}, not at {base + size}: what lay between has gone since")
            for (base, (path, size)), (following, _file) in pairwise(files)
            if base + size != following and (base in back or following in back)
        ]

    def find_tears(self) -> list[tuple[str, str]]:
        """Log files that cannot be removed any more because files before them have come back since.

        They came back when an earlier run was undone. A change that has expectations of the log covers this itself.

        Returns:
            (path, description of the gap that it would leave).
        """
        if self._manifest.log is not None or self._manifest.head.format == 1:
            return []
        removed = self._removed_of_log()
        files = sorted(self._others_of_log(removed).items())
        return [
            (path, f"without it the log would have nothing between {base + size} and {following}")
            for (base, (_file, size)), (following, _behind) in pairwise(files)
            for at, (path, _size) in sorted(removed.items())
            if base + size <= at < following
        ]

    def _removed_of_log(self) -> dict[int, tuple[str, int]]:
        """(path, size) of each log file that the run removes, by base offset."""
        removed: dict[int, tuple[str, int]] = {}
        for action, how in zip(self._manifest.actions, self.how, strict=True):
            base = offset_name(os.path.basename(action.path))
            if action.do == "remove" and base is not None and not _QUEUE.match(self._places.show(action.path)):
                where = action.path if how is ActionState.BEFORE else self._inside(action.kept)
                with suppress(OSError):  # reported already
                    removed[base] = action.path, os.stat(where).st_size
        return removed

    def _others_of_log(self, removed: dict[int, tuple[str, int]]) -> dict[int, tuple[str, int]]:
        """(path, size) of the other log files in the same directories and in those of the log, by base offset."""
        others: dict[int, tuple[str, int]] = {}
        folders = {os.path.dirname(path) for path, _size in removed.values()} | set(self._places.log_folders)
        for folder in sorted(folders) if removed else ():
            for entry in list_dir(folder):
                if (base := offset_name(entry.name)) is not None and base not in removed:
                    others[base] = entry.path, os.stat(entry.path).st_size
        return others

    def _inside(self, name: str | None) -> str:
        assert name is not None
        return os.path.join(self._folder, name)

    def _kept_file(self, action: Action) -> bool:
        kept = print_of(self._inside(action.kept))
        return kept is not None and kept.size >= 0 and (not action.known or same(kept, action.was))

    def _kept_range(self, action: Action) -> bool:
        path = self._inside(action.kept)
        try:
            with open_file(path, link=False) as file:
                about, length = file.about(), action.stop - action.start
                if not stat.S_ISREG(about.st_mode) or about.st_size != length:
                    return False
                return not action.known or digest_of(file, 0, length) == action.digest
        except OSError:
            return False

    # -- actions ------------------------------------------------------------------------------------------------------

    def _check_put(self, action: Action) -> ActionState:
        now = print_of(action.path)
        staged = os.path.lexists(self._inside(action.staged))
        before = self._is_before(now, action)
        if same(now, action.put) and not (before and staged):
            return ActionState.AFTER
        if before:
            return ActionState.BEFORE
        raise Differs(_change(now, action.was if staged else action.put))

    def _check_remove(self, action: Action) -> ActionState:
        now = print_of(action.path)
        if now is None:
            if not os.path.lexists(self._inside(action.kept)):
                raise Differs("is gone, and not kept")
            return ActionState.AFTER
        if self._is_before(now, action):
            return ActionState.BEFORE
        raise Differs(_change(now, action.was if action.known else None))

    def _is_before(self, now: Print | None, action: Action) -> bool:
        if action.known:
            return same(now, action.was)
        if now is None:
            return action.do == "put" and action.kept is None
        return now.size >= 0 and now.mtime_ns <= self._manifest.written_ns

    def _check_zero(self, action: Action) -> ActionState:
        start, stop = action.start, action.stop
        try:
            file = open_file(action.path)
        except FileNotFoundError:
            raise Differs("is gone") from None
        with file:
            size = file.about().st_size
            wanted = action.was.size if action.was is not None else stop
            if size != wanted and (action.known or size < wanted):
                raise Differs(f"has {size} bytes, not {wanted}")
            if action.known and digest_of(file, start, stop) == action.digest:
                return ActionState.BEFORE
            kept_path = self._inside(action.kept)
            try:
                kept = open_file(kept_path, link=False)
            except OSError as err:
                if any(data.strip(b"\0") for _at, data in file.written_parts(start, stop)):
                    raise Differs("the range that becomes zero is not as it was, and not kept") from err
                return self._compare(file, None, start, stop)
            with kept:
                return self._compare(file, kept, start, stop)

    def _compare(self, file: File, kept: File | None, start: int, stop: int) -> ActionState:
        """Compare the range with its backup: every byte must be the same, or zero already."""
        foreign, first, left = 0, -1, False
        for at, data in file.written_parts(start, stop):
            if not data.strip(b"\0"):
                continue
            old = kept.read(at - start, len(data)) if kept is not None else b""
            here, there = np.frombuffer(data, np.uint8), np.frombuffer(old.ljust(len(data), b"\0"), np.uint8)
            strange = np.flatnonzero((here != 0) & (here != there))
            foreign += len(strange)
            if len(strange) and first < 0:
                first = at + int(strange[0])
            left = True
        if foreign:
            raise Differs(f"{foreign} bytes were written since between {start} and {stop}, the first at {first}")
        return ActionState.BETWEEN if left else ActionState.AFTER

    # -- the log ------------------------------------------------------------------------------------------------------

    def _check_log(self) -> Iterator[tuple[str, str]]:
        log, manifest = self._manifest.log, self._manifest
        assert log is not None
        known = {path for path, _size in log.files}
        removed = {action.path for action in manifest.actions if action.do == "remove"}
        changed = {action.path for action in manifest.actions if action.do in ("zero", "put")}
        for path, size in log.files:
            try:
                now = os.stat(path).st_size
            except OSError as err:
                if path not in removed:
                    yield path, f"{os.strerror(err.errno or 0)}; it was a file of the log"
                continue
            if now != size and path not in removed | changed:
                yield path, f"has {now} bytes, not {size}"
        for folder in sorted({os.path.dirname(path) for path in known} | set(self._places.logs)):
            for entry in list_dir(folder):
                if offset_name(entry.name) is not None and entry.path not in known:
                    yield entry.path, "is a new file of the log"
        if log.file is not None and log.file not in removed:
            yield from self._check_log_end(log.file, log, behind=log.file not in changed)

    def _check_log_end(self, path: str, log: LogEnd, *, behind: bool) -> Iterator[tuple[str, str]]:
        at = log.at
        try:
            file = open_file(path)
        except OSError:
            return  # reported already
        with file:
            size = file.about().st_size
            if log.before is not None and digest_before(file, at) != log.before:
                yield path, f"other bytes lie in front of {at}: cut farther back since, or another log"
            elif behind and digest_of(file, at, size) != log.behind:
                count = sum(len(data) - data.count(0) for _at, data in file.written_parts(at, size))
                yield path, f"{counted(count, 'byte was', 'bytes were')} written since after the log's end at {at}"


def _change(now: Print | None, wanted: Print | None) -> str:
    if now is None:
        return "is gone"
    if wanted is None:
        return "is there, and was not"
    if now.size < 0:
        return "is neither a file nor a link"
    if now.size != wanted.size:
        return f"has changed since: {now.size} bytes, not {wanted.size}"
    return "has changed since"
