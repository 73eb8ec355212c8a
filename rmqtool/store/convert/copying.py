"""Copy the files of a stopped store to a new one, with the log in other directories."""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from typing import NamedTuple

from rmqtool.errors import Refused, UnreadableStore
from rmqtool.progress import stage
from rmqtool.store.backup.copying import RateLimit, copy_file
from rmqtool.store.backup.sources import SourceFile, Sources
from rmqtool.store.disk.durable import sync
from rmqtool.store.disk.lock import holder
from rmqtool.store.disk.ownership import make_folders_as
from rmqtool.store.disk.work_folder import WorkFolder, prepare_target
from rmqtool.store.layout.parts import PARTS
from rmqtool.store.layout.paths import EPOCHS, StoreLayout, checked_path

PART = ".converting"  # suffix of a directory's name until it is complete
_LOG, _NAME = "commitlog/", 20  # characters of a file's name


class NewStore(NamedTuple):
    """A store that is being made.

    Attributes:
        root: its directory for now.
        folders: directories of its log for now, in the order in which files go there.
    """

    root: str
    folders: list[str]


def refuse_use(layout: StoreLayout) -> None:
    """Refuse a store in use: a running broker has data in memory that is in no file.

    Raises:
        Refused: it is.
    """
    if (pid := holder(layout.root)) is not None:
        raise Refused(f"{layout.root}: in use{f' by process {pid}' if pid else ''}: stop the broker first")


def check_places(layout: StoreLayout, store: str, folders: Collection[str] = ()) -> tuple[str, list[str]]:
    """The absolute paths of a new store and of the directories of its log, which must not exist.

    Raises:
        Refused: one exists, or lies in the source or in another one.
    """
    root, log = checked_path(store), [checked_path(folder) for folder in folders]
    source = os.path.realpath(layout.root)
    for path in (root, *log):
        real = os.path.realpath(path)
        if real == source or real.startswith(source + os.sep):
            raise Refused(f"{path}: lies in {layout.root}: give a place outside of it")
        if source.startswith(real + os.sep):
            raise Refused(f"{path}: {layout.root} lies in it: give another place")
    if len({*log, root}) <= len(log):
        raise Refused(f"{', '.join(log)}: a directory is given twice")
    if os.path.lexists(root):
        raise Refused(f"{root}: exists already: give another name, or move it away")
    return root, log


@contextmanager
def making(layout: StoreLayout, root: str, folders: Collection[str]) -> Iterator[NewStore]:
    """Make a store: at the end all of its directories get their names, the store's own last.

    If the process is killed before that, the next run with the same names begins again.

    Raises:
        Refused: something is there, or cannot be written to.
    """
    outside = [folder for folder in folders if not folder.startswith(root + os.sep)]
    holds = {part.name.partition("/")[0] for part in PARTS} | {entry.name for entry in layout.entries()}
    holds |= {EPOCHS, EPOCHS + ".tmp"}
    holds |= {os.path.relpath(folder, root).partition(os.sep)[0] for folder in folders}
    try:
        with ExitStack() as stack:
            works: list[tuple[WorkFolder, str]] = []
            for folder in outside:
                os.makedirs(os.path.dirname(folder), exist_ok=True)
                works.append((stack.enter_context(_LogFolder(folder, root)), folder))
                prepare_target(folder)
            prepare_target(root)
            own = stack.enter_context(WorkFolder(root + PART, holds))
            temporary = {folder: work.path for work, folder in works}
            yield NewStore(own.path, [temporary.get(folder) or _inside(own.path, root, folder) for folder in folders])
            for folder in (own.path, *temporary.values()):
                for above, _folders, _names in os.walk(folder):
                    sync(above)
            for work, folder in works:
                work.move_out(work.path, folder)
                sync(os.path.dirname(folder))
            own.become(root)
    except OSError as err:
        raise Refused(f"{err.filename or root}: cannot be written: {os.strerror(err.errno or 0)}") from err


def _inside(temporary: str, root: str, folder: str) -> str:
    return os.path.join(temporary, os.path.relpath(folder, root))


class _LogFolder(WorkFolder):
    """A directory of the log on another disk.

    Args:
        folder: its final path.
        root: of the store that it belongs to.
    """

    def __init__(self, folder: str, root: str) -> None:
        super().__init__(folder + PART, (), takes_back=folder, purpose=root)

    def _is_ours(self) -> bool:
        return self._mark_matches("folder", self.path) and all(map(_is_log_file, os.listdir(self.path)))


def copy_all(
    layout: StoreLayout, new: NewStore, left_out: Collection[str], folder_of: Callable[[int], int]
) -> tuple[int, int, list[str]]:
    """Copy every file of a stopped store.

    Args:
        left_out: parts that the new store has not; ``*`` stands for any name.
        folder_of: returns the number of the log directory for the n-th file of the log.

    Returns:
        (files of the log, their bytes, warnings).

    Raises:
        Refused: the store changed meanwhile.
        UnreadableStore: a file cannot be read.
    """
    before = _states(layout)
    all_sources = Sources(layout, live=False)
    sources = [source for source in all_sources if not _is_left_out(source.path, left_out)]
    files = total = 0
    with stage("copying", sum(_size(source) for source in sources)) as copying:
        make_folders_as(new.root, layout.root)
        for folder in new.folders:
            make_folders_as(folder, layout.root)
        for source in sources:
            if source.path.startswith(_LOG):
                path = os.path.join(new.folders[folder_of(files)], source.path.removeprefix(_LOG))
                files, total = files + 1, total + _size(source)
            else:
                path = os.path.join(new.root, *source.path.split("/"))
            make_folders_as(os.path.dirname(path), layout.root)
            copy_file(source.original, path, pace=RateLimit(None), progress=copying)
            sync(path)
    refuse_use(layout)
    if _states(StoreLayout(layout.root, layout.conf)) != before:
        raise Refused(f"{layout.root}: it changed while it was copied: stop whatever writes there, and run this again")
    return files, total, [text.replace("in the backup", "in the new store") for text in all_sources.warnings]


def _is_log_file(name: str) -> bool:
    return len(name) == _NAME and name.isdecimal()


def _is_left_out(path: str, left_out: Collection[str]) -> bool:
    return any(fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}/*") for pattern in left_out)


def _size(source: SourceFile) -> int:
    return os.path.getsize(source.original)


def _states(layout: StoreLayout) -> dict[str, tuple[int, int]]:
    """Length and time of every file of a store."""
    states = {}
    try:
        for folder in (layout.root, *layout.commit_log_paths):
            for above, _folders, names in os.walk(folder):
                for name in names:
                    path = os.path.join(above, name)
                    if name != "lock":
                        status = os.stat(path)
                        states[path] = status.st_size, status.st_mtime_ns
    except OSError as err:
        raise UnreadableStore(f"{err.filename}: {os.strerror(err.errno or 0)}") from err
    return states
