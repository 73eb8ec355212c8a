"""Create a backup of a stopped or live store. The store is only read."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

from rmqtool.errors import CorruptFile, Refused, UnreadableStore
from rmqtool.progress import Stage, stage
from rmqtool.store.backup.copying import RateLimit
from rmqtool.store.backup.home import BackupHome, BackupPart, Original
from rmqtool.store.backup.local import LocalHome
from rmqtool.store.backup.manifest import Backup, BackupFile
from rmqtool.store.backup.sources import SourceFile, Sources
from rmqtool.store.disk.lock import holder
from rmqtool.store.layout.paths import StoreLayout

_RECENT = 2_000_000_000  # ns: a file changed less long ago may have changed again without a new time
Warn = Callable[[str], None]


def create_backup(
    layout: StoreLayout, home: str | BackupHome, warn: Warn, *, incremental: bool = False, rate: int | None = None
) -> Backup:
    """Make a backup.

    Every message that was acknowledged before the call is in it. If the run is killed, the next one for the same store
    continues from what was copied.

    Args:
        home: directory of backups; created if it does not exist.
        incremental: files that have not changed since an earlier backup there are not copied again: they become hard
            links to its copies, or in object storage copies that are made there.
        rate: most bytes per second to copy.

    Raises:
        Refused: the directory has other files, another run is using it, it is inside the store, or the store changed in
            a way that prevents copying.
        UnreadableStore: something cannot be read or written.
    """
    if isinstance(home, str):
        home = _outside(layout, home)
    with home.locked(layout.root):
        return _Run(layout, home, warn, incremental=incremental, rate=rate).run()


def _outside(layout: StoreLayout, path: str) -> LocalHome:
    """The directory at a path, which must not lie in the store."""
    home = LocalHome(path)
    real, root = os.path.realpath(home.place), os.path.realpath(layout.root)
    if real == root or real.startswith(root + os.sep) or layout.part_with(home.place) is not None:
        raise Refused(f"{home.place}: lies in the store: give another directory")
    return home


class _Run:
    def __init__(
        self, layout: StoreLayout, home: BackupHome, warn: Warn, *, incremental: bool, rate: int | None
    ) -> None:
        self._layout, self._home, self._warn, self._pace = layout, home, warn, RateLimit(rate)
        self._began = time.time_ns()
        self._earlier = self._find_earlier() if incremental else {}
        self._live = holder(layout.root) is not None

    def run(self) -> Backup:
        try:
            with self._home.begin(self._layout.root, self._began) as part:
                return self._fill(part)
        except OSError as err:
            where = err.filename or self._home.place
            reason = os.strerror(err.errno) if err.errno else str(err)
            raise UnreadableStore(
                f"{where}: {reason}: the backup is not complete; the same command continues with it"
            ) from err

    def _fill(self, part: BackupPart) -> Backup:
        sources = Sources(self._layout, live=self._live)
        files: dict[str, BackupFile] = {}
        with stage("copying", max(sources.log_to - sources.log_from, 0)) as copying:
            for source in sources:
                file = self._take(source, part, copying)
                if file is not None:
                    files[file.path] = file
                    part.note(file)
        self._refuse_changes(files, sources)
        for text in sources.warnings:
            self._warn(text)
        log = [file for path, file in files.items() if path.startswith("commitlog/")]
        low = min((int(os.path.basename(file.path)) for file in log if file.path[10:].isdecimal()), default=0)
        backup = Backup(
            name=part.name,
            store=self._layout.root,
            createdTimestamp=self._began // 1_000_000,
            live=self._live,
            logFrom=low if self._live else sources.log_from,
            logTo=sources.log_to,
            files=list(files.values()),
            warnings=sources.warnings,
        )
        part.finish(backup, files)
        return backup

    # -- one file ------------------------------------------------------------------------------------------------------

    def _take(self, source: SourceFile, part: BackupPart, copying: Stage) -> BackupFile | None:
        """Copy a file, or use an existing copy of it. None if the broker has removed it as expired."""
        if source.data is not None:
            part.done.pop(source.path, None)
            return part.write(source)
        original = _look_at(source)
        if original is None:
            self._note_gone(source)
            return None
        before = part.done.pop(source.path, None)
        if before is not None and before.sealed and original.is_same(before) and part.holds(before):
            copying.done += before.written
            return before
        sealed = source.sealed
        if sealed is None:
            sealed = original.modified_ns < self._began - _RECENT
        if sealed and (reused := self._reuse(original, part)) is not None:
            copying.done += reused.written
            return reused
        try:
            return original.describe(part.copy(original, self._pace, copying), sealed=sealed)
        except FileNotFoundError:
            if _look_at(source) is not None:
                raise
            self._note_gone(source)
            return None

    def _reuse(self, original: Original, part: BackupPart) -> BackupFile | None:
        for name, file in self._earlier.get(original.source.path, ()):
            if original.is_same(file):
                try:
                    reused = part.reuse(name, file)
                except Refused as err:
                    self._warn(str(err))
                    continue
                if reused is not None:
                    return reused
        return None

    def _note_gone(self, source: SourceFile) -> None:
        if not self._live:
            raise Refused(f"{source.original}: has gone while the store was copied: run it again")
        self._warn(f"{source.original}: the broker removed it as expired while the store was copied")

    def _refuse_changes(self, files: dict[str, BackupFile], sources: Sources) -> None:
        """Check that a stopped store was still stopped at the end, and that a live one lost no file from the middle."""
        if self._live:
            names = sorted(int(path[10:]) for path in files if path.startswith("commitlog/") and path[10:].isdecimal())
            sizes = {int(path[10:]): file.bytes for path, file in files.items() if path.startswith("commitlog/")}
            for base, following in pairwise(names):
                if base + sizes[base] != following and sources.log_from <= base:
                    self._warn(f"the log has a gap between {base + sizes[base]} and {following}")
            return
        if holder(self._layout.root) is not None:
            raise Refused(f"{self._layout.root}: a broker was started while it was copied: run it again")
        for source in Sources(self._layout, live=False):
            original, file = _look_at(source), files.get(source.path)
            if original is None or file is None or not original.is_same(file):
                raise Refused(f"{source.original}: has changed while the store was copied: run it again")

    def _find_earlier(self) -> dict[str, list[tuple[str, BackupFile]]]:
        """Path → (backup, file) of sealed files of complete backups, newest first."""
        backups: dict[str, list[tuple[str, BackupFile]]] = {}
        for name in reversed(self._home.names()[0]):
            try:
                backup = self._home.read(name)
            except (CorruptFile, UnreadableStore) as err:
                self._warn(f"{err}: not used")
                continue
            for file in backup.files:
                if file.sealed:
                    backups.setdefault(file.path, []).append((name, file))
        return backups


def _look_at(source: SourceFile) -> Original | None:
    """A file as it is now; None if it is gone."""
    with suppress(FileNotFoundError):
        about = os.stat(source.original)
        return Original(source, about.st_size, about.st_mtime_ns, about.st_ino)
    return None
