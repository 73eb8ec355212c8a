"""One change of a store as a whole: prepared aside, kept, applied, and finished after a kill.

It lives in its own directory beside the store::

    <store>.rmqtool/20261121T081230Z-recover/
        run.json        whose it is
        manifest.json   state (committed | done | undoing | undone | forgotten) and the list of actions
        after/          files to be put in place
        before/         every file and byte range that was replaced, under its path in the store

Order: stage new files, save what will be overwritten, sync all of it, mark committed, there and in the store, then
apply. Every action can be applied twice. So a kill before the mark leaves the store untouched, and one after it is
finished by the next writing command, provided that nothing but this run has touched the store in between.
"""

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import groupby

from rmqtool.errors import Refused, UnreadableStore
from rmqtool.progress import Stage, stage
from rmqtool.store.changes import manifest as manifests
from rmqtool.store.changes import steps
from rmqtool.store.changes.manifest import Action, Head, LogEnd, Manifest
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.prints import Print, digest_before, digest_of, print_of
from rmqtool.store.changes.runs import claim, default_home, identity, mark, next_number, unmark
from rmqtool.store.changes.signals import Signals
from rmqtool.store.changes.snapshot import Snapshot
from rmqtool.store.changes.survey import Differs, Survey
from rmqtool.store.disk import files
from rmqtool.store.disk.durable import NO_ROOM, sync, sync_all, write_durably
from rmqtool.store.disk.lock import Disturbed, check_alone, held_off
from rmqtool.store.disk.ownership import make_folders_as
from rmqtool.words import command_line

PLAN_HINT = "(a plan builds queues and index in the system's temporary directory; TMPDIR names another)"
_HALF_DONE = "half done; when that is mended, the same command goes on with it"
_SYNCS = 4  # files that are made durable at a time
_LITTLE = 8  # actions that are rather finished than left, when a signal asks to stop


class Change:
    """Prepare with :meth:`staging`, :meth:`remove`, :meth:`zero`; then :meth:`commit`.

    Args:
        root: the store directory, or the places in which its files may be.
        command: the command's name, for the directory and the manifest.
        home: where backups go instead of beside the store.
        hint: how to have another place, for the message when there is no room.
        signals: that ask to stop.
        snapshot: of the store before it was read for this change.
        dry: for a plan, that is never committed.

    As a context it is forgotten at the end, unless it was committed.

    Attributes:
        command: as given.
        finished: folder of an earlier run that had to be finished first, and its command.
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
        """A change that an earlier run has written down."""
        change = cls(places, manifest.head.command, os.path.dirname(path), signals=signals)
        change._path, change._head, change.actions, change.log = path, manifest.head, manifest.actions, manifest.log
        return change

    @property
    def path(self) -> str:
        """The change's own directory, made when it is first needed: most runs find nothing to change."""
        if self._path is None:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            self._path = _fresh_dir(self.home, f"{stamp}-{self.command}", self.places, dry=self._dry)
        return self._path

    @property
    def head(self) -> Head:
        """Of the manifest, which must have been written."""
        assert self._head is not None
        return self._head

    def inside(self, *parts: str | None) -> str:
        """A path in the change's own directory."""
        return os.path.join(self.path, *filter(None, parts))

    def staging(self) -> str:
        """Path for a new file that :meth:`put` will move into place."""
        self._staged += 1
        return self.inside("after", f"{self._staged:06d}")

    # -- preparing ----------------------------------------------------------------------------------------------------

    def put(self, path: str, staged: str, mtime_ns: int | None = None) -> None:
        """A staged file takes a path in the store; what was there is kept."""
        self.places.name_of(path)
        if mtime_ns is not None:
            files.set_times(staged, mtime_ns, mtime_ns)
        self.actions.append(Action("put", os.path.abspath(path), staged=os.path.relpath(staged, self.path)))

    def put_content(self, path: str, content: bytes) -> None:
        """As :meth:`put`, of a small file."""
        staged = self.staging()
        with files.make_file(staged) as file:
            file.write(0, content)
        self.put(path, staged)

    def remove(self, path: str) -> None:
        """A file leaves the store and is kept."""
        self.places.name_of(path)
        self.actions.append(Action("remove", os.path.abspath(path)))

    def zero(self, path: str, start: int, stop: int) -> None:
        """Bytes [start, stop) of a file become zero; those that are not zero yet are kept."""
        self.places.path_of(self.places.name_of(path), follow=True)
        self.actions.append(Action("zero", os.path.abspath(path), start=start, stop=stop))

    def expect_log(self, files: list[tuple[str, int]], file: str | None, at: int) -> None:
        """What this change takes for granted: the files of the log, and that nothing is written behind its end.

        Args:
            files: (path, length).
            file: in which the log ends.
            at: where in it.
        """
        self.log = LogEnd(files, file, at, None)

    # -- committing ---------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Make it durable, then do it.

        Raises:
            Refused: a file is not as it was when this change was planned; nothing was changed.
            Interrupted: a signal came while it was applied.
        """
        check_alone(self.root)  # says who came; the next line says what that has changed
        self._fix()
        folders = files.folders_from(self.inside("after"))
        staged = [self.inside(action.staged) for action in self.actions if action.do == "put"]
        # all at once, so that the medium is not idle between them; who takes longest begins first
        staged.sort(key=lambda path: os.stat(path).st_blocks, reverse=True)
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_SYNCS) as pool:
            for _done in pool.map(sync, staged):
                pass
        sync_all({*folders, self.path})
        number = next_number(self.places, self.home)
        beside = os.path.realpath(self.home) == os.path.realpath(default_home(self.places))
        store = identity(self.places)
        self.signals.defer()
        self._head = Head(manifests.FORMAT, os.urandom(8).hex(), number, self.command, "committed", store, beside)
        with self.held_off():  # a broker that came while this was prepared ends it here: nothing was changed yet
            self.write_manifest("committed")
            self.apply()

    def held_off(self) -> AbstractContextManager[None]:
        """No broker loads the store as long as this lasts.

        Raises:
            Disturbed: one has already, or is about to.
        """
        config = os.path.join(self.root, "config", "")
        return held_off(self.root, configs=any(action.path.startswith(config) for action in self.actions))

    def _fix(self) -> None:
        """Write down what each action finds, and save what no later moment could save."""
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
                # retention and the time search of 4.9 read a file's age from its modification time
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
        """Path of a kept file below the run's folder: that in the store, or one of its own for a file outside."""
        name = self.places.name_of(path)
        if isinstance(name, list):
            name = f"outside/{name[0]}/{name[1]}"
        elif isinstance(name, dict):
            name = f"named/{len(self.actions)}-{os.path.basename(path)}"
        return f"before/{name}"

    # -- applying -----------------------------------------------------------------------------------------------------

    def survey(self) -> Survey:
        """How far it is."""
        try:
            since = os.stat(self.inside(manifests.NAME)).st_mtime_ns
        except OSError:
            since = 0
        return Survey(self.places, self.path, Manifest(self.head, self.log, self.actions, since))

    def apply(self) -> None:
        """Carry out a committed change, also one that was interrupted.

        Raises:
            UnreadableStore: a file cannot be moved or written, as when a disk is full; it can be gone on with.
            Refused: a file has changed while this was carried out.
            Interrupted: a signal asked to stop.
            Disturbed: a broker has come in; what is left to do is done by the next writing command.
        """
        assert self._head is not None
        with self.held_off(), self.going_on():
            if self._head.format == 1:
                self.write_manifest("committed")
            mark(self.places, self._head.run, self.path)
            with stage("changing the store", len(self.actions), "changes") as changing:
                left = self._apply(changing)
            if not left:
                unmark(self.places)  # before the manifest: a mark always means that something is left to look at
                self.write_manifest("done")
        if self.signals.asked is not None:
            store = self.places.root
            if left:
                done = len(self.actions) - left
                raise self.signals.error(
                    f"{done} of {len(self.actions)} changes are done and durable, {left} are left: the same command "
                    f"goes on with them, and {command_line('undo', store)} puts all back"
                )
            raise self.signals.error(f"all was done before it stopped: {command_line('undo', store)} puts it back")

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Where this fails something is left to do.

        Raises:
            UnreadableStore: instead of an OSError.
            Refused: another process changes the store meanwhile.
            Disturbed: as it was, and that something is left.
        """
        try:
            yield
        except Disturbed as err:
            raise Disturbed(f"{err}: {_HALF_DONE}") from err
        except OSError as err:
            where = err.filename2 or err.filename or self.path
            raise UnreadableStore(f"{where}: {os.strerror(err.errno or 0)}: {_HALF_DONE}") from err
        except Differs as err:
            raise Refused(
                f"{err} during this run, which stopped there: half done; everything replaced is kept in "
                f"{self.path} (see {command_line('undo', self.places.root, '--dry-run')})"
            ) from err

    def _apply(self, changing: Stage) -> int:
        """Returns how many actions are left, where a signal came."""
        # of a run of like actions once for all, for each is a wait for the medium; but before the next kind begins: no
        # power cut may take back queues and leave the abort file removed
        left = len(self.actions)
        for kind, group in groupby(self.actions, key=lambda action: action.do):
            actions, changed = list(group), set[str]()
            if kind == "put":
                for action in actions:
                    steps.keep(self.path, self.places, action, changed)
                sync_all(changed)  # before anything is replaced
                changed.clear()
            for action in actions:
                if self.signals.asked is not None and left > _LITTLE:
                    break
                check_alone(self.root)
                steps.STEPS[kind](self.path, self.places, action, changed)
                left -= 1
                changing.done += 1
            sync_all(changed)
            if self.signals.asked is not None and left > _LITTLE:
                return left
        return 0

    def __enter__(self) -> "Change":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Forget it if it was not committed, and tell of a write that failed where it was prepared.

        Raises:
            Refused: instead of an OSError about the place for backups, which is all that is written to until then.
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

    def _as_this_version(self) -> None:
        """A run of an earlier version, found to be in order: write down what it did not."""
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
                    raise Differs(f"{action.path}: actions[{number}] has neither its file nor a kept one")
            action.known = True
        head.format, head.run, head.store = manifests.FORMAT, os.urandom(8).hex(), identity(self.places)
        head.beside = os.path.realpath(self.home) == os.path.realpath(default_home(self.places))

    def write_manifest(self, state: str) -> None:
        """Write down the actions and how far they are, durably."""
        assert self._head is not None
        if self._head.format == 1:
            self._as_this_version()
        self._head.state = state
        text = manifests.build(Manifest(self._head, self.log, self.actions), self.places)
        write_durably(self.inside(manifests.NAME), text.encode("utf-8", "surrogateescape"), like=self.places.real)


def _fresh_dir(home: str, name: str, places: Places, *, dry: bool) -> str:
    """A new folder that says whose it is, and whose name is durable."""
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
    """Directories that must be made for a file, innermost first."""
    missing = []
    while not os.path.isdir(path := os.path.dirname(path)):
        missing.append(path)
    return missing


def _remove_if_empty(path: str) -> None:
    with suppress(OSError):
        files.remove_folder(path)
