"""File names in manifests: relative to the store or to another commit-log path, or named by the user in each command.

A manifest is in a directory that others may have written to, so its names are not trusted: any file that a change to
this store could not have touched is refused before anything is done.
"""

import os
import re
from collections.abc import Iterable
from typing import Any

from rmqtool.errors import Refused
from rmqtool.store.layout.paths import PARTS, StoreLayout

MARKER = ".rmqtool-pending"  # in the store while a change is half done
_NOT_OURS = {"", "lock", MARKER}
_NAMED = "named"
_MOST_PATH = 4000
_OTHERS = ("storePathDLedgerCommitLog", "tieredStoreFilePath")  # settings of directories that may be anywhere
# files that symbolic links may place outside the store; nothing else is ever written there
_STORE_FILE = re.compile(
    r"(?:[^/]+/)*\d{17,20}|config/[A-Za-z]+\.json(?:\.bak)?|config/timercheck|compaction/position-checkpoint"
)


class NotNamed(ValueError):
    """A manifest refers to a file outside the store."""


class Places:
    """The directories in which a change may touch files.

    Args:
        root: the store, by any path.
        logs: all its commit-log paths, in the order of its settings.
        others: further directories of its settings, such as that of its tier.
        named: files outside the store that the user has named in this command, such as a broadcasting client's.

    Attributes:
        root: absolute, not resolved.
        real: with symbolic links resolved; the same for every path of one store.
    """

    def __init__(
        self, root: str, logs: Iterable[str] = (), named: Iterable[str] = (), others: Iterable[str] = ()
    ) -> None:
        self.root, self.real = os.path.abspath(root), os.path.realpath(root)
        self.logs = [os.path.abspath(path) for path in logs]
        self._bases = [*self.logs, *map(os.path.abspath, others)]  # that names in manifests count
        self._real_bases = [os.path.realpath(path) for path in self._bases]
        self.named = {os.path.abspath(path) for path in named}
        self._folders: dict[str, str] = {}

    @property
    def log_folders(self) -> set[str]:
        """Directories of the log's files."""
        return set(self.logs) or {os.path.join(self.root, "commitlog")}

    @classmethod
    def of(cls, layout: StoreLayout, named: Iterable[str] = ()) -> "Places":
        """The places of a store."""
        others = (each for name in _OTHERS for each in layout.configured_paths(name))
        return cls(layout.root, layout.commit_log_paths, named, others)

    def outside(self) -> list[str]:
        """Directories of the store that lie outside its own, by their settings or by a symbolic link."""
        parts = {*self._bases, *(os.path.join(self.root, part) for part in PARTS)}
        return [path for path in sorted(parts) if _below(os.path.realpath(path), self.real) is None]

    def name_of(self, path: str, *, above: bool = False) -> Any:
        """The name of a file in a manifest.

        Args:
            above: whether it is a directory above a changed file, which may be outside by a symbolic link.

        Raises:
            Refused: no change to this store may touch it.
        """
        path = os.path.abspath(path)
        if (relative := _below(path, self.root)) is not None:
            name: Any = relative
        elif path in self.named:
            name = {_NAMED: path}
        else:
            name = next(
                ([n, rest] for n, base in enumerate(self._bases) if (rest := _below(path, base)) is not None), None
            )
        try:
            self.path_of(name, above=above)
        except ValueError as err:
            raise Refused(f"{path}: {err}") from err
        return name

    def path_of(self, name: Any, *, follow: bool = False, above: bool = False) -> str:
        """The path of a name in a manifest.

        Args:
            follow: whether the file is written through a symbolic link.
            above: see :meth:`name_of`.

        Raises:
            ValueError: the file must not be touched.
        """
        if isinstance(name, dict):
            path = name.get(_NAMED)
            if len(name) != 1 or not isinstance(path, str):
                raise ValueError("no name of a file")
            if path not in self.named:
                raise NotNamed(
                    f"{path} lies outside the store, and was not named in this command: a client's offsets.json is "
                    "named with --broadcast"
                )
            return path
        base, real, relative = self.root, self.real, name
        if isinstance(name, list):
            if len(name) != 2 or type(name[0]) is not int:
                raise ValueError("no name of a file")
            if not 0 <= name[0] < len(self._bases):
                raise ValueError("in another commit-log path than those of the settings (see --broker-conf)")
            base, real, relative = self._bases[name[0]], self._real_bases[name[0]], name[1]
        path = os.path.join(base, checked_relative(relative))
        if base is self.root and relative in _NOT_OURS:
            raise ValueError("no change touches this file")
        if not above:
            self._check_links(path, real, relative, follow=follow)
        return path

    def _check_links(self, path: str, real: str, relative: str, *, follow: bool) -> None:
        folder = os.path.dirname(path)
        if (real_folder := self._folders.get(folder)) is None:
            real_folder = self._folders[folder] = os.path.realpath(folder)
        ends = [os.path.join(real_folder, os.path.basename(path))]
        if follow and os.path.islink(path):
            ends.append(os.path.realpath(path))
        for end in ends:
            if _below(end, real) is None and not (
                _STORE_FILE.fullmatch(relative) and os.path.basename(end) == os.path.basename(path)
            ):
                raise ValueError("a symbolic link leads out of the store")

    def show(self, path: str) -> str:
        """The path to show: relative to the store if it is inside."""
        return _below(path, self.root) or path


def named_outside(paths: Iterable[str | None]) -> list[str]:
    """Files outside the store that the user has named for a command to change, and their ``.bak``."""
    return [name for path in paths if path is not None for name in (path, path + ".bak")]


def checked_relative(name: Any) -> str:
    """Check that a name is a relative path that stays below its base.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(name, str) or not name or len(name) > _MOST_PATH or "\0" in name:
        raise ValueError("no name of a file")
    if any(part in ("", ".", "..") or len(part) > 255 for part in name.split("/")):
        raise ValueError("leads out of its directory, or is no plain path")
    return name


def _below(path: str, folder: str) -> str | None:
    inside = folder.rstrip("/") + "/"
    return path[len(inside) :] or None if path.startswith(inside) else None
