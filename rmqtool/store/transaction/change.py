"""One change of a store as a whole: prepared aside, kept, applied, and finished after a kill.

A transaction lives in its own directory beside the store::

    <store>.rmqtool/20261121T081230Z-recover/
        manifest.json   state (prepared | committed | done) and the list of actions
        after/          files to be put in place
        before/         every file and byte range that was replaced, under its path in the store

Order: stage new files, save what will be overwritten, sync all of it, mark committed, then apply. Every action can be
applied twice. So a kill before the mark leaves the store untouched, and one after it is finished by the next writing
command.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby
from typing import Any

from rmqtool.errors import CorruptFile, Refused, UnreadableStore
from rmqtool.store.disk.durable import NO_ROOM, copy_aside, move, sync
from rmqtool.store.disk.lock import Disturbed, check_alone, held_off
from rmqtool.store.disk.segments import list_dir, read_small
from rmqtool.store.disk.sparse import written

SUFFIX = ".rmqtool"
PLAN_HINT = "(a plan builds queues and index in the system's temporary directory; TMPDIR names another)"
_HALF_DONE = "half done; when that is mended, the same command goes on with it"
_SYNCS = 4  # files that are made durable at a time
_NAME = re.compile(r"\d{8}T\d{6}Z-[a-z-]+(-\d+)?")


class Transaction:
    """Prepare with :meth:`stage`, :meth:`remove`, :meth:`zero`; then :meth:`commit`.

    Args:
        root: the store directory.
        command: the command's name, for the directory and the manifest.
        home: where backups go instead of beside the store.
        hint: how to have another place, for the message when there is no room.

    As a context it is forgotten at the end, unless it was committed.
    """

    def __init__(self, root: str, command: str, home: str | None = None, hint: str = "(see --backup)") -> None:
        self.root, self._hint = root, hint
        self.home = home or root.rstrip("/") + SUFFIX
        self.actions: list[dict[str, Any]] = []
        self._command = command
        self._path: str | None = None
        self._staged = 0

    @classmethod
    def at(cls, root: str, path: str, actions: list[dict[str, Any]]) -> "Transaction":
        """A transaction that an earlier run has written down."""
        made = cls(root, "", os.path.dirname(path))
        made._path, made.actions = path, actions
        return made

    @property
    def path(self) -> str:
        """The transaction's own directory, made when it is first needed: most runs find nothing to change."""
        if self._path is None:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            self._path = _fresh_dir(self.home, f"{stamp}-{self._command}")
            os.makedirs(os.path.join(self._path, "after"))
        return self._path

    def inside(self, *parts: str) -> str:
        """A path in the transaction's own directory."""
        return os.path.join(self.path, *parts)

    def staging(self) -> str:
        """Path for a new file that :meth:`put` will move into place."""
        self._staged += 1
        return self.inside("after", f"{self._staged:06d}")

    def put(self, path: str, staged: str, mtime_ns: int | None = None) -> None:
        """A staged file takes a path in the store; what was there is kept."""
        if mtime_ns is not None:
            os.utime(staged, ns=(mtime_ns, mtime_ns))
        made = os.stat(staged)
        self.actions.append(
            {
                "do": "put",
                "path": path,
                "staged": os.path.relpath(staged, self.path),
                # by these an undo sees whether the file is still the one that was put there
                "bytes": made.st_size,
                "mtime_ns": made.st_mtime_ns,
            }
        )

    def remove(self, path: str) -> None:
        """A file leaves the store and is kept."""
        self.actions.append({"do": "remove", "path": path})

    def zero(self, path: str, start: int, stop: int) -> None:
        """Bytes [start, stop) of a file become zero; those that are not zero yet are kept."""
        self.actions.append({"do": "zero", "path": path, "start": start, "stop": stop})

    def commit(self) -> None:
        """Make it durable, then do it."""
        for number, action in enumerate(self.actions):
            if action["do"] == "zero":
                action["kept"] = f"before/{number:06d}.bytes"
                # retention and the time search of 4.9 read a file's age from its modification time
                action["mtime_ns"] = os.stat(action["path"]).st_mtime_ns
                _save_range(
                    action["path"], action["start"], action["stop"], self.inside("before", f"{number:06d}.bytes")
                )
            elif action["do"] != "put" or os.path.lexists(action["path"]):
                action["kept"] = os.path.join("before", _kept_name(self.root, action["path"]))
            if action["do"] == "put":
                action["made"] = _missing_parents(action["path"])
        folders = list(os.walk(self.inside("after")))
        staged = [os.path.join(directory, name) for directory, _subdirs, names in folders for name in names]
        # all at once, so that the medium is not idle between them; who takes longest begins first
        staged.sort(key=lambda path: os.stat(path).st_blocks, reverse=True)
        with ThreadPoolExecutor(_SYNCS) as pool:
            for _done in pool.map(sync, staged):
                pass
        for directory, *_names in folders:
            sync(directory)
        with self.held_off():  # a broker that came while this was prepared ends it here: nothing was changed yet
            self.write_manifest("committed")
            self.apply()

    def held_off(self) -> AbstractContextManager[None]:
        """No broker loads the store as long as this lasts.

        Raises:
            Disturbed: one has already, or is about to.
        """
        config = os.path.join(self.root, "config", "")
        return held_off(self.root, configs=any(str(action["path"]).startswith(config) for action in self.actions))

    def apply(self) -> None:
        """Carry out a committed transaction, also one that was interrupted.

        Raises:
            UnreadableStore: a file cannot be moved or written, as when a disk is full; it can be gone on with.
            Disturbed: a broker has come in; what is left to do is done by the next writing command.
        """
        with self.held_off(), self.going_on():
            self._apply()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Where this fails something is left to do.

        Raises:
            UnreadableStore: instead of an OSError.
            Disturbed: as it was, and that something is left.
        """
        try:
            yield
        except Disturbed as err:
            raise Disturbed(f"{err}: {_HALF_DONE}") from err
        except OSError as err:
            where = err.filename2 or err.filename or self.path
            raise UnreadableStore(f"{where}: {os.strerror(err.errno or 0)}: {_HALF_DONE}") from err

    def _apply(self) -> None:
        # of a run of like actions once for all, for each is a wait for the medium; but before the next kind begins: no
        # power cut may take back queues and leave the abort file removed
        for kind, actions in groupby(self.actions, key=lambda action: str(action["do"])):
            changed: set[str] = set()
            for action in actions:
                check_alone(self.root)
                {"put": self._put, "remove": self._remove, "zero": self._zero}[kind](action, changed)
            for directory in filter(os.path.isdir, sorted(changed)):
                sync(directory)
        self.write_manifest("done")

    def __enter__(self) -> "Transaction":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Forget it if it was not committed, and tell of a write that failed where it was prepared.

        Raises:
            Refused: instead of an OSError about the place for backups, which is all that is written to until then.
        """
        words = f"nothing was changed {self._hint}"
        if self._path is not None and not os.path.exists(self.inside("manifest.json")):
            shutil.rmtree(self._path, ignore_errors=True)
            _remove_if_empty(self.home)
        elif self._path is not None:
            words = _HALF_DONE
        if isinstance(error, OSError):
            named = error.filename
            if str(named).startswith(self.home) if named is not None else error.errno in NO_ROOM:
                raise Refused(f"{self.home}: {os.strerror(error.errno or 0)}: {words}") from error

    def _put(self, action: dict[str, Any], changed: set[str]) -> None:
        staged, path = self.inside(action["staged"]), action["path"]
        changed.update(map(os.path.dirname, (path, *action.get("made", ()))))
        if not os.path.exists(staged):
            return  # an earlier run got this far
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if "kept" in action and not os.path.lexists(self.inside(action["kept"])):
            copy_aside(path, self.inside(action["kept"]))
        move(staged, path)

    def _remove(self, action: dict[str, Any], changed: set[str]) -> None:
        kept = self.inside(action["kept"])
        changed.update(map(os.path.dirname, (kept, action["path"])))
        if os.path.lexists(action["path"]):
            os.makedirs(os.path.dirname(kept), exist_ok=True)
            move(action["path"], kept)

    def _zero(self, action: dict[str, Any], _changed: set[str]) -> None:
        path, start, stop = action["path"], action["start"], action["stop"]
        accessed = os.stat(path).st_atime_ns
        with open(path, "r+b", buffering=0) as file:
            for at, data in written(file.fileno(), start, stop):
                if data.strip(b"\0"):
                    os.pwrite(file.fileno(), bytes(len(data)), at)
            os.fsync(file.fileno())
        os.utime(path, ns=(accessed, action["mtime_ns"]))

    def write_manifest(self, state: str) -> None:
        """Write down the actions and how far they are, durably."""
        head = json.dumps({"format": 1, "state": state, "store": self.root})
        # a line each: to read, and to write fast, which json is not where it indents
        actions = ",\n  ".join(map(json.dumps, self.actions))
        temporary = self.inside("manifest.json.tmp")
        with open(temporary, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f'{head[:-1]}, "actions": [\n  {actions}\n]}}\n')
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.inside("manifest.json"))
        sync(self.path)


def transactions(root: str, home: str | None = None) -> Iterator[tuple[str, Transaction]]:
    """(state, transaction) of all that were written down for a store, oldest first.

    Raises:
        CorruptFile: a manifest cannot be read.
        Refused: the place for backups is no directory, or may not be read.
    """
    home = home or root.rstrip("/") + SUFFIX
    try:
        entries = list_dir(home)
    except UnreadableStore as err:
        raise Refused(f"{err}: no place for a backup (see --backup)") from err
    for entry in entries:
        path = os.path.join(entry.path, "manifest.json")
        data = read_small(path) if entry.is_dir() else None
        if data is None:
            continue
        try:
            manifest = json.loads(data.decode("utf-8", "surrogateescape"))
            yield manifest["state"], Transaction.at(root, entry.path, manifest["actions"])
        except (ValueError, KeyError, TypeError) as err:
            raise CorruptFile(path, None, f"not a manifest of rmqtool: {err}") from err


def sweep(root: str, home: str | None = None) -> None:
    """Remove what runs left that were killed before they had written anything into the store."""
    home = home or root.rstrip("/") + SUFFIX
    for entry in list_dir(home):
        if entry.is_dir() and _NAME.fullmatch(entry.name) and not os.path.exists(f"{entry.path}/manifest.json"):
            shutil.rmtree(entry.path, ignore_errors=True)


def unfinished(root: str, home: str | None = None) -> Transaction | None:
    """The committed but not completed transaction of a store, if a writer was killed.

    Raises:
        Refused: an undo was killed; only another undo can go on from there.
    """
    for state, transaction in transactions(root, home):
        if state == "committed":
            return transaction
        if state == "undoing":
            raise Refused(f"{transaction.path}: an undo was interrupted here: finish it with rmqtool undo")
    return None


def _fresh_dir(home: str, name: str) -> str:
    for attempt in range(1000):
        path = os.path.join(home, name if not attempt else f"{name}-{attempt + 1}")
        try:
            os.makedirs(path)
        except FileExistsError:
            continue
        except OSError as err:
            _remove_if_empty(home)
            raise Refused(f"{home}: {os.strerror(err.errno or 0)}: no place for a backup (see --backup)") from err
        return path
    raise Refused(f"{home}: too many backups of this second")


def _missing_parents(path: str) -> list[str]:
    """Directories that must be made for a file, innermost first."""
    missing = []
    while not os.path.isdir(path := os.path.dirname(path)):
        missing.append(path)
    return missing


def _kept_name(root: str, path: str) -> str:
    """Path of a kept file below ``before/``; files outside the root (other commit-log paths) keep their whole path."""
    relative = os.path.relpath(path, root)
    return os.path.join("outside", path.lstrip("/")) if relative.startswith("..") else relative


def _save_range(path: str, start: int, stop: int, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(path, "rb") as file, open(target, "wb") as out:
        for at, data in written(file.fileno(), start, stop):
            if data.strip(b"\0"):
                out.seek(at - start)
                out.write(data)
        out.truncate(stop - start)
        out.flush()
        os.fsync(out.fileno())
    sync(os.path.dirname(target))


def _remove_if_empty(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        return
