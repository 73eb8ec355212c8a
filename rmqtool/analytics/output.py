"""The output directory: nothing shows in it before all of it is there, and what was there outlives a failure.

A run writes to a directory aside, its staging, that readers pass over. What splits are done is told there too, so that
a run that was killed can be gone on with.
"""

import errno
import fcntl
import json
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from rmqtool.analytics.files import Folder, local_path, sync
from rmqtool.errors import Refused

MANIFEST = "_rmqtool.json"
SUCCESS = "_SUCCESS"
RUN, DONE = "_run.json", "_done"  # in the staging: what is being done, and a directory of what is
_MARKS = (SUCCESS, MANIFEST)
_STAGING = "_rmqtool-new"
_JOURNAL = "_rmqtool-commit.json"


class Output(ABC):
    """What both kinds of output have in common.

    Attributes:
        location: OUT.
        staging: where tasks write.
    """

    def __init__(self, location: str, staging: Folder) -> None:
        self.location, self.staging = location, staging
        self._lock: int | None = None

    def begin(self, run: dict[str, Any]) -> bool:
        """Have a staging for a run; returns whether it is one that an equal run has left.

        Raises:
            Refused: another process writes there, or it cannot be made.
        """
        try:
            self._make()
            self._hold()
            if self.staging.read_json(RUN) == run:
                return True
            self._empty()
            self.staging.write(RUN, json.dumps(run), lasting=True)
        except OSError as err:
            raise Refused(f"{self.location}: cannot be written: {_told(err)}") from err
        return False

    def _make(self) -> None:
        above, path = [], local_path(self.staging.location)
        while path is not None and not os.path.exists(path := os.path.dirname(path)):
            above.append(os.path.dirname(path))
        self.staging.make()
        for path in above:
            sync(path)

    def _hold(self) -> None:
        path = local_path(self.staging.location)
        if path is None:  # nothing is known elsewhere that goes when its holder is killed
            return
        self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            os.close(self._lock)
            self._lock = None
            raise Refused(f"{self.location}: another dump is being written there") from err

    def _empty(self) -> None:
        for name in self.staging.files():
            self.staging.delete(name)
        self.staging.sync_names()  # what another run has left must not come back as this one's

    @abstractmethod
    def publish(self, manifest: dict[str, Any]) -> None:
        """Make what was written, and what is said of it, the output or a part of it.

        Raises:
            Refused: it cannot.
        """

    def keep_only(self, paths: Iterable[str]) -> None:
        """Remove files that no finished task has reported: leftovers of one that failed and was repeated."""
        keep = set(paths)
        for name in self.staging.files():
            if name not in keep and name != RUN and not name.startswith(f"{DONE}/"):
                self.staging.delete(name)

    def leave(self) -> None:
        """Let others write there; what is in the staging stays."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def discard(self) -> None:
        """Remove what was written and not published; nothing after a publication."""
        if self._lock is None and local_path(self.staging.location) is not None:
            return
        for _attempt in range(20):
            with suppress(OSError):
                self.staging.fs.delete_dir(self.staging.path)
                break
            if not self.staging.files():
                break
            time.sleep(0.05)  # a worker whose JVM was ended may take a moment to notice, and write meanwhile
        self.leave()


class SwapOutput(Output):
    """A directory beside OUT that takes OUT's place by a rename."""

    def __init__(self, path: str) -> None:
        parent, name = os.path.split(path)
        self._path, self._old = path, os.path.join(parent, f".{name}.rmqtool-old")
        super().__init__(path, Folder(os.path.join(parent, f".{name}.rmqtool-new")))

    def begin(self, run: dict[str, Any]) -> bool:
        """As :meth:`Output.begin`."""
        same = super().begin(run)
        with suppress(OSError):
            if os.path.exists(self._old):  # killed between two renames, or while removing
                if os.path.exists(self._path):
                    self._drop_old()
                else:
                    os.rename(self._old, self._path)
        return same

    def publish(self, manifest: dict[str, Any]) -> None:
        """As :meth:`Output.publish`; when refused, OUT is as it was."""
        try:
            self.staging.sync_names()
            self.staging.write(MANIFEST, _text(manifest), lasting=True)
            self.staging.delete_dir(DONE)
            self.staging.delete(RUN)
            _prune(self.staging.path)
            self.staging.write(SUCCESS, "", lasting=True)
            self._swap()
        except OSError as err:
            raise Refused(f"{self.location}: cannot be written: {_told(err)}") from err
        self.leave()

    def _swap(self) -> None:
        try:
            os.rename(self.staging.path, self._path)  # takes the place of an empty directory too
            sync(os.path.dirname(self._path))
            return
        except OSError as err:
            if err.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if not is_output(self._path):  # somebody has put other things there meanwhile
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        os.rename(self._path, self._old)
        try:
            os.rename(self.staging.path, self._path)
        except OSError:
            os.rename(self._old, self._path)
            raise
        self._drop_old()

    def _drop_old(self) -> None:
        sync(os.path.dirname(self._path))  # or a power cut could bring back the name of what is half gone
        shutil.rmtree(self._old, ignore_errors=True)


class MoveOutput(Output):
    """A directory inside OUT whose files are moved up: where OUT grows, is no local directory, or cannot be renamed.

    A journal is written when all files are there. From then on the new files belong to the output: whoever opens it
    next finishes the moves. ``_SUCCESS`` is absent while they are under way.

    Args:
        replace: whether all other files of the output go.
    """

    def __init__(self, location: str, *, replace: bool) -> None:
        self._folder, self._replace = Folder(location), replace
        self._made = False
        super().__init__(location, self._folder.below(_STAGING))

    def begin(self, run: dict[str, Any]) -> bool:
        """As :meth:`Output.begin`."""
        path = local_path(self.location)
        self._made = path is not None and not os.path.exists(path)
        return super().begin(run)

    def discard(self) -> None:
        """As :meth:`Output.discard`; OUT goes too where it was made for this run."""
        super().discard()
        if self._made:
            with suppress(OSError):  # not empty
                os.rmdir(self._folder.path)

    def publish(self, manifest: dict[str, Any]) -> None:
        """As :meth:`Output.publish`; when refused, the same command finishes it."""
        remove = []
        if self._replace:
            new = {file["path"] for file in manifest["files"]}
            remove = [name for name in self._folder.files() if not name.startswith("_") and name not in new]
        try:
            self.staging.sync_names()
            self._folder.write(_JOURNAL, _text({"remove": remove, "manifest": manifest}), _STAGING, lasting=True)
            _finish(self._folder)
        except OSError as err:
            raise Refused(f"{self.location}: cannot be written: {_told(err)}") from err
        self.leave()

    def others(self) -> list[str]:
        """All files but those of the staging."""
        return [name for name in self._folder.files() if not name.startswith(f"{_STAGING}/")]

    def finish(self) -> None:
        """Bring a publication that was begun to its end; nothing where none was.

        Raises:
            Refused: another process does so, or it fails.
        """
        if self._folder.size(_JOURNAL) is None:
            return
        try:
            self.staging.make()
            self._hold()
            _finish(self._folder)
        except OSError as err:
            raise Refused(f"{self.location}: cannot be written: {_told(err)}") from err
        finally:
            self.leave()


def _finish(folder: Folder) -> None:
    journal = folder.read_json(_JOURNAL)
    folder.delete(SUCCESS)
    folder.sync("")
    for name in journal["remove"]:
        folder.delete(name)
    manifest = journal["manifest"]
    made = set()
    for file in manifest["files"]:
        name = file["path"]
        if folder.size(f"{_STAGING}/{name}") is None:
            continue  # moved already, or by an earlier run
        level = name.rpartition("/")[0]
        if level and level not in made:
            folder.make(level)
            made.add(level)
        folder.move(f"{_STAGING}/{name}", name)
    folder.sync_names()
    folder.write(MANIFEST, _text(manifest), _STAGING, lasting=True)
    folder.write(SUCCESS, "", _STAGING, lasting=True)
    folder.delete_dir(_STAGING)
    if local_path(folder.location) is not None:
        _prune(folder.path)
    folder.delete(_JOURNAL)
    folder.sync("")


def open_output(location: str, keep_out: Iterable[str], *, overwrite: bool = False, grow: bool = False) -> Output:
    """Where a dump goes.

    Args:
        location: a path or a URI.
        keep_out: directories that are read; OUT must be neither in them nor around them.
        overwrite: whether an older output may be replaced.
        grow: whether files are added to an older output.

    Raises:
        BadValue: a URI that is of no known file system.
        Refused: OUT has content that is not to be replaced, is no directory, or lies in a directory that is read.
    """
    path = local_path(location)
    move = MoveOutput(location if path is None else os.path.realpath(path), replace=not grow)
    if path is None:
        try:
            move.finish()
            names = move.others()
        except OSError as err:
            raise Refused(f"{location}: cannot be read: {_told(err)}") from err
        _check(location, bool(names), all(map(_belongs_below, names)), overwrite=overwrite, grow=grow)
        return move
    path = os.path.realpath(path)
    _check_apart(location, path, keep_out)
    beside = os.R_OK | os.W_OK | os.X_OK
    inside = os.path.isdir(path) and (os.path.ismount(path) or not os.access(os.path.dirname(path), beside))
    try:
        there = bool(set(os.listdir(path)) - {_STAGING})
        if there:
            move.finish()
    except FileNotFoundError:
        there = False
    except OSError as err:
        raise Refused(f"{location}: {_told(err)}") from err
    home = path == os.path.realpath(os.path.expanduser("~"))
    _check(location, there, not home and (not there or is_output(path)), overwrite=overwrite, grow=grow)
    return move if inside or grow else SwapOutput(path)


def _check_apart(location: str, path: str, keep_out: Iterable[str]) -> None:
    for directory in map(os.path.realpath, keep_out):
        common = os.path.commonpath([directory, path])
        if common == directory:
            raise Refused(f"{location}: the output must not lie in the store ({directory})")
        if common == path and os.path.exists(directory):
            raise Refused(f"{location}: the store ({directory}) lies in it")


def _check(location: str, there: bool, fit: bool, *, overwrite: bool, grow: bool) -> None:
    if there and not overwrite and not grow:
        raise Refused(f"{location}: exists and is not empty; an older output is replaced only when told so")
    if there and not fit:
        raise Refused(f"{location}: holds other things than a Parquet output, so it is left alone")


def manifest_of(location: str) -> dict[str, Any] | None:
    """What an output says of itself; None without one."""
    manifest = Folder(local_path(location) or location).read_json(MANIFEST)
    return manifest if isinstance(manifest, dict) else None


def is_output(path: str) -> bool:
    """Whether a directory holds a Parquet output and nothing else; a link anywhere in it counts as something else."""
    marked = any(os.path.isfile(os.path.join(path, mark)) for mark in _MARKS)
    pending = [path]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                name = entry.name
                if entry.is_dir(follow_symlinks=False):
                    if "=" not in name and not name.startswith("_"):
                        return False
                    if name != _STAGING:  # what a run that was killed has left is ours
                        pending.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) or not _belongs(name):
                    return False
                marked = marked or name.endswith(".parquet")
    return marked


def _belongs(name: str) -> bool:
    return name.endswith(".parquet") or name.startswith("_") or (name.startswith(".") and name.endswith(".crc"))


def _belongs_below(name: str) -> bool:
    *levels, last = name.split("/")
    return _belongs(last) and all("=" in level or level.startswith("_") for level in levels)


def _prune(path: str) -> None:
    """Remove empty directories."""
    for folder, _folders, _names in os.walk(path, topdown=False):
        if folder != path:
            with suppress(OSError):  # not empty
                os.rmdir(folder)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def _told(err: OSError) -> str:
    return os.strerror(err.errno) if err.errno else str(err).splitlines()[0]
