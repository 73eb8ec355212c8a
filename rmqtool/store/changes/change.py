"""One atomic change to a store: prepared aside, backed up, applied, and completed after a kill.

Each change has a directory of its own next to the store::

    <store>.rmqtool/20261121T081230Z-recover/
        run.json        the store that it belongs to
        manifest.json   state (committed | done | undoing | undone | forgotten) and the list of actions
        after/          new files
        before/         every replaced file and byte range, under its path in the store

Order: stage new files, save what will be overwritten, sync all of that, mark the change as committed in its directory
and in the store, then apply it. Every action is idempotent. A kill before the commit mark leaves the store untouched.
After a kill that comes later, the next writing command completes the change, provided that nothing else has touched the
store in between.
"""

import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import groupby

from formats.variants.timer import snapshot_flag
from rmqtool.errors import Refused, UnreadableStore
from rmqtool.progress import Stage, stage
from rmqtool.store.changes import manifest as manifests
from rmqtool.store.changes import steps
from rmqtool.store.changes.manifest import Action, Head, LogEnd, Manifest, Print, digest_before, digest_of, print_of
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.runs import claim, default_home, identity, mark, runs, unmark
from rmqtool.store.changes.signals import Signals
from rmqtool.store.changes.survey import RunSurvey
from rmqtool.store.disk import files
from rmqtool.store.disk.durable import NO_ROOM, sync, sync_all, write_durably
from rmqtool.store.disk.files import list_folder
from rmqtool.store.disk.lock import Disturbed, check_alone, held_off
from rmqtool.store.disk.ownership import make_folders_as
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.words import command_line

PLAN_HINT = "(a plan builds queues and index in the system's temporary directory; TMPDIR names another)"
_HALF_DONE = "half done; when that is mended, the same command continues with it"
_SYNCS = 4  # files synced in parallel
_LITTLE = 8  # on a signal, this many remaining actions are still carried out

_FOLDERS = ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "config", "timerlog", "compaction")
_FILES = ("checkpoint", "abort", "timerwheel")
_DEPTH, _DEEPER = 4, 2  # directories inside each other; a tier has more
_Seen = tuple[int, int]  # length, time of modification in ns


class Snapshot:
    """Lengths and modification times of all files that a change may touch.

    Args:
        named: files outside the store to include.
        folders: further directories to include, with all that is below them.
    """

    def __init__(self, layout: StoreLayout, named: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
        self._seen: dict[str, _Seen] = {}
        wheels = (entry.path for entry in layout.entries() if snapshot_flag(entry.name) >= 0)
        self._alone = [*(layout.path(name) for name in _FILES), *wheels, *named]
        self._logs = list(layout.commit_log_paths)
        for folder in (*self._logs, *map(layout.path, _FOLDERS)):
            self._walk(folder)
        for folder in folders:
            self._walk(folder, -_DEEPER)
        for path in self._alone:
            self._look(path)

    def _walk(self, folder: str, depth: int = 0) -> None:
        try:
            for entry in list_folder(folder):
                if entry.is_dir() and depth < _DEPTH:
                    self._walk(entry.path, depth + 1)
                else:
                    status = entry.stat(follow_symlinks=False)
                    self._seen[entry.path] = status.st_size, status.st_mtime_ns
        except OSError:
            return  # a reader of the files will report it

    def _look(self, path: str) -> None:
        if (now := _now(path)) is not None:
            self._seen[path] = now

    def find_changed(self, paths: Iterable[str]) -> list[str]:
        """Those of the given paths and of the log's files that have changed."""
        log = []
        for folder in self._logs:
            try:
                log += [entry.path for entry in list_folder(folder) if not entry.is_dir()]
            except OSError:
                continue
        log += [path for path in self._seen if os.path.dirname(path) in self._logs]
        return [path for path in dict.fromkeys((*log, *self._alone, *paths)) if _now(path) != self._seen.get(path)]


def _now(path: str) -> _Seen | None:
    """The state of a file or link; None for a directory, which no change touches."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return None
    return status.st_size, status.st_mtime_ns


class Change:
    """Prepare a change with :meth:`staging`, :meth:`remove` and :meth:`zero`, then :meth:`commit` it.

    Args:
        root: the store directory, or the places that may contain its files.
        command: the command's name, for the directory and the manifest.
        home: directory for backups; None for the one next to the store.
        hint: how to choose another directory, for the message about a full disk.
        signals: the signals that may interrupt it.
        snapshot: state of the store before it was read for this change.
        dry: True for a plan, which is never committed.

    As a context manager it discards the change at the end unless it was committed.

    Attributes:
        command: see above.
        finished: folder and command of an earlier run that had to be completed first; None without one.
    """

    def __init__(
        self,
        root: str | Places,
        command: str,
        home: str | None = None,
        hint: str = "(see --backup)",
        *,
        signals: Signals | None = None,
        snapshot: Snapshot | None = None,
        dry: bool = False,
    ) -> None:
        self.places = root if isinstance(root, Places) else Places(root)
        self.root, self._hint = self.places.root, hint
        self.home = os.path.abspath(home) if home is not None else default_home(self.places)
        self.actions: list[Action] = []
        self.log: LogEnd | None = None
        self.finished: tuple[str, str] | None = None
        self._head: Head | None = None
        self.command = command
        self._path: str | None = None
        self._staged = 0
        self.signals, self._snapshot, self._dry = signals or Signals(), snapshot, dry

    @classmethod
    def at(cls, places: Places, path: str, manifest: Manifest, signals: Signals | None = None) -> "Change":
        """A change from the manifest of an earlier run."""
        change = cls(places, manifest.head.command, os.path.dirname(path), signals=signals)
        change._path, change._head, change.actions, change.log = path, manifest.head, manifest.actions, manifest.log
        return change

    @property
    def path(self) -> str:
        """The change's own directory, created on first use, as most runs have nothing to change."""
        if self._path is None:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            self._path = _create_dir(self.home, f"{stamp}-{self.command}", self.places, dry=self._dry)
        return self._path

    @property
    def head(self) -> Head:
        """The head of the manifest, which must have been written."""
        assert self._head is not None
        return self._head

    def inside(self, *parts: str | None) -> str:
        """A path in the change's own directory."""
        return os.path.join(self.path, *filter(None, parts))

    def staging(self) -> str:
        """A path for a new file that :meth:`put` will move into place."""
        self._staged += 1
        return self.inside("after", f"{self._staged:06d}")

    # -- preparing ----------------------------------------------------------------------------------------------------

    def put(self, path: str, staged: str, mtime_ns: int | None = None) -> None:
        """Move a staged file to a path in the store; an existing file is backed up."""
        self.places.name_of(path)
        if mtime_ns is not None:
            files.set_times(staged, mtime_ns, mtime_ns)
        self.actions.append(Action("put", os.path.abspath(path), staged=os.path.relpath(staged, self.path)))

    def put_content(self, path: str, content: bytes) -> None:
        """Like :meth:`put`, for small contents."""
        staged = self.staging()
        with files.make_file(staged) as file:
            file.write(0, content)
        self.put(path, staged)

    def remove(self, path: str) -> None:
        """Move a file from the store to the backup."""
        self.places.name_of(path)
        self.actions.append(Action("remove", os.path.abspath(path)))

    def zero(self, path: str, start: int, stop: int) -> None:
        """Zero bytes [start, stop) of a file; its non-zero bytes are backed up.

        Raises:
            Refused: the file is a link out of the store.
        """
        try:
            self.places.path_of(self.places.name_of(path), follow=True)
        except ValueError as err:
            raise Refused(f"{path}: {err}") from err
        self.actions.append(Action("zero", os.path.abspath(path), start=start, stop=stop))

    def expect_log(self, files: list[tuple[str, int]], file: str | None, at: int) -> None:
        """Record what this change assumes: the files of the log, and that nothing is written after its end.

        Args:
            files: (path, length).
            file: the file in which the log ends.
            at: the position of the end in that file.
        """
        self.log = LogEnd(files, file, at, None)

    # -- committing ---------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Make the change durable, then apply it.

        Raises:
            Refused: a file has changed since the planning; nothing was changed.
            Interrupted: a signal arrived while the change was applied.
        """
        check_alone(self.root)  # names the process; the next line finds what it has changed
        self._record_current()
        folders = files.folders_from(self.inside("after"))
        staged = [self.inside(action.staged) for action in self.actions if action.do == "put"]
        # in parallel, so that the disk is not idle in between; the largest files first
        staged.sort(key=lambda path: os.stat(path).st_blocks, reverse=True)
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_SYNCS) as pool:
            for _done in pool.map(sync, staged):
                pass
        sync_all({*folders, self.path})
        number = _next_number(self.places, self.home)
        beside = os.path.realpath(self.home) == os.path.realpath(default_home(self.places))
        store = identity(self.places)
        self.signals.defer()
        self._head = Head(manifests.FORMAT, os.urandom(8).hex(), number, self.command, "committed", store, beside)
        with self.held_off():  # raises if a broker has come since the preparation; nothing was changed yet
            self.write_manifest("committed")
            self.apply()

    def held_off(self) -> AbstractContextManager[None]:
        """Keep brokers from loading the store inside the ``with`` block.

        Raises:
            Disturbed: one has done so already, or is about to.
        """
        config = os.path.join(self.root, "config", "")
        return held_off(self.root, configs=any(action.path.startswith(config) for action in self.actions))

    def _record_current(self) -> None:
        """Record the current state of each action's file, and save what cannot be saved later."""
        if self._snapshot is not None and (
            changed := self._snapshot.find_changed(action.path for action in self.actions)
        ):
            more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            raise Refused(
                f"{changed[0]}{more}: has changed while this was planned, as by a broker that starts: nothing was "
                "changed; run it again"
            )
        folders: set[str] = set()
        for number, action in enumerate(self.actions):
            action.was = print_of(action.path)
            if action.was is not None and action.was.size < 0:
                raise Refused(f"{action.path}: is neither a file nor a link: move it away; nothing was changed")
            if action.do == "zero":
                action.kept = f"before/{number:06d}.bytes"
                # retention and the time search of 4.9 use the modification time as a file's age
                action.mtime_ns = os.stat(action.path).st_mtime_ns
                folders |= steps.room_for(self.path, self.places, action.kept)
                steps.save_range(self.path, action)
            elif action.was is not None:
                action.kept = self._kept_name(action.path)
            elif action.do == "remove":
                raise Refused(f"{action.path}: is gone: nothing was changed; run it again")
            if action.do == "put":
                with files.open_to_change(self.inside(action.staged)) as staged:
                    staged.take_after(action.path)
                action.put = print_of(self.inside(action.staged))
                action.made = _missing_parents(action.path)
        sync_all(folders)
        if self.log is not None and self.log.file is not None:
            with files.open_file(self.log.file) as file:
                self.log.behind = digest_of(file, self.log.at, file.about().st_size)
                self.log.before = digest_before(file, self.log.at)

    def _kept_name(self, path: str) -> str:
        """Path of a backup below the run's folder: the path in the store, or a special one for a file outside."""
        name = self.places.name_of(path)
        if isinstance(name, list):
            name = f"outside/{name[0]}/{name[1]}"
        elif isinstance(name, dict):
            name = f"named/{len(self.actions)}-{os.path.basename(path)}"
        return f"before/{name}"

    # -- applying -----------------------------------------------------------------------------------------------------

    def survey(self) -> RunSurvey:
        """Determine how much of the change has been applied."""
        try:
            since = os.stat(self.inside(manifests.NAME)).st_mtime_ns
        except OSError:
            since = 0
        return RunSurvey(self.places, self.path, Manifest(self.head, self.log, self.actions, since))

    def apply(self) -> None:
        """Apply a committed change; continues an interrupted one.

        Raises:
            UnreadableStore: a file cannot be moved or written, as on a full disk; it can be continued later.
            Refused: a file has changed in the meantime.
            Interrupted: a signal arrived.
            Disturbed: a broker has come; the next writing command completes the change.
        """
        assert self._head is not None
        with self.held_off(), self.half_done_errors():
            if self._head.format == 1:
                self.write_manifest("committed")
            mark(self.places, self._head.run, self.path)
            with stage("changing the store", len(self.actions), "changes") as changing:
                left = self._apply(changing)
            if not left:
                unmark(self.places)  # before the manifest, so that a mark always means an unfinished change
                self.write_manifest("done")
        if self.signals.asked is not None:
            store = self.places.root
            if left:
                done = len(self.actions) - left
                raise self.signals.error(
                    f"{done} of {len(self.actions)} changes are done and durable, {left} are left: the same command "
                    f"continues with them, and {command_line('undo', store)} puts all back"
                )
            raise self.signals.error(f"all was done before it stopped: {command_line('undo', store)} puts it back")

    @contextmanager
    def half_done_errors(self) -> Iterator[None]:
        """Convert errors inside the ``with`` block into ones that say that the change is half done.

        Raises:
            UnreadableStore: for an OSError.
            Refused: for a file changed by another process.
            Disturbed: for itself, with that addition.
        """
        try:
            yield
        except Disturbed as err:
            raise Disturbed(f"{err}: {_HALF_DONE}") from err
        except OSError as err:
            where = err.filename2 or err.filename or self.path
            raise UnreadableStore(f"{where}: {os.strerror(err.errno or 0)}: {_HALF_DONE}") from err
        except steps.Differs as err:
            raise Refused(
                f"{err} during this run, which stopped there: half done; everything replaced is kept in "
                f"{self.path} (see {command_line('undo', self.places.root, '--dry-run')})"
            ) from err

    def _apply(self, changing: Stage) -> int:
        """Carry out the actions; returns how many are left after a signal."""
        # one sync per group of like actions, since each sync waits for the disk; but before the next kind begins: a
        # power cut must not undo the queues and leave the abort file removed
        left = len(self.actions)
        for do, group in groupby(self.actions, key=lambda action: action.do):
            actions, changed = list(group), set[str]()
            if do == "put":
                for action in actions:
                    steps.keep(self.path, self.places, action, changed)
                sync_all(changed)  # before anything is replaced
                changed.clear()
            for action in actions:
                if self.signals.asked is not None and left > _LITTLE:
                    break
                check_alone(self.root)
                steps.STEPS[do](self.path, self.places, action, changed)
                left -= 1
                changing.done += 1
            sync_all(changed)
            if self.signals.asked is not None and left > _LITTLE:
                return left
        return 0

    def __enter__(self) -> "Change":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Discard the change if it was not committed, and convert errors of failed writes during the preparation.

        Raises:
            Refused: for an OSError about the backup directory, the only place written to until then.
        """
        text = f"nothing was changed {self._hint}"
        if self._path is not None and not os.path.exists(self.inside(manifests.NAME)):
            files.remove_tree(self._path)
            _remove_if_empty(self.home)
        elif self._path is not None:
            text = _HALF_DONE
        if isinstance(error, OSError):
            named = error.filename
            if str(named).startswith(self.home) if named is not None else error.errno in NO_ROOM:
                raise Refused(f"{self.home}: {os.strerror(error.errno or 0)}: {text}") from error

    def _upgrade_format(self) -> None:
        """Add what this version records to the run of an earlier version that was found to be in order."""
        head = self._head
        assert head is not None
        for number, action in enumerate(self.actions):
            if action.do == "zero":
                with files.open_file(self.inside(action.kept)) as kept:
                    action.digest = digest_of(kept, 0, action.stop - action.start)
                action.was = Print(os.stat(action.path).st_size, action.mtime_ns)
            elif action.kept is not None:
                kept_path = self.inside(action.kept)
                action.was = print_of(kept_path if os.path.lexists(kept_path) else action.path)
                if action.was is None:
                    raise steps.Differs(f"{action.path}: actions[{number}] has neither its file nor a kept one")
            action.known = True
        head.format, head.run, head.store = manifests.FORMAT, os.urandom(8).hex(), identity(self.places)
        head.beside = os.path.realpath(self.home) == os.path.realpath(default_home(self.places))

    def write_manifest(self, state: str) -> None:
        """Write the actions and their state durably."""
        assert self._head is not None
        if self._head.format == 1:
            self._upgrade_format()
        self._head.state = state
        text = manifests.build(Manifest(self._head, self.log, self.actions), self.places)
        write_durably(self.inside(manifests.NAME), text.encode("utf-8", "surrogateescape"), like=self.places.real)


def _create_dir(home: str, name: str, places: Places, *, dry: bool) -> str:
    """Create the run's folder, with a file that names its store, durably."""
    path = ""
    try:
        created = make_folders_as(home, places.real)
        for attempt in range(1000):
            path = os.path.join(home, name if not attempt else f"{name}-{attempt + 1}")
            if make_folders_as(path, places.real):
                break
        else:
            raise Refused(f"{home}: too many backups were made in this second: try again")
        make_folders_as(os.path.join(path, "after"), places.real)
        if not dry:
            claim(path, places)
            sync_all({home, *map(os.path.dirname, created)})
        return path
    except OSError as err:
        files.remove_tree(path)
        _remove_if_empty(home)
        raise Refused(f"{home}: {os.strerror(err.errno or 0)}: no place for a backup (see --backup)") from err


def _missing_parents(path: str) -> list[str]:
    """Directories to be created for a file, innermost first.

    Raises:
        Refused: something else has the name of one.
    """
    missing = []
    while not os.path.isdir(path := os.path.dirname(path)):
        if os.path.lexists(path):
            what = f"a link to {os.readlink(path)}, which is not there" if os.path.islink(path) else "no directory"
            raise Refused(f"{path}: is {what}: move it away; nothing was changed")
        missing.append(path)
    return missing


def _remove_if_empty(path: str) -> None:
    with suppress(OSError):
        files.remove_folder(path)


def _next_number(places: Places, home: str | None) -> int:
    """The number of the next run, for ordering: clocks may step back, and a second is enough for many runs."""
    return 1 + max((run.head.number for run in runs(places, home) if run.head is not None), default=0)
