"""The output directory: nothing shows in it before all of it is there, and what was there outlives a failure."""

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress

from rmqtool.errors import Refused

MANIFEST = "_rmqtool.json"
SUCCESS = "_SUCCESS"
_MARKS = (SUCCESS, MANIFEST)


class OutputDir:
    """Where a dump goes.

    Files are written to a hidden directory beside OUT, which takes OUT's place at the end by a rename. Where OUT is a
    mount point, or its parent is not ours to write to, they are written to a directory inside it that readers pass
    over, and moved up at the end.

    Args:
        path: OUT.
        keep_out: directories that are read; OUT must be neither in them nor around them.
        overwrite: whether an older output may be replaced.

    Raises:
        Refused: OUT has content that is not to be replaced, is no directory, or lies in a directory that is read.
    """

    def __init__(self, path: str, keep_out: Iterable[str], *, overwrite: bool = False) -> None:
        self.shown = path
        self.path = os.path.realpath(path)
        self.run = uuid.uuid4().hex[:8]
        self._check(keep_out, overwrite=overwrite)
        self._parent, self._name = os.path.split(self.path)
        self._inside = os.path.isdir(self.path) and (
            os.path.ismount(self.path) or not os.access(self._parent, os.W_OK | os.X_OK)
        )
        self.staging = self._aside("new")

    def _aside(self, kind: str) -> str:
        if self._inside:
            return os.path.join(self.path, f"_rmqtool-{self.run}-{kind}")
        return os.path.join(self._parent, f".{self._name}.rmqtool-{self.run}-{kind}")

    def _check(self, keep_out: Iterable[str], *, overwrite: bool) -> None:
        for directory in map(os.path.realpath, keep_out):
            common = os.path.commonpath([directory, self.path])
            if common == directory:
                raise Refused(f"{self.shown}: the output must not lie in the store ({directory})")
            if common == self.path and os.path.exists(directory):
                raise Refused(f"{self.shown}: the store ({directory}) lies in it")
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return
        except OSError as err:
            raise Refused(f"{self.shown}: {os.strerror(err.errno or 0)}") from err
        if not names:
            return
        if not overwrite:
            raise Refused(f"{self.shown}: exists and is not empty; an older output is replaced only when told so")
        if self.path == os.path.realpath(os.path.expanduser("~")) or not is_output(self.path):
            raise Refused(f"{self.shown}: holds other things than a Parquet output, so it is not replaced")

    def create(self) -> None:
        """Make the place where files are written.

        Raises:
            Refused: it cannot be made.
        """
        try:
            os.makedirs(self.staging)
        except OSError as err:
            raise Refused(f"{self.shown}: cannot be written: {os.strerror(err.errno or 0)}") from err

    def publish(self) -> None:
        """Put what was written in OUT's place.

        Raises:
            Refused: it cannot; OUT is as it was.
        """
        try:
            if self._inside:
                self._move_up()
            else:
                self._swap()
        except OSError as err:
            raise Refused(f"{self.shown}: cannot be written: {os.strerror(err.errno or 0)}") from err

    def _swap(self) -> None:
        try:
            os.rename(self.staging, self.path)  # takes the place of an empty directory too
            return
        except OSError as err:
            if err.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if not is_output(self.path):  # somebody has put other things there meanwhile
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        old = self._aside("old")
        os.rename(self.path, old)
        try:
            os.rename(self.staging, self.path)
        except OSError:
            os.rename(old, self.path)
            raise
        shutil.rmtree(old, ignore_errors=True)

    def _move_up(self) -> None:
        old = self._aside("old")
        os.mkdir(old)
        moves = [(n, self.path, old) for n in os.listdir(self.path) if not n.startswith(f"_rmqtool-{self.run}-")]
        # the marks of a whole output go first and come last
        moves.sort(key=lambda move: move[0] not in _MARKS)
        moves += [(n, self.staging, self.path) for n in sorted(os.listdir(self.staging), key=_MARKS.__contains__)]
        done: list[tuple[str, str, str]] = []
        try:
            for name, source, target in moves:
                os.rename(os.path.join(source, name), os.path.join(target, name))
                done.append((name, source, target))
        except OSError:
            for name, source, target in reversed(done):
                os.rename(os.path.join(target, name), os.path.join(source, name))
            os.rmdir(old)
            raise
        shutil.rmtree(old, ignore_errors=True)
        os.rmdir(self.staging)

    def discard(self) -> None:
        """Remove what was written and not published; nothing after :meth:`publish`."""
        for _attempt in range(20):
            if not os.path.exists(self.staging):
                return
            shutil.rmtree(self.staging, ignore_errors=True)
            time.sleep(0.05)  # a worker whose JVM was ended may take a moment to notice, and write meanwhile

    def keep_only(self, paths: Iterable[str]) -> None:
        """Remove files that no finished task has reported: leftovers of one that failed and was repeated."""
        keep = {os.path.join(self.staging, path) for path in paths}
        for folder, _folders, names in os.walk(self.staging, topdown=False):
            for name in names:
                if os.path.join(folder, name) not in keep:
                    os.unlink(os.path.join(folder, name))
            if folder != self.staging:
                with suppress(OSError):  # not empty
                    os.rmdir(folder)


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
                    pending.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) or not _belongs(name):
                    return False
                marked = marked or name.endswith(".parquet")
    return marked


def _belongs(name: str) -> bool:
    return name.endswith(".parquet") or name.startswith("_") or (name.startswith(".") and name.endswith(".crc"))
